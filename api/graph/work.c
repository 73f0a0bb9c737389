/* SPDX-License-Identifier: Apache-2.0
 * Rules of TX_FLOPS and TX_BYTES for the core's ops. tx_op_work calls them. */
#include "api/graph/work.h"

#include <math.h>

/* Returns the pairs of query and key that attention computes. The values of a starts operand are unknown here, so all
 * keys in the window count. */
static double attention_pairs(const tx_command *c, const tx_shape *qkv)
{
    double batch = (double)qkv->dim[0], time = (double)qkv->dim[1];
    double window =
        c->attrs.attention.window > 0 && c->attrs.attention.window < time ? c->attrs.attention.window : time;
    double seen = c->attrs.attention.causal ? window * (window + 1) / 2 + (time - window) * window : time * time;
    return batch * c->attrs.attention.heads * seen;
}

double tx_head_size(const tx_command *c, const tx_shape *qkv)
{
    return (double)tx_shape_last(qkv) / (c->attrs.attention.heads + 2 * c->attrs.attention.kv_heads);
}

double tx_flops_matmul(const tx_command *c)
{
    const tx_gemm g = tx_gemm_of(&c->attrs, &c->in[0].shape, &c->in[1].shape);
    return 2.0 * (double)g.batch * (double)g.m * (double)g.n * (double)g.k;
}

/* Two products: scores, and weighted values. */
double tx_flops_attention(const tx_command *c)
{
    return 4.0 * attention_pairs(c, &c->in[0].shape) * tx_head_size(c, &c->in[0].shape);
}

/* Five products: the scores again, and four for the gradients. */
double tx_flops_attention_grad(const tx_command *c)
{
    return 10.0 * attention_pairs(c, &c->in[1].shape) * tx_head_size(c, &c->in[1].shape);
}

double tx_bytes_of(const tx_command *c)
{
    double bytes = 0;
    for (int i = 0; i < TX_MAX_IN; i++)
        if (tx_present(&c->in[i]))
            bytes += (double)tx_operand_bytes(&c->in[i]);
    int32_t outputs = tx_op_info_of(c->op)->outputs;
    for (int i = 0; i < outputs; i++)
        if (tx_present(&c->out[i]))
            bytes += (double)tx_operand_bytes(&c->out[i]) * (c->attrs.accumulate == TX_ADD ? 2.0 : 1.0);
    return bytes;
}

/* Tables are read only in the rows that are looked up. */
static double lookup(const tx_command *c, size_t indices)
{
    return (double)tx_operand_bytes(&c->in[indices]) + 2.0 * (double)tx_operand_bytes(&c->out[0]);
}

double tx_bytes_embedding(const tx_command *c)
{
    return lookup(c, TX_IN(embedding, tokens));
}

double tx_bytes_gather(const tx_command *c)
{
    return lookup(c, TX_IN(gather, indices));
}

/* The last operand, the 16-bit copy of the weights, is written but not read. */
double tx_bytes_update(const tx_command *c)
{
    const tx_operand *half = &c->in[tx_op_info_of(c->op)->inputs - 1];
    return tx_bytes_of(c) - (tx_present(half) ? (double)tx_operand_bytes(half) : 0.0);
}

/* A sum accesses only the rows in `indices`. */
double tx_bytes_scatter_add(const tx_command *c)
{
    return c->attrs.accumulate == TX_ADD
               ? (double)tx_operand_bytes(&c->in[0]) + 3.0 * (double)tx_operand_bytes(&c->in[1])
               : tx_bytes_of(c);
}
