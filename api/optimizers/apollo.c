/* SPDX-License-Identifier: Apache-2.0
 * APOLLO: scales the gradient of a matrix by AdamW's moments of a random projection of it. */
#include "api/optimizers/optimizers.h"
#include "api/plan/plan.h"

#include <math.h>

/* The shorter side of the matrix is projected to `rank` columns. */
void tx_emit_apollo(tx_graph *graph, const tx_emit_args *args, const tx_optimizer_options *options)
{
    tx_tensor *const *in = args->in;
    tx_tensor *p = in[TX_IN(adamw, p)], *g = in[TX_IN(adamw, g)], *groups = in[TX_IN(adamw, groups)];
    tx_tensor *m = in[TX_IN(adamw, m)], *v = in[TX_IN(adamw, v)], *norm = in[TX_IN(adamw, v) + 1];
    if (!p || !g || !groups || !m || !v || !norm)
        return;
    const int64_t rows = p->shape.dim[0], columns = p->shape.dim[1], rank = options->rank;
    const bool tall = rows >= columns;
    const tx_shape size = TX_SHAPE(tall ? columns : rows, rank);
    tx_emit_args projection = {.op = TX_OP_PROJECTION, .attrs = args->attrs, .shape = &size};
    tx_tensor *x = TX_EMIT(g, MATMUL, TX_ATTRS(.trans_a = !tall, .flat = true), g, tx_emit(graph, &projection));
    tx_emit_args scale = {.op = TX_OP_APOLLO_SCALE, .attrs = args->attrs, .in = {x, m, v}, .out = {m, v}};
    if (!x || !tx_emit(graph, &scale))
        return;
    tx_emit_args update = {.op = TX_OP_APOLLO,
                           .attrs = args->attrs,
                           .in = {p, g, groups, scale.out[TX_OUT(apollo_scale, s)], norm},
                           .out = {p, norm}};
    update.attrs.scale = sqrtf(options->scale);
    tx_emit(graph, &update);
}
