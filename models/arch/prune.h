/* SPDX-License-Identifier: Apache-2.0
 *
 * Magnitude pruning: of each matrix in the blocks, as files hold matrices apart (q_proj, k_proj and v_proj), the
 * weights of least magnitude become 0; embeddings, norms, biases and heads stay. What keeps them 0 in training is
 * tx_optimizer_options.keep_zeros. */
#ifndef TX_MODELS_PRUNE_H
#define TX_MODELS_PRUNE_H

#include "models/arch/arch.h"

#define TX_PRUNE_GROUP_MOST 64

/* How much: a share of each matrix, wherever the weights lie, or of every `group` weights side by side along the input
 * dimension all but `kept` (N:M, as NVIDIA's 2:4). Of equal magnitudes the first goes. */
typedef struct tx_pruning {
    double sparsity;     /* in 0 .. 1; of a matrix of n weights round(n sparsity), half to even, become 0; 0: none */
    int32_t kept, group; /* group 0: as `sparsity` says */
} tx_pruning;

/* Reads "unstructured" or "N:M", 1 <= N < M <= TX_PRUNE_GROUP_MOST; the latter says the sparsity too. */
tx_status tx_pruning_read(const char *structure, double sparsity, tx_pruning *pruning);
/* TX_UNSUPPORTED where a matrix has an input dimension that is no multiple of the group. */
tx_status tx_pruning_check(const tx_pruning *pruning, const tx_config *config);

typedef struct tx_pruned {
    int64_t matrices, weights, zeros; /* of these matrices together, after it */
} tx_pruned;
/* Prunes a model that has its weights; what is pruned already stays as it is. One matrix at a time is on the host. */
tx_status tx_prune(tx_model *model, const tx_config *config, const tx_pruning *pruning, tx_pruned *pruned);

#endif
