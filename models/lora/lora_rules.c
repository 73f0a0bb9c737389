/* SPDX-License-Identifier: Apache-2.0
 * Applies the rules of peft's adapter_config.json that choose modules by name: target modules as a regular expression,
 * excluded modules, layers, and ranks and alphas of single modules. Called by lora.c. */
#include "models/lora/lora.h"

#include "models/tokenizer/regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tx_lora_rule_keys[] = {"rank_pattern",    "alpha_pattern", "layers_to_transform", "layers_pattern",
                                         "exclude_modules", "bias",          "ensure_weight_tying", NULL};

bool tx_lora_is_pattern(const char *names)
{
    return strpbrk(names, "*+?()[]{}^$|\\") != NULL;
}

/* Whether a Python expression, put into `format`, matches a module's name. */
static tx_status fits(const char *format, const char *pattern, const char *module, bool *fit)
{
    const size_t room = strlen(format) + strlen(pattern) + 1;
    char *text = malloc(room);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory for a regular expression");
    const char *slot = strstr(format, "%s");
    snprintf(text, room, "%.*s%s%s", (int)(slot - format), format, pattern, slot + 2);
    const tx_status status = tx_regex_fits(text, module, fit);
    free(text);
    return tx_fail_in(status, "\"%.100s\"", pattern);
}

/* Whether the last components of a module's name match a key of rank_pattern or alpha_pattern. A key is a regular
 * expression; one with only dots as special characters is compared directly, since there may be hundreds. */
static tx_status fits_key(const char *key, const char *module, bool *fit)
{
    const size_t length = strlen(key), all = strlen(module);
    if (tx_lora_is_pattern(key))
        return fits("(?:.*\\.)?(?:%s)", key, module, fit);
    *fit = length <= all && (length == all || module[all - length - 1] == '.');
    for (size_t i = 0; *fit && i < length; i++)
        *fit = key[i] == '.' || key[i] == module[all - length + i];
    return TX_OK;
}

/* Replaces *number by that of the first key that matches. */
static tx_status pattern_of(const tx_json *rules, const char *rule, const char *module, double least, double *number)
{
    const tx_json *patterns = tx_json_find(rules, rule);
    bool fit = false;
    for (void *i = tx_json_first(patterns); i && !fit; i = tx_json_next(patterns, i)) {
        TX_TRY(tx_fail_in(fits_key(tx_json_key(i), module, &fit), "%s", rule));
        if (fit)
            TX_TRY(tx_fail_in(tx_json_as_number(tx_json_value(i), tx_json_key(i), least, 1e6, number), "%s", rule));
    }
    return TX_OK;
}

size_t tx_lora_first_name(const char **list)
{
    *list += strspn(*list, ", ");
    return strcspn(*list, ", ");
}

bool tx_lora_ends_with(const char *module, const char *word, size_t length)
{
    const size_t all = strlen(module);
    return all >= length && strncmp(module + all - length, word, length) == 0 &&
           (all == length || module[all - length - 1] == '.');
}

bool tx_lora_is_listed(const char *list, const char *module, tx_lora_match *match)
{
    for (size_t length; list && (length = tx_lora_first_name(&list)) > 0; list += length)
        if (match(module, list, length))
            return true;
    return false;
}

tx_status tx_lora_rank_of(const tx_lora *lora, const char *module, int64_t *rank, double *scale)
{
    double r = (double)lora->rank, alpha = lora->alpha;
    TX_TRY(pattern_of(lora->rules, "rank_pattern", module, 1, &r));
    TX_TRY(pattern_of(lora->rules, "alpha_pattern", module, 0, &alpha));
    if (r != floor(r) || r > 1 << 16)
        return tx_fail(TX_FORMAT, "rank_pattern: %g is not a rank", r);
    *rank = (int64_t)r;
    *scale = alpha / (lora->rank_stabilised ? sqrt(r) : r);
    return TX_OK;
}

static tx_status is_excluded(const tx_json *rules, const char *module, bool *excluded)
{
    const tx_json *names = tx_json_find(rules, "exclude_modules");
    const char *text = "";
    *excluded = false;
    if (tx_json_type_of(names) == TX_JSON_STRING) {
        TX_TRY(tx_json_as_string(names, "exclude_modules", &text));
        return tx_fail_in(fits("%s", text, module, excluded), "exclude_modules");
    }
    for (size_t i = 0; i < tx_json_size(names) && !*excluded; i++) {
        TX_TRY(tx_json_as_string(tx_json_at(names, i), "exclude_modules", &text));
        *excluded = tx_lora_ends_with(module, text, strlen(text));
    }
    return TX_OK;
}

/* The first number between dots that `list` (or any name, if it is NULL) precedes: "layers" in model.layers.3.mlp. -1
 * if there is none. A list is a regular expression. */
static tx_status layer_of(const char *list, const char *module, int64_t *layer)
{
    char before[TX_WEIGHTS_NAME];
    *layer = -1;
    for (const char *dot = strchr(module, '.'); dot && *layer < 0; dot = strchr(dot + 1, '.')) {
        const size_t digits = strspn(dot + 1, "0123456789");
        bool fit = dot != module && (list || memchr(module, '.', (size_t)(dot - module)));
        if (digits == 0 || dot[1 + digits] != '.' || !fit)
            continue;
        snprintf(before, sizeof before, "%.*s", (int)(dot - module), module);
        if (list)
            TX_TRY(fits_key(list, before, &fit));
        if (fit)
            *layer = strtoll(dot + 1, NULL, 10);
    }
    return TX_OK;
}

static tx_status is_in_layers(const tx_json *rules, const char *module, bool *in)
{
    const tx_json *layers = tx_json_find(rules, "layers_to_transform"), *lists = tx_json_find(rules, "layers_pattern");
    const bool one = tx_json_type_of(layers) == TX_JSON_INTEGER, one_list = tx_json_type_of(lists) == TX_JSON_STRING;
    const char *list = NULL;
    int64_t layer = -1, wanted = -1;
    *in = !layers;
    if (!layers)
        return TX_OK;
    for (size_t i = 0; layer < 0 && i < (tx_json_size(lists) ? tx_json_size(lists) : 1); i++) {
        if (lists)
            TX_TRY(tx_json_as_string(one_list ? lists : tx_json_at(lists, i), "layers_pattern", &list));
        TX_TRY(tx_fail_in(layer_of(list, module, &layer), "layers_pattern"));
    }
    for (size_t i = 0; layer >= 0 && !*in && i < (one ? 1 : tx_json_size(layers)); i++) {
        TX_TRY(tx_json_as_int(one ? layers : tx_json_at(layers, i), "layers_to_transform", -1, INT32_MAX, &wanted));
        *in = wanted == layer;
    }
    return TX_OK;
}

tx_status tx_lora_rules_allow(const tx_lora *lora, const char *module, bool *allowed)
{
    bool excluded, in = true;
    TX_TRY(is_excluded(lora->rules, module, &excluded));
    if (!tx_lora_is_pattern(lora->targets))
        TX_TRY(is_in_layers(lora->rules, module, &in));
    *allowed = in && !excluded;
    return TX_OK;
}

tx_status tx_lora_fits_pattern(const tx_lora *lora, const char *module, bool *fit)
{
    return tx_fail_in(fits("%s", lora->targets, module, fit), "target_modules");
}

const char *tx_lora_bias(const tx_lora *lora)
{
    const char *bias = "none";
    return tx_json_get_string(lora->rules, "bias", &bias) ? "none" : bias;
}

bool tx_lora_ties(const tx_lora *lora)
{
    return tx_json_has(lora->rules, "ensure_weight_tying");
}
