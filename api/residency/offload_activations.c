/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass offload_activations: keeps saved activations in host memory until the backward pass (Rhu et al., vDNN:
 * Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design, 2016). Those of a block are
 * copied there while the next block is computed, and fetched while the backward pass computes the block after it:
 *
 *     forward     block 1          2           3           ..         backward    3           2           1
 *     transfers                 put away 1  put away 2     ..                  fetch 2     fetch 1
 *
 * Those of the last block stay on the device, as they are needed at once. Copies preserve bits, so results do not
 * change. */
#include "api/residency/residency.h"

#include "api/base/needs.h"
#include "api/model/model.h"
#include "api/residency/visits.h"

/* A tensor smaller than this fraction of the largest stays on the device: a copy would cost more than it frees. */
#define LEAST_PART 64

/* Blocks after the last one that may be looked up and have no nodes. */
#define MARGIN 3

/* The uses of a planned tensor. */
typedef struct usage {
    int32_t forward;  /* last node of the forward pass that uses it; -1 if none */
    int32_t backward; /* first later node that uses it */
    bool stays;       /* an op without a kernel moves it, or the backward pass writes it */
    tx_tensor *back;  /* the tensor that the backward pass reads; NULL for the tensor itself */
} usage;

static const tx_step steps[] = {{TX_OP_WAIT_COPIES, 0}, {TX_OP_FETCH, 1}};

typedef struct offloading {
    tx_residency r;  /* visits are blocks, in the order of the backward pass */
    int32_t tensors; /* number when the edit was opened */
    int32_t blocks;
    int32_t forward_end; /* first node after the forward pass */
    usage *use;
    int32_t *first[2]; /* by block: its first node in the forward pass, and after it; `end` if none */
} offloading;

/* ---- Choice of tensors ------------------------------------------------------------------------------------------ */

static bool is_planned(const tx_tensor *root)
{
    return root->arena == TX_ARENA_PLANNED && !root->is_fixed && !root->is_input && !root->is_output;
}

static void add_use(offloading *o, int32_t n, tx_tensor *operand, bool writes)
{
    const tx_node *node = &o->r.graph->node[n];
    const tx_tensor *root = tx_tensor_root(operand);
    if (!root || !is_planned(root))
        return;
    usage *u = &o->use[root->id];
    if (node->direction == TX_FORWARD) {
        u->stays =
            u->stays || u->backward < o->r.end || (tx_op_cuts(node->op) && tx_op_info_of(node->op)->in_place < 0);
        u->forward = n;
    } else {
        u->stays = u->stays || (writes && !tx_op_is_virtual(node->op));
        u->backward = n < u->backward ? n : u->backward;
    }
}

static void find_uses(offloading *o)
{
    for (int32_t i = 0; i < o->tensors; i++)
        o->use[i] = (usage){.forward = -1, .backward = o->r.end};
    for (int32_t b = 0; b < o->blocks + MARGIN; b++)
        o->first[0][b] = o->first[1][b] = o->r.end;
    o->forward_end = 0;
    while (o->forward_end < o->r.end && o->r.graph->node[o->forward_end].direction == TX_FORWARD)
        o->forward_end++;
    for (int32_t n = 0; n < o->r.end; n++) {
        const tx_node *node = &o->r.graph->node[n];
        int32_t *first = &o->first[node->direction != TX_FORWARD][node->block];
        *first = n < *first ? n : *first;
        for (int k = 0; k < TX_MAX_IN; k++)
            add_use(o, n, node->in[k], false);
        for (int k = 0; k < TX_MAX_OUT; k++)
            add_use(o, n, node->out[k], true);
    }
}

/* Returns the block that fetches the tensor back and in which the forward pass last uses it, or 0 if it stays. */
static int32_t block_of(const offloading *o, int32_t tensor)
{
    const usage *u = &o->use[tensor];
    if (u->stays || u->forward < 0 || u->forward >= o->forward_end || u->backward == o->r.end)
        return 0;
    const int32_t block = o->r.graph->node[u->backward].block, done = o->r.graph->node[u->forward].block;
    if (done < 1 || done > block || block == o->blocks)
        return 0;
    const bool in_order = u->forward < o->first[0][done + 2] && o->first[1][block + 1] <= o->first[1][block];
    return in_order ? block : 0;
}

static int64_t largest(const offloading *o)
{
    int64_t maximum = 0;
    for (int32_t i = 0; i < o->tensors; i++) {
        const int64_t bytes = block_of(o, i) > 0 ? tx_tensor_bytes(o->r.graph->tensor[i]) : 0;
        maximum = tx_max(bytes, maximum);
    }
    return maximum;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------ */

/* Offloads a tensor after its last use in the forward pass. A visit fetches it. */
static tx_status add_piece(offloading *o, int32_t tensor)
{
    usage *u = &o->use[tensor];
    tx_graph *graph = o->r.graph;
    tx_tensor *resident = graph->tensor[tensor];
    tx_tensor *storage = tx_tensor_planned(graph, resident->dtype, resident->shape, TX_ARENA_OFFLOADED);
    u->back = storage ? tx_tensor_planned(graph, resident->dtype, resident->shape, TX_ARENA_PLANNED) : NULL;
    TX_TRY(graph->status);
    o->r.piece[o->r.pieces++] = (tx_piece){.storage = storage, .resident = u->back, .loads = true};
    return tx_edit_insert_op(o->r.edit, u->forward + 1, u->forward, TX_OP_PUT_BACK, resident, storage);
}

static tx_status add_pieces(offloading *o)
{
    const int64_t smallest = tx_ceil_div(largest(o), LEAST_PART);
    tx_residency *r = &o->r;
    for (int32_t block = o->blocks; block > 0; block--) {
        r->visit[r->visits++] = (tx_visit){o->first[1][block], r->pieces};
        for (int32_t i = 0; i < o->tensors; i++)
            if (block_of(o, i) == block && tx_tensor_bytes(r->graph->tensor[i]) >= smallest)
                TX_TRY(add_piece(o, i));
    }
    r->visit[r->visits] = (tx_visit){r->end, r->pieces};
    return TX_OK;
}

/* Frees the memory of tensors that the forward pass last used in block `done`, after the next block has been computed.
 */
static tx_status free_tensors(const offloading *o, int32_t done)
{
    const int32_t after = o->first[0][done + 2], at = after < o->forward_end ? after : o->forward_end;
    tx_node node = {.op = TX_OP_WAIT_COPIES, .block = done, .attrs = TX_PLAIN};
    int32_t inputs = 0;
    for (int32_t i = 0; i < o->tensors; i++)
        if (o->use[i].back && o->r.graph->node[o->use[i].forward].block == done) {
            node.in[inputs++] = o->r.graph->tensor[i];
            if (inputs == tx_op_info_of(node.op)->inputs) {
                TX_TRY(tx_edit_insert(o->r.edit, at, &node, NULL));
                inputs = 0;
            }
        }
    for (int32_t k = inputs; k < TX_MAX_IN; k++)
        node.in[k] = NULL;
    return inputs > 0 ? tx_edit_insert(o->r.edit, at, &node, NULL) : TX_OK;
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

/* Redirects the backward pass to the fetched tensors. */
static tx_status read_back(const offloading *o)
{
    for (int32_t n = o->forward_end; n < o->r.end; n++)
        for (int k = 0; k < TX_MAX_IN; k++) {
            tx_tensor *t = o->r.graph->node[n].in[k], *root = tx_tensor_root(t);
            tx_tensor *back = root && root->id < o->tensors ? o->use[root->id].back : NULL;
            if (back)
                TX_TRY(tx_residency_read(&o->r, (tx_use){n, k}, back, tx_tensor_address(t) - root->offset));
        }
    return TX_OK;
}

static tx_status change(tx_edit *edit, void *state)
{
    offloading *o = state;
    for (int32_t n = 0; n < o->r.graph->nodes; n++)
        o->blocks = o->r.graph->node[n].block > o->blocks ? o->r.graph->node[n].block : o->blocks;
    o->use = tx_edit_alloc(edit, (size_t)o->tensors, sizeof *o->use);
    for (int i = 0; i < 2; i++)
        o->first[i] = tx_edit_alloc(edit, (size_t)o->blocks + MARGIN, sizeof **o->first);
    TX_TRY(tx_residency_open(&o->r, edit, o->blocks, o->tensors));
    find_uses(o);
    TX_TRY(add_pieces(o));
    TX_TRY(tx_residency_insert(&o->r));
    for (int32_t block = 1; block < o->blocks; block++)
        TX_TRY(free_tensors(o, block));
    return read_back(o);
}

tx_status tx_graph_offload_activations(tx_graph *graph)
{
    TX_NEEDS(graph, TX_INVALID);
    TX_TRY(tx_graph_open(graph, "offload"));
    graph->offloads = true;
    return TX_OK;
}

tx_status tx_offload_activations(tx_graph *graph)
{
    if (!graph->offloads)
        return TX_OK;
    graph->model->arena[TX_ARENA_OFFLOADED].space = TX_SPACE_PINNED;
    offloading o = {.r = {.graph = graph, .step = steps, .steps = 2}, .tensors = graph->tensors};
    return tx_edit_run(graph, change, &o);
}
