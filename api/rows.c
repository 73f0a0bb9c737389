/* SPDX-License-Identifier: Apache-2.0
 * Rows of a tied table that are summed apart from it. */
#include "api/rows.h"

#include "api/parallel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t element = (int64_t)sizeof(float);

/* ---- Finding ---------------------------------------------------------------------------------------- */

static bool writes_to(const tx_node *node, const tx_bucket *b)
{
    for (int k = 0; k < TX_MAX_OUT; k++) {
        const tx_tensor *root = node->out[k] ? tx_tensor_root(node->out[k]) : NULL;
        if (root && root->arena == TX_ARENA_GRADIENTS && tx_bucket_holds(b, root->offset))
            return true;
    }
    return false;
}

/* The bucket's last writer before node `end`; -1: none. */
static int32_t writer_before(const tx_graph *graph, const tx_bucket *b, int32_t end)
{
    int32_t n = end - 1;
    while (n >= 0 && !writes_to(&graph->node[n], b))
        n--;
    return n;
}

/* Whether a node adds rows, named by an input of the graph, to what others have written. */
static bool adds_rows(const tx_node *node)
{
    return node->op == TX_OP_SCATTER_ADD && node->attrs.accumulate == TX_ADD && tx_tensor_root(node->in[0])->is_input;
}

/* Whether summing the rest of a bucket early lets it move while others are still being filled. */
static bool gains(const tx_parallel *p, int32_t ready, int32_t last)
{
    for (int32_t i = 0; i < p->buckets; i++)
        if (p->bucket[i].ready > ready && p->bucket[i].ready < last)
            return true;
    return false;
}

static void describe(tx_rows *rows, const tx_graph *graph, int32_t bucket, int32_t node)
{
    const tx_node *n = &graph->node[node];
    rows->bucket = bucket;
    rows->node = node;
    rows->address = n->out[0]->offset;
    rows->count = n->out[0]->shape.dim[0];
    rows->width = tx_shape_last(&n->out[0]->shape);
    rows->own = tx_shape_count(&n->in[0]->shape);
}

static tx_status count_all(tx_parallel *p)
{
    int64_t *own = calloc((size_t)p->comm->size, sizeof *own);
    if (!own)
        return tx_fail(TX_MEMORY, "parallel: out of memory");
    own[p->comm->rank] = p->rows.own;
    tx_status status = tx_comm_share(p->comm, own, sizeof *own);
    p->rows.most = 0;
    for (int32_t r = 0; r < p->comm->size; r++)
        p->rows.most += own[r];
    free(own);
    return status;
}

tx_status tx_rows_find(tx_model *model, const tx_graph *graph, bool first)
{
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    int32_t ready = -1;
    if (p->comm->size == 1 || p->options.zero_stage > 0 || (!first && rows->bucket < 0))
        return TX_OK;
    rows->bucket = -1;
    for (int32_t i = 0; i < p->buckets && rows->bucket < 0; i++) {
        const int32_t last = p->bucket[i].ready;
        ready = last >= 0 && adds_rows(&graph->node[last]) ? writer_before(graph, &p->bucket[i], last) : -1;
        if (ready >= 0 && gains(p, ready, last))
            describe(rows, graph, i, last);
    }
    if (rows->bucket < 0)
        return TX_OK;
    tx_status status = first ? count_all(p) : TX_OK;
    if (2 * rows->most > rows->count)
        rows->bucket = -1;
    else
        p->bucket[rows->bucket].ready = ready;
    return status;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static int64_t named_bytes(const tx_rows *rows)
{
    return (rows->count * (int64_t)sizeof(int32_t) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

static int64_t window_bytes(const tx_rows *rows)
{
    return named_bytes(rows) + rows->most * rows->width * element;
}

static int64_t staging_bytes(const tx_model *model)
{
    const tx_rows *rows = &model->parallel->rows;
    return model->engine->backend->host_memory ? 0 : rows->own * rows->width * element;
}

int64_t tx_rows_bytes(const tx_model *model)
{
    const tx_rows *rows = &model->parallel->rows;
    return rows->bucket < 0 ? 0 : window_bytes(rows) + staging_bytes(model);
}

static tx_status take_window(tx_model *model)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    void *memory = NULL;
    tx_status status = p->comm->table->window(p->comm, window_bytes(rows), &memory);
    if (status)
        return status;
    rows->named = memory;
    rows->sum = (float *)(void *)((char *)memory + named_bytes(rows));
    rows->row = malloc((size_t)rows->most * sizeof *rows->row);
    if (!rows->row)
        return tx_fail(TX_MEMORY, "no memory for a list of %" PRId64 " rows", rows->most);
    return e->backend->adopt(e->context, TX_MEMORY_FUNCTIONALITY, memory, window_bytes(rows), &rows->window);
}

static tx_status take_staging(tx_model *model)
{
    const tx_engine *e = model->engine;
    tx_rows *rows = &model->parallel->rows;
    tx_status status = rows->staging ? e->backend->finish(e->context) : TX_OK;
    if (status)
        return status;
    e->backend->release(e->context, rows->staging);
    rows->staging = NULL;
    rows->staged = staging_bytes(model);
    return e->backend->allocate(e->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, rows->staged, &rows->staging);
}

tx_status tx_rows_allocate(tx_model *model)
{
    tx_rows *rows = &model->parallel->rows;
    if (rows->bucket < 0)
        return TX_OK;
    tx_status status = rows->named ? TX_OK : take_window(model);
    if (!status && staging_bytes(model) != rows->staged)
        status = take_staging(model);
    return status;
}

void tx_rows_free(tx_model *model)
{
    const tx_engine *e = model->engine;
    tx_rows *rows = &model->parallel->rows;
    e->backend->release(e->context, rows->window);
    e->backend->release(e->context, rows->staging);
    free(rows->token);
    free(rows->row);
}

/* ---- In a plan -------------------------------------------------------------------------------------- */

tx_status tx_rows_tokens(tx_model *model, const int32_t *token, int64_t count)
{
    tx_rows *rows = &model->parallel->rows;
    if (count > rows->room) {
        int32_t *grown = realloc(rows->token, (size_t)count * sizeof *grown);
        if (!grown)
            return tx_fail(TX_MEMORY, "no memory for %" PRId64 " tokens", count);
        rows->token = grown;
        rows->room = count;
    }
    memcpy(rows->token, token, (size_t)count * sizeof *token);
    return TX_OK;
}

static tx_status begin(tx_parallel *p, tx_dtype dtype, void *data, int64_t count, int32_t *request)
{
    const tx_transfer transfer = {
        .kind = TX_ALL_REDUCE, .dtype = dtype, .bucket = p->rows.bucket, .data = data, .count = count};
    return tx_parallel_begin(p, transfer, request);
}

tx_status tx_rows_name(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    if (rows->room < rows->own)
        return tx_fail(TX_INVALID, "the tokens of the batch were not written");
    memset(rows->named, 0, (size_t)rows->count * sizeof *rows->named);
    for (int64_t i = 0; i < rows->own; i++)
        if (rows->token[i] >= 0)
            rows->named[rows->token[i]] = 1;
    return begin(p, TX_I32, rows->named, rows->count, &rows->naming);
}

/* Where the table's gradient lies in the window of gradients. */
static float *table_of(const tx_parallel *p)
{
    const tx_bucket *b = &p->bucket[p->rows.bucket];
    return (float *)(void *)(p->gradients + b->window + (p->rows.address - b->address));
}

tx_status tx_rows_keep(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    const float *table = table_of(p);
    tx_status status = p->comm->table->wait(p->comm, rows->naming);
    rows->naming = -1;
    rows->rows = 0;
    for (int64_t i = 0; i < rows->count && !status; i++) {
        if (!rows->named[i])
            continue;
        if (rows->rows == rows->most)
            return tx_fail(TX_INTERNAL, "the ranks' tokens name more than %" PRId64 " rows", rows->most);
        memcpy(rows->sum + rows->rows * rows->width, table + i * rows->width, (size_t)(rows->width * element));
        rows->row[rows->rows++] = (int32_t)i;
        rows->named[i] = (int32_t)rows->rows;
    }
    return status;
}

/* In ascending order of the sources. */
static void add(tx_rows *rows, const float *source)
{
    for (int64_t i = 0; i < rows->own; i++) {
        const float *x = source + i * rows->width;
        if (rows->token[i] < 0)
            continue;
        float *y = rows->sum + (rows->named[rows->token[i]] - 1) * rows->width;
        for (int64_t c = 0; c < rows->width; c++)
            y[c] += x[c];
    }
}

tx_status tx_rows_add(tx_model *model, const tx_command *command)
{
    const tx_engine *e = model->engine;
    tx_rows *rows = &model->parallel->rows;
    const tx_operand *source = &command->in[1];
    tx_buffer *buffer = model->arena[source->arena].buffer[source->chunk];
    rows->to_sum = true;
    if (e->backend->host_memory) {
        add(rows, (const float *)(const void *)((const char *)e->backend->map(buffer) + source->offset));
        return TX_OK;
    }
    return e->backend->read_begin(e->context, TX_QUEUE_COMPUTE, buffer, source->offset, e->backend->map(rows->staging),
                                  rows->staged, &rows->reading);
}

tx_status tx_rows_begin(tx_model *model)
{
    const tx_engine *e = model->engine;
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    if (!rows->to_sum)
        return TX_OK;
    rows->to_sum = false;
    if (rows->reading) {
        tx_event *reading = rows->reading;
        rows->reading = NULL;
        tx_status status = e->backend->wait(e->context, reading);
        if (status)
            return status;
        add(rows, e->backend->map(rows->staging));
    }
    return begin(p, TX_F32, rows->sum, rows->rows * rows->width, &rows->summing);
}

tx_status tx_rows_replace(tx_model *model)
{
    tx_parallel *p = model->parallel;
    tx_rows *rows = &p->rows;
    float *table = table_of(p);
    tx_status status = p->comm->table->wait(p->comm, rows->summing);
    rows->summing = -1;
    for (int64_t i = 0; i < rows->rows && !status; i++)
        memcpy(table + rows->row[i] * rows->width, rows->sum + i * rows->width, (size_t)(rows->width * element));
    return status;
}
