/* SPDX-License-Identifier: Apache-2.0
 *
 * Several adapters of one model in one batch: each row uses one of them or none (as in Punica, Chen et al., 2023, and
 * S-LoRA, Sheng et al., 2023). A bank has a number of places, and each place holds an adapter of up to `rank`. An
 * adapted weight with n modules gets two frozen parameters, A [columns, in] and B [columns, out], of which each place
 * has the next n * rank rows. Graphs compute
 *
 *     y = x W^T + b + (mask * (x A^T)) B
 *
 * with an input `mask` [.., columns], which is 1 in the columns of the row's place and 0 elsewhere. B includes the
 * adapter's scale. Shapes do not depend on the adapters, so that loading one writes only the rows of its place. Rows
 * without an adapter add 0, and compute the same bits as without the bank: contents of places are always finite. */
#ifndef TX_MODELS_LORA_BANK_H
#define TX_MODELS_LORA_BANK_H

#include "models/lora/lora.h"

typedef struct tx_lora_bank {
    int64_t places, rank;
    int32_t params;
    tx_lora_modules *modules; /* [params]: those of each parameter of the architecture that adapters may have */
    int64_t *adapter;         /* [places]: the number of the adapter, from 1 on; 0 if the place is free */
    int64_t last;             /* the number given last: none is given twice */
} tx_lora_bank;

/* Makes room for the modules of `count` adapters. Embeddings and output heads are left out. TX_INVALID if no module is
 * left. The caller frees. */
tx_status tx_lora_bank_create(const tx_config *config, const tx_lora *const *adapters, int32_t count, int64_t places,
                              int64_t rank, tx_lora_bank **bank);
void tx_lora_bank_free(tx_lora_bank *bank); /* NULL is fine */
/* The place of an adapter, or -1. */
int64_t tx_lora_bank_place(const tx_lora_bank *bank, int64_t adapter);

/* ---- Graphs ------------------------------------------------------------------------------------------------- */

/* Adds the masks of a graph over `length` tokens of each of `rows` rows: mask[n - 1] for weights with n modules, or
 * NULL if there are none. Call it before the graph is built. */
void tx_lora_bank_inputs(const tx_lora_bank *bank, tx_graph *graph, int64_t rows, int64_t length,
                         tx_tensor *mask[TX_MAX_SECTIONS]);
/* Elements of the largest mask of one token. */
int64_t tx_lora_bank_most(const tx_lora_bank *bank);
/* Writes the masks of a plan whose row r uses place[r], -1 for none. `values` has room for the largest mask. */
tx_status tx_lora_bank_choose(const tx_lora_bank *bank, tx_plan *plan, tx_tensor *const mask[TX_MAX_SECTIONS],
                              int64_t rows, int64_t length, const int32_t *place, float *values);
/* Returns `y`, the product of x [.., in] with weight parameter `index`, plus the outputs of adapters if the graph has
 * masks and the bank has modules of the weight. NULL on error. */
tx_tensor *tx_lora_bank_add(tx_graph *graph, const tx_config *config, int32_t index, tx_tensor *x, tx_tensor *y);

/* ---- Adapters (bank_adapter.c) ------------------------------------------------------------------------------ */

/* An adapter in host memory. */
typedef struct tx_adapter tx_adapter;

/* Reads a folder of peft for the model in folder `base`. TX_UNSUPPORTED names a setting that a bank cannot hold. Any
 * thread may call it. The caller frees. */
tx_status tx_lora_adapter_read(const tx_config *config, const char *base, const char *folder, tx_adapter **adapter);
void tx_lora_adapter_free(tx_adapter *adapter); /* NULL is fine */
const tx_lora *tx_lora_adapter_config(const tx_adapter *adapter);
/* The greatest rank of its modules. */
int64_t tx_lora_adapter_rank(const tx_adapter *adapter);
/* TX_INVALID if the bank lacks a module of an adapter, or if its rank is too large. */
tx_status tx_lora_bank_check(const tx_lora_bank *bank, const tx_adapter *adapter);
/* Writes such an adapter to a free place, between runs of plans. Pass NULL for `ranks`, or the tensor-parallel group
 * that divides the model: all of its ranks make this call, and only rank 0 needs the adapter. */
tx_status tx_lora_bank_write(const tx_lora_bank *bank, const tx_config *config, tx_model *model, int64_t place,
                             const tx_adapter *adapter, tx_comm *ranks);
/* The names of A and B of weight parameter `index`, and the spec of the weight. */
tx_status tx_lora_bank_params(const tx_config *config, int32_t index, char a[TX_WEIGHTS_NAME], char b[TX_WEIGHTS_NAME],
                              tx_param_spec *spec);

/* Frees all places, and fills them with random numbers, so that plans can be compared (tx_slots_prove). */
tx_status tx_lora_bank_fill(tx_lora_bank *bank, const tx_config *config, tx_model *model);

#endif
