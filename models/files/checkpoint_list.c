/* SPDX-License-Identifier: Apache-2.0
 * Lists the checkpoints of a folder, finds the newest intact one, and removes old ones. */
#include "models/files/checkpoint_files.h"

#include "api/base/file.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The checkpoints of a folder, the newest first. */
typedef struct tx_checkpoint_steps {
    int64_t *step;
    size_t count;
} tx_checkpoint_steps;

static int newest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static tx_status list_steps(const char *output_dir, tx_checkpoint_steps *steps)
{
    tx_names names;
    TX_TRY(tx_folder_list(output_dir, &names));
    tx_status status = TX_OK;
    *steps = (tx_checkpoint_steps){malloc((names.count + 1) * sizeof *steps->step), 0};
    if (!steps->step)
        status = tx_fail(TX_MEMORY, "%s: no memory for its list of checkpoints", output_dir);
    for (size_t i = 0; i < names.count && !status; i++) {
        const int64_t step = tx_checkpoint_step(names.name[i]);
        if (step >= 0)
            steps->step[steps->count++] = step;
    }
    if (steps->count > 1)
        qsort(steps->step, steps->count, sizeof *steps->step, newest_first);
    tx_names_free(&names);
    return status;
}

/* ---- Reading ------------------------------------------------------------------------------------- */

tx_status tx_checkpoint_verify_file(const char *folder, const char *only, const tx_reporter *report)
{
    struct stat info;
    if (stat(folder, &info) != 0)
        return tx_file_fail(folder, "open the checkpoint");
    if (!S_ISDIR(info.st_mode))
        return tx_fail(TX_FORMAT, "%s: not a folder, so not a checkpoint", folder);
    return tx_manifest_check(folder, tx_checkpoint_step(folder), only, report);
}

tx_status tx_checkpoint_verify(const char *folder, const tx_reporter *report)
{
    TX_NEEDS(folder, TX_INVALID);
    return tx_checkpoint_verify_file(folder, NULL, report);
}

/* True if an older checkpoint may be used instead: this one is damaged, missing or of another version of TX. One that
 * cannot be read at the moment is not skipped. */
static bool is_verdict(tx_status status)
{
    return status == TX_FORMAT || status == TX_NOT_FOUND || status == TX_UNSUPPORTED;
}

/* Finds the first of `steps` that is intact, and warns of the damaged ones before it. */
static tx_status find_intact(const char *output_dir, const tx_checkpoint_steps *steps, const char *only,
                             const tx_reporter *report, char **folder)
{
    for (size_t i = 0; i < steps->count; i++) {
        const char *path = TX_CHECKPOINT_PATH(output_dir, steps->step[i]);
        tx_status status = tx_checkpoint_verify_file(path, only, report);
        if (status == TX_OK) {
            char *found = strdup(path);
            *folder = found ? found : *folder;
            return found ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for its name", path);
        }
        if (!is_verdict(status))
            return tx_fail_in(status, "cannot verify the newest checkpoint");
        tx_reporter_print(report, "%.1400s; trying an older checkpoint", tx_error());
    }
    return tx_fail_in(TX_FORMAT, "%s: none of %zu checkpoints is intact; the oldest", output_dir, steps->count);
}

tx_status tx_checkpoint_newest_with(const char *output_dir, const char *only, const tx_reporter *report, char **folder)
{
    tx_checkpoint_steps steps;
    TX_TRY(list_steps(output_dir, &steps));
    tx_status status = steps.count ? find_intact(output_dir, &steps, only, report, folder)
                                   : tx_fail(TX_NOT_FOUND, "%s: has no checkpoint", output_dir);
    free(steps.step);
    return status;
}

tx_status tx_checkpoint_newest(const char *output_dir, const tx_reporter *report, char **folder)
{
    TX_NEEDS(output_dir && folder, TX_INVALID);
    return tx_checkpoint_newest_with(output_dir, NULL, report, folder);
}

tx_status tx_checkpoint_latest(const char *output_dir, int64_t *step)
{
    TX_NEEDS(output_dir && step, TX_INVALID);
    tx_checkpoint_steps steps;
    TX_TRY(list_steps(output_dir, &steps));
    *step = steps.count ? steps.step[0] : -1;
    free(steps.step);
    return TX_OK;
}

tx_status tx_checkpoint_count(const char *output_dir, int64_t *count)
{
    tx_checkpoint_steps steps;
    TX_TRY(list_steps(output_dir, &steps));
    *count = (int64_t)steps.count;
    free(steps.step);
    return TX_OK;
}

/* ---- Removing the oldest ------------------------------------------------------------------------- */

/* Fails if TX did not write the folder: other programs use the same names. */
static tx_status check_ours(const char *folder)
{
    struct stat info;
    const char *manifest = TX_PATH(folder, TX_CHECKPOINT_MANIFEST);
    tx_status status = TX_OK;
    if (lstat(folder, &info) != 0)
        status = tx_file_fail(folder, "get its status");
    else if (!S_ISDIR(info.st_mode))
        status = TX_NOT_FOUND;
    else if (stat(manifest, &info) != 0)
        status = tx_file_fail(manifest, "get its status");
    if (status == TX_NOT_FOUND)
        status = tx_fail(TX_FORMAT, "%s: not a folder with a %s", folder, TX_CHECKPOINT_MANIFEST);
    return status;
}

/* Removes one checkpoint, or warns of the reason why it is kept. Returns true if it was removed. */
static bool prune_one(const char *output_dir, int64_t step, const tx_reporter *report)
{
    char name[TX_CHECKPOINT_NAME];
    tx_status status = check_ours(TX_CHECKPOINT_PATH(output_dir, step));
    TX_THEN(status, tx_checkpoint_remove(output_dir, tx_checkpoint_name(step, name), step));
    if (status)
        tx_reporter_print(report, "%.1400s; this old checkpoint is kept", tx_error());
    return status == TX_OK;
}

/* Removes the oldest until `keep` are left, except `best` and those from step `whole` on. */
static tx_status prune_to(const char *output_dir, const tx_checkpoint_steps *steps, size_t keep, int64_t whole,
                          const char *best, const tx_reporter *report)
{
    size_t left = steps->count;
    for (size_t i = steps->count; i > 0 && left > keep && steps->step[i - 1] < whole; i--) {
        bool spared = false;
        if (best)
            TX_TRY(tx_folder_same(TX_CHECKPOINT_PATH(output_dir, steps->step[i - 1]), best, &spared));
        if (!spared && prune_one(output_dir, steps->step[i - 1], report))
            left--;
    }
    return TX_OK;
}

tx_status tx_checkpoint_prune(const char *output_dir, int64_t keep, int64_t whole, const char *best,
                              const tx_reporter *report)
{
    tx_checkpoint_steps steps;
    if (keep < 0)
        return tx_fail(TX_INVALID, "%s: cannot keep %" PRId64 " checkpoints", output_dir, keep);
    if (keep == 0)
        return TX_OK;
    TX_TRY(list_steps(output_dir, &steps));
    tx_status status = prune_to(output_dir, &steps, (size_t)keep, whole, best, report);
    free(steps.step);
    return status;
}

tx_status tx_checkpoint_clear(const char *output_dir, const tx_reporter *report)
{
    tx_checkpoint_steps steps;
    TX_TRY(list_steps(output_dir, &steps));
    for (size_t i = 0; i < steps.count; i++)
        prune_one(output_dir, steps.step[i], report);
    free(steps.step);
    return TX_OK;
}
