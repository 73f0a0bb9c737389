/* SPDX-License-Identifier: Apache-2.0
 * The builder of merged weights. */
#include "api/base/needs.h"
#include "api/graph/graph.h"

tx_tensor *tx_add_low_rank(tx_tensor *w, tx_tensor *a, int32_t parts, tx_tensor *const *b, const int64_t *first,
                           float scale, bool inputs_first)
{
    TX_NEEDS(w && a && b && first && parts > 0 && parts <= TX_PLACES, NULL);
    const tx_shape *shape = &w->shape;
    if (shape->rank < 2)
        return tx_graph_refuse(w->graph, tx_fail(TX_INVALID, "add_low_rank: the weight is no matrix"));
    tx_emit_args args = {.op = TX_OP_ADD_LOW_RANK, .attrs = TX_PLAIN, .in = {w, a}};
    args.attrs.alpha = scale;
    args.attrs.trans_a = inputs_first;
    args.attrs.rows = shape->dim[shape->rank - (inputs_first ? 1 : 2)];
    for (int32_t i = 0; i < parts; i++) {
        TX_NEEDS(b[i], NULL);
        const tx_shape *part = &b[i]->shape;
        const int64_t rows = part->rank < 2 ? 0 : part->dim[part->rank - 2];
        if (first[i] < 0 || first[i] > INT32_MAX || rows > INT32_MAX)
            return tx_graph_refuse(w->graph, tx_fail(TX_INVALID, "add_low_rank: part %d is out of range", (int)i));
        args.in[2 + i] = b[i];
        args.attrs.place[i] = (int32_t)first[i];
        args.attrs.placed[i] = (int32_t)rows;
    }
    tx_tensor *y = tx_emit(w->graph, &args);
    if (y)
        y->requires_grad = false;
    return y;
}
