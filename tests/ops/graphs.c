/* SPDX-License-Identifier: Apache-2.0
 * One small graph for each differentiable op, and graphs that combine them: tied parameters, values used twice,
 * accumulation over micro-batches. */
#include "tests/ops/graphs.h"

#include <math.h>
#include <stdio.h>

static tx_tensor *parameter(tx_builder *b, const char *name, tx_init init, float width, tx_shape shape)
{
    tx_param_spec spec = {.shape = shape, .init = init, .scale = width};
    return tx_param(b->graph, name, &spec);
}

/* A parameter in [-1, 1). */
static tx_tensor *real(tx_builder *b, const char *name, tx_shape shape)
{
    return parameter(b, name, TX_INIT_UNIFORM, 1.0f, shape);
}

static tx_tensor *input(tx_builder *b, tx_dtype dtype, tx_shape shape, double lo, double hi)
{
    char name[16];
    int32_t i = b->inputs++;
    snprintf(name, sizeof name, "input %d", i);
    b->input[i].tensor = tx_input(b->graph, name, dtype, shape);
    b->input[i].lo = lo;
    b->input[i].hi = hi;
    return b->input[i].tensor;
}

/* A graph that one expression builds. */
#define GRAPH(name, built)                \
    static tx_tensor *name(tx_builder *b) \
    {                                     \
        return built;                     \
    }

/* ---- Contraction -------------------------------------------------------------------------------- */

GRAPH(linear,
      tx_linear(real(b, "x", TX_SHAPE(2, 3, 5)), real(b, "w", TX_SHAPE(5, 4)), real(b, "b", TX_SHAPE(4)), false))
GRAPH(linear_transposed, tx_linear(real(b, "x", TX_SHAPE(2, 3, 5)), real(b, "w", TX_SHAPE(4, 5)), NULL, true))

static tx_tensor *product(tx_builder *b, tx_shape left, tx_shape right, bool trans_a, bool trans_b)
{
    return tx_matmul(real(b, "a", left), real(b, "b", right), trans_a, trans_b);
}

GRAPH(matmul_nn, product(b, TX_SHAPE(2, 3, 5), TX_SHAPE(2, 5, 4), false, false))
GRAPH(matmul_tn, product(b, TX_SHAPE(2, 5, 3), TX_SHAPE(2, 5, 4), true, false))
GRAPH(matmul_nt, product(b, TX_SHAPE(2, 3, 5), TX_SHAPE(2, 4, 5), false, true))
GRAPH(matmul_tt, product(b, TX_SHAPE(2, 5, 3), TX_SHAPE(2, 4, 5), true, true))
GRAPH(matmul_shared_right, product(b, TX_SHAPE(2, 3, 5), TX_SHAPE(5, 4), false, false))
GRAPH(matmul_shared_right_tt, product(b, TX_SHAPE(2, 5, 3), TX_SHAPE(4, 5), true, true))
GRAPH(matmul_shared_left, product(b, TX_SHAPE(3, 5), TX_SHAPE(2, 5, 4), false, false))
GRAPH(matmul_shared_left_tt, product(b, TX_SHAPE(5, 3), TX_SHAPE(2, 4, 5), true, true))

static tx_tensor *attention_causal(tx_builder *b)
{
    tx_attention_options o = {.size = sizeof o, .heads = 4, .kv_heads = 2, .causal = true};
    return tx_attention(real(b, "qkv", TX_SHAPE(2, 5, 8 * 3)), NULL, NULL, &o);
}

static tx_tensor *mla_qkv(tx_builder *b)
{
    return tx_mla_qkv(real(b, "q", TX_SHAPE(2, 3, 2 * 7)), real(b, "kv", TX_SHAPE(2, 3, 2 * 8)),
                      real(b, "rope", TX_SHAPE(2, 3, 4)), 2, true);
}

static tx_tensor *attention_bounded(tx_builder *b)
{
    tx_attention_options o = {.size = sizeof o, .heads = 2, .kv_heads = 1, .causal = true, .window = 3};
    tx_tensor *starts = input(b, TX_I32, TX_SHAPE(2, 6), 0.0, 4.0);
    return tx_attention(real(b, "qkv", TX_SHAPE(2, 6, 4 * 3)), NULL, starts, &o);
}

static tx_tensor *attention_capped(tx_builder *b)
{
    tx_attention_options o = {.size = sizeof o, .heads = 4, .kv_heads = 2, .causal = true, .cap = 0.7f};
    o.sinks = parameter(b, "sinks", TX_INIT_NORMAL, 0.5f, TX_SHAPE(4));
    return tx_attention(real(b, "qkv", TX_SHAPE(2, 5, 8 * 3)), NULL, NULL, &o);
}

static tx_tensor *attention_lengths(tx_builder *b)
{
    tx_attention_options o = {.size = sizeof o, .heads = 2, .kv_heads = 2, .scale = 0.7f, .dropout = 0.25f, .site = 4};
    tx_tensor *lengths = input(b, TX_I32, TX_SHAPE(3), 2.0, 6.0);
    return tx_attention(real(b, "qkv", TX_SHAPE(3, 5, 6 * 4)), lengths, NULL, &o);
}

/* ---- Normalisation -------------------------------------------------------------------------------- */

GRAPH(layer_norm, tx_layer_norm(real(b, "x", TX_SHAPE(2, 3, 7)), parameter(b, "gamma", TX_INIT_ONE, 0.5f, TX_SHAPE(7)),
                                real(b, "beta", TX_SHAPE(7)), 1e-2f))
GRAPH(rms_norm,
      tx_rms_norm(real(b, "x", TX_SHAPE(2, 3, 7)), parameter(b, "gamma", TX_INIT_ONE, 0.5f, TX_SHAPE(7)), 1e-2f))

static tx_tensor *head_norm(tx_builder *b)
{
    tx_tensor *gamma = parameter(b, "gamma", TX_INIT_NORMAL, 0.5f, TX_SHAPE(2 * 3));
    return tx_head_norm(real(b, "x", TX_SHAPE(2, 3, 4 * 3)), gamma, 2, 1, 1e-2f);
}

GRAPH(softmax, tx_softmax(real(b, "x", TX_SHAPE(3, 7))))

static tx_tensor *cross_entropy(tx_builder *b)
{
    b->labels = input(b, TX_I32, TX_SHAPE(2, 6), 0.0, 9.0);
    return tx_cross_entropy(real(b, "x", TX_SHAPE(2, 6, 11)), b->labels, 9);
}

static tx_tensor *distillation(tx_builder *b)
{
    b->labels = input(b, TX_I32, TX_SHAPE(2, 6), 0.0, 9.0);
    tx_tensor *teacher = input(b, TX_F32, TX_SHAPE(2, 6, 11), -2.0, 2.0);
    return tx_distillation(real(b, "x", TX_SHAPE(2, 6, 11)), teacher, b->labels, 9, 2.0f, 0.3f);
}

GRAPH(mean_loss, tx_mean_loss(tx_mul(real(b, "x", TX_SHAPE(2, 6)), real(b, "y", TX_SHAPE(2, 6)))))

static tx_tensor *reduction(tx_builder *b, tx_reduction kind)
{
    tx_tensor *x = real(b, "x", TX_SHAPE(2, 3, 4));
    tx_tensor *all = tx_reduce(x, kind, TX_AXIS_ALL), *rows = tx_reduce(x, kind, TX_AXIS_ROWS);
    tx_tensor *last = tx_reshape(tx_reduce(x, kind, TX_AXIS_LAST), TX_SHAPE(6, 1));
    tx_tensor *outer = tx_matmul(last, tx_reshape(rows, TX_SHAPE(1, 4)), false, false);
    return tx_mul(tx_reshape(outer, TX_SHAPE(24, 1)),
                  tx_matmul(tx_fill(b->graph, TX_SHAPE(24, 1), 0.5f), tx_reshape(all, TX_SHAPE(1, 1)), false, false));
}

GRAPH(reduce_sum, reduction(b, TX_REDUCE_SUM))
GRAPH(reduce_mean, reduction(b, TX_REDUCE_MEAN))
GRAPH(reduce_sumsq, reduction(b, TX_REDUCE_SUMSQ))

/* ---- Element-wise ----------------------------------------------------------------------------------- */

GRAPH(wide, parameter(b, "x", TX_INIT_UNIFORM, 2.0f, TX_SHAPE(3, 10)))
GRAPH(gelu_tanh, tx_gelu(wide(b), false))
GRAPH(gelu_exact, tx_gelu(wide(b), true))
GRAPH(silu, tx_silu(wide(b)))
GRAPH(tanh_, tx_tanh(wide(b)))
GRAPH(sigmoid_, tx_sigmoid(wide(b)))

GRAPH(exponential, tx_exponential(wide(b)))

/* Of numbers from 1 on. */
static tx_tensor *logarithm(tx_builder *b)
{
    tx_tensor *x = wide(b);
    return tx_logarithm(tx_add(tx_mul(x, x), tx_fill(b->graph, *tx_tensor_shape(x), 1.0f)));
}

/* Of numbers from 1 on. */
static tx_tensor *rsqrt_(tx_builder *b)
{
    tx_tensor *x = wide(b);
    return tx_rsqrt(tx_add(tx_mul(x, x), tx_fill(b->graph, *tx_tensor_shape(x), 1.0f)));
}

/* Columns times numbers of their own. */
static tx_tensor *broadcast_columns(tx_builder *b)
{
    tx_tensor *x = wide(b);
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *sums = tx_reduce(x, TX_REDUCE_SUM, TX_AXIS_ROWS);
    return tx_mul(x, tx_broadcast(sums, shape, TX_AXIS_ROWS));
}

GRAPH(swiglu, tx_swiglu(wide(b)))
GRAPH(swiglu_clamped, tx_swiglu_clamped(wide(b), 1.702f, 1.5f))
GRAPH(geglu, tx_geglu(wide(b)))
GRAPH(add, tx_add(wide(b), real(b, "y", TX_SHAPE(3, 10))))
GRAPH(mul, tx_mul(wide(b), real(b, "y", TX_SHAPE(3, 10))))
GRAPH(scale, tx_scale(wide(b), -1.75f))
GRAPH(noise, tx_noise(tx_reshape(wide(b), TX_SHAPE(3, 2, 5)), 0.3f, 5))
GRAPH(dropout, tx_dropout(tx_reshape(wide(b), TX_SHAPE(3, 2, 5)), 0.4f, 9))
GRAPH(rotary, tx_rotary(real(b, "x", TX_SHAPE(2, 5, 3 * 6)), 2, 6, &(tx_rope)TX_ROPE(100.0f), NULL, NULL))

/* ---- Movement --------------------------------------------------------------------------------------- */

static tx_tensor *embedding(tx_builder *b)
{
    tx_tensor *tokens = input(b, TX_I32, TX_SHAPE(3, 4), 0.0, 6.0);
    return tx_embedding(tokens, real(b, "tokens", TX_SHAPE(6, 5)), real(b, "positions", TX_SHAPE(7, 5)), NULL);
}

GRAPH(transpose, tx_transpose(real(b, "x", TX_SHAPE(2, 3, 4, 5))))
GRAPH(shift_rows, tx_shift_rows(real(b, "x", TX_SHAPE(2, 3, 6)), 4, 2, -1))
GRAPH(place_rows, tx_place_rows(2, (tx_tensor *[]){real(b, "x", TX_SHAPE(2, 3)), real(b, "y", TX_SHAPE(4, 3))},
                                (const int64_t[]){5, 0}, 7, 2, 1.5f))
GRAPH(gather, tx_gather(real(b, "table", TX_SHAPE(6, 5)), input(b, TX_I32, TX_SHAPE(2, 7), 0.0, 6.0)))
GRAPH(scatter_add, tx_scatter_add(input(b, TX_I32, TX_SHAPE(7), 0.0, 4.0), real(b, "src", TX_SHAPE(7, 5)), 4))
GRAPH(reshape, tx_reshape(wide(b), TX_SHAPE(2, 15)))

static tx_tensor *top_k(tx_builder *b)
{
    tx_tensor *indices;
    return tx_top_k(real(b, "x", TX_SHAPE(2, 2, 5)), 2, &indices); /* none of them nearly equal */
}

/* Normalised scores of elements of one of two groups. The bias has no gradient. */
static tx_tensor *choose(tx_builder *b)
{
    tx_tensor *indices, *x = tx_sigmoid(real(b, "x", TX_SHAPE(2, 2, 6)));
    tx_expert_choice how = {.bias = x ? tx_fill(b->graph, TX_SHAPE(6), 0.1f) : NULL,
                            .groups = 2,
                            .kept = 1,
                            .best = 2,
                            .normalize = true,
                            .eps = 1e-20f,
                            .scale = 2.5f};
    return tx_choose(x, 2, &how, &indices);
}

GRAPH(log_sum_exp, tx_log_sum_exp(wide(b)))

/* A layer of five experts, of which each of nine tokens uses two. With a capacity some choices are dropped. */
static tx_tensor *experts(tx_builder *b, float capacity)
{
    enum { N = 9, C = 6, E = 5, K = 2, F = 4 };
    tx_tensor *x = real(b, "x", TX_SHAPE(N, C)), *choices;
    tx_tensor *weights =
        tx_softmax(tx_top_k(tx_linear_full(x, real(b, "router", TX_SHAPE(E, C)), NULL, true), K, &choices));
    tx_routes routes;
    if (!tx_route(choices, NULL, E, capacity, &routes))
        return NULL;
    tx_tensor *h =
        tx_grouped_linear(tx_gather(x, routes.tokens), real(b, "up", TX_SHAPE(E, 2 * F, C)), routes.offsets, true);
    h = tx_grouped_linear(tx_swiglu(h), real(b, "down", TX_SHAPE(E, F, C)), routes.offsets, false);
    return tx_combine(h, weights, &routes);
}

GRAPH(experts_dropless, experts(b, 0))
GRAPH(experts_capacity, experts(b, 3))

/* ---- Together --------------------------------------------------------------------------------------- */

/* A value that three nodes use, and a parameter that two do. */
static tx_tensor *fan_out(tx_builder *b)
{
    tx_tensor *x = wide(b), *h = tx_gelu(x, false);
    return tx_add(tx_mul(h, h), tx_add(tx_scale(h, 0.5f), tx_silu(x)));
}

/* The same matrix from both sides, and a bias used twice. */
static tx_tensor *tied(tx_builder *b)
{
    tx_tensor *x = input(b, TX_F32, TX_SHAPE(3, 5), -1.0, 1.0), *w = real(b, "w", TX_SHAPE(4, 5));
    tx_tensor *bias = real(b, "b", TX_SHAPE(4));
    tx_tensor *h = tx_silu(tx_linear(x, w, bias, true));
    return tx_linear(tx_linear(h, w, NULL, false), w, bias, true);
}

/* A whole small GPT-2: tied embeddings, residuals, ignored labels, padded vocabulary. */
static tx_tensor *transformer(tx_builder *b)
{
    enum { B = 2, T = 5, C = 8, V = 13, PADDED = 16 };
    tx_tensor *tokens = input(b, TX_I32, TX_SHAPE(B, T), 0.0, V);
    b->labels = input(b, TX_I32, TX_SHAPE(B, T), 0.0, V);
    tx_tensor *table = real(b, "table", TX_SHAPE(PADDED, C));
    tx_tensor *x = tx_embedding(tokens, table, real(b, "positions", TX_SHAPE(T, C)), NULL);
    x = tx_dropout(x, 0.1f, 0);
    for (int layer = 0; layer < 2; layer++) {
        char name[5][16];
        for (int i = 0; i < 5; i++)
            snprintf(name[i], sizeof name[i], "%d.%d", layer, i);
        tx_attention_options o = {
            .size = sizeof o, .heads = 2, .kv_heads = 2, .causal = true, .dropout = 0.1f, .site = 2 * layer + 1};
        tx_tensor *gamma = parameter(b, name[0], TX_INIT_ONE, 0.5f, TX_SHAPE(C)), *beta = real(b, name[1], TX_SHAPE(C));
        tx_tensor *qkv =
            tx_linear(tx_layer_norm(x, gamma, beta, 1e-2f), real(b, name[2], TX_SHAPE(C, 3 * C)), NULL, false);
        x = tx_add(x, tx_attention(qkv, NULL, NULL, &o));
        tx_tensor *up =
            tx_gelu(tx_linear(x, parameter(b, name[3], TX_INIT_UNIFORM, 0.5f, TX_SHAPE(C, 2 * C)), NULL, false), false);
        x = tx_add(x, tx_linear(up, parameter(b, name[4], TX_INIT_UNIFORM, 0.5f, TX_SHAPE(2 * C, C)), NULL, false));
    }
    return tx_cross_entropy(tx_linear(x, table, NULL, true), b->labels, V);
}

/* A recurrent layer: the convolution feeds linear attention, whose rates are trained, too. */
static tx_tensor *recurrent(tx_builder *b, bool delta)
{
    const tx_scan_options o = {.size = sizeof o,
                               .delta = delta,
                               .high = INFINITY,
                               .k_heads = 1,
                               .v_heads = 2,
                               .k_size = 3,
                               .eps = delta ? 1e-6f : 0.0f,
                               .scale = 0.7f};
    tx_tensor *starts = input(b, TX_I32, TX_SHAPE(2, 5), 0, 5);
    tx_tensor *qkv = tx_short_conv(real(b, "x", TX_SHAPE(2, 5, 10)), real(b, "w", TX_SHAPE(10, 3)),
                                   real(b, "bias", TX_SHAPE(10)), starts, true);
    tx_tensor *rates = tx_scan_rates(real(b, "a", TX_SHAPE(2, 5, delta ? 4 : 2)), real(b, "a_log", TX_SHAPE(2)),
                                     real(b, "dt_bias", TX_SHAPE(2)), &o);
    return tx_linear_scan(qkv, rates, delta ? NULL : real(b, "skip", TX_SHAPE(2)), starts, &o);
}

GRAPH(delta_rule, recurrent(b, true))
GRAPH(state_space, recurrent(b, false))

static const tx_graph_case cases[] = {
    {"linear", linear, 1},
    {"linear transposed", linear_transposed, 1},
    {"matmul", matmul_nn, 1},
    {"matmul ta", matmul_tn, 1},
    {"matmul tb", matmul_nt, 1},
    {"matmul ta tb", matmul_tt, 1},
    {"matmul, one right operand", matmul_shared_right, 1},
    {"matmul ta tb, one right operand", matmul_shared_right_tt, 1},
    {"matmul, one left operand", matmul_shared_left, 1},
    {"matmul ta tb, one left operand", matmul_shared_left_tt, 1},
    {"attention, causal, grouped", attention_causal, 1},
    {"attention, cap, sinks", attention_capped, 1},
    {"attention, lengths, dropout", attention_lengths, 1},
    {"attention, window, starts", attention_bounded, 1},
    {"layer_norm", layer_norm, 1},
    {"rms_norm", rms_norm, 1},
    {"head_norm", head_norm, 1},
    {"softmax", softmax, 1},
    {"cross_entropy", cross_entropy, 1},
    {"distillation", distillation, 1},
    {"mean_loss", mean_loss, 1},
    {"reduce sum", reduce_sum, 1},
    {"reduce mean", reduce_mean, 1},
    {"reduce sumsq", reduce_sumsq, 1},
    {"gelu tanh", gelu_tanh, 1},
    {"gelu exact", gelu_exact, 1},
    {"silu", silu, 1},
    {"tanh", tanh_, 1},
    {"sigmoid", sigmoid_, 1},
    {"exponential", exponential, 1},
    {"logarithm", logarithm, 1},
    {"rsqrt", rsqrt_, 1},
    {"broadcast", broadcast_columns, 1},
    {"swiglu", swiglu, 1},
    {"swiglu, clamped", swiglu_clamped, 1},
    {"geglu", geglu, 1},
    {"add", add, 1},
    {"mul", mul, 1},
    {"scale", scale, 1},
    {"dropout", dropout, 1},
    {"noise", noise, 1},
    {"rotary", rotary, 1},
    {"embedding", embedding, 1},
    {"transpose", transpose, 1},
    {"shift_rows", shift_rows, 1},
    {"place_rows", place_rows, 2},
    {"gather", gather, 1},
    {"scatter_add", scatter_add, 1},
    {"reshape", reshape, 1},
    {"mla_qkv", mla_qkv, 1},
    {"top_k", top_k, 1},
    {"choose", choose, 1},
    {"log_sum_exp", log_sum_exp, 1},
    {"experts", experts_dropless, 2},
    {"experts with a capacity", experts_capacity, 1},
    {"short_conv, delta rule, starts", delta_rule, 1},
    {"short_conv, state space, starts", state_space, 1},
    {"fan-out", fan_out, 1},
    {"tied parameters, two micro-batches", tied, 2},
    {"transformer, two micro-batches", transformer, 2},
};

const tx_graph_case *tx_graph_cases(int32_t *count)
{
    *count = (int32_t)(sizeof cases / sizeof cases[0]);
    return cases;
}
