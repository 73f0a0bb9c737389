/* SPDX-License-Identifier: Apache-2.0
 * Writing checkpoints: what a crash at any moment leaves is whole under its name, or has a temporary name. */
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
    tx_json *expected;               /* digests of what was written, by name */
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

/* The step in a name is the one that makes the same name again. */
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

/* The caller flushes the folder. */
static tx_status rename_in(const char *folder, const char *from, const char *to)
{
    const char *old = TX_PATH(folder, from);
    return rename(old, TX_PATH(folder, to)) == 0 ? TX_OK : tx_file_fail(old, "rename");
}

tx_status tx_checkpoint_remove(const char *folder, const char *name, int64_t step)
{
    char going[TX_CHECKPOINT_NAME];
    name_temporary(step, TX_CHECKPOINT_GOING, going);
    TX_TRY(tx_folder_remove(folder, going)); /* of a removal that failed before */
    TX_TRY(rename_in(folder, name, going));
    TX_TRY(tx_folder_flush(folder));
    return tx_folder_remove(folder, going);
}

/* Whether folder/name is a checkpoint that verifies. Fails where that cannot be told: what cannot be read just now, or
 * only by another version of TX, is not damaged. */
static tx_status judge(const char *folder, const char *name, int64_t step, bool *whole)
{
    const tx_status status = tx_manifest_check(TX_PATH(folder, name), step, NULL);
    *whole = status == TX_OK;
    return status == TX_FORMAT ? TX_OK : status;
}

static tx_status look_for(const char *folder, const char *name, bool *there)
{
    struct stat info;
    const char *path = TX_PATH(folder, name);
    *there = lstat(path, &info) == 0;
    return *there || errno == ENOENT ? TX_OK : tx_file_fail(path, "look at it");
}

tx_status tx_checkpoint_recover(const char *folder, const char *aside, int64_t step)
{
    char name[TX_CHECKPOINT_NAME];
    tx_checkpoint_name(step, name);
    bool there = false, whole = false, old_whole = false;
    TX_TRY(look_for(folder, name, &there));
    if (there)
        TX_TRY(judge(folder, name, step, &whole));
    if (there && !whole)
        TX_TRY(judge(folder, aside, step, &old_whole));
    if (there && !old_whole)
        return tx_checkpoint_remove(folder, aside, step);
    if (there) /* the disk did not keep it, but the one before it */
        TX_TRY(tx_checkpoint_remove(folder, name, step));
    TX_TRY(rename_in(folder, aside, name));
    return tx_folder_flush(folder);
}

/* ---- Beginning ----------------------------------------------------------------------------------- */

static void checkpoint_free(tx_checkpoint *checkpoint)
{
    free(checkpoint->output_dir);
    tx_json_free(checkpoint->expected);
    free(checkpoint);
}

static tx_status make_folder(const tx_checkpoint *checkpoint)
{
    TX_TRY(tx_folder_create(checkpoint->output_dir));
    /* What lies there is of this process, which failed before to remove it, or of one that is gone. */
    TX_TRY(tx_folder_remove(checkpoint->output_dir, checkpoint->making));
    if (mkdir(checkpoint->folder, 0777) != 0)
        return tx_file_fail(checkpoint->folder, "make the folder");
    return TX_OK;
}

tx_status tx_checkpoint_begin(const char *output_dir, int64_t step, tx_checkpoint **checkpoint)
{
    TX_NEEDS(output_dir && checkpoint, TX_INVALID);
    if (step < 0)
        return tx_fail(TX_INVALID, "%s: a checkpoint of step %" PRId64, output_dir, step);
    tx_checkpoint *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "%s: no memory for a checkpoint", output_dir);
    made->step = step;
    name_temporary(step, TX_CHECKPOINT_MAKING, made->making);
    made->output_dir = strdup(output_dir);
    tx_path_in(made->folder, output_dir, made->making);
    made->expected = tx_json_object();
    tx_status status = made->output_dir && made->expected
                           ? make_folder(made)
                           : tx_fail(TX_MEMORY, "%s: no memory for a checkpoint", output_dir);
    return TX_RETURN(status, made, checkpoint, checkpoint_free);
}

const char *tx_checkpoint_folder(const tx_checkpoint *checkpoint)
{
    TX_NEEDS(checkpoint, NULL);
    return checkpoint->folder;
}

tx_status tx_checkpoint_expect(tx_checkpoint *checkpoint, const char *name, const char *digest)
{
    TX_NEEDS(checkpoint && name && digest, TX_INVALID);
    return tx_json_set_string(checkpoint->expected, name, digest);
}

#define MESSAGE 1024

/* A copy of the thread's message, to make it the thread's again after calls that may fail as well. */
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
    (void)tx_folder_remove(checkpoint->output_dir, checkpoint->making); /* what stays has a temporary name */
    tx_fail(TX_OK, "%s", message);
    checkpoint_free(checkpoint);
}

/* ---- Committing ---------------------------------------------------------------------------------- */

/* Gives the whole, flushed folder its name. One of the same step steps aside first: between the two renames only that
 * one is there, under a name by which the next start finds it and moves it back (tx_checkpoint_recover). Whichever of
 * the renames a loss of power undoes, one of the two is whole. */
static tx_status take_name(const tx_checkpoint *checkpoint, const char *name, const char *aside)
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
        /* Back to what was. A disk that refuses this too leaves it to the next start. */
        char message[MESSAGE];
        copy_message(message);
        if (named)
            (void)rename_in(output_dir, name, checkpoint->making);
        if (replaces)
            (void)rename_in(output_dir, aside, name);
        tx_fail(TX_OK, "%s", message);
    } else if (replaces) {
        /* By way of another name: half of it must not be brought back. What stays has a temporary name. */
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
    /* This reads all that was flushed, before it takes the place of another. One reading does: the weights are held
     * against memory where they are written, the optimizer's states against the digest of what was written, and the
     * manifest has what this reading gave. Whoever goes on from it verifies all of it again. */
    tx_status status = tx_manifest_write(checkpoint->folder, checkpoint->step, checkpoint->expected);
    TX_THEN(status, look_for(checkpoint->output_dir, aside, &left));
    if (!status && left) /* an earlier commit could not undo what it had begun */
        status = tx_checkpoint_recover(checkpoint->output_dir, aside, checkpoint->step);
    TX_THEN(status, take_name(checkpoint, name, aside));
    if (status) {
        tx_checkpoint_discard(checkpoint);
        return status;
    }
    checkpoint_free(checkpoint);
    return TX_OK;
}
