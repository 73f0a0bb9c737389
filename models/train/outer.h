/* SPDX-License-Identifier: Apache-2.0
 *
 * Local steps with an outer optimizer (Douillard et al., DiLoCo: Distributed Low-Communication Training of Language
 * Models, 2023). Each data-parallel rank makes sync_every steps by itself. Then the ranks average how far their weights
 * moved, and SGD with Nesterov momentum applies the average to the weights of the last synchronization, which all ranks
 * continue from. The states of the inner optimizer stay on their rank.
 *
 * The training loop (run.c) calls it. It evaluates and saves after synchronizations only, when the ranks' weights are
 * equal. A checkpoint then holds the momentum and each rank's states. */
#ifndef TX_TRAIN_OUTER_H
#define TX_TRAIN_OUTER_H

#include "comm/comm.h"
#include "models/job/settings.h"

typedef struct tx_outer tx_outer;

/* Returns about how many bytes of host memory a rank needs for so many trained weights. */
int64_t tx_outer_bytes(int64_t weights);

/* Creates the outer optimizer of a model that has its weights. `checkpoint` is the folder to resume from, or NULL. All
 * ranks call it; `comm` has the data-parallel ranks and outlives it. */
tx_status tx_outer_create(tx_model *model, tx_comm *comm, const tx_job_settings *set, const char *checkpoint,
                          tx_outer **outer);
void tx_outer_free(tx_outer *outer);
/* Synchronizes the weights, and replaces `*vote` by the sum over the ranks. All ranks call it after the same step. */
tx_status tx_outer_synchronize(tx_outer *outer, float *vote);
/* Writes a rank's part of a checkpoint: its optimizer states, unless it is rank 0, or on rank 0 the momentum. */
tx_status tx_outer_save(const tx_outer *outer, const char *folder);
/* Returns the name of the file of a rank's optimizer states. */
char *tx_outer_states_name(int32_t rank, char name[64]);

#endif
