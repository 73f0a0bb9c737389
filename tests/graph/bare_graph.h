/* SPDX-License-Identifier: Apache-2.0
 * A graph of a model without a device, for tests of what happens before one is asked for anything. */
#ifndef TX_TESTS_BARE_GRAPH_H
#define TX_TESTS_BARE_GRAPH_H

#include "api/model/model.h"

#include "tests/unit.h"

typedef struct bare_graph {
    tx_engine engine;
    tx_model *model;
    tx_graph *graph;
} bare_graph;

static inline tx_status bare_finish(tx_context *context)
{
    return TX_OK;
}

static inline void bare_graph_make(bare_graph *b)
{
    static const tx_backend none = {.version = TX_BACKEND_VERSION, .name = "none", .finish = bare_finish};
    *b = (bare_graph){.engine = {.backend = &none, .device = {.max_allocation = 1 << 20}}};
    assert_int_equal(tx_model_create(&b->engine, &b->model), TX_OK);
    assert_int_equal(tx_graph_create(b->model, &b->graph), TX_OK);
}

static inline void bare_graph_free(bare_graph *b)
{
    tx_graph_free(b->graph);
    tx_model_free(b->model);
}

#endif
