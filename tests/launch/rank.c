/* SPDX-License-Identifier: Apache-2.0
 * A rank that trains nothing, for the tests of txlaunch. Every step is a sleep and a sum over the ranks, and the result
 * depends on all steps. It writes folders that look like checkpoints, resumes from them, and fails as requested.
 *
 *   rank [--output_dir DIR] [--resume_from_checkpoint[=CHECKPOINT]] [--overwrite_output_dir] [--steps N]
 *        [--step_ms N] [--save_steps N] [--timeout S] [--fault KIND:RANK:STEP] [--always]
 *
 * KIND is exit0, exit1, kill, hang, refuse, failed, finalize, or unborn. With unborn the first process dies before MPI
 * starts, whatever its rank. STEP 0 is before the first one, with the log open. A fault happens once in a folder, or
 * with --always each time, after the launcher has heard of the step before, so that all such failures look alike. */
#include "api/base/file.h"
#include "comm/watch.h"
#include "tools/cli/options.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct timespec reports = {.tv_nsec = 700000000}; /* rank 0 reports its last step in it */

typedef struct settings {
    const char *folder, *faults, *checkpoint; /* checkpoint: NULL for a new run, "" for the newest */
    char fault[16];
    int64_t steps, step_ms, save_steps, fault_step;
    int32_t fault_rank;
    double timeout;
    bool always, overwrite;
} settings;

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

#define AT(field) offsetof(settings, field)
static const tx_option options[] = {
    {TX_OPTION_TEXT, "output_dir", AT(folder), .choices = "DIR", .help = ""},
    {TX_OPTION_OPTIONAL, "resume_from_checkpoint", AT(checkpoint), .choices = "DIR", .help = "else the newest"},
    {TX_OPTION_FLAG, "overwrite_output_dir", AT(overwrite), .help = ""},
    {TX_OPTION_INTEGER, "steps", AT(steps), 0, 1e9, "N", ""},
    {TX_OPTION_INTEGER, "step_ms", AT(step_ms), 0, 1e9, "N", ""},
    {TX_OPTION_INTEGER, "save_steps", AT(save_steps), 1, 1e9, "N", ""},
    {TX_OPTION_REAL, "timeout", AT(timeout), 0, 1e9, "S", "of the watch"},
    {TX_OPTION_TEXT, "fault", AT(faults), .choices = "KIND:RANK:STEP", .help = ""},
    {TX_OPTION_FLAG, "always", AT(always), .help = ""},
};

static const tx_cli program = {.name = "rank", .usage = "rank [options]", .table = {TX_CLI_OPTIONS(options)}};

/* The status to end with, or TX_GO_ON. */
static int parse(int argc, char **argv, settings *set)
{
    *set = (settings){.steps = 20, .step_ms = 20, .save_steps = 5, .timeout = 600.0};
    int result = tx_options_parse(&program, argc, argv, set);
    if (result == TX_GO_ON && set->faults &&
        sscanf(set->faults, "%15[^:]:%" SCNd32 ":%" SCNd64, set->fault, &set->fault_rank, &set->fault_step) != 3)
        return TX_EXIT_USAGE;
    return result == TX_GO_ON && set->checkpoint && set->overwrite ? TX_EXIT_USAGE : result;
}

/* ---- Checkpoints ------------------------------------------------------------------------------------------ */

static tx_status save(const settings *set, tx_watchdog *watch, int64_t step, float value)
{
    char folder[600], file[700], text[64];
    snprintf(folder, sizeof folder, "%.500s/checkpoint-%" PRId64, set->folder, step);
    snprintf(file, sizeof file, "%s/manifest.json", folder);
    int length = snprintf(text, sizeof text, "%" PRId64 " %a\n", step, (double)value);
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_file_write(file, text, (size_t)length));
    tx_watchdog_saved(watch, folder);
    return TX_OK;
}

static tx_status load(const settings *set, int64_t *step, float *value)
{
    for (int64_t at = *set->checkpoint ? 1 : set->steps; at > 0; at--) {
        char file[700], *text;
        double read;
        size_t size;
        if (*set->checkpoint)
            snprintf(file, sizeof file, "%.600s/manifest.json", set->checkpoint);
        else
            snprintf(file, sizeof file, "%.500s/checkpoint-%" PRId64 "/manifest.json", set->folder, at);
        if (tx_file_read(file, 4096, &text, &size))
            continue;
        bool whole = sscanf(text, "%" SCNd64 " %la", step, &read) == 2;
        free(text);
        *value = (float)read;
        return whole ? TX_OK : tx_fail(TX_FORMAT, "%s: damaged", file);
    }
    return tx_fail(TX_NOT_FOUND, "%s: there is no checkpoint", set->folder);
}

/* ---- Steps -------------------------------------------------------------------------------------------------- */

/* The fault that is due, if any. */
static const char *fault_now(const settings *set, int32_t rank, int64_t step)
{
    char mark[700];
    if (!*set->fault || rank != set->fault_rank || step != set->fault_step)
        return "";
    snprintf(mark, sizeof mark, "%.500s/fault", set->folder ? set->folder : ".");
    int made = open(mark, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (made >= 0)
        close(made);
    return made >= 0 || set->always ? set->fault : "";
}

static void do_fault(const char *fault)
{
    if (strcmp(fault, "exit0") == 0)
        _exit(0);
    if (strcmp(fault, "exit1") == 0)
        _exit(1);
    if (strcmp(fault, "kill") == 0 || strcmp(fault, "unborn") == 0)
        kill(getpid(), SIGKILL);
    while (strcmp(fault, "hang") == 0)
        pause();
}

static tx_status train(const settings *set, tx_comm *comm, tx_watchdog *watch, int64_t *step, float *value,
                       bool *stopped)
{
    while (*step < set->steps && !*stopped) {
        struct timespec time = {.tv_sec = set->step_ms / 1000, .tv_nsec = set->step_ms % 1000 * 1000000};
        nanosleep(&time, NULL);
        const char *fault = fault_now(set, comm->rank, *step + 1);
        if (*fault && set->always)
            nanosleep(&reports, NULL);
        do_fault(fault);
        if (strcmp(fault, "failed") == 0)
            return tx_fail(TX_DEVICE, "the device is lost");
        float sums[2] = {(*value + (float)comm->rank) / (float)comm->size, caught ? 1.0f : 0.0f};
        TX_TRY(tx_comm_collect(comm, TX_ALL_REDUCE, sums, 2, TX_F32, 0));
        *value = sums[0] * 0.75f + 1.0f;
        *stopped = sums[1] > 0.0f;
        tx_watchdog_step(watch, ++*step);
        if (set->folder && (*stopped || *step % set->save_steps == 0)) {
            tx_watchdog_begin(watch, TX_WATCHDOG_WRITING);
            if (comm->rank == 0)
                TX_TRY(save(set, watch, *step, *value));
            TX_TRY(tx_comm_collect(comm, TX_BARRIER, NULL, 0, TX_F32, 0));
            tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
        }
    }
    return TX_OK;
}

/* Rank 0's log, which is of one run only. */
static tx_status open_log(const settings *set)
{
    char file[700];
    snprintf(file, sizeof file, "%.500s/log.jsonl", set->folder);
    if (tx_file_exists(file) && !set->checkpoint && !set->overwrite)
        return tx_fail(TX_INVALID, "%s: is not empty", set->folder);
    return tx_file_write(file, "", 0);
}

/* Writes this rank's process id to the folder, and loads the checkpoint. */
static tx_status begin(const settings *set, const tx_comm *comm, int64_t *step, float *value)
{
    char text[32], file[700];
    if (set->folder) {
        snprintf(file, sizeof file, "%.500s/pid-%" PRId32, set->folder, comm->rank);
        int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        TX_TRY(tx_folder_create(set->folder));
        TX_TRY(tx_file_write(file, text, (size_t)length));
    }
    if (strcmp(set->fault, "refuse") == 0)
        return tx_fail(TX_INVALID, "config.json differs from rank 0's");
    if (set->checkpoint)
        TX_TRY(load(set, step, value));
    if (set->folder && comm->rank == 0)
        TX_TRY(open_log(set));
    do_fault(fault_now(set, comm->rank, 0));
    return TX_OK;
}

static int run(const settings *set, tx_comm *comm, tx_watchdog *watch)
{
    int64_t step = 0;
    float value = 0.0f;
    bool stopped = false;
    tx_status status = begin(set, comm, &step, &value);
    if (!status && comm->rank == 0 && set->checkpoint)
        printf("resumed after step %" PRId64 " with %" PRId32 " ranks\n", step, comm->size);
    fflush(stdout);
    tx_watchdog_begin(watch, TX_WATCHDOG_TRAINING);
    TX_THEN(status, train(set, comm, watch, &step, &value, &stopped));
    if (!status && !stopped) /* no rank leaves before rank 0 has come to its end */
        status = tx_comm_collect(comm, TX_BARRIER, NULL, 0, TX_F32, 0);
    if (status || stopped) {
        int result = stopped ? 128 + SIGTERM : 1;
        fprintf(stderr, "rank: %s\n", stopped ? "stopped by a signal" : tx_error());
        tx_watchdog_failed(watch, result, stopped ? "stopped by a signal" : tx_error());
        return result;
    }
    if (comm->rank == 0)
        printf("final %a\n", (double)value);
    fflush(stdout);
    tx_watchdog_done(watch);
    while (strcmp(set->fault, "finalize") == 0)
        pause();
    return 0;
}

int main(int argc, char **argv)
{
    settings set;
    const int parsed = parse(argc, argv, &set);
    if (parsed != TX_GO_ON)
        return parsed;
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (strcmp(set.fault, "unborn") == 0 && tx_folder_create(set.folder) == TX_OK)
        do_fault(fault_now(&set, set.fault_rank, set.fault_step));
    tx_comm *comm = NULL;
    tx_watchdog *watch = NULL;
    const tx_watchdog_options watched = {.size = sizeof watched,
                                         .program = "rank",
                                         .advice = "start again with --resume_from_checkpoint",
                                         .timeout = set.timeout};
    if (tx_watchdog_start(&watched, &watch) || tx_comm_default()->open(&argc, &argv, &comm) ||
        tx_watchdog_join(watch, comm)) {
        fprintf(stderr, "rank: %s\n", tx_error());
        return 1;
    }
    int result = run(&set, comm, watch);
    comm->table->close(comm);
    tx_watchdog_stop(watch);
    return result;
}
