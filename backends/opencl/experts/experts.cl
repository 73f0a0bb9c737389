/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of mixture-of-experts layers: top-k, routing, and the weighted sum of expert outputs.
 */

/* ---- Top-k: a work-item processes a row ------------------------------------------------------ */

/* A row: its groups of `size` elements, of which bit g of `open` selects group g. */
typedef struct candidates {
    const __global float *x, *bias;
    int with_bias, size, groups;
    ulong open;
} candidates;

static float key_of(const candidates *c, int i)
{
    const float key = c->with_bias ? c->x[i] + c->bias[i] : c->x[i];
    return isnan(key) ? INFINITY : key;
}

/* Returns the index of the first element after element `before` in the order of TOP_K; -1 asks for the first one. */
static int next_greatest(const candidates *c, int before)
{
    const float limit = before < 0 ? INFINITY : key_of(c, before);
    float greatest = -INFINITY;
    int found = -1;
    for (int g = 0; g < c->groups; g++)
        for (int i = g * c->size; c->open >> g & 1 && i < (g + 1) * c->size; i++) {
            const float value = key_of(c, i);
            if ((value < limit || (value == limit && i > before)) && (found < 0 || value > greatest)) {
                greatest = value;
                found = i;
            }
        }
    return found;
}

/* The most groups (backends/experts.h). */
#define GROUPS 64

/* Selects the groups whose greatest keys have the greatest sums. */
static void keep_groups(candidates *c, int kept, int best)
{
    float score[GROUPS];
    ulong open = 0;
    for (int g = 0; g < c->groups; g++) {
        int at = -1;
        c->open = 1UL << g;
        score[g] = 0.0f;
        for (int i = 0; i < best; i++) {
            at = next_greatest(c, at);
            score[g] += key_of(c, at);
        }
    }
    for (int i = 0; i < kept; i++) {
        int first = -1;
        for (int g = 0; g < c->groups; g++)
            if (!(open >> g & 1) && (first < 0 || score[g] > score[first]))
                first = g;
        open |= 1UL << first;
    }
    c->open = open;
}

__kernel void top_k(const __global float *x, long xo, const __global float *bias, long bo, __global float *y, long yo,
                    __global int *indices, long io, long rows, int n, int k, int normalized, float alpha, float eps,
                    int with_bias, int groups, int kept, int best)
{
    const long row = get_global_id(0);
    if (row >= rows)
        return;
    candidates c = {x + xo + row * n, bias + bo, with_bias, n / max(groups, 1), max(groups, 1), 1};
    y += yo + row * k;
    indices += io + row * k;
    if (groups > 0)
        keep_groups(&c, kept, best);
    float sum = 0.0f;
    int at = -1;
    for (int j = 0; j < k; j++) {
        at = next_greatest(&c, at);
        indices[j] = at;
        sum += c.x[at];
    }
    const float factor = normalized ? alpha / (sum < eps ? eps : sum) : alpha;
    for (int j = 0; j < k; j++)
        y[j] = c.x[indices[j]] * factor;
}

__kernel void top_k_grad(const __global float *dy, long dyo, const __global int *indices, long io,
                         const __global float *x, long xo, __global float *dx, long dxo, long rows, int n, int k,
                         int normalized, float alpha, float eps)
{
    const long row = get_global_id(0);
    if (row >= rows)
        return;
    float sum = 0.0f, dot = 0.0f, mean = 0.0f;
    indices += io + row * k;
    dy += dyo + row * k;
    x += xo + row * n;
    dx += dxo + row * n;
    for (int i = 0; i < k && normalized; i++) {
        sum += x[indices[i]];
        dot += dy[i] * x[indices[i]];
    }
    if (normalized) {
        alpha /= sum < eps ? eps : sum;
        mean = sum < eps ? 0.0f : dot / sum;
    }
    for (int i = 0; i < n; i++)
        dx[i] = 0.0f;
    for (int i = 0; i < k; i++)
        dx[indices[i]] = alpha * (dy[i] - mean);
}

/* ---- Routing: a work-group processes an expert ----------------------------------------------- */

/* Choice number q in the order of ROUTE, which is a choice of token q % n. */
#define CHOICE(q) ((q) % n * k + (q) / n)
/* True if choice i is expert e. Padding tokens, whose id is below 0, choose no expert. */
#define CHOSE(i, e) (choices[i] == (e) && (!with_ids || ids[(i) / k] >= 0))

/* Returns the sum of `own` over the work-items before this one, or over all work-items if `all`. */
TX_INLINE int count_before(int own, int all, __local int *part)
{
    const int l = get_local_id(0);
    int sum = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    part[l] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < (all ? WG : l); i++)
        sum += part[i];
    return sum;
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void route_count(const __global int *choices, long co,
                                                                          const __global int *ids, long io,
                                                                          __global float *counts, long no, int n, int k,
                                                                          int with_ids)
{
    __local int part[WG];
    const int e = get_group_id(0);
    int own = 0;
    choices += co;
    ids += io;
    for (int i = get_local_id(0); i < n * k; i += WG)
        own += CHOSE(i, e);
    own = count_before(own, 1, part);
    if (get_local_id(0) == 0)
        counts[no + e] = (float)own;
}

/* tx_expert_capacity for a factor mantissa / 2^shift. A factor of 0 means no limit. */
static int capacity_of(const __global float *counts, int experts, int mantissa, int shift)
{
    long chosen = 0;
    for (int i = 0; i < experts; i++)
        chosen += (int)counts[i];
    if (mantissa == 0 || shift < 1)
        return (int)chosen;
    const long even = (mantissa * chosen + experts - 1) / experts;
    return (int)min(chosen, shift < 62 ? (even + (1L << shift) - 1) >> shift : (long)(even > 0));
}

__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
route(const __global int *choices, long co, const __global int *ids, long io, __global int *tokens, long to,
      __global int *places, long po, __global int *offsets, long oo, const __global float *counts, long no, int n,
      int k, int with_ids, int experts, int mantissa, int shift)
{
    __local int part[WG];
    const int e = get_group_id(0), l = get_local_id(0), all = n * k, share = (all + WG - 1) / WG;
    const int first = min(l * share, all), last = min(first + share, all);
    choices += co;
    ids += io;
    tokens += to;
    places += po;
    counts += no;
    int begin = 0, own = 0;
    const int capacity = capacity_of(counts, experts, mantissa, shift);
    for (int i = 0; i < e; i++)
        begin += min((int)counts[i], capacity);
    const int end = begin + min((int)counts[e], capacity);
    for (int q = first; q < last; q++)
        own += CHOSE(CHOICE(q), e);
    int place = begin + count_before(own, 0, part);
    for (int q = first; q < last; q++) {
        if (with_ids && ids[q % n] < 0 && e == 0)
            places[CHOICE(q)] = -1;
        if (!CHOSE(CHOICE(q), e))
            continue;
        places[CHOICE(q)] = place < end ? place : -1;
        if (place < end)
            tokens[place] = q % n;
        place++;
    }
    if (l == 0)
        offsets[oo + e] = begin;
    if (e < experts - 1)
        return;
    if (l == 0)
        offsets[oo + experts] = end;
    for (int i = end + l; i < all; i += WG)
        tokens[i] = -1;
}

/* ---- Weighted sum of expert outputs ---------------------------------------------------------- */

__kernel void combine(const __global h_t *x, long xo, const __global float *weights, long wo,
                      const __global int *places, long po, __global float *y, long yo, long n, int k)
{
    const long row = TX_ROW;
    x += xo;
    y += yo + row * n;
    weights += wo + row * k;
    places += po + row * k;
    TX_EACH({
        vec sum = 0.0f;
        for (int j = 0; j < k; j++)
            if (places[j] >= 0)
                sum += weights[j] * tx_load_h(x + places[j] * n, i, n);
        tx_store(sum, y, i, n);
    })
}

/* A work-group processes a slot of the experts' input: its row of dx and the gradient of the weight of its choice.
 * It also zeroes the gradient of the choice with the number of the slot if that choice has no slot. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
combine_grad(const __global float *dy, long dyo, const __global h_t *x, long xo, const __global float *weights, long wo,
             const __global int *places, long po, const __global int *tokens, long to, __global h_t *dx, long dxo,
             __global float *dweights, long dwo, long n, int k)
{
    __local float part[WG];
    const long place = get_group_id(0);
    const int token = tokens[to + place];
    long choice = (long)max(token, 0) * k;
    float weight = 0.0f;
    places += po;
    x += xo + place * n;
    dx += dxo + place * n;
    dy += dyo + max(token, 0) * n;
    if (token >= 0) {
        while (places[choice] != place)
            choice++;
        weight = weights[wo + choice];
    }
    vec sum = 0.0f;
    for (long i = get_local_id(0) * VW; i < n; i += WG * VW) {
        if (token < 0) {
            tx_store_h((vec)0.0f, dx, i, n);
            continue;
        }
        const vec d = tx_load(dy, i, n, 0.0f);
        sum += d * tx_load_h_or(x, i, n, 0.0f);
        tx_store_h(weight * d, dx, i, n);
    }
    const float total = tx_group_sum(tx_hsum(sum), part);
    if (get_local_id(0) == 0 && token >= 0)
        dweights[dwo + choice] = total;
    if (get_local_id(0) == 0 && places[place] < 0)
        dweights[dwo + place] = 0.0f;
}
