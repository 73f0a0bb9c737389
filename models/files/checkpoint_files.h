/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of checkpoints share: their names, and the manifest. */
#ifndef TX_FILES_CHECKPOINT_FILES_H
#define TX_FILES_CHECKPOINT_FILES_H

#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "tx_json.h"

/* Room for the name of a checkpoint's folder, temporary or not. */
#define TX_CHECKPOINT_NAME 96

/* Temporary names are ".checkpoint-STEP.KIND-PID". X(NAME, "kind"):
 * MAKING  a checkpoint that is being written;
 * ASIDE   a whole one that has made room for another of the same step, until that one lasts;
 * GOING   one that is being removed. */
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
/* The path of a checkpoint, in memory that lasts as long as the block in which it is asked for. */
#define TX_CHECKPOINT_PATH(folder, step) TX_PATH(folder, tx_checkpoint_name(step, (char[TX_CHECKPOINT_NAME]){0}))
/* Whether a name is a temporary one, of any process. */
bool tx_checkpoint_is_temporary(const char *name, int64_t *step, tx_checkpoint_kind *kind);

/* Removes folder/name by way of a temporary name, so that an interruption leaves no half of a checkpoint. */
tx_status tx_checkpoint_remove(const char *folder, const char *name, int64_t step);

/* Ends what an interrupted commit left: folder/aside becomes the checkpoint again unless that one verifies, else it is
 * removed. Where either cannot be judged both stay. */
tx_status tx_checkpoint_recover(const char *folder, const char *aside, int64_t step);

/* Flushes every file of `folder`, and writes the manifest of what reading them gives. `expected` has the digests of
 * what was written into some of them, by name: TX_IO where reading gives another. */
tx_status tx_manifest_write(const char *folder, int64_t step, const tx_json *expected);
/* Holds `folder` against its manifest; a step of -1 may be any. Damage is TX_FORMAT, what cannot be read TX_IO. */
tx_status tx_manifest_check(const char *folder, int64_t step, const tx_reporter *report);

#endif
