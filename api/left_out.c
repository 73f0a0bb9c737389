/* SPDX-License-Identifier: Apache-2.0
 * The public functions of extensions that this build leaves out (tools/extensions.cmake). They fail with
 * TX_UNSUPPORTED; a function that adds an op leaves the failure in the graph of its operand. */
#include "api/graph/graph.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static inline tx_status unsupported(const char *function, const char *extension)
{
    return tx_fail(TX_UNSUPPORTED, "%s: TX was built without it (extension %s)", function, extension);
}

/* Defines a function that adds an op to the graph of operand `x`. */
#define LEFT_OUT_OP(extension, x, ...)                                                    \
    __VA_ARGS__                                                                           \
    {                                                                                     \
        return x ? tx_graph_refuse((x)->graph, unsupported(__func__, #extension)) : NULL; \
    }

#define LEFT_OUT(extension, ...)                  \
    __VA_ARGS__                                   \
    {                                             \
        return unsupported(__func__, #extension); \
    }

/* clang-format off */

#ifdef TX_WITHOUT_CHECKPOINTING
LEFT_OUT(checkpointing, tx_status tx_graph_checkpointing(tx_graph *graph, const tx_checkpointing *options))
#endif

#ifdef TX_WITHOUT_EXPERTS
LEFT_OUT_OP(experts, x, tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices))
LEFT_OUT_OP(experts, choices, bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity, tx_routes *routes))
LEFT_OUT_OP(experts, x, tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose))
LEFT_OUT_OP(experts, x, tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes))
LEFT_OUT_OP(experts, x, tx_tensor *tx_to_experts(tx_tensor *x, const tx_routes *routes, int64_t chosen, float capacity, tx_arrivals *arrivals))
LEFT_OUT_OP(experts, x, tx_tensor *tx_from_experts(tx_tensor *x, const tx_routes *routes, const tx_arrivals *arrivals))
#endif

/* clang-format on */
