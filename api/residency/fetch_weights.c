/* SPDX-License-Identifier: Apache-2.0
 *
 * Pass fetch_weights: parameters in host memory or in a file (Rajbhandari et al., ZeRO-Infinity, 2021). Nodes read
 * planned tensors instead. These are filled while the stretch before is computed and freed after their last reader. A
 * stretch is a run of nodes of one block and one direction:
 *
 *     compute      block 1    block 2    block 3
 *     transfers    fetch 2    fetch 3    fetch 4
 *     file         read 3     read 4     ..
 *
 * If the device shares the host's memory, data read from the file need no fetch, and block 2 is read while block 1 is
 * computed. Copies preserve bits, so results do not change. */
#include "api/residency/residency.h"

#include "api/model/model.h"
#include "api/residency/visits.h"

#include <stdlib.h>

/* Contiguous parameters are fetched by one copy of at most this size. A larger parameter is fetched separately. */
#define MOST_BYTES ((int64_t)64 << 20)

static const tx_step steps[] = {{TX_OP_WAIT_COPIES, 0}, {TX_OP_READ_FILE, 2}, {TX_OP_FETCH, 1}};
/* From a file to memory that the device shares. */
static const tx_step direct_steps[] = {{TX_OP_WAIT_FILE, 0}, {TX_OP_READ_FILE, 1}};

/* A parameter, or its 16-bit copy, that is resident during visits first .. last. */
typedef struct weight {
    tx_tensor *root;
    int32_t first, last;
    int32_t piece;
} weight;

/* An operand that is part of a weight. */
typedef struct reading {
    tx_use use;
    int32_t weight;
} reading;

typedef struct fetching {
    tx_residency r; /* visits are stretches */
    weight *weight;
    reading *reading;
    int32_t weights, readings;
    weight **order; /* in the order of fetches */
} fetching;

/* ---- Readers ---------------------------------------------------------------------------------- */

static bool is_offloaded(const tx_graph *graph, const tx_tensor *root)
{
    const tx_memory_kind kind = root ? tx_arena_info_of(root->arena)->kind : TX_MEMORY_COUNT;
    return (kind == TX_MEMORY_WEIGHTS || kind == TX_MEMORY_COPIES) &&
           tx_arena_is_offloaded(&graph->model->arena[root->arena]);
}

/* A weight that the stretch before reads is still resident. */
static int32_t weight_for(fetching *f, tx_tensor *root)
{
    const int32_t stretch = f->r.visits - 1;
    int32_t w = f->weights - 1;
    while (w >= 0 && f->weight[w].root != root)
        w--;
    if (w < 0 || stretch - f->weight[w].last > 1) {
        w = f->weights++;
        f->weight[w] = (weight){.root = root, .first = stretch};
    }
    f->weight[w].last = stretch;
    return w;
}

static void find_readings(fetching *f)
{
    const tx_graph *graph = f->r.graph;
    const tx_node *before = NULL;
    for (int32_t n = 0; n < f->r.end; n++) {
        const tx_node *node = &graph->node[n];
        for (int k = 0; k < TX_MAX_IN && !tx_op_is_virtual(node->op); k++) {
            tx_tensor *root = tx_tensor_root(node->in[k]);
            if (!is_offloaded(graph, root))
                continue;
            if (!before || node->block != before->block || node->direction != before->direction)
                f->r.visit[f->r.visits++].node = n;
            before = node;
            f->reading[f->readings++] = (reading){{n, k}, weight_for(f, root)};
        }
    }
    f->r.visit[f->r.visits].node = f->r.end;
    f->r.start = f->r.visit[0].node;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const weight *const x = *(weight *const *)a, *const y = *(weight *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->root->arena != y->root->arena)
        return x->root->arena < y->root->arena ? -1 : 1;
    return (x->root->offset > y->root->offset) - (x->root->offset < y->root->offset);
}

/* Whether `next` can be part of the piece from `first` to `last`: only padding is between them. */
static bool can_join(const tx_graph *graph, const weight *first, const weight *last, const weight *next)
{
    const tx_tensor *x = first->root, *y = last->root, *z = next->root;
    const tx_arena *arena = &graph->model->arena[x->arena];
    const int64_t end = z->offset + tx_tensor_bytes(z), between = z->offset - y->offset - tx_tensor_bytes(y);
    return next->first == first->first && z->arena == x->arena && z->dtype == x->dtype && !tx_dtype_packed(z->dtype) &&
           tx_arena_chunk(arena, z->offset) == tx_arena_chunk(arena, x->offset) && end - x->offset <= MOST_BYTES &&
           between >= 0 && between < TX_PARAM_BLOCK * (int64_t)tx_dtype_size(z->dtype);
}

/* Adds a piece of `count` weights. */
static tx_status add_piece(fetching *f, weight *const *order, int32_t count)
{
    tx_graph *graph = f->r.graph;
    const tx_tensor *first = order[0]->root, *last = order[count - 1]->root;
    const int64_t bytes = last->offset + tx_tensor_bytes(last) - first->offset;
    const tx_shape shape = count == 1 ? first->shape : TX_SHAPE(bytes / (int64_t)tx_dtype_size(first->dtype));
    tx_piece *p = &f->r.piece[f->r.pieces];
    p->loads = true;
    p->storage = tx_tensor_fixed(graph, first->dtype, shape, first->arena, first->offset);
    p->resident = tx_tensor_planned(graph, first->dtype, shape, TX_ARENA_PLANNED);
    if (f->r.step == direct_steps)
        p->staged = p->resident;
    else if (graph->model->arena[first->arena].space == TX_SPACE_FILE)
        p->staged = tx_tensor_planned(graph, first->dtype, shape, TX_ARENA_STAGING);
    for (int32_t i = 0; i < count; i++)
        order[i]->piece = f->r.pieces;
    f->r.pieces++;
    return graph->status;
}

static tx_status add_pieces(fetching *f)
{
    weight **const order = f->order;
    for (int32_t i = 0; i < f->weights; i++)
        order[i] = &f->weight[i];
    qsort(order, (size_t)f->weights, sizeof *order, by_address);
    int32_t i = 0;
    for (int32_t visit = 0; visit <= f->r.visits; visit++) {
        f->r.visit[visit].piece = f->r.pieces;
        for (int32_t next; i < f->weights && order[i]->first == visit; i = next) {
            for (next = i + 1; next < f->weights && can_join(f->r.graph, order[i], order[next - 1], order[next]);
                 next++)
                ;
            TX_TRY(add_piece(f, order + i, next - i));
        }
    }
    return TX_OK;
}

/* Replaces the operand by the same elements of the fetched piece. */
static tx_status read_here(const fetching *f, const reading *r)
{
    const tx_piece *p = &f->r.piece[f->weight[r->weight].piece];
    const tx_tensor *operand = f->r.graph->node[r->use.node].in[r->use.operand];
    return tx_residency_read(&f->r, r->use, p->resident, tx_tensor_address(operand) - p->storage->offset);
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

static tx_status change(tx_edit *edit, void *state)
{
    fetching *f = state;
    const int32_t nodes = f->r.graph->nodes, room = nodes * TX_MAX_IN;
    f->weight = tx_edit_alloc(edit, (size_t)room, sizeof *f->weight);
    f->order = tx_edit_alloc(edit, (size_t)room, sizeof *f->order);
    f->reading = tx_edit_alloc(edit, (size_t)room, sizeof *f->reading);
    TX_TRY(tx_residency_open(&f->r, edit, nodes, room));
    find_readings(f);
    TX_TRY(add_pieces(f));
    TX_TRY(tx_residency_insert(&f->r));
    for (int32_t i = 0; i < f->readings; i++)
        TX_TRY(read_here(f, &f->reading[i]));
    return TX_OK;
}

tx_status tx_fetch_weights(tx_graph *graph)
{
    const bool file = graph->model->arena[tx_model_frozen(graph->model)].space == TX_SPACE_FILE;
    const bool direct = file && graph->model->engine->backend->host_memory;
    fetching f = {.r = {.graph = graph, .step = direct ? direct_steps : steps, .steps = direct ? 2 : 3}};
    if (graph->direction == TX_UPDATE || !tx_model_fetches(graph->model))
        return TX_OK;
    return tx_edit_run(graph, change, &f);
}
