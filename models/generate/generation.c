/* SPDX-License-Identifier: Apache-2.0
 * Generation settings: defaults, generation_config.json, and checks. */
#include "models/generate/generate.h"

#include "api/base/needs.h"
#include "models/files/folder.h"
#include "tx_json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)

tx_generation tx_generation_defaults(int64_t eos_token_id)
{
    tx_generation g = {.size = sizeof g,
                       .max_new_tokens = -1,
                       .max_length = -1,
                       .temperature = 1.0,
                       .top_k = 50,
                       .top_p = 1.0,
                       .repetition_penalty = 1.0,
                       .num_beams = 1,
                       .num_assistant_tokens = TX_GENERATION_ASSISTANT,
                       .length_penalty = 1.0,
                       .seed = 42};
    if (eos_token_id >= 0)
        g.eos_token_id[g.eos_count++] = (int32_t)eos_token_id;
    return g;
}

/* ---- generation_config.json ------------------------------------------------------------------------ */

/* Keys that transformers supports and TX does not, with the value that disables them. */
static const struct {
    const char *key;
    double disabled;
} unknown[] = {
    {"no_repeat_ngram_size", 0.0},
    {"num_beam_groups", 1.0},
    {"num_return_sequences", 1.0},
    {"typical_p", 1.0},
    {"min_p", 0.0},
    {"epsilon_cutoff", 0.0},
    {"eta_cutoff", 0.0},
    {"diversity_penalty", 0.0},
    {"guidance_scale", 1.0},
    {"penalty_alpha", 0.0},
    {"bad_words_ids", 0.0},
    {"suppress_tokens", 0.0},
    {"begin_suppress_tokens", 0.0},
    {"forced_bos_token_id", 0.0},
    {"forced_eos_token_id", 0.0},
    {"sequence_bias", 0.0},
    {"exponential_decay_length_penalty", 0.0},
};

static void report_unknown(const tx_json *json, const char *path, const tx_reporter *reporter)
{
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        double value;
        if (!tx_json_has(json, unknown[i].key))
            continue;
        if (tx_json_get_number(json, unknown[i].key, -DBL_MAX, DBL_MAX, &value) == TX_OK &&
            fabs(value - unknown[i].disabled) <= 0.0)
            continue;
        tx_reporter_print(reporter, "%.400s: %s is not supported and is ignored", path, unknown[i].key);
    }
}

/* true, false or "never" */
static tx_status get_early_stopping(const tx_json *json, tx_early_stopping *value)
{
    const char *text;
    bool flag;
    if (!tx_json_has(json, "early_stopping"))
        return TX_OK;
    if (tx_json_get_string(json, "early_stopping", &text) == TX_OK && strcmp(text, "never") == 0) {
        *value = TX_EARLY_NEVER;
        return TX_OK;
    }
    if (tx_json_get_bool(json, "early_stopping", &flag))
        return tx_fail(TX_FORMAT, "early_stopping: expected true, false or \"never\"");
    *value = flag ? TX_EARLY_TRUE : TX_EARLY_FALSE;
    return TX_OK;
}

/* Reads one id, or a list. */
static tx_status get_ends(const tx_json *json, tx_generation *g)
{
    tx_json *list = NULL;
    if (!tx_json_has(json, "eos_token_id"))
        return TX_OK;
    const bool several = tx_json_get(json, "eos_token_id", TX_JSON_ARRAY, &list) == TX_OK;
    const size_t count = several ? tx_json_size(list) : 1;
    if (count > TX_GENERATION_EOS)
        return tx_fail(TX_UNSUPPORTED, "eos_token_id: %zu ids are more than the %d supported", count,
                       TX_GENERATION_EOS);
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        TX_TRY(several ? tx_json_as_int(tx_json_at(list, i), "eos_token_id", 0, INT32_MAX, &id)
                       : tx_json_get_int(json, "eos_token_id", 0, INT32_MAX, &id));
        g->eos_token_id[i] = (int32_t)id;
    }
    g->eos_count = (int32_t)count;
    return TX_OK;
}

/* A key that is absent or null leaves its field unchanged. */
static tx_status read_fields(const tx_json *json, tx_generation *g)
{
    const struct {
        const char *key;
        int64_t least, *value;
    } integers[] = {
        {"max_new_tokens", 0, &g->max_new_tokens}, {"max_length", 1, &g->max_length},
        {"min_new_tokens", 0, &g->min_new_tokens}, {"top_k", 0, &g->top_k},
        {"num_beams", 1, &g->num_beams},           {"prompt_lookup_num_tokens", 0, &g->prompt_lookup_num_tokens}};
    const struct {
        const char *key;
        double *value;
    } numbers[] = {{"temperature", &g->temperature},
                   {"top_p", &g->top_p},
                   {"repetition_penalty", &g->repetition_penalty},
                   {"length_penalty", &g->length_penalty}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        TX_TRY(TX_JSON_OPTIONAL(int, json, integers[i].key, integers[i].least, INT32_MAX, integers[i].value));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        TX_TRY(TX_JSON_OPTIONAL(number, json, numbers[i].key, -FLT_MAX, FLT_MAX, numbers[i].value));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "do_sample", &g->do_sample));
    TX_TRY(get_early_stopping(json, &g->early_stopping));
    TX_TRY(get_ends(json, g));
    return tx_generation_check(g);
}

tx_status tx_generation_of_config(const tx_config *config, tx_generation *generation)
{
    tx_generation made = tx_generation_defaults(config->eos_token_id);
    if (config->source)
        TX_TRY(tx_fail_in(get_ends(config->source, &made), "config.json"));
    *generation = made;
    return TX_OK;
}

tx_status tx_generation_read(const char *folder, tx_generation *generation, const tx_reporter *reporter)
{
    char path[TX_PATH_ROOM];
    tx_json *json = NULL;
    tx_generation read = *generation;
    tx_status status = tx_json_read(tx_path_in(path, folder, "generation_config.json"), FILE_LIMIT, &json);
    if (status == TX_NOT_FOUND)
        return TX_OK;
    TX_THEN(status, tx_fail_in(read_fields(json, &read), "%s", path));
    if (status == TX_OK) {
        *generation = read;
        report_unknown(json, path, reporter);
        if (!tx_json_has(json, "eos_token_id") && read.eos_count)
            tx_reporter_print(reporter, "%.400s: has no eos_token_id: texts end with those of config.json", path);
    }
    tx_json_free(json);
    return status;
}

int64_t tx_generation_limit(const tx_generation *g, int64_t prompt)
{
    return g->max_new_tokens >= 0 ? g->max_new_tokens : g->max_length - prompt;
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

tx_status tx_generation_check(const tx_generation *g)
{
    TX_NEEDS(g, TX_INVALID);
    if (g->size != sizeof *g)
        return tx_fail(TX_INVALID, "generation: the size field is %zu, expected %zu", g->size, sizeof *g);
    if (!(g->temperature >= 0.0))
        return tx_fail(TX_INVALID, "temperature: %g is below 0", g->temperature);
    if (!(g->top_p > 0.0 && g->top_p <= 1.0))
        return tx_fail(TX_INVALID, "top_p: %g is not in (0, 1]", g->top_p);
    if (!(g->repetition_penalty > 0.0))
        return tx_fail(TX_INVALID, "repetition_penalty: %g is not above 0", g->repetition_penalty);
    if (g->top_k < 0 || g->num_beams < 1 || g->min_new_tokens < 0)
        return tx_fail(TX_INVALID, "top_k and min_new_tokens are at least 0, num_beams is at least 1");
    if (g->prompt_lookup_num_tokens < 0 || g->prompt_lookup_num_tokens > TX_GENERATION_GUESSES)
        return tx_fail(TX_INVALID, "prompt_lookup_num_tokens: %" PRId64 " is not in 0..%d", g->prompt_lookup_num_tokens,
                       TX_GENERATION_GUESSES);
    if (g->num_assistant_tokens < 0 || g->num_assistant_tokens > TX_GENERATION_GUESSES)
        return tx_fail(TX_INVALID, "num_assistant_tokens: %" PRId64 " is not in 0..%d", g->num_assistant_tokens,
                       TX_GENERATION_GUESSES);
    if (g->prompt_lookup_num_tokens > 0 && g->num_beams > 1)
        return tx_fail(TX_UNSUPPORTED, "prompt_lookup_num_tokens with num_beams: use only one of them");
    if (g->max_new_tokens < -1 || g->max_length < -1 || g->max_new_tokens > INT32_MAX || g->max_length > INT32_MAX)
        return tx_fail(TX_INVALID, "max_new_tokens and max_length are at least 0 (-1 if unset) and at most %d", INT32_MAX);
    if (g->eos_count < 0 || g->eos_count > TX_GENERATION_EOS)
        return tx_fail(TX_INVALID, "eos_count: %d is not in 0..%d", (int)g->eos_count, TX_GENERATION_EOS);
    if (g->num_beams > 1 && g->do_sample)
        return tx_fail(TX_UNSUPPORTED,
                       "num_beams %lld with do_sample: beam search does not sample; use only one of them",
                       (long long)g->num_beams);
    for (int32_t i = 0; i < g->stop_count; i++)
        if (!g->stop_strings[i] || !g->stop_strings[i][0])
            return tx_fail(TX_INVALID, "stop_strings: string %d is empty", (int)i);
    return TX_OK;
}

bool tx_generation_ends(const tx_generation *g, int32_t id)
{
    TX_NEEDS(g, false);
    for (int32_t i = 0; i < g->eos_count; i++)
        if (g->eos_token_id[i] == id)
            return true;
    return false;
}

tx_status tx_generation_add_end(tx_generation *g, int32_t id, const char *text, const char **stop)
{
    TX_NEEDS(g && (id >= 0 || (text && stop)), TX_INVALID);
    if (id >= 0 && tx_generation_ends(g, id))
        return TX_OK;
    if (id >= 0 && g->eos_count == TX_GENERATION_EOS)
        return tx_fail(TX_UNSUPPORTED, "eos_token_id already has %d ids, the most that are supported", g->eos_count);
    if (id >= 0) {
        g->eos_token_id[g->eos_count++] = id;
        return TX_OK;
    }
    for (int32_t i = 0; i < g->stop_count; i++)
        stop[i] = g->stop_strings[i];
    stop[g->stop_count++] = text;
    g->stop_strings = stop;
    return TX_OK;
}

tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tx_fail(TX_INVALID, "token %" PRId64 ": id %" PRId32 " is outside the vocabulary of %" PRId64, i,
                           ids[i], vocab);
    return TX_OK;
}
