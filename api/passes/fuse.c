/* SPDX-License-Identifier: Apache-2.0
 *
 * Products take over the element-wise op that alone reads them: the result goes through memory once less. GELU behind a
 * product whose result the backward pass needs leaves that as a second output; the slope of GELU, and a sum with
 * something else, read their other operand when the product is stored. */
#include "api/passes/passes.h"

#include <stdlib.h>
#include <string.h>

typedef struct fusion {
    tx_graph *graph;
    int32_t *readers; /* by tensor: operands that it is */
    bool *viewed;     /* by tensor: it is also read or written as part of another */
    bool *gone;       /* by node */
} fusion;

static void find_readers(fusion *f)
{
    const tx_graph *g = f->graph;
    for (int32_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < TX_MAX_IN; k++)
            if (g->node[i].in[k])
                f->readers[g->node[i].in[k]->id]++;
    for (int32_t i = 0; i < g->tensors; i++)
        if (g->tensor[i]->base)
            f->viewed[g->tensor[i]->id] = f->viewed[g->tensor[i]->base->id] = true;
}

/* Can what makes `t`, which node `reader` reads, leave it unmade, or to the fused op? The product's operands must not
 * be written between the two nodes: only those of other arenas than these are. */
static bool is_product(const fusion *f, const tx_tensor *t, int32_t reader)
{
    if (!t || t->producer < 0 || t->producer >= reader || t->is_output || t->arena != TX_ARENA_PLANNED ||
        t->dtype != TX_F32 || f->viewed[t->id] || f->gone[t->producer])
        return false;
    const tx_node *n = &f->graph->node[t->producer];
    if (n->op != TX_OP_MATMUL || n->out[0] != t || n->attrs.accumulate != TX_STORE ||
        n->attrs.epilogue != TX_EPILOGUE_NONE)
        return false;
    for (int k = 0; k < 3; k++) {
        const tx_arena_id arena = n->in[k] ? tx_tensor_root(n->in[k])->arena : TX_ARENA_WEIGHTS;
        if (arena != TX_ARENA_PLANNED && arena != TX_ARENA_WEIGHTS)
            return false;
    }
    return true;
}

static bool reads_alone(const fusion *f, const tx_tensor *t)
{
    return f->readers[t->id] == 1;
}

/* GELU moves to the product, whose result others may read. */
static void fuse_gelu(fusion *f, int32_t at)
{
    const tx_node *gelu = &f->graph->node[at];
    tx_tensor *t = gelu->in[0], *y = gelu->out[0];
    if (!is_product(f, t, at) || y->arena != TX_ARENA_PLANNED || f->viewed[y->id] || y->producer != at)
        return;
    tx_node *product = &f->graph->node[t->producer];
    product->attrs.epilogue = TX_EPILOGUE_GELU;
    product->attrs.exact = gelu->attrs.exact;
    product->attrs.keeps = !reads_alone(f, t);
    product->out[0] = y;
    product->out[1] = product->attrs.keeps ? t : NULL;
    y->producer = t->producer;
    f->gone[at] = true;
}

/* The product moves to the node, its only reader, and reads `z` as well. */
static void fuse_reader(fusion *f, int32_t at, tx_tensor *t, tx_tensor *z, tx_epilogue epilogue)
{
    tx_node *reader = &f->graph->node[at], made = f->graph->node[t->producer];
    made.attrs.epilogue = epilogue;
    made.attrs.exact = reader->attrs.exact;
    made.in[3] = z;
    memcpy(made.out, reader->out, sizeof made.out);
    *reader = made;
    f->gone[t->producer] = true;
    t->producer = -1;
}

static void fuse_node(fusion *f, int32_t at)
{
    const tx_node *n = &f->graph->node[at];
    tx_tensor *a = n->in[0], *b = n->in[1];
    switch (n->op) {
    case TX_OP_GELU:
        fuse_gelu(f, at);
        break;
    case TX_OP_GELU_GRAD:
        if (is_product(f, a, at) && reads_alone(f, a))
            fuse_reader(f, at, a, b, TX_EPILOGUE_GELU_GRAD);
        break;
    case TX_OP_ADD:
        if (is_product(f, b, at) && reads_alone(f, b))
            fuse_reader(f, at, b, a, TX_EPILOGUE_ADD);
        else if (is_product(f, a, at) && reads_alone(f, a))
            fuse_reader(f, at, a, b, TX_EPILOGUE_ADD);
        break;
    default:
        break;
    }
}

/* The graph without the nodes that are gone. */
static tx_status close_gaps(const fusion *f)
{
    tx_graph *g = f->graph;
    tx_node *nodes = malloc((size_t)g->nodes * sizeof *nodes);
    int32_t *moved = malloc((size_t)g->nodes * sizeof *moved), count = 0;
    if (!nodes || !moved) {
        free(nodes);
        free(moved);
        return tx_fail(TX_MEMORY, "no memory to fuse ops");
    }
    for (int32_t i = 0; i < g->nodes; i++) {
        moved[i] = f->gone[i] ? -1 : count;
        if (!f->gone[i])
            nodes[count++] = g->node[i];
    }
    tx_graph_replace_nodes(g, nodes, count, moved);
    free(moved);
    return TX_OK;
}

tx_status tx_fuse(tx_graph *graph)
{
    const char *wish = getenv("TX_FUSE");
    if ((wish && strcmp(wish, "0") == 0) || graph->nodes == 0)
        return TX_OK;
    const size_t tensors = (size_t)graph->tensors;
    fusion f = {graph, calloc(tensors, sizeof *f.readers), calloc(tensors, sizeof *f.viewed),
                calloc((size_t)graph->nodes, sizeof *f.gone)};
    tx_status status = TX_OK;
    if (!f.readers || !f.viewed || !f.gone)
        status = tx_fail(TX_MEMORY, "no memory to fuse ops");
    if (!status)
        find_readers(&f);
    for (int32_t i = 0; i < graph->nodes && !status; i++)
        fuse_node(&f, i);
    if (!status)
        status = close_gaps(&f);
    free(f.readers);
    free(f.viewed);
    free(f.gone);
    return status;
}
