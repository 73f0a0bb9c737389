/* SPDX-License-Identifier: Apache-2.0
 * Finds tokens by the sum of weights before them. Called by sample.c. */
#include "models/generate/ranked.h"

#include <string.h>

#define DIGIT 11 /* bits that a pass of the sort orders */
#define DIGITS (1 << DIGIT)
#define PASSES 3 /* of 32 bits */
#define LANES 32 /* scores that the compiler compares at once */

/* A number that orders as the score does; -0 equals 0. */
static uint32_t key_of(float score)
{
    uint32_t bits;
    score += 0.0f;
    memcpy(&bits, &score, sizeof bits);
    return bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
}

static float score_of(uint32_t key)
{
    float score;
    key = key >> 31 ? key ^ 0x80000000u : ~key;
    memcpy(&score, &key, sizeof score);
    return score;
}

static int64_t bucket_of(float score)
{
    return key_of(score) >> 16;
}

/* ---- Sorting -------------------------------------------------------------------------------------------- */

static uint32_t digit(const tx_scored *item, bool by_id, int pass)
{
    return (by_id ? ~(uint32_t)item->id : key_of(item->score)) >> pass * DIGIT & (DIGITS - 1);
}

/* Orders by one digit; items with equal ones keep their order. Returns false if all have the same. */
static bool order(const tx_scored *from, tx_scored *to, int64_t count, bool by_id, int pass)
{
    int64_t at[DIGITS] = {0}, sum = 0;
    for (int64_t i = 0; i < count; i++)
        at[digit(&from[i], by_id, pass)]++;
    if (at[digit(&from[0], by_id, pass)] == count)
        return false;
    for (int i = 0; i < DIGITS; i++) {
        const int64_t size = at[i];
        at[i] = sum;
        sum += size;
    }
    for (int64_t i = 0; i < count; i++)
        to[at[digit(&from[i], by_id, pass)]++] = from[i];
    return true;
}

tx_scored *tx_scored_sort(tx_scored *items, tx_scored *spare, int64_t count, bool ordered)
{
    tx_scored *from = items, *to = spare;
    for (int i = ordered ? PASSES : 0; count > 1 && i < 2 * PASSES; i++)
        if (order(from, to, count, i < PASSES, i % PASSES)) {
            tx_scored *const sorted = to;
            to = from;
            from = sorted;
        }
    return from;
}

/* ---- Finding -------------------------------------------------------------------------------------------- */

double tx_ranked_sum(const tx_ranked *r)
{
    double lane[LANES] = {0.0}, all = 0.0;
    memset(r->sums, 0, TX_BUCKETS * sizeof *r->sums);
    for (int64_t i = 0; i < r->count; i++)
        if (r->weights[i] >= r->least)
            r->sums[bucket_of(r->scores[i])] += r->weights[i];
    for (int64_t i = 0; i < TX_BUCKETS; i += LANES)
        for (int64_t k = 0; k < LANES; k++)
            lane[k] += r->sums[i + k];
    for (int64_t k = 0; k < LANES; k++)
        all += lane[k];
    return all;
}

/* Returns true if scores may be in least..most. */
static bool any_within(const float *scores, int64_t count, float least, float most)
{
    int any = 0;
    for (int64_t i = 0; i < count; i++)
        any |= (scores[i] >= least) & (scores[i] <= most); /* unlike ||, takes several at once */
    return any;
}

/* Sorts the tokens of a bucket. Returns their number; the first one is at `last`, and the others before it. */
static int64_t sort_bucket(const tx_ranked *r, int64_t bucket, const tx_scored **last)
{
    const float least = score_of((uint32_t)bucket << 16), most = score_of((uint32_t)bucket << 16 | 0xFFFFu);
    int64_t count = 0;
    for (int64_t end = r->count, size; end > 0; end -= size) {
        size = end % LANES ? end % LANES : LANES;
        if (!any_within(r->scores + end - size, size, least, most))
            continue;
        for (int64_t i = end - 1; i >= end - size; i--)
            if (bucket_of(r->scores[i]) == bucket && r->weights[i] >= r->least)
                r->items[count++] = (tx_scored){r->scores[i], (int32_t)i};
    }
    *last = tx_scored_sort(r->items, r->spare, count, true) + count - 1;
    return count;
}

bool tx_ranked_find(const tx_ranked *r, double wanted, double margin, bool ties, tx_ranked_place *place)
{
    int64_t bucket = TX_BUCKETS - 1, i = 0;
    double before = 0.0, sum;
    for (; bucket >= 0 && !(before + r->sums[bucket] > wanted + margin); bucket--)
        before += r->sums[bucket];
    if (bucket < 0)
        return false;
    const tx_scored *last;
    const int64_t count = sort_bucket(r, bucket, &last);
    for (sum = before; i < count && !(sum > wanted); i++) {
        before = sum;
        sum += r->weights[last[-i].id];
    }
    if (i == 0 || !(sum > wanted + margin) || (before > 0.0 && !(before < wanted - margin)))
        return false;
    for (; ties && i < count && !(last[-i].score < last[1 - i].score); i++)
        sum += r->weights[last[-i].id];
    *place = (tx_ranked_place){last[1 - i].id, sum};
    return true;
}
