/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of mixture-of-experts layers: top-k, routing, and the weighted sum of expert outputs. The grouped matrix
 * products run before their kernels (gemm_grouped.c), which are therefore empty.
 */
#include "backends/experts.h"
#include "backends/cpu/simd.h"

void TX_CPU_NAME(grouped_matmul)(const tx_cpu_call *call)
{
    (void)call;
}

void TX_CPU_NAME(grouped_matmul_grad)(const tx_cpu_call *call)
{
    (void)call;
}

/* ---- Top-k --------------------------------------------------------------------------------------------- */

/* A row of TOP_K: its groups, of which bit g of `open` selects group g. */
typedef struct candidates {
    const float *x, *bias;
    int64_t size; /* of a group */
    int32_t groups;
    uint64_t open;
} candidates;

static float key_of(const candidates *c, int64_t i)
{
    const float key = c->bias ? c->x[i] + c->bias[i] : c->x[i];
    return isnan(key) ? INFINITY : key;
}

/* Returns the index of the first element after element `before` in the order of TOP_K. Pass -1 for the first
 * element. */
static int64_t next_greatest(const candidates *c, int64_t before)
{
    const float limit = before < 0 ? INFINITY : key_of(c, before);
    float greatest = -INFINITY;
    int64_t found = -1;
    for (int32_t g = 0; g < c->groups; g++)
        for (int64_t i = g * c->size; c->open >> g & 1 && i < (g + 1) * c->size; i++) {
            const float value = key_of(c, i);
            const bool is_open = before < 0 || value < limit || (value == limit && i > before);
            if (is_open && (found < 0 || value > greatest)) {
                greatest = value;
                found = i;
            }
        }
    return found;
}

/* Selects the groups whose greatest keys have the greatest sums. */
static void keep_groups(candidates *c, int32_t kept, int32_t best)
{
    float score[TX_CHOICE_GROUPS];
    uint64_t open = 0;
    for (int32_t g = 0; g < c->groups; g++) {
        int64_t at = -1;
        c->open = UINT64_C(1) << g;
        score[g] = 0.0f;
        for (int32_t i = 0; i < best; i++)
            score[g] += key_of(c, at = next_greatest(c, at));
    }
    for (int32_t i = 0; i < kept; i++) {
        int32_t first = -1;
        for (int32_t g = 0; g < c->groups; g++)
            if (!(open >> g & 1) && (first < 0 || score[g] > score[first]))
                first = g;
        open |= UINT64_C(1) << first;
    }
    c->open = open;
}

TX_COSTLY_ROWS(top_k, in[0], width * call->command->attrs.rows)
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t k = attrs->rows;
    const int32_t groups = attrs->choice.groups > 0 ? attrs->choice.groups : 1;
    candidates c = {(const float *)call->in[0] + row * width, call->in[1], width / groups, groups, 1};
    if (attrs->choice.groups > 0)
        keep_groups(&c, attrs->choice.kept, attrs->choice.best);
    float *y = (float *)call->out[0] + row * k, sum = 0.0f;
    int64_t at = -1;
    for (int64_t i = 0; i < k; i++) {
        at = next_greatest(&c, at);
        y[i] = c.x[at];
        sum += c.x[at];
        ((int32_t *)call->out[1])[row * k + i] = (int32_t)at;
    }
    const float factor = attrs->choice.normalized ? attrs->alpha / (sum < attrs->eps ? attrs->eps : sum) : attrs->alpha;
    for (int64_t i = 0; i < k; i++)
        y[i] *= factor;
}

TX_ROWS(top_k_grad, out[0])
{
    const tx_attrs *attrs = &call->command->attrs;
    const int64_t k = tx_shape_last(&call->command->in[0].shape);
    const int32_t *indices = (const int32_t *)call->in[1] + row * k;
    const float *dy = (const float *)call->in[0] + row * k, *x = (const float *)call->in[2];
    float *dx = (float *)call->out[0] + row * width, sum = 0.0f, dot = 0.0f, factor = attrs->alpha, mean = 0.0f;
    for (int64_t i = 0; i < k && attrs->choice.normalized; i++) {
        sum += x[row * width + indices[i]];
        dot += dy[i] * x[row * width + indices[i]];
    }
    if (attrs->choice.normalized) {
        factor /= sum < attrs->eps ? attrs->eps : sum;
        mean = sum < attrs->eps ? 0.0f : dot / sum;
    }
    memset(dx, 0, (size_t)width * sizeof *dx);
    for (int64_t i = 0; i < k; i++)
        dx[indices[i]] = factor * (dy[i] - mean);
}

/* ---- Routing --------------------------------------------------------------------------------------------- */

/* A counting sort on one thread. It costs a few additions for each number; the experts cost thousands of
 * multiplications. */
void TX_CPU_NAME(route)(const tx_cpu_call *call)
{
    const tx_shape *shape = &call->command->in[0].shape;
    const int64_t n = shape->dim[0], k = shape->dim[1], experts = call->command->attrs.rows;
    const int32_t *choices = call->in[0], *ids = call->in[1];
    int64_t chosen = 0;
    int32_t *tokens = call->out[0], *places = call->out[1], *offsets = call->out[2], *next = call->scratch;
    float *counts = call->out[3];
    memset(next, 0, (size_t)experts * sizeof *next);
    for (int64_t i = 0; i < n * k; i++)
        if (!ids || ids[i / k] >= 0) {
            next[choices[i]]++;
            chosen++;
        }
    const int64_t capacity = tx_expert_capacity(call->command->attrs.scale, chosen, experts);
    offsets[0] = 0;
    for (int64_t e = 0; e < experts; e++) {
        const int64_t kept = next[e] < capacity ? next[e] : capacity;
        counts[e] = (float)next[e];
        next[e] = offsets[e];
        offsets[e + 1] = offsets[e] + (int32_t)kept;
    }
    for (int64_t i = offsets[experts]; i < n * k; i++)
        tokens[i] = -1;
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = j; i < n * k; i += k) {
            const int32_t e = choices[i];
            places[i] = (!ids || ids[i / k] >= 0) && next[e] < offsets[e + 1] ? next[e]++ : -1;
            if (places[i] >= 0)
                tokens[places[i]] = (int32_t)(i / k);
        }
}

/* ---- Weighted sum of expert outputs ------------------------------------------------------------------------ */

TX_COSTLY_ROWS(combine, out[0], width * call->command->in[1].shape.dim[1])
{
    const tx_dtype type = call->command->in[0].dtype;
    const int64_t k = call->command->in[1].shape.dim[1];
    const float *weights = call->in[1];
    const int32_t *places = call->in[2];
    float *y = (float *)call->out[0] + row * width, piece[TX_PIECE];
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t i = row * k; i < (row + 1) * k; i++)
        for (int64_t start = 0, count; places[i] >= 0 && start < width; start += count) {
            count = tx_run_length(type, width - start);
            const float *from = tx_run_of(call->in[0], type, places[i] * width + start, count, piece);
            TX_SIMD for (int64_t c = 0; c < count; c++) y[start + c] += weights[i] * from[c];
        }
}

/* Computes row `place` of dx and the gradient of the weight of its choice. */
static void combine_grad_place(const tx_cpu_call *call, int64_t token, int64_t place, int64_t width)
{
    const tx_dtype type = call->command->in[1].dtype;
    const int64_t k = call->command->in[2].shape.dim[1];
    const int32_t *places = call->in[3];
    const float *dy = (const float *)call->in[0] + token * width;
    float piece[TX_PIECE], sum = 0.0f, part;
    int64_t choice = token * k;
    while (places[choice] != place)
        choice++;
    const float weight = ((const float *)call->in[2])[choice];
    for (int64_t start = 0, count; start < width; start += count) {
        count = tx_min(width - start, TX_PIECE);
        const float *from = tx_run_of(call->in[1], type, place * width + start, count, piece);
        TX_SUM(part, c, count, from[c] * dy[start + c]);
        sum += part;
        float *to = tx_run_to(call->out[0], type, place * width + start, piece);
        TX_SIMD for (int64_t c = 0; c < count; c++) to[c] = weight * dy[start + c];
        tx_run_put(call->out[0], piece, type, place * width + start, count);
    }
    ((float *)call->out[1])[choice] = sum;
}

/* A row is a slot of the experts' input, and also a choice of a token. */
TX_ROWS(combine_grad, in[1])
{
    const int64_t bytes = width * (int64_t)tx_dtype_size(call->command->in[1].dtype);
    const int32_t *places = call->in[3], *tokens = call->in[4];
    if (tokens[row] >= 0)
        combine_grad_place(call, tokens[row], row, width);
    else
        memset((char *)call->out[0] + row * bytes, 0, (size_t)bytes);
    if (places[row] < 0)
        ((float *)call->out[1])[row] = 0.0f;
}
