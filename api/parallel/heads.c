/* SPDX-License-Identifier: Apache-2.0
 *
 * Context parallelism for attention that ring_attention.c does not compute: windows, padding, packed samples, sinks and
 * bidirectional models. Each rank gets whole rows with an equal part of the heads. It returns the results to the ranks
 * that have the positions (Jacobs et al., DeepSpeed Ulysses, 2023). The ops that move both are all-to-alls, and each
 * other's gradients. */
#include "api/parallel/buckets.h"

#include <inttypes.h>
#include <string.h>

/* ---- Graph ------------------------------------------------------------------------------------------- */

tx_tensor *tx_parallel_buffer(tx_graph *graph, tx_dtype dtype, tx_shape shape)
{
    const bool host = graph->model->engine->backend->host_memory;
    if (!host)
        graph->model->arena[TX_ARENA_OFFLOADED].space = TX_SPACE_PINNED;
    return tx_tensor_planned(graph, dtype, shape, host ? TX_ARENA_PLANNED : TX_ARENA_OFFLOADED);
}

tx_tensor *tx_cp_move(tx_tensor *x, tx_op op, const tx_attrs *attrs)
{
    if (!x)
        return NULL;
    const int64_t copies = attrs->attention.heads > 0 ? 1 : attrs->rows;
    tx_tensor *w = tx_parallel_buffer(x->graph, x->dtype, TX_SHAPE(2 * copies * tx_shape_count(&x->shape)));
    return w ? tx_emit(x->graph,
                       &(tx_emit_args){.op = op, .attrs = *attrs, .in = {x}, .out[TX_OUT(cp_to_heads, w)] = w})
             : NULL;
}

/* The starts of all positions of the rows, [B, T]. All layers share them, except in a pipeline, whose stages have
 * different layers. */
static tx_tensor *whole_starts(tx_tensor *starts)
{
    tx_graph *graph = starts->graph;
    const int64_t rows = starts->shape.dim[0], length = starts->shape.dim[1], ranks = graph->model->mesh.context.size;
    const tx_attrs attrs = TX_ATTRS(.rows = ranks);
    if (graph->starts && graph->starts_of == starts && !graph->model->mesh.pipeline.comm)
        return graph->starts;
    tx_tensor_narrow(starts, 0, length * ranks, false);
    tx_tensor *whole = tx_cp_move(tx_tensor_view(starts, 0, TX_SHAPE(rows, length, 1)), TX_OP_CP_TO_HEADS, &attrs);
    graph->starts_of = starts;
    graph->starts = whole ? tx_tensor_view(whole, 0, TX_SHAPE(rows, length * ranks)) : NULL;
    return graph->starts;
}

/* Elements first .. first + count - 1 of a vector. */
static tx_tensor *part_of(tx_tensor *x, int64_t first, int64_t count)
{
    x = x ? tx_shift_rows(tx_reshape(x, TX_SHAPE(1, tx_shape_count(&x->shape))), count, first, 0) : NULL;
    return x ? tx_reshape(x, TX_SHAPE(count)) : NULL;
}

tx_tensor *tx_parallel_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, tx_tensor *sinks,
                                 const tx_attrs *attrs)
{
    const tx_mesh_axis *ranks = &qkv->graph->model->mesh.context;
    const bool ring = attrs->attention.causal && attrs->attention.window == 0 && !lengths && !starts && !sinks;
    if (ranks->size == 1 || ring)
        return TX_EMIT(qkv, ATTENTION, *attrs, qkv, lengths, starts, sinks);
    if (attrs->attention.heads % ranks->size != 0 || attrs->attention.kv_heads % ranks->size != 0)
        return tx_graph_refuse(
            qkv->graph, tx_fail(TX_UNSUPPORTED,
                                "context parallelism with windows, padding, packed samples, sinks or bidirectional "
                                "attention divides the heads: %d and %d of keys are not multiples of its %d ranks",
                                (int)attrs->attention.heads, (int)attrs->attention.kv_heads, (int)ranks->size));
    const int32_t heads = attrs->attention.heads / ranks->size, first = ranks->rank * heads;
    const tx_attrs all = TX_ATTRS(.attention.heads = attrs->attention.heads,
                                  .attention.kv_heads = attrs->attention.kv_heads, .rows = ranks->size),
                   results = TX_ATTRS(.attention.heads = attrs->attention.heads, .rows = ranks->size);
    tx_attrs own = *attrs;
    own.attention.whole = true;
    own.attention.heads = heads;
    own.attention.kv_heads /= ranks->size;
    own.first += first;
    starts = starts ? whole_starts(starts) : NULL;
    qkv = tx_cp_move(qkv, TX_OP_CP_TO_HEADS, &all);
    sinks = part_of(sinks, first, heads);
    return tx_cp_move(TX_EMIT(qkv, ATTENTION, own, qkv, lengths, starts, sinks), TX_OP_CP_TO_ROWS, &results);
}

/* ---- Execution --------------------------------------------------------------------------------------- */

/* The sizes of a move. By position, a rank has two chunks of each row and all heads; by head, all positions and its
 * part of the heads. */
typedef struct sizes {
    int32_t ranks, sections;     /* q, k and v; or one */
    int64_t samples, length;     /* rows, and positions of a chunk */
    int64_t section[3], columns; /* bytes of a position: of each section of a part of the heads, and of all */
    int64_t all, block;          /* bytes of a position with all heads; of a block between two ranks */
    bool copies;                 /* each rank gets all columns */
} sizes;

/* `x` is divided by position if `rows`, otherwise by head. */
static sizes sizes_of(const tx_attrs *a, const tx_operand *x, bool rows)
{
    const int64_t ranks = a->rows, last = x->shape.dim[2], bytes = (int64_t)tx_dtype_size(x->dtype);
    const int64_t heads = a->attention.heads, kv = a->attention.kv_heads;
    sizes s = {.ranks = (int32_t)ranks, .samples = x->shape.dim[0], .copies = heads == 0, .sections = kv > 0 ? 3 : 1};
    s.length = x->shape.dim[1] / (2 * (rows ? 1 : ranks));
    s.columns = (rows && !s.copies ? last / ranks : last) * bytes;
    s.all = s.copies ? s.columns : ranks * s.columns;
    for (int32_t i = 0; i < s.sections; i++)
        s.section[i] = s.copies ? s.columns : s.columns / (heads + 2 * kv) * (i == 0 ? heads : kv);
    s.block = s.samples * 2 * s.length * s.columns;
    return s;
}

/* Copies the part of the heads of `rank` between this rank's positions and a block. */
static void copy_columns(const sizes *s, int32_t rank, char *rows, char *block, bool out)
{
    for (int64_t t = 0; t < s->samples * 2 * s->length; t++, rows += s->all) {
        char *section = rows;
        for (int32_t i = 0; i < s->sections; i++) {
            const int64_t size = s->section[i];
            char *part = section + (s->copies ? 0 : rank * size);
            memcpy(out ? block : part, out ? part : block, (size_t)size);
            block += size;
            section += s->ranks * size;
        }
    }
}

/* Copies the positions of `rank` between whole rows and a block. */
static void copy_chunks(const sizes *s, int32_t rank, char *whole, char *block, bool out)
{
    const int64_t bytes = s->length * s->columns;
    for (int64_t i = 0; i < 2 * s->samples; i++, block += bytes) {
        const int64_t chunk = tx_mesh_chunk(s->ranks, rank, i % 2 != 0);
        char *part = whole + (i / 2 * 2 * s->ranks + chunk) * bytes;
        memcpy(out ? block : part, out ? part : block, (size_t)bytes);
    }
}

/* Buffer w has the blocks to all ranks, then those from all ranks. If the device has its own memory, each half also has
 * the tensor itself while it is not needed. */
tx_status tx_host_cp_move(tx_model *model, const tx_command *c)
{
    const tx_engine *e = model->engine;
    const tx_operand *x = &c->in[TX_IN(cp_to_heads, x)], *y = &c->out[TX_OUT(cp_to_heads, y)];
    const bool to_heads = c->op == TX_OP_CP_TO_HEADS, in_place = e->backend->host_memory;
    const sizes s = sizes_of(&c->attrs, x, to_heads);
    char *out = tx_operand_host(model, &c->out[TX_OUT(cp_to_heads, w)]), *in = out + s.ranks * s.block;
    char *from = in_place ? tx_operand_host(model, x) : in, *to = in_place ? tx_operand_host(model, y) : out;
    int64_t *count = model->parallel->block;
    TX_TRY(in_place ? e->backend->finish(e->context) : tx_operand_read(model, x, 0, from, tx_operand_bytes(x)));
    for (int32_t rank = 0; rank < s.ranks; rank++) {
        count[rank] = s.block / (int64_t)tx_dtype_size(x->dtype);
        (to_heads ? copy_columns : copy_chunks)(&s, rank, from, out + rank * s.block, true);
    }
    TX_TRY(tx_comm_all_to_all(model->mesh.context.comm, &(tx_all_to_all){out, count, in, count, x->dtype}));
    for (int32_t rank = 0; rank < s.ranks; rank++)
        (to_heads ? copy_chunks : copy_columns)(&s, rank, to, in + rank * s.block, false);
    if (in_place)
        return TX_OK;
    TX_TRY(tx_operand_write(model, y, 0, to, tx_operand_bytes(y)));
    return e->backend->finish(e->context); /* other tensors may reuse the buffer's memory */
}
