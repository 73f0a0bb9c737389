/* SPDX-License-Identifier: Apache-2.0
 * Builders: the public functions that add one operation to a graph. */
#include "api/graph/graph.h"

#include "api/base/needs.h"
#include "api/model/model.h"

#include <math.h>

#define TX_UNARY(NAME, name, ...)             \
    tx_tensor *tx_##name(tx_tensor *x)        \
    {                                         \
        return TX_EMIT(x, NAME, TX_PLAIN, x); \
    }
#include "ops.def"

tx_tensor *tx_softmax(tx_tensor *x)
{
    return TX_EMIT(x, SOFTMAX, TX_PLAIN, x);
}

tx_tensor *tx_swiglu(tx_tensor *x)
{
    return TX_EMIT(x, SWIGLU, TX_PLAIN, x);
}

tx_tensor *tx_swiglu_clamped(tx_tensor *x, float alpha, float limit)
{
    const tx_attrs attrs = {.control = -1, .gate = TX_GATE_CLAMPED, .alpha = alpha, .scale = limit};
    return TX_EMIT(x, SWIGLU, attrs, x);
}

tx_tensor *tx_geglu(tx_tensor *x)
{
    return TX_EMIT(x, SWIGLU, TX_ATTRS(.gate = TX_GATE_GELU), x);
}

tx_tensor *tx_linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose)
{
    return TX_EMIT(x, MATMUL, TX_ATTRS(.flat = true, .trans_b = transpose), x, w, b);
}

tx_tensor *tx_linear_full(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose)
{
    return TX_EMIT(x, MATMUL, TX_ATTRS(.flat = true, .trans_b = transpose, .full = true), x, w, b);
}

tx_tensor *tx_matmul(tx_tensor *a, tx_tensor *b, bool transpose_a, bool transpose_b)
{
    const bool flat = b && b->shape.rank == 2 && !transpose_a; /* the batch becomes more rows */
    return TX_EMIT(a, MATMUL, TX_ATTRS(.trans_a = transpose_a, .trans_b = transpose_b, .flat = flat), a, b);
}

/* Sets the row numbers in the model of x [B, T, C]. Random numbers depend on them. */
static void number_rows(const tx_tensor *x, tx_attrs *attrs)
{
    const tx_model *model = x->graph->model;
    if (model->mesh.context.size > 1 && x->shape.rank != 3)
        tx_graph_fail(x->graph,
                      tx_fail(TX_UNSUPPORTED, "context parallelism: dropout and noise need a tensor [B, T, C]"));
    if (x->shape.rank != 3)
        return;
    const bool chunk = model->mesh.sequence && !x->graph->whole_rows;
    attrs->draw.row =
        chunk ? model->mesh.tensor.rank * x->shape.dim[1] : model->mesh.context.rank * (x->shape.dim[1] / 2);
    attrs->gap = tx_mesh_gap(&model->mesh, x->shape.dim[1]);
}

tx_tensor *tx_token_positions(tx_tensor *tokens, int32_t padding)
{
    return TX_EMIT(tokens, TOKEN_POSITIONS, TX_ATTRS(.first = padding), tokens);
}

tx_tensor *tx_gather(tx_tensor *table, tx_tensor *rows)
{
    return TX_EMIT(table, GATHER, TX_PLAIN, table, rows);
}

tx_tensor *tx_transpose(tx_tensor *x)
{
    return TX_EMIT(x, TRANSPOSE, TX_PLAIN, x);
}

tx_tensor *tx_shift_rows(tx_tensor *x, int64_t columns, int64_t first, int32_t step)
{
    return TX_EMIT(x, SHIFT_ROWS, TX_ATTRS(.rows = columns, .first = first, .step = step), x);
}

tx_tensor *tx_mla_qkv(tx_tensor *q, tx_tensor *kv, tx_tensor *rope, int32_t heads, bool pairs)
{
    tx_attrs attrs = TX_ATTRS(.step = pairs ? 2 : 1);
    attrs.attention.heads = heads;
    return TX_EMIT(q, MLA_QKV, attrs, q, kv, rope);
}

tx_tensor *tx_place_rows(int32_t parts, tx_tensor *const *part, const int64_t *first, int64_t rows, int64_t step,
                         float alpha)
{
    TX_NEEDS(parts > 0 && parts <= TX_PLACES && part && first, NULL);
    tx_attrs attrs = {.rows = rows, .step = (int32_t)step, .alpha = alpha, .control = -1};
    for (int32_t i = 0; i < parts; i++) {
        TX_NEEDS(part[i], NULL);
        if (first[i] < 0 || first[i] > rows || rows > INT32_MAX || step < 0 || step > INT32_MAX)
            return tx_graph_refuse(part[i]->graph, tx_fail(TX_INVALID, "place_rows: part %d is out of range", (int)i));
        attrs.place[i] = (int32_t)first[i];
        attrs.placed[i] = (int32_t)tx_shape_rows(&part[i]->shape);
    }
    return TX_EMIT(part[0], PLACE_ROWS, attrs, part[0], parts > 1 ? part[1] : NULL, parts > 2 ? part[2] : NULL,
                   parts > 3 ? part[3] : NULL);
}

tx_tensor *tx_scatter_add(tx_tensor *indices, tx_tensor *src, int64_t rows)
{
    return TX_EMIT(indices, SCATTER_ADD, TX_ATTRS(.rows = rows), indices, src);
}

tx_tensor *tx_layer_norm(tx_tensor *x, tx_tensor *gamma, tx_tensor *beta, float eps)
{
    return TX_EMIT(x, LAYER_NORM, TX_ATTRS(.eps = eps), x, gamma, beta);
}

tx_tensor *tx_rms_norm(tx_tensor *x, tx_tensor *gamma, float eps)
{
    return TX_EMIT(x, RMS_NORM, TX_ATTRS(.eps = eps), x, gamma);
}

tx_tensor *tx_head_norm(tx_tensor *x, tx_tensor *gamma, int32_t heads, int32_t kv_heads, float eps)
{
    TX_NEEDS(x && gamma, NULL);
    const tx_attrs attrs = TX_ATTRS(.attention.heads = heads, .attention.kv_heads = kv_heads, .eps = eps);
    const int64_t all = (int64_t)heads + 2 * (int64_t)kv_heads, last = tx_shape_last(&x->shape);
    char shape[96];
    if (heads < 1 || kv_heads < 1 || last % all != 0)
        return tx_graph_refuse(x->graph,
                               tx_fail(TX_INVALID, "head_norm: %d heads and %d key-value heads do not divide %s", heads,
                                       kv_heads, tx_shape_text(&x->shape, shape, sizeof shape)));
    tx_tensor *by_head = tx_reshape(x, TX_SHAPE(tx_shape_rows(&x->shape), all, last / all));
    return tx_reshape(TX_EMIT(by_head, RMS_NORM, attrs, by_head, gamma), x->shape);
}

tx_tensor *tx_gelu(tx_tensor *x, bool exact)
{
    return TX_EMIT(x, GELU, TX_ATTRS(.exact = exact), x);
}

tx_tensor *tx_add(tx_tensor *a, tx_tensor *b)
{
    return TX_EMIT(a, ADD, TX_PLAIN, a, b);
}

tx_tensor *tx_add_to_product(tx_tensor *product, tx_tensor *more)
{
    return TX_EMIT(product, ADD, TX_ATTRS(.as_product = true), product, more);
}

tx_tensor *tx_mul(tx_tensor *a, tx_tensor *b)
{
    return TX_EMIT(a, MUL, TX_PLAIN, a, b);
}

static tx_tensor *scale(tx_tensor *x, float factor, int32_t control)
{
    return TX_EMIT(x, SCALE, ((tx_attrs){.alpha = factor, .control = control}), x);
}

tx_tensor *tx_scale(tx_tensor *x, float factor)
{
    return scale(x, factor, -1);
}

tx_tensor *tx_share_loss(tx_tensor *loss)
{
    return scale(loss, 1.0f, TX_CONTROL_LABEL_SHARE);
}

tx_tensor *tx_mean_of_tokens(tx_tensor *mean)
{
    return scale(mean, 1.0f, TX_CONTROL_POSITIONS_PER_TOKEN);
}

tx_tensor *tx_dropout(tx_tensor *x, float p, int32_t site)
{
    if (p == 0.0f || !x)
        return x;
    tx_attrs attrs = TX_ATTRS(.draw.p = p, .draw.site = site);
    number_rows(x, &attrs);
    return TX_EMIT(x, DROPOUT, attrs, x);
}

tx_tensor *tx_noise(tx_tensor *x, float scale, int32_t site)
{
    tx_attrs attrs = TX_ATTRS(.scale = scale, .draw.site = site);
    if (x)
        number_rows(x, &attrs);
    return TX_EMIT(x, NOISE, attrs, x);
}

bool tx_attention_attrs(tx_tensor *qkv, const tx_attention_options *o, tx_attrs *attrs)
{
    if (o->size != sizeof *o) {
        tx_graph_fail(qkv->graph,
                      tx_fail(TX_INVALID, "attention options: size is %zu, expected %zu", o->size, sizeof *o));
        return false;
    }
    const int64_t parts = o->heads + 2 * (int64_t)o->kv_heads;
    const int64_t head_size = parts > 0 ? tx_shape_last(&qkv->shape) / parts : 1;
    *attrs = TX_ATTRS(.attention.heads = o->heads, .attention.kv_heads = o->kv_heads, .attention.causal = o->causal,
                      .attention.window = o->window, .attention.chunked = o->chunked, .attention.cap = o->cap,
                      .draw.p = o->dropout, .draw.site = o->site, .first = o->first_head,
                      .scale = o->scale != 0.0f ? o->scale : 1.0f / sqrtf((float)head_size));
    return true;
}

tx_tensor *tx_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, const tx_attention_options *options)
{
    tx_attrs attrs;
    if (!qkv || !tx_attention_attrs(qkv, options, &attrs))
        return NULL;
    const tx_parallel_hooks *hooks = qkv->graph->model->hooks;
    return hooks ? hooks->attention(qkv, lengths, starts, options->sinks, &attrs)
                 : TX_EMIT(qkv, ATTENTION, attrs, qkv, lengths, starts, options->sinks);
}

/* Cross-entropy with smoothing 1 is the log-sum-exp minus the mean. */
tx_tensor *tx_log_sum_exp(tx_tensor *x)
{
    TX_NEEDS(x, NULL);
    const tx_attrs attrs = TX_ATTRS(.vocab = tx_shape_last(&x->shape), .smoothing = 1.0f);
    tx_tensor *mean = tx_reduce(x, TX_REDUCE_MEAN, TX_AXIS_LAST);
    tx_tensor *labels = mean ? tx_range(x->graph, mean->shape, 0, 0) : NULL;
    return tx_add(TX_EMIT(x, CROSS_ENTROPY, attrs, x, labels), mean);
}

static tx_tensor *reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis, int32_t control)
{
    const tx_attrs attrs = {.reduction = reduction, .axis = axis, .control = control, .alpha = 1.0f};
    return TX_EMIT(x, REDUCE, attrs, x);
}

tx_tensor *tx_quantile(tx_tensor *x, tx_tensor *counts, double share)
{
    const tx_attrs attrs = {.control = -1, .alpha = (float)share};
    return TX_EMIT(x, QUANTILE, attrs, x, counts);
}

tx_tensor *tx_mean_loss(tx_tensor *losses)
{
    return reduce(losses, TX_REDUCE_SUM, TX_AXIS_ALL, TX_CONTROL_INVERSE_LABELS);
}

static tx_status add_to(tx_tensor *x, tx_tensor *results)
{
    tx_emit_args copy = {
        .op = TX_OP_COPY, .attrs = TX_ATTRS(.accumulate = TX_ADD_CONTROL), .in = {x}, .out = {results}};
    return results && tx_emit(x->graph, &copy) ? TX_OK : x->graph->status;
}

tx_status tx_add_to_result(tx_tensor *x, tx_result result)
{
    TX_NEEDS(x, TX_INVALID);
    if (result != TX_RESULT_DROPPED)
        return tx_graph_fail(x->graph, tx_fail(TX_INVALID, "add_to_result: result %d is not for graphs", (int)result));
    return add_to(x, tx_tensor_result(x->graph, TX_RESULT_DROPPED));
}

tx_status tx_add_means_to_results(tx_tensor *x, tx_result first)
{
    TX_NEEDS(x, TX_INVALID);
    const int64_t columns = tx_shape_last(&x->shape);
    if (first < TX_RESULT_TASK_0 || first > TX_RESULT_TASK_9 || columns > TX_RESULT_TASK_9 + 1 - (int64_t)first)
        return tx_graph_fail(x->graph, tx_fail(TX_INVALID, "add_means_to_results: %lld results from %d on",
                                               (long long)columns, (int)first));
    tx_tensor *means = reduce(x, TX_REDUCE_SUM, TX_AXIS_ROWS, TX_CONTROL_INVERSE_LABELS);
    return means ? add_to(means, tx_tensor_fixed(x->graph, TX_F32, means->shape, TX_ARENA_RESULT,
                                                 (int64_t)first * (int64_t)sizeof(float)))
                 : x->graph->status;
}

tx_tensor *tx_reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis)
{
    return reduce(x, reduction, axis, -1);
}

tx_tensor *tx_cast(tx_tensor *x, tx_dtype dtype)
{
    return TX_EMIT_AS(x, CAST, TX_PLAIN, &dtype, NULL, x);
}

tx_tensor *tx_fill(tx_graph *graph, tx_shape shape, float value)
{
    TX_NEEDS(graph, NULL);
    return tx_emit(graph, &(tx_emit_args){.op = TX_OP_FILL, .attrs = {.control = -1, .alpha = value}, .shape = &shape});
}

tx_tensor *tx_range(tx_graph *graph, tx_shape shape, int32_t first, int32_t step)
{
    TX_NEEDS(graph, NULL);
    return tx_emit(
        graph, &(tx_emit_args){.op = TX_OP_RANGE, .attrs = TX_ATTRS(.first = first, .step = step), .shape = &shape});
}

tx_tensor *tx_broadcast(tx_tensor *x, tx_shape shape, tx_axis axis)
{
    return TX_EMIT_AS(x, BROADCAST, TX_ATTRS(.axis = axis), NULL, &shape, x);
}

tx_tensor *tx_detach(tx_tensor *x)
{
    tx_tensor *same = x ? tx_reshape(x, x->shape) : NULL;
    if (same)
        same->requires_grad = false;
    return same;
}

tx_tensor *tx_reshape(tx_tensor *x, tx_shape shape)
{
    return TX_EMIT_AS(x, RESHAPE, TX_PLAIN, NULL, &shape, x);
}
