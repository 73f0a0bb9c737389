/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters that lie in the host's memory, or in a file (Rajbhandari et al., ZeRO-Infinity, 2021). What nodes read of
 * them comes from planned tensors, which are filled while the stretch before is computed, and whose memory is free
 * behind the last node that reads them. A stretch is nodes in a row of one block and one direction:
 *
 *     compute      block 1    block 2    block 3
 *     transfers    fetch 2    fetch 3    fetch 4
 *     file         read 3     read 4     ..
 *
 * Where the device's memory is the host's, what is read from the file is there, so that block 2 is read beside block 1.
 * Copies are bits, so results are those without. */
#include "api/passes/passes.h"

#include "api/graph/edit.h"
#include "api/model/model.h"

#include <stdlib.h>

/* Neighbours in an arena come by one copy of no more bytes than that; a larger parameter comes alone. */
#define MOST_BYTES ((int64_t)64 << 20)

/* A parameter, or its copy of 16 bits, as the stretches first .. last read it. */
typedef struct weight {
    tx_tensor *root;
    int32_t first, last;
    int32_t transfer;
} weight;

/* An operand that is in one. */
typedef struct reading {
    int32_t node, operand, weight;
} reading;

/* Weights that lie side by side: how they lie outside, in host memory on their way from a file to a device with its
 * own, and on the device. */
typedef struct transfer {
    tx_tensor *away, *staged, *here;
    int32_t stretch;
} transfer;

typedef struct fetching {
    tx_graph *graph;
    tx_edit *edit;
    int32_t end;    /* number of nodes before any was inserted */
    int32_t *start; /* of a stretch the first node that reads a weight */
    weight *weight;
    reading *reading;
    transfer *transfer;
    int32_t *begin; /* of a stretch the first transfer */
    int32_t stretches, weights, readings, transfers;
    bool file, direct; /* they are read from the file; to where they are needed */
    int32_t *latest;   /* by tensor: the last of its weights; -1: none yet */
} fetching;

/* ---- What is read when ---------------------------------------------------------------------------------- */

static bool is_away(const tx_graph *graph, const tx_tensor *root)
{
    const bool of_params =
        root && (root->arena == TX_ARENA_WEIGHTS || root->arena == TX_ARENA_SHARDS || root->arena == TX_ARENA_FROZEN ||
                 root->arena == TX_ARENA_FROZEN_SHARDS || root->arena == TX_ARENA_HALF);
    return of_params && tx_arena_is_away(&graph->model->arena[root->arena]);
}

/* What the stretch before has read is still here. */
static int32_t weight_for(fetching *f, tx_tensor *root)
{
    const int32_t stretch = f->stretches - 1;
    int32_t *latest = &f->latest[root->id];
    if (*latest < 0 || stretch - f->weight[*latest].last > 1) {
        *latest = f->weights;
        f->weight[f->weights++] = (weight){.root = root, .first = stretch};
    }
    f->weight[*latest].last = stretch;
    return *latest;
}

static void find_readings(fetching *f)
{
    const tx_node *before = NULL;
    for (int32_t n = 0; n < f->end; n++) {
        const tx_node *node = &f->graph->node[n];
        for (int k = 0; k < TX_MAX_IN && node->op != TX_OP_COPY_OF_PARAM && node->op != TX_OP_RESHAPE; k++) {
            tx_tensor *root = node->in[k] ? tx_tensor_root(node->in[k]) : NULL;
            if (!is_away(f->graph, root))
                continue;
            if (!before || node->block != before->block || node->direction != before->direction)
                f->start[f->stretches++] = n;
            before = node;
            f->reading[f->readings++] = (reading){n, k, weight_for(f, root)};
        }
    }
}

/* ---- What comes together ---------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const weight *const x = *(weight *const *)a, *const y = *(weight *const *)b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->root->arena != y->root->arena)
        return x->root->arena < y->root->arena ? -1 : 1;
    return (x->root->offset > y->root->offset) - (x->root->offset < y->root->offset);
}

/* Whether `next` can come with what comes from `first` on and ends with `last`: nothing but padding is between. */
static bool goes_along(const tx_graph *graph, const weight *first, const weight *last, const weight *next)
{
    const tx_tensor *x = first->root, *y = last->root, *z = next->root;
    const tx_arena *arena = &graph->model->arena[x->arena];
    const int64_t end = z->offset + tx_tensor_bytes(z), between = z->offset - y->offset - tx_tensor_bytes(y);
    return next->first == first->first && z->arena == x->arena && z->dtype == x->dtype && !tx_dtype_packed(z->dtype) &&
           tx_arena_chunk(arena, z->offset) == tx_arena_chunk(arena, x->offset) && end - x->offset <= MOST_BYTES &&
           between >= 0 && between < TX_PARAM_BLOCK * (int64_t)tx_dtype_size(z->dtype);
}

static tx_status add_transfer(fetching *f, weight *const *order, int32_t count)
{
    const tx_tensor *first = order[0]->root, *last = order[count - 1]->root;
    const int64_t bytes = last->offset + tx_tensor_bytes(last) - first->offset;
    const tx_shape shape = count == 1 ? first->shape : TX_SHAPE(bytes / (int64_t)tx_dtype_size(first->dtype));
    transfer *t = &f->transfer[f->transfers];
    t->stretch = order[0]->first;
    t->away = tx_tensor_fixed(f->graph, first->dtype, shape, first->arena, first->offset);
    t->here = tx_tensor_planned(f->graph, first->dtype, shape, TX_ARENA_PLANNED);
    if (f->file && !f->direct)
        t->staged = tx_tensor_planned(f->graph, first->dtype, shape, TX_ARENA_STAGING);
    for (int32_t i = 0; i < count; i++)
        order[i]->transfer = f->transfers;
    f->transfers++;
    return f->graph->status;
}

static tx_status find_transfers(fetching *f)
{
    weight **order = calloc((size_t)f->weights + 1, sizeof *order);
    tx_status status = order ? TX_OK : tx_fail(TX_MEMORY, "no memory to fetch parameters");
    for (int32_t i = 0; i < f->weights && !status; i++)
        order[i] = &f->weight[i];
    if (!status)
        qsort(order, (size_t)f->weights, sizeof *order, by_place);
    for (int32_t i = 0, next; i < f->weights && !status; i = next) {
        for (next = i + 1; next < f->weights && goes_along(f->graph, order[i], order[next - 1], order[next]); next++)
            ;
        f->begin[order[i]->first + 1] = f->transfers + 1;
        status = add_transfer(f, order + i, next - i);
    }
    for (int32_t s = 1; s <= f->stretches; s++) /* of those that need nothing anew, too */
        f->begin[s] = f->begin[s] > f->begin[s - 1] ? f->begin[s] : f->begin[s - 1];
    free(order);
    return status;
}

/* ---- Nodes and operands ----------------------------------------------------------------------------------- */

/* Before the first node of stretch `at`, behind what was inserted there earlier. */
static tx_status insert(const fetching *f, int32_t at, tx_op op, tx_tensor *in, tx_tensor *out)
{
    const tx_node *like = &f->graph->node[f->start[at]];
    const tx_node node = {.op = op,
                          .direction = like->direction,
                          .block = like->block,
                          .attrs = {.control = -1, .alpha = 1.0f},
                          .in = {in},
                          .out = {out}};
    return tx_edit_insert(f->edit, f->start[at], &node, out ? &out->producer : NULL);
}

/* Where stretch `at` begins: reads what stretch `of` needs from the file, copies it to the device, or waits for it. */
static tx_status move(const fetching *f, int32_t at, int32_t of, tx_op op)
{
    if (of >= f->stretches)
        return TX_OK;
    for (int32_t i = f->begin[of]; i < f->begin[of + 1]; i++) {
        const transfer *t = &f->transfer[i];
        tx_tensor *read = f->direct ? t->here : t->staged;
        if (op == TX_OP_READ_FILE)
            TX_TRY(insert(f, at, op, t->away, read));
        else if (op == TX_OP_FETCH)
            TX_TRY(insert(f, at, op, f->file ? t->staged : t->away, t->here));
        else
            TX_TRY(insert(f, at, op, t->here, NULL));
    }
    return TX_OK;
}

static tx_status insert_all(const fetching *f)
{
    const int32_t ahead = f->direct ? 1 : 2;
    for (int32_t s = 0; s < ahead && f->file && f->stretches > 0; s++)
        TX_TRY(move(f, 0, s, TX_OP_READ_FILE));
    if (!f->direct && f->stretches > 0)
        TX_TRY(move(f, 0, 0, TX_OP_FETCH));
    for (int32_t s = 0; s < f->stretches; s++) {
        if (f->direct)
            TX_TRY(move(f, s, s, TX_OP_WAIT_FILE));
        else if (f->begin[s] < f->begin[s + 1])
            TX_TRY(insert(f, s, TX_OP_WAIT_COPIES, NULL, NULL));
        if (f->file)
            TX_TRY(move(f, s, s + ahead, TX_OP_READ_FILE));
        if (!f->direct)
            TX_TRY(move(f, s, s + 1, TX_OP_FETCH));
    }
    return TX_OK;
}

/* The operand becomes the same elements of what was fetched. */
static tx_status read_here(const fetching *f, const reading *r)
{
    tx_tensor **operand = &f->graph->node[r->node].in[r->operand], *here;
    const weight *w = &f->weight[r->weight];
    const transfer *t = &f->transfer[w->transfer];
    const int64_t within = tx_tensor_address(*operand) - t->away->offset;
    here = tx_tensor_view(t->here, within / (int64_t)tx_dtype_size((*operand)->dtype), (*operand)->shape);
    if (here)
        *operand = here;
    return here ? TX_OK : f->graph->status;
}

/* ---- The pass --------------------------------------------------------------------------------------------- */

static tx_status prepare(fetching *f)
{
    const size_t most = (size_t)f->end * TX_MAX_IN + 1, tensors = (size_t)f->graph->tensors + 1;
    f->start = calloc((size_t)f->end + 1, sizeof *f->start);
    f->weight = calloc(most, sizeof *f->weight);
    f->reading = calloc(most, sizeof *f->reading);
    f->transfer = calloc(most, sizeof *f->transfer);
    f->begin = calloc((size_t)f->end + 2, sizeof *f->begin);
    f->latest = malloc(tensors * sizeof *f->latest);
    if (!f->begin || !f->start || !f->weight || !f->reading || !f->transfer || !f->latest)
        return tx_fail(TX_MEMORY, "no memory to fetch parameters");
    for (size_t i = 0; i < tensors; i++)
        f->latest[i] = -1;
    return tx_edit_open(f->graph, &f->edit);
}

static tx_status change(fetching *f)
{
    find_readings(f);
    TX_TRY(find_transfers(f));
    TX_TRY(insert_all(f));
    for (int32_t i = 0; i < f->readings; i++)
        TX_TRY(read_here(f, &f->reading[i]));
    return TX_OK;
}

tx_status tx_fetch_weights(tx_graph *graph)
{
    const bool file = graph->model->arena[tx_model_frozen(graph->model)].space == TX_SPACE_FILE;
    fetching f = {.graph = graph,
                  .end = graph->nodes,
                  .file = file,
                  .direct = file && graph->model->engine->backend->host_memory};
    if (graph->direction == TX_UPDATE || !tx_model_fetches(graph->model))
        return TX_OK;
    tx_status status = prepare(&f);
    TX_THEN(status, change(&f));
    if (status == TX_OK)
        status = tx_edit_commit(f.edit);
    else
        tx_edit_discard(f.edit);
    free(f.start);
    free(f.weight);
    free(f.reading);
    free(f.transfer);
    free(f.begin);
    free(f.latest);
    return status;
}
