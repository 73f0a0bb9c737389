/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of the ops of key-value caches.
 */
#include "api/base/blocks.h"
#include "backends/opencl/attention/attention.h"
#include "backends/opencl/ops/ops.h"

tx_status tx_cl_attention_cached(tx_cl_builder *b, const tx_command *c)
{
    return tx_cl_attention_over(b, c, NULL, &c->in[TX_IN(attention_cached, slots)],
                                &c->in[TX_IN(attention_cached, sinks)]);
}

/* Keys and values may share a cache. */
static int caches_of(const tx_command *c)
{
    return c->out[0].arena == c->out[1].arena && c->out[0].chunk == c->out[1].chunk &&
                   c->out[0].offset == c->out[1].offset
               ? 1
               : 2;
}

tx_status tx_cl_kv_append(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *qkv = &c->in[0].shape, *cache = &c->in[1].shape;
    const tx_operand *slots = &c->in[TX_IN(kv_append, slots)];
    int64_t columns = tx_block_columns(c->in[1].dtype, tx_shape_last(cache)), last = tx_shape_last(qkv);
    const tx_cl_form form = tx_cl_form_of(b, c, columns, false, "-DCACHES=%d -DSLOTS=%lld -DBLOCKS=%d -DIN=%s",
                                          caches_of(c), tx_present(slots) ? (long long)cache->dim[0] : 0LL,
                                          c->in[1].dtype == TX_U8, tx_cl_storage(c->in[0].dtype));
    tx_cl_launch_columns(b, &form, "caches", "kv_append", columns, tx_shape_rows(qkv));
    TX_CL_OPERANDS(b, &c->in[0], &c->out[0], &c->out[1], &c->in[3], tx_present(slots) ? slots : NULL);
    return TX_CL_I64(b, columns, last - 2 * columns, last, qkv->dim[qkv->rank - 2], cache->dim[cache->rank - 2]);
}

tx_status tx_cl_kv_reorder(tx_cl_builder *b, const tx_command *c)
{
    const tx_shape *cache = &c->in[0].shape;
    int64_t columns = tx_shape_last(cache);
    tx_cl_form form = tx_cl_form_of(b, c, columns, false, "-DCACHES=%d -DBATCH=%lld -DBLOCKS=%d -DIN=%s", caches_of(c),
                                    (long long)cache->dim[0], c->in[0].dtype == TX_U8, tx_cl_storage(c->in[0].dtype));
    tx_cl_launch_columns(b, &form, "caches", "kv_reorder", columns, cache->dim[1]);
    TX_CL_OPERANDS(b, &c->out[0], &c->out[1], &c->in[2], &c->in[3]);
    return TX_CL_I64(b, columns, cache->dim[1]);
}
