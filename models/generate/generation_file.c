/* SPDX-License-Identifier: Apache-2.0
 * Reads generation_config.json. A table says for each key of transformers' GenerationConfig whether TX follows it. */
#include "models/files/folder.h"
#include "models/generate/generate.h"
#include "tx_json.h"

#include <stdio.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)

/* These lists and tx_generation.def have the keys of transformers 5.23, and those of earlier versions. */

/* Keys that change the text, and that TX does not follow, by the number that disables them. Empty values do, too. */
static const struct {
    double disabled;
    const char *names;
} others[] = {
    {0, " epsilon_cutoff eta_cutoff no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids"
        " force_words_ids constraints renormalize_logits forced_decoder_ids exponential_decay_length_penalty"
        " sequence_bias token_healing watermarking_config assistant_ensemble_weight penalty_alpha dola_layers"
        " diversity_penalty "},
    {1, " encoder_repetition_penalty guidance_scale num_return_sequences num_beam_groups "},
    {-1, " max_time stop_strings top_h forced_bos_token_id forced_eos_token_id suppress_tokens"
         " begin_suppress_tokens "},
};

/* Keys that do not change the texts of TX. */
static const char harmless[] =
    " pad_token_id use_cache cache_implementation cache_config max_cache_len return_legacy_cache"
    " prefill_chunk_size low_memory compile_config disable_compile continuous_batching_config"
    " output_attentions output_hidden_states output_scores output_logits return_dict_in_generate"
    " remove_invalid_values is_assistant num_assistant_tokens_schedule assistant_confidence_threshold"
    " assistant_early_exit assistant_lookbehind target_lookbehind max_matching_ngram_size"
    " speculation_type use_mtp transformers_version _from_model_config _commit_hash ";

/* ---- Values ------------------------------------------------------------------------------------------------ */

/* Reads one id, or a list. */
static tx_status get_ends(const tx_json *json, tx_generation *g)
{
    tx_json *list = NULL;
    const bool is_list = tx_json_get(json, "eos_token_id", TX_JSON_ARRAY, &list) == TX_OK;
    const size_t count = is_list ? tx_json_size(list) : 1;
    if (count > TX_GENERATION_EOS)
        return tx_fail(TX_UNSUPPORTED, "eos_token_id: %zu ids are more than the %d supported", count,
                       TX_GENERATION_EOS);
    for (size_t i = 0; i < count; i++) {
        int64_t id = -1;
        TX_TRY(is_list ? tx_json_as_int(tx_json_at(list, i), "eos_token_id", 0, INT32_MAX, &id)
                       : tx_json_get_int(json, "eos_token_id", 0, INT32_MAX, &id));
        g->eos_token_id[i] = (int32_t)id;
    }
    g->eos_count = (int32_t)count;
    return TX_OK;
}

/* config.json's bos_token_id is always known, possibly as the default of the architecture. */
static tx_status compare_id(const tx_json *json, const char *name, const tx_config *config)
{
    int64_t value = -1, used = strcmp(name, "bos_token_id") == 0 ? config->bos_token_id : -1;
    if (config->source)
        TX_TRY(TX_JSON_OPTIONAL(int, config->source, name, INT32_MIN, INT32_MAX, &used));
    TX_TRY(tx_json_get_int(json, name, INT32_MIN, INT32_MAX, &value));
    return value == used ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s differs from that of config.json, which is used", name);
}

/* ---- The file ---------------------------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %.60s ", name);
    return strstr(words, word) != NULL;
}

/* The row of a key in `others`, or -1. */
static int find_other(const char *name)
{
    int row = (int)(sizeof others / sizeof others[0]) - 1;
    while (row >= 0 && !has_word(others[row].names, name))
        row--;
    return row;
}

/* Fails if a key changes the text, and TX does not follow it. */
static tx_status check_other(const char *name, const tx_json *value)
{
    const int row = find_other(name);
    double number;
    if (row < 0)
        return has_word(harmless, name)
                   ? TX_OK
                   : tx_fail(TX_UNSUPPORTED, "%.60s is no setting that TX knows, and is ignored", name);
    const double disabled = others[row].disabled;
    return tx_json_is_empty(value) || !tx_json_as_number(value, name, disabled, disabled, &number)
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "%s is not supported and is ignored", name);
}

static bool is_ends(const char *name)
{
    return strcmp(name, "eos_token_id") == 0;
}

/* Applies a key that is not null. */
static tx_status apply(const tx_json *json, const char *name, const tx_config *config, tx_generation *g)
{
    tx_generation result = *g;
    if (has_word(" bos_token_id decoder_start_token_id ", name)) /* those of config.json are used */
        return compare_id(json, name, config);
    if (tx_generation_in_file(name))
        return tx_generation_read_member(g, name, tx_json_find(json, name));
    if (!is_ends(name))
        return check_other(name, tx_json_find(json, name));
    TX_TRY(get_ends(json, &result));
    *g = result;
    return TX_OK;
}

/* Reads the settings among the members of `json`, from `path`, and reports those that are not followed. Returns their
 * number. In config.json, other members belong to the model. */
static int32_t read_settings(const tx_json *json, const tx_config *config, const char *path,
                             const tx_reporter *reporter, tx_generation *g)
{
    int32_t count = 0;
    for (void *m = tx_json_first(json); m; m = tx_json_next(json, m)) {
        const char *name = tx_json_key(m);
        const bool followed = tx_generation_in_file(name), models = !followed && find_other(name) < 0;
        if ((json == config->source && models) || !tx_json_has(json, name))
            continue;
        count++;
        if (apply(json, name, config, g))
            tx_reporter_print(reporter, "%.400s: %s%s", path, tx_error(),
                              followed || is_ends(name) ? ": the default is used instead" : "");
    }
    return count;
}

tx_status tx_generation_read(const tx_config *config, const char *folder, const tx_reporter *reporter,
                             tx_generation *generation, bool *has_settings)
{
    char path[TX_PATH_ROOM];
    tx_json *json = NULL;
    tx_generation result = tx_generation_defaults(config->eos_token_id);
    if (config->source && tx_json_has(config->source, "eos_token_id"))
        TX_TRY(tx_fail_in(get_ends(config->source, &result), "config.json"));
    if (folder) {
        const tx_status status = tx_json_read(tx_path_in(path, folder, "generation_config.json"), FILE_LIMIT, &json);
        TX_TRY(status == TX_NOT_FOUND ? TX_OK : status);
    }
    const int32_t count = json ? read_settings(json, config, path, reporter, &result)
                               : read_settings(config->source, config, "config.json", reporter, &result);
    if (json && result.eos_count && !tx_json_has(json, "eos_token_id"))
        tx_reporter_print(reporter, "%.400s: has no eos_token_id: texts end with those of config.json", path);
    if (has_settings)
        *has_settings = json || count > 0;
    tx_json_free(json);
    *generation = result;
    return TX_OK;
}
