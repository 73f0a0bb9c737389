/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations that wait for the backward pass in the host's memory (Rhu et al., vDNN: Virtualized Deep Neural Networks
 * for Scalable, Memory-Efficient Neural Network Design, 2016). What a block keeps goes there while the next block is
 * computed, and comes back while the backward pass is in the block behind it:
 *
 *     forward     block 1          2           3           ..         backward    3           2           1
 *     transfers                 put away 1  put away 2     ..                  fetch 2     fetch 1
 *
 * The last block's are needed at once, and stay. Copies are bits, so results are those without. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

/* What takes less than this part of the largest stays: a copy would cost more than it frees. */
#define LEAST_PART 64

/* Behind the last block there may be asked for another two, which have no nodes. */
#define MARGIN 3

/* How a graph uses a tensor that the planner places. */
typedef struct usage {
    int32_t forward;  /* the last node of the forward pass that reads or writes it; -1: none */
    int32_t backward; /* the first later one */
    bool stays;       /* others than kernels move it, or the backward pass writes to it */
    tx_tensor *back;  /* what the backward pass reads; NULL: the tensor itself */
} usage;

typedef struct offloading {
    tx_graph *graph;
    tx_edit *edit;
    int32_t end;     /* number of nodes before any was inserted */
    int32_t tensors; /* and of tensors */
    int32_t blocks;
    int32_t turn; /* the first node that is not of the forward pass */
    usage *use;
    int32_t *first[2]; /* by block: its first node of the forward pass, and of the rest; `end` where it has none */
} offloading;

/* ---- What goes -------------------------------------------------------------------------------------------- */

static bool is_planned(const tx_tensor *root)
{
    return root->arena == TX_ARENA_PLANNED && !root->is_fixed && !root->is_input && !root->is_output;
}

static void look_at(offloading *o, int32_t n, tx_tensor *operand, bool writes)
{
    const tx_node *node = &o->graph->node[n];
    const tx_tensor *root = operand ? tx_tensor_root(operand) : NULL;
    if (!root || !is_planned(root))
        return;
    usage *u = &o->use[root->id];
    if (node->direction == TX_FORWARD) {
        u->stays = u->stays || u->backward < o->end || (tx_op_cuts(node->op) && node->op != TX_OP_PART_SUM);
        u->forward = n;
    } else {
        u->stays = u->stays || (writes && node->op != TX_OP_RESHAPE);
        u->backward = n < u->backward ? n : u->backward;
    }
}

static void look_at_all(offloading *o)
{
    for (int32_t i = 0; i < o->tensors; i++)
        o->use[i] = (usage){.forward = -1, .backward = o->end};
    for (int32_t b = 0; b < o->blocks + MARGIN; b++)
        o->first[0][b] = o->first[1][b] = o->end;
    o->turn = 0;
    while (o->turn < o->end && o->graph->node[o->turn].direction == TX_FORWARD)
        o->turn++;
    for (int32_t n = 0; n < o->end; n++) {
        const tx_node *node = &o->graph->node[n];
        int32_t *first = &o->first[node->direction != TX_FORWARD][node->block];
        *first = n < *first ? n : *first;
        for (int k = 0; k < TX_MAX_IN; k++)
            look_at(o, n, node->in[k], false);
        for (int k = 0; k < TX_MAX_OUT; k++)
            look_at(o, n, node->out[k], true);
    }
}

/* The block that brings it back, and in which the forward pass is done with it; 0: it stays. */
static int32_t block_of(const offloading *o, int32_t tensor)
{
    const usage *u = &o->use[tensor];
    if (u->stays || u->forward < 0 || u->forward >= o->turn || u->backward == o->end)
        return 0;
    const int32_t block = o->graph->node[u->backward].block, done = o->graph->node[u->forward].block;
    if (done < 1 || done > block || block == o->blocks)
        return 0;
    const bool in_order = u->forward < o->first[0][done + 2] && o->first[1][block + 1] <= o->first[1][block];
    return in_order ? block : 0;
}

static int64_t largest(const offloading *o)
{
    int64_t most = 0;
    for (int32_t i = 0; i < o->tensors; i++) {
        const int64_t bytes = block_of(o, i) > 0 ? tx_tensor_bytes(o->graph->tensor[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

/* Before node `at`, behind what was inserted there earlier. */
static tx_status insert(const offloading *o, int32_t at, tx_op op, tx_direction direction, int32_t block, tx_tensor *in,
                        tx_tensor *out)
{
    const tx_node node = {.op = op,
                          .direction = direction,
                          .block = block,
                          .attrs = {.control = -1, .alpha = 1.0f},
                          .in = {in},
                          .out = {out}};
    return tx_edit_insert(o->edit, at, &node, out ? &out->producer : NULL);
}

/* Puts a tensor away, and fetches it. */
static tx_status go(const offloading *o, int32_t tensor, int32_t block)
{
    usage *u = &o->use[tensor];
    tx_tensor *here = o->graph->tensor[tensor];
    tx_tensor *away = tx_tensor_planned(o->graph, here->dtype, here->shape, TX_ARENA_AWAY);
    u->back = away ? tx_tensor_planned(o->graph, here->dtype, here->shape, TX_ARENA_PLANNED) : NULL;
    if (!u->back)
        return o->graph->status;
    TX_TRY(insert(o, u->forward + 1, TX_OP_PUT_BACK, TX_FORWARD, o->graph->node[u->forward].block, here, away));
    return insert(o, o->first[1][block + 1], TX_OP_FETCH, TX_BACKWARD, block, away, u->back);
}

/* In the order of the backward pass: a block's first node waits for what came, and then the next block's is fetched. */
static tx_status go_all(const offloading *o)
{
    const int64_t least = (largest(o) + LEAST_PART - 1) / LEAST_PART;
    bool came = false;
    for (int32_t block = o->blocks - 1; block >= 0; block--) {
        if (came)
            TX_TRY(insert(o, o->first[1][block + 1], TX_OP_WAIT_COPIES, TX_BACKWARD, block + 1, NULL, NULL));
        came = false;
        for (int32_t i = 0; i < o->tensors && block > 0; i++)
            if (block_of(o, i) == block && tx_tensor_bytes(o->graph->tensor[i]) >= least) {
                TX_TRY(go(o, i, block));
                came = true;
            }
    }
    return TX_OK;
}

/* The memory of what the forward pass was done with in a block is free when the next block has been computed. */
static tx_status let_go(const offloading *o, int32_t done)
{
    const int32_t behind = o->first[0][done + 2], at = behind < o->turn ? behind : o->turn;
    tx_node node = {.op = TX_OP_WAIT_COPIES, .block = done, .attrs = {.control = -1, .alpha = 1.0f}};
    int32_t inputs = 0;
    for (int32_t i = 0; i < o->tensors; i++)
        if (o->use[i].back && o->graph->node[o->use[i].forward].block == done) {
            node.in[inputs++] = o->graph->tensor[i];
            if (inputs == tx_op_info_of(node.op)->inputs) {
                TX_TRY(tx_edit_insert(o->edit, at, &node, NULL));
                inputs = 0;
            }
        }
    for (int32_t k = inputs; k < TX_MAX_IN; k++)
        node.in[k] = NULL;
    return inputs > 0 ? tx_edit_insert(o->edit, at, &node, NULL) : TX_OK;
}

/* ---- Operands --------------------------------------------------------------------------------------------- */

/* The same elements of what came back; NULL on failure. */
static tx_tensor *back_of(tx_tensor *t, tx_tensor *root, tx_tensor *back)
{
    const int64_t within = tx_tensor_address(t) - root->offset;
    return t == root ? back : tx_tensor_view(back, within / (int64_t)tx_dtype_size(t->dtype), t->shape);
}

static tx_status read_back(const offloading *o, int32_t n)
{
    tx_node *node = &o->graph->node[n];
    for (int k = 0; k < TX_MAX_IN; k++) {
        tx_tensor *root = node->in[k] ? tx_tensor_root(node->in[k]) : NULL;
        tx_tensor *back = root && root->id < o->tensors ? o->use[root->id].back : NULL;
        tx_tensor *now = back ? back_of(node->in[k], root, back) : NULL;
        if (!back)
            continue;
        if (!now)
            return o->graph->status;
        node->in[k] = now;
        if (node->op == TX_OP_RESHAPE)
            node->out[0]->base = now;
    }
    return TX_OK;
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

static tx_status prepare(offloading *o)
{
    for (int32_t n = 0; n < o->end; n++)
        o->blocks = o->graph->node[n].block > o->blocks ? o->graph->node[n].block : o->blocks;
    const size_t blocks = (size_t)o->blocks + MARGIN;
    o->use = calloc((size_t)o->tensors + 1, sizeof *o->use);
    for (int i = 0; i < 2; i++)
        o->first[i] = calloc(blocks, sizeof **o->first);
    if (!o->use || !o->first[0] || !o->first[1])
        return tx_fail(TX_MEMORY, "no memory to offload activations");
    return tx_edit_open(o->graph, &o->edit);
}

static tx_status change(offloading *o)
{
    look_at_all(o);
    TX_TRY(go_all(o));
    for (int32_t block = 1; block < o->blocks; block++)
        TX_TRY(let_go(o, block));
    for (int32_t n = o->turn; n < o->end; n++)
        TX_TRY(read_back(o, n));
    return TX_OK;
}

tx_status tx_offload_activations(tx_graph *graph)
{
    offloading o = {.graph = graph, .end = graph->nodes, .tensors = graph->tensors};
    if (!graph->offloads)
        return TX_OK;
    graph->model->arena[TX_ARENA_AWAY].space = TX_SPACE_PINNED;
    tx_status status = prepare(&o);
    TX_THEN(status, change(&o));
    if (status == TX_OK)
        status = tx_edit_commit(o.edit);
    else
        tx_edit_discard(o.edit);
    free(o.use);
    free(o.first[0]);
    free(o.first[1]);
    return status;
}
