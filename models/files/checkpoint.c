/* SPDX-License-Identifier: Apache-2.0
 * Writes checkpoints. A crash at any moment leaves either a complete checkpoint or a folder with a temporary name. */
#include "models/files/checkpoint_files.h"

#include "api/base/file.h"
#include "api/base/needs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tx_checkpoint {
    int64_t step;
    char *output_dir, folder[TX_PATH_ROOM];
    char making[TX_CHECKPOINT_NAME]; /* the name of `folder` in output_dir */
    tx_stage *stage;                 /* has files that are not yet on disk; or NULL */
};

/* ---- Names --------------------------------------------------------------------------------------- */

static const char *const kind_text[] = {
#define X(name, text) text,
    TX_CHECKPOINT_KIND_MAP(X)
#undef X
};

char *tx_checkpoint_name(int64_t step, char name[TX_CHECKPOINT_NAME])
{
    snprintf(name, TX_CHECKPOINT_NAME, TX_CHECKPOINT_PREFIX "%" PRId64, step);
    return name;
}

static void temporary_of(int64_t step, int kind, long pid, char name[TX_CHECKPOINT_NAME])
{
    snprintf(name, TX_CHECKPOINT_NAME, "." TX_CHECKPOINT_PREFIX "%" PRId64 ".%s-%ld", step, kind_text[kind], pid);
}

static void name_temporary(int64_t step, tx_checkpoint_kind kind, char name[TX_CHECKPOINT_NAME])
{
    temporary_of(step, (int)kind, (long)getpid(), name);
}

/* Reads the step in a name. The caller checks that the step produces the same name. */
static int64_t read_step(const char *name)
{
    const size_t length = strlen(TX_CHECKPOINT_PREFIX);
    return strncmp(name, TX_CHECKPOINT_PREFIX, length) == 0 ? (int64_t)strtoll(name + length, NULL, 10) : -1;
}

bool tx_checkpoint_is_temporary(const char *name, int64_t *step, tx_checkpoint_kind *kind)
{
    char exact[TX_CHECKPOINT_NAME];
    const char *dash = strrchr(name, '-');
    const int64_t found = name[0] == '.' ? read_step(name + 1) : -1;
    for (int k = 0; k < TX_CHECKPOINT_KINDS && found >= 0; k++) {
        temporary_of(found, k, strtol(dash + 1, NULL, 10), exact);
        if (strcmp(name, exact) == 0) {
            *step = found;
            *kind = (tx_checkpoint_kind)k;
            return true;
        }
    }
    return false;
}

int64_t tx_checkpoint_step(const char *folder)
{
    TX_NEEDS(folder, -1);
    char exact[TX_CHECKPOINT_NAME];
    size_t length = strlen(folder);
    while (length > 0 && folder[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && folder[start - 1] != '/')
        start--;
    const int64_t step = read_step(folder + start);
    tx_checkpoint_name(step, exact);
    return step >= 0 && strlen(exact) == length - start && strncmp(folder + start, exact, length - start) == 0 ? step
                                                                                                               : -1;
}

/* ---- Moving and removing ------------------------------------------------------------------------- */

/* The caller must flush the folder. */
static tx_status rename_in(const char *folder, const char *from, const char *to)
{
    const char *old = TX_PATH(folder, from);
    return rename(old, TX_PATH(folder, to)) == 0 ? TX_OK : tx_file_fail(old, "rename");
}

tx_status tx_checkpoint_remove(const char *folder, const char *name, int64_t step)
{
    char removing[TX_CHECKPOINT_NAME];
    name_temporary(step, TX_CHECKPOINT_GOING, removing);
    TX_TRY(tx_folder_remove(folder, removing)); /* left by an earlier removal that failed */
    TX_TRY(rename_in(folder, name, removing));
    TX_TRY(tx_folder_flush(folder));
    return tx_folder_remove(folder, removing);
}

/* Checks whether folder/name is an intact checkpoint. Fails if that cannot be decided: a checkpoint that cannot be read
 * at the moment, or only by another version of TX, is not damaged. */
static tx_status check_intact(const char *folder, const char *name, int64_t step, bool *intact)
{
    const tx_status status = tx_manifest_check(TX_PATH(folder, name), step, NULL, NULL);
    *intact = status == TX_OK;
    return status == TX_FORMAT ? TX_OK : status;
}

static tx_status check_exists(const char *folder, const char *name, bool *exists)
{
    struct stat info;
    const char *path = TX_PATH(folder, name);
    *exists = lstat(path, &info) == 0;
    return *exists || errno == ENOENT ? TX_OK : tx_file_fail(path, "get its status");
}

tx_status tx_checkpoint_recover(const char *folder, const char *aside, int64_t step)
{
    char name[TX_CHECKPOINT_NAME];
    tx_checkpoint_name(step, name);
    bool exists = false, intact = false, old_intact = false;
    TX_TRY(check_exists(folder, name, &exists));
    if (exists)
        TX_TRY(check_intact(folder, name, step, &intact));
    if (exists && !intact)
        TX_TRY(check_intact(folder, aside, step, &old_intact));
    if (exists && !old_intact)
        return tx_checkpoint_remove(folder, aside, step);
    if (exists) /* the new one is damaged, but the one that it replaced is intact */
        TX_TRY(tx_checkpoint_remove(folder, name, step));
    TX_TRY(rename_in(folder, aside, name));
    return tx_folder_flush(folder);
}

/* ---- Creating ------------------------------------------------------------------------------------ */

static void checkpoint_free(tx_checkpoint *checkpoint)
{
    if (checkpoint->stage)
        tx_stage_clear(checkpoint->stage);
    free(checkpoint->output_dir);
    free(checkpoint);
}

static tx_status make_folder(const tx_checkpoint *checkpoint)
{
    TX_TRY(tx_folder_create(checkpoint->output_dir));
    /* An existing folder is left over: from a failed removal by this process, or from a process that has ended. */
    TX_TRY(tx_folder_remove(checkpoint->output_dir, checkpoint->making));
    if (mkdir(checkpoint->folder, 0777) != 0)
        return tx_file_fail(checkpoint->folder, "make the folder");
    return TX_OK;
}

tx_status tx_checkpoint_begin(const char *output_dir, int64_t step, tx_checkpoint **checkpoint)
{
    TX_NEEDS(output_dir && checkpoint, TX_INVALID);
    if (step < 0)
        return tx_fail(TX_INVALID, "%s: a checkpoint cannot have step %" PRId64, output_dir, step);
    tx_checkpoint *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory for a checkpoint", output_dir);
    created->step = step;
    created->stage = tx_stage_used;
    name_temporary(step, TX_CHECKPOINT_MAKING, created->making);
    created->output_dir = strdup(output_dir);
    tx_path_in(created->folder, output_dir, created->making);
    tx_status status =
        created->output_dir ? make_folder(created) : tx_fail(TX_MEMORY, "%s: no memory for a checkpoint", output_dir);
    return TX_RETURN(status, created, checkpoint, checkpoint_free);
}

const char *tx_checkpoint_folder(const tx_checkpoint *checkpoint)
{
    TX_NEEDS(checkpoint, NULL);
    return checkpoint->folder;
}

#define MESSAGE 1024

/* Saves the thread's error message, which later calls may overwrite. */
static void copy_message(char message[MESSAGE])
{
    snprintf(message, MESSAGE, "%s", tx_error());
}

void tx_checkpoint_discard(tx_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    char message[MESSAGE];
    copy_message(message);
    (void)tx_folder_remove(checkpoint->output_dir, checkpoint->making); /* a remainder has a temporary name */
    tx_fail(TX_OK, "%s", message);
    checkpoint_free(checkpoint);
}

/* ---- Committing ---------------------------------------------------------------------------------- */

/* Renames the complete, flushed folder to its final name. An existing checkpoint of the same step is renamed to `aside`
 * first. Between the two renames only `aside` exists; the next start finds it and renames it back
 * (tx_checkpoint_recover). Whichever rename a power failure undoes, one of the two is intact. */
static tx_status publish(const tx_checkpoint *checkpoint, const char *name, const char *aside)
{
    const char *output_dir = checkpoint->output_dir;
    tx_status status = rename_in(output_dir, name, aside);
    bool replaces = status == TX_OK;
    if (status && status != TX_NOT_FOUND)
        return status;
    status = rename_in(output_dir, checkpoint->making, name);
    bool named = status == TX_OK;
    TX_THEN(status, tx_folder_flush(output_dir));
    if (status) {
        /* Undo the renames. If that fails, too, the next start does it. */
        char message[MESSAGE];
        copy_message(message);
        if (named)
            (void)rename_in(output_dir, name, checkpoint->making);
        if (replaces)
            (void)rename_in(output_dir, aside, name);
        tx_fail(TX_OK, "%s", message);
    } else if (replaces) {
        /* It gets another name first, so that a partly removed one is never recovered. A remainder has that name. */
        (void)tx_checkpoint_remove(output_dir, aside, checkpoint->step);
    }
    return status;
}

tx_status tx_checkpoint_commit(tx_checkpoint *checkpoint)
{
    TX_NEEDS(checkpoint, TX_INVALID);
    char name[TX_CHECKPOINT_NAME], aside[TX_CHECKPOINT_NAME];
    tx_checkpoint_name(checkpoint->step, name);
    name_temporary(checkpoint->step, TX_CHECKPOINT_ASIDE, aside);
    bool left = false;
    tx_status status = checkpoint->stage ? tx_stage_write(checkpoint->stage) : TX_OK;
    /* This compares all files with their data before they were flushed, before the checkpoint replaces another one. A
     * resumed run verifies the manifest again. */
    TX_THEN(status, tx_manifest_write(checkpoint->folder, checkpoint->step, checkpoint->stage));
    TX_THEN(status, check_exists(checkpoint->output_dir, aside, &left));
    if (!status && left) /* an earlier commit could not undo its renames */
        status = tx_checkpoint_recover(checkpoint->output_dir, aside, checkpoint->step);
    TX_THEN(status, publish(checkpoint, name, aside));
    if (status) {
        tx_checkpoint_discard(checkpoint);
        return status;
    }
    checkpoint_free(checkpoint);
    return TX_OK;
}
