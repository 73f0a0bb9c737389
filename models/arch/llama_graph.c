/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of the Llama family: pre-norm blocks, rotary embeddings, grouped-query attention (Ainslie et al., GQA,
 * 2023), gated MLPs or experts (experts.h), and what its variants have instead. */
#include "models/arch/alibi.h"
#include "models/arch/llama_family.h"
#include "models/arch/mixer.h"
#include "models/arch/relative.h"

#include <math.h>

/* The weight of an RMS norm. */
static tx_tensor *gamma_of(const tx_stack *b, tx_tensor *gamma)
{
    if (!gamma || !llama_of(b->config)->norms.add_one)
        return gamma;
    return tx_add(gamma, tx_fill(b->graph, *tx_tensor_shape(gamma), 1.0f));
}

/* A norm, or x if the family has none at this place. */
static tx_tensor *norm(const tx_stack *b, tx_tensor *x, int32_t weight)
{
    const llama_config *c = llama_of(b->config);
    const float eps = (float)c->norms.eps;
    const bool bare = (c->norms.bare && (weight == INPUT_NORM || weight == POST_NORM || weight == FINAL_NORM)) ||
                      (c->norms.bare && c->norms.bare_heads && weight == EMBED_NORM);
    if (bare)
        return c->norms.centred ? tx_layer_norm(x, tx_fill(b->graph, TX_SHAPE(c->base.width), 1.0f),
                                                tx_fill(b->graph, TX_SHAPE(c->base.width), 0.0f), eps)
                                : tx_rms_norm(x, tx_fill(b->graph, TX_SHAPE(c->base.width), 1.0f), eps);
    if (!tx_stack_has(b, weight))
        return x;
    tx_tensor *gamma = gamma_of(b, tx_tp_param(tx_stack_weight(b, weight)));
    if (tx_stack_has(b, weight + 1))
        return tx_layer_norm(x, gamma, tx_tp_param(tx_stack_weight(b, weight + 1)), eps);
    return c->norms.centred ? tx_layer_norm(x, gamma, tx_fill(b->graph, TX_SHAPE(c->base.width), 0.0f), eps)
                            : tx_rms_norm(x, gamma, eps);
}

/* RMS norms of q and k: of each head, or of all heads together. */
static tx_tensor *norm_heads(tx_stack *b, tx_tensor *qkv, int32_t heads, int32_t of_kv)
{
    const llama_config *c = llama_of(b->config);
    if (tx_stack_has(b, Q_NORM)) {
        tx_llama_one_rank(b, "norms with weights for each head");
        return tx_llama_norm_each(b, qkv, heads, of_kv, head_size(c));
    }
    if (c->norms.bare_heads)
        return tx_head_norm(qkv, tx_fill(b->graph, TX_SHAPE(2 * head_size(c)), 1.0f), heads, of_kv,
                            (float)c->norms.eps);
    if (!tx_stack_has(b, HEAD_NORM))
        return qkv;
    if (c->norms.whole)
        tx_llama_one_rank(b, "norms over all heads");
    tx_tensor *gamma = gamma_of(b, tx_tp_input(tx_stack_weight(b, HEAD_NORM)));
    return c->norms.whole ? tx_stack_whole_norms(qkv, gamma, heads * head_size(c), (float)c->norms.eps)
                          : tx_head_norm(qkv, gamma, heads, of_kv, (float)c->norms.eps);
}

/* Splits q with gates | k | v, where each head's gate follows its q, into q | k | v and *gate. */
static tx_tensor *split_gate(tx_tensor *x, int32_t heads, int32_t of_kv, int32_t size, tx_tensor **gate)
{
    const int64_t q = heads * size, all = q + 2 * of_kv * size;
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *pairs = tx_reshape(tx_shift_rows(x, 2 * q, 0, 0), TX_SHAPE(tx_shape_rows(&shape), heads, 2, size));
    pairs = tx_reshape(tx_transpose(pairs), TX_SHAPE(shape.dim[0], shape.dim[1], 2 * q));
    *gate = tx_shift_rows(pairs, q, q, 0);
    tx_tensor *only_q = tx_shift_rows(tx_shift_rows(pairs, q, 0, 0), all, 0, 0);
    return tx_add(only_q, tx_shift_rows(tx_shift_rows(x, all - q, 2 * q, 0), all, -q, 0));
}

/* x [B, T, C] -> q | k | v */
static tx_tensor *project(tx_stack *b, tx_tensor *x, int32_t heads, int32_t size)
{
    tx_tensor *qkv = tx_stack_linear(b, x, QKV_PROJ, QKV_BIAS);
    if (llama_of(b->config)->attention.by_group) {
        tx_llama_one_rank(b, "groups of heads");
        return tx_llama_ungroup(qkv, heads, kv_heads(llama_of(b->config)), size);
    }
    if (!qkv || !llama_of(b->config)->attention.by_head)
        return qkv;
    const tx_shape shape = *tx_tensor_shape(qkv);
    return tx_reshape(tx_transpose(tx_reshape(qkv, TX_SHAPE(tx_shape_rows(&shape), heads, 3, size))), shape);
}

static double score_scale(const llama_config *c)
{
    const double size = c->attention.query_scalar > 0 ? (double)c->attention.query_scalar : (double)head_size(c);
    const double scale =
        c->attention.query_scalar <= 0 && c->attention.multiplier > 0 ? c->attention.multiplier : 1 / sqrt(size);
    return c->attention.key_multiplier > 0 ? c->attention.key_multiplier * scale : scale;
}

int64_t tx_llama_rates(const tx_config *config, int64_t length, float *rates)
{
    const llama_config *c = llama_of(config);
    if (c->positions.rope.type != TX_ROPE_DYNAMIC && c->positions.rope.type != TX_ROPE_LONGROPE)
        return 0;
    const int64_t size = c->latent.rank ? c->latent.rotated : head_size(c);
    const tx_rope rope = tx_rope_of(&c->positions.rope, size, length);
    if (rates)
        tx_rotary_rates(&rope, (int32_t)size, rates);
    return (rope.rotated ? rope.rotated : size) / 2;
}

/* Regroups the elements of `heads` heads: from `rows` rows of columns to columns. */
static tx_tensor *regroup(tx_tensor *x, int64_t heads, int64_t rows, int64_t columns)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    return tx_reshape(tx_transpose(tx_reshape(x, TX_SHAPE(tx_shape_rows(&shape) * heads, rows, columns, 1))), shape);
}

/* Rotates whole heads, in which pairs beyond the rotated part have the frequency 0. */
static void widen(tx_rope *rope, int32_t size)
{
    if (rope->rotated == 0)
        return;
    rope->theta = powf(rope->theta, (float)size / (float)rope->rotated);
    for (int32_t i = rope->rotated / 2; i < size / 2; i++)
        rope->divisor[i] = INFINITY;
    rope->rotated = 0;
}

/* Masks positions that are not within half of the window. */
static int32_t near_row(const tx_config *config, int64_t distance)
{
    const int64_t most = llama_of(config)->attention.window / 2;
    return distance > most || distance < -most ? -1 : 0;
}

/* The scores of layers with a window on both sides, or NULL if all positions are within it. */
static tx_tensor *window_scores(tx_stack *b)
{
    const llama_config *c = llama_of(b->config);
    const int64_t t = tx_tensor_shape(b->tokens)->dim[1];
    if (!c->attention.both || !c->attention.windowed || t <= c->attention.window / 2 + 1)
        return NULL;
    tx_tensor *none = tx_fill(b->graph, TX_SHAPE(1, b->config->heads), 0.0f);
    return tx_relative_scores(b, b->config->heads, t, tx_relative_bias(b, none, near_row), tx_relative_mask(b));
}

/* Heads of k or v, which begin at column `at` of qkv, each for all of its query heads. */
static tx_tensor *repeated(tx_stack *b, tx_tensor *qkv, int64_t at, int64_t of_kv, int64_t size)
{
    tx_tensor *part = tx_shift_rows(qkv, of_kv * size, at, 0);
    if (!part)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(part);
    const int64_t count = tx_shape_rows(&shape) * of_kv, times = b->config->heads / of_kv;
    part = tx_matmul(tx_fill(b->graph, TX_SHAPE(count, times, 1), 1.0f), tx_reshape(part, TX_SHAPE(count, 1, size)),
                     false, false);
    return tx_reshape(part, TX_SHAPE(shape.dim[0], shape.dim[1], b->config->heads * size));
}

/* Attention within half of the window on each side. */
static tx_tensor *attend_near(tx_stack *b, tx_tensor *qkv, const tx_attention_options *o)
{
    const int64_t size = head_size(llama_of(b->config)), q = o->heads * size, kv = o->kv_heads * size;
    const tx_relative_options options = {.heads = o->heads, .scores = b->scores, .scale = (double)o->scale};
    return tx_relative_attention(b, tx_shift_rows(qkv, q, 0, 0), repeated(b, qkv, q, o->kv_heads, size),
                                 repeated(b, qkv, q + kv, o->kv_heads, size), &options);
}

/* x [B, T, C] -> [B, T, heads * size] */
static tx_tensor *attention(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    const int32_t heads = tx_stack_heads_per_rank(b, c->base.heads, "num_attention_heads"),
                  size = (int32_t)head_size(c);
    const int32_t of_kv = tx_stack_kv_heads_per_rank(b, kv_heads(c), "num_key_value_heads");
    const int64_t length = tx_stack_length(b);
    const bool local = c->positions.has_local && slides(c, layer);
    tx_rope rope = tx_rope_of(local ? &c->positions.local : &c->positions.rope, size, length);
    tx_attention_options options = {
        .heads = heads, .kv_heads = of_kv, .scale = (float)score_scale(c), .window = (int32_t)window_of(c, layer)};
    options.cap = (float)c->attention.cap;
    if (tx_stack_has(b, SINKS))
        options.sinks = tx_stack_weight(b, SINKS);
    const double limit = c->attention.clip;
    tx_tensor *qkv = tx_stack_clip(b, project(b, x, heads, size), c->attention.clips_norms ? 0 : limit), *gate = NULL;
    if (c->attention.gated)
        qkv = split_gate(qkv, heads, of_kv, size, &gate);
    if (!c->norms.after_rope)
        qkv = norm_heads(b, qkv, heads, of_kv);
    if (c->attention.clips_norms)
        qkv = tx_stack_clip(b, qkv, limit);
    /* Scores do not depend on the order of the elements. The result gets its order back. */
    if (c->positions.reversed)
        qkv = tx_llama_swap_halves(qkv, heads + 2 * of_kv, size);
    if (c->positions.interleaved) {
        qkv = regroup(qkv, heads + 2 * of_kv, size / 2, 2);
        widen(&rope, size);
    }
    if (has_rope(c, layer))
        qkv = tx_rotary(qkv, heads + of_kv, size, &rope, b->positions,
                        local ? NULL : tx_find_input(b->graph, "rope_rates"));
    if (c->norms.after_rope && has_rope(c, layer))
        qkv = norm_heads(b, qkv, heads, of_kv);
    if (c->attention.scale_step == 0 || !has_rope(c, layer))
        qkv = tx_llama_scale_queries(b, qkv, heads, size, length);
    if (c->positions.alibi)
        qkv = tx_alibi_add(b, qkv, heads, size);
    options.window = c->attention.both ? 0 : options.window;
    options.chunked = c->attention.chunked && options.window > 0;
    if (c->attention.both && b->scores && window_of(c, layer) > 0)
        return attend_near(b, qkv, &options);
    tx_tensor *y = tx_stack_attention(b, qkv, layer, &options, c->attention.dropout);
    y = c->positions.alibi ? tx_alibi_remove(y, heads, size) : y;
    y = c->positions.reversed ? tx_llama_swap_halves(y, heads, size) : y;
    y = c->positions.interleaved ? regroup(y, heads, 2, size / 2) : y;
    return gate ? tx_mul(y, tx_sigmoid(gate)) : y;
}

static tx_tensor *activate(const tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const int32_t activation = c->mlp.activation + c->mlp.choice;
    if (activation == TX_LLAMA_XIELU)
        return tx_llama_xielu(b, x);
    if (sparsity_of(c, b->block) > 0)
        return tx_llama_sparse_gates(b, x);
    if (activation == TX_LLAMA_RELU2 || activation == TX_LLAMA_RELU) {
        x = tx_relu(x);
        return activation == TX_LLAMA_RELU ? x : tx_mul(x, x);
    }
    if (!c->mlp.plain && activation == TX_LLAMA_GELU) {
        const int64_t inner = x ? tx_shape_last(tx_tensor_shape(x)) / 2 : 0;
        return tx_mul(tx_gelu(columns_of(x, 0, inner), true), columns_of(x, inner, inner));
    }
    if (c->mlp.plain)
        return tx_gelu(x, activation == TX_LLAMA_GELU);
    return activation == TX_LLAMA_SILU ? tx_swiglu(x) : tx_geglu(x);
}

/* x times a multiplier of the configuration; 0 means 1. */
static tx_tensor *scaled(tx_tensor *x, double multiplier)
{
    return multiplier > 0 && multiplier != 1 ? tx_scale(x, (float)multiplier) : x;
}

static tx_tensor *mlp(const tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const int64_t inner = mlp_size(c) / b->parts, sizes[] = {inner, inner};
    const double multipliers[] = {c->mlp.multipliers[0], 1};
    tx_tensor *h = tx_stack_linear(b, x, GATE_UP_PROJ, GATE_UP_BIAS);
    h = activate(b, tx_llama_scale_columns(b->graph, h, 2, sizes, multipliers));
    return scaled(tx_stack_linear(b, h, DOWN_PROJ, DOWN_BIAS), c->mlp.multipliers[1]);
}

/* The shared experts, which process all tokens. */
static tx_tensor *shared_mlp(const tx_stack *b, tx_tensor *x)
{
    tx_tensor *h = activate(b, tx_stack_linear(b, x, SHARED_GATE_UP_PROJ, NO_BIAS));
    return tx_stack_linear(b, h, SHARED_DOWN_PROJ, NO_BIAS);
}

static tx_experts experts_of(const llama_config *c)
{
    const bool grouped = c->experts.groups > 1 && c->experts.grouping > 0;
    return (tx_experts){.count = c->experts.count,
                        .chosen = c->experts.chosen,
                        .normalise = c->experts.normalise,
                        .sigmoid = c->experts.sigmoid,
                        .groups = grouped ? (int32_t)c->experts.groups : 0,
                        .kept = (int32_t)c->experts.kept,
                        .best = (int32_t)c->experts.best,
                        .least = (float)c->experts.least,
                        .mixer = (float)c->experts.mixer,
                        .factors = EXPERT_SCALE,
                        .gelu = c->mlp.activation + c->mlp.choice == TX_LLAMA_GELU_TANH,
                        .scale = (float)c->experts.scale,
                        .balance = c->experts.balance,
                        .squares = c->mlp.plain,
                        .scales_inputs = c->experts.scales_inputs,
                        .inputs_first = c->experts.limit > 0 || c->experts.scales_inputs,
                        .router = ROUTER,
                        .router_bias = ROUTER_BIAS,
                        .choice_bias = CHOICE_BIAS,
                        .gate_up = EXPERTS_GATE_UP,
                        .gate_up_bias = EXPERTS_GATE_UP_BIAS,
                        .down = EXPERTS_DOWN,
                        .down_bias = EXPERTS_DOWN_BIAS,
                        .alpha = (float)c->experts.alpha,
                        .limit = (float)c->experts.limit};
}

/* The routed experts plus the shared ones, times their gate if there is one. */
static tx_tensor *sparse_mlp(tx_stack *b, tx_tensor *x)
{
    const llama_config *c = llama_of(b->config);
    const tx_experts experts = experts_of(c);
    if (experts.inputs_first)
        tx_llama_one_rank(b, c->experts.limit > 0 ? "experts with biases" : "experts in two tensors");
    tx_tensor *y = tx_stack_experts(b, x, &experts);
    if (!y || !tx_stack_has(b, SHARED_GATE_UP_PROJ))
        return y;
    if (!tx_stack_has(b, SHARED_GATE))
        return scaled(tx_add(y, shared_mlp(b, x)), c->experts.averaged ? 0.5 : 1);
    const tx_shape shape = *tx_tensor_shape(x);
    tx_tensor *shared = shared_mlp(b, x), *gate = tx_sigmoid(tx_stack_linear(b, x, SHARED_GATE, NO_BIAS));
    gate = gate ? tx_reshape(gate, TX_SHAPE(shape.dim[0], shape.dim[1])) : NULL;
    return tx_add(y, tx_mul(shared, tx_broadcast(gate, shape, TX_AXIS_LAST)));
}

/* Adds a part of a block to the residual stream. */
static tx_tensor *add_part(tx_stack *b, tx_tensor *x, tx_tensor *part)
{
    const llama_config *c = llama_of(b->config);
    if (c->residual.dropout > 0)
        part = tx_stack_dropout(b, part, c->residual.dropout);
    return tx_add(x, scaled(part, c->residual.multiplier));
}

/* Attention of any kind with its output projection. */
static tx_tensor *attend(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *y = c->latent.rank         ? tx_llama_latent_attention(b, x, layer)
                   : c->attention.differs ? tx_llama_layer_attention(b, x, layer)
                                          : attention(b, x, layer);
    return tx_stack_linear(b, y, O_PROJ, O_BIAS);
}

/* The MLP of h, and experts that read the residual stream x. Their router has another norm of it. */
static tx_tensor *mlp_and_experts(tx_stack *b, tx_tensor *x, tx_tensor *h)
{
    const llama_config *c = llama_of(b->config);
    tx_experts experts = experts_of(c);
    tx_tensor *scored = tx_rms_norm(x, tx_tp_param(tx_stack_weight(b, ROUTER_SCALE)), (float)c->norms.eps);
    experts.scored = tx_scale(scored, 1 / sqrtf((float)c->base.width));
    tx_tensor *y = norm(b, tx_stack_experts(b, norm(b, x, EXPERTS_NORM), &experts), EXPERTS_OUT_NORM);
    return tx_add(norm(b, mlp(b, h), MLP_OWN_NORM), y);
}

/* The experts of a layer that has some, else its MLP. */
static tx_tensor *any_mlp(tx_stack *b, tx_tensor *x, int64_t layer)
{
    return is_sparse(b->config, layer) ? sparse_mlp(b, x) : mlp(b, x);
}

/* The first part of a block: attention, a recurrent mixer, or the sum of both. */
static tx_tensor *mix(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *y = is_recurrent(b->config, layer) ? scaled(tx_mixer(b, scaled(x, c->mixer.in)), c->mixer.out) : NULL;
    if (!is_attending(b->config, layer))
        return y;
    tx_tensor *attended = scaled(attend(b, scaled(x, c->attention.in), layer), c->attention.out);
    return is_recurrent(b->config, layer) ? tx_add(y, attended) : attended;
}

/* The part of a block that has only one. */
static tx_tensor *only_part(tx_stack *b, tx_tensor *x, int64_t layer)
{
    if (is_recurrent(b->config, layer))
        return tx_mixer(b, x);
    if (tx_stack_has(b, QKV_PROJ))
        return attend(b, x, layer);
    return any_mlp(b, x, layer);
}

/* Both sums of a block begin at the result of its norm, x of the first. */
static tx_tensor *updated_normed(tx_stack *b, tx_tensor *x, int64_t layer)
{
    const double(*factors)[2] = llama_of(b->config)->residual.factors, *of = factors[is_recurrent(b->config, layer)];
    x = norm(b, tx_add(scaled(x, of[0]), scaled(mix(b, x, layer), of[1])), POST_NORM);
    return tx_add(scaled(x, factors[2][0]), scaled(any_mlp(b, x, layer), factors[2][1]));
}

/* x [B, T, C] -> [B, T, C], the result of a block before tx_llama_end_layer */
static tx_tensor *updated(tx_stack *b, tx_tensor *x, int64_t layer)
{
    if (llama_of(b->config)->norms.after_sum) {
        x = norm(b, add_part(b, x, attend(b, x, layer)), INPUT_NORM);
        return norm(b, add_part(b, x, mlp(b, x)), POST_NORM);
    }
    tx_tensor *h = norm(b, x, INPUT_NORM);
    if (llama_of(b->config)->residual.normed)
        return updated_normed(b, h, layer);
    if (llama_of(b->config)->mixer.alone)
        return add_part(b, x, only_part(b, h, layer));
    tx_tensor *attended = norm(b, mix(b, h, layer), ATTENTION_NORM);
    if (llama_of(b->config)->residual.parallel) {
        h = any_mlp(b, tx_stack_has(b, POST_NORM) ? norm(b, x, POST_NORM) : h, layer);
        if (llama_of(b->config)->residual.dropout > 0) {
            attended = tx_stack_dropout(b, attended, llama_of(b->config)->residual.dropout);
            h = tx_stack_dropout(b, h, llama_of(b->config)->residual.dropout);
        }
        return tx_add(x, tx_add(attended, h));
    }
    x = tx_llama_augment(b, add_part(b, x, attended), h);
    h = norm(b, x, POST_NORM);
    h = llama_of(b->config)->experts.with_mlp ? mlp_and_experts(b, x, h) : any_mlp(b, h, layer);
    return add_part(b, x, norm(b, h, MLP_NORM));
}

/* x [B, T, C] -> [B, T, C], or streams of them (altup.c) */
static tx_tensor *transformer_block(tx_stack *b, tx_tensor *x, int64_t layer)
{
    if (!llama_of(b->config)->streams.alternate)
        return tx_llama_end_layer(b, updated(b, x, layer), layer);
    tx_tensor *streams = tx_llama_predict_streams(b, x), *first = columns_of(streams, 0, b->config->width);
    return tx_llama_correct_streams(b, streams, first, updated(b, first, layer), layer);
}

/* All blocks: x [B, T, C] -> [B, T, C] */
static tx_tensor *blocks(tx_stack *b, tx_tensor *x)
{
    if (!llama_of(b->config)->streams.alternate)
        return tx_stack_blocks(b, x, transformer_block);
    return tx_llama_close_streams(b, tx_stack_blocks(b, tx_llama_open_streams(b, x), transformer_block));
}

/* Embeddings of another width, mapped to that of the blocks, plus those of positions. */
static tx_tensor *embed_projected(tx_stack *b, tx_tensor *table, tx_tensor *positions)
{
    tx_llama_one_rank(b, "projections of embeddings");
    const tx_shape *tokens = tx_tensor_shape(b->tokens);
    tx_tensor *none = tx_fill(b->graph, TX_SHAPE(1, b->config->width), 0.0f); /* tokens below 0 have no embedding */
    tx_tensor *x = tx_stack_linear(b, tx_stack_embed(b, table, NULL), PROJECT_IN, NO_BIAS);
    return tx_add(x, tx_embedding(tx_range(b->graph, *tokens, -1, 0), none, positions, b->positions));
}

/* The embeddings. If they are scaled by the width, NEFTune noise is added after it. */
static tx_tensor *embed(tx_stack *b, tx_tensor *table)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *positions = c->positions.learned ? tx_stack_weight(b, POSITION_TABLE) : NULL;
    if (c->positions.first > 0) {
        const tx_shape rows = TX_SHAPE(c->max_position_embeddings);
        positions = tx_gather(positions, tx_range(b->graph, rows, (int32_t)c->positions.first, 1));
    }
    if (c->embedding.projected)
        return tx_stack_dropout(b, embed_projected(b, table, positions), c->embedding.dropout);
    if (!c->embedding.by_root_of_width) {
        tx_tensor *x = norm(b, scaled(tx_stack_embed(b, table, positions), c->embedding.multiplier), EMBED_NORM);
        return c->embedding.dropout > 0 ? tx_stack_dropout(b, x, c->embedding.dropout) : x;
    }
    tx_tensor *x = tx_stack_lookup(b, table, NULL);
    return tx_arch_noise(b->graph, scaled(x, sqrt((double)b->config->width)), b->options);
}

/* c tanh(x / c) */
static tx_tensor *capped(tx_tensor *x, double cap)
{
    return cap > 0 ? tx_scale(tx_tanh(tx_scale(x, (float)(1 / cap))), (float)cap) : x;
}

tx_tensor *tx_llama_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    const llama_config *c = llama_of(config);
    tx_stack b;
    if (tx_stack_open(graph, config, options, c->rows, &b))
        return NULL;
    b.padding = c->padding <= config->vocab_size ? c->padding - 1 : -1;
    tx_tensor *embedding = tx_stack_weight(&b, EMBED);
    tx_tensor *x = embed(&b, embedding);
    if (c->positions.alibi)
        b.scores =
            tx_alibi_elements(&b, &(tx_alibi){config->heads, head_size(c), score_scale(c), c->positions.rounded_alibi});
    tx_llama_layer_inputs(&b, x);
    b.both = c->attention.both;
    if (b.both)
        b.scores = window_scores(&b);
    x = norm(&b, tx_stack_rows(&b, blocks(&b, x)), FINAL_NORM);
    if (config->architecture->head == TX_HEAD_STATES)
        return x;
    if (config->architecture->reads_last)
        return tx_linear(x, tx_stack_weight(&b, SCORE), NULL, true);
    if (c->embedding.projected)
        x = tx_stack_linear(&b, x, PROJECT_OUT, NO_BIAS);
    if (tx_stack_has(&b, HEAD_DENSE))
        x = norm(&b, tx_gelu(tx_stack_linear(&b, x, HEAD_DENSE, NO_BIAS), true), HEAD_DENSE_NORM);
    /* The input of the head is scaled, because it is smaller than the logits, and the loss is fused with a product. */
    x = scaled(scaled(x, c->logits.divisor > 0 ? 1 / c->logits.divisor : 0), c->logits.multiplier);
    const tx_experts experts = experts_of(c);
    tx_stack_router_loss(&b, &experts, c->experts.balance_factor);
    const bool tied = c->tie_word_embeddings;
    tx_tensor *head = tied ? embedding : tx_stack_weight(&b, LM_HEAD);
    tx_tensor *bias = tx_stack_has(&b, LM_HEAD_BIAS) ? tx_stack_weight(&b, LM_HEAD_BIAS) : NULL;
    if (bias)
        tx_llama_one_rank(&b, "a bias of the output head");
    return capped(tx_stack_head(&b, x, head, bias, tied ? EMBED : LM_HEAD), c->logits.cap);
}
