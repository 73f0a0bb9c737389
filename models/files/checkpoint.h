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

#define TX_CHECKPOINT_PREFIX "checkpoint-"
#define TX_CHECKPOINT_MANIFEST "manifest.json"
#define TX_CHECKPOINT_MANIFEST_LIMIT ((int64_t)16 << 20) /* bytes */

/* ---- One at a time in a folder ----------------------------------------------------------------------- */

/* Fails where the folder holds anything but what an earlier start leaves (lock and cache); one that is not there is
 * fine. Nothing is changed. */
tx_status tx_output_check(const char *folder);
/* Makes the folder, or checks that it can be written to. */
tx_status tx_output_prepare(const char *folder);

/* Makes output_dir if need be and holds it for this process, by a lock that ends with it; the message of a refusal
 * (TX_IO) names the process that has it. Also removes what an interrupted save left behind (temporary names alone), and
 * brings back a checkpoint that had made room for one that never came. TX_UNSUPPORTED: no locks in that file system. */
typedef struct tx_output_lock tx_output_lock;
tx_status tx_output_lock_take(const char *output_dir, tx_output_lock **lock);
void tx_output_lock_release(tx_output_lock *lock);

/* Fails, with both numbers, if the file system of `folder` has less than `bytes` free. TX_DISK_FULL is
 * part of the message. */
#define TX_DISK_FULL "make room or choose another folder"
tx_status tx_disk_check(const char *folder, int64_t bytes);

/* ---- Which there are (see tx_train.h, too) -------------------------------------------------------------- */

/* After a commit of step `whole`: removes those before it, the oldest first, until `keep` are left, sparing `best` (a
 * path, or NULL), and folders of that name without a manifest. What cannot be removed is told. keep 0: none is
 * removed. */
tx_status tx_checkpoint_prune(const char *output_dir, int64_t keep, int64_t whole, const char *best,
                              const tx_reporter *report);

/* The newest by its name alone, whole or not; -1: there is none. */
tx_status tx_checkpoint_latest(const char *output_dir, int64_t *step);

/* How many folders of output_dir have the name of a checkpoint. */
tx_status tx_checkpoint_count(const char *output_dir, int64_t *count);

/* Removes every checkpoint of output_dir, for a run that begins anew there. What cannot be removed is told. */
tx_status tx_checkpoint_clear(const char *output_dir, const tx_reporter *report);

/* Step that the manifest tells, whatever the folder's name. */
tx_status tx_checkpoint_saved_step(const char *folder, int64_t *step);
/* ---- What a model is made of besides its weights --------------------------------------------------------- */

/* Writes the optimizer's states of every parameter, as PARAM.exp_avg and PARAM.exp_avg_sq of AdamW, F32, logical shape;
 * where ranks have shards of them, of the rank that asks (tx_model_ask). `digest` (or NULL) receives what was written,
 * for tx_checkpoint_expect. */
tx_status tx_optimizer_save(tx_model *model, const char *path, char digest[TX_DIGEST_TEXT]);
/* Names, shapes and number must be those of the model; values that are not finite, or below 0 where none can be, are
 * refused (TX_FORMAT). After a failure the model's states may be partly the file's. */
tx_status tx_optimizer_load(tx_model *model, const char *path);

#endif
