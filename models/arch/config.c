/* SPDX-License-Identifier: Apache-2.0
 * config.json of any architecture: presets, defaults, validation, and writing that keeps unknown keys. */
#include "models/arch/wrapper.h"
#include "models/files/quantized.h"
#include "models/lora/bank.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONFIG_LIMIT ((int64_t)4 << 20)

/* Address of a key's value in a configuration. */
static void *field_of(tx_config *config, const tx_config_key *key)
{
    return (char *)config + key->offset;
}

const tx_config_key *tx_config_key_named(const tx_architecture *type, const char *name)
{
    const tx_config_key *key = type->keys;
    while (key->name && strcmp(key->name, name) != 0)
        key++;
    return key->name ? key : NULL;
}

const tx_config_key *tx_config_key_at(const tx_architecture *type, size_t offset)
{
    const tx_config_key *key = type->keys;
    while (key->name && key->offset != offset)
        key++;
    return key->name ? key : NULL;
}

/* ---- Making ---------------------------------------------------------------------------------------- */

tx_status tx_config_copy(const tx_config *config, tx_config **copy)
{
    const size_t bytes = config->architecture->config_bytes;
    tx_config *created = malloc(bytes);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for a configuration");
    memcpy(created, config, bytes);
    created->source = NULL;
    created->wrapped = NULL;
    created->lora = NULL;
    created->bank = NULL;
    created->blocks = NULL;
    created->rounding = NULL;
    *copy = created;
    return TX_OK;
}

void tx_config_free(tx_config *config)
{
    if (!config)
        return;
    tx_json_free(config->source);
    tx_wrapped_free(config->wrapped);
    tx_lora_free(config->lora);
    tx_lora_bank_free(config->bank);
    free(config->blocks);
    free(config->rounding);
    free(config);
}

/* ---- Checks ---------------------------------------------------------------------------------------- */

static tx_status check_key(const tx_config *config, const tx_config_key *key)
{
    const tx_config_value at = tx_config_value_of(config, key);
    if (key->kind == TX_KEY_BOOL || (key->kind == TX_KEY_INT_OR_NULL && *at.whole == key->null))
        return TX_OK;
    const double value = key->kind == TX_KEY_CHOICE   ? *at.choice
                         : key->kind == TX_KEY_NUMBER ? *at.number
                                                      : (double)*at.whole;
    if (!(value >= key->min && value <= key->max))
        return tx_fail(TX_INVALID, "%s: %g is not from %g to %g", key->name, value, key->min, key->max);
    return TX_OK;
}

tx_status tx_config_check(const tx_config *config)
{
    for (const tx_config_key *key = config->architecture->keys; key->name; key++)
        TX_TRY(check_key(config, key));
    return config->architecture->check(config);
}

/* ---- Reading --------------------------------------------------------------------------------------- */

static tx_status read_choice(const tx_json *json, const tx_config_key *key, tx_config *config)
{
    const char *name;
    const int32_t last = (int32_t)key->max;
    TX_TRY(tx_json_get_string(json, key->name, &name));
    for (int32_t i = 0; i <= last; i++)
        if (strcmp(name, key->words[i]) == 0) {
            *(int32_t *)field_of(config, key) = i;
            return TX_OK;
        }
    char list[256] = "";
    for (int32_t i = 0; i <= last; i++)
        tx_list_add(list, sizeof list, ", ", "%s", key->words[i]);
    return tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\" is not one of %s", key->name, name, list);
}

/* The first item of a list: a model may have several end-of-text ids (tx_generation_of_config reads all of them). */
static const tx_json *first_of(const tx_json *json, const tx_config_key *key)
{
    tx_json *list;
    const bool listed = key->kind == TX_KEY_INT_OR_NULL && tx_json_has(json, key->name) &&
                        tx_json_get(json, key->name, TX_JSON_ARRAY, &list) == TX_OK && tx_json_size(list) > 0;
    return listed ? tx_json_at(list, 0) : NULL;
}

static tx_status read_int(const tx_json *json, const tx_config_key *key, tx_config *config)
{
    const int64_t min = (int64_t)key->min, max = (int64_t)key->max;
    const tx_json *first = first_of(json, key);
    int64_t *whole = field_of(config, key);
    if (first)
        return tx_json_as_int(first, key->name, min, max, whole);
    if (key->kind == TX_KEY_INT || tx_json_has(json, key->name))
        return tx_json_get_int(json, key->name, min, max, whole);
    *whole = key->null;
    return TX_OK;
}

/* An absent key keeps its value. */
static tx_status read_key(const tx_json *json, const tx_config_key *key, tx_config *config)
{
    if (!tx_json_find(json, key->name))
        return TX_OK;
    switch (key->kind) {
    case TX_KEY_CHOICE:
        return read_choice(json, key, config);
    case TX_KEY_NUMBER:
        return tx_json_get_number(json, key->name, key->min, key->max, field_of(config, key));
    case TX_KEY_BOOL:
        return tx_json_get_bool(json, key->name, field_of(config, key));
    default:
        return read_int(json, key, config);
    }
}

/* Reads a key's second name; the file may have both names if they agree. */
static tx_status read_second_name(const tx_json *json, const tx_config_key *key, tx_config *config)
{
    int64_t *first = field_of(config, key), second;
    if (!key->second || !tx_json_find(json, key->second))
        return TX_OK;
    TX_TRY(tx_json_get_int(json, key->second, (int64_t)key->min, (int64_t)key->max, &second));
    if (tx_json_has(json, key->name) && *first != second)
        return tx_fail(TX_INVALID, "%s: %" PRId64 " differs from %s, %" PRId64, key->second, second, key->name, *first);
    *first = second;
    return TX_OK;
}

static tx_status check_fixed(const tx_json *json, const tx_fixed_key *fixed)
{
    const bool flag = strcmp(fixed->value, "true") == 0 || strcmp(fixed->value, "false") == 0;
    const char *word = fixed->value, *quote = flag ? "" : "\"";
    bool given = false;
    if (!flag) {
        TX_TRY(TX_JSON_OPTIONAL(string, json, fixed->name, &word));
    } else if (tx_json_find(json, fixed->name)) {
        TX_TRY(tx_json_get_bool(json, fixed->name, &given));
        word = given ? "true" : "false";
    }
    return strcmp(word, fixed->value) == 0 ? TX_OK
                                           : tx_fail(TX_UNSUPPORTED, "%s: expected %s%s%s: %s", fixed->name, quote,
                                                     fixed->value, quote, fixed->why);
}

/* Fails if the file requests a feature that is not implemented, so that no key is ignored silently. */
static tx_status check_foreign(const tx_json *json, const tx_architecture *a)
{
    const char *type = a->type;
    tx_json *pruned;
    if (tx_json_find(json, "model_type"))
        TX_TRY(tx_json_get_string(json, "model_type", &type));
    if (strcmp(type, a->type) != 0)
        return tx_fail(TX_UNSUPPORTED, "model_type: \"%.40s\" instead of \"%s\"", type, a->type);
    for (const tx_fixed_key *fixed = a->fixed; fixed && fixed->name; fixed++)
        TX_TRY(check_fixed(json, fixed));
    if (tx_json_has(json, "quantization_config")) {
        TX_TRY(tx_quantized_check(tx_json_find(json, "quantization_config")));
        if (a->inputs_first)
            return tx_fail(TX_UNSUPPORTED, "quantization_config: quantized weights of a %s are not implemented", type);
    }
    if (!tx_json_get(json, "pruned_heads", TX_JSON_OBJECT, &pruned) && tx_json_size(pruned) > 0)
        return tx_fail(TX_UNSUPPORTED, "pruned_heads: expected none: pruned heads are not implemented");
    return TX_OK;
}

static tx_status read_all(const tx_json *json, tx_config *config)
{
    TX_TRY(check_foreign(json, config->architecture));
    for (const tx_config_key *key = config->architecture->keys; key->name; key++) {
        TX_TRY(read_key(json, key, config));
        TX_TRY(read_second_name(json, key, config));
    }
    if (config->architecture->read)
        TX_TRY(config->architecture->read(json, config));
    return tx_config_check(config);
}

/* The default bos and eos ids belong to the published vocabulary. Drop them if the vocabulary is smaller. */
static void drop_foreign_ids(tx_config *config)
{
    if (!tx_json_has(config->source, "bos_token_id") && config->bos_token_id >= config->vocab_size)
        config->bos_token_id = -1;
    if (!tx_json_has(config->source, "eos_token_id") && config->eos_token_id >= config->vocab_size)
        config->eos_token_id = -1;
}

tx_status tx_config_of_json(tx_json *json, tx_config **config)
{
    const tx_architecture *architecture;
    tx_config *created = NULL;
    tx_wrapped *wrapped = NULL;
    tx_status status = tx_wrapper_open_json(&json, &wrapped);
    TX_THEN(status, tx_class_choose(json, &architecture));
    TX_THEN(status, tx_config_copy(architecture->defaults, &created));
    if (!status) {
        created->architecture = architecture;
        status = read_all(json, created);
    }
    if (status) {
        tx_config_free(created);
        tx_json_free(json);
        tx_wrapped_free(wrapped);
        return status == TX_INVALID ? TX_FORMAT : status;
    }
    created->source = json;
    created->wrapped = wrapped;
    created->new_head = tx_class_has_no_head(json, architecture);
    drop_foreign_ids(created);
    *config = created;
    return TX_OK;
}

tx_status tx_config_read(const char *path, tx_config **config)
{
    tx_json *json;
    TX_TRY(tx_json_read(path, CONFIG_LIMIT, &json));
    return tx_fail_in(tx_config_of_json(json, config), "%s", path);
}

/* A second name in the file must follow its key; transformers would otherwise use the old value. */
static tx_status write_second_name(const tx_config_key *key, tx_json *json)
{
    int64_t value = 0;
    if (!key->second || !tx_json_has(json, key->second))
        return TX_OK;
    TX_TRY(tx_json_get_int(json, key->name, 0, INT64_MAX, &value));
    return tx_json_set_int(json, key->second, value);
}

/* Adds one "key=value" to `json`. The keys of a preset may be those that the architecture's `read` knows. */
static tx_status add_override(const tx_architecture *a, bool preset, tx_json *json, const char *pair, size_t length)
{
    char key[64], value[128];
    const char *equals = memchr(pair, '=', length);
    size_t before = equals ? (size_t)(equals - pair) : 0, after = length - before - 1;
    if (!equals || before == 0 || before >= sizeof key || after >= sizeof value)
        return tx_fail(TX_INVALID, "\"%.*s\" is not key=value", (int)length, pair);
    snprintf(key, sizeof key, "%.*s", (int)before, pair);
    snprintf(value, sizeof value, "%.*s", (int)after, equals + 1);
    const tx_config_key *row = tx_config_key_named(a, key);
    if (!row && !preset)
        return tx_fail(TX_INVALID, "\"%s\" is not a configuration key of %s", key, a->type);
    tx_json *parsed;
    bool is_json = tx_json_parse(value, after, key, &parsed) == TX_OK;
    /* transformers also accepts Python's spelling. */
    if (!is_json && (strcmp(value, "True") == 0 || strcmp(value, "False") == 0))
        TX_TRY(tx_json_set_bool(json, key, value[0] == 'T'));
    else
        TX_TRY(is_json ? tx_json_set(json, key, parsed) : tx_json_set_string(json, key, value));
    return row ? write_second_name(row, json) : TX_OK;
}

/* Overrides are read with the keys of the file, because some members follow from several of them. Vocabulary and labels
 * may have changed since. */
static tx_status keep_changed(const tx_config *config, tx_json *json)
{
    static const char *const labels[] = {"id2label", "num_labels", "problem_type"};
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++)
        tx_json_unset(json, labels[i]);
    return config->source ? tx_json_set_int(json, "vocab_size", config->vocab_size) : TX_OK;
}

static tx_status override(tx_config *config, bool preset, const char *text)
{
    tx_config *created = NULL;
    tx_json *json = config->source ? tx_json_copy(config->source) : tx_json_object();
    tx_status status = json ? tx_config_copy(config, &created) : TX_MEMORY;
    TX_THEN(status, keep_changed(config, json));
    if (status) {
        tx_json_free(json);
        return status;
    }
    for (const char *at = text; *at && !status;) {
        size_t length = strcspn(at, ",");
        status = add_override(config->architecture, preset, json, at, length);
        at += length + (at[length] == ',');
    }
    TX_THEN(status, read_all(json, created));
    tx_json_free(json);
    if (!status) {
        created->source = config->source;
        created->wrapped = config->wrapped;
        created->lora = config->lora;
        created->bank = config->bank;
        memcpy(config, created, config->architecture->config_bytes);
        created->source = NULL;
        created->wrapped = NULL;
        created->lora = NULL;
        created->bank = NULL;
    }
    tx_config_free(created);
    return status;
}

tx_status tx_config_override(tx_config *config, const char *text)
{
    const tx_status status = override(config, false, text);
    return status ? tx_fail_in(status == TX_FORMAT ? TX_INVALID : status, "config_overrides") : TX_OK;
}

static tx_status make_preset(const tx_architecture *a, const tx_preset *preset, tx_config **config)
{
    tx_config *created = NULL;
    tx_status status = tx_config_copy(a->defaults, &created);
    TX_THEN(status, override(created, true, preset->overrides));
    return TX_RETURN(status, created, config, tx_config_free);
}

tx_status tx_config_preset(const char *name, tx_config **config)
{
    const char *slash = strrchr(name, '/'), *known = NULL;
    char list[512] = "";
    for (const tx_architecture *const *a = tx_architectures; *a; a++)
        for (const tx_preset *p = (*a)->presets; p && p->name; p++) {
            if ((*a)->defaults->architecture != *a)
                break; /* another head of the same family */
            if (strcasecmp(p->name, name) == 0)
                return make_preset(*a, p, config);
            if (slash && strcasecmp(p->name, slash + 1) == 0)
                known = p->name;
            tx_list_add(list, sizeof list, ", ", "%s", p->name);
        }
    if (slash)
        return tx_fail(TX_INVALID,
                       "%.80s: no such file or folder; to fetch a configuration: hf download %.80s config.json "
                       "--local-dir DIR%s%s",
                       name, name, known ? "; or use the name " : "", known ? known : "");
    return tx_fail(TX_INVALID, "no published model \"%.40s\": the known ones are %s", name, list);
}

/* ---- Writing --------------------------------------------------------------------------------------- */

static tx_status write_key(const tx_config *config, const tx_config_key *key, tx_json *json)
{
    const tx_config_value at = tx_config_value_of(config, key);
    if (key->kind == TX_KEY_NUMBER)
        return tx_json_set_number(json, key->name, *at.number);
    if (key->kind == TX_KEY_BOOL)
        return tx_json_set_bool(json, key->name, *at.flag);
    if (key->kind == TX_KEY_CHOICE)
        return tx_json_set_string(json, key->name, key->words[*at.choice]);
    if (key->kind == TX_KEY_INT_OR_NULL && *at.whole == key->null)
        return tx_json_set_null(json, key->name);
    const tx_json *first = first_of(json, key);
    int64_t listed;
    if (first && tx_json_as_int(first, key->name, INT64_MIN, INT64_MAX, &listed) == TX_OK && listed == *at.whole)
        return TX_OK; /* keep the list in the file */
    return tx_json_set_int(json, key->name, *at.whole);
}

tx_status tx_config_dtype(const tx_config *config, const char **name)
{
    const tx_json *json = config->source;
    const char *key = json && tx_json_has(json, "dtype") ? "dtype" : "torch_dtype";
    *name = "float32";
    return json && tx_json_has(json, key) ? tx_json_get_string(json, key, name) : TX_OK;
}

/* Writes the type of the weights. Version 5 of transformers renamed torch_dtype to dtype; an old file may have both. */
static tx_status write_dtype(tx_json *json, tx_dtype dtype)
{
    static const char *const names[TX_DTYPE_COUNT] = {
        [TX_F32] = "float32", [TX_BF16] = "bfloat16", [TX_F16] = "float16"};
    const bool old = tx_json_has(json, "torch_dtype"), new = tx_json_has(json, "dtype");
    if (old || !new)
        TX_TRY(tx_json_set_string(json, "torch_dtype", names[dtype]));
    return new ? tx_json_set_string(json, "dtype", names[dtype]) : TX_OK;
}

static tx_status write_all(const tx_config *config, tx_json *json)
{
    const tx_architecture *a = config->architecture;
    for (const tx_config_key *key = a->keys; key->name; key++) {
        TX_TRY(write_key(config, key, json));
        TX_TRY(write_second_name(key, json));
    }
    if (a->write)
        TX_TRY(a->write(config, json));
    TX_TRY(tx_json_set_string(json, "model_type", a->type));
    TX_TRY(write_dtype(json, TX_F32));
    if (!config->new_head && tx_json_has(json, "architectures"))
        return TX_OK;
    tx_json *list = tx_json_array(); /* `json` owns it before it is filled, so a failure leaks nothing */
    TX_TRY(tx_json_set(json, "architectures", list));
    return tx_json_append_string(list, a->class_name);
}

void tx_config_pack(tx_config *config, tx_dtype packed)
{
    config->packed = config->packed_experts = packed;
    if (packed == TX_NF4 || packed == TX_NF4_DOUBLE)
        tx_config_keep_experts(config);
}

void tx_config_keep_experts(tx_config *config)
{
    const tx_json *quantization = config->source ? tx_json_find(config->source, "quantization_config") : NULL;
    const char *method = "";
    if (quantization && !tx_json_get_string(quantization, "quant_method", &method) && strcmp(method, "mxfp4") == 0)
        config->packed_experts = TX_MXFP4;
}

/* The members of the file that the configuration was read from. Saved weights are never quantized. */
static tx_json *copy_source(const tx_json *source)
{
    tx_json *result = source ? tx_json_copy(source) : tx_json_object();
    tx_json_unset(result, "quantization_config");
    return result;
}

tx_status tx_config_json(const tx_config *config, tx_json **json)
{
    TX_TRY(tx_config_check(config));
    tx_json *created = copy_source(config->source);
    const tx_status status = created ? write_all(config, created) : TX_MEMORY;
    return TX_RETURN(status, created, json, tx_json_free);
}

tx_status tx_config_write(const tx_config *config, tx_dtype dtype, const char *path)
{
    tx_json *json = NULL;
    TX_TRY(tx_fail_in(tx_config_json(config, &json), "%s", path));
    tx_status status = write_dtype(json, dtype);
    if (!status && tx_wrapper_keeps(config))
        status = tx_fail_in(tx_wrapper_close_json(config->wrapped, &json), "%s", path);
    TX_THEN(status, tx_json_write(path, json, TX_JSON_SORTED));
    tx_json_free(json);
    return status;
}
