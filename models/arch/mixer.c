/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent mixers of hybrid models: gated DeltaNet (Yang et al., 2025), Mamba-2 (Dao and Gu, 2024), the gated short
 * convolutions of LFM2 (Liquid AI, 2025) and lightning attention (Qin et al., 2024). Their layers are data:
 * llama_config.mixer. */
#include "models/arch/mixer.h"

#include "models/arch/alibi.h"
#include "models/arch/llama_family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY_EPS 1e-6f       /* of the norms of q and k in the delta rule */
#define LIGHTNING_EPS 1e-6f /* of the norm of lightning attention, whatever rms_norm_eps is */

int64_t tx_mixer_values(const llama_config *c)
{
    return c->mixer.kind == TX_MIXER_CONV ? c->base.width : c->mixer.v_heads * c->mixer.v_size;
}

int64_t tx_mixer_channels(const llama_config *c)
{
    const int64_t keys = c->mixer.kind == TX_MIXER_CONV ? 0 : c->mixer.k_heads * c->mixer.k_size;
    return tx_mixer_values(c) + 2 * keys;
}

int64_t tx_mixer_inputs(const llama_config *c)
{
    const int64_t channels = tx_mixer_channels(c);
    if (c->mixer.kind == TX_MIXER_CONV)
        return 3 * channels;
    if (c->mixer.kind == TX_MIXER_LIGHTNING)
        return channels;
    if (c->mixer.kind == TX_MIXER_DELTA)
        return c->mixer.joined ? channels + tx_mixer_values(c) : channels;
    return channels + tx_mixer_values(c) + c->mixer.v_heads;
}

void tx_mixer_sections(const llama_config *c, bool inputs, int32_t dimension, tx_param_sections *sections)
{
    const int64_t values = tx_mixer_values(c), keys = c->mixer.k_heads * c->mixer.k_size, heads = c->mixer.v_heads;
    const int64_t k = c->mixer.k_size, v = c->mixer.v_size;
    switch (c->mixer.kind) {
    case TX_MIXER_DELTA: /* q, k and v */
        if (!inputs || !c->mixer.joined)
            *sections = (tx_param_sections){3, dimension, {keys, keys, values}, {k, k, v}};
        break;
    case TX_MIXER_MAMBA2: /* perhaps gates, then x, B and C, and perhaps steps */
        *sections = inputs ? (tx_param_sections){5, dimension, {values, values, keys, keys, heads}, {v, v, k, k, 1}}
                           : (tx_param_sections){3, dimension, {values, keys, keys}, {v, k, k}};
        break;
    case TX_MIXER_LIGHTNING: /* of each head */
        break;
    default: /* both gates and x */
        if (inputs)
            *sections = (tx_param_sections){3, dimension, {values, values, values}, {0}};
        break;
    }
}

/* ---- Sizes of a tensor-parallel rank ------------------------------------------------------------------- */

typedef struct rank_sizes {
    int64_t k_heads, v_heads; /* heads of keys (the groups of Mamba-2) and of values */
    int64_t keys, values, channels;
    int32_t sharing; /* ranks that have the same head of keys, each with other heads of values */
} rank_sizes;

static const char *name_of(const tx_config *config, size_t member)
{
    const tx_config_key *key = tx_config_key_at(config->architecture, member);
    return key ? key->name : "heads of recurrent layers";
}

/* Fails if heads or channels cannot be divided. Fewer heads of keys than ranks are replicated, unless files have the
 * inputs of each next to those of its heads of values. */
static rank_sizes sizes_of(tx_stack *b)
{
    const llama_config *c = llama_of(b->config);
    const char *of_k = name_of(b->config, offsetof(llama_config, mixer.k_heads)),
               *of_v = name_of(b->config, offsetof(llama_config, mixer.v_heads));
    rank_sizes p = {.sharing = 1};
    if (c->mixer.kind == TX_MIXER_CONV) {
        p.values = tx_stack_heads_per_rank(b, c->base.width, name_of(b->config, offsetof(llama_config, base.width)));
    } else {
        p.v_heads = tx_stack_heads_per_rank(b, c->mixer.v_heads, of_v);
        p.k_heads = c->mixer.joined ? tx_stack_heads_per_rank(b, c->mixer.k_heads, of_k)
                                    : tx_stack_kv_heads_per_rank(b, c->mixer.k_heads, of_k);
        p.sharing = b->parts > c->mixer.k_heads ? (int32_t)(b->parts / c->mixer.k_heads) : 1;
        p.keys = p.k_heads * c->mixer.k_size;
        p.values = p.v_heads * c->mixer.v_size;
    }
    p.channels = p.values + 2 * p.keys;
    return p;
}

/* ---- Graph --------------------------------------------------------------------------------------------- */

/* A state of the current layer, F32 [rows of the caches, rows, columns]. In beam search it first becomes that of
 * another beam. */
static tx_tensor *state_of(const tx_stack *b, const char *part, int64_t rows, int64_t columns)
{
    char name[TX_ARCH_NAME];
    const int64_t count = b->options->cache_rows > 0 ? b->options->cache_rows : tx_tensor_shape(b->tokens)->dim[0];
    snprintf(name, sizeof name, TX_ARCH_STATES "%" PRId64 ".%s", b->block, part);
    tx_tensor *state = tx_state_full(b->graph, name, TX_SHAPE(count + b->options->spare_states, rows, columns)),
              *sources = tx_find_input(b->graph, "sources");
    return state && sources && tx_cache_reorder(state, sources) ? NULL : state;
}

static tx_tensor *convolve(tx_stack *b, tx_tensor *x, const rank_sizes *p, bool silu)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *w = tx_stack_weight(b, MIXER_CONV);
    tx_tensor *bias = tx_stack_has(b, MIXER_CONV_BIAS) ? tx_stack_weight(b, MIXER_CONV_BIAS) : NULL;
    w = w ? tx_reshape(w, TX_SHAPE(p->channels, c->mixer.taps)) : NULL;
    if (b->options->cache > 0 && c->mixer.taps > 1)
        return tx_short_conv_cached(x, w, bias, state_of(b, "tail", c->mixer.taps - 1, p->channels),
                                    tx_find_input(b->graph, "spans"), silu);
    return tx_short_conv(x, w, bias, tx_find_input(b->graph, "attention_starts"), silu);
}

/* Linear attention over the result of the convolution. `rates` are inputs of tx_scan_rates, or its constant result for
 * lightning attention. */
static tx_tensor *scan(tx_stack *b, tx_tensor *qkv, tx_tensor *rates, const rank_sizes *p)
{
    const llama_config *c = llama_of(b->config);
    const bool delta = c->mixer.kind == TX_MIXER_DELTA;
    const tx_scan_options options = {.size = sizeof options,
                                     .delta = delta,
                                     .low = (float)c->mixer.low,
                                     .high = c->mixer.high > 0 ? (float)c->mixer.high : INFINITY,
                                     .k_heads = (int32_t)p->k_heads,
                                     .v_heads = (int32_t)p->v_heads,
                                     .k_size = (int32_t)c->mixer.k_size,
                                     .eps = delta ? KEY_EPS : 0.0f,
                                     .scale = delta ? (float)(1 / sqrt((double)c->mixer.k_size)) : 1.0f};
    if (c->mixer.kind != TX_MIXER_LIGHTNING)
        rates = tx_scan_rates(rates, tx_stack_weight(b, MIXER_A_LOG), tx_stack_weight(b, MIXER_DT_BIAS), &options);
    tx_tensor *skip = tx_stack_has(b, MIXER_SKIP) ? tx_stack_weight(b, MIXER_SKIP) : NULL;
    if (b->options->cache > 0)
        return tx_linear_scan_cached(qkv, rates, skip,
                                     state_of(b, "state", p->v_heads * c->mixer.k_size, c->mixer.v_size),
                                     tx_find_input(b->graph, "spans"), &options);
    return tx_linear_scan(qkv, rates, skip, tx_find_input(b->graph, "attention_starts"), &options);
}

/* The RMS norm of group `group` of columns, which several ranks divide, by the sum of squares of all its `count`
 * columns: x [B, T, n], gamma [n]. The sums of all groups are one tensor, so that all ranks add. */
static tx_tensor *norm_shared(const tx_stack *b, tx_tensor *x, tx_tensor *gamma, int64_t groups, int64_t group,
                              int64_t count, float eps)
{
    const tx_shape shape = *tx_tensor_shape(x), rows = TX_SHAPE(shape.dim[0], shape.dim[1]);
    tx_tensor *sums = tx_reduce(x, TX_REDUCE_SUMSQ, TX_AXIS_LAST);
    sums = sums ? tx_reshape(sums, TX_SHAPE(shape.dim[0], shape.dim[1], 1)) : NULL;
    sums = tx_tp_input(tx_tp_all_reduce(tx_shift_rows(sums, groups, -group, 0)));
    sums = sums ? tx_reshape(columns_of(sums, group, 1), rows) : NULL;
    tx_tensor *mean = tx_scale(sums, 1.0f / (float)count);
    tx_tensor *factor = tx_rsqrt(tx_add(mean, tx_fill(b->graph, rows, eps)));
    return factor
               ? tx_mul(tx_mul(x, tx_broadcast(factor, shape, TX_AXIS_LAST)), tx_broadcast(gamma, shape, TX_AXIS_ROWS))
               : NULL;
}

/* The RMS norm of each of `groups` groups of columns. They share a weight if it has one group's size. */
static tx_tensor *norm_groups(tx_stack *b, tx_tensor *x, int64_t groups)
{
    const bool replicated = llama_of(b->config)->mixer.kind == TX_MIXER_DELTA;
    tx_tensor *gamma = tx_stack_weight(b, MIXER_NORM);
    gamma = replicated ? tx_tp_input(gamma) : gamma;
    if (!x || !gamma)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    const int64_t size = tx_shape_last(&shape) / groups;
    const bool own = tx_tensor_shape(gamma)->dim[0] != size;
    x = tx_reshape(x, TX_SHAPE(shape.dim[0], shape.dim[1], groups, size));
    x = tx_rms_norm(x, own ? tx_fill(b->graph, TX_SHAPE(size), 1.0f) : gamma, (float)llama_of(b->config)->norms.eps);
    x = x ? tx_reshape(x, shape) : NULL;
    return own ? tx_mul(x, tx_broadcast(gamma, shape, TX_AXIS_ROWS)) : x;
}

/* Columns first, .., first + count - 1 of each of `groups` groups of columns. */
static tx_tensor *of_groups(tx_tensor *x, int64_t groups, int64_t first, int64_t count)
{
    if (!x)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(x);
    x = tx_reshape(x, TX_SHAPE(tx_shape_rows(&shape) * groups, tx_shape_last(&shape) / groups));
    return tx_reshape(columns_of(x, first, count), TX_SHAPE(shape.dim[0], shape.dim[1], groups * count));
}

/* The inputs of a DeltaNet: q | k | v, the gates and b | a. Qwen3-Next stores the outputs q, k, v, gate of each head of
 * keys, and b, a of each, one after another. */
static void delta_inputs(tx_stack *b, tx_tensor *x, const rank_sizes *p, tx_tensor **qkv, tx_tensor **gate,
                         tx_tensor **rates)
{
    const llama_config *c = llama_of(b->config);
    tx_tensor *in = tx_stack_columns(b, x, MIXER_IN), *of_heads = tx_stack_columns(b, x, MIXER_RATES);
    const int64_t heads = p->k_heads, k = c->mixer.k_size, v = p->values / heads, each = p->v_heads / heads;
    if (!c->mixer.joined) {
        *qkv = in;
        *gate = tx_stack_columns(b, x, MIXER_GATE);
        *rates = of_heads;
        return;
    }
    *qkv = tx_llama_join(
        (tx_tensor *const[]){of_groups(in, heads, 0, k), of_groups(in, heads, k, k), of_groups(in, heads, 2 * k, v)},
        3);
    *gate = of_groups(in, heads, 2 * k + v, v);
    *rates = tx_llama_join(
        (tx_tensor *const[]){of_groups(of_heads, heads, 0, each), of_groups(of_heads, heads, each, each)}, 2);
}

/* The norm of each head comes before the gate. */
static tx_tensor *delta_net(tx_stack *b, tx_tensor *x, const rank_sizes *p)
{
    tx_tensor *qkv, *gate, *rates;
    delta_inputs(b, x, p, &qkv, &gate, &rates);
    tx_tensor *o = scan(b, convolve(b, qkv, p, true), rates, p);
    return tx_mul(norm_groups(b, o, p->v_heads), tx_silu(gate));
}

static tx_tensor *norm_mamba2(tx_stack *b, tx_tensor *x, const rank_sizes *p)
{
    const llama_config *c = llama_of(b->config);
    if (p->sharing == 1)
        return norm_groups(b, x, p->k_heads);
    tx_tensor *gamma = tx_stack_weight(b, MIXER_NORM);
    return x && gamma ? norm_shared(b, x, gamma, c->mixer.k_heads, b->part / p->sharing, p->sharing * p->values,
                                    (float)c->norms.eps)
                      : NULL;
}

/* The norm is that of the columns of each group of heads. */
static tx_tensor *mamba2(tx_stack *b, tx_tensor *x, const rank_sizes *p)
{
    const llama_config *c = llama_of(b->config);
    const int64_t values = p->values, channels = p->channels;
    const int64_t sizes[] = {values, values, p->keys, p->keys, p->v_heads};
    tx_tensor *in = tx_llama_scale_columns(b->graph, tx_stack_columns(b, x, MIXER_IN), TX_LLAMA_MULTIPLIERS, sizes,
                                           c->mixer.multipliers);
    tx_tensor *gate = tx_silu(columns_of(in, 0, values));
    tx_tensor *o = scan(b, convolve(b, columns_of(in, values, channels), p, true),
                        columns_of(in, values + channels, p->v_heads), p);
    if (!c->mixer.norm)
        return tx_mul(o, gate);
    return c->mixer.norm_first ? tx_mul(norm_mamba2(b, o, p), gate) : norm_mamba2(b, tx_mul(o, gate), p);
}

/* The input projection is a gate, another gate and x: gate * convolution(other * x). */
static tx_tensor *gated_conv(tx_stack *b, tx_tensor *x, const rank_sizes *p)
{
    const int64_t width = p->values;
    tx_tensor *in = tx_stack_columns(b, x, MIXER_IN);
    tx_tensor *inner = tx_mul(columns_of(in, 0, width), columns_of(in, 2 * width, width));
    return tx_mul(columns_of(in, width, width), convolve(b, inner, p, false));
}

/* The decay of each head of this rank for each token, and the weight 1: [B, T, 2 heads]. Head h of n decays by the
 * exponent 2^(-8 (h + 1) / n), times a factor that falls from the first layer to the last one. */
static tx_tensor *lightning_rates(tx_stack *b, const tx_shape *shape, const rank_sizes *p)
{
    const double heads = (double)b->config->heads, base = pow(2, -8 / heads), most = (double)b->config->layers - 1;
    const double factor = 1 - (double)b->block / (most + 1e-5) + 1e-5;
    tx_tensor *slopes = tx_powers(b->graph, -factor * pow(base, (double)(b->part * p->v_heads + 1)), base, p->v_heads);
    slopes = tx_gather(slopes, tx_range(b->graph, TX_SHAPE(p->v_heads), 0, 1));
    tx_tensor *both = tx_llama_join((tx_tensor *const[]){slopes ? tx_reshape(slopes, TX_SHAPE(1, p->v_heads)) : NULL,
                                                         tx_fill(b->graph, TX_SHAPE(1, p->v_heads), 1.0f)},
                                    2);
    both = both ? tx_reshape(both, TX_SHAPE(2 * p->v_heads)) : NULL;
    return tx_broadcast(both, TX_SHAPE(shape->dim[0], shape->dim[1], 2 * p->v_heads), TX_AXIS_ROWS);
}

/* Linear attention with constant decays, then a norm of all heads together and gates. */
static tx_tensor *lightning(tx_stack *b, tx_tensor *x, const rank_sizes *p)
{
    const int64_t heads = p->k_heads, size = llama_of(b->config)->mixer.k_size;
    tx_tensor *qkv = tx_silu(tx_stack_columns(b, x, MIXER_IN)), *gamma = tx_stack_weight(b, MIXER_NORM);
    if (!qkv || !gamma)
        return NULL;
    qkv = tx_llama_join((tx_tensor *const[]){of_groups(qkv, heads, 2 * size, size), of_groups(qkv, heads, size, size),
                                             of_groups(qkv, heads, 0, size)},
                        3);
    tx_tensor *o = scan(b, qkv, lightning_rates(b, tx_tensor_shape(x), p), p);
    o = !o              ? NULL
        : b->parts == 1 ? tx_rms_norm(o, gamma, LIGHTNING_EPS)
                        : norm_shared(b, o, gamma, 1, 0, b->parts * p->values, LIGHTNING_EPS);
    return tx_mul(tx_sigmoid(tx_stack_columns(b, x, MIXER_GATE)), o);
}

static const struct {
    tx_tensor *(*build)(tx_stack *, tx_tensor *, const rank_sizes *);
    const char *noun;
} mixers[] = {[TX_MIXER_DELTA] = {delta_net, "gated DeltaNets"},
              [TX_MIXER_MAMBA2] = {mamba2, "Mamba-2 layers"},
              [TX_MIXER_CONV] = {gated_conv, "short convolutions"},
              [TX_MIXER_LIGHTNING] = {lightning, "lightning attention"}};

tx_tensor *tx_mixer(tx_stack *b, tx_tensor *x)
{
    const int32_t kind = llama_of(b->config)->mixer.kind;
    const rank_sizes p = sizes_of(b);
    int32_t chunk;
    if (b->options->cache > 0 && !tx_find_input(b->graph, "spans"))
        tx_graph_fail(b->graph, tx_fail(TX_INVALID, "a cache of recurrent layers needs the input spans"));
    if (tx_graph_cp_size(b->graph, &chunk) > 1)
        tx_graph_fail(b->graph, tx_fail(TX_UNSUPPORTED,
                                        "%s: context parallelism is not implemented for %s: use tensor or pipeline "
                                        "parallelism",
                                        b->config->architecture->type, mixers[kind].noun));
    if (p.values < 1 || (kind != TX_MIXER_CONV && p.k_heads < 1)) /* too few to divide */
        return NULL;
    return tx_stack_linear(b, mixers[kind].build(b, tx_tp_all_gather(x), &p), MIXER_OUT, NO_BIAS);
}

bool tx_mixer_recurs(const tx_config *config)
{
    for (int64_t i = 0; i < config->layers; i++)
        if (is_recurrent(config, i))
            return true;
    return false;
}

/* ---- Configuration ------------------------------------------------------------------------------------- */

tx_status tx_mixer_read(const tx_json *json, llama_config *c, int64_t period)
{
    tx_layer_set *recurrent = &c->mixer.layers;
    const tx_layer_word words[] = {{"full_attention", NULL}, {"attention", NULL}, {"linear_attention", recurrent},
                                   {"mamba", recurrent},     {"conv", recurrent}, {NULL, NULL}};
    if (tx_json_has(json, "layer_types"))
        return tx_llama_read_words(json, "layer_types", c->base.layers, words);
    *recurrent = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if (period == 0 || (i + 1) % period != 0)
            add_layer(recurrent, i);
    return TX_OK;
}

tx_status tx_mixer_read_attending(const tx_json *json, const char *key, llama_config *c)
{
    tx_layer_set attending;
    TX_TRY(tx_llama_read_layers(json, key, &attending));
    c->mixer.layers = (tx_layer_set){.listed = true};
    for (int64_t i = 0; i < c->base.layers; i++)
        if (!has_layer(&attending, i))
            add_layer(&c->mixer.layers, i);
    return TX_OK;
}

tx_status tx_mixer_read_limits(const tx_json *json, const char *key, llama_config *c)
{
    tx_json *list;
    if (!tx_json_has(json, key))
        return TX_OK;
    TX_TRY(tx_json_get(json, key, TX_JSON_ARRAY, &list));
    if (tx_json_size(list) != 2)
        return tx_fail(TX_INVALID, "%s: %zu numbers, expected 2", key, tx_json_size(list));
    TX_TRY(tx_json_as_number(tx_json_at(list, 0), key, 0, 1e9, &c->mixer.low));
    c->mixer.high = 0;
    const tx_json *high = tx_json_at(list, 1);
    const char *infinite = "";
    if (tx_json_type_of(high) == TX_JSON_OBJECT) /* transformers writes {"__float__": "Infinity"} */
        TX_TRY(TX_JSON_OPTIONAL(string, high, "__float__", &infinite));
    if (strcmp(infinite, "Infinity") == 0)
        return TX_OK;
    return tx_json_as_number(high, key, fmax(c->mixer.low, 1e-9), 1e9, &c->mixer.high);
}

tx_status tx_mixer_check_alone(const tx_config *config)
{
    const llama_config *c = llama_of(config);
    if (c->mixer.kind != TX_MIXER_CONV && c->mixer.v_heads % c->mixer.k_heads != 0)
        return tx_fail(TX_INVALID, "%" PRId64 " heads of a recurrent layer are not a multiple of %" PRId64 " groups",
                       c->mixer.v_heads, c->mixer.k_heads);
    return TX_OK;
}

tx_status tx_mixer_check(const tx_config *config)
{
    TX_TRY(tx_mixer_check_alone(config));
    return tx_llama_check(config);
}
