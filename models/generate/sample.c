/* SPDX-License-Identifier: Apache-2.0
 * Chooses the next token from logits. */
#include "models/generate/sample.h"

#include "models/heap.h"
#include "models/text/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_choice_create(int64_t vocab, tx_choice *choice)
{
    choice->vocab = vocab;
    choice->scores = malloc((size_t)vocab * sizeof *choice->scores);
    choice->heap = malloc((size_t)vocab * sizeof *choice->heap);
    return choice->scores && choice->heap ? TX_OK : tx_fail(TX_MEMORY, "generate: no memory to choose a token");
}

void tx_choice_free(tx_choice *choice)
{
    free(choice->scores);
    free(choice->heap);
    *choice = (tx_choice){0};
}

/* ---- Processors ---------------------------------------------------------------------------------------- */

tx_status tx_scores_check(const float *logits, int64_t vocab)
{
    float sum = 0.0f; /* a sum of zeros, unless a logit is not finite */
    for (int64_t i = 0; i < vocab; i++)
        sum += logits[i] * 0.0f;
    if (isfinite(sum))
        return TX_OK;
    int64_t i = 0;
    while (i + 1 < vocab && isfinite(logits[i]))
        i++;
    return tx_fail(TX_INVALID, "generate: logit %" PRId64 " is %g: the weights are damaged", i, (double)logits[i]);
}

void tx_scores_adjust(const tx_generation *how, const tx_history *history, const float *from, int64_t vocab,
                      float *scores)
{
    memcpy(scores, from, (size_t)vocab * sizeof *scores);
    const float penalty = (float)how->repetition_penalty;
    for (int64_t i = 0; how->repetition_penalty != 1.0 && i < history->count; i++) {
        const int32_t id = history->ids[i];
        scores[id] = from[id] < 0.0f ? from[id] * penalty
                                     : from[id] / penalty; /* applied once, regardless of the number of occurrences */
    }
    for (int32_t i = 0; history->generated < how->min_new_tokens && i < how->eos_count; i++)
        if (how->eos_token_id[i] < vocab)
            scores[how->eos_token_id[i]] = -INFINITY;
}

static bool adjusts(const tx_generation *how, const tx_history *history)
{
    return how->repetition_penalty != 1.0 || (history->generated < how->min_new_tokens && how->eos_count > 0);
}

static int32_t most_likely(const float *scores, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (scores[i] > scores[best])
            best = i;
    return (int32_t)best;
}

/* ---- Sampling ------------------------------------------------------------------------------------------ */

/* A number in [0, 1) that depends only on (seed, sample, place): splitmix64 as a counter-based generator. */
static double uniform(uint64_t seed, uint64_t sample, uint64_t place)
{
    uint64_t stream = tx_hash_splitmix(seed * 0xD1342543DE82EF95u + sample * TX_HASH_GOLDEN);
    return (double)(tx_hash_splitmix(stream + (place + 1) * TX_HASH_GOLDEN) >> 11) * 0x1p-53;
}

/* Probabilities without normalisation: exp((score - largest score) / temperature). */
typedef struct weights {
    const float *scores;
    double largest, inverse; /* largest score, 1 / temperature */
} weights;

static double weight(const weights *w, int64_t id)
{
    return exp(((double)w->scores[id] - w->largest) * w->inverse);
}

/* Orders by descending score, equal scores by id. */
static bool before(const void *a, const void *b)
{
    const tx_scored *x = a, *y = b;
    return x->score > y->score || (x->score >= y->score && x->id < y->id);
}

/* Moves the tokens that pass top_k and top_p to the end of the heap, the most likely last. Returns their number. */
static int64_t keep(const tx_generation *how, const weights *w, int64_t vocab, tx_scored *heap)
{
    int64_t kept = 0;
    double all = 0.0, sum = 0.0;
    for (int64_t i = 0; i < vocab; i++)
        tx_heap_push(heap, (size_t)i, sizeof *heap, before, &(tx_scored){w->scores[i], (int32_t)i});
    bool limited = how->top_k > 0 && how->top_k < vocab;
    for (int64_t i = 0; !limited && i < vocab; i++)
        all += weight(w, i);
    while (kept < vocab) { /* pops the most likely token */
        if (limited && kept >= how->top_k && heap[0].score < heap[vocab - kept].score)
            break; /* lower than the k-th score */
        if (!limited && !(sum < how->top_p * all) && kept > 0)
            break;
        tx_scored first;
        tx_heap_pop(heap, (size_t)(vocab - kept), sizeof *heap, before, &first);
        sum += weight(w, first.id);
        heap[vocab - ++kept] = first;
    }
    double wanted = how->top_p * sum, reached = 0.0;
    for (int64_t i = 0; limited && how->top_p < 1.0 && i < kept; i++) {
        if (i > 0 && !(reached < wanted))
            return i;
        reached += weight(w, heap[vocab - 1 - i].id);
    }
    return kept;
}

/* Samples from the `count` tokens that end at `last`, or from the first `count` ids if `last` is NULL. */
static int32_t draw(const weights *w, const tx_scored *last, int64_t count, double u, int32_t best)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += weight(w, last ? last[-i].id : i);
    double left = u * sum;
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = last ? last[-i].id : i;
        left -= weight(w, id);
        if (left < 0.0)
            return (int32_t)id;
    }
    return best; /* because of rounding */
}

tx_status tx_sample(const tx_generation *how, const tx_history *history, const float *logits, tx_choice *choice,
                    int32_t *id)
{
    const int64_t vocab = choice->vocab;
    TX_TRY(tx_scores_check(logits, vocab));
    const float *scores = logits;
    if (adjusts(how, history)) {
        tx_scores_adjust(how, history, logits, vocab, choice->scores);
        scores = choice->scores;
    }
    const int32_t best = most_likely(scores, vocab);
    if (!how->do_sample || how->temperature <= 0.0) {
        *id = best;
        return TX_OK;
    }
    const weights w = {scores, (double)scores[best], 1.0 / how->temperature};
    const double u = uniform(how->seed, history->sample, (uint64_t)history->generated);
    const bool all = (how->top_k == 0 || how->top_k >= vocab) && how->top_p >= 1.0;
    const int64_t kept = all ? vocab : keep(how, &w, vocab, choice->heap);
    *id = draw(&w, all ? NULL : choice->heap + vocab - 1, kept, u, best);
    return TX_OK;
}
