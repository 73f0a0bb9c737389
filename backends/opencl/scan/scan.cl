/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear attention with a state (op LINEAR_SCAN) in chunks of CHUNK tokens. Three kernels prepare: normalized keys and
 * queries, and for each value head and chunk the decays and the triangular matrices between its tokens. Then a
 * work-group computes CB columns of the state of a value head, chunk by chunk. With CACHED, tokens continue
 * earlier ones: `spans` has for each sample a row of the states, a position and a number of tokens
 * (backends/scan.h). A few tokens need no chunks (scan_steps).
 */
#include "scan_shared.cl"

#ifndef GRAD
#define GRAD 0
#endif
#ifndef CACHED
#define CACHED 0
#endif
#define TOKENS(b) (CACHED ? clamp((long)spans[3 * (b) + 2], 0L, T) : T)
#define FRESH(b) (!CACHED || spans[3 * (b) + 1] <= 0)
/* The state of a value head of sample b. Without CACHED there are no spans. */
#define STATE_AT(b, h) (CACHED ? ((long)clamp(spans[3 * (b)], 0, R - 1) * V_HEADS + (h)) * KS * VS : 0)

/* ---- Preparation ----------------------------------------------------------------------------------------------- */

/* keys [B, T, K_HEADS, 2, KP] = k | q, divided by their norms. A work-item computes one of them. */
__kernel void scan_keys(const __global h_t *qkv, long qo, __global float *keys, long ko, long count, float eps,
                        float scale)
{
    const long at = get_global_id(0);
    if (at >= count)
        return;
    const int is_q = (int)(at % 2);
    const __global h_t *x = qkv + qo + at / 2 / K_HEADS * WIDTH + (is_q ? Q_AT : K_AT) + at / 2 % K_HEADS * KS;
    __global float *y = keys + ko + at * KP;
    float squares = eps;
    for (int i = 0; i < KS && eps > 0.0f; i++)
        squares += tx_get_h(x, i) * tx_get_h(x, i);
    const float factor = (eps > 0.0f ? 1.0f / sqrt(squares) : 1.0f) * (is_q ? scale : 1.0f);
    for (int i = 0; i < KP; i++)
        y[i] = i < KS ? tx_get_h(x, i) * factor : 0.0f;
}

/* info [B, V_HEADS, chunks, INFO]; a work-item computes a chunk. */
__kernel void scan_info(const __global float *rates, long ro, const __global int *starts, long so, int with_starts,
                        const __global int *spans, long spo, __global float *numbers, long no, long T, long chunks,
                        long count)
{
    const long at = get_global_id(0);
    if (at >= count)
        return;
    const long b = at / chunks / V_HEADS, head = at / chunks % V_HEADS, t0 = at % chunks * CHUNK;
    __global float *info = numbers + no + at * INFO;
    spans += spo;
    const int rows = (int)min(TOKENS(b) - t0, (long)CHUNK);
    float sum = 0.0f, low = 0.0f;
    int first = -1;
    for (int i = 0; i < CHUNK; i++) {
        const long t = min(t0 + i, T - 1);
        const __global float *row = rates + ro + (b * T + t) * 2 * V_HEADS + head;
        if (i < rows && ((t == 0 && FRESH(b)) || (with_starts && starts[so + b * T + t] >= t)))
            first = i;
        const float g = i < rows ? row[0] : 0.0f, next = sum + g, added = next - sum;
        low += (sum - (next - added)) + (g - added);
        sum = next;
        SUM(i) = sum;
        LOW(i) = low;
        WEIGHT(i) = i < rows ? row[V_HEADS] : 0.0f;
        FIRST(i) = (float)first;
        IN(i) = first < 0 && i < rows ? exp(sum) : 0.0f;
    }
    for (int i = 0; i < CHUNK; i++)
        OUT(i) = i >= first && i < rows ? exp((sum - SUM(i)) + (low - LOW(i))) : 0.0f;
    WHOLE = first < 0 ? exp(sum) : 0.0f;
}

/* pairs [B, V_HEADS, chunks, 2, CHUNK, CHUNK] = decay * q k^T, then with DELTA -decay * k k^T without the diagonal. A
 * work-group computes a chunk. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scan_pairs(const __global float *keys, long ko, const __global float *numbers, long no, __global float *pairs, long po,
           long T, long chunks)
{
    const long at = get_group_id(0), b = at / chunks / V_HEADS, t0 = at % chunks * CHUNK;
    const int key = (int)(at / chunks % V_HEADS) / SHARED;
    const __global float *info = numbers + no + at * INFO;
    pairs += po + at * 2 * CHUNK * CHUNK;
    keys += ko;
    float4 acc[4];
    for (int of_q = 1; of_q >= !DELTA; of_q--) {
        __global float *to = pairs + (of_q ? 0 : CHUNK * CHUNK);
        EACH_SQUARE(i, j, CHUNK, CHUNK)
        {
            CLEAR;
            if (j <= i) {
#define A_OF(r, p) KEY(i + (r), of_q)[p]
#define B_OF(p) (float4)(KEY(j, 0)[p], KEY(j + 1, 0)[p], KEY(j + 2, 0)[p], KEY(j + 3, 0)[p])
                SQUARE(0, KS, A_OF, B_OF)
#undef A_OF
#undef B_OF
            }
            for (int r = 0; r < 4; r++) {
                float part[4];
                vstore4(acc[r], 0, part);
                for (int c = 0; c < 4; c++)
                    to[(i + r) * CHUNK + j + c] = of_q         ? part[c] * DECAY(i + r, j + c)
                                                  : j + c < i + r ? -part[c] * DECAY(i + r, j + c)
                                                                  : 0.0f;
            }
        }
    }
}

/* ---- Forward ----------------------------------------------------------------------------------------------------- */

/* n = weight (v - in k S): first v - in k S in `n`, then by forward substitution in steps of STEP tokens. With GRAD,
 * err = n / weight is saved. */
#define SOLVE(err)                                                                                                     \
    EACH_SQUARE(i, c, CHUNK, CB)                                                                                       \
    {                                                                                                                  \
        CLEAR;                                                                                                         \
        if (DELTA)                                                                                                     \
            SQUARE(0, KS, K_ROW, S_ROW)                                                                                \
        for (int r = 0; r < 4; r++) {                                                                                  \
            const float4 v = load4_h(qkv + min(t0 + i + r, T - 1) * WIDTH, c0 + c, VS);                                \
            vstore4(fma((float4)(-IN(i + r)), acc[r], v), 0, n + (i + r) * CB + c);                                    \
        }                                                                                                              \
    }                                                                                                                  \
    SYNC;                                                                                                              \
    for (int at = 0; at < CHUNK; at += STEP) {                                                                         \
        if (DELTA && at > 0) {                                                                                         \
            EACH_SQUARE(i, c, STEP, CB)                                                                                \
            {                                                                                                          \
                for (int r = 0; r < 4; r++)                                                                            \
                    acc[r] = LOCAL4(n, at + i + r, c);                                                                 \
                SQUARE(0, at, W_ROW, N_ROW)                                                                            \
                for (int r = 0; r < 4; r++)                                                                            \
                    vstore4(acc[r], 0, n + (at + i + r) * CB + c);                                                     \
            }                                                                                                          \
            SYNC;                                                                                                      \
        }                                                                                                              \
        for (int c = LID; c < CB; c += WG)                                                                             \
            for (int i = at; i < at + STEP; i++) {                                                                     \
                float e = n[i * CB + c];                                                                               \
                for (int j = at; j < i && DELTA; j++)                                                                  \
                    e = fma(BETWEEN(i, j), n[j * CB + c], e);                                                          \
                err(i, c, e);                                                                                          \
                n[i * CB + c] = e * WEIGHT(i);                                                                         \
            }                                                                                                          \
        SYNC;                                                                                                          \
    }
#define W_ROW(r, p) BETWEEN(at + i + (r), p)

/* Advances the state over a chunk. */
static void advance_state(const __global float *keys, const __global float *info, long T, long b, long t0, int key,
                          const __local float *n, __local float *state)
{
    float4 acc[4];
    EACH_SQUARE(i, c, KP, CB)
    {
        for (int r = 0; r < 4; r++)
            acc[r] = LOCAL4(state, i + r, c) * WHOLE;
#define KT_ROW(r, p) (OUT(p) * KEY(p, 0)[i + (r)])
        SQUARE(0, CHUNK, KT_ROW, N_ROW)
        for (int r = 0; r < 4; r++)
            vstore4(acc[r], 0, state + (i + r) * CB + c);
    }
}

/* A work-group computes CB columns of a value head. The local memory has the state [KP, CB] and n [CHUNK, CB]. With
 * GRAD it saves the states instead of computing o, and the last state in `last`. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scan_forward(const __global h_t *qkv, long qo, const __global float *keys, long ko, const __global float *numbers,
             long no, const __global float *pairs, long po, const __global float *skip, long sko, int with_skip,
             const __global int *spans, long spo, __global h_t *o, long oo, __global float *saved, long so,
             __global float *last, long lo, int R, long T, long chunks, __local float *state)
{
    __local float *n = state + KP * CB;
    const int blocks = (VS + CB - 1) / CB, c0 = (int)(get_group_id(0) % blocks) * CB;
    const long head = get_group_id(0) / blocks, b = head / V_HEADS;
    const int h = (int)(head % V_HEADS), key = h / SHARED;
    const __global float *info = numbers + no + head * chunks * INFO;
    keys += ko;
    pairs += po + head * chunks * 2 * CHUNK * CHUNK;
    qkv += qo + b * T * WIDTH + V_AT + h * VS;
    saved += so + head * chunks * SAVED;
    float4 acc[4];
    spans += spo;
    get_state(state, last + lo + STATE_AT(b, h), FRESH(b), c0);
    SYNC;
    for (long t0 = 0; t0 < T; t0 += CHUNK) {
#if GRAD
#define SAVE_ERR(i, c, e)                                                                                              \
    if (c0 + (c) < VS)                                                                                                 \
    saved[((KS + (i)) * VS) + c0 + (c)] = (e)
        put_state(state, saved, c0);
        SOLVE(SAVE_ERR)
#else
#define NO_ERR(i, c, e)
        SOLVE(NO_ERR)
        EACH_SQUARE(i, c, CHUNK, CB)
        {
            CLEAR;
#define Q_ROW(r, p) KEY(i + (r), 1)[p]
            SQUARE(0, KS, Q_ROW, S_ROW)
            for (int r = 0; r < 4; r++)
                acc[r] *= IN(i + r);
#define P_ROW(r, p) SCORE(i + (r), p)
            SQUARE(0, i + 4, P_ROW, N_ROW)
            for (int r = 0; r < 4; r++)
                if (t0 + i + r < T) {
                    if (with_skip)
                        acc[r] = fma((float4)(skip[sko + h]), load4_h(qkv + (t0 + i + r) * WIDTH, c0 + c, VS), acc[r]);
                    store4_h(t0 + i + r < TOKENS(b) ? acc[r] : (float4)(0.0f),
                             o + oo + ((b * T + t0 + i + r) * V_HEADS + h) * VS, c0 + c, VS);
                }
        }
        SYNC;
#endif
        advance_state(keys, info, T, b, t0, key, n, state);
        SYNC;
        info += INFO;
        pairs += 2 * CHUNK * CHUNK;
        saved += SAVED;
    }
#if GRAD
    put_state(state, last + lo + head * KS * VS, c0);
#elif CACHED
    if (TOKENS(b) > 0)
        put_state(state, last + lo + STATE_AT(b, h), c0);
#endif
}

/* Token by token: a work-item computes a column of the state of a value head. */
__kernel void scan_steps(const __global h_t *qkv, long qo, const __global float *rates, long ro,
                         const __global float *keys, long ko, const __global float *skip, long sko, int with_skip,
                         __global float *states, long sto, const __global int *spans, long spo, __global h_t *o,
                         long oo, int R, long T, long count)
{
    const long at = get_global_id(0), b = at / VS / V_HEADS;
    const int c = (int)(at % VS), h = (int)(at / VS % V_HEADS);
    if (at >= count)
        return;
    spans += spo;
    __global float *state = states + sto + STATE_AT(b, h) + c;
    int fresh = FRESH(b);
    for (long t = 0; t < T; t++) {
        const long row = b * T + t, to = (row * V_HEADS + h) * VS + c;
        if (t >= TOKENS(b)) {
            store1_h(0.0f, o + oo, to);
            continue;
        }
        const __global float *rate = rates + ro + row * 2 * V_HEADS + h;
        const __global float *k = keys + ko + (row * K_HEADS + h / SHARED) * 2 * KP, *q = k + KP;
        const float keep = exp(rate[0]), v = tx_get_h(qkv, qo + row * WIDTH + V_AT + h * VS + c);
        float err = v, sum = 0.0f;
        if (DELTA && !fresh) {
            for (int i = 0; i < KS; i++)
                sum = fma(state[i * VS], k[i], sum);
            err = fma(-keep, sum, v);
        }
        sum = with_skip ? skip[sko + h] * v : 0.0f;
        for (int i = 0; i < KS; i++) {
            const float s = fma(k[i], err * rate[V_HEADS], fresh ? 0.0f : keep * state[i * VS]);
            state[i * VS] = s;
            sum = fma(q[i], s, sum);
        }
        fresh = 0;
        store1_h(sum, o + oo, to);
    }
}
