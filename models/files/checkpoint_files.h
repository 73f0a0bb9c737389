/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of checkpoints: temporary names and the manifest. */
#ifndef TX_FILES_CHECKPOINT_FILES_H
#define TX_FILES_CHECKPOINT_FILES_H

#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "tx_json.h"

/* Room for the name of a checkpoint's folder, temporary or not. */
#define TX_CHECKPOINT_NAME 96

/* Temporary names are ".checkpoint-STEP.KIND-PID". X(NAME, "kind"):
 * MAKING  a checkpoint that is being written;
 * ASIDE   an intact checkpoint while another one of the same step replaces it;
 * GOING   a checkpoint that is being removed. */
#define TX_CHECKPOINT_KIND_MAP(X) \
    X(MAKING, "tmp")              \
    X(ASIDE, "old")               \
    X(GOING, "gone")

typedef enum tx_checkpoint_kind {
#define X(name, text) TX_CHECKPOINT_##name,
    TX_CHECKPOINT_KIND_MAP(X)
#undef X
        TX_CHECKPOINT_KINDS
} tx_checkpoint_kind;

/* Returns `name`. */
char *tx_checkpoint_name(int64_t step, char name[TX_CHECKPOINT_NAME]);
/* The path of a checkpoint, in memory that lasts until the end of the enclosing block. */
#define TX_CHECKPOINT_PATH(folder, step) TX_PATH(folder, tx_checkpoint_name(step, (char[TX_CHECKPOINT_NAME]){0}))
/* Returns true if a name is a temporary one, of any process, and reads its step and kind. */
bool tx_checkpoint_is_temporary(const char *name, int64_t *step, tx_checkpoint_kind *kind);

/* Renames folder/name to a temporary name and removes it, so that an interruption leaves no partial checkpoint. */
tx_status tx_checkpoint_remove(const char *folder, const char *name, int64_t step);

/* Finishes an interrupted commit. If the new checkpoint is missing, or is damaged and folder/aside is intact, `aside`
 * becomes the checkpoint again; else it is removed. If either cannot be checked, both are kept. */
tx_status tx_checkpoint_recover(const char *folder, const char *aside, int64_t step);

/* Flushes every file of `folder`, and writes the manifest. TX_IO if a file's data on disk are not those written, which
 * are in the page cache or in the stage (may be NULL). */
tx_status tx_manifest_write(const char *folder, int64_t step, const tx_stage *stage);
/* Compares `folder` with its manifest, or with `only` (may be NULL) just the file of this name; a step of -1 accepts
 * any step. TX_FORMAT if damaged, TX_IO if unreadable. */
tx_status tx_manifest_check(const char *folder, int64_t step, const char *only, const tx_reporter *report);

#endif
