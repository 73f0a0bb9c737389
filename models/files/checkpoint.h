/* SPDX-License-Identifier: Apache-2.0
 *
 * Atomic checkpoints. output_dir/checkpoint-N is written under a temporary name: its files are flushed, a manifest of
 * sizes and SHA-256 digests is added, the folder is flushed and renamed, and its parent is flushed. A folder counts as
 * a checkpoint only if it matches its manifest. */
#ifndef TX_FILES_CHECKPOINT_H
#define TX_FILES_CHECKPOINT_H

#include "models/files/stage.h"
#include "models/report.h"
#include "models/tx_train.h"
#include "tx.h"

#define TX_CHECKPOINT_MANIFEST "manifest.json"
#define TX_CHECKPOINT_MANIFEST_LIMIT ((int64_t)16 << 20) /* bytes */

/* ---- Output folders -------------------------------------------------------------------------------------- */

/* Creates the folder if it is missing, and checks that it is writable. */
tx_status tx_output_prepare(const char *folder);

/* Fails, with both numbers, if the file system of `folder` has less than `bytes` free. TX_DISK_FULL is
 * part of the message. */
tx_status tx_disk_check(const char *folder, int64_t bytes);

/* ---- Existing checkpoints (see tx_train.h, too) ------------------------------------------------------------ */

/* Removes old checkpoints after a commit of step `whole`: the oldest first, until `keep` are left. It keeps the one
 * with path `best` (may be NULL), those from step `whole` on, and folders without a manifest. The user is warned of
 * folders that cannot be removed. With 0 as `keep` nothing is removed. */
tx_status tx_checkpoint_prune(const char *output_dir, int64_t keep, int64_t whole, const char *best,
                              const tx_reporter *report);

/* Counts the folders of output_dir that have a checkpoint's name. */
tx_status tx_checkpoint_count(const char *output_dir, int64_t *count);

/* Removes every checkpoint of output_dir before a new run. The user is warned of folders that cannot be removed. */
tx_status tx_checkpoint_clear(const char *output_dir, const tx_reporter *report);

/* As tx_checkpoint_verify and tx_checkpoint_newest, for one file of the folders. */
tx_status tx_checkpoint_verify_file(const char *folder, const char *only, const tx_reporter *report);
tx_status tx_checkpoint_newest_with(const char *output_dir, const char *only, const tx_reporter *report, char **folder);

/* Reads the step in the manifest, whatever the folder's name. */
tx_status tx_checkpoint_saved_step(const char *folder, int64_t *step);
/* ---- Optimizer states ------------------------------------------------------------------------------------ */

/* Writes the optimizer states of every parameter as F32 tensors of logical shape, such as PARAM.exp_avg and
 * PARAM.exp_avg_sq of AdamW. With ZeRO shards it writes those of the rank that tx_model_read_alone selected. */
tx_status tx_optimizer_save(tx_model *model, const char *path);
/* Loads the states. TX_FORMAT if names, shapes or their number differ from the model's, or if a value is not finite or
 * has an invalid sign. After a failure some states may already be overwritten. */
tx_status tx_optimizer_load(tx_model *model, const char *path);

#endif
