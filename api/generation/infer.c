/* SPDX-License-Identifier: Apache-2.0
 * Inference rules of key-value caches, and the work of attention with them. */
#include "api/graph/infer.h"
#include "api/base/blocks.h"
#include "api/graph/work.h"

#include <math.h>

/* Caches of `keys` columns, for rows whose keys and values are at the end. */
static tx_status check_caches(const tx_infer *c, int64_t keys)
{
    const bool blocks = c->in[1].dtype == TX_U8;
    TX_TRY(tx_require(c, blocks ? "HU3U" : "H=3="));
    TX_TRY(tx_require_rank(c, 0, 3));
    const tx_shape *cache = &c->in[1].shape, *x = &c->in[0].shape;
    TX_TRY(tx_require_positions(c, 3, x->dim[0]));
    TX_TRY(tx_require_positions(c, 4, x->dim[0]));
    const bool rows = cache->dim[0] == x->dim[0] || tx_present(&c->in[4]);
    if (!rows || cache->dim[2] != (blocks ? tx_block_run(TX_Q8_0, keys) : keys) || 2 * keys > x->dim[2] ||
        cache->dim[1] < x->dim[1])
        return tx_refuse(c, "the cache %s does not fit %s", TX_TEXT(*cache), TX_TEXT(*x));
    return tx_require_shape(c, 2, cache);
}

tx_status tx_infer_attention_cached(const tx_infer *c)
{
    int64_t d = 0;
    TX_TRY(tx_require_qkv(c, 0, &d));
    if (c->in[1].dtype == TX_U8 && d % tx_block_values(TX_Q8_0) != 0)
        return tx_refuse(c, "caches in q8_0 need heads of a multiple of 32 elements, not %d", (int)d);
    TX_TRY(check_caches(c, c->attrs->attention.kv_heads * d));
    TX_TRY(tx_require_sinks(c, TX_IN(attention_cached, sinks)));
    return tx_set_output(c, 0, c->in[0].dtype, tx_with_last(&c->in[0].shape, c->attrs->attention.heads * d));
}

tx_status tx_infer_kv_append(const tx_infer *c)
{
    TX_TRY(check_caches(c, tx_block_columns(c->in[1].dtype, c->in[1].shape.dim[2])));
    tx_set_output(c, 0, c->in[1].dtype, c->in[1].shape);
    return tx_set_output(c, 1, c->in[2].dtype, c->in[2].shape);
}

tx_status tx_infer_kv_reorder(const tx_infer *c)
{
    const tx_shape *cache = &c->in[0].shape;
    TX_TRY(tx_require(c, c->in[0].dtype == TX_U8 ? "U3U" : "H3="));
    TX_TRY(tx_require_shape(c, 1, cache));
    TX_TRY(tx_require_positions(c, 2, cache->dim[0]));
    TX_TRY(tx_require_positions(c, 3, cache->dim[0]));
    tx_set_output(c, 0, c->in[0].dtype, *cache);
    return tx_set_output(c, 1, c->in[1].dtype, *cache);
}

/* Returns the rows of a cache that `time` queries of a sample can see. The used part is unknown here, so all rows
 * count. */
static double cached_rows(const tx_command *c)
{
    double rows = (double)c->in[1].shape.dim[1], time = (double)c->in[0].shape.dim[1];
    return c->attrs.attention.window > 0 ? fmin(rows, c->attrs.attention.window + time - 1) : rows;
}

/* A query sees no more than the window. */
double tx_flops_attention_cached(const tx_command *c)
{
    const double seen =
        c->attrs.attention.window > 0 ? fmin(cached_rows(c), c->attrs.attention.window) : cached_rows(c);
    return 4.0 * (double)c->in[0].shape.dim[0] * (double)c->in[0].shape.dim[1] * seen * c->attrs.attention.heads *
           tx_head_size(c, &c->in[0].shape);
}

/* Only the rows of the caches that queries see are read. */
double tx_bytes_attention_cached(const tx_command *c)
{
    const double samples = (double)c->in[0].shape.dim[0] / (double)c->in[1].shape.dim[0];
    const double unseen = 1.0 - samples * cached_rows(c) / (double)c->in[1].shape.dim[1];
    return tx_bytes_of(c) - unseen * (double)(tx_operand_bytes(&c->in[1]) + tx_operand_bytes(&c->in[2]));
}

/* Only the new keys and values are read and written. */
double tx_bytes_kv_append(const tx_command *c)
{
    return 4.0 * (double)(tx_shape_last(&c->in[1].shape) * tx_shape_rows(&c->in[0].shape)) *
           (double)tx_dtype_size(c->in[1].dtype);
}
