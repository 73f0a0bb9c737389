/* SPDX-License-Identifier: Apache-2.0
 *
 * Support for architectures that are a stack of equal blocks: a table of their parameters, and functions that build
 * graphs. */
#ifndef TX_MODELS_STACK_H
#define TX_MODELS_STACK_H

#include "models/arch/arch.h"

typedef enum tx_stack_init {
    TX_STACK_NORMAL,   /* normal distribution with the configuration's initializer_range */
    TX_STACK_RESIDUAL, /* the same divided by sqrt(2 layers) */
    TX_STACK_ZERO,
    TX_STACK_ONE,
    TX_STACK_LOG_UNIFORM, /* TX_INIT_LOG_UNIFORM up to 16 */
    TX_STACK_LOG_RANGE,   /* TX_INIT_LOG_RANGE */
    TX_STACK_CONSTANT,    /* `value` */
    TX_STACK_LOG_STEPS,   /* TX_INIT_LOG_STEPS */
    TX_STACK_BY_INPUTS    /* uniform in +-1 / sqrt(inputs) (He et al., 2015, as in torch.nn.Linear) */
} tx_stack_init;

/* Symbolic sizes that all architectures have; an architecture's own follow. */
enum { TX_EXTENT_NONE, TX_EXTENT_VOCAB, TX_EXTENT_WIDTH, TX_EXTENT_OWN };

typedef struct tx_stack_row {
    int32_t slot; /* the builder's key of the parameter. Rows that exclude each other may have the same slot */
    /* A name with "%d" occurs once in every block; "%d" is the block's index. Such rows must be adjacent. */
    const char *name;
    int32_t extent[3]; /* symbolic sizes; TX_EXTENT_NONE after the last dimension */
    tx_stack_init init;
    /* Offsets of flags in the configuration, or 0. The parameter exists if `with` is set and `without` is not. */
    size_t with, without;
    int32_t split;                                      /* as tx_param_spec's */
    bool (*in)(const tx_config *config, int64_t block); /* selects blocks that have it; NULL selects all */
    bool experts;                                       /* as tx_param_spec's */
    bool other_decay;                                   /* vectors with weight decay, and matrices of biases without */
    int32_t heads;                                      /* tx_heads that have it, one bit each; 0 means all */
    bool router;                                        /* a router's weight: it keeps the precision of tables */
    bool frozen;                                        /* a buffer: never trained */
    bool scalar;                                        /* as tx_param_spec's */
    double value;                                       /* of TX_STACK_CONSTANT */
    size_t first; /* offset of the first block that has it, an int64_t, from which names count; 0 means block 0 */
} tx_stack_row;

/* The number of parameters. A row without a name ends the table. */
int32_t tx_stack_params(const tx_config *config, const tx_stack_row *rows);
/* Returns a symbolic size in a block; `block` is 0 outside the blocks. If the size consists of sections along
 * `dimension`, it sets these, too. */
typedef int64_t tx_stack_extent(const tx_config *config, int64_t block, int32_t extent, int32_t dimension,
                                tx_param_sections *sections);
/* Name and spec of parameter `index`. A first dimension of TX_EXTENT_VOCAB is padded. Matrices have weight decay.
 * Matrices outside the blocks (embeddings and classifier) are tables. */
void tx_stack_param(const tx_config *config, const tx_stack_row *rows, tx_stack_extent *extent_of,
                    double initializer_range, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);

/* The row of parameter `index`, and the index in its name; -1 if it has none. */
const tx_stack_row *tx_stack_row_of(const tx_config *config, const tx_stack_row *rows, int32_t index, int64_t *number);

/* The state of a graph builder. The first use of a slot declares its parameter, so that the arena is in layer order. */
typedef struct tx_stack {
    tx_graph *graph;
    const tx_config *config;
    const tx_arch_options *options;
    tx_tensor *tokens, *positions; /* inputs of the graph; `positions` is NULL if rows begin at 0 */
    int64_t padding;               /* a row of the token table that gets no gradient, or -1 */
    const tx_stack_row *rows;
    int64_t block;       /* the block whose parameters slots refer to */
    int32_t next_site;   /* of dropout */
    bool both;           /* a decoder's positions also see later ones */
    int32_t part, parts; /* tensor-parallel rank and size (tx_graph_tp_size) */
    /* For attention with relative positions (relative.h): the addend of the scores of all blocks, and the rows of the
     * table of distances. Both may be NULL. */
    tx_tensor *scores, *distances;
    /* The states of an encoder [B, S, C] that a decoder attends to, and the numbers added to their scores; or NULL. */
    tx_tensor *source, *source_scores;
    /* Keys and values k | v [B, T, 2 n] that later blocks share, of the last block with full attention and of the last
     * one with a window (layer_attention.c), and those blocks. NULL before them. */
    struct {
        tx_tensor *kv;
        int64_t block;
    } shared[2];
    tx_tensor *layer_inputs; /* embeddings of all blocks [B, T, blocks * n] (layer_inputs.c); or NULL */
    /* Sums over the blocks' routers for their losses (experts.h). NULL before the first router. */
    struct {
        tx_tensor *counts, *probabilities, *squares, *kept, *all;
        int64_t rows;
    } routers;
} tx_stack;

/* Checks the configuration, the options and the graph's inputs, and initializes `stack`. */
tx_status tx_stack_open(tx_graph *graph, const tx_config *config, const tx_arch_options *options,
                        const tx_stack_row *rows, tx_stack *stack);
/* The parameter in a slot; in the current block if its row belongs to blocks. NULL on error. */
tx_tensor *tx_stack_weight(const tx_stack *stack, int32_t slot);
/* Whether the model, or the current block, has the parameter. */
bool tx_stack_has(const tx_stack *stack, int32_t slot);
/* The number of this tensor-parallel rank's heads, of `heads` in all. Fails if they cannot be divided equally; `what`
 * names them in the message. */
int32_t tx_stack_heads_per_rank(tx_stack *stack, int64_t heads, const char *what);
/* The same for key and value heads. If there are fewer than ranks, each rank has one head, and neighbouring ranks whose
 * queries use the same head have copies of it. */
int32_t tx_stack_kv_heads_per_rank(tx_stack *stack, int64_t heads, const char *what);
/* A linear layer, x [.., in] -> [.., out], with its adapter; NULL on error. The bias is added if the model has one. If
 * the outputs are divided among tensor-parallel ranks, it returns this rank's slice. If the inputs are divided, it
 * takes this rank's slice and returns the sum over ranks. */
tx_tensor *tx_stack_linear(const tx_stack *stack, tx_tensor *x, int32_t weight, int32_t bias);
/* A linear layer without a bias that is not divided or whose outputs are, for several layers that read the same x,
 * which is a result of tx_tp_all_gather. */
tx_tensor *tx_stack_columns(const tx_stack *stack, tx_tensor *x, int32_t weight);
/* tx_grouped_linear with the weight in a slot, [E, out, in] or with `inputs_first` [E, in, out], and its adapter. */
tx_tensor *tx_stack_grouped(const tx_stack *stack, tx_tensor *x, int32_t weight, tx_tensor *offsets, bool inputs_first);
/* The token embeddings, with their adapter, plus position embeddings (may be NULL). */
tx_tensor *tx_stack_lookup(const tx_stack *stack, tx_tensor *table, tx_tensor *position_table);
/* The rows of tokens [B, T] in another table of the vocabulary, with its adapter: [B, T, columns]. */
tx_tensor *tx_stack_rows_of(const tx_stack *stack, int32_t slot, tx_tensor *tokens);
/* The output head with its adapter, x [.., in] -> [.., vocabulary]; `weight` is that of the slot. */
tx_tensor *tx_stack_head(const tx_stack *stack, tx_tensor *x, tx_tensor *weight, tx_tensor *bias, int32_t slot);
/* tx_stack_lookup, with NEFTune noise if the options set it. */
tx_tensor *tx_stack_embed(const tx_stack *stack, tx_tensor *table, tx_tensor *position_table);
/* Dropout when training. Every call uses up a site, so that the random numbers of other sites do not depend on p. */
tx_tensor *tx_stack_dropout(tx_stack *stack, tx_tensor *x, double p);
/* Clamps x to -limit .. limit; a limit of 0 means none. */
tx_tensor *tx_stack_clip(const tx_stack *stack, tx_tensor *x, double limit);
/* RMS norms of q, which has `q` columns, and of k, each over all its heads: qkv is q | k | v, gamma those of q | k. */
tx_tensor *tx_stack_whole_norms(tx_tensor *qkv, tx_tensor *gamma, int64_t q, float eps);
/* The positions of a row of all ranks that share it. With the input `sequences`, those of a sequence. */
int64_t tx_stack_row_length(const tx_graph *graph, const tx_tensor *tokens);
/* The same, or the positions of its cache if these are more. */
int64_t tx_stack_length(const tx_stack *stack);
/* Attention over packed qkv, causal if the head is, with the block's KV caches if there are any. `options` must hold
 * this rank's heads, and the scale. */
tx_tensor *tx_stack_attention(tx_stack *stack, tx_tensor *qkv, int64_t block, tx_attention_options *options,
                              double dropout);
/* A cache that rows of graphs share, F32 [rows, length, width]: state "cache.<name>.<block>.<part>". */
tx_tensor *tx_stack_cache(const tx_stack *stack, const char *name, int64_t block, const char *part, int64_t rows,
                          int64_t length, int64_t width);
/* Builds all blocks in order, each marked by tx_graph_block: x [B, T, C] -> [B, T, C]. */
typedef tx_tensor *tx_stack_block(tx_stack *stack, tx_tensor *x, int64_t block);
/* Builds blocks first, .., end - 1. */
tx_tensor *tx_stack_range(tx_stack *stack, tx_tensor *x, int64_t first, int64_t end, tx_stack_block *block);
tx_tensor *tx_stack_blocks(tx_stack *stack, tx_tensor *x, tx_stack_block *block);
/* Whether the model is a decoder: language models, classifiers that read the last token, and decoders' states. */
bool tx_stack_decodes(const tx_config *config);
/* All positions of x [B, T, C], which ranks divide with sequence parallelism, on each rank. It ends sequence
 * parallelism: all ranks compute the rest of the graph. */
tx_tensor *tx_stack_whole(const tx_stack *stack, tx_tensor *x);
/* The positions whose logits are requested: x [B, T, C] -> [R, C], or x if all are; [B, C] if the last token of each
 * row is classified. Only x itself may be a chunk. */
tx_tensor *tx_stack_rows(const tx_stack *stack, tx_tensor *x);

#endif
