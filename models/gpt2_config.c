/* SPDX-License-Identifier: Apache-2.0
 * GPT-2's config.json: presets, defaults, validation, writing with unknown keys kept. */
#include "models/gpt2.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)4 << 20)

typedef enum tx_key_kind { KEY_INT, KEY_INT_OR_NULL, KEY_NUMBER, KEY_BOOL } tx_key_kind;

typedef struct tx_config_key {
    const char *name;
    size_t offset; /* in tx_gpt2_config: int64_t, double or bool */
    tx_key_kind kind;
    double min, max;
    int64_t null; /* what null stands for in memory */
} tx_config_key;

#define KEY(name) #name, offsetof(tx_gpt2_config, name)

/* Every key but activation_function. The bounds keep all products of sizes within int64. */
static const tx_config_key keys[] = {
    {KEY(vocab_size), KEY_INT, 1, 1 << 30, 0},
    {KEY(n_positions), KEY_INT, 1, 1 << 24, 0},
    {KEY(n_embd), KEY_INT, 1, 1 << 20, 0},
    {KEY(n_layer), KEY_INT, 1, 1 << 12, 0},
    {KEY(n_head), KEY_INT, 1, 1 << 20, 0},
    {KEY(n_inner), KEY_INT_OR_NULL, 1, 1 << 22, 0},
    {KEY(bos_token_id), KEY_INT_OR_NULL, 0, 1 << 30, -1},
    {KEY(eos_token_id), KEY_INT_OR_NULL, 0, 1 << 30, -1},
    {KEY(layer_norm_epsilon), KEY_NUMBER, 1e-12, 1, 0},
    {KEY(initializer_range), KEY_NUMBER, 0, 10, 0},
    {KEY(resid_pdrop), KEY_NUMBER, 0, 0.999, 0},
    {KEY(embd_pdrop), KEY_NUMBER, 0, 0.999, 0},
    {KEY(attn_pdrop), KEY_NUMBER, 0, 0.999, 0},
    {KEY(scale_attn_weights), KEY_BOOL, 0, 1, 0},
    {KEY(scale_attn_by_inverse_layer_idx), KEY_BOOL, 0, 1, 0},
    {KEY(reorder_and_upcast_attn), KEY_BOOL, 0, 1, 0},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

/* Second names that transformers takes for keys. */
static const struct {
    const char *name, *key;
} second_names[] = {
    {"hidden_size", "n_embd"},
    {"max_position_embeddings", "n_positions"},
    {"num_attention_heads", "n_head"},
    {"num_hidden_layers", "n_layer"},
};
enum { SECOND_NAMES = sizeof second_names / sizeof second_names[0] };

/* Keys that change the mathematics, with the one value that is implemented. */
typedef struct tx_fixed_key {
    const char *name;
    bool value;
    const char *why;
} tx_fixed_key;

static const tx_fixed_key fixed_keys[] = {
    {"add_cross_attention", false, "cross-attention is not implemented"},
    {"tie_word_embeddings", true, "an output head of its own is not implemented"},
};

static const char *const activation_names[TX_GPT2_ACTIVATION_COUNT] = {
#define X(name, text) [TX_GPT2_##name] = text,
    TX_GPT2_ACTIVATION_MAP(X)
#undef X
};

/* Where a key lies in a configuration. */
static void *field_of(tx_gpt2_config *config, const tx_config_key *key)
{
    return (char *)config + key->offset;
}

static const void *value_of(const tx_gpt2_config *config, const tx_config_key *key)
{
    return (const char *)config + key->offset;
}

/* ---- Presets --------------------------------------------------------------------------------------- */

/* transformers' defaults, which are those of the smallest published model. */
static const tx_gpt2_config defaults = {
    .vocab_size = 50257,
    .n_positions = 1024,
    .n_embd = 768,
    .n_layer = 12,
    .n_head = 12,
    .bos_token_id = 50256,
    .eos_token_id = 50256,
    .activation_function = TX_GPT2_GELU_NEW,
    .layer_norm_epsilon = 1e-5,
    .initializer_range = 0.02,
    .resid_pdrop = 0.1,
    .embd_pdrop = 0.1,
    .attn_pdrop = 0.1,
    .scale_attn_weights = true,
};

tx_status tx_gpt2_config_preset(const char *name, tx_gpt2_config *config)
{
    static const struct {
        const char *name;
        int64_t n_embd, n_layer, n_head;
    } presets[] = {
        {"gpt2", 768, 12, 12},
        {"gpt2-medium", 1024, 24, 16},
        {"gpt2-large", 1280, 36, 20},
        {"gpt2-xl", 1600, 48, 25},
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *config = defaults;
            config->n_embd = presets[i].n_embd;
            config->n_layer = presets[i].n_layer;
            config->n_head = presets[i].n_head;
            return TX_OK;
        }
    return tx_fail(TX_INVALID, "no GPT-2 preset \"%.40s\": there are gpt2, gpt2-medium, gpt2-large and gpt2-xl", name);
}

/* ---- Checks ---------------------------------------------------------------------------------------- */

static tx_status check_key(const tx_gpt2_config *config, const tx_config_key *key)
{
    double value;
    if (key->kind == KEY_BOOL)
        return TX_OK;
    if (key->kind == KEY_NUMBER) {
        memcpy(&value, value_of(config, key), sizeof value);
    } else {
        int64_t whole;
        memcpy(&whole, value_of(config, key), sizeof whole);
        if (key->kind == KEY_INT_OR_NULL && whole == key->null)
            return TX_OK;
        value = (double)whole;
    }
    if (!(value >= key->min && value <= key->max))
        return tx_fail(TX_INVALID, "%s: %g is not from %g to %g", key->name, value, key->min, key->max);
    return TX_OK;
}

tx_status tx_gpt2_config_check(const tx_gpt2_config *config)
{
    tx_status status = TX_OK;
    for (int i = 0; i < KEYS && !status; i++)
        status = check_key(config, &keys[i]);
    if (status)
        return status;
    if (config->n_embd % config->n_head != 0)
        return tx_fail(TX_INVALID, "n_embd: %" PRId64 " is not a multiple of n_head, %" PRId64, config->n_embd,
                       config->n_head);
    if (config->activation_function >= TX_GPT2_ACTIVATION_COUNT)
        return tx_fail(TX_INVALID, "activation_function: %d is none", (int)config->activation_function);
    return TX_OK;
}

/* ---- Reading --------------------------------------------------------------------------------------- */

static tx_status read_key(const tx_json *json, const tx_config_key *key, tx_gpt2_config *config)
{
    int64_t whole = key->null;
    double number;
    bool flag;
    tx_status status = TX_OK;
    tx_json *member;
    if (tx_json_get(json, key->name, TX_JSON_NULL, &member) == TX_NOT_FOUND)
        return TX_OK; /* the default stays */
    if (key->kind == KEY_NUMBER) {
        status = tx_json_get_number(json, key->name, key->min, key->max, &number);
        if (!status)
            memcpy(field_of(config, key), &number, sizeof number);
    } else if (key->kind == KEY_BOOL) {
        status = tx_json_get_bool(json, key->name, &flag);
        if (!status)
            memcpy(field_of(config, key), &flag, sizeof flag);
    } else {
        if (key->kind == KEY_INT || tx_json_has(json, key->name))
            status = tx_json_get_int(json, key->name, (int64_t)key->min, (int64_t)key->max, &whole);
        if (!status)
            memcpy(field_of(config, key), &whole, sizeof whole);
    }
    return status;
}

/* A key under its second name; both may be there if they agree. */
static tx_status read_second_name(const tx_json *json, const char *name, const tx_config_key *key,
                                  tx_gpt2_config *config)
{
    int64_t first, second;
    tx_status status = tx_json_get_int(json, name, (int64_t)key->min, (int64_t)key->max, &second);
    if (status)
        return status == TX_NOT_FOUND ? TX_OK : status;
    memcpy(&first, value_of(config, key), sizeof first);
    if (tx_json_has(json, key->name) && first != second)
        return tx_fail(TX_INVALID, "%s: %" PRId64 " is not %s, %" PRId64, name, second, key->name, first);
    memcpy(field_of(config, key), &second, sizeof second);
    return TX_OK;
}

static tx_status read_keys(const tx_json *json, tx_gpt2_config *config)
{
    tx_status status = TX_OK;
    for (int i = 0; i < KEYS && !status; i++) {
        status = read_key(json, &keys[i], config);
        for (int k = 0; k < SECOND_NAMES && !status; k++)
            if (strcmp(second_names[k].key, keys[i].name) == 0)
                status = read_second_name(json, second_names[k].name, &keys[i], config);
    }
    return status;
}

static tx_status read_activation(const tx_json *json, tx_gpt2_activation *activation)
{
    const char *name;
    tx_status status = tx_json_get_string(json, "activation_function", &name);
    if (status)
        return status == TX_NOT_FOUND ? TX_OK : status;
    for (int i = 0; i < TX_GPT2_ACTIVATION_COUNT; i++)
        if (strcmp(name, activation_names[i]) == 0) {
            *activation = (tx_gpt2_activation)i;
            return TX_OK;
        }
    char list[256];
    size_t used = 0;
    for (int i = 0; i < TX_GPT2_ACTIVATION_COUNT; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", activation_names[i]);
    return tx_fail(TX_UNSUPPORTED, "activation_function: \"%.40s\" is not one of %s", name, list);
}

/* What is not implemented is refused, never left out in silence. */
static tx_status check_foreign(const tx_json *json)
{
    const char *type;
    bool flag;
    tx_json *pruned;
    tx_status status = tx_json_get_string(json, "model_type", &type);
    if (!status && strcmp(type, "gpt2") != 0)
        return tx_fail(TX_UNSUPPORTED, "model_type: \"%.40s\", expected \"gpt2\"", type);
    for (size_t i = 0; i < sizeof fixed_keys / sizeof fixed_keys[0] && (!status || status == TX_NOT_FOUND); i++) {
        status = tx_json_get_bool(json, fixed_keys[i].name, &flag);
        if (!status && flag != fixed_keys[i].value)
            return tx_fail(TX_UNSUPPORTED, "%s: expected %s: %s", fixed_keys[i].name,
                           fixed_keys[i].value ? "true" : "false", fixed_keys[i].why);
    }
    if (status && status != TX_NOT_FOUND)
        return status;
    if (tx_json_has(json, "quantization_config"))
        return tx_fail(TX_UNSUPPORTED, "quantization_config: quantized weights are not implemented");
    if (!tx_json_get(json, "pruned_heads", TX_JSON_OBJECT, &pruned) && tx_json_size(pruned) > 0)
        return tx_fail(TX_UNSUPPORTED, "pruned_heads: expected none: pruned heads are not implemented");
    return TX_OK;
}

static tx_status read_all(const tx_json *json, tx_gpt2_config *config)
{
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "not a JSON object");
    tx_status status = check_foreign(json);
    if (!status)
        status = read_keys(json, config);
    if (!status)
        status = read_activation(json, &config->activation_function);
    if (!status)
        status = tx_gpt2_config_check(config);
    return status;
}

tx_status tx_gpt2_config_read(const char *path, tx_gpt2_config *config)
{
    tx_gpt2_config made = defaults;
    tx_status status = tx_json_read(path, CONFIG_LIMIT, &made.source);
    if (status)
        return status;
    status = read_all(made.source, &made);
    if (status) {
        tx_json_free(made.source);
        return tx_fail_in(status == TX_INVALID ? TX_FORMAT : status, "%s", path);
    }
    /* The default end of text is an id of the published vocabulary. */
    if (!tx_json_has(made.source, "bos_token_id") && made.bos_token_id >= made.vocab_size)
        made.bos_token_id = -1;
    if (!tx_json_has(made.source, "eos_token_id") && made.eos_token_id >= made.vocab_size)
        made.eos_token_id = -1;
    *config = made;
    return TX_OK;
}

/* Adds one "key=value" to `json`. */
static tx_status add_override(tx_json *json, const char *pair, size_t length)
{
    char key[64], value[128];
    const char *equals = memchr(pair, '=', length);
    size_t before = equals ? (size_t)(equals - pair) : 0, after = length - before - 1;
    if (!equals || before == 0 || before >= sizeof key || after >= sizeof value)
        return tx_fail(TX_INVALID, "\"%.*s\" is not key=value", (int)length, pair);
    snprintf(key, sizeof key, "%.*s", (int)before, pair);
    snprintf(value, sizeof value, "%.*s", (int)after, equals + 1);
    bool known = strcmp(key, "activation_function") == 0;
    for (int i = 0; i < KEYS && !known; i++)
        known = strcmp(key, keys[i].name) == 0;
    if (!known)
        return tx_fail(TX_INVALID, "\"%s\" is not a key of a GPT-2's configuration", key);
    tx_json *parsed;
    bool is_json = tx_json_parse(value, after, key, &parsed) == TX_OK;
    /* Python's spelling, as transformers takes it. */
    if (!is_json && (strcmp(value, "True") == 0 || strcmp(value, "False") == 0))
        return tx_json_set_bool(json, key, value[0] == 'T');
    return is_json ? tx_json_set(json, key, parsed) : tx_json_set_string(json, key, value);
}

tx_status tx_gpt2_config_override(tx_gpt2_config *config, const char *text)
{
    tx_gpt2_config made = *config;
    tx_json *json = tx_json_object();
    tx_status status = json ? TX_OK : TX_MEMORY;
    for (const char *at = text; *at && !status;) {
        size_t length = strcspn(at, ",");
        status = add_override(json, at, length);
        at += length + (at[length] == ',');
    }
    if (!status)
        status = read_all(json, &made);
    tx_json_free(json);
    if (status)
        return tx_fail_in(status == TX_FORMAT ? TX_INVALID : status, "config_overrides");
    *config = made;
    return TX_OK;
}

void tx_gpt2_config_free(tx_gpt2_config *config)
{
    tx_json_free(config->source);
    config->source = NULL;
}

/* ---- Writing --------------------------------------------------------------------------------------- */

static tx_status write_key(const tx_gpt2_config *config, const tx_config_key *key, tx_json *json)
{
    if (key->kind == KEY_NUMBER) {
        double number;
        memcpy(&number, value_of(config, key), sizeof number);
        return tx_json_set_number(json, key->name, number);
    }
    if (key->kind == KEY_BOOL) {
        bool flag;
        memcpy(&flag, value_of(config, key), sizeof flag);
        return tx_json_set_bool(json, key->name, flag);
    }
    int64_t whole;
    memcpy(&whole, value_of(config, key), sizeof whole);
    if (key->kind == KEY_INT_OR_NULL && whole == key->null)
        return tx_json_set_null(json, key->name);
    return tx_json_set_int(json, key->name, whole);
}

/* Second names that the file has follow the keys; transformers would otherwise believe the former value. */
static tx_status write_second_names(tx_json *json)
{
    tx_status status = TX_OK;
    for (int k = 0; k < SECOND_NAMES && !status; k++) {
        int64_t value = 0;
        if (!tx_json_has(json, second_names[k].name))
            continue;
        status = tx_json_get_int(json, second_names[k].key, 0, INT64_MAX, &value);
        if (!status)
            status = tx_json_set_int(json, second_names[k].name, value);
    }
    return status;
}

/* The type of the weights that are written with it; version 5 of transformers calls the key dtype, and an old file may
 * have both. */
static tx_status write_dtype(tx_json *json)
{
    tx_status status = TX_OK;
    bool old = tx_json_has(json, "torch_dtype"), new = tx_json_has(json, "dtype");
    if (old || !new)
        status = tx_json_set_string(json, "torch_dtype", "float32");
    if (new && !status)
        status = tx_json_set_string(json, "dtype", "float32");
    return status;
}

static tx_status write_all(const tx_gpt2_config *config, tx_json *json)
{
    tx_status status = TX_OK;
    for (int i = 0; i < KEYS && !status; i++)
        status = write_key(config, &keys[i], json);
    if (!status)
        status = write_second_names(json);
    if (!status)
        status = tx_json_set_string(json, "activation_function", activation_names[config->activation_function]);
    if (!status)
        status = tx_json_set_string(json, "model_type", "gpt2");
    if (!status)
        status = write_dtype(json);
    if (!status && !tx_json_has(json, "architectures")) {
        tx_json *list = tx_json_array();
        tx_status named = tx_json_append_string(list, "GPT2LMHeadModel");
        status = tx_json_set(json, "architectures", list);
        status = named ? named : status;
    }
    return status;
}

tx_status tx_gpt2_config_json(const tx_gpt2_config *config, tx_json **json)
{
    tx_status status = tx_gpt2_config_check(config);
    if (status)
        return status;
    tx_json *made = config->source ? tx_json_copy(config->source) : tx_json_object();
    status = made ? write_all(config, made) : TX_MEMORY;
    if (status) {
        tx_json_free(made);
        return status;
    }
    *json = made;
    return TX_OK;
}

tx_status tx_gpt2_config_write(const tx_gpt2_config *config, const char *path)
{
    tx_json *json = NULL;
    tx_status status = tx_gpt2_config_json(config, &json);
    if (status)
        return tx_fail_in(status, "%s", path);
    status = tx_json_write(path, json, TX_JSON_SORTED);
    tx_json_free(json);
    return status;
}
