/* SPDX-License-Identifier: Apache-2.0
 * txgen: continues texts or conversations with a model, classifies or embeds texts, writes the logits of a sequence, or
 * measures perplexity. */
#include "tools/generate/txgen.h"

#include "tools/cli/waiting.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Perplexity ------------------------------------------------------------------------------------ */

static tx_status measure(const txgen_settings *set, tx_lm *lm, const int32_t *ids, int64_t count)
{
    const tx_perplexity_options options = {
        .size = sizeof options, .max_length = set->max_length, .stride = set->stride, .batch = set->lm.batch_size};
    tx_perplexity_result result;
    TX_TRY(tx_lm_perplexity(lm, ids, count, &options, &result));
    printf("perplexity %.6f (loss %.6f, %" PRId64 " tokens, %" PRId64 " windows of %" PRId64 ", stride %" PRId64 ")\n",
           result.perplexity, result.loss, result.tokens, result.windows, result.max_length, result.stride);
    return TX_OK;
}

static tx_status compare(const txgen_settings *set, tx_lm *lm, const int32_t *ids, int64_t count)
{
    tx_lm_options options = set->lm;
    tx_lm *reference = NULL;
    tx_divergence result;
    options.model = set->reference;
    options.context = set->alive;
    TX_TRY(tx_lm_open(&options, &reference));
    const tx_status status = tx_lm_divergence(lm, reference, ids, count, set->max_length, &result);
    tx_lm_free(reference);
    if (!status)
        printf("perplexity %.6f, reference %.6f; mean KL divergence %.6f, same most likely token %.2f %% (%" PRId64
               " tokens, %" PRId64 " windows of %" PRId64 ")\n",
               exp(result.loss), exp(result.reference_loss), result.divergence, 100 * result.same, result.tokens,
               result.windows, result.max_length);
    return status;
}

static tx_status run_perplexity(const txgen_settings *set, tx_lm *lm)
{
    char *text = NULL;
    size_t size = 0;
    int32_t *ids = NULL;
    int64_t count = 0;
    tx_status status = txgen_read_text(set->perplexity, &text, &size);
    TX_THEN(status, tx_lm_encode(lm, text, size, &ids, &count));
    free(text);
    tx_alive_doing(set->alive, "measuring perplexity");
    TX_THEN(status, set->reference ? compare(set, lm, ids, count) : measure(set, lm, ids, count));
    free(ids);
    return status;
}

/* Compiles --dry_sequence_breakers; the word none means no texts. */
static tx_status open_breakers(const txgen_settings *set, tx_lm *lm, tx_breakers **breakers)
{
    const tx_words *words = &set->breakers;
    const bool none = words->count == 1 && strcmp(words->word[0], "none") == 0;
    const tx_tokenizer *tokenizer;
    if (!words->count)
        return TX_OK;
    TX_TRY(tx_lm_tokenizer(lm, &tokenizer));
    return tx_breakers_create(tokenizer, words->word, none ? 0 : words->count, breakers);
}

/* ---- The program -------------------------------------------------------------------------------------- */

static bool is_interactive(const txgen_settings *set)
{
    return set->prompt.count == 0 && !set->prompts && set->ids.count == 0 && isatty(STDIN_FILENO);
}

static tx_status work(const txgen_settings *set, tx_lm *lm, const tx_generation *how)
{
    if (set->save_merged)
        tx_alive_doing(set->alive, "merging and saving");
    if (set->save_merged)
        return tx_lm_save(lm, set->save_merged);
    if (set->perplexity)
        return run_perplexity(set, lm);
    if (set->chat)
        return txgen_run_chat(set, lm, how);
    if (is_interactive(set))
        return txgen_talk(lm, set->alive, how);
    txgen_prompts prompts = {0};
    tx_status status = txgen_read_prompts(set, &prompts);
    TX_THEN(status, set->logits ? tx_lm_logits_save(lm, prompts.prompt->ids, prompts.prompt->count, set->logits)
                                : txgen_run(lm, set->alive, how, &prompts));
    txgen_prompts_free(&prompts);
    return status;
}

/* Prints the number of accepted draft tokens, the speed of reading weights, and the memory. */
static void print_usage(const tx_lm *lm, bool assistant)
{
    tx_lm_usage u;
    char memory[60] = "";
    if (tx_lm_measure(lm, &u))
        return;
    if (u.drafted)
        tx_print_line(stderr, "txgen: %" PRId64 " of %" PRId64 " guesses accepted", u.accepted, u.drafted);
    if (assistant)
        snprintf(memory, sizeof memory, ", assistant %.1f MB", 1e-6 * (double)u.assistant_memory);
    tx_print_line(stderr, "txgen: weights %.1f MB, read in %.2f s (%.2f GB/s); memory %.1f MB, of it caches %.1f MB%s",
                  1e-6 * (double)u.weights, u.seconds, u.seconds > 0.0 ? 1e-9 * (double)u.weights / u.seconds : 0.0,
                  1e-6 * (double)u.memory, 1e-6 * (double)u.caches, memory);
}

static tx_status run(const txgen_settings *set, const tx_option_values *given, const char *adapter)
{
    tx_lm_options options = set->lm;
    options.adapter = adapter;
    options.keep_cache = set->chat;
    options.context = set->alive;
    tx_lm *lm = NULL;
    txgen_grammar grammar = {0};
    tx_breakers *breakers = NULL;
    const tx_tokenizer *tokenizer;
    const bool lines = set->classify || set->embed;
    tx_status status = lines ? txgen_lines(set, &options) : tx_lm_open(&options, &lm);
    if (lm) {
        tx_generation how = *tx_lm_generation(lm);
        const bool generates = !set->logits && !set->perplexity && !set->save_merged;
        const bool sampled = generates && !tx_lm_has_generation(lm) && txgen_sample(given, &how);
        txgen_generation(given, &how);
        if (set->ids.count == 0 && !set->save_merged)
            status = tx_lm_tokenizer(lm, &tokenizer);
        if (generates && *tx_lm_device(lm))
            tx_print_line(stderr, "txgen: device %s", tx_lm_device(lm));
        TX_THEN(status, txgen_open_grammar(set, lm, &grammar));
        how.grammar = grammar.grammar;
        TX_THEN(status, open_breakers(set, lm, &breakers));
        how.dry_breakers = breakers;
        TX_THEN(status, work(set, lm, &how));
        if (!status && generates && (!set->chat || set->lm.assistant_model))
            print_usage(lm, set->lm.assistant_model);
        if (!status && sampled)
            tx_print_line(stderr,
                          "txgen: no generation_config.json: sampled with temperature %g, top_p %g; use "
                          "--temperature 0 for the most likely tokens",
                          how.temperature, how.top_p);
        if (*tx_lm_device_map(lm) && strcmp(set->lm.device_map, tx_lm_device_map(lm)) != 0)
            tx_print_line(stderr, "txgen: device_map %s", tx_lm_device_map(lm));
    }
    txgen_close_grammar(&grammar);
    tx_breakers_free(breakers);
    tx_lm_free(lm);
    return status;
}

static int run_adapted(const txgen_settings *set, const tx_option_values *given)
{
    txgen_adapter adapter;
    tx_status status = txgen_open_adapter(set, &adapter);
    TX_THEN(status, run(set, given, adapter.folder));
    const int result = tx_ranks_leave(&txgen_program, status, set->lm.ranks);
    txgen_close_adapter(&adapter);
    return result;
}

int main(int argc, char **argv)
{
    txgen_settings set;
    tx_option_values given;
    tx_engine_workers(argc, argv);
    tx_ranks_hush();
    int result = txgen_parse(argc, argv, &set, &given);
    if (result == TX_GO_ON) {
        tx_ranks_speak();
        tx_wait_passively(argv, (int32_t)set.lm.threads);
        tx_ranks_hush();
    }
    if (result == TX_GO_ON && tx_ranks_join(&set.lm.ranks))
        result = tx_ranks_leave(&txgen_program, TX_IO, NULL);
    if (result == TX_GO_ON) {
        set.alive = tx_alive_start(&txgen_program, stderr, "loading the model");
        result = run_adapted(&set, &given);
        tx_alive_stop(set.alive);
    }
    tx_option_values_free(&given);
    return tx_end(&txgen_program, result);
}
