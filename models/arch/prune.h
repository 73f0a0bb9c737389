/* SPDX-License-Identifier: Apache-2.0
 *
 * Magnitude pruning: in each matrix of the blocks the weights of least magnitude become 0. Matrices are those of the
 * files (q_proj, k_proj and v_proj separately). Embeddings, norms, biases and heads are not pruned. Set
 * tx_optimizer_options.keep_zeros to keep the zeros in training. */
#ifndef TX_MODELS_PRUNE_H
#define TX_MODELS_PRUNE_H

#include "models/arch/arch.h"

#define TX_PRUNE_GROUP_MOST 64

/* The structure of pruning: unstructured, a fraction of each matrix; or N:M (such as NVIDIA's 2:4), which keeps `kept`
 * of every `group` adjacent weights along the input dimension. Among equal magnitudes the first is pruned. */
typedef struct tx_pruning {
    double sparsity;     /* 0 to 1: in a matrix of n weights round(n sparsity), half to even, become 0 */
    int32_t kept, group; /* N and M; group is 0 if unstructured */
} tx_pruning;

/* Reads "unstructured" or "N:M", 1 <= N < M <= TX_PRUNE_GROUP_MOST. N:M implies the sparsity. */
tx_status tx_pruning_read(const char *structure, double sparsity, tx_pruning *pruning);
/* TX_UNSUPPORTED if the input dimension of a matrix is not a multiple of the group. */
tx_status tx_pruning_check(const tx_pruning *pruning, const tx_config *config);

typedef struct tx_pruned {
    int64_t matrices, weights, zeros; /* number of pruned matrices, their weights, and the zeros among them */
} tx_pruned;
/* Prunes a model whose weights are loaded; existing zeros count as pruned. Copies one matrix at a time to the host. */
tx_status tx_prune(tx_model *model, const tx_config *config, const tx_pruning *pruning, tx_pruned *pruned);

#endif
