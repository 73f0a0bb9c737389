/* SPDX-License-Identifier: Apache-2.0
 * Drawing a token from logits. */
#include "models/generate/generate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A number in [0, 1) that depends on (seed, place) alone: splitmix64 (Steele, Lea, Flood, 2014) as a counter-based
 * generator. */
static double uniform(uint64_t seed, uint64_t place)
{
    uint64_t x = seed * 0xD1342543DE82EF95u + (place + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* The k-th largest of `count` values (k from 1), which are reordered (Hoare's selection). */
static float kth_largest(float *value, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1, target = k - 1;
    while (low < high) {
        float pivot = value[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (value[i] > pivot)
                i++;
            while (value[j] < pivot)
                j--;
            if (i <= j) {
                float swap = value[i];
                value[i++] = value[j];
                value[j--] = swap;
            }
        }
        if (target <= j)
            high = j;
        else if (target >= i)
            low = i;
        else
            break;
    }
    return value[target];
}

tx_status tx_sample(const float *logits, int64_t vocab, const tx_sampling *sampling, uint64_t place, float *scratch,
                    int32_t *id)
{
    int64_t best = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (!isfinite(logits[i]))
            return tx_fail(TX_INVALID, "generate: logit %" PRId64 " is %g: the weights are damaged", i,
                           (double)logits[i]);
        if (logits[i] > logits[best])
            best = i;
    }
    if (sampling->temperature <= 0.0) {
        *id = (int32_t)best;
        return TX_OK;
    }
    float least = -INFINITY;
    if (sampling->top_k > 0 && sampling->top_k < vocab) {
        memcpy(scratch, logits, (size_t)vocab * sizeof *scratch);
        least = kth_largest(scratch, vocab, sampling->top_k);
    }
    double sum = 0.0, top = (double)logits[best], inverse = 1.0 / sampling->temperature;
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] >= least)
            sum += exp(((double)logits[i] - top) * inverse);
    double left = uniform(sampling->seed, place) * sum;
    int64_t drawn = best; /* where rounding leaves something over at the end */
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] >= least) {
            left -= exp(((double)logits[i] - top) * inverse);
            if (left < 0.0) {
                drawn = i;
                break;
            }
        }
    *id = (int32_t)drawn;
    return TX_OK;
}
