/* SPDX-License-Identifier: Apache-2.0
 * A rank is lost, while others have all weights and states: one of them saves the last complete step, so that txlaunch
 * continues from there. No collective is possible any more, so the remaining ranks meet in a folder of output_dir. */
#include "api/base/file.h"
#include "models/files/checkpoint_files.h"
#include "models/files/folder.h"
#include "models/train/running.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER ".survivors-"

enum { NAME = 40 };                                   /* characters of the folder's name */
static const struct timespec meeting = {.tv_sec = 1}; /* the time for other replicas to show their last steps */
static const struct timespec moment = {.tv_nsec = 50000000};
static const double patience = 10.0; /* seconds to wait for the other ranks of a replica */

/* ---- Preparation --------------------------------------------------------------------------------------- */

/* The number of ranks that have all weights and optimizer states together, of which there are others; 0 if all ranks
 * are needed. With local steps the ranks' weights differ. Stage 3 within hosts has not been tried. */
static int32_t replica_size(const tx_running *r)
{
    const tx_parallel_options *p = &tx_trainer_options_of(r->trainer)->parallel;
    if (!r->comm || r->comm->size == 1 || r->outer || r->rollout || p->tensor || p->pipeline || p->expert)
        return 0;
    const bool hybrid = p->zero_stage < 3 && p->replicate && p->replicate->size > 1;
    return !p->zero_stage ? 1 : hybrid ? p->shards->size : 0;
}

/* Makes the folder, and removes those of earlier runs: their ranks must save nothing any more. */
static tx_status make_folder(const char *output_dir, char name[NAME])
{
    tx_names names = {0};
    uint64_t random = 0;
    TX_TRY(tx_folder_list(output_dir, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count; i++)
        if (strncmp(names.name[i], FOLDER, sizeof FOLDER - 1) == 0)
            TX_THEN(status, tx_folder_remove(output_dir, names.name[i]));
    tx_names_free(&names);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        status = status ? status : tx_fail(TX_IO, "no random number for the name of a folder");
    snprintf(name, NAME, FOLDER "%016" PRIx64, random);
    if (!status && mkdir(TX_PATH(output_dir, name), 0777) != 0)
        status = tx_file_fail(TX_PATH(output_dir, name), "make the folder");
    return status;
}

tx_status tx_running_keep(tx_running *r)
{
    const tx_run_options *o = r->options;
    const char *output_dir = o->set->output_dir;
    char name[NAME] = "";
    const int32_t size = replica_size(r);
    if (!size || !output_dir || o->set->only_model)
        return TX_OK;
    if (r->comm->rank == 0 && tx_watchdog_is_launched(o->watch) && make_folder(output_dir, name)) {
        tx_reporter_print(&o->report, "if a rank is lost, its last steps are lost too: %.400s", tx_error());
        *name = '\0';
    }
    TX_TRY(tx_comm_collect(r->comm, TX_BROADCAST, name, NAME / sizeof(int32_t), TX_I32, 0));
    char *folder = realpath(*name ? TX_PATH(output_dir, name) : "", NULL);
    float missing = folder ? 0.0f : 1.0f;
    TX_TRY(tx_comm_collect(r->comm, TX_ALL_REDUCE, &missing, 1, TX_F32, 0));
    if (missing > 0.0f) { /* without txlaunch, or if the hosts do not share the folder */
        free(folder);
        return TX_OK;
    }
    r->kept = folder;
    if (size > 1)
        TX_TRY(tx_comm_sub(r->comm, r->comm->rank / size, r->comm->rank, &r->replica));
    if (!r->speaks)
        tx_log_remember(&r->log);
    tx_watchdog_keep(o->watch, folder);
    return TX_OK;
}

void tx_running_keep_end(tx_running *r)
{
    if (!r->kept)
        return;
    tx_watchdog_keep(r->options->watch, "");
    if (r->speaks)
        (void)tx_folder_remove(r->options->set->output_dir, strrchr(r->kept, '/') + 1);
    free(r->kept);
    r->kept = NULL;
}

/* ---- The loss of a rank -------------------------------------------------------------------------------- */

/* Makes an empty file in the folder. Returns false if it exists, or if the folder is gone. */
static bool make_file(const tx_running *r, const char *name)
{
    const int file = open(TX_PATH(r->kept, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0)
        close(file);
    return file >= 0;
}

static bool has_file(const tx_running *r, const char *name)
{
    return tx_file_exists(TX_PATH(r->kept, name));
}

/* The last steps of the ranks, or -1, by their files. The caller frees them. */
static int64_t *read_steps(const tx_running *r)
{
    tx_names names = {0};
    int64_t *last = malloc((size_t)r->comm->size * sizeof *last), step;
    int32_t rank;
    for (int32_t k = 0; k < r->comm->size && last; k++)
        last[k] = -1;
    const tx_status status = tx_folder_list(r->kept, &names);
    for (size_t i = 0; i < names.count && !status && last; i++)
        if (sscanf(names.name[i], "last-%" SCNd64 "-of-%" SCNd32, &step, &rank) == 2 && rank >= 0 &&
            rank < r->comm->size)
            last[rank] = step;
    tx_names_free(&names);
    return last;
}

/* The step of the replica of `size` ranks from `first` on; -1 if its ranks have different steps. */
static int64_t step_of(const int64_t *last, int32_t first, int32_t size)
{
    for (int32_t k = 1; k < size; k++)
        if (last[first + k] != last[first])
            return -1;
    return last[first];
}

static bool is_whole(const tx_running *r, int32_t first, int32_t size)
{
    int64_t *last = read_steps(r);
    const bool whole = last && step_of(last, first, size) >= 0;
    free(last);
    return whole;
}

/* The first rank of the replica with the latest step, or of the first such one; -1 if no replica is whole. */
static int32_t find_latest(const tx_running *r, int32_t size)
{
    int64_t *last = read_steps(r), latest = -1;
    int32_t found = -1;
    for (int32_t first = 0; first < r->comm->size && last; first += size)
        if (step_of(last, first, size) > latest) {
            latest = step_of(last, first, size);
            found = first;
        }
    free(last);
    return found;
}

/* Decides whether this rank's replica is saved. Its first rank decides for the others, which may see other files. */
static bool is_chosen(const tx_running *r, const char *last)
{
    char yes[64], no[64];
    const int32_t size = r->replica ? r->replica->size : 1, first = r->comm->rank / size * size;
    const double end = tx_now() + patience;
    snprintf(yes, sizeof yes, "chosen-%" PRId32, first);
    snprintf(no, sizeof no, "not-chosen-%" PRId32, first);
    if (r->comm->rank > first) {
        while (!has_file(r, yes) && !has_file(r, no) && tx_now() < end)
            nanosleep(&moment, NULL);
        if (!has_file(r, yes))
            unlink(TX_PATH(r->kept, last));
        return has_file(r, yes);
    }
    while (size > 1 && !is_whole(r, first, size) && tx_now() < end)
        nanosleep(&moment, NULL);
    nanosleep(&meeting, NULL);
    const bool chosen = find_latest(r, size) == first;
    return make_file(r, chosen ? yes : no) && chosen;
}

/* Writes the checkpoint, unless another rank does: one that is late, or that cannot be reached, may have the same step.
 * The first to make the file of the step writes. */
static tx_status write_last(tx_running *r)
{
    char writes[64];
    snprintf(writes, sizeof writes, "writes-%" PRId64, r->state->step);
    if (!make_file(r, writes))
        return TX_OK;
    const char *saved = TX_CHECKPOINT_PATH(r->options->set->output_dir, r->state->step);
    if (!tx_file_exists(TX_PATH(saved, TX_CHECKPOINT_MANIFEST)))
        return tx_running_save_alone(r, r->kept);
    tx_watchdog_saved(r->options->watch, saved);
    return TX_OK;
}

/* Saves the last complete step in one of the replicas that remain. */
static tx_status save_last(tx_running *r)
{
    char last[64];
    snprintf(last, sizeof last, "last-%" PRId64 "-of-%" PRId32, r->state->step, r->comm->rank);
    if (r->replica)
        TX_TRY(tx_model_read_within(r->model, r->replica));
    if (r->state->step == 0 || !make_file(r, last))
        return TX_OK;
    if (!is_chosen(r, last))
        return TX_OK;
    if (!r->replica)
        return write_last(r);
    tx_comm_resume();
    if (r->replica->rank > 0)
        return tx_model_serve_reads(r->model);
    tx_status status = tx_model_read_alone(r->model, true);
    TX_THEN(status, write_last(r));
    const tx_status ended = tx_model_read_alone(r->model, false);
    return status ? status : ended;
}

/* The weights and states are those of the last complete step: a step first sums the gradients, then the results, and
 * needs no rank of another replica for its update. */
tx_status tx_running_rescue(tx_running *r, tx_status status)
{
    const tx_run_options *o = r->options;
    char reason[1024];
    if (status != TX_IO || !r->kept || !tx_watchdog_survives(o->watch)) /* not a failure of tx_comm_abandon */
        return status;
    snprintf(reason, sizeof reason, "%s", tx_error());
    tx_watchdog_begin(o->watch, TX_WATCHDOG_WRITING);
    (void)tx_model_wait(r->model);     /* transfers that have failed */
    (void)tx_running_commit(r, false); /* the checkpoint that was begun */
    tx_status saved = tx_running_take(r);
    TX_THEN(saved, tx_trainer_average(r->trainer, true));
    TX_THEN(saved, save_last(r));
    if (saved)
        tx_reporter_print(&o->report, "rank %" PRId32 " cannot save step %" PRId64 ": %.400s", r->comm->rank,
                          r->state->step, tx_error());
    tx_watchdog_leave(o->watch);
    return tx_fail(status, "%s", reason);
}
