/* SPDX-License-Identifier: Apache-2.0
 * Graphs: parameters, inputs and operations. A function that returns a tensor adds an operation to the graph of its
 * operands. On failure it returns NULL, and the graph records the first failure, which tx_backward and tx_plan_create
 * report. Calls can therefore be nested without checks. The graph owns its tensors. */
#ifndef TX_GRAPH_H
#define TX_GRAPH_H

#include "tx_model.h"

TX_API_BEGIN

typedef struct tx_graph tx_graph;
typedef struct tx_tensor tx_tensor;

tx_status tx_graph_create(tx_model *model, tx_graph **graph);
void tx_graph_free(tx_graph *graph);
/* Enables mixed precision with BF16 or F16. Products and attention then read 16-bit operands and save 16-bit
 * activations for the backward pass, and so do the activations between them. Sums, statistics of norms, softmax,
 * losses, the residual stream, parameters and their gradients stay in fp32. With BF16 the gradient of the residual
 * stream has 16 bits, too. The default F32 leaves all ops as recorded. Outputs keep their type. Call this before the
 * graph has a plan. */
tx_status tx_graph_autocast(tx_graph *graph, tx_dtype dtype);
/* Stores the residual stream, the sum to which each attention and MLP block adds, in `dtype`: F32 (default) or BF16.
 * BF16 needs tx_graph_autocast with BF16, or tx_plan_create fails. Norms compute in fp32 as before. The gradient of the
 * stream has 16 bits, too, unless tx_graph_fp32_residual_gradient is called. Call this before the graph has a plan. */
tx_status tx_graph_residual_dtype(tx_graph *graph, tx_dtype dtype);
/* Keeps the gradient of the residual stream in fp32 with BF16, too. Call this before the graph has a plan. */
tx_status tx_graph_fp32_residual_gradient(tx_graph *graph);
/* Limits the logits of a classifier that exist at a time to `bytes`. The rows of larger ones are processed in chunks,
 * which sum the table's gradient in another order. Default: 256 MiB. Call this before the graph has a plan. */
tx_status tx_graph_limit_logits(tx_graph *graph, int64_t bytes);
/* Assigns the nodes recorded from now on to a block of the architecture (a layer: attention and feed-forward). Blocks
 * are numbered from 1 in the order of the model. The default 0 means no block. */
void tx_graph_block(tx_graph *graph, int32_t block);

/* Gradient checkpointing (Chen et al., Training deep nets with sublinear memory cost, 2016): activations of blocks are
 * not saved in the forward pass. The backward pass recomputes them just before use, with the same bits. */
typedef struct tx_checkpointing {
    size_t size; /* sizeof(tx_checkpointing) */
    /* Number of segments into which the blocks are divided, as evenly as possible. Default: 0 (a segment for each
     * block). Larger values than the number of blocks mean the same. */
    int32_t segments;
    int32_t whole; /* the first `whole` segments save only their input; INT32_MAX means all segments */
    /* The next `cheap` segments recompute only norms, activation functions and casts. The others save everything. */
    int32_t cheap;
} tx_checkpointing;
/* Call this before the graph has a plan. tx_plan_create refuses a graph with gradients and without blocks. */
tx_status tx_graph_checkpointing(tx_graph *graph, const tx_checkpointing *options);
/* Keeps saved activations of blocks (tx_graph_block) in host memory between the forward and the backward pass. The
 * device holds those of two blocks at a time and of the last block. Results have the same bits. With checkpointing the
 * inputs of segments are offloaded too. Call this before the graph has a plan. */
tx_status tx_graph_offload_activations(tx_graph *graph);
/* Records a failure with this thread's message, unless the graph has one; tx_backward and tx_plan_create report it.
 * Returns `status`. It is for functions that build parts of models and return NULL on error. */
tx_status tx_graph_fail(tx_graph *graph, tx_status status);
const tx_shape *tx_tensor_shape(const tx_tensor *tensor);
tx_dtype tx_tensor_dtype(const tx_tensor *tensor);

/* Adds an input, which the host writes before a run. */
tx_tensor *tx_input(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* Returns the first input of this name, or NULL if there is none. */
tx_tensor *tx_find_input(const tx_graph *graph, const char *name);
/* Reads a parameter of the model. The first use declares it; later ones, in any graph, must agree. `spec` may be NULL
 * if the parameter has been declared. */
tx_tensor *tx_param(tx_graph *graph, const char *name, const tx_param_spec *spec);
/* A tensor that keeps its value between runs. Graphs of a model share it by name (a key-value cache). It is initially
 * 0. */
tx_tensor *tx_state(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* The same in fp32, also if tx_model_store chose 16 bits: a state in which rounding errors would add up. */
tx_tensor *tx_state_full(tx_graph *graph, const char *name, tx_shape shape);
/* Makes a tensor readable after runs. It has no effect once the graph has a plan. Returns its argument. */
tx_tensor *tx_output(tx_tensor *tensor);

/* y = x W + b. x [..., K]; W [K, N], or [N, K] with transpose; b [N] or NULL. */
tx_tensor *tx_linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose);
/* The same in fp32 in spite of tx_graph_autocast. Routers use it, because small errors would change the routing. */
tx_tensor *tx_linear_full(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose);
/* Batched product over equal leading dimensions. An operand of rank 2 applies to the whole batch. */
tx_tensor *tx_matmul(tx_tensor *a, tx_tensor *b, bool transpose_a, bool transpose_b);
/* Token embedding plus position embedding, for tokens I32 [B, T]. Returns [B, T, C]. A token below 0 gives a row of
 * zeros. position_table may be NULL. Positions I32 [B] are those of each row's first token (the length of its cache).
 * Positions I32 [B, T] are those of each token. With NULL they count from 0. If a tensor group divides the rows of
 * token_table (tx_param_spec.split), each rank looks up its own rows and the results are summed. */
tx_tensor *tx_embedding(tx_tensor *tokens, tx_tensor *token_table, tx_tensor *position_table, tx_tensor *positions);
/* The same, but row `padding` of token_table gets no gradient (PyTorch's padding_idx). Below 0 all rows get one. */
tx_tensor *tx_embedding_padded(tx_tensor *tokens, tx_tensor *token_table, int64_t padding, tx_tensor *position_table,
                               tx_tensor *positions);
/* Positions of the tokens in each row: I32 [B, T] -> [B, T]. Tokens that are not padding count from padding + 1;
 * padding has position `padding` (RoBERTa). */
tx_tensor *tx_token_positions(tx_tensor *tokens, int32_t padding);
/* Returns the given rows of table [V, C]: rows I32 [...] -> [..., C]. A negative index gives a row of zeros. */
tx_tensor *tx_gather(tx_tensor *table, tx_tensor *rows);
/* Returns [rows, C]: row r is the sum of the src rows whose index is r. */
tx_tensor *tx_scatter_add(tx_tensor *indices, tx_tensor *src, int64_t rows);
/* Returns the k greatest elements of each row of x [..., E] in descending order, [..., k], and their indices (I32) in
 * *indices. Among equal elements the lower index comes first. */
tx_tensor *tx_top_k(tx_tensor *x, int64_t k, tx_tensor **indices);
/* How tx_choose selects experts by their scores (DeepSeek-V3, 2024, section 2.1.2). */
typedef struct tx_expert_choice {
    tx_tensor *bias; /* [E]: added to x only to compare; gets no gradient; or NULL */
    /* With groups above 0 the elements of a row are so many groups of equal size, at most 64. Only the `kept` groups
     * with the greatest sums of their `best` greatest elements are considered. */
    int32_t groups, kept, best;
    bool normalize; /* divide the result by its sum, or by eps if that is greater */
    float eps;
    float scale; /* then multiply it by this number */
} tx_expert_choice;
/* The same as tx_top_k with these rules. The result has the chosen elements of x without the bias. */
tx_tensor *tx_choose(tx_tensor *x, int64_t k, const tx_expert_choice *how, tx_tensor **indices);
/* Assignment of tokens to experts (Lepikhin et al., GShard, 2021; Fedus et al., Switch Transformers, 2022; without
 * padding as in Gale et al., MegaBlocks, 2023). All tensors are I32 except counts. */
typedef struct tx_routes {
    tx_tensor *tokens;  /* [N k]: the token in each slot, or -1; slots are sorted by expert */
    tx_tensor *places;  /* [N, k]: the slot of each choice, or -1 if dropped */
    tx_tensor *offsets; /* [experts + 1]: the first slot of each expert, then the end of the last */
    tx_tensor *counts;  /* F32 [experts]: choices of each expert, dropped ones included; no gradient */
} tx_routes;
/* Sorts tokens by expert. choices I32 [N, k] are below `experts`. ids I32 [N] may be NULL. A token whose id is below 0
 * is padding and gets no expert. With a capacity above 0 an expert gets at most ceil(capacity times an even share of
 * the choices): first choices before second ones, and among these earlier tokens first. Returns false on failure, which
 * the graph records. */
bool tx_route(tx_tensor *choices, tx_tensor *ids, int64_t experts, float capacity, tx_routes *routes);
/* Multiplies rows offsets[e]..offsets[e + 1] - 1 of x [R, K] by w[e]; w [E, K, N], or [E, N, K] with transpose. Returns
 * [R, N]. Rows outside all groups give 0. */
tx_tensor *tx_grouped_linear(tx_tensor *x, tx_tensor *w, tx_tensor *offsets, bool transpose);
/* The sums of the rows of each of these groups: F32 x [R, K] -> [E, K]. No gradient. */
tx_tensor *tx_grouped_sums(tx_tensor *x, tx_tensor *offsets);
/* Rows received by this rank's experts (tx_parallel_options.expert). */
typedef struct tx_arrivals {
    tx_tensor *offsets; /* I32 [local experts + 1]: the first row of each local expert, then the end of the last */
    tx_tensor *counts;  /* row counts for tx_ep_collect; NULL without an expert group */
    int64_t rows;       /* most rows that can arrive; rows after the last offset are 0 */
} tx_arrivals;
/* Sends rows of x [N k, C], one for each slot of `routes`, to the ranks of their experts. `chosen` is k, `capacity`
 * that of tx_route. Returns [rows, C], sorted by local expert, rank and slot; without an expert group x itself. Memory
 * is for the worst case: each rank sends N min(k, local experts) rows, or as many as local experts accept at most if
 * that is less. Only actual rows are sent. */
tx_tensor *tx_ep_dispatch(tx_tensor *x, const tx_routes *routes, int64_t chosen, float capacity, tx_arrivals *arrivals);
/* Returns the experts' results to their slots: x [rows, C] -> [N k, C]. */
tx_tensor *tx_ep_collect(tx_tensor *x, const tx_routes *routes, const tx_arrivals *arrivals);
/* y[n] = the sum over j of weights[n, j] x[places[n, j]]: x [N k, C], weights [N, k] -> [N, C]. */
tx_tensor *tx_combine(tx_tensor *x, tx_tensor *weights, const tx_routes *routes);
/* Norms over the last dimension C of x; gamma and beta are [C]. */
tx_tensor *tx_layer_norm(tx_tensor *x, tx_tensor *gamma, tx_tensor *beta, float eps);
tx_tensor *tx_rms_norm(tx_tensor *x, tx_tensor *gamma, float eps);
/* RMS norm of each head of q and k. x is [..., (heads + 2 kv_heads) * size] = q | k | v, gamma is [2 * size] = gamma of
 * q | gamma of k. The norm leaves v as it is (Henry et al., Query-key normalization for transformers, 2020; as in
 * Qwen3). */
tx_tensor *tx_head_norm(tx_tensor *x, tx_tensor *gamma, int32_t heads, int32_t kv_heads, float eps);
/* Returns the tensor-parallel size (tx_parallel_options), 1 without such a group, and this rank's index in *rank. */
int32_t tx_graph_tp_size(const tx_graph *graph, int32_t *rank);
/* Returns the context-parallel size (tx_parallel_options.context), 1 without such a group, and this rank's index in
 * *rank. Each rank has two chunks of every row. Embeddings and rotary positions without given positions, and
 * dropout, use the positions of these chunks in the row. */
int32_t tx_graph_cp_size(const tx_graph *graph, int32_t *rank);
/* Returns the number of ranks whose rows tx_dp_all_gather joins (tx_parallel_options.peers), 1 without such a group,
 * and this rank's index in *rank. */
int32_t tx_graph_dp_size(const tx_graph *graph, int32_t *rank);
/* The rows of x [n, C] of all these ranks, one rank after the other: [size n, C]. The gradient of a rank's rows is the
 * sum of all ranks' gradients. */
tx_tensor *tx_dp_all_gather(tx_tensor *x);
/* Marks x, which all tensor-parallel ranks have, as input of divided products. Its gradient is summed over the group.
 */
tx_tensor *tx_tp_input(tx_tensor *x);
/* Sums x, the partial result of each tensor-parallel rank, over the group. */
tx_tensor *tx_tp_all_reduce(tx_tensor *x);
/* Sequence parallelism (tx_parallel_options.sequence). tx_graph_sequence returns whether it is on. If so, activations
 * between products are divided along the positions, [B, T / size, C]. tx_tp_all_gather gathers the chunks of all ranks;
 * tx_tp_reduce_scatter sums over the ranks and keeps the local chunk. Otherwise they act as tx_tp_input and
 * tx_tp_all_reduce.
 */
bool tx_graph_sequence(const tx_graph *graph);
/* Ends sequence parallelism for the rest of the graph, or begins it again if the model has it: before a head that reads
 * whole rows, and after it. */
void tx_graph_set_sequence(tx_graph *graph, bool on);
tx_tensor *tx_tp_all_gather(tx_tensor *x);
tx_tensor *tx_tp_reduce_scatter(tx_tensor *x);
/* Gathers the chunks x [B, T / size, C] for computations that all ranks repeat. The gradient of a chunk is that of its
 * positions on this rank. Otherwise it returns x. */
tx_tensor *tx_tp_replicate(tx_tensor *x);
/* This rank's chunk of x [B, T, C], which all ranks have; the gradient of other positions is 0. Otherwise it returns x.
 */
tx_tensor *tx_tp_own_chunk(tx_tensor *x);
/* Marks a parameter that is read between products. With sequence parallelism its gradient is summed over the group. */
tx_tensor *tx_tp_param(tx_tensor *param);
/* Returns the columns of `x` of all ranks, if x is a product with a divided table: rank r has those from r * each on,
 * with each = columns / ranks, rounded up. 0 if x is no such product, or there is no tensor group. */
int64_t tx_tp_columns(const tx_tensor *x);
tx_tensor *tx_softmax(tx_tensor *x);          /* over the last dimension */
tx_tensor *tx_gelu(tx_tensor *x, bool exact); /* exact: by erf; otherwise the tanh approximation */
tx_tensor *tx_relu(tx_tensor *x);             /* max(x, 0) */
tx_tensor *tx_silu(tx_tensor *x);
tx_tensor *tx_tanh(tx_tensor *x);
tx_tensor *tx_exponential(tx_tensor *x); /* e^x */
tx_tensor *tx_logarithm(tx_tensor *x);   /* ln(x) */
tx_tensor *tx_rsqrt(tx_tensor *x);       /* 1 / sqrt(x) */
tx_tensor *tx_sigmoid(tx_tensor *x);     /* 1 / (1 + e^-x) */
tx_tensor *tx_swiglu(tx_tensor *x);      /* x [..., 2F] = gate | up -> silu(gate) * up [..., F] */
/* The same as g / (1 + e^(-alpha g)) * (u + 1) with g = min(gate, limit) and u = up clamped to -limit..limit (gpt-oss).
 */
tx_tensor *tx_swiglu_clamped(tx_tensor *x, float alpha, float limit);
tx_tensor *tx_geglu(tx_tensor *x); /* the same, but the gate passes through the tanh form of GELU */
/* Element-wise. Both operands have the same shape and type; use tx_broadcast if they do not. */
tx_tensor *tx_add(tx_tensor *a, tx_tensor *b);
/* The same for a result of tx_linear. With tx_graph_autocast the sum has the type that the product would have without
 * it, so that adding zeros changes no bit. */
tx_tensor *tx_add_to_product(tx_tensor *product, tx_tensor *more);
tx_tensor *tx_mul(tx_tensor *a, tx_tensor *b);
tx_tensor *tx_scale(tx_tensor *x, float factor);
/* Sets elements to 0 with probability p and divides the others by 1 - p. `site` identifies the dropout in the model.
 * Equal seed, step, sample, site and element give equal draws. */
tx_tensor *tx_dropout(tx_tensor *x, float p, int32_t site);
/* Adds uniform noise from [-scale, scale), multiplied by control NOISE. tx_model.h lists the controls. */
tx_tensor *tx_noise(tx_tensor *x, float scale, int32_t site);

typedef struct tx_attention_options {
    size_t size; /* sizeof(tx_attention_options) */
    int32_t heads, kv_heads;
    bool causal;
    float scale;   /* of the scores; 0 means 1 / sqrt(head size) */
    float dropout; /* of the probabilities */
    int32_t site;  /* as in tx_dropout */
    /* Sliding window: a position sees itself and the window - 1 positions before it, or all before it if the window is
     * 0 (Beltagy et al., Longformer, 2020; as in Mistral). Time and memory traffic then grow with the window instead of
     * with T. It needs causal attention. */
    int32_t window;
    bool chunked;     /* a position sees itself and those before it in its own chunk of `window` positions (Llama 4) */
    float cap;        /* soft cap of the scores s: cap tanh(s / cap); 0 means none (Gemma 2) */
    tx_tensor *sinks; /* F32 [heads], a score in each softmax that belongs to no key (gpt-oss); or NULL */
    /* Index in the model of this rank's first head, if tensor-parallel ranks divide the heads. Dropout depends on it.
     */
    int32_t first_head;
    bool kept; /* tx_attention_cached: the caches have the rows' keys and values, and those of qkv are not read */
} tx_attention_options;
/* Attention. The operand qkv is [B, T, (heads + 2 kv_heads) * size] = q | k | v, the result [B, T, heads * size].
 * Operand lengths, I32 [B] or NULL, has the number of positions of each row that are not padding. Keys from there on
 * are masked, and results there are 0. Operand starts is I32 [B, T] or NULL. It holds the first position that each
 * position sees, for rows of several packed samples, and needs causal attention. Values are 0..T-1; one greater than
 * the position itself counts as the position. */
tx_tensor *tx_attention(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, const tx_attention_options *options);
/* Packs q | k | v for attention whose keys and values come from a latent (DeepSeek-V2, 2024, section 2.1). Operand q is
 * [B, T, heads * (N + R)]; the last R elements of a head rotate. Operand kv is [B, T, heads * (N + V)]: the first
 * elements of each head's key, then its value. Operand rope is [B, T, R]: the last elements of the keys of all heads. V
 * is at most N + R. The result is [B, T, 3 * heads * (N + R)]. The R elements come first in each head of q and k, and
 * zeros follow the values. With `pairs`, adjacent elements of the R rotate together; they become elements i and R / 2 +
 * i. */
tx_tensor *tx_mla_qkv(tx_tensor *q, tx_tensor *kv, tx_tensor *rope, int32_t heads, bool pairs);
/* Appends keys and values of each row to its caches [B, S, kv_heads * size] at positions[b] (I32 [B], 0..S-T). Query t
 * attends to 0..positions[b]+t, within the window. With `sources` (I32 [B], or NULL), row b's cache first becomes a
 * copy of row sources[b]'s, as beam search needs it. With `slots` (I32 [B], all different, or NULL) the caches have any
 * number of rows, and row b uses row slots[b] of them. Caches of U8 hold blocks of Q8_0 (api/base/blocks.h). */
tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                               tx_tensor *sources, tx_tensor *slots, const tx_attention_options *options);
/* Appends kv [B, T, 2 n] = keys | values of each row to its caches [B, S, n] at positions[b] (I32 [B], 0..S-T), after
 * `sources` and in `slots` as in tx_attention_cached; both may be NULL. Nodes that are added after it read the new
 * caches. Fails if the graph has failed. */
tx_status tx_cache_append(tx_tensor *kv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                          tx_tensor *sources, tx_tensor *slots);
/* Row b of a cache [B, S, n] becomes a copy of row sources[b] (I32 [B]). Fails if the graph has failed. */
tx_status tx_cache_reorder(tx_tensor *cache, tx_tensor *sources);
/* The same of each state [B, S, n] of the model whose name begins with `prefix` and that a graph has declared, for rows
 * 0..positions[b]-1 (I32 [B]) along S. A position of S or more means all. */
tx_status tx_caches_reorder(tx_graph *graph, const char *prefix, tx_tensor *sources, tx_tensor *positions);
/* Recurrent layers of hybrid models. Rows of several samples have `starts` as in tx_attention: a sample whose first
 * position p has the start p sees nothing before it. Operands called optional may be NULL. */
/* A causal convolution of each column: x [B, T, C], w [C, taps] with at most 8 taps, optional bias [C] -> [B, T, C].
 * The last tap is that of the position itself. With `silu`, SiLU of the result. */
tx_tensor *tx_short_conv(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *starts, bool silu);
/* The same for tokens that continue earlier ones, without a gradient. For each row of x, spans, I32 [B, 3], has a row
 * of the tail, the position of the row's first token, and the number of its tokens; later ones are padding. The tail,
 * F32 [R, taps - 1, C], has the last columns before the first token, which at position 0 count as 0. It is then that of
 * the next token. */
tx_tensor *tx_short_conv_cached(tx_tensor *x, tx_tensor *w, tx_tensor *bias, tx_tensor *tail, tx_tensor *spans,
                                bool silu);
typedef struct tx_scan_options {
    size_t size; /* sizeof(tx_scan_options) */
    /* The gated delta rule (Yang et al., Gated delta networks, 2025). Otherwise Mamba-2's state space dual (Dao and Gu,
     * Mamba-2, 2024), whose queries, keys and values are called C, B and x. */
    bool delta;
    float low, high; /* limits of Mamba-2's step */
    /* Heads of queries and keys; heads of values, a multiple of them; elements of a head of keys, at most 256. */
    int32_t k_heads, v_heads, k_size;
    float eps;   /* above 0, queries and keys are divided by sqrt(sum of squares + eps) */
    float scale; /* of the queries */
} tx_scan_options;
/* The decay and the weight of each token. a_log and dt_bias are [v_heads]. With the delta rule x is [B, T, 2 v_heads] =
 * b | a, else a [B, T, v_heads]. Returns F32 [B, T, 2 v_heads] = -e^a_log softplus(a + dt_bias) | sigmoid(b), or with
 * Mamba-2 -e^a_log step | step, where step is softplus(a + dt_bias) within the limits. */
tx_tensor *tx_scan_rates(tx_tensor *x, tx_tensor *a_log, tx_tensor *dt_bias, const tx_scan_options *options);
/* Linear attention with a state S of each value head. A token multiplies S by e^decay and adds k n^T. With the delta
 * rule n = weight (v - S^T k), else weight v. The result is S^T q + skip v. qkv is [B, T, ..] = q | k | v with the
 * delta rule, else v | k | q, the heads of each concatenated; skip [v_heads] is optional. Returns [B, T, v_heads *
 * elements of a value head]. Time is linear in T. */
tx_tensor *tx_linear_scan(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip, tx_tensor *starts,
                          const tx_scan_options *options);
/* The same for tokens that continue earlier ones (tx_short_conv_cached), without a gradient. The state, F32 [R, v_heads
 * k_size, elements of a value head], is S before the first token, and 0 at position 0. It is then S after the last
 * token. Results of padding are 0. */
tx_tensor *tx_linear_scan_cached(tx_tensor *qkv, tx_tensor *rates, tx_tensor *skip, tx_tensor *state, tx_tensor *spans,
                                 const tx_scan_options *options);
/* Rotary position embedding (Su et al., RoFormer, 2021) and its extensions to contexts longer than in training. The
 * angle of pair i in a head of d elements is f (1 - r + r / factor) for each position, with f = theta^(-2i/d) and r =
 * ramp + ramp_pair i + ramp_frequency f clamped to [0, 1]. Ramp 0 leaves all pairs unchanged and ramp 1 slows all
 * ("linear"). ramp_pair depends on the pair (YaRN), ramp_frequency on the wavelength ("llama3"). Divisors divide the f
 * of each pair ("longrope"; a pair with an infinite one is not rotated). Sines and cosines are multiplied by
 * `magnitude`. With `rotated` elements, pairs and d refer to the first `rotated` elements of each head, and the others
 * are copied. All is computed in fp32. */
#define TX_MAX_ROTARY 256
typedef struct tx_rope {
    float theta, factor;
    float ramp, ramp_pair, ramp_frequency;
    float magnitude;
    float divisor[TX_MAX_ROTARY / 2]; /* 0 means 1 */
    int32_t rotated;                  /* an even number of elements; 0 means the whole head */
} tx_rope;
#define TX_ROPE(theta)                              \
    {                                               \
        theta, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, {0}, 0 \
    } /* an initializer */
/* Rotates pairs (i, i + rotated / 2) in the first `heads` heads of x [B, T, n * head_size] and copies the others.
 * head_size is even; up to TX_MAX_ROTARY elements rotate. Token t of row b has position positions[b] + t with I32 [B],
 * positions[b][t] with I32 [B, T], and t with NULL. With `rates`, F32 [B, rotated / 2] or NULL, the angle of pair i in
 * row b is rates[b][i] for each position, and of `rope` only `magnitude` and `rotated` apply. */
tx_tensor *tx_rotary(tx_tensor *x, int32_t heads, int32_t head_size, const tx_rope *rope, tx_tensor *positions,
                     tx_tensor *rates);
/* Writes the angles of the pairs at position 1 (see tx_rope) to rates [rotated / 2]. */
void tx_rotary_rates(const tx_rope *rope, int32_t head_size, float *rates);
/* Returns -log softmax(logits)[label] of each row: logits [..., V'], labels [...]. Columns from `vocab` on are padding.
 * Rows labelled TX_IGNORE_LABEL give 0. If the logits come from tx_linear with a transposed matrix whose rows a tensor
 * group divides, they are this rank's columns; the loss is over all `vocab` columns of the group. Such logits cannot be
 * a tx_output, and tx_tp_input must precede the product. */
tx_tensor *tx_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab);
/* Label smoothing: (1 - smoothing) times the cross-entropy plus `smoothing` times the mean over the vocabulary of -log
 * p. 0 <= smoothing < 1. It equals transformers' LabelSmoother (Szegedy et al., 2016, section 7). */
tx_tensor *tx_cross_entropy_smoothed(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing);
/* Statistics of the distributions that gave the `losses` of tx_cross_entropy, [..] each and without a gradient.
 * TOKEN_ENTROPY is the entropy. TOKEN_MEAN_LOGIT is the mean of the logits. TOKEN_IS_TOP is 1 if the label has the
 * greatest logit, else 0. TOKEN_LOG_SQUARES is the logarithm of the sum of the squared probabilities. Rows whose label
 * is negative give 0. TX_INVALID if `losses` are other tensors, also if a tensor group divides the vocabulary. */
enum { TX_TOKEN_ENTROPY, TX_TOKEN_MEAN_LOGIT, TX_TOKEN_IS_TOP, TX_TOKEN_LOG_SQUARES, TX_TOKEN_STATISTICS };
tx_status tx_token_statistics(tx_tensor *losses, tx_tensor *labels, tx_tensor *statistics[TX_TOKEN_STATISTICS]);
/* The entropy alone, with a gradient. Returns NULL on error. */
tx_tensor *tx_token_entropy(tx_tensor *losses, tx_tensor *labels);
/* Distillation from a teacher's logits of the same shape and type (Hinton et al., 2015): `alpha` times the
 * cross-entropy plus (1 - alpha) T^2 KL(softmax(teacher / T) || softmax(logits / T)), where T is the temperature. The
 * teacher gets no gradient. Rows and columns are as in tx_cross_entropy. */
tx_tensor *tx_distillation(tx_tensor *logits, tx_tensor *teacher, tx_tensor *labels, int64_t vocab, float temperature,
                           float alpha);
/* Returns the mean over the labels of the global batch: the sum of `losses` times control INVERSE_LABELS. */
tx_tensor *tx_mean_loss(tx_tensor *losses);

/* Weights a mean over a micro-batch by its share of the global batch: `loss` times control LABEL_SHARE. */
tx_tensor *tx_share_loss(tx_tensor *loss);
/* Converts a mean over the positions of a micro-batch, in which padding counts as 0, to a mean over its tokens: `mean`
 * times control POSITIONS_PER_TOKEN. */
tx_tensor *tx_mean_of_tokens(tx_tensor *mean);

/* Adds the means over the labels of the columns of x [rows, n] to n results: `first`, TASK_0 or a later one, and those
 * after it. A mean is the sum times control INVERSE_LABELS. The results are sums over all micro-batches of a step and
 * all ranks. At most once a graph for each result. */
tx_status tx_add_means_to_results(tx_tensor *x, tx_result first);
/* Adds x, one F32 number, to `result` over all micro-batches of a step and all ranks. `result` must be
 * TX_RESULT_DROPPED. At most once a graph. */
tx_status tx_add_to_result(tx_tensor *x, tx_result result);

typedef enum tx_reduction { TX_REDUCE_SUM, TX_REDUCE_MEAN, TX_REDUCE_MAX, TX_REDUCE_SUMSQ } tx_reduction;
/* The dimensions to reduce: all (the result is [1]), the last (it is removed), or all except the last (the result is
 * [C]). */
typedef enum tx_axis { TX_AXIS_ALL, TX_AXIS_LAST, TX_AXIS_ROWS } tx_axis;
tx_tensor *tx_reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis);
/* Returns the element [1] below which a `share` (0 to 1) of the elements of x lie, linearly interpolated as by
 * torch.quantile; only those whose element of `counts`, like x, is not 0. 0 if there are none. No gradient. */
tx_tensor *tx_quantile(tx_tensor *x, tx_tensor *counts, double share);
/* Repeats x to `shape`, the inverse of tx_reduce's axis: x is [1], lacks the last dimension, or has only the last. */
tx_tensor *tx_broadcast(tx_tensor *x, tx_shape shape, tx_axis axis);
/* log(sum(exp(x))) over the last dimension, which is removed. */
tx_tensor *tx_log_sum_exp(tx_tensor *x);
/* Returns x as a constant: no gradient flows through it. */
tx_tensor *tx_detach(tx_tensor *x);
tx_tensor *tx_cast(tx_tensor *x, tx_dtype dtype);
tx_tensor *tx_fill(tx_graph *graph, tx_shape shape, float value);
/* I32: first, first + step, ..., for index operands of tx_embedding and tx_gather. */
tx_tensor *tx_range(tx_graph *graph, tx_shape shape, int32_t first, int32_t step);
/* Swaps two dimensions: x [.., A, B, C] -> [.., B, A, C]. */
tx_tensor *tx_transpose(tx_tensor *x);
/* Moves row t to the left by first + t step elements: x [.., T, C] -> [.., T, columns]. Element i of row t is element
 * i + first + t step of row t of x, or 0 outside the row. */
tx_tensor *tx_shift_rows(tx_tensor *x, int64_t columns, int64_t first, int32_t step);
/* A matrix of `rows` rows with `alpha` times part[i] from row first[i] and column i * step on, and 0 elsewhere. There
 * are 1 to 4 parts, matrices [n, c] with equally many columns, which have no row in common. */
tx_tensor *tx_place_rows(int32_t parts, tx_tensor *const *part, const int64_t *first, int64_t rows, int64_t step,
                         float alpha);
/* The weight of an adapted linear layer as merging computes it, to the last bit: w + scale B A, F32. w is [.., out,
 * in], or [.., in, out] if `inputs_first`. There are 1 to 4 parts: b[i] [.., n, rank] has outputs first[i] and later,
 * and rows i * rank and later of a [.., parts * rank, in]. They have no output in common; other outputs are those of w.
 * The result is a constant, as of tx_detach. */
tx_tensor *tx_add_low_rank(tx_tensor *w, tx_tensor *a, int32_t parts, tx_tensor *const *b, const int64_t *first,
                           float scale, bool inputs_first);
tx_tensor *tx_reshape(tx_tensor *x, tx_shape shape);

/* Adds `loss`, a scalar, to result LOSS and requests its gradient for every parameter it depends on. For several
 * losses, also repeated ones, the gradients are those of their sum. tx_plan_create builds the gradients and refuses ops
 * without one. */
tx_status tx_backward(tx_graph *graph, tx_tensor *loss);

TX_API_END
#endif
