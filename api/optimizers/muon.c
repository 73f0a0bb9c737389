/* SPDX-License-Identifier: Apache-2.0
 * Muon: orthogonalises the momentum of a matrix by steps of a Newton-Schulz iteration, in fp32. */
#include "api/optimizers/optimizers.h"
#include "api/plan/plan.h"

#include <math.h>

#define STEPS 5
#define EPS 1e-7f

static tx_tensor *product(tx_tensor *a, bool trans_a, tx_tensor *b, bool trans_b)
{
    return TX_EMIT(a, MATMUL, TX_ATTRS(.trans_a = trans_a, .trans_b = trans_b, .flat = true), a, b);
}

/* alpha a + scale b */
static tx_tensor *blend(float alpha, tx_tensor *a, float scale, tx_tensor *b)
{
    return TX_EMIT(a, BLEND, ((tx_attrs){.control = -1, .alpha = alpha, .scale = scale}), a, b);
}

static tx_tensor *normalized(tx_tensor *u)
{
    return TX_EMIT(u, NORMALIZE, TX_ATTRS(.eps = EPS), u, tx_reduce(u, TX_REDUCE_SUMSQ, TX_AXIS_ALL));
}

/* One step: a x + (b s + c s^2) x with s = x x^T, or x (b s + c s^2) with s = x^T x if there are more rows than
 * columns. */
static tx_tensor *newton_schulz(tx_tensor *x, bool tall)
{
    tx_tensor *s = product(x, tall, x, !tall);
    tx_tensor *squared = product(s, false, s, false);
    tx_tensor *factor = blend(-4.7750f, s, 2.0315f, squared);
    tx_tensor *added = tall ? product(x, false, factor, false) : product(factor, false, x, false);
    return blend(3.4445f, x, 1.0f, added);
}

void tx_emit_muon(tx_graph *graph, const tx_emit_args *args, const tx_optimizer_options *options)
{
    tx_tensor *p = args->in[TX_IN(muon, p)], *g = args->in[TX_IN(adamw, g)], *b = args->in[TX_IN(adamw, m)];
    tx_emit_args momentum = {.op = TX_OP_MUON_MOMENTUM, .attrs = args->attrs, .in = {g, b}, .out = {b}};
    if (!p || !g || !b || !tx_emit(graph, &momentum))
        return;
    const double rows = (double)p->shape.dim[0], columns = (double)p->shape.dim[1];
    tx_tensor *x = normalized(momentum.out[TX_OUT(muon_momentum, u)]);
    for (int i = 0; i < STEPS && x; i++)
        x = newton_schulz(x, rows > columns);
    tx_emit_args update = {
        .op = TX_OP_MUON, .attrs = args->attrs, .in = {p, x, args->in[TX_IN(adamw, groups)]}, .out = {p}};
    update.attrs.scale =
        (float)(options->match_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1.0, rows / columns)));
    if (x)
        tx_emit(graph, &update);
}
