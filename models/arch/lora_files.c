/* SPDX-License-Identifier: Apache-2.0
 * Adapters in peft's folders. */
#include "models/arch/find.h"
#include "models/arch/lora.h"

#include "api/base/file.h"
#include "api/base/message.h"
#include "models/files/folder.h"
#include "models/files/hub.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)16 << 20)

bool tx_lora_is_folder(const char *folder)
{
    return tx_file_exists(TX_PATH(folder, TX_LORA_CONFIG));
}

/* ---- adapter_config.json, read ------------------------------------------------------------------------- */

/* Whether a key's value is the one that changes nothing: absent, null, false, "none" or empty. */
static bool is_nothing(const tx_json *value)
{
    bool flag;
    const char *text;
    if (!value || tx_json_type_of(value) == TX_JSON_NULL)
        return true;
    if (tx_json_type_of(value) == TX_JSON_BOOL)
        return tx_json_as_bool(value, "", &flag) == TX_OK && !flag;
    if (tx_json_type_of(value) == TX_JSON_STRING)
        return tx_json_as_string(value, "", &text) == TX_OK && strcmp(text, "none") == 0;
    return (tx_json_type_of(value) == TX_JSON_OBJECT || tx_json_type_of(value) == TX_JSON_ARRAY) &&
           tx_json_size(value) == 0;
}

static tx_status refuse_others(const tx_json *json)
{
    static const char *const keys[] = {"bias",
                                       "rank_pattern",
                                       "alpha_pattern",
                                       "layers_to_transform",
                                       "layer_replication",
                                       "exclude_modules",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "lora_bias",
                                       "use_qalora",
                                       NULL};
    const char *type = "";
    TX_TRY(tx_json_get_string(json, "peft_type", &type));
    if (strcmp(type, "LORA") != 0)
        return tx_fail(TX_UNSUPPORTED, "peft_type: \"%.40s\": TX knows adapters of the type LORA", type);
    for (const char *const *key = keys; *key; key++)
        if (!is_nothing(tx_json_find(json, *key)))
            return tx_fail(TX_UNSUPPORTED, "%s: adapters that ask for it are not implemented", *key);
    return TX_OK;
}

/* A list of names but for `left_out` (or NULL), or "all-linear", as text with commas; what is null, absent or empty
 * stays NULL. */
static tx_status read_names(const tx_json *json, const char *key, const char *left_out, char **names)
{
    const tx_json *value = tx_json_find(json, key);
    const size_t room = (size_t)1 << 16;
    const char *text;
    if (!value || tx_json_type_of(value) == TX_JSON_NULL)
        return TX_OK;
    const bool is_text = tx_json_type_of(value) == TX_JSON_STRING;
    if (is_text && (tx_json_as_string(value, key, &text) || strcmp(text, TX_LORA_ALL) != 0))
        return tx_fail(TX_UNSUPPORTED, "%s: a pattern: give a list of modules' names, or \"" TX_LORA_ALL "\"", key);
    if (!is_text && tx_json_type_of(value) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "%s is no list of names", key);
    if (!is_text && tx_json_size(value) == 0)
        return TX_OK;
    char *made = calloc(1, room);
    tx_status status = made ? TX_OK : tx_fail(TX_MEMORY, "no memory for the names of %s", key);
    if (!status && is_text)
        tx_list_add(made, room, ",", "%s", text);
    for (size_t i = 0; !is_text && i < tx_json_size(value) && !status; i++) {
        status = tx_json_as_string(tx_json_at(value, i), key, &text);
        if (!status && !(left_out && strcmp(text, left_out) == 0))
            tx_list_add(made, room, ",", "%s", text);
    }
    if (!status && strlen(made) == room - 1)
        status = tx_fail(TX_UNSUPPORTED, "%s: names of more than %zu bytes", key, room - 1);
    if (status || !*made)
        free(made);
    else
        *names = made;
    return status;
}

/* Of a classifier peft saves what the head of any model is called, "classifier" and "score", and passes over the name
 * that the model lacks; of TX's models none has the latter. */
static const char *foreign_head(const tx_json *json)
{
    const char *task = "";
    const bool named = tx_json_has(json, "task_type") && tx_json_get_string(json, "task_type", &task) == TX_OK;
    return named && strcmp(task, "SEQ_CLS") == 0 ? "score" : NULL;
}

static tx_status read_config(const tx_json *json, tx_lora *lora)
{
    const char *base = NULL;
    TX_TRY(refuse_others(json));
    TX_TRY(tx_json_get_int(json, "r", 1, 1 << 16, &lora->rank));
    TX_TRY(tx_json_get_number(json, "lora_alpha", 0, 1e6, &lora->alpha));
    if (tx_json_has(json, "lora_dropout"))
        TX_TRY(tx_json_get_number(json, "lora_dropout", 0, 0.999, &lora->dropout));
    if (tx_json_has(json, "use_rslora"))
        TX_TRY(tx_json_get_bool(json, "use_rslora", &lora->rank_stabilised));
    if (tx_json_has(json, "use_dora"))
        TX_TRY(tx_json_get_bool(json, "use_dora", &lora->dora));
    TX_TRY(read_names(json, "target_modules", NULL, &lora->targets));
    TX_TRY(read_names(json, "modules_to_save", foreign_head(json), &lora->saved));
    if (!lora->targets)
        return tx_fail(TX_FORMAT, "target_modules is missing");
    if (tx_json_has(json, "base_model_name_or_path"))
        TX_TRY(tx_json_get_string(json, "base_model_name_or_path", &base));
    lora->base = base && *base ? strdup(base) : NULL;
    return base && *base && !lora->base ? tx_fail(TX_MEMORY, "no memory for an adapter") : TX_OK;
}

tx_status tx_lora_read(const char *folder, tx_lora **lora)
{
    const char *path = TX_PATH(folder, TX_LORA_CONFIG);
    tx_json *json = NULL;
    tx_lora *made = calloc(1, sizeof *made);
    tx_status status =
        made ? tx_json_read(path, CONFIG_LIMIT, &json) : tx_fail(TX_MEMORY, "%s: no memory for an adapter", path);
    if (!status) {
        status = read_config(json, made);
        status = tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s", path);
    }
    tx_json_free(json);
    if (status)
        tx_lora_free(made);
    else
        *lora = made;
    return status;
}

tx_status tx_lora_find_base(const tx_lora *lora, const char *folder, char **base)
{
    if (!lora->base)
        return tx_fail(TX_FORMAT, "%s: does not name the model that the adapter is of (base_model_name_or_path)",
                       folder);
    const char *beside = TX_PATH(folder, lora->base);
    const bool is_beside = lora->base[0] != '/' && !tx_file_exists(lora->base) && tx_file_exists(beside);
    return tx_fail_in(tx_hub_model(is_beside ? beside : lora->base, base), "%s: base_model_name_or_path", folder);
}

tx_status tx_lora_adapted_config(const char *folder, tx_config **config)
{
    tx_config *adapted;
    if (!tx_file_exists(TX_PATH(folder, "config.json")))
        return TX_OK;
    TX_TRY(tx_config_of_folder(folder, &adapted));
    adapted->new_head = adapted->architecture != (*config)->architecture;
    tx_config_free(*config);
    *config = adapted;
    return TX_OK;
}

/* ---- adapter_config.json, written ---------------------------------------------------------------------- */

static tx_status set_names(tx_json *json, const char *key, const char *names)
{
    if (names && strcmp(names, TX_LORA_ALL) == 0)
        return tx_json_set_string(json, key, names);
    tx_json *list = names ? tx_json_array() : NULL;
    tx_status status = names ? TX_OK : tx_json_set_null(json, key);
    for (size_t length; names && !status; names += length) {
        char name[TX_WEIGHTS_NAME];
        names += strspn(names, ", ");
        length = strcspn(names, ", ");
        if (length == 0)
            break;
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        status = tx_json_append_string(list, name);
    }
    if (status || !list) {
        tx_json_free(list);
        return status;
    }
    return tx_json_set(json, key, list);
}

static const char *task_of(const tx_config *config)
{
    static const char *const tasks[] = {
        [TX_HEAD_CAUSAL_LM] = "CAUSAL_LM", [TX_HEAD_SEQUENCE_CLASSIFICATION] = "SEQ_CLS"};
    return config->architecture->head == TX_HEAD_MASKED_LM ? NULL : tasks[config->architecture->head];
}

/* peft's alpha is a whole number. */
static tx_status set_alpha(tx_json *json, double alpha)
{
    return alpha == floor(alpha) ? tx_json_set_int(json, "lora_alpha", (int64_t)alpha)
                                 : tx_json_set_number(json, "lora_alpha", alpha);
}

static tx_status fill_config(tx_json *json, const tx_config *config)
{
    const tx_lora *lora = config->lora;
    TX_TRY(tx_json_set_string(json, "peft_type", "LORA"));
    TX_TRY(task_of(config) ? tx_json_set_string(json, "task_type", task_of(config))
                           : tx_json_set_null(json, "task_type"));
    TX_TRY(lora->base ? tx_json_set_string(json, "base_model_name_or_path", lora->base)
                      : tx_json_set_null(json, "base_model_name_or_path"));
    TX_TRY(tx_json_set_int(json, "r", lora->rank));
    TX_TRY(set_alpha(json, lora->alpha));
    TX_TRY(tx_json_set_number(json, "lora_dropout", lora->dropout));
    TX_TRY(set_names(json, "target_modules", lora->targets));
    TX_TRY(set_names(json, "modules_to_save", lora->saved));
    TX_TRY(tx_json_set_bool(json, "use_rslora", lora->rank_stabilised));
    TX_TRY(tx_json_set_bool(json, "use_dora", lora->dora));
    TX_TRY(tx_json_set_string(json, "bias", "none"));
    TX_TRY(tx_json_set_bool(json, "fan_in_fan_out", config->architecture->inputs_first));
    TX_TRY(tx_json_set_bool(json, "init_lora_weights", true));
    return tx_json_set_bool(json, "inference_mode", true);
}

/* ---- Weights, in and out of a model that has the adapter -------------------------------------------------- */

static bool is_elsewhere(const void *context, const char *param)
{
    return !tx_lora_adds(param) && !tx_lora_saves(context, param);
}

static void rename_tensor(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const size_t prefix = strlen(TX_LORA_PREFIX);
    (void)context;
    snprintf(param, TX_WEIGHTS_NAME, "%s", tensor + (strncmp(tensor, TX_LORA_PREFIX, prefix) == 0 ? prefix : 0));
}

tx_status tx_lora_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options)
{
    const tx_weights_names names = {rename_tensor, config->lora, .is_elsewhere = is_elsewhere};
    tx_weights *weights;
    TX_TRY(tx_weights_open(TX_PATH(folder, TX_LORA_WEIGHTS), &weights));
    tx_status status = tx_weights_load(weights, model, &names, options);
    tx_weights_close(weights);
    return status;
}

/* What the file holds: pieces of parameters, under peft's names. */
typedef struct adapter_file {
    int32_t count;
    tx_weights_piece *piece;
    tx_st_tensor *tensor;
    float *buffer;
} adapter_file;

static tx_status list_pieces(tx_model *model, const tx_lora *lora, adapter_file *f)
{
    for (int32_t p = 0; p < tx_model_param_count(model); p++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(model, p, &name, &spec));
        if (!is_elsewhere(lora, name))
            f->count += tx_weights_pieces(name, spec, p, TX_MAX_SECTIONS, f->piece + f->count);
    }
    for (int32_t i = 0; i < f->count; i++) {
        char *name = f->piece[i].name, prefixed[TX_WEIGHTS_NAME];
        snprintf(prefixed, sizeof prefixed, TX_LORA_PREFIX "%.200s", name);
        memcpy(name, prefixed, sizeof prefixed);
        f->tensor[i] = tx_weights_part(name, TX_F32, &f->piece[i].shape);
    }
    return TX_OK;
}

static tx_status write_pieces(tx_model *model, const adapter_file *f, const char *path)
{
    tx_st_writer *writer;
    TX_TRY(tx_st_create(path, f->tensor, f->count, NULL, &writer));
    tx_status status = TX_OK;
    for (int32_t i = 0; i < f->count && !status; i++)
        status = tx_weights_append(model, TX_PART_WEIGHT, f->piece[i].param, f->piece[i].first, &f->tensor[i],
                                   f->buffer, writer);
    if (!status)
        return tx_st_commit(writer);
    tx_st_discard(writer);
    return status;
}

static tx_status save_weights(tx_model *model, const tx_lora *lora, const char *path)
{
    const size_t room = (size_t)tx_model_param_count(model) * TX_MAX_SECTIONS + 1;
    adapter_file f = {.piece = malloc(room * sizeof *f.piece),
                      .tensor = calloc(room, sizeof *f.tensor),
                      .buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *f.buffer)};
    tx_status status = f.piece && f.tensor && f.buffer ? list_pieces(model, lora, &f)
                                                       : tx_fail(TX_MEMORY, "%s: no memory to save an adapter", path);
    TX_THEN(status, write_pieces(model, &f, path));
    free(f.piece);
    free(f.tensor);
    free(f.buffer);
    return status;
}

tx_status tx_lora_save(tx_model *model, const tx_config *config, const char *folder)
{
    TX_TRY(tx_folder_create(folder));
    TX_TRY(save_weights(model, config->lora, TX_PATH(folder, TX_LORA_WEIGHTS)));
    tx_json *json = tx_json_object();
    tx_status status = json ? fill_config(json, config) : TX_MEMORY;
    TX_THEN(status, tx_json_write(TX_PATH(folder, TX_LORA_CONFIG), json, TX_JSON_PRETTY));
    tx_json_free(json);
    return status;
}
