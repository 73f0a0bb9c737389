/* SPDX-License-Identifier: Apache-2.0
 *
 * What architectures share that are a stack of equal blocks: their parameters as one table, and what the builders of
 * their graphs begin with. */
#ifndef TX_MODELS_STACK_H
#define TX_MODELS_STACK_H

#include "models/arch/arch.h"

typedef enum tx_stack_draw {
    TX_DRAW_NORMAL,   /* of the configuration's initializer_range */
    TX_DRAW_RESIDUAL, /* the same over sqrt(2 layers) */
    TX_DRAW_ZERO,
    TX_DRAW_ONE
} tx_stack_draw;

/* Sizes that all have; an architecture's own follow. */
enum { TX_EXTENT_NONE, TX_EXTENT_VOCAB, TX_EXTENT_WIDTH, TX_EXTENT_OWN };

typedef struct tx_stack_row {
    int32_t slot; /* by which the builder of the graph names it. Rows that exclude each other may have the same */
    /* With "%d", once in every block, where the block's number stands there; such rows are neighbours. */
    const char *name;
    int32_t extent[3]; /* sizes, by their numbers; TX_EXTENT_NONE: no dimension */
    tx_stack_draw draw;
    /* Offsets of flags of the configuration, 0: none. With the one set and the other not, the parameter is there. */
    size_t with, without;
    int32_t split;                                      /* as tx_param_spec's */
    bool (*in)(const tx_config *config, int64_t block); /* whether a block has it; NULL: all have */
    bool experts;                                       /* as tx_param_spec's */
    bool router;                                        /* it chooses: kept as precise as tables are */
} tx_stack_row;

/* The number of parameters; a row without a name ends the table. */
int32_t tx_stack_params(const tx_config *config, const tx_stack_row *rows);
/* How large a size is; of one that is made of sections along `dimension`, these as well. */
typedef int64_t tx_stack_extent(const tx_config *config, int32_t extent, int32_t dimension,
                                tx_param_sections *sections);
/* Name and spec of parameter `index`. A first dimension of TX_EXTENT_VOCAB is padded; matrices decay, and those outside
 * the blocks, embeddings and the classifier, are tables. */
void tx_stack_param(const tx_config *config, const tx_stack_row *rows, tx_stack_extent *extent_of,
                    double initializer_range, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);

/* Builders name parameters by their slots. The first use declares them, so that the arena is in layer order. */
typedef struct tx_stack {
    tx_graph *graph;
    const tx_config *config;
    const tx_arch_options *options;
    tx_tensor *tokens, *positions; /* inputs of the graph; the latter NULL where rows begin at 0 */
    int64_t padding;               /* a row of the tokens' table that learns nothing; -1: none */
    const tx_stack_row *rows;
    int64_t block;       /* whose parameters slots of blocks mean */
    int32_t next_site;   /* of dropout */
    int32_t part, parts; /* tx_graph_tp_size */
    /* Sums over the blocks' routers, for their losses (experts.h); NULL: none so far. */
    struct {
        tx_tensor *counts, *probabilities, *squares, *kept, *all;
        int64_t rows;
    } routers;
} tx_stack;

/* Checks the configuration, the options and the graph's inputs, and begins. */
tx_status tx_stack_open(tx_graph *graph, const tx_config *config, const tx_arch_options *options,
                        const tx_stack_row *rows, tx_stack *stack);
/* The parameter of a slot, of the current block if it is in blocks; NULL on error. */
tx_tensor *tx_stack_weight(const tx_stack *stack, int32_t slot);
/* How many of so many heads this rank has, where ranks divide them; `what` calls them in the message of a number that
 * cannot be divided. */
int32_t tx_stack_heads_per_rank(tx_stack *stack, int64_t heads, const char *what);
/* The same of heads of keys and values, of which there may be fewer than ranks: each then has one, and as many
 * neighbours, whose queries read it, have the same. */
int32_t tx_stack_kv_heads_per_rank(tx_stack *stack, int64_t heads, const char *what);
/* A linear layer, x [.., in] -> [.., out], with what an adapter adds to it; NULL on error. The bias is added if the
 * model has one. A layer whose outputs are split gives this rank's part of them, one whose inputs are split takes that
 * and gives the whole. */
tx_tensor *tx_stack_linear(const tx_stack *stack, tx_tensor *x, int32_t weight, int32_t bias);
/* The tokens' rows of a table, and of one of positions (NULL: none), with the noise that training asks for. */
tx_tensor *tx_stack_embed(const tx_stack *stack, tx_tensor *table, tx_tensor *position_table);
/* Dropout when training. A site has its number whether it drops or not: the draws of the others do not depend on it. */
tx_tensor *tx_stack_dropout(tx_stack *stack, tx_tensor *x, double p);
/* Attention over packed qkv, causal where the head is, by the block's caches where there are any. `options` say this
 * rank's heads, and scale. */
tx_tensor *tx_stack_attention(tx_stack *stack, tx_tensor *qkv, int64_t block, tx_attention_options *options,
                              double dropout);
/* One block after the other, each marked as such (tx_graph_block): x [B, T, C] -> [B, T, C]. */
typedef tx_tensor *tx_stack_block(tx_stack *stack, tx_tensor *x, int64_t block);
tx_tensor *tx_stack_blocks(tx_stack *stack, tx_tensor *x, tx_stack_block *block);
/* The positions that logits are asked of: x [B, T, C] -> [R, C], or x itself where all are. */
tx_tensor *tx_stack_rows(const tx_stack *stack, tx_tensor *x);

#endif
