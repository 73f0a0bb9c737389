/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that a model in training writes: for the sources of an evaluation, and completions from which it learns. They
 * need more plans of the same model, with caches. An adapter stays apart from its base, as in training. */
#ifndef TX_TRAIN_WRITER_H
#define TX_TRAIN_WRITER_H

#include "models/generate/slots.h"
#include "models/train/trainer.h"

typedef struct tx_writer tx_writer;

/* Makes the settings of texts of at most `length` tokens with the one that begins a text: greedy, unless
 * generation_config.json of the model's folder has others. `beams` overrides its num_beams unless it is 0. The folder
 * may be NULL. */
tx_status tx_writer_settings(const tx_config *config, const char *folder, int64_t length, int64_t beams,
                             const tx_reporter *reporter, tx_generation *settings);
/* Writes by options->write. Create it after the plans of training, and free it before the model. */
tx_status tx_writer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                           tx_writer **writer);
void tx_writer_free(tx_writer *writer); /* NULL is fine */
/* The largest number of tokens of a text, and 1. */
int64_t tx_writer_columns(const tx_writer *writer);
/* Writes a text for each of the first `count` rows of a batch, which begins with sample `first`: their ids
 * [count, columns], and -1 after the end. Ranks that shard the weights (ZeRO stage 3) call it together, also without
 * rows; `ids` then has room for all rows of the batch. */
tx_status tx_writer_run(tx_writer *writer, const tx_batch *batch, int64_t count, int64_t first, float *ids);

/* Completions of at most `most` tokens. */
typedef struct tx_written {
    int64_t most;
    int32_t *ids;                 /* [count, most] */
    int64_t *length;              /* [count] */
    void (*alive)(void *context); /* called for each token */
    void *context;
} tx_written;

/* Writes a completion of each prompt by options->write, options->slots at once. `first` is the number of the first one;
 * random numbers depend only on the seed, the number of the completion and that of the token. */
tx_status tx_writer_sample(tx_writer *writer, const tx_prompt *prompts, int64_t count, uint64_t first,
                           tx_written *written);

#endif
