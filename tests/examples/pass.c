/* SPDX-License-Identifier: Apache-2.0
 * A pass, as CONTRIBUTING.md describes it. It reports how much gradient checkpointing could save in a graph: the bytes
 * of cheap ops that the backward pass saves and that could be recomputed. It runs between two other passes and changes
 * nothing; api/passes/fuse.c is one that does. */
#include "api/graph/edit.h"
#include "api/model/model.h"
#include "api/passes/passes.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct saving {
    int32_t tensors;
    int64_t bytes;
} saving;

/* Returns whether an op costs little compared with a product. */
static bool is_cheap(const tx_node *n)
{
    const tx_op_class kind = tx_op_info_of(n->op)->op_class;
    return kind == TX_ELEMENTWISE || kind == TX_NORMALIZATION;
}

/* Returns whether a node of the backward pass reads the output of a forward node. */
static bool outlives_forward(const tx_edit *edit, const tx_graph *graph, const tx_tensor *t)
{
    int32_t count;
    const tx_use *use = tx_edit_readers(edit, t, &count);
    for (int32_t i = 0; i < count; i++)
        if (graph->node[use[i].node].direction == TX_BACKWARD)
            return true;
    return false;
}

static tx_status find_saving(tx_graph *graph, saving *found)
{
    tx_edit *edit;
    TX_TRY(tx_edit_open(graph, &edit));
    *found = (saving){0};
    for (int32_t i = tx_edit_next(edit, TX_EDIT_END); i != TX_EDIT_END; i = tx_edit_next(edit, i)) {
        const tx_node *n = &graph->node[i];
        const tx_tensor *out = n->out[0];
        if (n->direction != TX_FORWARD || !is_cheap(n) || !out || out->arena != TX_ARENA_PLANNED)
            continue;
        if (outlives_forward(edit, graph, out)) {
            found->tensors++;
            found->bytes += tx_tensor_bytes(out);
        }
    }
    tx_edit_discard(edit);
    return TX_OK;
}

/* ---- The pass on a layer ---------------------------------------------------------------------------------------- */

#define CHECK(call)                                            \
    do {                                                       \
        if ((call) != TX_OK) {                                 \
            fprintf(stderr, "example_pass: %s\n", tx_error()); \
            return 1;                                          \
        }                                                      \
    } while (0)

int main(void)
{
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_graph *graph = NULL;
    tx_plan *plan = NULL;
    saving found;
    CHECK(tx_engine_create(&(tx_engine_options){.size = sizeof(tx_engine_options), .device = "cpu"}, &engine));
    CHECK(tx_model_create(engine, &model));
    CHECK(tx_graph_create(model, &graph));
    const tx_param_spec weights = {.shape = TX_SHAPE(64, 64), .init = TX_INIT_NORMAL, .scale = 0.02f};
    tx_tensor *x = tx_input(graph, "x", TX_F32, TX_SHAPE(32, 64));
    tx_tensor *y = tx_gelu(tx_linear(x, tx_param(graph, "w", &weights), NULL, false), false);
    tx_tensor *z = tx_linear(y, tx_param(graph, "v", &weights), NULL, false);
    CHECK(tx_backward(graph, tx_reduce(z, TX_REDUCE_SUM, TX_AXIS_ALL)));
    CHECK(tx_autodiff(graph));
    CHECK(find_saving(graph, &found));
    CHECK(tx_plan_create(graph, "train", &plan));
    printf("%" PRId32 " tensors of %" PRId64 " bytes could be computed again\n", found.tensors, found.bytes);
    tx_plan_free(plan);
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
    return found.tensors == 1 && found.bytes == 32 * 64 * 4 ? 0 : 1; /* the GELU */
}
