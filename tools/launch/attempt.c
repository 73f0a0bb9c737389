/* SPDX-License-Identifier: Apache-2.0
 * Runs one attempt: starts the launcher, forwards its output, and ends all its processes after a failure. */
#define _GNU_SOURCE /* pipe2, ppoll */
#include "tools/launch/txlaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const double tick_seconds = 0.25; /* seconds between two checks of the attempt */
static const double settle_seconds =
    1.0; /* seconds after the first sign; most launchers end by themselves within them */

typedef struct attempt {
    const tx_launch_attempt *a;
    tx_launch_job *job;
    tx_launch_stream stream[2]; /* standard output, standard error */
    tx_launch_logs logs;
    pid_t pid;
    bool forwarded, terminated;
    double last;               /* time of the last check */
    double signed_at, done_at; /* time of the first sign and of the end of rank 0; 0 before */
} attempt;

/* True if the ranks are stopping after a signal. They then write a checkpoint and must not be killed. */
static bool is_stopping(const attempt *t)
{
    const tx_launch_sign *s = &t->job->sign;
    if (s->kind == TX_LAUNCH_FAILED)
        return s->status > 128;
    return *t->a->caught && s->kind == TX_LAUNCH_NONE;
}

/* Sends SIGTERM directly to the ranks on this host. Open MPI's launcher would kill the ranks one second after it
 * forwards SIGTERM, too early for a checkpoint. One rank with the signal is enough to stop the run. */
static bool signal_ranks(const attempt *t)
{
    struct utsname own_host;
    bool sent = false;
    if (t->a->family != TX_LAUNCH_OPENMPI || uname(&own_host) != 0)
        return false;
    for (int32_t r = 0; r < t->job->size; r++) {
        const tx_launch_rank *rank = &t->job->rank[r];
        if (rank->started && strcmp(rank->host, own_host.nodename) == 0)
            sent = tx_launch_signal(rank->pid, SIGTERM) || sent;
    }
    return sent;
}

static void forward_signal(attempt *t)
{
    if (!*t->a->caught || t->forwarded)
        return;
    t->forwarded = true;
    if (!signal_ranks(t))
        kill(t->pid, SIGTERM); /* the launcher forwards it to all ranks; not SIGINT, after which hydra returns 0 */
}

/* True if the remaining processes have to be killed now. */
static bool is_over(attempt *t, double now)
{
    const tx_launch_settings *set = t->a->set;
    if (*t->a->signals > 1)
        return true;
    if (t->job->done) {
        t->done_at = t->done_at > 0.0 ? t->done_at : now;
        return now - t->done_at > set->heartbeat_timeout;
    }
    if (is_stopping(t))
        return tx_launch_job_silent(t->job, now, set->heartbeat_timeout, set->start_timeout);
    tx_launch_job_poll(t->job, now, set->heartbeat_timeout, set->start_timeout);
    if (t->job->sign.kind == TX_LAUNCH_NONE)
        return false;
    t->signed_at = t->signed_at > 0.0 ? t->signed_at : now;
    if (now - t->signed_at > settle_seconds && !t->terminated) {
        t->terminated = true;
        kill(t->pid, SIGTERM);
    }
    return now - t->signed_at > settle_seconds + set->grace;
}

/* Forwards output for at most `seconds`. Returns false at the end of both streams. */
static bool forward(attempt *t, double seconds)
{
    const struct timespec time = {.tv_nsec = (long)(1e9 * seconds)};
    struct pollfd wanted[2];
    for (int i = 0; i < 2; i++)
        wanted[i] = (struct pollfd){.fd = t->stream[i].from, .events = POLLIN};
    const int ready = ppoll(wanted, 2, &time, &t->a->open);
    for (int i = 0; i < 2; i++)
        if (ready > 0 && wanted[i].revents && !tx_launch_forward(&t->stream[i], &t->logs, t->job, t->a)) {
            close(t->stream[i].from);
            t->stream[i].from = -1;
        }
    return t->stream[0].from >= 0 || t->stream[1].from >= 0;
}

static void watch(attempt *t)
{
    while (!(t->job->exited = tx_launch_ended(t->pid, &t->job->status))) {
        forward(t, tick_seconds);
        const double now = tx_now();
        if (now - t->last > 4.0 * tick_seconds) /* txlaunch was stopped, had no core, or waited for a reader */
            tx_launch_job_forgive(t->job, now - t->last);
        t->last = now;
        forward_signal(t);
        if (is_over(t, now))
            break;
    }
}

/* Starts the launcher with pipes. Only the launcher has the write ends when this returns. */
static tx_status start(attempt *t)
{
    int end[4] = {-1, -1, -1, -1};
    tx_status status = TX_OK;
    if (pipe2(end, O_CLOEXEC) != 0 || pipe2(end + 2, O_CLOEXEC) != 0)
        status = tx_fail(TX_MEMORY, "no pipe for the output of %s: %s", t->a->set->launcher, strerror(errno));
    for (int i = 0; i < 2; i++) {
        t->stream[i].from = end[2 * i];
        t->stream[i].to = i ? STDERR_FILENO : STDOUT_FILENO;
        t->stream[i].rank = -1;
    }
    TX_THEN(status, tx_launch_spawn(t->a->argv.word, &t->a->open, end[1], end[3], &t->pid));
    for (int i = 1; i < 4; i += 2)
        if (end[i] >= 0)
            close(end[i]);
    return status;
}

/* Waits for the launcher, kills all remaining processes and forwards the rest of the output. */
static void complete(attempt *t)
{
    watch(t);
    tx_launch_kill_all(t->pid);
    const double end = tx_now() + settle_seconds; /* a process that hangs in the kernel may keep the pipes open */
    while (*t->a->signals < 2 && tx_now() < end && forward(t, 0.05))
        ;
}

/* Stores the host of the sign's rank if the rank never started and so did not report it. */
static void name_host(const attempt *t)
{
    const int32_t rank = t->job->sign.rank;
    const tx_launch_host *host = rank >= 0 ? tx_launch_host_of(&t->a->hosts, rank) : NULL;
    if (host && !t->job->rank[rank].started)
        snprintf(t->job->rank[rank].host, sizeof t->job->rank->host, "%.63s", host->name);
}

tx_status tx_launch_run(tx_launch_attempt *a, tx_launch_job *job)
{
    attempt t = {.a = a, .job = job, .last = tx_now(), .stream = {{.from = -1}, {.from = -1}}};
    TX_TRY(tx_launch_job_start(job, a->ranks, t.last));
    if (a->set->log_dir)
        TX_TRY(tx_launch_logs_open(a->set->log_dir, a->ranks, &t.logs));
    const tx_status status = start(&t);
    if (!status)
        complete(&t);
    for (int i = 0; i < 2; i++)
        if (t.stream[i].from >= 0)
            close(t.stream[i].from);
    tx_launch_logs_close(&t.logs);
    if (job->sign.kind == TX_LAUNCH_NONE)
        job->sign = (tx_launch_sign){.kind = TX_LAUNCH_ENDED, .rank = -1, .teller = -1};
    job->caught = (int)*a->caught;
    name_host(&t);
    return status;
}
