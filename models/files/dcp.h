/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed checkpoints of PyTorch (torch.distributed.checkpoint), which FSDP and accelerate save. A checkpoint is a
 * folder with `.metadata` and files `__RANK_N.distcp`. `.metadata` is a pickle with the tensors and the place of each
 * part. A part is a box of its tensor, stored as an archive of torch.save(). The pickles are read as data. */
#ifndef TX_FILES_DCP_H
#define TX_FILES_DCP_H

#include "models/files/safetensors_header.h"
#include "models/files/weights.h"

#define TX_DCP_METADATA ".metadata"

typedef struct tx_dcp tx_dcp;

/* Whether the path is that of a `.metadata`. */
bool tx_dcp_is(const char *path);
/* Opens the checkpoint of a `.metadata`. The header lists the weights: the tensors of the dictionary "model", or if
 * there is none those at the top. With `states` it lists the optimizer states instead, as PARAM.exp_avg: the tensors of
 * "optimizer.state" or "optim.state"; there may be none. `begin` and `end` are places for tx_dcp_read. TX_FORMAT for a
 * damaged checkpoint, TX_UNSUPPORTED for one without weights or with parts of other formats. The caller frees both
 * results, also after a failure. */
tx_status tx_dcp_open(const tx_data_file *metadata, bool states, tx_st_header *header, tx_dcp **dcp);
void tx_dcp_close(tx_dcp *dcp); /* NULL is fine */
/* Reads bytes of one tensor from a place on. Any number of threads may read. */
tx_status tx_dcp_read(const tx_dcp *dcp, int64_t at, void *data, int64_t bytes);

/* Writes weights as the checkpoint that `ranks` ranks of FSDP save: the dictionary "model", in which each tensor is
 * divided by its first dimension. The optimizer states are named PARAM.exp_avg and become the dictionary
 * "optimizer.state"; NULL means none. `.metadata` is written last, which marks the checkpoint as complete. */
tx_status tx_dcp_write(const tx_weights *weights, const tx_weights *states, const char *folder, int32_t ranks,
                       const tx_reporter *report);

#endif
