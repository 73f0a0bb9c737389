/* SPDX-License-Identifier: Apache-2.0
 * Reads XML element by element. */
#include "comm/topology/xml.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tx_xml_begin(tx_xml *xml, const char *text)
{
    *xml = (tx_xml){.at = text, .line = 1};
}

tx_status tx_xml_fail(const tx_xml *xml, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tx_fail(TX_FORMAT, "line %" PRId64 ": %s", xml->line, text);
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static void skip_to(tx_xml *xml, const char *end)
{
    for (; xml->at < end; xml->at++)
        xml->line += *xml->at == '\n';
}

static void skip_space(tx_xml *xml)
{
    skip_to(xml, xml->at + strspn(xml->at, " \t\r\n"));
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == ':' || c == '.';
}

/* A name at the present place; empty where there is none. */
static tx_xml_piece read_name(tx_xml *xml)
{
    tx_xml_piece name = {xml->at, 0};
    while (name_byte(name.text[name.size]))
        name.size++;
    xml->at += name.size;
    return name;
}

static bool same(tx_xml_piece a, tx_xml_piece b)
{
    return a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
}

static bool is(tx_xml_piece piece, const char *text)
{
    return piece.size == strlen(text) && memcmp(piece.text, text, piece.size) == 0;
}

/* ---- Elements ----------------------------------------------------------------------------------- */

/* Declarations, doctypes and comments. */
static tx_status skip_rest(tx_xml *xml)
{
    for (;;) {
        skip_space(xml);
        if (xml->at[0] != '<' || (xml->at[1] != '?' && xml->at[1] != '!'))
            return TX_OK;
        bool comment = strncmp(xml->at, "<!--", 4) == 0;
        const char *close = comment ? "-->" : xml->at[1] == '?' ? "?>" : ">";
        const char *end = strstr(xml->at + (comment ? 4 : 2), close);
        if (!end)
            return tx_xml_fail(xml, "what begins with %.4s does not end", xml->at);
        skip_to(xml, end + strlen(close));
    }
}

static tx_status read_attribute(tx_xml *xml)
{
    tx_xml_piece name = read_name(xml);
    skip_space(xml);
    if (name.size == 0 || *xml->at != '=')
        return tx_xml_fail(xml, "an attribute of <%.*s> is broken", (int)(xml->name.size % 64), xml->name.text);
    xml->at++;
    skip_space(xml);
    char quote = *xml->at;
    const char *end = quote == '"' || quote == '\'' ? strchr(xml->at + 1, quote) : NULL;
    if (!end || memchr(xml->at, '<', (size_t)(end - xml->at)))
        return tx_xml_fail(xml, "the value of attribute %.*s is broken", (int)(name.size % 64), name.text);
    for (int32_t i = 0; i < xml->attribute_count; i++)
        if (same(xml->attributes[i], name))
            return tx_xml_fail(xml, "attribute %.*s is given twice", (int)(name.size % 64), name.text);
    if (xml->attribute_count == TX_XML_ATTRIBUTES)
        return tx_xml_fail(xml, "more than %d attributes", TX_XML_ATTRIBUTES);
    xml->attributes[xml->attribute_count] = name;
    xml->values[xml->attribute_count++] = (tx_xml_piece){xml->at + 1, (size_t)(end - xml->at - 1)};
    skip_to(xml, end + 1);
    return TX_OK;
}

static tx_status read_open(tx_xml *xml)
{
    xml->at++;
    xml->event = TX_XML_OPEN;
    xml->name = read_name(xml);
    xml->attribute_count = 0;
    if (xml->name.size == 0)
        return tx_xml_fail(xml, "an element has no name");
    if (xml->depth == TX_XML_DEPTH)
        return tx_xml_fail(xml, "nested deeper than %d", TX_XML_DEPTH);
    for (;;) {
        bool space = strspn(xml->at, " \t\r\n") > 0;
        skip_space(xml);
        if (xml->at[0] == '/' && xml->at[1] == '>') {
            xml->at += 2;
            xml->closing = true;
            break;
        }
        if (*xml->at == '>') {
            xml->at++;
            break;
        }
        tx_status status = !*xml->at ? tx_xml_fail(xml, "the file ends within an element")
                           : space   ? read_attribute(xml)
                                     : tx_xml_fail(xml, "<%.*s> is broken", (int)(xml->name.size % 64), xml->name.text);
        if (status)
            return status;
    }
    xml->open[xml->depth++] = xml->name;
    return TX_OK;
}

static tx_status read_close(tx_xml *xml)
{
    xml->at += 2;
    xml->event = TX_XML_CLOSE;
    xml->name = read_name(xml);
    skip_space(xml);
    if (*xml->at != '>' || xml->depth == 0 || !same(xml->name, xml->open[xml->depth - 1]))
        return tx_xml_fail(xml, "</%.*s> closes nothing", (int)(xml->name.size % 64), xml->name.text);
    xml->at++;
    xml->depth--;
    return TX_OK;
}

tx_status tx_xml_next(tx_xml *xml)
{
    if (xml->closing) {
        xml->closing = false;
        xml->event = TX_XML_CLOSE;
        xml->name = xml->open[--xml->depth];
        return TX_OK;
    }
    tx_status status = skip_rest(xml);
    if (status)
        return status;
    if (xml->at[0] == '<')
        return xml->at[1] == '/' ? read_close(xml) : read_open(xml);
    if (*xml->at)
        return tx_xml_fail(xml, "text between elements");
    if (xml->depth > 0)
        return tx_xml_fail(xml, "the file ends before </%.*s>", (int)(xml->open[xml->depth - 1].size % 64),
                           xml->open[xml->depth - 1].text);
    xml->event = TX_XML_END;
    return TX_OK;
}

bool tx_xml_is(const tx_xml *xml, const char *name)
{
    return is(xml->name, name);
}

const char *tx_xml_get(const tx_xml *xml, const char *attribute, char *text, size_t size)
{
    static const struct {
        const char *name;
        char value;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t used = 0;
    for (int32_t i = 0; i < xml->attribute_count; i++) {
        if (!is(xml->attributes[i], attribute))
            continue;
        const char *at = xml->values[i].text, *end = at + xml->values[i].size;
        while (at < end && used + 1 < size) {
            char c = *at;
            size_t step = 1;
            for (size_t k = 0; c == '&' && k < sizeof entities / sizeof entities[0]; k++)
                if (strncmp(at, entities[k].name, strlen(entities[k].name)) == 0) {
                    c = entities[k].value;
                    step = strlen(entities[k].name);
                    break;
                }
            text[used++] = c;
            at += step;
        }
    }
    text[used] = '\0';
    return text;
}
