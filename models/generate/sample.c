/* SPDX-License-Identifier: Apache-2.0
 * Chooses the next token from logits. */
#include "models/generate/sample.h"

#include "api/base/arithmetic.h"
#include "models/generate/dry.h"
#include "models/heap.h"
#include "models/tokenizer/hash.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores of a block: few enough to search again, and many enough that the blocks' largest scores are few. */
#define BLOCK 128
/* Scores that the compiler compares at once. */
#define LANES 16
/* More tokens than that are faster in buckets than sorted. */
#define LARGE 4096

static int64_t blocks_of(int64_t vocab)
{
    return tx_ceil_div(vocab, BLOCK);
}

tx_status tx_choice_create(int64_t vocab, tx_choice *choice)
{
    const bool large = vocab > LARGE;
    choice->vocab = vocab;
    choice->largest = malloc((size_t)blocks_of(vocab) * sizeof *choice->largest);
    choice->scores = malloc((size_t)vocab * sizeof *choice->scores);
    choice->nearness = malloc((size_t)vocab * sizeof *choice->nearness);
    choice->items = malloc((size_t)vocab * sizeof *choice->items);
    choice->spare = malloc((size_t)vocab * sizeof *choice->spare);
    choice->weights = malloc((size_t)vocab * sizeof *choice->weights);
    choice->sums = large ? malloc(TX_BUCKETS * sizeof *choice->sums) : NULL;
    return choice->largest && choice->scores && choice->nearness && choice->items && choice->spare && choice->weights &&
                   (choice->sums || !large)
               ? TX_OK
               : tx_fail(TX_MEMORY, "generate: no memory to choose a token");
}

void tx_choice_free(tx_choice *choice)
{
    free(choice->largest);
    free(choice->scores);
    free(choice->nearness);
    free(choice->items);
    free(choice->spare);
    free(choice->weights);
    free(choice->sums);
    *choice = (tx_choice){0};
}

/* ---- Processors ---------------------------------------------------------------------------------------- */

tx_status tx_scores_check(const float *logits, int64_t vocab)
{
    bool finite = true;
    for (int64_t i = 0; i < vocab; i++)
        finite &= fabsf(logits[i]) <= FLT_MAX; /* unlike &&, takes several at once */
    if (finite)
        return TX_OK;
    int64_t i = 0;
    while (i + 1 < vocab && isfinite(logits[i]))
        i++;
    return tx_fail(TX_INVALID, "generate: logit %" PRId64 " is %g: the weights are damaged", i, (double)logits[i]);
}

/* Whether the text may not end yet. */
static bool is_short(const tx_generation *how, const tx_history *history)
{
    return history->generated < tx_generation_least(how, history->count - history->generated);
}

/* Leaves out the tokens that are not allowed. */
static void apply_allowed(const tx_generation *how, const tx_allowed *allowed, const float *from, int64_t vocab,
                          float *scores)
{
    for (int64_t i = 0; i < vocab; i++)
        if (i >= allowed->count || !(allowed->bits[i / 32] >> i % 32 & 1))
            scores[i] = -INFINITY;
    for (int32_t i = 0; i < how->eos_count; i++)
        if (how->eos_token_id[i] < vocab)
            scores[how->eos_token_id[i]] = allowed->ends ? from[how->eos_token_id[i]] : -INFINITY;
}

static bool has_penalty(const tx_generation *how)
{
    return how->repetition_penalty != 1.0 || how->presence_penalty != 0.0 || how->frequency_penalty != 0.0;
}

tx_status tx_scores_adjust(const tx_generation *how, const tx_history *history, const float *from, int64_t vocab,
                           float *scores)
{
    const float penalty = (float)how->repetition_penalty, presence = (float)how->presence_penalty;
    const int64_t prompt = history->count - history->generated;
    memcpy(scores, from, (size_t)vocab * sizeof *scores);
    if (history->allowed)
        apply_allowed(how, history->allowed, from, vocab, scores);
    for (int64_t i = has_penalty(how) ? 0 : history->count; i < history->count; i++) {
        const int32_t id = history->ids[i];
        if (scores[id] > -INFINITY) /* applied once, regardless of the number of occurrences */
            scores[id] = from[id] < 0.0f ? from[id] * penalty : from[id] / penalty;
        scores[id] -= i < prompt ? 0.0f : presence;
    }
    for (int64_t i = prompt; how->frequency_penalty != 0.0 && i < history->count; i++)
        scores[history->ids[i]] -= (float)how->frequency_penalty;
    if (tx_dry_is_on(how))
        TX_TRY(tx_dry_apply(how, history, vocab, scores));
    for (int32_t i = 0; i < how->bias_count; i++)
        if (how->logit_bias[i].id < vocab)
            scores[how->logit_bias[i].id] += how->logit_bias[i].bias;
    for (int32_t i = 0; is_short(how, history) && i < how->eos_count; i++)
        if (how->eos_token_id[i] < vocab)
            scores[how->eos_token_id[i]] = -INFINITY;
    return TX_OK;
}

static bool adjusts(const tx_generation *how, const tx_history *history)
{
    return history->allowed || has_penalty(how) || tx_dry_is_on(how) || how->bias_count > 0 ||
           (is_short(how, history) && how->eos_count > 0);
}

static float largest_of(const float *scores, int64_t count)
{
    float lane[LANES], largest = scores[0];
    for (int64_t i = 0; i < LANES; i++)
        lane[i] = largest;
    int64_t first = 0;
    for (; first + LANES <= count; first += LANES)
        for (int64_t i = 0; i < LANES; i++)
            lane[i] = scores[first + i] > lane[i] ? scores[first + i] : lane[i];
    for (int64_t i = 0; i < LANES; i++)
        largest = lane[i] > largest ? lane[i] : largest;
    for (; first < count; first++)
        largest = scores[first] > largest ? scores[first] : largest;
    return largest;
}

/* Finds the largest score of each block. Returns the first token with the largest of all. */
static int32_t most_likely(const float *scores, tx_choice *choice)
{
    int64_t best = 0;
    for (int64_t b = 0; b < blocks_of(choice->vocab); b++) {
        const int64_t left = choice->vocab - b * BLOCK;
        choice->largest[b] = largest_of(scores + b * BLOCK, left < BLOCK ? left : BLOCK);
        best = choice->largest[b] > choice->largest[best] ? b : best;
    }
    int64_t id = best * BLOCK;
    while (scores[id] < choice->largest[best])
        id++;
    return (int32_t)id;
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
    const double *of;        /* by id, of the tokens that may be drawn */
} weights;

static double log_weight(const weights *w, int64_t id)
{
    return ((double)w->scores[id] - w->largest) * w->inverse;
}

/* Orders by descending score, equal scores by id. */
static bool before(const void *a, const void *b)
{
    const tx_scored *x = a, *y = b;
    return x->score > y->score || (x->score >= y->score && x->id < y->id);
}

/* Returns a score that the k likeliest tokens reach: the k-th of the blocks' largest scores. */
static float reached_by(int64_t k, const tx_choice *choice)
{
    const int64_t blocks = blocks_of(choice->vocab);
    tx_scored last = {-INFINITY, 0};
    if (k > blocks)
        return last.score;
    for (int64_t b = 0; b < blocks; b++)
        tx_heap_push(choice->items, (size_t)b, sizeof last, before, &(tx_scored){choice->largest[b], (int32_t)b});
    for (int64_t i = 0; i < k; i++)
        tx_heap_pop(choice->items, (size_t)(blocks - i), sizeof last, before, &last);
    return last.score;
}

/* Lists the tokens whose scores reach `least`, by descending id. Returns their number. */
static int64_t gather(const float *scores, float least, const tx_choice *choice)
{
    int64_t count = 0;
    for (int64_t b = blocks_of(choice->vocab) - 1; b >= 0; b--) {
        const int64_t end = tx_min((b + 1) * BLOCK, choice->vocab);
        for (int64_t i = end - 1; i >= b * BLOCK && choice->largest[b] >= least; i--)
            if (scores[i] >= least)
                choice->items[count++] = (tx_scored){scores[i], (int32_t)i};
    }
    return count;
}

static bool is_limited(const tx_generation *how, const tx_choice *choice)
{
    return how->top_k > 0 && how->top_k < choice->vocab;
}

/* Computes the weights of all tokens. Returns their sum. */
static double weigh(const weights *w, const tx_choice *choice)
{
    double all = 0.0;
    for (int64_t i = 0; i < choice->vocab; i++)
        all += choice->weights[i] = exp(log_weight(w, i));
    return all;
}

/* exp of a number that is not positive, with a relative error below 1e-12 unless it is below 1e-304. Unlike exp, the
 * compiler computes several at once. */
static double rough_exp(double x)
{
    static const double shift = 0x1.8p52, ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;
    uint64_t bits;
    x = x < -700.0 ? -700.0 : x;
    double power = x * 0x1.71547652b82fep0 + shift; /* rounds x / ln 2 in the low bits */
    memcpy(&bits, &power, sizeof bits);
    bits = (bits + 1023) << 52; /* that power of 2 */
    power -= shift;
    const double r = (x - power * ln2_high) - power * ln2_low;
    double sum = 1.0 / 3628800.0; /* Taylor's series */
    sum = sum * r + 1.0 / 362880.0;
    sum = sum * r + 1.0 / 40320.0;
    sum = sum * r + 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    memcpy(&power, &bits, sizeof bits);
    return sum * power;
}

/* The same as weigh, faster and not exact. */
static double weigh_roughly(const weights *w, const tx_choice *choice)
{
    double lane[LANES] = {0.0}, all = 0.0;
    for (int64_t i = 0; i < choice->vocab; i++)
        choice->weights[i] = rough_exp(log_weight(w, i));
    for (int64_t i = 0; i + LANES <= choice->vocab; i += LANES)
        for (int64_t k = 0; k < LANES; k++)
            lane[k] += choice->weights[i + k];
    for (int64_t i = choice->vocab - choice->vocab % LANES; i < choice->vocab; i++)
        all += choice->weights[i];
    for (int64_t k = 0; k < LANES; k++)
        all += lane[k];
    return all;
}

/* Returns a score that all tokens reach which top_k, or else top_p and min_p let pass. `all` is the sum of weights. */
static float bound(const tx_generation *how, const weights *w, const tx_choice *choice, double all)
{
    if (is_limited(how, choice))
        return reached_by(how->top_k, choice);
    /* Tokens with less than this part of the weights have less than 1 - top_p together. Half of it, for rounding. */
    const double small = how->top_p < 1.0 ? 0.5 * (1.0 - how->top_p) * all / (double)choice->vocab : 0.0;
    return (float)(w->largest + log(fmax(small, 0.5 * how->min_p)) / w->inverse);
}

/* Sorts `count` tokens that may pass top_k, top_p and min_p, and sets `last` to the most likely one; the others are
 * before it. Returns the number of those that pass. */
static int64_t keep(const tx_generation *how, const weights *w, const tx_choice *choice, double all, int64_t count,
                    const tx_scored **last)
{
    const bool limited = is_limited(how, choice), nucleus = !limited && how->top_p < 1.0;
    int64_t kept = 0;
    double sum = 0.0;
    *last = tx_scored_sort(choice->items, choice->spare, count, true) + count - 1;
    for (int64_t i = 0; !nucleus && i < count; i++)
        choice->weights[(*last)[-i].id] = exp(log_weight(w, (*last)[-i].id));
    for (; kept < count; kept++) {
        const tx_scored *next = *last - kept;
        if (limited && kept >= how->top_k && next->score < next[1].score)
            break; /* lower than the k-th score */
        if (kept > 0 && ((nucleus && !(sum < how->top_p * all)) || (!limited && w->of[next->id] < how->min_p)))
            break;
        sum += w->of[next->id];
    }
    const double wanted = limited && how->top_p < 1.0 ? how->top_p * sum : INFINITY;
    double reached = 0.0;
    for (int64_t i = 0; limited && i < kept; i++) {
        if (i > 0 && (!(reached < wanted) || w->of[(*last)[-i].id] < how->min_p))
            return i;
        reached += w->of[(*last)[-i].id];
    }
    return kept;
}

/* Lists the `count` tokens that end at `last`, or all if `last` is NULL. */
static tx_scored *list(const weights *w, const tx_choice *choice, const tx_scored *last, int64_t count)
{
    if (last)
        memmove(choice->items, last - (count - 1), (size_t)count * sizeof *last);
    for (int64_t i = 0; !last && i < count; i++)
        choice->items[i] = (tx_scored){w->scores[i], (int32_t)i};
    return choice->items;
}

/* Sets the nearness of the information of listed tokens to the entropy. Returns the sum of their weights. */
static double measure_typical(const weights *w, const tx_choice *choice, const tx_scored *items, int64_t count)
{
    double all = 0.0, mean = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double part = w->of[items[i].id];
        all += part;
        mean += part > 0.0 ? part * log_weight(w, items[i].id) : 0.0;
    }
    for (int64_t i = 0; i < count; i++)
        choice->nearness[items[i].id] = (float)-fabs(log_weight(w, items[i].id) - mean / all);
    return all;
}

/* Keeps the listed tokens whose information is nearest to the entropy, up to the probability typical_p. They end at
 * `last`. */
static int64_t keep_typical(const tx_generation *how, const weights *w, const tx_choice *choice, double all,
                            int64_t count, const tx_scored **last)
{
    double sum = 0.0;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        choice->items[i].score = choice->nearness[choice->items[i].id];
    *last = tx_scored_sort(choice->items, choice->spare, count, false) + count - 1;
    for (; kept < count; kept++) {
        const tx_scored *next = *last - kept;
        if (kept > 0 && !(sum < how->typical_p * all) && !(next->score >= next[1].score))
            break;
        sum += w->of[next->id];
    }
    return kept;
}

/* Leaves out of a list the tokens that reach xtc_threshold, except the least likely of them. Returns the new count. */
static int64_t leave_out_top(const tx_generation *how, const weights *w, tx_scored *tokens, int64_t count)
{
    double all = 0.0, least = INFINITY;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        all += w->of[tokens[i].id];
    for (int64_t i = 0; i < count; i++)
        if (w->of[tokens[i].id] >= how->xtc_threshold * all)
            least = fmin(least, w->of[tokens[i].id]);
    for (int64_t i = 0; i < count; i++)
        if (!(w->of[tokens[i].id] > least))
            tokens[kept++] = tokens[i];
    return kept;
}

/* Samples from the `count` tokens that end at `last`, or from the first `count` ids if `last` is NULL. */
static int32_t draw(const weights *w, const tx_scored *last, int64_t count, double u, int32_t best)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++)
        sum += w->of[last ? last[-i].id : i];
    double left = u * sum;
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = last ? last[-i].id : i;
        left -= w->of[id];
        if (left < 0.0)
            return (int32_t)id;
    }
    return best; /* because of rounding */
}

/* Draws as the other functions do, from tokens in buckets. `all` is the sum of the weights. Returns false if another
 * order of sums, and so another rounding, may change the token. */
static bool draw_ranked(const tx_generation *how, const weights *w, const tx_choice *choice, double all, double u,
                        int32_t *id)
{
    const bool typical = how->typical_p < 1.0;
    const double part = typical ? how->typical_p : how->top_p;
    const tx_ranked ranked = {typical ? choice->nearness : w->scores,
                              w->of,
                              choice->vocab,
                              how->min_p,
                              choice->sums,
                              choice->items,
                              choice->spare};
    /* Many times the error of the sum of as many terms, and of rough weights. */
    const double margin = 8.0 * DBL_EPSILON * (double)(choice->vocab + TX_BUCKETS) * all;
    tx_ranked_place place;
    if (typical)
        measure_typical(w, choice, list(w, choice, NULL, choice->vocab), choice->vocab);
    double sum = tx_ranked_sum(&ranked);
    if (part < 1.0 && sum > part * all - margin) {
        if (!tx_ranked_find(&ranked, part * all, margin, typical, &place))
            return false;
        sum = place.sum;
    }
    if (!tx_ranked_find(&ranked, u * sum, margin, false, &place))
        return false;
    *id = place.id;
    return true;
}

/* Draws from the tokens that the settings let pass. */
static int32_t sample(const tx_generation *how, const tx_history *history, const weights *w, const tx_choice *choice,
                      int32_t best)
{
    const double u = uniform(how->seed, history->sample, (uint64_t)history->generated);
    const bool limited = is_limited(how, choice), cuts = limited || how->top_p < 1.0 || how->min_p > 0.0;
    const bool typical = how->typical_p < 1.0;
    const bool leaves_out = how->xtc_probability > uniform(~how->seed, history->sample, (uint64_t)history->generated);
    const bool nucleus = !limited && how->top_p < 1.0;
    const bool rough = choice->sums && nucleus && how->min_p <= 0.0 && !typical && !leaves_out;
    const tx_scored *last = NULL;
    int32_t id;
    if (rough && draw_ranked(how, w, choice, weigh_roughly(w, choice), u, &id))
        return id;
    double all = nucleus || !cuts ? weigh(w, choice) : 0.0;
    const float least = cuts ? bound(how, w, choice, all) : -INFINITY;
    int64_t kept = cuts ? gather(w->scores, least, choice) : choice->vocab;
    if (kept > LARGE && !limited && !rough && cuts != typical && !leaves_out) {
        all = all > 0.0 ? all : weigh(w, choice);
        if (draw_ranked(how, w, choice, all, u, &id))
            return id;
        kept = cuts ? gather(w->scores, least, choice) : kept;
    }
    if (cuts)
        kept = keep(how, w, choice, all, kept, &last);
    if (typical) {
        const double sum = measure_typical(w, choice, list(w, choice, last, kept), kept);
        kept = keep_typical(how, w, choice, sum, kept, &last);
    }
    if (leaves_out) {
        kept = leave_out_top(how, w, list(w, choice, last, kept), kept);
        last = choice->items + kept - 1;
    }
    return draw(w, last, kept, u, best);
}

tx_status tx_sample(const tx_generation *how, const tx_history *history, const float *logits, tx_choice *choice,
                    int32_t *id)
{
    const int64_t vocab = choice->vocab;
    TX_TRY(tx_scores_check(logits, vocab));
    const float *scores = logits;
    if (adjusts(how, history)) {
        TX_TRY(tx_scores_adjust(how, history, logits, vocab, choice->scores));
        scores = choice->scores;
    }
    const int32_t best = most_likely(scores, choice);
    if (history->allowed && !(scores[best] > -INFINITY))
        return tx_fail(TX_UNSUPPORTED, "generate: no token of the vocabulary continues the text as the grammar wants");
    if (!how->do_sample || how->temperature <= 0.0) {
        *id = best;
        return TX_OK;
    }
    const weights w = {scores, (double)scores[best], 1.0 / how->temperature, choice->weights};
    *id = sample(how, history, &w, choice, best);
    return TX_OK;
}

double tx_log_sum(const float *logits, int64_t vocab)
{
    float largest = logits[0];
    double sum = 0.0;
    for (int64_t i = 1; i < vocab; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)largest);
    return log(sum) + (double)largest;
}
