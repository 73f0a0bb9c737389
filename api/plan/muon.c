/* SPDX-License-Identifier: Apache-2.0
 * Muon: the momentum of a matrix, made nearly orthogonal by steps of a Newton-Schulz iteration. All of it is in fp32.
 */
#include "api/plan/plan.h"

#include <math.h>

#define STEPS 5
#define EPS 1e-7f

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

/* Output 0, or NULL after a failure. */
static tx_tensor *emit(tx_graph *graph, tx_op op, const tx_attrs *attrs, tx_tensor *a, tx_tensor *b)
{
    tx_emit_args args = {.op = op, .attrs = *attrs, .in = {a, b}};
    return a && b ? tx_emit(graph, &args) : NULL;
}

static tx_tensor *product(tx_graph *graph, tx_tensor *a, bool trans_a, tx_tensor *b, bool trans_b)
{
    tx_attrs attrs = plain;
    attrs.trans_a = trans_a;
    attrs.trans_b = trans_b;
    attrs.flat = true;
    return emit(graph, TX_OP_MATMUL, &attrs, a, b);
}

/* alpha a + scale b */
static tx_tensor *blend(tx_graph *graph, float alpha, tx_tensor *a, float scale, tx_tensor *b)
{
    tx_attrs attrs = plain;
    attrs.alpha = alpha;
    attrs.scale = scale;
    return emit(graph, TX_OP_BLEND, &attrs, a, b);
}

static tx_tensor *normalized(tx_graph *graph, tx_tensor *u)
{
    tx_attrs attrs = plain;
    attrs.eps = EPS;
    tx_emit_args sum = {.op = TX_OP_REDUCE, .attrs = plain, .in = {u}};
    sum.attrs.reduction = TX_REDUCE_SUMSQ;
    sum.attrs.axis = TX_AXIS_ALL;
    return emit(graph, TX_OP_NORMALIZE, &attrs, u, u ? tx_emit(graph, &sum) : NULL);
}

/* One step: a x + (b s + c s^2) x with s = x x^T; from the right where there are more rows than columns. */
static tx_tensor *newton_schulz(tx_graph *graph, tx_tensor *x, bool tall)
{
    tx_tensor *s = product(graph, x, tall, x, !tall);
    tx_tensor *squared = product(graph, s, false, s, false);
    tx_tensor *factor = blend(graph, -4.7750f, s, 2.0315f, squared);
    tx_tensor *added = tall ? product(graph, x, false, factor, false) : product(graph, factor, false, x, false);
    return blend(graph, 3.4445f, x, 1.0f, added);
}

void tx_emit_muon(tx_graph *graph, const tx_emit_args *args, const tx_optimizer_options *options)
{
    tx_tensor *p = args->in[TX_IN(muon, p)], *g = args->in[TX_IN(adamw, g)], *b = args->in[TX_IN(adamw, m)];
    tx_emit_args momentum = {.op = TX_OP_MUON_MOMENTUM, .attrs = args->attrs, .in = {g, b}, .out = {b}};
    if (!p || !g || !b || !tx_emit(graph, &momentum))
        return;
    const double rows = (double)p->shape.dim[0], columns = (double)p->shape.dim[1];
    tx_tensor *x = normalized(graph, momentum.out[TX_OUT(muon_momentum, u)]);
    for (int i = 0; i < STEPS && x; i++)
        x = newton_schulz(graph, x, rows > columns);
    tx_emit_args update = {
        .op = TX_OP_MUON, .attrs = args->attrs, .in = {p, x, args->in[TX_IN(adamw, groups)]}, .out = {p}};
    update.attrs.scale =
        (float)(options->match_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1.0, rows / columns)));
    if (x)
        tx_emit(graph, &update);
}
