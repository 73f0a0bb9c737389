/* SPDX-License-Identifier: Apache-2.0
 * Loads and saves adapters in peft's folders, and finds their base models. */
#include "models/arch/find.h"
#include "models/arch/wrapper.h"
#include "models/lora/lora.h"

#include "api/base/file.h"
#include "models/files/hub.h"
#include "tx_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tx_lora_is_folder(const char *folder)
{
    return tx_file_exists(TX_PATH(folder, TX_LORA_CONFIG));
}

tx_status tx_lora_check_folder(const char *folder)
{
    if (tx_lora_is_folder(folder))
        return TX_OK;
    return tx_fail(TX_NOT_FOUND, "%s: holds no adapter (" TX_LORA_CONFIG ")%s", folder,
                   tx_file_exists(folder) ? "" : ": there is no such folder");
}

tx_status tx_lora_find_base(const tx_lora *lora, const char *folder, char **base)
{
    if (!lora->base)
        return tx_fail(TX_FORMAT, "%s: does not name its base model (base_model_name_or_path)", folder);
    const char *relative = TX_PATH(folder, lora->base);
    const bool is_relative = lora->base[0] != '/' && !tx_file_exists(lora->base) && tx_file_exists(relative);
    return tx_fail_in(tx_hub_model(is_relative ? relative : lora->base, base), "%s: base_model_name_or_path", folder);
}

/* ---- The model's configuration and the adapter's ---------------------------------------------------------- */

/* Special token ids, dropout and initialization may differ between a model and an adapter of it, which may also have an
 * output head of its own. */
static bool may_differ(const char *key)
{
    return strstr(key, "token_id") || strcmp(key, "vocab_size") == 0 || strcmp(key, "tie_word_embeddings") == 0 ||
           strstr(key, "drop") || strcmp(key, "initializer_range") == 0;
}

/* A GGUF file may hold numbers rounded to fp32, and the effective value of a null. Such values only affect shapes,
 * which are compared with the tensors. */
static bool same_value(const tx_config_key *key, const tx_config *one, const tx_config *other)
{
    const tx_config_value a = tx_config_value_of(one, key), b = tx_config_value_of(other, key);
    switch (key->kind) {
    case TX_KEY_INT_OR_NULL:
        return *a.whole == *b.whole || *a.whole == key->null || *b.whole == key->null;
    case TX_KEY_NUMBER:
        return fabs(*a.number - *b.number) <= 1e-6 * fabs(*a.number);
    case TX_KEY_BOOL:
        return *a.flag == *b.flag;
    case TX_KEY_CHOICE:
        return *a.choice == *b.choice;
    default:
        return *a.whole == *b.whole;
    }
}

/* The settings that are not in `keys`, as text; the caller frees. */
static char *rest_of(const tx_config *config)
{
    tx_json *json = tx_json_object();
    const bool written = json && config->architecture->write && config->architecture->write(config, json) == TX_OK;
    char *text = written ? tx_json_text(json, TX_JSON_SORTED) : NULL;
    tx_json_free(json);
    return text;
}

static tx_status check_same_model(const tx_config *adapted, const tx_config *base)
{
    const char *differs = NULL;
    if (strcmp(adapted->architecture->type, base->architecture->type) != 0)
        return tx_fail(TX_INVALID, "the adapter belongs to a %s, the model is a %s", adapted->architecture->type,
                       base->architecture->type);
    for (const tx_config_key *key = base->architecture->keys; key->name && !differs; key++)
        if (!may_differ(key->name) && !same_value(key, adapted, base))
            differs = key->name;
    char *one = rest_of(adapted), *other = rest_of(base);
    if (!differs && base->architecture->head == TX_HEAD_CAUSAL_LM && one && other && strcmp(one, other) != 0)
        differs = "the rotary embedding";
    free(one);
    free(other);
    return differs
               ? tx_fail(TX_INVALID, "%s differs from that of the model: the adapter belongs to another model", differs)
               : TX_OK;
}

tx_status tx_lora_open_weights(const char *folder, tx_weights **weights)
{
    const char *torch = TX_PATH(folder, "adapter_model.bin"), *usual = TX_PATH(folder, TX_LORA_WEIGHTS);
    return tx_weights_open(tx_file_exists(torch) && !tx_file_exists(usual) ? torch : usual, weights);
}

/* If the adapter's file has an embedding with more rows than the vocabulary, enlarges the vocabulary. */
static tx_status grow(const char *folder, tx_config *config)
{
    const tx_weights_names names = {.rename = tx_lora_rename, .context = config};
    tx_weights *weights;
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_status status = TX_OK;
    const tx_status opened = tx_lora_open_weights(folder, &weights);
    if (opened)
        return opened == TX_NOT_FOUND ? TX_OK : opened;
    const int64_t before = config->vocab_size;
    for (int32_t p = 0; p < tx_arch_params(config) && !status; p++) {
        status = tx_arch_param(config, p, name, &spec);
        const int32_t found = status || spec.logical.rank != 2 ? -1 : tx_weights_find(weights, &names, name);
        const int64_t rows = found < 0 ? 0 : tx_weights_tensor_at(weights, found)->dim[0];
        if (rows > config->vocab_size && rows < 1 << 30)
            config->vocab_size = rows;
    }
    if (config->vocab_size > before)
        config->grown_from = before;
    tx_weights_close(weights);
    return status;
}

tx_status tx_lora_adapted_config(const char *folder, tx_config **config)
{
    const char *path = TX_PATH(folder, "config.json");
    tx_config *adapted;
    if (!tx_file_exists(path))
        return grow(folder, *config);
    TX_TRY(tx_config_of_folder(folder, &adapted));
    const tx_status status = check_same_model(adapted, *config);
    if (status) {
        tx_config_free(adapted);
        return tx_fail_in(status, "%s", path);
    }
    if (adapted->vocab_size > (*config)->vocab_size)
        adapted->grown_from = (*config)->vocab_size;
    tx_wrapped_free(adapted->wrapped);
    adapted->wrapped = (*config)->wrapped; /* the adapter's folder lacks the other parts */
    (*config)->wrapped = NULL;
    adapted->new_head = adapted->architecture != (*config)->architecture;
    for (const tx_config_key *key = adapted->architecture->keys; key->name; key++)
        if (strcmp(key->name, "tie_word_embeddings") == 0 && (*config)->architecture == adapted->architecture)
            adapted->stand_in = !same_value(key, adapted, *config);
    tx_config_free(*config);
    *config = adapted;
    return TX_OK;
}

tx_status tx_lora_untie(const tx_lora *lora, tx_config *config)
{
    char tied[TX_ARCH_NAME];
    TX_TRY(tx_lora_find_tied(lora, config, tied));
    if (*tied)
        TX_TRY(tx_fail_in(tx_config_override(config, "tie_word_embeddings=false"),
                          "the adapter changes %s or the output head, which are one matrix", tied));
    config->stand_in = config->stand_in || *tied;
    return TX_OK;
}

/* ---- Weights of a model that has the adapter -------------------------------------------------------------- */

/* The parts of a file of an adapter. peft also stores the weights of an embedding and an output head that are adapted
 * or resized. */
typedef struct adapter_parts {
    const tx_config *config;
    char carried[2][TX_ARCH_NAME];
    const char *inside[2]; /* goes between the module and .weight in the file's names */
    int32_t count;
} adapter_parts;

/* peft names the parameters of a layer that has an adapter LAYER.base_layer.weight and .bias. */
#define BASE_LAYER ".base_layer"

static tx_status find_parts(const tx_config *config, adapter_parts *parts)
{
    tx_param_spec spec;
    tx_lora_modules modules;
    tx_lora_tokens tokens;
    *parts = (adapter_parts){.config = config};
    for (int32_t p = 0; p < tx_arch_params(config) && parts->count < 2; p++) {
        TX_TRY(tx_arch_param(config, p, parts->carried[parts->count], &spec));
        if (spec.logical.rank != 2)
            continue;
        TX_TRY(tx_lora_modules_of(config->lora, config, p, &modules));
        TX_TRY(tx_lora_tokens_of(config->lora, config, p, &tokens));
        parts->inside[parts->count] = modules.count ? BASE_LAYER : tokens.count ? TX_LORA_TOKEN_ADAPTER BASE_LAYER : "";
        tx_lora_free_tokens(&tokens);
        parts->count += modules.count > 0 || config->grown_from > 0;
    }
    return TX_OK;
}

/* The number of a carried weight, or -1. */
static int32_t find_carried(const adapter_parts *parts, const char *param)
{
    int32_t i = parts->count - 1;
    while (i >= 0 && strcmp(parts->carried[i], param) != 0)
        i--;
    return i;
}

static bool may_lack(const void *context, const char *piece)
{
    return tx_lora_may_lack(((const adapter_parts *)context)->config->lora, piece);
}

static bool is_elsewhere(const void *context, const char *param)
{
    const adapter_parts *parts = context;
    return !tx_lora_adds(param) && !tx_lora_saves(parts->config->lora, param) && find_carried(parts, param) < 0;
}

/* Whether a tensor belongs to an output head that is tied to the embedding: peft then stores its adapter twice. */
static bool is_of_tied_head(const tx_config *config, const char *tensor)
{
    char weight[TX_WEIGHTS_NAME], param[TX_WEIGHTS_NAME] = "";
    const char *end = strstr(tensor, ".lora_");
    end = end ? end : strstr(tensor, TX_LORA_TOKEN_ADAPTER);
    end = end ? end : strrchr(tensor, '.');
    if (!config || config->architecture->head != TX_HEAD_CAUSAL_LM || !end)
        return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(end - tensor), tensor);
    config->architecture->rename(config, weight, param);
    return param[0] == '\0';
}

/* Whether ".base_layer" at `base` belongs to the adapter of experts' matrices (tx_lora_experts). */
static bool is_of_experts(const char *tensor, const char *base)
{
    static const char module[] = ".experts", adapter[] = ".lora_";
    const size_t length = sizeof module - 1;
    return (size_t)(base - tensor) > length && strncmp(base - length, module, length) == 0 &&
           strncmp(base + strlen(BASE_LAYER), adapter, sizeof adapter - 1) == 0;
}

void tx_lora_rename(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const size_t prefix = strlen(TX_LORA_PREFIX), middle = strlen(BASE_LAYER), outer = strlen(TX_LORA_TOKEN_ADAPTER);
    tensor += strncmp(tensor, TX_LORA_PREFIX, prefix) == 0 ? prefix : 0;
    const char *base = strstr(tensor, BASE_LAYER ".");
    if (base && is_of_experts(tensor, base))
        base = NULL;
    const char *after = base ? base + middle : NULL;
    if (base && (size_t)(base - tensor) > outer && strncmp(base - outer, TX_LORA_TOKEN_ADAPTER, outer) == 0)
        base -= outer;
    if (base)
        snprintf(param, TX_WEIGHTS_NAME, "%.*s%s", (int)(base - tensor), tensor, after);
    else
        snprintf(param, TX_WEIGHTS_NAME, "%s", tensor);
    const tx_config *config = context;
    char text[TX_WEIGHTS_NAME];
    if (config && config->wrapped && tx_wrapper_rename(config->wrapped, param, text))
        memcpy(param, text, sizeof text);
    const char *root = config ? config->architecture->class_root : NULL;
    if (root && strncmp(param, root, strlen(root)) == 0) {
        snprintf(text, sizeof text, "%s%s", config->architecture->file_root, param + strlen(root));
        memcpy(param, text, sizeof text);
    }
    if (config && config->architecture->decodes) {
        config->architecture->rename(config, param, text);
        memcpy(param, text, sizeof text);
    }
    /* Saved modules that are also resized embeddings: the tensor without these names is the same. */
    if (is_of_tied_head(context, param) || strstr(param, ".original_module.") || strstr(param, ".modules_to_save."))
        *param = '\0';
}

static void rename_part(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    tx_lora_rename(((const adapter_parts *)context)->config, tensor, param);
}

tx_status tx_lora_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options)
{
    adapter_parts parts;
    tx_weights *weights;
    TX_TRY(find_parts(config, &parts));
    const tx_weights_names names = {rename_part, &parts, .may_lack = may_lack, .is_elsewhere = is_elsewhere,
                                    .quiet_if_missing = true};
    TX_TRY(tx_lora_open_weights(folder, &weights));
    for (int32_t i = parts.count - 1; i >= 0; i--)
        if (tx_weights_find(weights, &names, parts.carried[i]) < 0)
            *parts.carried[i] = '\0'; /* the base model's */
    tx_status status = tx_weights_load(weights, model, &names, options);
    tx_weights_close(weights);
    return status;
}

/* The tensors of the file: pieces of parameters, under peft's names. */
typedef struct adapter_file {
    int32_t count;
    tx_weights_piece *piece;
    tx_st_tensor *tensor;
    float *buffer;
} adapter_file;

/* Drops the biases that one parameter holds with those of adapted modules. */
static void drop_biases(const tx_lora *lora, adapter_file *f)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < f->count; i++)
        if (!tx_lora_leaves(lora, f->piece[i].name))
            f->piece[kept++] = f->piece[i];
    f->count = kept;
}

/* peft stores a trained embedding twice if it is also the output head. The list has room for one more. */
static void add_tied_head(const tx_config *config, adapter_file *f)
{
    tx_weights_piece *copy = &f->piece[f->count];
    for (int32_t i = 0; i < f->count && tx_lora_ties(config->lora); i++) {
        const char *end = strstr(f->piece[i].name, "embed_tokens.weight");
        if (!end || !is_of_tied_head(config, "lm_head.weight"))
            continue;
        *copy = f->piece[i];
        snprintf(copy->name, sizeof copy->name, "lm_head.weight");
        f->count++;
        return;
    }
}

/* The name of a tensor in transformers' class of the model. That of a decoder without a head lacks the first part. */
static void name_in_class(const tx_config *config, const char *tensor, char name[TX_WEIGHTS_NAME])
{
    const char *root = config->architecture->file_root;
    if (root && strncmp(tensor, root, strlen(root)) == 0) {
        snprintf(name, TX_WEIGHTS_NAME, "%s%s", config->architecture->class_root, tensor + strlen(root));
        return;
    }
    const char *rest = config->architecture->decodes ? strchr(tensor, '.') : NULL;
    tx_wrapper_module(tx_wrapper_keeps(config) ? config->wrapped : NULL, rest ? rest + 1 : tensor, name);
}

static tx_status list_pieces(const tx_model *model, const tx_config *config, adapter_file *f)
{
    adapter_parts parts;
    TX_TRY(find_parts(config, &parts));
    TX_TRY(tx_weights_list(model, is_elsewhere, &parts, &f->piece, &f->count));
    drop_biases(config->lora, f);
    add_tied_head(config, f);
    f->tensor = calloc((size_t)f->count + 1, sizeof *f->tensor);
    f->buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *f->buffer);
    if (!f->tensor || !f->buffer)
        return tx_fail(TX_MEMORY, "no memory to save an adapter");
    for (int32_t i = 0; i < f->count; i++) {
        char *name = f->piece[i].name, prefixed[TX_WEIGHTS_NAME], module[TX_WEIGHTS_NAME];
        const char *dot = strrchr(name, '.');
        const int32_t carried = find_carried(&parts, name);
        const char *inside = carried >= 0                         ? parts.inside[carried]
                             : tx_lora_biases(config->lora, name) ? BASE_LAYER
                                                                  : "";
        snprintf(prefixed, sizeof prefixed, "%.*s%s%.100s", (int)(dot - name), name, inside, dot);
        name_in_class(config, prefixed, module);
        snprintf(prefixed, sizeof prefixed, TX_LORA_PREFIX "%.*s", TX_WEIGHTS_NAME - (int)sizeof TX_LORA_PREFIX,
                 module);
        memcpy(name, prefixed, sizeof prefixed);
        f->tensor[i] = tx_weights_part(name, TX_F32, &f->piece[i].shape);
    }
    return TX_OK;
}

static tx_status write_pieces(tx_model *model, const adapter_file *f, const char *path)
{
    tx_st_writer *writer;
    TX_TRY(tx_st_create(path, f->tensor, f->count, &writer));
    tx_status status = TX_OK;
    for (int32_t i = 0; i < f->count && !status; i++)
        status = tx_weights_append(model, TX_PARAM_WEIGHT, f->piece[i].param, f->piece[i].first, &f->tensor[i],
                                   f->buffer, writer);
    return tx_st_end(writer, status);
}

static tx_status save_weights(tx_model *model, const tx_config *config, const char *path)
{
    adapter_file f = {0};
    tx_status status = tx_fail_in(list_pieces(model, config, &f), "%s", path);
    TX_THEN(status, write_pieces(model, &f, path));
    free(f.piece);
    free(f.tensor);
    free(f.buffer);
    return status;
}

tx_status tx_lora_save(tx_model *model, const tx_config *config, const char *folder)
{
    TX_TRY(tx_folder_create(folder));
    TX_TRY(save_weights(model, config, TX_PATH(folder, TX_LORA_WEIGHTS)));
    return tx_lora_write(config, TX_PATH(folder, TX_LORA_CONFIG));
}
