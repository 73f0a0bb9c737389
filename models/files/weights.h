/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model folder in the Hugging Face layout: model.safetensors, or shards listed by
 * model.safetensors.index.json; and their way into and out of a tx_model. */
#ifndef TX_FILES_WEIGHTS_H
#define TX_FILES_WEIGHTS_H

#include "models/files/safetensors.h"

typedef struct tx_weights tx_weights;

/* Opens every shard and checks the index against them before any data is read. */
tx_status tx_weights_open(const char *folder, tx_weights **weights);
void tx_weights_close(tx_weights *weights);

int32_t tx_weights_count(const tx_weights *weights);
const tx_st_tensor *tx_weights_tensor_at(const tx_weights *weights, int32_t index);
/* As tx_st_read_f32. */
tx_status tx_weights_read_f32(const tx_weights *weights, int32_t index, int64_t first, int64_t count, float *data);
const char *tx_weights_folder(const tx_weights *weights);

#define TX_WEIGHTS_NAME 256

/* Which parameter a tensor of the file belongs to: writes its name to `param`, or "" for a tensor that is
 * known and not needed. A name that is not known is copied as it is, and reported if no parameter has it. */
typedef void tx_weights_rename(const char *tensor, char param[TX_WEIGHTS_NAME]);

/* Copies the file's tensors to the parameters, one at a time. Missing and unexpected names and all wrong shapes
 * are told in one message, before any parameter is changed. The first value that is not finite is reported and
 * refused; the parameters before it are then loaded already. Shapes must be equal: nothing is transposed. */
tx_status tx_weights_load(const tx_weights *weights, tx_model *model, tx_weights_rename *rename);

/* Writes every parameter as F32 under its own name, logical shape, in arena order. */
tx_status tx_weights_save(tx_model *model, const char *path);

#endif
