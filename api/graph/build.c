/* SPDX-License-Identifier: Apache-2.0
 * The public functions that add one operation to a graph. */
#include "api/graph/graph.h"

#include "api/base/needs.h"
#include "api/model/model.h"

#include <math.h>

/* Emits for the graph of `first`; NULL operands that are required pass an earlier failure on. */
#define EMIT(first, ...) ((first) ? tx_emit((first)->graph, &(tx_emit_args){__VA_ARGS__}) : NULL)

static const tx_attrs plain = {.control = -1, .alpha = 1.0f};

static tx_tensor *linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose, bool full)
{
    if (!w)
        return NULL;
    tx_attrs attrs = plain;
    attrs.flat = true;
    attrs.full = full;
    attrs.trans_b = transpose;
    return EMIT(x, .op = TX_OP_MATMUL, .attrs = attrs, .in = {x, w, b});
}

tx_tensor *tx_linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose)
{
    return linear(x, w, b, transpose, false);
}

tx_tensor *tx_linear_full(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose)
{
    return linear(x, w, b, transpose, true);
}

tx_tensor *tx_matmul(tx_tensor *a, tx_tensor *b, bool transpose_a, bool transpose_b)
{
    if (!a || !b)
        return NULL;
    tx_attrs attrs = plain;
    attrs.trans_a = transpose_a;
    attrs.trans_b = transpose_b;
    attrs.flat = b->shape.rank == 2 && !transpose_a; /* the batch is more rows */
    return EMIT(a, .op = TX_OP_MATMUL, .attrs = attrs, .in = {a, b});
}

/* Of `length` positions of a row that a rank has, the later half is a chunk of its own, whose place among all 2 N is as
 * far from the last one's as that of the first is from 0: how many positions of others lie between the two. */
static int64_t gap_of(const tx_model *model, int64_t length)
{
    return (model->mesh.context.size - 1 - model->mesh.context.rank) * length;
}

/* Where the tokens of x [B, T, ..] stand that are given no positions; NULL: at 0 and on. All layers read the same. */
static tx_tensor *places_of(const tx_tensor *x)
{
    tx_graph *graph = x->graph;
    if (graph->model->mesh.context.size == 1 || x->shape.rank < 2)
        return NULL;
    const tx_shape shape = TX_SHAPE(x->shape.dim[0], x->shape.dim[1]);
    tx_emit_args range = {.op = TX_OP_RANGE, .attrs = plain, .shape = &shape};
    range.attrs.first = graph->model->mesh.context.rank * (shape.dim[1] / 2);
    range.attrs.step = 1;
    range.attrs.rows = shape.dim[1];
    range.attrs.gap = gap_of(graph->model, shape.dim[1]);
    if (!graph->places || !tx_shape_equal(&graph->places->shape, &shape))
        graph->places = tx_emit(graph, &range);
    return graph->places;
}

/* The numbers in the model of the rows of x [B, T, C] that random numbers are drawn for. */
static void number_rows(const tx_tensor *x, tx_attrs *attrs)
{
    const tx_model *model = x->graph->model;
    if (model->mesh.context.size > 1 && x->shape.rank != 3)
        tx_graph_fail(x->graph, tx_fail(TX_UNSUPPORTED, "context parallelism: random numbers are drawn for [B, T, C]"));
    if (x->shape.rank != 3)
        return;
    attrs->draw.row = model->mesh.sequence ? model->mesh.tensor.rank * x->shape.dim[1]
                                           : model->mesh.context.rank * (x->shape.dim[1] / 2);
    attrs->gap = gap_of(model, x->shape.dim[1]);
}

tx_tensor *tx_embedding_padded(tx_tensor *tokens, tx_tensor *token_table, int64_t padding, tx_tensor *position_table,
                               tx_tensor *positions)
{
    tx_attrs attrs = plain;
    attrs.padding = padding < 0 ? 0 : padding + 1;
    if (!token_table)
        return NULL;
    if (tokens && position_table && !positions)
        positions = places_of(tokens);
    if (tokens && tx_parts_divide_rows(token_table))
        return tx_parts_embedding(tokens, token_table, padding, position_table, positions);
    return EMIT(tokens, .op = TX_OP_EMBEDDING, .attrs = attrs, .in = {tokens, token_table, position_table, positions});
}

tx_tensor *tx_embedding(tx_tensor *tokens, tx_tensor *token_table, tx_tensor *position_table, tx_tensor *positions)
{
    return tx_embedding_padded(tokens, token_table, -1, position_table, positions);
}

tx_tensor *tx_token_positions(tx_tensor *tokens, int32_t padding)
{
    tx_attrs attrs = plain;
    attrs.first = padding;
    return EMIT(tokens, .op = TX_OP_TOKEN_POSITIONS, .attrs = attrs, .in = {tokens});
}

tx_tensor *tx_gather(tx_tensor *table, tx_tensor *rows)
{
    return rows ? EMIT(table, .op = TX_OP_GATHER, .attrs = plain, .in = {table, rows}) : NULL;
}

tx_tensor *tx_scatter_add(tx_tensor *indices, tx_tensor *src, int64_t rows)
{
    tx_attrs attrs = plain;
    attrs.rows = rows;
    return src ? EMIT(indices, .op = TX_OP_SCATTER_ADD, .attrs = attrs, .in = {indices, src}) : NULL;
}

tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices)
{
    TX_NEEDS(x && indices, NULL);
    tx_emit_args args = {.op = TX_OP_TOP_K, .attrs = plain, .in = {x}};
    args.attrs.rows = k;
    tx_tensor *y = tx_emit(x->graph, &args);
    *indices = y ? args.out[TX_OUT(top_k, indices)] : NULL;
    return y;
}

bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity, tx_routes *routes)
{
    TX_NEEDS(choices && routes, false);
    tx_emit_args args = {.op = TX_OP_ROUTE, .attrs = plain, .in = {choices, ids}};
    args.attrs.rows = experts;
    args.attrs.scale = capacity;
    if (!tx_emit(choices->graph, &args))
        return false;
    *routes = (tx_routes){args.out[TX_OUT(route, tokens)], args.out[TX_OUT(route, places)],
                          args.out[TX_OUT(route, offsets)], args.out[TX_OUT(route, counts)]};
    return true;
}

tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose)
{
    tx_attrs attrs = plain;
    attrs.trans_b = transpose;
    return w && offsets ? EMIT(x, .op = TX_OP_GROUPED_MATMUL, .attrs = attrs, .in = {x, w, offsets}) : NULL;
}

tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes)
{
    TX_NEEDS(routes, NULL);
    return weights ? EMIT(x, .op = TX_OP_COMBINE, .attrs = plain, .in = {x, weights, routes->places, routes->tokens})
                   : NULL;
}

tx_tensor *tx_layer_norm(tx_tensor *x, tx_tensor *gamma, tx_tensor *beta, float eps)
{
    tx_attrs attrs = plain;
    attrs.eps = eps;
    return gamma && beta ? EMIT(x, .op = TX_OP_LAYER_NORM, .attrs = attrs, .in = {x, gamma, beta}) : NULL;
}

tx_tensor *tx_rms_norm(tx_tensor *x, tx_tensor *gamma, float eps)
{
    tx_attrs attrs = plain;
    attrs.eps = eps;
    return gamma ? EMIT(x, .op = TX_OP_RMS_NORM, .attrs = attrs, .in = {x, gamma}) : NULL;
}

tx_tensor *tx_head_norm(tx_tensor *x, tx_tensor *gamma, int32_t heads, int32_t kv_heads, float eps)
{
    TX_NEEDS(x && gamma, NULL);
    tx_attrs attrs = plain;
    attrs.attention.heads = heads;
    attrs.attention.kv_heads = kv_heads;
    attrs.eps = eps;
    const int64_t all = (int64_t)heads + 2 * (int64_t)kv_heads, last = tx_shape_last(&x->shape);
    char shape[96];
    if (heads < 1 || kv_heads < 1 || last % all != 0) {
        tx_graph_fail(x->graph, tx_fail(TX_INVALID, "head_norm: %d heads and %d of keys and values do not divide %s",
                                        heads, kv_heads, tx_shape_text(&x->shape, shape, sizeof shape)));
        return NULL;
    }
    tx_tensor *by_head = tx_reshape(x, TX_SHAPE(tx_shape_rows(&x->shape), all, last / all));
    tx_tensor *y = by_head ? EMIT(x, .op = TX_OP_RMS_NORM, .attrs = attrs, .in = {by_head, gamma}) : NULL;
    return y ? tx_reshape(y, x->shape) : NULL;
}

tx_tensor *tx_softmax(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_SOFTMAX, .attrs = plain, .in = {x});
}

tx_tensor *tx_gelu(tx_tensor *x, bool exact)
{
    tx_attrs attrs = plain;
    attrs.exact = exact;
    return EMIT(x, .op = TX_OP_GELU, .attrs = attrs, .in = {x});
}

tx_tensor *tx_silu(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_SILU, .attrs = plain, .in = {x});
}

tx_tensor *tx_rsqrt(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_RSQRT, .attrs = plain, .in = {x});
}

tx_tensor *tx_tanh(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_TANH, .attrs = plain, .in = {x});
}

tx_tensor *tx_swiglu(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_SWIGLU, .attrs = plain, .in = {x});
}

tx_tensor *tx_add(tx_tensor *a, tx_tensor *b)
{
    return b ? EMIT(a, .op = TX_OP_ADD, .attrs = plain, .in = {a, b}) : NULL;
}

tx_tensor *tx_mul(tx_tensor *a, tx_tensor *b)
{
    return b ? EMIT(a, .op = TX_OP_MUL, .attrs = plain, .in = {a, b}) : NULL;
}

tx_tensor *tx_scale(tx_tensor *x, float factor)
{
    tx_attrs attrs = plain;
    attrs.alpha = factor;
    return EMIT(x, .op = TX_OP_SCALE, .attrs = attrs, .in = {x});
}

tx_tensor *tx_dropout(tx_tensor *x, float p, int32_t site)
{
    if (p == 0.0f || !x)
        return x;
    tx_attrs attrs = plain;
    attrs.draw.p = p;
    attrs.draw.site = site;
    number_rows(x, &attrs);
    return EMIT(x, .op = TX_OP_DROPOUT, .attrs = attrs, .in = {x});
}

tx_tensor *tx_noise(tx_tensor *x, float scale, int32_t site)
{
    tx_attrs attrs = plain;
    attrs.scale = scale;
    attrs.draw.site = site;
    if (x)
        number_rows(x, &attrs);
    return EMIT(x, .op = TX_OP_NOISE, .attrs = attrs, .in = {x});
}

static tx_attrs attention_attrs(const tx_tensor *qkv, const tx_attention_options *o)
{
    tx_attrs attrs = plain;
    int64_t parts = o->heads + 2 * (int64_t)o->kv_heads;
    int64_t head_size = parts > 0 ? tx_shape_last(&qkv->shape) / parts : 1;
    attrs.attention.heads = o->heads;
    attrs.attention.kv_heads = o->kv_heads;
    attrs.attention.causal = o->causal;
    attrs.scale = o->scale != 0.0f ? o->scale : 1.0f / sqrtf((float)head_size);
    attrs.draw.p = o->dropout;
    attrs.draw.site = o->site;
    attrs.attention.window = o->window;
    attrs.first = o->first_head;
    return attrs;
}

static bool options_fit(tx_tensor *x, size_t size, size_t wanted)
{
    if (size == wanted)
        return true;
    tx_graph_fail(x->graph, tx_fail(TX_INVALID, "attention options: size is %zu, wanted %zu", size, wanted));
    return false;
}

tx_tensor *tx_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, const tx_attention_options *options)
{
    if (!qkv || !options_fit(qkv, options->size, sizeof *options))
        return NULL;
    return EMIT(qkv, .op = TX_OP_ATTENTION, .attrs = attention_attrs(qkv, options), .in = {qkv, lengths, starts});
}

tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                               tx_tensor *sources, const tx_attention_options *options)
{
    if (!qkv || !k_cache || !v_cache || !positions || !options_fit(qkv, options->size, sizeof *options))
        return NULL;
    tx_attrs attrs = attention_attrs(qkv, options);
    tx_emit_args reorder = {.op = TX_OP_KV_REORDER,
                            .attrs = plain,
                            .in = {k_cache, v_cache, sources, positions},
                            .out = {k_cache, v_cache}};
    tx_emit_args append = {
        .op = TX_OP_KV_APPEND, .attrs = attrs, .in = {qkv, k_cache, v_cache, positions}, .out = {k_cache, v_cache}};
    if ((sources && !tx_emit(qkv->graph, &reorder)) || !tx_emit(qkv->graph, &append))
        return NULL;
    return EMIT(qkv, .op = TX_OP_ATTENTION_CACHED, .attrs = attrs, .in = {qkv, k_cache, v_cache, positions});
}

tx_tensor *tx_rotary(tx_tensor *x, int32_t heads, int32_t head_size, const tx_rope *rope, tx_tensor *positions)
{
    TX_NEEDS(x && rope, NULL);
    tx_attrs attrs = plain;
    attrs.attention.heads = heads;
    attrs.attention.head_size = head_size;
    attrs.rope = *rope;
    return EMIT(x, .op = TX_OP_ROTARY, .attrs = attrs, .in = {x, positions ? positions : places_of(x)});
}

tx_tensor *tx_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab)
{
    return tx_cross_entropy_smoothed(logits, labels, vocab, 0.0f);
}

tx_tensor *tx_cross_entropy_smoothed(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing)
{
    tx_attrs attrs = plain;
    attrs.vocab = vocab;
    attrs.smoothing = smoothing;
    if (logits && !(smoothing >= 0.0f && smoothing < 1.0f)) {
        tx_graph_fail(logits->graph, tx_fail(TX_INVALID, "cross_entropy: smoothing %g must be at least 0 and below 1",
                                             (double)smoothing));
        return NULL;
    }
    if (logits && labels && tx_parts_divide_columns(logits))
        return tx_parts_cross_entropy(logits, labels, vocab, smoothing);
    return labels ? EMIT(logits, .op = TX_OP_CROSS_ENTROPY, .attrs = attrs, .in = {logits, labels}) : NULL;
}

/* -log softmax spread evenly over the labels is the log-sum-exp less the mean. */
tx_tensor *tx_log_sum_exp(tx_tensor *x)
{
    TX_NEEDS(x, NULL);
    tx_attrs attrs = plain;
    tx_tensor *mean = tx_reduce(x, TX_REDUCE_MEAN, TX_AXIS_LAST);
    tx_tensor *labels = mean ? tx_range(x->graph, mean->shape, 0, 0) : NULL;
    attrs.vocab = tx_shape_last(&x->shape);
    attrs.smoothing = 1.0f;
    return labels ? tx_add(EMIT(x, .op = TX_OP_CROSS_ENTROPY, .attrs = attrs, .in = {x, labels}), mean) : NULL;
}

tx_tensor *tx_distillation(tx_tensor *logits, tx_tensor *teacher, tx_tensor *labels, int64_t vocab, float temperature,
                           float alpha)
{
    tx_attrs attrs = plain;
    attrs.vocab = vocab;
    attrs.scale = temperature;
    attrs.alpha = alpha;
    if (logits && tx_parts_divide_columns(logits)) {
        tx_graph_fail(logits->graph, tx_fail(TX_UNSUPPORTED, "distillation: ranks divide the vocabulary: leave out "
                                                             "the teacher or --tensor_parallel"));
        return NULL;
    }
    return teacher && labels ? EMIT(logits, .op = TX_OP_DISTILLATION, .attrs = attrs, .in = {logits, teacher, labels})
                             : NULL;
}

static tx_tensor *reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis, int32_t control)
{
    tx_attrs attrs = plain;
    attrs.reduction = reduction;
    attrs.axis = axis;
    attrs.control = control;
    return EMIT(x, .op = TX_OP_REDUCE, .attrs = attrs, .in = {x});
}

tx_tensor *tx_mean_loss(tx_tensor *losses)
{
    return reduce(losses, TX_REDUCE_SUM, TX_AXIS_ALL, TX_CONTROL_INVERSE_LABELS);
}

tx_tensor *tx_share_loss(tx_tensor *loss)
{
    tx_attrs attrs = plain;
    attrs.control = TX_CONTROL_LABEL_SHARE;
    return EMIT(loss, .op = TX_OP_SCALE, .attrs = attrs, .in = {loss});
}

tx_tensor *tx_mean_of_tokens(tx_tensor *mean)
{
    tx_attrs attrs = plain;
    attrs.control = TX_CONTROL_POSITIONS_PER_TOKEN;
    return EMIT(mean, .op = TX_OP_SCALE, .attrs = attrs, .in = {mean});
}

tx_status tx_add_to_result(tx_tensor *x, tx_result result)
{
    TX_NEEDS(x, TX_INVALID);
    if (result != TX_RESULT_DROPPED)
        return tx_graph_fail(x->graph, tx_fail(TX_INVALID, "add_to_result: result %d is not for graphs", (int)result));
    tx_emit_args copy = {
        .op = TX_OP_COPY, .attrs = plain, .in = {x}, .out = {tx_tensor_result(x->graph, TX_RESULT_DROPPED)}};
    copy.attrs.accumulate = TX_ADD_CONTROL;
    return copy.out[0] && tx_emit(x->graph, &copy) ? TX_OK : x->graph->status;
}

tx_tensor *tx_reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis)
{
    return reduce(x, reduction, axis, -1);
}

tx_tensor *tx_cast(tx_tensor *x, tx_dtype dtype)
{
    return EMIT(x, .op = TX_OP_CAST, .attrs = plain, .in = {x}, .dtype = &dtype);
}

tx_tensor *tx_copy(tx_tensor *x)
{
    return EMIT(x, .op = TX_OP_COPY, .attrs = plain, .in = {x});
}

tx_tensor *tx_fill(tx_graph *graph, tx_shape shape, float value)
{
    TX_NEEDS(graph, NULL);
    tx_attrs attrs = plain;
    attrs.alpha = value;
    return tx_emit(graph, &(tx_emit_args){.op = TX_OP_FILL, .attrs = attrs, .shape = &shape});
}

tx_tensor *tx_range(tx_graph *graph, tx_shape shape, int32_t first, int32_t step)
{
    TX_NEEDS(graph, NULL);
    tx_attrs attrs = plain;
    attrs.first = first;
    attrs.step = step;
    return tx_emit(graph, &(tx_emit_args){.op = TX_OP_RANGE, .attrs = attrs, .shape = &shape});
}

tx_tensor *tx_broadcast(tx_tensor *x, tx_shape shape, tx_axis axis)
{
    tx_attrs attrs = plain;
    attrs.axis = axis;
    return EMIT(x, .op = TX_OP_BROADCAST, .attrs = attrs, .in = {x}, .shape = &shape);
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
    return EMIT(x, .op = TX_OP_RESHAPE, .attrs = plain, .in = {x}, .shape = &shape);
}
