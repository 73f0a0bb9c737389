/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of linear attention (op LINEAR_SCAN). First scan.cl saves the states before all chunks. Then work-groups
 * with CB columns of a value head go from the last chunk to the first. Other kernels compute all chunks at once.
 */
#include "scan_shared.cl"

/* dn by back substitution in `n`. */
TX_INLINE void substitute_back(const __global float *info, const __global float *pairs, __local float *n)
{
    float4 acc[4];
    for (int at = CHUNK - STEP; at >= 0; at -= STEP) {
        if (DELTA && at + STEP < CHUNK) {
            EACH_SQUARE(i, c, STEP, CB)
            {
                for (int r = 0; r < 4; r++)
                    acc[r] = LOCAL4(n, at + i + r, c);
#define WT_ROW(r, p) (BETWEEN(p, at + i + (r)) * WEIGHT(p))
                SQUARE(at + STEP, CHUNK, WT_ROW, N_ROW)
                for (int r = 0; r < 4; r++)
                    vstore4(acc[r], 0, n + (at + i + r) * CB + c);
            }
            SYNC;
        }
        for (int c = LID; c < CB; c += WG)
            for (int i = at + STEP - 1; i >= at && DELTA; i--) {
                float d = n[i * CB + c];
                for (int j = i + 1; j < at + STEP; j++)
                    d = fma(BETWEEN(j, i) * WEIGHT(j), n[j * CB + c], d);
                n[i * CB + c] = d;
            }
        SYNC;
    }
}

/* The gradient of the state after a chunk becomes that of the state before it. */
#define DO_ROW(t) load4_h(dout + min(t0 + (t), T - 1) * V_HEADS * VS, c0 + c, VS)
static void retreat_state(const __global h_t *dout, const __global float *keys, const __global float *info, long T,
                          long b, long t0, int key, int c0, const __local float *n, __local float *state)
{
    const int rows = (int)min(T - t0, (long)CHUNK);
    float4 acc[4];
    EACH_SQUARE(i, c, KP, CB)
    {
        for (int r = 0; r < 4; r++)
            acc[r] = LOCAL4(state, i + r, c) * WHOLE;
#define QT_ROW(r, p) (IN(p) * KEY(p, 1)[i + (r)])
        SQUARE(0, rows, QT_ROW, DO_ROW)
#define KTN_ROW(r, p) (-IN(p) * WEIGHT(p) * KEY(p, 0)[i + (r)])
        if (DELTA)
            SQUARE(0, rows, KTN_ROW, N_ROW)
        for (int r = 0; r < 4; r++)
            vstore4(acc[r], 0, state + (i + r) * CB + c);
    }
}

/* From the last chunk to the first: dstates [.., chunks, KS, VS], the gradient of the state after each chunk; dn [B,
 * V_HEADS, chunks CHUNK, VS]; and the gradient of v in dqkv. The local memory is that of scan_forward. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scan_backward(const __global h_t *dout, long doo, const __global float *keys, long ko, const __global float *numbers,
              long no, const __global float *pairs, long po, const __global float *skip, long sko, int with_skip,
              __global h_t *dqkv, long dqo, __global float *dstates, long dso, __global float *dn, long dno, long T,
              long chunks, __local float *state)
{
    __local float *n = state + KP * CB;
    const int blocks = (VS + CB - 1) / CB, c0 = (int)(get_group_id(0) % blocks) * CB;
    const long head = get_group_id(0) / blocks, b = head / V_HEADS;
    const int h = (int)(head % V_HEADS), key = h / SHARED;
    const float skipped = with_skip ? skip[sko + h] : 0.0f;
    const __global float *all = numbers + no + head * chunks * INFO,
                         *all_pairs = pairs + po + head * chunks * 2 * CHUNK * CHUNK;
    keys += ko;
    dout += doo + (b * T * V_HEADS + h) * VS;
    dqkv += dqo + b * T * WIDTH + V_AT + h * VS;
    dstates += dso + head * chunks * KS * VS;
    dn += dno + head * chunks * CHUNK * VS;
    float4 acc[4];
    clear_state(state);
    SYNC;
    for (long chunk = chunks - 1; chunk >= 0; chunk--) {
        const long t0 = chunk * CHUNK;
        const int rows = (int)min(T - t0, (long)CHUNK);
        const __global float *info = all + chunk * INFO;
        pairs = all_pairs + chunk * 2 * CHUNK * CHUNK;
        put_state(state, dstates + chunk * KS * VS, c0);
        EACH_SQUARE(i, c, CHUNK, CB)
        {
            CLEAR;
            SQUARE(0, KS, K_ROW, S_ROW)
            for (int r = 0; r < 4; r++)
                acc[r] *= OUT(i + r);
#define PT_ROW(r, p) SCORE(p, i + (r))
            SQUARE(i, rows, PT_ROW, DO_ROW)
            for (int r = 0; r < 4; r++)
                vstore4(acc[r], 0, n + (i + r) * CB + c);
        }
        SYNC;
        substitute_back(info, pairs, n);
        EACH_SQUARE(i, c, CHUNK, CB)
            for (int r = 0; r < 4 && i + r < rows; r++) {
                const float4 d = LOCAL4(n, i + r, c);
                store4(d, dn + (t0 + i + r) * VS, c0 + c, VS);
                store4_h(d * WEIGHT(i + r) + (with_skip ? skipped * DO_ROW(i + r) : (float4)(0.0f)),
                         dqkv + (t0 + i + r) * WIDTH, c0 + c, VS);
            }
        retreat_state(dout, keys, info, T, b, t0, key, c0, n, state);
        SYNC;
    }
}

/* Rows of a token in `own`: dq; dk as a key of later tokens; with the delta rule, dk as a key whose value is predicted.
 * Each decays with the sum of g up to its token: dq and the third upwards, the second downwards. */
#define OWN (DELTA ? 3 : 2)

/* A chunk of a value head, for the gradients of q, k, g and the weight. */
typedef struct chunk_of {
    const __global h_t *dy;                    /* of the head, from the first row of the sample on */
    const __global float *keys, *info;         /* of all heads; of the chunk */
    const __global float *state, *err, *after; /* saved: before the chunk, of its tokens, after the chunk */
    const __global float *x, *d;               /* gradients of the state after the chunk, and dn */
    __global float *squares, *own;             /* matrices between tokens; [CHUNK, OWN, KP] */
    long T, b, t0;
    int key, rows;
} chunk_of;
#define UNPACK(g)                                                                                                      \
    const __global h_t *dy = g->dy;                                                                                    \
    const __global float *info = g->info, *err = g->err;                                                               \
    const long t0 = g->t0;                                                                                             \
    const int rows = g->rows
#define UNPACK_KEYS(g)                                                                                                 \
    const __global float *keys = g->keys;                                                                              \
    __global float *own = g->own;                                                                                      \
    const long T = g->T, b = g->b;                                                                                     \
    const int key = g->key

/* Gradients of the matrices of scan_pairs, without the diagonals. */
static void grad_squares(const chunk_of *g)
{
    UNPACK(g);
    const __global float *d = g->d;
    __global float *squares = g->squares;
    float4 acc[4];
#define T_OF(i) min((i), rows - 1)
#define DY(i, p) tx_get_h(dy + (t0 + T_OF(i)) * V_HEADS * VS, p)
#define N4(j, p)                                                                                                       \
    (float4)(WEIGHT(j) * err[T_OF(j) * VS + (p)], WEIGHT(j + 1) * err[T_OF(j + 1) * VS + (p)],                         \
             WEIGHT(j + 2) * err[T_OF(j + 2) * VS + (p)], WEIGHT(j + 3) * err[T_OF(j + 3) * VS + (p)])
    EACH_SQUARE(i, j, CHUNK, CHUNK)
        for (int of_q = 1; of_q >= !DELTA; of_q--) {
            CLEAR;
            if (j <= i) {
#define A_OF(r, p) (of_q ? DY(i + (r), p) : WEIGHT(i + (r)) * d[T_OF(i + (r)) * VS + (p)])
#define B_OF(p) N4(j, p)
                SQUARE(0, VS, A_OF, B_OF)
#undef A_OF
#undef B_OF
            }
            for (int r = 0; r < 4; r++) {
                float four[4];
                vstore4(acc[r], 0, four);
                for (int c = 0; c < 4; c++) {
                    const bool between = j + c != i + r;
                    const float f = i + r < rows && between ? four[c] * DECAY(i + r, j + c) : 0.0f;
                    if (of_q)
                        squares[(i + r) * CHUNK + j + c] = f;
                    else if (j + c <= i + r) {
                        squares[CHUNK * CHUNK + (i + r) * CHUNK + j + c] = -f;
                        squares[CHUNK * CHUNK + (j + c) * CHUNK + i + r] = -f;
                    }
                }
            }
        }
}

/* dq and dk of the head, without the diagonals. */
static void grad_of_keys(const chunk_of *g)
{
    UNPACK(g);
    UNPACK_KEYS(g);
    const __global float *state = g->state, *x = g->x, *squares = g->squares;
    float4 acc[4];
    EACH_SQUARE(i, c, CHUNK, KP)
    {
#define STATE4(s, p)                                                                                                   \
    (float4)(s[c * VS + (p)], c + 1 < KS ? s[(c + 1) * VS + (p)] : 0.0f, c + 2 < KS ? s[(c + 2) * VS + (p)] : 0.0f,    \
             c + 3 < KS ? s[(c + 3) * VS + (p)] : 0.0f)
#define OF_STATE(p) STATE4(state, p)
#define OF_X(p) STATE4(x, p)
#define DY_ROW(r, p) DY(i + (r), p)
#define DV_ROW(r, p) (WEIGHT(i + (r)) * g->d[T_OF(i + (r)) * VS + (p)])
#define ERR_ROW(r, p) (WEIGHT(i + (r)) * err[T_OF(i + (r)) * VS + (p)])
#define SQ_ROW(r, p) squares[(i + (r)) * CHUNK + (p)]
#define SQT_ROW(r, p) squares[(p)*CHUNK + i + (r)]
#define BS_ROW(r, p) squares[CHUNK * CHUNK + (i + (r)) * CHUNK + (p)]
#define EARLIER_ROW(r, p) ((p) < i + (r) ? BS_ROW(r, p) : 0.0f)
#define LATER_ROW(r, p) ((p) > i + (r) ? BS_ROW(r, p) : 0.0f)
#define KEY4(p) vload4(0, KEY(p, 0) + c)
#define QUERY4(p) vload4(0, KEY(p, 1) + c)
        CLEAR;
        SQUARE(0, VS, DY_ROW, OF_STATE)
        for (int r = 0; r < 4; r++)
            acc[r] *= IN(i + r);
        SQUARE(0, i + 4, SQ_ROW, KEY4)
        for (int r = 0; r < 4; r++)
            vstore4(acc[r], 0, own + (i + r) * OWN * KP + c);
        CLEAR;
        SQUARE(0, VS, ERR_ROW, OF_X)
        for (int r = 0; r < 4; r++)
            acc[r] *= OUT(i + r);
        SQUARE(i, CHUNK, SQT_ROW, QUERY4)
        if (DELTA)
            SQUARE(i, CHUNK, LATER_ROW, KEY4)
        for (int r = 0; r < 4; r++)
            vstore4(acc[r], 0, own + ((i + r) * OWN + 1) * KP + c);
#if DELTA
        CLEAR;
        SQUARE(0, VS, DV_ROW, OF_STATE)
        for (int r = 0; r < 4; r++)
            acc[r] *= -IN(i + r);
        SQUARE(0, i + 4, EARLIER_ROW, KEY4)
        for (int r = 0; r < 4; r++)
            vstore4(acc[r], 0, own + ((i + r) * OWN + 2) * KP + c);
#endif
    }
}

/* Gradients of the weights, and the slopes of the sums of g. Then it adds the diagonals to dq and dk: they do not
 * decay, and their slopes would leave rounding errors. */
static void grad_slopes(const chunk_of *g, __global float *drates)
{
    UNPACK(g);
    UNPACK_KEYS(g);
    const __global float *d = g->d;
    for (int i = LID; i < rows; i += WG) {
        __global float *mine = own + i * OWN * KP;
        float slope = 0.0f, dweight = 0.0f, diagonal = 0.0f;
        for (int c = 0; c < VS; c++) {
            dweight += d[i * VS + c] * err[i * VS + c];
            diagonal += DY(i, c) * (WEIGHT(i) * err[i * VS + c]);
        }
        for (int c = 0; c < KS; c++) {
            const float q = KEY(i, 1)[c], k = KEY(i, 0)[c], up = DELTA ? mine[(OWN - 1) * KP + c] : 0.0f;
            slope += q * mine[c] + k * up - k * mine[KP + c];
            mine[c] += diagonal * k;
            mine[KP + c] += diagonal * q + up;
        }
        drates[i * 2 * V_HEADS] = slope;
        drates[i * 2 * V_HEADS + V_HEADS] = dweight;
    }
}

/* Gradients of g: sums of the slopes to the end of the chunk or of a row of several samples. */
TX_INLINE void grad_sums(const chunk_of *g, __local float *lane, __global float *drates)
{
    const __global float *info = g->info;
    float sum = 0.0f;
    for (int i = LID; i < KS * VS; i += WG)
        sum += g->after[i] * g->x[i];
    lane[LID] = sum;
    SYNC;
    sum = 0.0f;
    for (int l = 0; l < WG && LID == 0; l++)
        sum += lane[l];
    for (int i = g->rows - 1; i >= 0 && LID == 0; i--) {
        sum = FIRST(i) == (float)i ? 0.0f : sum + drates[i * 2 * V_HEADS];
        drates[i * 2 * V_HEADS] = sum;
    }
}

/* Gradients of q, k, g and weights. A work-group computes a chunk of a part of the value heads of a key head, whose
 * gradients of q and k it adds in order in `parts` (backends/scan.h). `own` [groups, CHUNK, OWN, KP] has those of one
 * head, `squares` [groups, 2, CHUNK, CHUNK] those of the matrices between tokens. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scan_grad_keys(const __global h_t *dout, long doo, const __global float *keys, long ko, const __global float *numbers,
               long no, const __global float *saved, long so, const __global float *last, long lo,
               const __global float *dstates, long dso, const __global float *dn, long dno, __global float *squares,
               long sqo, __global float *own, long owo, __global float *drates, long dro, __global float *parts,
               long pao, long T, long chunks, int count)
{
    __local float lane[WG];
    const long group = get_group_id(0), chunk = group % chunks, b = group / chunks / count / K_HEADS;
    const int part = (int)(group / chunks % count), key = (int)(group / chunks / count % K_HEADS);
    const int begin = key * SHARED + SHARED * part / count, end = key * SHARED + SHARED * (part + 1) / count;
    chunk_of g = {.keys = keys + ko, .T = T, .b = b, .t0 = chunk * CHUNK, .key = key};
    g.rows = (int)min(T - g.t0, (long)CHUNK);
    g.squares = squares + sqo + group * 2 * CHUNK * CHUNK;
    g.own = own + owo + group * CHUNK * OWN * KP;
    for (int h = begin; h < end; h++) {
        const long head = b * V_HEADS + h;
        __global float *rates = drates + dro + (b * T + g.t0) * 2 * V_HEADS + h;
        g.dy = dout + doo + b * T * V_HEADS * VS + h * VS;
        g.info = numbers + no + (head * chunks + chunk) * INFO;
        g.state = saved + so + (head * chunks + chunk) * SAVED;
        g.err = g.state + KS * VS;
        g.after = chunk + 1 < chunks ? g.state + SAVED : last + lo + head * KS * VS;
        g.x = dstates + dso + (head * chunks + chunk) * KS * VS;
        g.d = dn + dno + (head * chunks * CHUNK + g.t0) * VS;
        grad_squares(&g);
        SYNC;
        grad_of_keys(&g);
        SYNC;
        grad_slopes(&g, rates);
        SYNC;
        for (int i = LID; i < g.rows * 2 * KS; i += WG) {
            const int t = i / (2 * KS), c = i % (2 * KS);
            __global float *to = parts + pao + (((b * T + g.t0 + t) * K_HEADS + key) * count + part) * 2 * KS + c;
            *to = (h > begin ? *to : 0.0f) + g.own[t * OWN * KP + (c < KS ? c : KP + c - KS)];
        }
        SYNC;
        grad_sums(&g, lane, rates);
        SYNC;
    }
}

/* Adds the parts of q or k, and writes the gradient before the normalization. A work-item computes one of them. */
__kernel void scan_grad_fold(const __global h_t *qkv, long qo, const __global float *parts, long pao,
                             __global h_t *dqkv, long dqo, long count, int parts_of, float eps, float scale)
{
    const long at = get_global_id(0);
    if (at >= count)
        return;
    const int is_q = (int)(at % 2);
    const long column = at / 2 / K_HEADS * WIDTH + (is_q ? Q_AT : K_AT) + at / 2 % K_HEADS * KS;
    const __global float *from = parts + pao + at / 2 * parts_of * 2 * KS + (is_q ? 0 : KS);
    const float factor = is_q ? scale : 1.0f;
    float squares = eps, along = 0.0f;
    for (int i = 0; i < KS && eps > 0.0f; i++) {
        const float x = tx_get_h(qkv + qo, column + i);
        float d = 0.0f;
        for (int p = 0; p < parts_of; p++)
            d += from[p * 2 * KS + i];
        squares += x * x;
        along += x * d;
    }
    const float rho = eps > 0.0f ? 1.0f / sqrt(squares) : 1.0f;
    for (int i = 0; i < KS; i++) {
        float d = 0.0f;
        for (int p = 0; p < parts_of; p++)
            d += from[p * 2 * KS + i];
        if (eps > 0.0f)
            d = rho * (d - tx_get_h(qkv + qo, column + i) * rho * (along * rho));
        store1_h(d * factor, dqkv + dqo, column + i);
    }
}

/* dskip: a work-group computes a value head. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
scan_grad_skip(const __global h_t *dout, long doo, const __global h_t *qkv, long qo, __global float *dskip, long so,
               long rows, int accumulate, const __global uint *control)
{
    __local float lane[WG];
    const int h = (int)get_group_id(0);
    float sum = 0.0f;
    for (long row = 0; row < rows; row++)
        for (int c = LID; c < VS; c += WG)
            sum += tx_get_h(dout + doo, (row * V_HEADS + h) * VS + c) *
                   tx_get_h(qkv + qo, row * WIDTH + V_AT + h * VS + c);
    lane[LID] = sum;
    SYNC;
    if (LID == 0) {
        sum = 0.0f;
        for (int l = 0; l < WG; l++)
            sum += lane[l];
        dskip[so + h] = tx_adds(accumulate, control) ? dskip[so + h] + sum : sum;
    }
}
