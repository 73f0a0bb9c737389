/* SPDX-License-Identifier: Apache-2.0
 * Graphs: parameters, inputs and operations. */
#ifndef TX_GRAPH_H
#define TX_GRAPH_H

#include "tx_model.h"

TX_API_BEGIN

typedef struct tx_graph tx_graph;
typedef struct tx_tensor tx_tensor;

tx_status tx_graph_create(tx_model *model, tx_graph **graph);
void tx_graph_free(tx_graph *graph);
/* Mixed precision: with BF16 or F16 products and attention read 16 bits and keep 16 bits for the backward pass, and so
 * do activations between them; their sums, statistics of norms, softmax, losses, the residual stream, parameters and
 * their gradients stay in fp32. F32 (the default): everything is as recorded. Outputs keep their type. To be called
 * before the graph has a plan. */
tx_status tx_graph_autocast(tx_graph *graph, tx_dtype dtype);
/* Nodes recorded from here on belong to this block of the architecture (a layer: attention and what follows it),
 * counted from 1 in the order of the model; 0, the default: to none. */
void tx_graph_block(tx_graph *graph, int32_t block);

/* Gradient checkpointing (Chen et al., Training deep nets with sublinear memory cost, 2016): results of blocks that the
 * backward pass reads are not kept from the forward pass but computed again, to the same bits, when it comes to them.
 */
typedef struct tx_checkpointing {
    size_t size; /* sizeof(tx_checkpointing) */
    int32_t
        segments;  /* the blocks are divided into so many, as even as can be; 0, or more than there are: each is one */
    int32_t whole; /* the first so many segments keep nothing but what they begin with */
    int32_t cheap; /* the first so many, where they are not among those, do not keep results of norms, activations and
                    * casts that follow from something that is kept */
} tx_checkpointing;
/* To be called before the graph has a plan. tx_plan_create refuses it for a graph with gradients and without blocks. */
tx_status tx_graph_checkpointing(tx_graph *graph, const tx_checkpointing *options);
/* What the backward pass reads of blocks (tx_graph_block) waits for it in the host's memory: two blocks' is on the
 * device at a time, and the last block's. To the same bits. With checkpointing what segments begin with goes there. To
 * be called before the graph has a plan. */
tx_status tx_graph_offload_activations(tx_graph *graph);
/* Keeps a failure with this thread's message, unless there is one already, for tx_backward and tx_plan_create to
 * report; returns `status`. For functions that build parts of models and return NULL on error. */
tx_status tx_graph_fail(tx_graph *graph, tx_status status);
const tx_shape *tx_tensor_shape(const tx_tensor *tensor);
tx_dtype tx_tensor_dtype(const tx_tensor *tensor);

/* A value the host writes before a run. */
tx_tensor *tx_input(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* The first input of this name; NULL: there is none. */
tx_tensor *tx_find_input(const tx_graph *graph, const char *name);
/* A parameter of the model; the first use declares it, later ones (in any graph) must agree; with
 * spec NULL it must have been declared. */
tx_tensor *tx_param(tx_graph *graph, const char *name, const tx_param_spec *spec);
/* A tensor that keeps its value between runs and is shared by name among the graphs of a model
 * (a key-value cache). Starts as zero. */
tx_tensor *tx_state(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* Keeps a tensor readable after the runs; of no effect once the graph has a plan. Returns its argument. */
tx_tensor *tx_output(tx_tensor *tensor);

/* y = x W + b. x [..., K]; W [K, N], or [N, K] with transpose; b [N] or NULL. */
tx_tensor *tx_linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose);
/* The same in fp32 also where tx_graph_autocast says 16 bits: what routes tokens must not change with small errors. */
tx_tensor *tx_linear_full(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose);
/* Batched product over equal leading dimensions, or one operand of rank 2 for all. */
tx_tensor *tx_matmul(tx_tensor *a, tx_tensor *b, bool transpose_a, bool transpose_b);
/* Rows of `tokens` from token_table plus rows positions[b].. of position_table (NULL: none). positions I32 [B]: where
 * the first token of each row stands, which is the length of its cache; I32 [B, T]: where each token stands; NULL: 0
 * and on. tokens [B, T] -> [B, T, C]. Of a token_table whose rows a tensor group divides (tx_param_spec.split) each
 * rank gives those that it has, and they are summed. */
tx_tensor *tx_embedding(tx_tensor *tokens, tx_tensor *token_table, tx_tensor *position_table, tx_tensor *positions);
/* The same, where row `padding` of token_table learns nothing (PyTorch's padding_idx); below 0: all rows learn. */
tx_tensor *tx_embedding_padded(tx_tensor *tokens, tx_tensor *token_table, int64_t padding, tx_tensor *position_table,
                               tx_tensor *positions);
/* I32 [B, T] -> [B, T]: the positions of tokens in a row, padding left out, counted from padding + 1 on; padding stands
 * at `padding` (RoBERTa). */
tx_tensor *tx_token_positions(tx_tensor *tokens, int32_t padding);
tx_tensor *tx_gather(tx_tensor *table, tx_tensor *rows);
/* out [rows, C]: row r is the sum of the src rows whose index is r. */
tx_tensor *tx_scatter_add(tx_tensor *indices, tx_tensor *src, int64_t rows);
/* The k greatest elements of each row of x [..., E], greatest first, and in *indices (I32) their places; of equal ones
 * the lower place comes first. [..., k]. */
tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices);
/* What experts get (Lepikhin et al., GShard, 2021; Fedus et al., Switch Transformers, 2022; without padding, as Gale et
 * al., MegaBlocks, 2023, have it). All tensors but counts are I32. */
typedef struct tx_routes {
    tx_tensor *tokens;  /* [N k]: the token in each place; places are sorted by expert. -1: none */
    tx_tensor *places;  /* [N, k]: the place of each choice; -1: dropped */
    tx_tensor *offsets; /* [experts + 1]: where each expert's places begin, and the last one's end */
    tx_tensor *counts;  /* F32 [experts]: choices of each expert, dropped ones included; no gradient */
} tx_routes;
/* choices I32 [N, k], below `experts`; ids I32 [N]: a token whose id is below 0 is padding and chooses no expert; pass
 * NULL if none is. With a capacity above 0 an expert takes at most ceil(capacity times an even share of the choices):
 * first choices before second ones, and of these those of earlier tokens first. False on failure, which the graph
 * keeps. */
bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity, tx_routes *routes);
/* Rows offsets[e]..offsets[e + 1] - 1 of x [R, K] times w[e], w [E, K, N], or [E, N, K] with transpose: [R, N]. Rows
 * that no group has give 0. */
tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose);
/* Rows that have come to the experts of this rank (tx_parallel_options.expert). */
typedef struct tx_arrivals {
    tx_tensor *offsets; /* I32 [own experts + 1]: where each own expert's rows begin, and the last one's end */
    tx_tensor *counts;  /* of the way back; NULL: all experts are here, and no row moves */
    int64_t rows;       /* that can come at most: what `offsets` does not reach is 0 */
} tx_arrivals;
/* x [N k, C], a row a place of `routes`, of which a token has `chosen` (k), `capacity` as tx_route had it, to
 * the ranks of their experts: [rows, C] in the order of own experts, ranks and places; x itself where all are here.
 * Memory is for the worst case: all ranks' tokens choose as many of this rank's experts as they can, N min(k, own
 * experts) rows a rank, or what own experts take at most if that is less. What is sent are the rows that there are. */
tx_tensor *tx_ep_dispatch(tx_tensor *x, const tx_routes *routes, int64_t chosen, float capacity, tx_arrivals *arrivals);
/* What experts gave of them back to their places: x [rows, C] -> [N k, C]. */
tx_tensor *tx_ep_collect(tx_tensor *x, const tx_routes *routes, const tx_arrivals *arrivals);
/* y[n] = the sum over j of weights[n, j] x[places[n, j]]: x [N k, C], weights [N, k] -> [N, C]. */
tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes);
tx_tensor *tx_layer_norm(tx_tensor *x, tx_tensor *gamma, tx_tensor *beta, float eps);
tx_tensor *tx_rms_norm(tx_tensor *x, tx_tensor *gamma, float eps);
/* RMS norm of each head of q and k: x [..., (heads + 2 kv_heads) * size] = q | k | v, gamma [2 * size] = that of q |
 * that of k. v stays as it is (Henry et al., Query-key normalization for transformers, 2020; as Qwen3 has it). */
tx_tensor *tx_head_norm(tx_tensor *x, tx_tensor *gamma, int32_t heads, int32_t kv_heads, float eps);
/* The ranks of a tensor group (tx_parallel_options) divide products: how many there are, 1 without, and which this is.
 */
int32_t tx_graph_tp_size(const tx_graph *graph, int32_t *part);
/* The ranks that have two chunks of each row's positions (tx_parallel_options.context): how many there are, 1 without,
 * and which this is. Embeddings and rotary positions that are given no positions, and dropout, count from the chunks'
 * places on. */
int32_t tx_graph_cp_size(const tx_graph *graph, int32_t *context);
/* What they all have, read by products that each does a part of: x, whose gradient is summed over the group. */
tx_tensor *tx_tp_input(tx_tensor *x);
/* The sum over the group of what each has made of its part. */
tx_tensor *tx_tp_all_reduce(tx_tensor *x);
/* The same for what lies between products, [B, T, C]: where each rank has a chunk of the positions there
 * (tx_parallel_options.sequence) the chunks of all, and of the sum the own one, [B, T / parts, C]. */
bool tx_graph_sequence(const tx_graph *graph);
tx_tensor *tx_tp_all_gather(tx_tensor *x);
tx_tensor *tx_tp_reduce_scatter(tx_tensor *x);
/* A parameter that is read between products: where ranks have chunks its gradient is summed over them. */
tx_tensor *tx_tp_param(tx_tensor *param);
tx_tensor *tx_softmax(tx_tensor *x); /* over the last dimension */
tx_tensor *tx_gelu(tx_tensor *x, bool exact);
tx_tensor *tx_silu(tx_tensor *x);
tx_tensor *tx_tanh(tx_tensor *x);
tx_tensor *tx_rsqrt(tx_tensor *x);  /* 1 / sqrt(x) */
tx_tensor *tx_swiglu(tx_tensor *x); /* x [..., 2F] = gate | up -> silu(gate) * up [..., F] */
tx_tensor *tx_add(tx_tensor *a, tx_tensor *b);
tx_tensor *tx_mul(tx_tensor *a, tx_tensor *b);
tx_tensor *tx_scale(tx_tensor *x, float factor);
/* `site` numbers the place in the model: the same (seed, step, sample, site, element) gives the same draw. */
tx_tensor *tx_dropout(tx_tensor *x, float p, int32_t site);
/* Adds numbers drawn evenly from [-scale, scale), times control NOISE. */
tx_tensor *tx_noise(tx_tensor *x, float scale, int32_t site);

typedef struct tx_attention_options {
    size_t size; /* sizeof(tx_attention_options) */
    int32_t heads, kv_heads;
    bool causal;
    float scale;   /* of the scores; 0 is 1 / sqrt(head size) */
    float dropout; /* of the probabilities */
    int32_t site;  /* as in tx_dropout */
    /* A position sees itself and the window - 1 before it; 0: all before it (Beltagy et al., Longformer, 2020; as
     * Mistral has it). Time and memory traffic grow with the window then, not with T. Causal attention alone. */
    int32_t window;
    int32_t first_head; /* number in the model of the first head, where ranks divide them: keys the dropout */
} tx_attention_options;
/* qkv [B, T, (heads + 2 kv_heads) * size] = q | k | v -> [B, T, heads * size]. lengths I32 [B] or NULL. starts I32
 * [B, T] or NULL: the first position that each sees, as where several samples share a row: causal attention alone;
 * values are 0..T-1, and what lies behind the position itself counts as the position. */
tx_tensor *tx_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, const tx_attention_options *options);
/* Appends each row's keys and values to its caches [B, S, kv_heads * size] at positions[b] (I32 [B], 0..S-T) and lets
 * query t attend to 0..positions[b]+t, within the window. `sources` I32 [B] (or NULL): before that, the row's cache
 * becomes a copy of that of row sources[b], as beams need it. */
tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                               tx_tensor *sources, const tx_attention_options *options);
/* Rotary positions (Su et al., RoFormer, 2021), and the ways to reach beyond the length that a model was trained at.
 * Pair i of a head of d elements turns by f (1 - r + r / factor) a position, where f = theta^(-2i/d), in fp32, and r =
 * ramp + ramp_pair i + ramp_frequency f within [0, 1]: all pairs as they are by ramp 0, all slower by ramp 1
 * ("linear"), by the pair's number (YaRN), by its wavelength ("llama3"). With divisors f is that over divisor[i], each
 * pair's own ("longrope"; by infinity a pair does not turn). Sines and cosines are times `magnitude`. */
#define TX_MAX_ROTARY 256
typedef struct tx_rope {
    float theta, factor;
    float ramp, ramp_pair, ramp_frequency;
    float magnitude;
    float divisor[TX_MAX_ROTARY / 2]; /* 0: 1 */
} tx_rope;
#define TX_ROPE(theta)                       \
    {                                        \
        theta, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, \
        {                                    \
            0                                \
        }                                    \
    } /* an initializer */
/* Rotates the first `heads` heads of x [B, T, n * head_size], pairs (i, i + head_size / 2); the rest is copied.
 * head_size is even and at most TX_MAX_ROTARY. Token t of row b stands at positions[b] + t; positions I32 [B], NULL: 0;
 * or at positions[b][t], I32 [B, T]. */
tx_tensor *tx_rotary(tx_tensor *x, int32_t heads, int32_t head_size, const tx_rope *rope, tx_tensor *positions);
/* -log softmax(logits)[label] a row: logits [..., V'], labels [...]; columns from `vocab` on are
 * padding. Rows labelled TX_IGNORE_LABEL give 0. Logits that are tx_linear's by a transposed matrix whose rows a tensor
 * group divides are this rank's columns: the loss is that of all, `vocab` of them, and such logits are no tx_output.
 * tx_tp_input is to stand before that product. */
tx_tensor *tx_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab);
/* (1 - smoothing) times that plus `smoothing` times the mean over the vocabulary of -log p, 0 <= smoothing < 1: what
 * transformers' LabelSmoother gives (Szegedy et al., 2016, section 7). */
tx_tensor *tx_cross_entropy_smoothed(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing);
/* Distillation from a teacher's logits, of the same shape and type (Hinton et al., 2015): `alpha` times the
 * cross-entropy plus (1 - alpha) T^2 KL(softmax(teacher / T) || softmax(logits / T)), T the temperature; no gradient
 * goes to the teacher. Rows and columns as those of tx_cross_entropy. */
tx_tensor *tx_distillation(tx_tensor *logits, tx_tensor *teacher, tx_tensor *labels, int64_t vocab, float temperature,
                           float alpha);
/* Sum of `losses` times control INVERSE_LABELS: the mean over the labels of the global batch. */
tx_tensor *tx_mean_loss(tx_tensor *losses);

/* `loss` times control LABEL_SHARE: what a mean over a micro-batch counts for in that of the global batch. */
tx_tensor *tx_share_loss(tx_tensor *loss);
/* A mean over the positions of a micro-batch, to which padding has added 0, as the mean over its tokens: `mean` times
 * control POSITIONS_PER_TOKEN. */
tx_tensor *tx_mean_of_tokens(tx_tensor *mean);

/* Adds x, one F32 number, to result DROPPED, over all micro-batches of a step and all ranks; at most once a graph. */
tx_status tx_add_to_result(tx_tensor *x, tx_result result);

typedef enum tx_reduction { TX_REDUCE_SUM, TX_REDUCE_MEAN, TX_REDUCE_MAX, TX_REDUCE_SUMSQ } tx_reduction;
/* What is reduced away: everything, the last dimension, or all dimensions but the last. */
typedef enum tx_axis { TX_AXIS_ALL, TX_AXIS_LAST, TX_AXIS_ROWS } tx_axis;
tx_tensor *tx_reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis);
/* The converse: x [1], without the last dimension, or of that alone [last], repeated to `shape`. */
tx_tensor *tx_broadcast(tx_tensor *x, tx_shape shape, tx_axis axis);
/* log(sum(exp(x))) over the last dimension, which goes. */
tx_tensor *tx_log_sum_exp(tx_tensor *x);
/* x as a constant: nothing that is made of it has a part in the gradient of x. */
tx_tensor *tx_detach(tx_tensor *x);
tx_tensor *tx_cast(tx_tensor *x, tx_dtype dtype);
tx_tensor *tx_fill(tx_graph *graph, tx_shape shape, float value);
/* I32: first, first + step, ..., for the operands of tx_embedding and tx_gather that name rows. */
tx_tensor *tx_range(tx_graph *graph, tx_shape shape, int32_t first, int32_t step);
tx_tensor *tx_reshape(tx_tensor *x, tx_shape shape);

/* Asks for the gradient of the scalar `loss` with respect to every parameter it depends on, and for the addition of
 * `loss` to result LOSS. Given several losses, also one twice, the gradients are those of their sum. The gradients are
 * made by tx_plan_create, which is also where an op without a gradient is refused. */
tx_status tx_backward(tx_graph *graph, tx_tensor *loss);

TX_API_END
#endif
