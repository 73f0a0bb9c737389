/* SPDX-License-Identifier: Apache-2.0
 * Generation settings: defaults and checks. */
#include "models/generate/generate.h"

#include "api/base/needs.h"

#include <inttypes.h>

tx_generation tx_generation_defaults(int64_t eos_token_id)
{
    tx_generation g = {.size = sizeof g,
                       .max_new_tokens = -1,
                       .max_length = -1,
                       .min_new_tokens = -1,
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

int64_t tx_generation_limit(const tx_generation *g, int64_t prompt)
{
    return g->max_new_tokens >= 0 ? g->max_new_tokens : g->max_length - prompt;
}

int64_t tx_generation_least(const tx_generation *g, int64_t prompt)
{
    return g->min_new_tokens >= 0 ? g->min_new_tokens : g->min_length - prompt;
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

tx_status tx_generation_check(const tx_generation *g)
{
    TX_NEEDS(g, TX_INVALID);
    if (g->size != sizeof *g)
        return tx_fail(TX_INVALID, "generation: the size field is %zu, expected %zu", g->size, sizeof *g);
    if (!(g->temperature >= 0.0))
        return tx_fail(TX_INVALID, "temperature: %g is below 0", g->temperature);
    if (!(g->top_p >= 0.0 && g->top_p <= 1.0))
        return tx_fail(TX_INVALID, "top_p: %g is not in 0..1", g->top_p);
    if (!(g->repetition_penalty > 0.0))
        return tx_fail(TX_INVALID, "repetition_penalty: %g is not above 0", g->repetition_penalty);
    if (g->min_length < 0 || g->min_length > INT32_MAX)
        return tx_fail(TX_INVALID, "min_length: %" PRId64 " is not in 0..%d", g->min_length, INT32_MAX);
    if (g->top_k < -1 || g->num_beams < 1 || g->min_new_tokens < -1)
        return tx_fail(TX_INVALID, "top_k and min_new_tokens are at least -1, num_beams is at least 1");
    if (g->prompt_lookup_num_tokens < 0 || g->prompt_lookup_num_tokens > TX_GENERATION_GUESSES)
        return tx_fail(TX_INVALID, "prompt_lookup_num_tokens: %" PRId64 " is not in 0..%d", g->prompt_lookup_num_tokens,
                       TX_GENERATION_GUESSES);
    if (g->num_assistant_tokens < 0 || g->num_assistant_tokens > TX_GENERATION_GUESSES)
        return tx_fail(TX_INVALID, "num_assistant_tokens: %" PRId64 " is not in 0..%d", g->num_assistant_tokens,
                       TX_GENERATION_GUESSES);
    if (g->prompt_lookup_num_tokens > 0 && g->num_beams > 1)
        return tx_fail(TX_UNSUPPORTED, "prompt_lookup_num_tokens with num_beams: use only one of them");
    if (g->max_new_tokens < -1 || g->max_length < -1 || g->max_new_tokens > INT32_MAX || g->max_length > INT32_MAX)
        return tx_fail(TX_INVALID, "max_new_tokens and max_length are at least 0 (-1 if unset) and at most %d",
                       INT32_MAX);
    if (g->eos_count < 0 || g->eos_count > TX_GENERATION_EOS)
        return tx_fail(TX_INVALID, "eos_count: %d is not in 0..%d", (int)g->eos_count, TX_GENERATION_EOS);
    if (g->num_beams > 1 && g->do_sample)
        return tx_fail(TX_UNSUPPORTED,
                       "num_beams %lld with do_sample: beam search does not sample; set num_beams to 1 or do_sample "
                       "to false",
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
