/* SPDX-License-Identifier: Apache-2.0
 * Reads the steps of normalizers, pre-tokenizers and decoders. */
#include "models/tokenizer/steps.h"
#include "models/tokenizer/utf8.h"

/* The JSON parser limits the nesting. */
tx_status tx_component_read(const tx_json *part, const char *list_key, tx_component_reader *read, void *context)
{
    const char *type;
    tx_json *list;
    if (!part)
        return TX_OK;
    if (tx_json_type_of(part) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "not an object");
    TX_TRY(tx_json_get_string(part, "type", &type));
    if (strcmp(type, "Sequence") != 0)
        return read(context, part, type);
    TX_TRY(tx_json_get(part, list_key, TX_JSON_ARRAY, &list));
    for (size_t i = 0; i < tx_json_size(list); i++)
        TX_TRY(tx_fail_in(tx_component_read(tx_json_at(list, i), list_key, read, context), "%s[%zu]", list_key, i));
    return TX_OK;
}

tx_status tx_component_choice(const tx_json *json, const char *key, const char *const *names, size_t count,
                              size_t *choice)
{
    const char *name;
    TX_TRY(tx_json_get_string(json, key, &name));
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) {
            *choice = i;
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED, "%s %.40s is not supported", key, name);
}

typedef struct reading {
    tx_tokenizer_steps *steps;
    const tx_tokenizer_step_kind *kinds;
    size_t count;
} reading;

static tx_status read_step(void *context, const tx_json *json, const char *type)
{
    const reading *r = context;
    size_t kind = 0;
    while (kind < r->count && strcmp(r->kinds[kind].name, type) != 0)
        kind++;
    if (kind == r->count)
        return tx_fail(TX_UNSUPPORTED, "%.40s is not supported", type);
    if (r->steps->count == TX_TOKENIZER_STEPS_MAX)
        return tx_fail(TX_UNSUPPORTED, "more than %d steps", TX_TOKENIZER_STEPS_MAX);
    tx_tokenizer_step *step = &r->steps->at[r->steps->count++]; /* the owner of `steps` frees it */
    *step = (tx_tokenizer_step){.kind = &r->kinds[kind]};
    tx_status status = step->kind->read ? step->kind->read(step, json) : TX_OK;
    return tx_fail_in(status, "%s", type);
}

tx_status tx_tokenizer_steps_read(tx_tokenizer_steps *steps, const tx_json *part, const char *list_key,
                                  const tx_tokenizer_step_kind *kinds, size_t count)
{
    return tx_component_read(part, list_key, read_step, &(reading){steps, kinds, count});
}

void tx_tokenizer_steps_free(tx_tokenizer_steps *steps)
{
    for (int32_t i = 0; i < steps->count; i++) {
        tx_regex_close(&steps->at[i].regex);
        free(steps->at[i].text);
        tx_charsmap_free(steps->at[i].map);
    }
}

/* ---- Members of steps ------------------------------------------------------------------------------ */

tx_status tx_tokenizer_step_text(tx_tokenizer_step *step, const tx_json *json, const char *key)
{
    const char *text;
    TX_TRY(tx_json_get_string(json, key, &text));
    step->text = strdup(text);
    return step->text ? TX_OK : tx_fail(TX_MEMORY, "no memory for a text");
}

/* Makes a regular expression that matches only the text. */
static tx_status quote(const char *text, char **created)
{
    char *pattern = malloc(2 * strlen(text) + 1), *at = pattern;
    if (!pattern)
        return tx_fail(TX_MEMORY, "no memory for a pattern");
    for (; *text; text++) {
        if (strchr("\\^$.[]|()?*+{}-", *text))
            *at++ = '\\';
        *at++ = *text;
    }
    *at = '\0';
    *created = pattern;
    return TX_OK;
}

tx_status tx_tokenizer_step_pattern(tx_tokenizer_step *step, const tx_json *json)
{
    tx_json *pattern;
    const char *text;
    char *quoted = NULL;
    TX_TRY(tx_json_get(json, "pattern", TX_JSON_OBJECT, &pattern));
    if (!tx_json_has(pattern, "String")) {
        TX_TRY(tx_json_get_string(pattern, "Regex", &text));
        return tx_regex_open(text, &step->regex);
    }
    TX_TRY(tx_json_get_string(pattern, "String", &text));
    TX_TRY(quote(text, &quoted));
    const tx_status status = tx_regex_open(quoted, &step->regex);
    free(quoted);
    return status;
}

tx_status tx_tokenizer_step_replace(tx_tokenizer_step *step, const tx_json *json)
{
    TX_TRY(tx_tokenizer_step_pattern(step, json));
    return tx_tokenizer_step_text(step, json, "content");
}

tx_status tx_tokenizer_step_metaspace(tx_tokenizer_step *step, const tx_json *json)
{
    static const char *const schemes[] = {"never", "first", "always"};
    size_t scheme = 0;
    bool prefix = true; /* for files older than prepend_scheme */
    TX_TRY(tx_tokenizer_step_text(step, json, "replacement"));
    if (!*step->text || tx_utf8_read(step->text, strlen(step->text), NULL) != strlen(step->text))
        return tx_fail(TX_FORMAT, "replacement %.40s: expected one character", step->text);
    step->mark = true;
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "add_prefix_space", &prefix));
    step->prepend = prefix ? TX_PREPEND_ALWAYS : TX_PREPEND_NEVER;
    if (!tx_json_has(json, "prepend_scheme"))
        return TX_OK;
    TX_TRY(tx_component_choice(json, "prepend_scheme", schemes, sizeof schemes / sizeof schemes[0], &scheme));
    step->prepend = (tx_prepend)scheme;
    return TX_OK;
}

void tx_tokenizer_step_replace_all(const tx_tokenizer_step *step, tx_matcher *matcher, const char *text, size_t size,
                                   tx_buffer *out)
{
    for (size_t at = 0, begin = 0, end = 0; at < size && !out->status; at = end) {
        tx_status status = tx_matcher_next(matcher, &step->regex, text, size, at, &begin, &end);
        if (status) {
            out->status = status;
            return;
        }
        tx_buffer_add(out, text + at, begin - at);
        if (begin < end)
            tx_buffer_add(out, step->text, strlen(step->text));
    }
}
