/* SPDX-License-Identifier: Apache-2.0
 * Reads and writes adapter_config.json of peft's folders. */
#include "models/arch/wrapper.h"
#include "models/lora/lora.h"

#include "api/base/file.h"
#include "models/files/folder.h"
#include "models/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)16 << 20)

/* ---- Reading ------------------------------------------------------------------------- */

/* First the keys that TX reads and checks, then keys that do not change the output of a saved adapter: peft corrects
 * fan_in_fan_out by the layer's type, and the last keys only describe the initialization. Every other key, known or
 * not, must have an empty value. */
/* clang-format off */
static const char *const known_keys[] = {
    "peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "target_modules", "modules_to_save", "use_rslora",
    "use_dora", "init_lora_weights", "target_parameters", "revision", "base_model_name_or_path", TX_LORA_TOKEN_INDICES,
    "auto_mapping", "peft_version", "inference_mode", "fan_in_fan_out", "megatron_core", "runtime_config",
    "qalora_group_size", "loftq_config", "eva_config", "corda_config", "lora_ga_config", NULL};
/* clang-format on */
/* For these keys {} means default settings in peft, not "disabled". */
static const char *const variant_keys[] = {"velora_config", "monteclora_config", "kasa_config",
                                           "use_bdlora",    "arrow_config",      NULL};
/* Values of init_lora_weights, apart from true and false. The first ones do not change the base weights and keep the
 * whole adapter trainable. For the last three, TX changes the base as peft does. */
static const char *const known_inits[] = {"gaussian",    "eva",         "orthogonal",  "lora_ga",
                                          TX_LORA_PISSA, TX_LORA_OLORA, TX_LORA_LOFTQ, NULL};

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcmp(*list, text) != 0)
        list++;
    return *list != NULL;
}

/* Returns true if a value is empty or "none". */
static bool is_nothing(const char *key, const tx_json *value)
{
    const char *text;
    if (tx_json_type_of(value) == TX_JSON_STRING && !tx_json_as_string(value, key, &text) && strcmp(text, "none") == 0)
        return true;
    return tx_json_is_empty(value) && !(tx_json_type_of(value) == TX_JSON_OBJECT && is_one_of(key, variant_keys));
}

static tx_status refuse_others(const tx_json *json)
{
    const char *type = "";
    TX_TRY(tx_json_get_string(json, "peft_type", &type));
    if (strcmp(type, "LORA") != 0)
        return tx_fail(TX_UNSUPPORTED, "peft_type: \"%.40s\": TX supports only adapters of type LORA", type);
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        if (!is_one_of(tx_json_key(i), known_keys) && !is_one_of(tx_json_key(i), tx_lora_rule_keys) &&
            !is_nothing(tx_json_key(i), tx_json_value(i)))
            return tx_fail(TX_UNSUPPORTED, "%.60s: TX does not implement adapters with this setting", tx_json_key(i));
    return TX_OK;
}

/* peft repeats LoftQ whenever it loads such an adapter. Only without SVD in between is the base always the same. */
static tx_status check_loftq(const tx_json *json)
{
    int64_t bits = 0, iterations = 1;
    const tx_json *how = tx_json_find(json, "loftq_config");
    TX_TRY(tx_json_get_int(how, "loftq_bits", 1, 16, &bits));
    TX_TRY(TX_JSON_OPTIONAL(int, how, "loftq_iter", 1, 1 << 16, &iterations));
    return bits == 4 && iterations == 1
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED,
                         "loftq_config: TX rounds the base only with loftq_bits 4 and loftq_iter 1: save the base in "
                         "peft by model.unload().save_pretrained(...), name it as base_model_name_or_path, and set "
                         "init_lora_weights to true");
}

/* peft changes the base weights whenever it loads an adapter with pissa_niter_N (by random numbers). It loads no CorDA,
 * whose covariances are not in the folder. MiCA freezes a part of the adapter. */
static tx_status read_init(const tx_json *json, tx_lora *lora)
{
    const char *text = "";
    const tx_json *value = tx_json_find(json, "init_lora_weights");
    if (!value || tx_json_type_of(value) == TX_JSON_BOOL || tx_json_type_of(value) == TX_JSON_NULL)
        return TX_OK;
    TX_TRY(tx_json_as_string(value, "init_lora_weights", &text));
    if (strcmp(text, TX_LORA_LOFTQ) == 0)
        TX_TRY(check_loftq(json));
    if (is_one_of(text, known_inits))
        return tx_copy_text(text, &lora->init);
    const bool mica = strcmp(text, "mica") == 0;
    return tx_fail(TX_UNSUPPORTED, "init_lora_weights: \"%.40s\" %s", text,
                   mica ? "freezes a part of the adapter, which TX does not do: save the merged model"
                        : "changes the base by numbers that are not in the folder: convert the adapter in peft by "
                          "save_pretrained(..., path_initial_model_for_weight_conversion=...), or save the merged "
                          "model");
}

/* Copies the keys that are rules. */
static tx_status read_rules(const tx_json *json, tx_lora *lora)
{
    for (const char *const *key = tx_lora_rule_keys; *key; key++) {
        const tx_json *value = tx_json_find(json, *key);
        if (is_nothing(*key, value))
            continue;
        lora->rules = lora->rules ? lora->rules : tx_json_object();
        tx_json *copy = tx_json_copy(value);
        TX_TRY(copy ? tx_json_set(lora->rules, *key, copy) : tx_fail(TX_MEMORY, "no memory for an adapter"));
    }
    const char *bias = tx_lora_bias(lora);
    if (strcmp(bias, "none") != 0 && strcmp(bias, "all") != 0 && strcmp(bias, "lora_only") != 0)
        return tx_fail(TX_UNSUPPORTED, "bias: \"%.40s\": expected \"none\", \"all\" or \"lora_only\"", bias);
    return TX_OK;
}

static tx_status read_tokens(const tx_json *json, tx_lora *lora)
{
    const tx_json *value = tx_json_find(json, TX_LORA_TOKEN_INDICES);
    if (is_nothing(TX_LORA_TOKEN_INDICES, value))
        return TX_OK;
    lora->tokens = tx_json_text(value, TX_JSON_LINE);
    return lora->tokens ? TX_OK : TX_MEMORY;
}

/* A model's name always finds its revision main. */
static tx_status check_revision(const tx_json *json, const char *base)
{
    const char *revision = "main";
    const tx_json *value = tx_json_find(json, "revision");
    if (!value || is_nothing("revision", value) || (base && tx_file_exists(base)))
        return TX_OK;
    TX_TRY(tx_json_as_string(value, "revision", &revision));
    return strcmp(revision, "main") == 0
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED,
                         "revision: \"%.60s\": by name TX finds only the revision main: write the folder of the model "
                         "as base_model_name_or_path",
                         revision);
}

/* Reads a list of names, or target modules that are one text, into text separated by commas, without the name
 * `left_out` (may be NULL).
 * `*names` stays NULL if the value is null, absent or empty. */
static tx_status read_names(const tx_json *json, const char *key, const char *left_out, char **names)
{
    const tx_json *value = tx_json_find(json, key);
    const size_t room = (size_t)1 << 16;
    const char *text = "";
    if (!value || tx_json_type_of(value) == TX_JSON_NULL)
        return TX_OK;
    const bool is_text = tx_json_type_of(value) == TX_JSON_STRING;
    if (is_text)
        TX_TRY(tx_json_as_string(value, key, &text));
    if (is_text && strcmp(text, TX_LORA_ALL) != 0 && strcmp(key, "target_modules") != 0)
        return tx_fail(TX_FORMAT, "%s is not a list of names", key);
    if (!is_text && tx_json_type_of(value) != TX_JSON_ARRAY)
        return tx_fail(TX_FORMAT, "%s is not a list of names", key);
    if (!is_text && tx_json_size(value) == 0)
        return TX_OK;
    char *created = calloc(1, room);
    tx_status status = created ? TX_OK : tx_fail(TX_MEMORY, "no memory for the names of %s", key);
    if (!status && is_text)
        tx_list_add(created, room, ",", "%s", text);
    for (size_t i = 0; !is_text && i < tx_json_size(value) && !status; i++) {
        status = tx_json_as_string(tx_json_at(value, i), key, &text);
        if (!status && !(left_out && strcmp(text, left_out) == 0))
            tx_list_add(created, room, ",", "%s", text);
    }
    if (!status && strlen(created) == room - 1)
        status = tx_fail(TX_UNSUPPORTED, "%s: the names have more than %zu bytes", key, room - 1);
    if (status || !*created)
        free(created);
    else
        *names = created;
    return status;
}

/* The task_type, if it is one of those that TX writes. */
static const char *task_of_file(const tx_json *json)
{
    static const char *const known[] = {TX_LORA_TEXTS, TX_LORA_CLASSES, TX_LORA_TOKENS, TX_LORA_ANSWERS,
                                        TX_LORA_STATES};
    const char *task = "";
    if (!tx_json_has(json, "task_type") || tx_json_get_string(json, "task_type", &task))
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(task, known[i]) == 0)
            return known[i];
    return NULL;
}

static tx_status read_config(const tx_json *json, tx_lora *lora)
{
    const char *base = NULL;
    TX_TRY(refuse_others(json));
    TX_TRY(read_init(json, lora));
    TX_TRY(read_rules(json, lora));
    TX_TRY(read_tokens(json, lora));
    TX_TRY(tx_json_get_int(json, "r", 1, 1 << 16, &lora->rank));
    TX_TRY(tx_json_get_number(json, "lora_alpha", 0, 1e6, &lora->alpha));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "lora_dropout", 0, 0.999, &lora->dropout));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "use_rslora", &lora->rank_stabilised));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "use_dora", &lora->dora));
    TX_TRY(read_names(json, "target_modules", NULL, &lora->targets));
    /* For a classifier peft always lists "classifier" and "score". No model of TX has the latter. */
    lora->task = task_of_file(json);
    const bool classifies = lora->task && strcmp(lora->task, TX_LORA_TEXTS) != 0;
    TX_TRY(read_names(json, "modules_to_save", classifies ? "score" : NULL, &lora->saved));
    TX_TRY(read_names(json, "target_parameters", NULL, &lora->parameters));
    if (!lora->targets && !lora->parameters)
        return tx_fail(TX_FORMAT, "target_modules is missing");
    TX_TRY(lora->targets ? TX_OK : tx_copy_text("", &lora->targets));
    TX_TRY(TX_JSON_OPTIONAL(string, json, "base_model_name_or_path", &base));
    TX_TRY(check_revision(json, base));
    lora->base = base && *base ? strdup(base) : NULL;
    return base && *base && !lora->base ? tx_fail(TX_MEMORY, "no memory for an adapter") : TX_OK;
}

tx_status tx_lora_read(const char *folder, tx_lora **lora)
{
    const char *path = TX_PATH(folder, TX_LORA_CONFIG);
    tx_json *json = NULL;
    tx_lora *created = calloc(1, sizeof *created);
    tx_status status =
        created ? tx_json_read(path, CONFIG_LIMIT, &json) : tx_fail(TX_MEMORY, "%s: no memory for an adapter", path);
    if (!status) {
        status = read_config(json, created);
        status = tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s", path);
    }
    tx_json_free(json);
    return TX_RETURN(status, created, lora, tx_lora_free);
}

/* ---- Writing ---------------------------------------------------------------------- */

static tx_status set_names(tx_json *json, const char *key, const char *names)
{
    if (names && (strcmp(names, TX_LORA_ALL) == 0 || tx_lora_is_pattern(names)))
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

/* peft's alpha is an integer. */
static tx_status set_alpha(tx_json *json, double alpha)
{
    return alpha == floor(alpha) ? tx_json_set_int(json, "lora_alpha", (int64_t)alpha)
                                 : tx_json_set_number(json, "lora_alpha", alpha);
}

/* In a wrapper, target modules such as q_proj are also names of modules of its other parts. */
static tx_status exclude_others(tx_json *json, const tx_config *config)
{
    static const char key[] = "exclude_modules";
    char pattern[256];
    if (!tx_wrapper_keeps(config) || tx_json_has(config->lora->rules, key))
        return TX_OK;
    tx_wrapper_pattern(config->wrapped, pattern, sizeof pattern);
    return tx_json_set_string(json, key, pattern);
}

static tx_status fill_config(tx_json *json, const tx_config *config)
{
    const tx_lora *lora = config->lora;
    tx_json *tokens;
    TX_TRY(tx_json_set_string(json, "peft_type", "LORA"));
    TX_TRY(tx_lora_task(config) ? tx_json_set_string(json, "task_type", tx_lora_task(config))
                                : tx_json_set_null(json, "task_type"));
    TX_TRY(lora->base ? tx_json_set_string(json, "base_model_name_or_path", lora->base)
                      : tx_json_set_null(json, "base_model_name_or_path"));
    TX_TRY(tx_json_set_int(json, "r", lora->rank));
    TX_TRY(set_alpha(json, lora->alpha));
    TX_TRY(tx_json_set_number(json, "lora_dropout", lora->dropout));
    TX_TRY(set_names(json, "target_modules", lora->targets));
    if (lora->parameters)
        TX_TRY(set_names(json, "target_parameters", lora->parameters));
    TX_TRY(set_names(json, "modules_to_save", lora->saved));
    TX_TRY(tx_json_set_bool(json, "use_rslora", lora->rank_stabilised));
    TX_TRY(tx_json_set_bool(json, "use_dora", lora->dora));
    TX_TRY(tx_json_set_string(json, "bias", "none"));
    for (void *i = tx_json_first(lora->rules); i; i = tx_json_next(lora->rules, i))
        TX_TRY(tx_json_set(json, tx_json_key(i), tx_json_copy(tx_json_value(i))));
    TX_TRY(exclude_others(json, config));
    if (lora->tokens) {
        TX_TRY(tx_lora_parse_tokens(lora->tokens, &tokens));
        TX_TRY(tx_json_set(json, TX_LORA_TOKEN_INDICES, tokens));
    }
    TX_TRY(tx_json_set_bool(json, "fan_in_fan_out", config->architecture->inputs_first));
    TX_TRY(tx_lora_takes_principal(lora) ? tx_json_set_string(json, "init_lora_weights", lora->init)
                                         : tx_json_set_bool(json, "init_lora_weights", true));
    if (tx_lora_rounds(lora))
        TX_TRY(tx_json_set(json, "loftq_config", tx_json_pack("{s:i, s:i}", "loftq_bits", 4, "loftq_iter", 1)));
    return tx_json_set_bool(json, "inference_mode", true);
}

tx_status tx_lora_write(const tx_config *config, const char *path)
{
    tx_json *json = tx_json_object();
    tx_status status = json ? fill_config(json, config) : TX_MEMORY;
    TX_THEN(status, tx_json_write(path, json, TX_JSON_PRETTY));
    tx_json_free(json);
    return status;
}
