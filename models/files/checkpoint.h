/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that are there whole or not at all: output_dir/checkpoint-N is written under a temporary name, every
 * file flushed, a manifest of sizes and SHA-256 added, the folder flushed, renamed, its parent flushed. A folder
 * counts as a checkpoint only when it verifies against its manifest. */
#ifndef TX_FILES_CHECKPOINT_H
#define TX_FILES_CHECKPOINT_H

#include "models/files/digest.h"
#include "models/report.h"
#include "models/tx_train.h"
#include "tx.h"

#define TX_CHECKPOINT_MANIFEST "manifest.json"
#define TX_CHECKPOINT_MANIFEST_LIMIT ((int64_t)16 << 20) /* bytes */

/* ---- One at a time in a folder ----------------------------------------------------------------------- */

/* Makes the folder, or checks that it can be written to. */
tx_status tx_output_prepare(const char *folder);

/* Fails, with both numbers, if the file system of `folder` has less than `bytes` free. TX_DISK_FULL is
 * part of the message. */
tx_status tx_disk_check(const char *folder, int64_t bytes);

/* ---- Which there are (see tx_train.h, too) -------------------------------------------------------------- */

/* After a commit of step `whole`: removes those before it, the oldest first, until `keep` are left, sparing `best` (a
 * path, or NULL), and folders of that name without a manifest. What cannot be removed is told. keep 0: none is
 * removed. */
tx_status tx_checkpoint_prune(const char *output_dir, int64_t keep, int64_t whole, const char *best,
                              const tx_reporter *report);

/* How many folders of output_dir have the name of a checkpoint. */
tx_status tx_checkpoint_count(const char *output_dir, int64_t *count);

/* Removes every checkpoint of output_dir, for a run that begins anew there. What cannot be removed is told. */
tx_status tx_checkpoint_clear(const char *output_dir, const tx_reporter *report);

/* Step that the manifest tells, whatever the folder's name. */
tx_status tx_checkpoint_saved_step(const char *folder, int64_t *step);
/* ---- What a model is made of besides its weights --------------------------------------------------------- */

/* Writes the optimizer's states of every parameter, as PARAM.exp_avg and PARAM.exp_avg_sq of AdamW, F32, logical shape;
 * where ranks have shards of them, of the rank that asks (tx_model_read_alone). `digest` (or NULL) receives what was
 * written, for tx_checkpoint_expect. */
tx_status tx_optimizer_save(tx_model *model, const char *path, char digest[TX_DIGEST_TEXT]);
/* Names, shapes and number must be those of the model; values that are not finite, or below 0 where none can be, are
 * refused (TX_FORMAT). After a failure the model's states may be partly the file's. */
tx_status tx_optimizer_load(tx_model *model, const char *path);

#endif
