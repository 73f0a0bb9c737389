/* SPDX-License-Identifier: Apache-2.0
 * Builders of recurrent layers. */
#include "api/base/needs.h"
#include "api/graph/graph.h"

tx_tensor *tx_short_conv(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *starts, bool silu)
{
    return TX_EMIT(x, SHORT_CONV, TX_ATTRS(.scan.silu = silu), x, w, bias, starts);
}

tx_tensor *tx_short_conv_cached(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *tail, tx_tensor *spans,
                                bool silu)
{
    TX_NEEDS(x && tail && spans, NULL);
    return tx_emit(x->graph, &(tx_emit_args){.op = TX_OP_SHORT_CONV_CACHED,
                                             .attrs = TX_ATTRS(.scan.silu = silu),
                                             .in = {x, w, bias, tail, spans},
                                             .out = {NULL, tail}});
}

tx_tensor *tx_scan_rates(tx_tensor *x, tx_tensor *a_log, tx_tensor *dt_bias, const tx_scan_options *options)
{
    TX_NEEDS(options && options->size == sizeof *options, NULL);
    const tx_attrs attrs = TX_ATTRS(.scan.delta = options->delta, .scan.low = options->low, .scan.high = options->high);
    return TX_EMIT(x, SCAN_RATES, attrs, x, a_log, dt_bias);
}

static tx_attrs attrs_of(const tx_scan_options *o)
{
    return TX_ATTRS(.scan.k_heads = o->k_heads, .scan.v_heads = o->v_heads, .scan.k_size = o->k_size,
                    .scan.delta = o->delta, .eps = o->eps, .scale = o->scale);
}

tx_tensor *tx_linear_scan(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip, tx_tensor *starts,
                          const tx_scan_options *options)
{
    TX_NEEDS(options && options->size == sizeof *options, NULL);
    return TX_EMIT(qkv, LINEAR_SCAN, attrs_of(options), qkv, rates, skip, starts);
}

tx_tensor *tx_linear_scan_cached(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip, tx_tensor *state, tx_tensor *spans,
                                 const tx_scan_options *options)
{
    TX_NEEDS(qkv && state && spans && options && options->size == sizeof *options, NULL);
    return tx_emit(qkv->graph, &(tx_emit_args){.op = TX_OP_LINEAR_SCAN_CACHED,
                                               .attrs = attrs_of(options),
                                               .in = {qkv, rates, skip, state, spans},
                                               .out = {NULL, state}});
}
