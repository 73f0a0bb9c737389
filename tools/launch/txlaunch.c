/* SPDX-License-Identifier: Apache-2.0
 * txlaunch: starts a job of several ranks with mpiexec, and restarts it from its newest checkpoint if a rank dies. */
#include "tools/launch/txlaunch.h"
#include "tools/process/process.h"
#include "tx_train.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef TX_MPI_LAUNCHER
#define TX_MPI_LAUNCHER "mpiexec"
#endif

/* ---- Options -------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(tx_launch_settings, member)

static const tx_option options[] = {
    {TX_OPTION_INTEGER, "n", AT(ranks), 0, 1 << 20, "N", "number of ranks; 0 means the slots of the hosts, or 1"},
    {TX_OPTION_INTEGER, "nproc_per_node", AT(per_host), 0, 1 << 20, "N", "number of ranks of each host, instead of -n"},
    {TX_OPTION_TEXT, "hosts", AT(hosts), 0, 0, "H1,H2:4",
     "hosts and their numbers of ranks; without numbers the ranks are divided evenly"},
    {TX_OPTION_TEXT, "hostfile", AT(hostfile), 0, 0, "FILE",
     "read the hosts from a file, one per line: H, H:4 or H slots=4"},
    {TX_OPTION_INTEGER, "max_restarts", AT(max_restarts), 0, 1 << 20, "K", "largest number of restarts"},
    {TX_OPTION_REAL, "restart_delay", AT(restart_delay), 0, 3600, "S",
     "seconds before the first restart; the delay doubles with each restart, up to 30 times S"},
    {TX_OPTION_INTEGER, "min_ranks", AT(min_ranks), 0, 1 << 20, "M",
     "continue without a host that does not answer if at least M ranks remain; 0 means that all are needed"},
    {TX_OPTION_REAL, "rejoin_interval", AT(rejoin_interval), 0, 86400, "S",
     "look every S seconds whether a host that was left out answers again, and then continue on all hosts from a "
     "checkpoint; 0 means never"},
    {TX_OPTION_REAL, "heartbeat_timeout", AT(heartbeat_timeout), 2, 86400, "S",
     "end the attempt after S seconds without a heartbeat from any rank; --comm_timeout of txtrain detects single "
     "ranks"},
    {TX_OPTION_REAL, "start_timeout", AT(start_timeout), 1, 86400, "S",
     "end the attempt if some rank has not started within S seconds"},
    {TX_OPTION_REAL, "grace", AT(grace), 0, 86400, "S", "seconds between SIGTERM and SIGKILL after a failure"},
    {TX_OPTION_TEXT, "log_dir", AT(log_dir), 0, 0, "DIR",
     "also write the output of each rank to DIR/rank-0.log, DIR/rank-1.log, ..., and begin printed lines with [RANK]"},
    {TX_OPTION_TEXT, "launcher", AT(launcher), 0, 0, "PROGRAM",
     "mpiexec of MPICH or Open MPI, or a compatible program; default: that of the MPI with which TX was built"},
    {TX_OPTION_TEXT, "launcher_args", AT(launcher_args), 0, 0, "WORDS",
     "more arguments for the launcher, quoted as for a shell"},
};

static const tx_option_spelling spellings[] = {
    {"--num_processes", "n"}, {"--np", "n"}, {"-np", "n"}, {"--num_gpus", "nproc_per_node"}};

static const tx_launch_settings defaults = {
    .max_restarts = 3,
    .restart_delay = 1.0,
    .heartbeat_timeout = 30.0,
    .start_timeout = 120.0,
    .grace = 5.0,
    .rejoin_interval = 30.0,
};

static const tx_cli program = {
    .name = "txlaunch",
    .usage = "txlaunch -n N [options] txtrain ...",
    .about =
        "Starts a training job of several ranks with mpiexec and monitors it. If a rank dies, hangs or cannot be\n"
        "reached, the attempt ends and the command is restarted from its newest checkpoint. On SIGTERM and SIGINT\n"
        "all ranks save a checkpoint and end. The exit status is 0 only if rank 0 reports that all output is written.",
    .example = "  txlaunch -n 2 txtrain --train_file text.txt --output_dir out",
    .table = {TX_CLI_OPTIONS(options), TX_CLI_SPELLINGS(spellings)},
    .values = &defaults,
    .operand = "COMMAND",
    .operands = AT(command),
    .operands_least = 1,
    .operands_most = INT32_MAX,
    .runs_command = true,
};

/* Refuses the words and scripts that other launchers read as a program. */
static int check_program(const char *word)
{
    char command[64];
    snprintf(command, sizeof command, "command %s", word);
    const tx_option *known = tx_option_foreign(program.name, command);
    const char *dot = strrchr(word, '.');
    if (known)
        return tx_complain(&program, TX_EXIT_USAGE, "%s: not a program: %s", word, known->help);
    if (dot && strcmp(dot, ".py") == 0 && access(word, X_OK) != 0)
        return tx_complain(&program, TX_EXIT_USAGE, "%s: not a program: start txtrain with the options of the script",
                           word);
    return TX_GO_ON;
}

static int check(const tx_launch_settings *set)
{
    if (set->hosts && set->hostfile)
        return tx_complain(&program, TX_EXIT_USAGE, "--hosts and --hostfile exclude each other");
    if (set->ranks && set->per_host)
        return tx_complain(&program, TX_EXIT_USAGE, "-n and --nproc_per_node exclude each other");
    return check_program(set->command.word[0]);
}

/* ---- Signals ---------------------------------------------------------------------------------------------- */

/* Written by the signal handlers. */
static volatile sig_atomic_t caught, signals;

static void on_signal(int number)
{
    caught = caught ? caught : number;
    signals++;
}

static void on_child(int number)
{
    (void)number; /* SIGCHLD only interrupts the wait for events */
}

/* Blocks the signals, so that they are delivered only while the program waits with the mask `before`. */
static void catch_signals(sigset_t *before)
{
    static const int terminating[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t block;
    sigemptyset(&block);
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof terminating / sizeof terminating[0]; i++) {
        sigaction(terminating[i], &action, NULL);
        sigaddset(&block, terminating[i]);
    }
    action.sa_handler = on_child;
    sigaction(SIGCHLD, &action, NULL);
    sigaddset(&block, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &block, before);
    for (size_t i = 0; i < sizeof terminating / sizeof terminating[0]; i++)
        sigdelset(before, terminating[i]);
    sigdelset(before, SIGCHLD);
}

/* Sleeps for `seconds` or until a signal comes. */
static void wait_for(double seconds, const sigset_t *open)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)(1e9 * (seconds - (double)time.tv_sec));
    pselect(0, NULL, NULL, NULL, &time, open);
}

/* ---- Attempts ---------------------------------------------------------------------------------------------- */

typedef struct launch {
    tx_launch_attempt next;
    int32_t ranks; /* of the first attempt */
    tx_launch_output output;
    bool moved;       /* some attempt completed a step */
    char saved[4096]; /* the newest checkpoint of all attempts, or "" */
    tx_launch_history history;
} launch;

static void say(const char *format, ...) TX_PRINTF(1, 2);

static void say(const char *format, ...)
{
    char line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tx_print_line(stderr, "%s: %s", program.name, line);
}

static tx_status find_family(tx_launch_attempt *a)
{
    char text[8192] = "";
    tx_status started;
    tx_launch_try((const char *[]){a->set->launcher, "--version", NULL}, 20.0, text, sizeof text, &started);
    a->family = tx_launch_family_of(text);
    return started;
}

static tx_status prepare(launch *l)
{
    const tx_launch_settings *set = l->next.set;
    const int32_t per_host = (int32_t)(set->ranks ? 0 : set->per_host ? set->per_host : 1);
    TX_TRY(tx_launch_hosts_read(set->hosts, set->hostfile, (int32_t)set->ranks, per_host, &l->next.hosts));
    l->next.ranks = (int32_t)(set->ranks            ? set->ranks
                              : l->next.hosts.count ? tx_launch_hosts_room(&l->next.hosts, INT32_MAX)
                                                    : per_host);
    l->ranks = l->next.ranks;
    if (set->min_ranks > l->ranks)
        return tx_fail(TX_INVALID, "--min_ranks %" PRId64 " is more than the %" PRId32 " ranks", set->min_ranks,
                       l->ranks);
    TX_TRY(tx_launch_output_find(&set->command, &l->output));
    TX_TRY(tx_child_adopt());
    return find_family(&l->next);
}

/* Sets how the next attempt starts, and describes it in `from`. Checkpoints of earlier runs are neither overwritten nor
 * resumed unless the command's options request it. Once this job has a checkpoint of its own, it resumes from that. */
static void next_start(const launch *l, tx_launch_start *start, char *from, size_t room)
{
    const tx_launch_output *o = &l->output;
    *start = (tx_launch_start){TX_LAUNCH_AS_IS, ""};
    if (*l->saved) {
        const char *slash = strrchr(l->saved, '/');
        start->how = TX_LAUNCH_RESUME;
        snprintf(from, room, "%.60s", slash ? slash + 1 : l->saved);
        if (o->others && o->resumes != TX_LAUNCH_NEWEST)
            snprintf(start->checkpoint, sizeof start->checkpoint, "%s", l->saved);
        return;
    }
    snprintf(from, room, "%s", o->resumes ? "the checkpoint in the command" : "the beginning");
    const bool filled = o->folder && (l->moved || (o->vacant && tx_output_check(o->folder)));
    if (filled && o->resumes == TX_LAUNCH_FRESH)
        start->how = TX_LAUNCH_ANEW;
}

/* Excludes a host that does not answer, if the other hosts have slots for enough ranks. */
static void exclude_host(tx_launch_attempt *a, int32_t ranks, tx_launch_host *host)
{
    const int32_t least = a->set->min_ranks > 0 ? (int32_t)a->set->min_ranks : ranks;
    host->excluded = true;
    const int32_t left = tx_launch_hosts_room(&a->hosts, ranks);
    host->excluded = left >= least;
    if (host->excluded) {
        a->ranks = left;
        say("%s does not answer: continuing with %" PRId32
            " ranks on the other hosts; processes on it could not be ended and may still run",
            host->name, left);
    } else
        say("%s does not answer, and the other hosts have slots for only %" PRId32 " of the %" PRId32 " ranks that are "
            "needed (--min_ranks): trying it again",
            host->name, left, least);
}

/* Includes the excluded hosts that answer again. */
static void include_hosts(launch *l)
{
    tx_launch_attempt *a = &l->next;
    for (int32_t i = 0; i < a->hosts.count; i++) {
        tx_launch_host *host = &a->hosts.host[i];
        if (!host->excluded || !host->answers)
            continue;
        host->excluded = false;
        a->ranks = tx_launch_hosts_room(&a->hosts, l->ranks);
        say("%s answers again: continuing with %" PRId32 " ranks", host->name, a->ranks);
    }
}

/* Tests which hosts answer after a failure. A host that does not answer may come back, so the failure does not count as
 * a repetition of the last one. */
static void probe_hosts(launch *l)
{
    tx_launch_attempt *a = &l->next;
    if (!a->hosts.count)
        return;
    tx_launch_probe_all(a);
    for (int32_t i = 0; i < a->hosts.count && !caught; i++)
        if (!a->hosts.host[i].excluded && !a->hosts.host[i].answers) {
            l->history.same = 0;
            exclude_host(a, l->ranks, &a->hosts.host[i]);
        }
    include_hosts(l);
}

/* How the newest checkpoint came about, if the ranks could have saved their last step. */
static const char *origin(const tx_launch_job *job)
{
    return job->rescued ? ", the last complete step, which the remaining ranks saved"
           : *job->kept ? "; no rank that remained has saved a later step"
                        : "";
}

/* Decides how to continue after an attempt. Returns false if it was the last, or else sets how the next one starts. */
static bool conclude(launch *l, const tx_launch_job *job, tx_launch_start *next, int *result)
{
    const tx_launch_settings *set = l->next.set;
    const int64_t before = l->history.restarts;
    char line[800], from[64];
    tx_launch_decision decision;
    tx_launch_decide(job, set->max_restarts, &l->history, &decision);
    const char *slash = strrchr(set->launcher, '/');
    tx_launch_describe(job, slash ? slash + 1 : set->launcher, line, sizeof line);
    *result = decision.status;
    switch (decision.verdict) {
    case TX_LAUNCH_RESTART:
        next_start(l, next, from, sizeof from);
        say("%s; restart %" PRId64 " of %" PRId64 " in %.3g s from %s%s", line, l->history.restarts, set->max_restarts,
            decision.wait * set->restart_delay, from, origin(job));
        wait_for(decision.wait * set->restart_delay, &l->next.open);
        probe_hosts(l);
        return true;
    case TX_LAUNCH_SUCCESS:
        say("complete after %" PRId64 " restart%s%s", before, tx_s(before),
            !job->exited  ? "; the ranks did not end by themselves and were killed"
            : job->status ? "; the launcher failed when all ranks had finished"
                          : "");
        break;
    case TX_LAUNCH_STOPPED:
        if (job->rejoins && !job->caught) {
            next_start(l, next, from, sizeof from);
            include_hosts(l);
            return true;
        }
        say("stopped by a signal after %" PRId64 " restart%s and step %" PRId64 "; continue with "
            "--resume_from_checkpoint",
            before, tx_s(before), job->step);
        break;
    default:
        if (!tx_launch_explained(job))
            say("%s; given up after %" PRId64 " restart%s: %s", line, before, tx_s(before), decision.reason);
    }
    return false;
}

/* Runs one attempt and decides how to continue. Returns false if it was the last. */
static bool attempt(launch *l, tx_launch_start *start, int *result)
{
    tx_launch_attempt *a = &l->next;
    tx_launch_job job = {0};
    tx_status status = tx_launch_command(a->set, a->family, &a->hosts, a->ranks, &l->output, start, &a->argv);
    TX_THEN(status, tx_launch_run(a, &job));
    if (*job.saved)
        memcpy(l->saved, job.saved, sizeof l->saved);
    l->moved = l->moved || job.step >= 0;
    const bool again = !status && conclude(l, &job, start, result);
    if (status)
        *result = tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error());
    tx_launch_argv_free(&a->argv);
    tx_launch_job_free(&job);
    return again;
}

static int supervise(launch *l)
{
    int result = TX_EXIT_FAILURE;
    tx_launch_start start = {TX_LAUNCH_AS_IS, ""};
    while (attempt(l, &start, &result))
        if (caught) {
            say("stopped by a signal after %" PRId64 " restart%s, before the next one", l->history.restarts - 1,
                tx_s(l->history.restarts - 1));
            return 128 + (int)caught;
        }
    return result;
}

/* The default launcher: one in the folder of this program, since a bundle includes that of its MPI, or that of PATH. */
static void choose_launcher(tx_launch_settings *set, char *path, size_t size)
{
    if (!set->launcher)
        set->launcher =
            !tx_process_beside(TX_MPI_LAUNCHER, path, size) && access(path, X_OK) == 0 ? path : TX_MPI_LAUNCHER;
}

int main(int argc, char **argv)
{
    char own[4096];
    tx_launch_settings set = defaults;
    if (argc > 2 && strcmp(argv[1], TX_LAUNCH_AGENT) == 0)
        return tx_launch_agent((const char **)argv + 2);
    int status = tx_options_parse(&program, argc, argv, &set);
    choose_launcher(&set, own, sizeof own);
    if (status == TX_GO_ON)
        status = check(&set);
    if (status != TX_GO_ON)
        return status;
    launch l = {.next = {.set = &set, .caught = &caught, .signals = &signals}};
    catch_signals(&l.next.open);
    status = prepare(&l) ? tx_complain(&program, TX_EXIT_FAILURE, "%s", tx_error()) : supervise(&l);
    tx_launch_hosts_free(&l.next.hosts);
    tx_launch_output_free(&l.output);
    return tx_end(&program, status);
}
