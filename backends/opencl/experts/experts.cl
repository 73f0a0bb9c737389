/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of mixture-of-experts layers: top-k, routing, and the weighted sum of expert outputs.
 */

/* ---- Top-k: a work-item processes a row ------------------------------------------------------ */

static float rank_of(float x)
{
    return isnan(x) ? INFINITY : x;
}

__kernel void top_k(const __global float *x, long xo, __global float *y, long yo, __global int *indices, long io,
                    long rows, int n, int k)
{
    const long row = get_global_id(0);
    if (row >= rows)
        return;
    x += xo + row * n;
    y += yo + row * k;
    indices += io + row * k;
    float limit = INFINITY;
    int before = -1;
    for (int j = 0; j < k; j++) {
        float greatest = -INFINITY;
        int found = -1;
        for (int i = 0; i < n; i++) {
            const float value = rank_of(x[i]);
            if ((value < limit || (value == limit && i > before)) && (found < 0 || value > greatest)) {
                greatest = value;
                found = i;
            }
        }
        y[j] = x[found];
        indices[j] = found;
        limit = greatest;
        before = found;
    }
}

__kernel void top_k_grad(const __global float *dy, long dyo, const __global int *indices, long io, __global float *dx,
                         long dxo, long rows, int n, int k)
{
    const long row = get_global_id(0);
    if (row >= rows)
        return;
    dx += dxo + row * n;
    for (int i = 0; i < n; i++)
        dx[i] = 0.0f;
    for (long i = row * k; i < (row + 1) * k; i++)
        dx[indices[io + i]] = dy[dyo + i];
}

/* ---- Routing: a work-group processes an expert ----------------------------------------------- */

/* Choice number q in the order of ROUTE, which is a choice of token q % n. */
#define CHOICE(q) ((q) % n * k + (q) / n)
/* True if choice i is expert e. Padding tokens, whose id is below 0, choose no expert. */
#define CHOSE(i, e) (choices[i] == (e) && (!with_ids || ids[(i) / k] >= 0))

/* Returns the sum of `own` over the work-items before this one, or over all work-items if `all`. */
static int count_before(int own, int all, __local int *part)
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
