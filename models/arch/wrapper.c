/* SPDX-License-Identifier: Apache-2.0
 * Finds the text model in a wrapper's configuration and names, and saves the wrapper. Called by config.c, files.c,
 * find.c and models/lora. */
#include "models/arch/wrapper.h"

#include "api/base/file.h"
#include "models/files/folder.h"
#include "models/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INNER "text_config"
#define TIE "tie_word_embeddings"
#define PLAIN "model."
#define MODERN "model.language_model." /* before the text's names in transformers' classes, or */
#define OF_TEXT "model.text_model."
#define OUTER "language_model." /* before them in published files */

const tx_wrapper tx_wrappers[] = {
#define X(type, text, alias, tied, stacked, outer, others, defaults) \
    {#type, #text, alias, tied, stacked, outer, others, defaults},
#include "models/arch/wrappers.def"
#undef X
    {.type = NULL}};

const char *const tx_wrapped_names[TX_WRAPPED_FILES] = {"preprocessor_config.json", "processor_config.json",
                                                        "video_preprocessor_config.json"};

void tx_wrapped_free(tx_wrapped *wrapped)
{
    if (!wrapped)
        return;
    for (int i = 0; i < TX_WRAPPED_FILES; i++)
        free(wrapped->file[i].data);
    tx_json_free(wrapped->json);
    tx_weights_close(wrapped->weights);
    free(wrapped);
}

/* ---- Configuration ------------------------------------------------------------------------------------- */

/* Keys of the whole file that its text has, too, unless text_config says otherwise. */
static const char *const shared[] = {"bos_token_id", "eos_token_id", "dtype", "torch_dtype", "quantization_config"};
/* Keys of the whole file that must follow the text's. */
static const char *const repeated[] = {"bos_token_id", "eos_token_id", "dtype", "torch_dtype", "vocab_size", TIE};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* Sets the member `key` of `to` to that of `from`, if `from` has it. */
static tx_status copy_member(const tx_json *from, const char *key, tx_json *to)
{
    const tx_json *value = tx_json_find(from, key);
    return value ? tx_json_set(to, key, tx_json_copy(value)) : TX_OK;
}

/* Adds the defaults of the text's class for absent keys. */
static tx_status add_defaults(const tx_wrapper *row, tx_json *text)
{
    char members[512];
    tx_json *defaults;
    snprintf(members, sizeof members, "{%s}", row->defaults);
    TX_TRY(tx_json_parse(members, strlen(members), row->type, &defaults));
    const bool has_ropes = tx_json_has(text, "rope_parameters");
    tx_status status = TX_OK;
    for (void *i = tx_json_first(defaults); i && !status; i = tx_json_next(defaults, i))
        if (!tx_json_find(text, tx_json_key(i)) && !(has_ropes && strcmp(tx_json_key(i), "rope_theta") == 0))
            status = copy_member(defaults, tx_json_key(i), text);
    tx_json_free(defaults);
    return status;
}

/* Without images, positions in several dimensions are plain ones. */
static tx_status flatten_rope(tx_json *text, const char *key)
{
    static const char *const types[] = {"type", "rope_type"};
    tx_json *rope;
    const char *type;
    if (!tx_json_has(text, key))
        return TX_OK;
    TX_TRY(tx_json_get(text, key, TX_JSON_OBJECT, &rope));
    tx_json_unset(rope, "mrope_section");
    tx_json_unset(rope, "mrope_interleaved");
    for (size_t i = 0; i < COUNT(types); i++)
        if (!tx_json_get_string(rope, types[i], &type) && strcmp(type, "mrope") == 0)
            TX_TRY(tx_json_set_string(rope, types[i], "default"));
    return TX_OK;
}

/* The class ties the head if the file says so in either place. */
static tx_status set_tie(const tx_wrapped *w, tx_json *text)
{
    bool whole = w->row->tied, inner = false;
    TX_TRY(TX_JSON_OPTIONAL(bool, w->json, TIE, &whole));
    TX_TRY(TX_JSON_OPTIONAL(bool, text, TIE, &inner));
    return tx_json_set_bool(text, TIE, whole || inner);
}

static tx_status set_type(const tx_wrapped *w, tx_json *text)
{
    const char *type = w->row->text;
    if (text != w->json)
        TX_TRY(TX_JSON_OPTIONAL(string, text, "model_type", &type));
    return tx_json_set_string(text, "model_type", strcmp(type, w->row->alias) == 0 ? w->row->text : type);
}

/* Only language models have a form in TX. */
static tx_status check_class(const tx_json *json)
{
    tx_json *list;
    const char *name;
    if (tx_json_get(json, "architectures", TX_JSON_ARRAY, &list) || tx_json_as_string(tx_json_at(list, 0), "", &name) ||
        tx_ends_with(name, "ForConditionalGeneration"))
        return TX_OK;
    return tx_fail(TX_UNSUPPORTED, "architectures: TX reads the text of a ...ForConditionalGeneration, not of a %.80s",
                   name);
}

/* Fills the configuration of the text, which begins as a copy of text_config; in old files, of the whole. */
static tx_status fill_text(const tx_wrapped *w, bool flat, tx_json *text)
{
    TX_TRY(check_class(w->json));
    if (flat) {
        tx_json_unset(text, "model_type");
        tx_json_unset(text, "vision_config");
        tx_json_unset(text, "architectures");
    }
    TX_TRY(set_type(w, text));
    for (size_t i = 0; i < COUNT(shared); i++)
        if (!tx_json_has(text, shared[i]))
            TX_TRY(copy_member(w->json, shared[i], text));
    TX_TRY(add_defaults(w->row, text));
    TX_TRY(set_tie(w, text));
    TX_TRY(flatten_rope(text, "rope_scaling"));
    return flatten_rope(text, "rope_parameters");
}

static const tx_wrapper *find_row(const tx_json *json)
{
    const char *type;
    const tx_wrapper *row = tx_wrappers;
    if (!tx_json_find(json, "model_type") || tx_json_get_string(json, "model_type", &type))
        return NULL;
    while (row->type && strcmp(row->type, type) != 0)
        row++;
    return row->type ? row : NULL;
}

bool tx_wrapper_stacks(const tx_json *json)
{
    const tx_wrapper *row = find_row(json);
    return row && row->stacked;
}

tx_status tx_wrapper_open_json(tx_json **json, tx_wrapped **wrapped)
{
    const tx_wrapper *row = find_row(*json);
    tx_json *inner = *json;
    *wrapped = NULL;
    if (!row)
        return TX_OK;
    const bool flat = !tx_json_has(*json, INNER);
    if (!flat)
        TX_TRY(tx_json_get(*json, INNER, TX_JSON_OBJECT, &inner));
    tx_wrapped *created = calloc(1, sizeof *created);
    tx_json *text = tx_json_copy(inner);
    if (created)
        *created = (tx_wrapped){.row = row, .json = *json};
    const tx_status status =
        created && text ? fill_text(created, flat, text) : tx_fail(TX_MEMORY, "no memory for a configuration");
    if (status) {
        free(created);
        tx_json_free(text);
        return status;
    }
    *wrapped = created;
    *json = text;
    return TX_OK;
}

/* Sets the members of the text's settings in those of the wrapper. They keep positions in several dimensions. */
static tx_status fill_inner(const tx_json *text, tx_json *inner)
{
    static const char *const own[] = {"model_type", "architectures", "rope_scaling", "rope_parameters"};
    for (void *i = tx_json_first(text); i; i = tx_json_next(text, i)) {
        bool kept = false;
        for (size_t k = 0; k < COUNT(own); k++)
            kept = kept || (strcmp(own[k], tx_json_key(i)) == 0 && (k < 2 || tx_json_find(inner, own[k])));
        if (!kept)
            TX_TRY(copy_member(text, tx_json_key(i), inner));
    }
    return TX_OK;
}

static tx_status fill_whole(const tx_json *text, tx_json *whole)
{
    tx_json *inner = whole;
    tx_json_unset(whole, "quantization_config");
    if (tx_json_has(whole, INNER))
        TX_TRY(tx_json_get(whole, INNER, TX_JSON_OBJECT, &inner));
    tx_json_unset(inner, "quantization_config");
    TX_TRY(fill_inner(text, inner));
    for (size_t i = 0; i < COUNT(repeated); i++)
        if (tx_json_has(whole, repeated[i]) || strcmp(repeated[i], TIE) == 0)
            TX_TRY(copy_member(text, repeated[i], whole));
    return TX_OK;
}

tx_status tx_wrapper_close_json(const tx_wrapped *wrapped, tx_json **json)
{
    tx_json *whole = tx_json_copy(wrapped->json);
    const tx_status status = whole ? fill_whole(*json, whole) : tx_fail(TX_MEMORY, "no memory for a configuration");
    tx_json_free(*json);
    *json = NULL;
    return TX_RETURN(status, whole, json, tx_json_free);
}

/* ---- Names --------------------------------------------------------------------------------------------- */

/* Returns the text after a prefix, or NULL. */
static const char *after(const char *text, const char *prefix)
{
    return tx_begins_with(text, prefix) ? text + strlen(prefix) : NULL;
}

static bool is_other(const tx_wrapped *w, const char *tensor)
{
    const char *plain = after(tensor, PLAIN), *name = plain ? plain : tensor;
    const size_t length = strcspn(name, ".");
    for (const char *word = w->row->others; *word; word += strcspn(word, "|"), word += *word == '|')
        if (strcspn(word, "|") == length && strncmp(word, name, length) == 0)
            return true;
    return false;
}

bool tx_wrapper_rename(const tx_wrapped *wrapped, const char *tensor, char text[TX_WEIGHTS_NAME])
{
    const char *modern = after(tensor, MODERN), *inner = modern ? modern : after(tensor, OF_TEXT);
    const char *outer = after(tensor, OUTER);
    snprintf(text, TX_WEIGHTS_NAME, "%s%s", inner ? PLAIN : "", inner ? inner : outer ? outer : tensor);
    return !is_other(wrapped, tensor);
}

void tx_wrapper_module(const tx_wrapped *wrapped, const char *text, char name[TX_WEIGHTS_NAME])
{
    const bool outer = wrapped && wrapped->row->outer;
    const char *inner = wrapped && !outer ? after(text, PLAIN) : NULL;
    const char *prefix = inner && strcmp(wrapped->prefix, OF_TEXT) == 0 ? OF_TEXT : MODERN;
    snprintf(name, TX_WEIGHTS_NAME, "%s%s", inner ? prefix : outer ? OUTER : "", inner ? inner : text);
}

void tx_wrapper_pattern(const tx_wrapped *wrapped, char *pattern, size_t room)
{
    snprintf(pattern, room, "(?:model\\.)?(?:%s)(?:\\..*)?", wrapped->row->others);
}

/* The name of a tensor of the text in the folder's files. */
static void name_in_files(const void *context, const char *text, char tensor[TX_WEIGHTS_NAME])
{
    const tx_wrapped *w = context;
    const char *inner = after(text, PLAIN);
    const bool outer = !inner && tx_begins_with(w->prefix, OUTER);
    snprintf(tensor, TX_WEIGHTS_NAME, "%s%s", inner ? w->prefix : outer ? OUTER : "", inner ? inner : text);
}

static bool is_copied(const void *context, const char *tensor)
{
    return is_other(context, tensor);
}

/* ---- Saving -------------------------------------------------------------------------------------------- */

bool tx_wrapper_keeps(const tx_config *config)
{
    const tx_wrapped *w = config->wrapped;
    return w && w->weights && !w->text_only;
}

tx_status tx_wrapper_check(const tx_config *config)
{
    const tx_wrapped *w = config->wrapped;
    if (!tx_wrapper_keeps(config) || !tx_json_has(config->source, "quantization_config"))
        return TX_OK;
    for (int32_t i = 0; i < tx_weights_count(w->weights); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(w->weights, i);
        if (is_other(w, t->name) && tx_st_dtype_bits(t->dtype) < 16)
            return tx_fail(TX_UNSUPPORTED,
                           "%s: %s is quantized, so the model cannot be saved as a %s: give --save_text_only",
                           tx_weights_path(w->weights), t->name, w->row->type);
    }
    return TX_OK;
}

tx_status tx_wrapper_save(tx_model *model, const tx_wrapped *wrapped, const char *folder)
{
    const tx_weights_form form = {wrapped->weights, is_copied, name_in_files, wrapped};
    TX_TRY(tx_weights_save_as(model, &form, folder, TX_WEIGHTS_SHARD));
    for (int i = 0; i < TX_WRAPPED_FILES; i++)
        if (wrapped->file[i].data)
            TX_TRY(tx_file_write(TX_PATH(folder, tx_wrapped_names[i]), wrapped->file[i].data, wrapped->file[i].size));
    return TX_OK;
}
