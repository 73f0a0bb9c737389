/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the kernels of linear attention (scan.cl, scan_grad.cl): sizes, and products in squares.
 *
 * K_HEADS and V_HEADS are numbers of heads, KS and VS the elements of a head, KP is KS rounded up to 4. Products are
 * computed in squares of 4 x 4. The padding has zeros.
 */

#ifndef CHUNK
#define CHUNK 64
#define K_HEADS 1
#define V_HEADS 1
#define KS 4
#define VS 4
#define CB 4
#define DELTA 1
#define STEP 16
#endif
#define KP ((KS + 3) / 4 * 4)
#define SHARED (V_HEADS / K_HEADS)
#define WIDTH (2 * K_HEADS * KS + V_HEADS * VS)
#define Q_AT (DELTA ? 0 : V_HEADS * VS + K_HEADS * KS)
#define K_AT (DELTA ? K_HEADS * KS : V_HEADS * VS)
#define V_AT (DELTA ? 2 * K_HEADS * KS : 0)
#define SAVED ((long)(KS + CHUNK) * VS) /* of a chunk: the state before it, and n / weight */

/* Numbers of a chunk, CHUNK each: sum of g, decay of the state before it, decay to the end, weight, first visible
 * token, rounding error of the sum; then the decay of the state. */
#define INFO 448
#define SUM(i) info[i]
#define IN(i) info[CHUNK + (i)]
#define OUT(i) info[2 * CHUNK + (i)]
#define WEIGHT(i) info[3 * CHUNK + (i)]
#define FIRST(i) info[4 * CHUNK + (i)]
#define LOW(i) info[5 * CHUNK + (i)]
#define WHOLE info[6 * CHUNK]

#define LID ((int)get_local_id(0))
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* Adds a [4 rows, depth] b [depth, 4 columns] to float4 acc[4]. A(r, p) is a number, B(p) a float4. */
#define SQUARE(from, depth, A, B)                                                                                      \
    for (int p = (from); p < (depth); p++) {                                                                           \
        const float4 b_ = B(p);                                                                                        \
        acc[0] = fma((float4)(A(0, p)), b_, acc[0]);                                                                   \
        acc[1] = fma((float4)(A(1, p)), b_, acc[1]);                                                                   \
        acc[2] = fma((float4)(A(2, p)), b_, acc[2]);                                                                   \
        acc[3] = fma((float4)(A(3, p)), b_, acc[3]);                                                                   \
    }
#define CLEAR acc[0] = acc[1] = acc[2] = acc[3] = 0.0f

/* Loops over the squares of `rows` x `columns` elements: i and j are the first of each. */
#define EACH_SQUARE(i, j, rows, columns)                                                                               \
    for (int s_ = LID, i, j;                                                                                           \
         i = s_ / ((columns) / 4) * 4, j = s_ % ((columns) / 4) * 4, s_ < (rows) / 4 * (columns) / 4; s_ += WG)

/* Up to four numbers of a row of n. */
static float4 load4(const __global float *p, int c, int n)
{
    return c + 3 < n ? vload4(0, p + c)
                     : (float4)(c < n ? p[c] : 0.0f, c + 1 < n ? p[c + 1] : 0.0f, c + 2 < n ? p[c + 2] : 0.0f, 0.0f);
}
static float4 load4_h(const __global h_t *p, int c, int n)
{
    return (float4)(c < n ? tx_get_h(p, c) : 0.0f, c + 1 < n ? tx_get_h(p, c + 1) : 0.0f,
                    c + 2 < n ? tx_get_h(p, c + 2) : 0.0f, c + 3 < n ? tx_get_h(p, c + 3) : 0.0f);
}
static void store4(float4 v, __global float *p, int c, int n)
{
    const float part[4] = {v.x, v.y, v.z, v.w};
    for (int l = 0; l < 4 && c + l < n; l++)
        p[c + l] = part[l];
}
static void store1_h(float v, __global h_t *p, long i)
{
#if VW == 1
    tx_store_h(v, p, i, i + 1);
#else
#error "kernels of this file process numbers, not vectors"
#endif
}
static void store4_h(float4 v, __global h_t *p, int c, int n)
{
    const float part[4] = {v.x, v.y, v.z, v.w};
    for (int l = 0; l < 4 && c + l < n; l++)
        store1_h(part[l], p, c + l);
}

#define DECAY(i, j) ((j) <= (i) && (float)(j) >= FIRST(i) ? exp((SUM(i) - SUM(j)) + (LOW(i) - LOW(j))) : 0.0f)

/* The key (0) or query (1) of token i of the chunk; rows after the last repeat it. */
#define KEY(i, is_q) (keys + ((b * T + min(t0 + (i), T - 1)) * K_HEADS + key) * 2 * KP + (is_q) * KP)

/* The state of a work-group, CB columns of KP rows. */
static void clear_state(__local float *state)
{
    for (int i = LID; i < KP * CB; i += WG)
        state[i] = 0.0f;
}
static void get_state(__local float *state, const __global float *from, int fresh, int c0)
{
    for (int i = LID; i < KP * CB; i += WG)
        state[i] = !fresh && i / CB < KS && c0 + i % CB < VS ? from[i / CB * VS + c0 + i % CB] : 0.0f;
}
static void put_state(const __local float *state, __global float *to, int c0)
{
    for (int i = LID; i < KS * CB; i += WG)
        if (c0 + i % CB < VS)
            to[i / CB * VS + c0 + i % CB] = state[i];
}

#define LOCAL4(p, i, c) vload4(0, (p) + (i)*CB + (c))
#define SCORE(i, j) pairs[(i)*CHUNK + (j)]
#define BETWEEN(i, j) pairs[CHUNK * CHUNK + (i)*CHUNK + (j)]
#define K_ROW(r, p) KEY(i + (r), 0)[p]
#define S_ROW(p) LOCAL4(state, p, c)
#define N_ROW(p) LOCAL4(n, p, c)
