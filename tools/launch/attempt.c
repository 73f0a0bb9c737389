/* SPDX-License-Identifier: Apache-2.0
 * Runs one attempt: starts the launcher, forwards its output, and ends all its processes after a failure. */
#define _GNU_SOURCE /* pipe2, ppoll */
#include "tools/launch/txlaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
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
    tx_launch_child *child; /* the launcher, then the tests of the hosts */
    tx_launch_probes probes;
    tx_launch_survivors survivors;
    bool forwarded, terminated;
    double last;               /* time of the last check */
    double looked;             /* time of the last test of excluded hosts */
    double signed_at, done_at; /* time of the first sign and of the end of rank 0; 0 before */
} attempt;

/* True if the ranks are stopping after a signal. They then write a checkpoint and must not be killed. */
static bool is_stopping(const attempt *t)
{
    const tx_launch_sign *s = &t->job->sign;
    if (s->kind == TX_LAUNCH_FAILED)
        return s->status > 128;
    return (*t->a->caught || t->job->rejoins) && s->kind == TX_LAUNCH_NONE;
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

/* Lets all ranks save a checkpoint and end, once: after a signal, or to continue with a host that answers again. */
static void stop_ranks(attempt *t)
{
    if ((!*t->a->caught && !t->job->rejoins) || t->forwarded)
        return;
    t->forwarded = true;
    if (!signal_ranks(t)) /* the launcher forwards it to all ranks; not SIGINT, after which hydra returns 0 */
        kill(t->child->pid, SIGTERM);
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
    if (tx_launch_survivors_live(&t->survivors, t->job->kept, now))
        return false;
    if (now - t->signed_at > settle_seconds && !t->terminated) {
        t->terminated = true;
        kill(t->child->pid, SIGTERM);
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

/* Returns true if the launcher has ended. */
static bool has_ended(attempt *t)
{
    tx_launch_reap(t->child, 1 + t->a->hosts.count);
    t->job->exited = t->child->ended;
    t->job->status = t->child->status;
    return t->job->exited;
}

/* Tests from time to time whether an excluded host answers again. */
static void look_for_hosts(attempt *t, double now)
{
    const double interval = t->a->set->rejoin_interval;
    bool excluded = false, answers = false;
    for (int32_t i = 0; i < t->a->hosts.count; i++)
        excluded = excluded || t->a->hosts.host[i].excluded;
    if (!excluded || interval <= 0.0 || t->job->step < 0 || t->job->sign.kind != TX_LAUNCH_NONE || t->forwarded)
        return;
    t->looked = t->looked > 0.0 ? t->looked : now;
    if (!t->probes.running && now - t->looked > interval) {
        tx_launch_probes_start(&t->probes, t->a, true, now);
        t->looked = now;
    } else if (t->probes.running && tx_launch_probes_end(&t->probes, t->a, now)) {
        for (int32_t i = 0; i < t->a->hosts.count; i++)
            answers = answers || t->a->hosts.host[i].answers;
        t->job->rejoins = answers;
    }
}

static void watch(attempt *t)
{
    while (!has_ended(t)) {
        forward(t, tick_seconds);
        const double now = tx_now();
        if (now - t->last > 4.0 * tick_seconds) /* txlaunch was stopped, had no core, or waited for a reader */
            tx_launch_job_forgive(t->job, now - t->last);
        t->last = now;
        look_for_hosts(t, now);
        stop_ranks(t);
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
    TX_THEN(status, tx_launch_spawn(t->a->argv.word, &t->a->open, end[1], end[3], &t->child->pid));
    for (int i = 1; i < 4; i += 2)
        if (end[i] >= 0)
            close(end[i]);
    return status;
}

/* Waits for ranks that save their last step. Those that have not noticed the failure do so if the launcher is gone. */
static void await_survivors(attempt *t)
{
    if (!*t->job->kept)
        return;
    t->survivors = (tx_launch_survivors){0};
    if (!t->job->done) {
        kill(-t->child->pid, SIGKILL);
        while (*t->a->signals < 2 && tx_launch_survivors_live(&t->survivors, t->job->kept, tx_now()))
            forward(t, tick_seconds);
    }
    tx_launch_survivors_end(t->job);
}

/* Waits for the launcher, kills all remaining processes and forwards the rest of the output. */
static void complete(attempt *t)
{
    watch(t);
    await_survivors(t);
    tx_launch_kill_all(t->child->pid);
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
    t.child = calloc((size_t)a->hosts.count + 1, sizeof *t.child);
    t.probes.child = t.child + 1;
    const tx_status status = t.child ? start(&t) : tx_fail(TX_MEMORY, "no memory for the list of hosts");
    if (!status)
        complete(&t);
    for (int i = 0; i < 2; i++)
        if (t.stream[i].from >= 0)
            close(t.stream[i].from);
    tx_launch_logs_close(&t.logs);
    free(t.child);
    if (job->sign.kind == TX_LAUNCH_NONE)
        job->sign = (tx_launch_sign){.kind = TX_LAUNCH_ENDED, .rank = -1, .teller = -1};
    job->caught = (int)*a->caught;
    name_host(&t);
    return status;
}
