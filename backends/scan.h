/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of the ops of api/scan/ops.def, for all backends.
 */
#ifndef TX_BACKENDS_SCAN_H
#define TX_BACKENDS_SCAN_H

#include "backends/backend.h"

#define TX_CONV_TAPS 8     /* most taps of SHORT_CONV */
#define TX_SCAN_CHUNK 64   /* tokens of a chunk */
#define TX_SCAN_HEAD 256   /* most elements of a head */
#define TX_SCAN_RATES 1024 /* most value heads of SCAN_RATES */
#define TX_SCAN_PARTS 64   /* enough independent sums over the value heads of a key head */

/* The sizes of LINEAR_SCAN, from its operand qkv. */
typedef struct tx_scan {
    int64_t batch, time, width; /* of qkv */
    int64_t k_heads, v_heads;   /* heads */
    int64_t k_size, v_size;     /* elements of a head */
    int64_t q_at, k_at, v_at;   /* first columns of q, k and v */
    int64_t chunks;             /* of a row */
    int64_t shared, parts;      /* value heads of a key head, and the parts in which their gradients are summed */
} tx_scan;

static inline tx_scan tx_scan_of(const tx_attrs *attrs, const tx_shape *qkv)
{
    tx_scan s = {.batch = qkv->dim[0],
                 .time = qkv->dim[1],
                 .width = qkv->dim[2],
                 .k_heads = attrs->scan.k_heads,
                 .v_heads = attrs->scan.v_heads,
                 .k_size = attrs->scan.k_size};
    const int64_t keys = s.k_heads * s.k_size, values = s.width - 2 * keys;
    s.v_size = values / s.v_heads;
    s.q_at = attrs->scan.delta ? 0 : values + keys;
    s.k_at = attrs->scan.delta ? keys : values;
    s.v_at = attrs->scan.delta ? 2 * keys : 0;
    s.chunks = tx_ceil_div(s.time, TX_SCAN_CHUNK);
    s.shared = s.v_heads / s.k_heads;
    s.parts = tx_ceil_div(TX_SCAN_PARTS, s.batch * s.k_heads);
    s.parts = s.parts < s.shared ? s.parts : s.shared;
    return s;
}

/* A sample of an op that continues earlier tokens, from its row of the operand spans. It has a row of the states, of
 * which there are `rows`, and a number of tokens. A fresh one begins without a state. */
typedef struct tx_scan_span {
    int64_t row, count;
    bool fresh;
} tx_scan_span;

static inline tx_scan_span tx_scan_span_of(const int32_t *spans, int64_t b, int64_t rows, int64_t time)
{
    const int64_t row = spans[3 * b], count = spans[3 * b + 2];
    return (tx_scan_span){.row = row < 0      ? 0
                                 : row < rows ? row
                                              : rows - 1,
                          .count = count < 0      ? 0
                                   : count < time ? count
                                                  : time,
                          .fresh = spans[3 * b + 1] <= 0};
}

/* Output states of LINEAR_SCAN_GRAD: for each value head and chunk the state before it [k, v], then n / weight of its
 * tokens [TX_SCAN_CHUNK, v]. */
static inline int64_t tx_scan_states(const tx_scan *s)
{
    return s->batch * s->v_heads * s->chunks * (s->k_size + TX_SCAN_CHUNK) * s->v_size;
}

/* Output work of it: dq | dk of each part [B, T, K, parts, 2 k], then dskip of each sample [B, V]. */
static inline int64_t tx_scan_work(const tx_scan *s)
{
    return s->batch * (s->time * s->k_heads * s->parts * 2 * s->k_size + s->v_heads);
}

#endif
