/* SPDX-License-Identifier: Apache-2.0
 * Post-processors: each kind is a template for one text, and one for two. */
#include "models/tokenizer/post_processor.h"
#include "models/tokenizer/steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tx_status add(tx_template *template, int64_t id, int64_t type)
{
    const tx_template_item item = {(int32_t)id, (int32_t)type};
    TX_TRY(tx_array_reserve(&template->item, &template->room, template->count + 1, sizeof item, "special tokens"));
    template->item[template->count++] = item;
    return TX_OK;
}

/* ---- TemplateProcessing ---------------------------------------------------------------------------- */

/* Adds the ids of a special token, which `special_tokens` defines. */
static tx_status add_special(tx_template *template, const tx_json *tokens, const char *name, int64_t type)
{
    tx_json *token, *ids;
    int64_t id;
    if (!tokens)
        return tx_fail(TX_FORMAT, "special_tokens is missing");
    TX_TRY(tx_json_get(tokens, name, TX_JSON_OBJECT, &token));
    TX_TRY(tx_json_get(token, "ids", TX_JSON_ARRAY, &ids));
    for (size_t i = 0; i < tx_json_size(ids); i++) {
        TX_TRY(tx_json_as_int(tx_json_at(ids, i), "an id", 0, INT32_MAX, &id));
        TX_TRY(add(template, id, type));
    }
    return TX_OK;
}

static tx_status add_item(tx_template *template, const tx_json *tokens, const tx_json *item)
{
    tx_json *object;
    const char *id;
    int64_t type = 0;
    const bool special = tx_json_has(item, "SpecialToken");
    TX_TRY(tx_json_get(item, special ? "SpecialToken" : "Sequence", TX_JSON_OBJECT, &object));
    TX_TRY(tx_json_get_string(object, "id", &id));
    TX_TRY(tx_json_get_int(object, "type_id", 0, INT32_MAX, &type));
    if (special)
        return add_special(template, tokens, id, type);
    if (strcmp(id, "A") != 0 && strcmp(id, "B") != 0)
        return tx_fail(TX_FORMAT, "Sequence %.40s: expected A or B", id);
    return add(template, *id == 'A' ? TX_TEMPLATE_FIRST : TX_TEMPLATE_SECOND, type);
}

static tx_status read_template(tx_post_processor *post, const tx_json *json)
{
    static const char *const names[] = {"single", "pair"};
    tx_json *tokens = NULL, *items;
    if (tx_json_has(json, "special_tokens"))
        TX_TRY(tx_json_get(json, "special_tokens", TX_JSON_OBJECT, &tokens));
    for (int i = 0; i < 2; i++) {
        if (!tx_json_has(json, names[i]))
            continue;
        TX_TRY(tx_json_get(json, names[i], TX_JSON_ARRAY, &items));
        for (size_t k = 0; k < tx_json_size(items); k++)
            TX_TRY(tx_fail_in(add_item(&post->of[i], tokens, tx_json_at(items, k)), "%s[%zu]", names[i], k));
    }
    return TX_OK;
}

/* ---- BertProcessing, RobertaProcessing ------------------------------------------------------------- */

/* ["[SEP]", 102] */
static tx_status read_token(const tx_json *json, const char *key, int64_t *id)
{
    tx_json *pair;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &pair));
    if (tx_json_size(pair) != 2)
        return tx_fail(TX_FORMAT, "%s: expected a token and its id", key);
    return tx_json_as_int(tx_json_at(pair, 1), key, 0, INT32_MAX, id);
}

/* One text becomes `cls` A `sep`. Two texts become the same and B `sep`, with a second `sep` between if `twice`. */
static tx_status surround(tx_post_processor *post, int32_t cls, int32_t sep, bool twice, int type)
{
    const tx_template_item items[] = {{cls, 0},    {TX_TEMPLATE_FIRST, 0},     {sep, 0},
                                      {sep, type}, {TX_TEMPLATE_SECOND, type}, {sep, type}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < (i ? 6 : 3); k++)
            if (k != 3 || twice)
                TX_TRY(add(&post->of[i], items[k].id, items[k].type));
    return TX_OK;
}

static tx_status read_classes(tx_post_processor *post, const tx_json *json, bool twice, int type)
{
    int64_t sep = 0, cls = 0;
    TX_TRY(read_token(json, "sep", &sep));
    TX_TRY(read_token(json, "cls", &cls));
    return surround(post, (int32_t)cls, (int32_t)sep, twice, type);
}

static tx_status read_bert(tx_post_processor *post, const tx_json *json)
{
    return read_classes(post, json, false, 1);
}

static tx_status read_roberta(tx_post_processor *post, const tx_json *json)
{
    return read_classes(post, json, true, 0);
}

tx_status tx_post_processor_roberta(tx_post_processor *post, int32_t cls, int32_t sep)
{
    post->given = true;
    return surround(post, cls, sep, true, 0);
}

/* ---- Table ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tx_status (*read)(tx_post_processor *post, const tx_json *json); /* NULL if it adds nothing */
} kinds[] = {{"ByteLevel", NULL},
             {"TemplateProcessing", read_template},
             {"BertProcessing", read_bert},
             {"RobertaProcessing", read_roberta}};

static tx_status read_one(void *context, const tx_json *json, const char *type)
{
    tx_post_processor *post = context;
    size_t kind = 0;
    while (kind < sizeof kinds / sizeof kinds[0] && strcmp(kinds[kind].name, type) != 0)
        kind++;
    if (kind == sizeof kinds / sizeof kinds[0])
        return tx_fail(TX_UNSUPPORTED, "%.40s is not supported", type);
    if (!kinds[kind].read)
        return TX_OK;
    if (post->given)
        return tx_fail(TX_UNSUPPORTED, "%s: a second processor that adds tokens is not supported", type);
    post->given = true;
    return tx_fail_in(kinds[kind].read(post, json), "%s", type);
}

tx_status tx_post_processor_read(tx_post_processor *post, const tx_json *json)
{
    return tx_component_read(json, "processors", read_one, post);
}

void tx_post_processor_free(tx_post_processor *post)
{
    for (int i = 0; i < 2; i++)
        free(post->of[i].item);
}

tx_status tx_post_processor_seal(tx_post_processor *post, int32_t vocab)
{
    for (int i = 0; i < 2 && !post->given; i++) {
        TX_TRY(add(&post->of[i], TX_TEMPLATE_FIRST, 0));
        if (i == 1)
            TX_TRY(add(&post->of[i], TX_TEMPLATE_SECOND, 1));
    }
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < post->of[i].count; k++)
            if (post->of[i].item[k].id >= vocab)
                return tx_fail(TX_FORMAT, "post_processor: id %" PRId32 " is not in the vocabulary",
                               post->of[i].item[k].id);
    return TX_OK;
}
