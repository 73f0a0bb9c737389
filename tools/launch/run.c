/* SPDX-License-Identifier: Apache-2.0
 * One attempt: the launcher is started, listened to, and ended where something is wrong. */
#include "api/base/clock.h"
#include "tools/launch/txlaunch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const double tick = 0.25;  /* seconds between two looks at everything */
static const double settle = 1.0; /* after the first sign, in which launchers mostly end by themselves */
static const double mute = 2.0;   /* seconds without a heartbeat that make a host suspect */

typedef struct attempt {
    tx_launch_attempt *a;
    tx_launch_job *job;
    pid_t pid;
    bool exited, killed, forwarded, asked;
    int32_t status;
    double last;               /* look at everything */
    double signed_at, done_at; /* 0: not yet */
} attempt;

/* Whether the ranks are ending because a signal asked them to: what they write must not be disturbed. */
static bool stopping(const attempt *t)
{
    const tx_launch_sign *s = &t->job->sign;
    if (s->kind == TX_LAUNCH_FAILED)
        return s->status > 128;
    return *t->a->caught && s->kind == TX_LAUNCH_NONE;
}

/* Open MPI's launcher kills ranks one second after it handed SIGTERM on, which is too soon for a checkpoint, so those
 * of this host get it directly: a run stops when one of its ranks is asked to. */
static bool ask_ranks(const attempt *t)
{
    struct utsname here;
    bool asked = false;
    if (t->a->family != TX_LAUNCH_OPENMPI || uname(&here) != 0)
        return false;
    for (int32_t r = 0; r < t->job->size; r++) {
        const tx_launch_rank *rank = &t->job->rank[r];
        if (rank->here && !rank->closed && strcmp(rank->host, here.nodename) == 0)
            asked = tx_launch_signal(rank->pid, SIGTERM) || asked;
    }
    return asked;
}

static void forward(attempt *t)
{
    if (!*t->a->caught || t->forwarded)
        return;
    t->forwarded = true;
    if (!ask_ranks(t))
        kill(t->pid, SIGTERM); /* handed on to all ranks; of SIGINT hydra makes an exit status 0 */
}

/* Whether the time has come to end what does not end by itself. */
static bool over(attempt *t, double now)
{
    const tx_launch_settings *set = t->a->set;
    if (*t->a->signals > 1)
        return true;
    if (tx_launch_job_done(t->job)) {
        t->done_at = t->done_at > 0.0 ? t->done_at : now;
        return now - t->done_at > set->heartbeat_timeout;
    }
    if (stopping(t))
        return tx_launch_job_late(t->job, now, set->heartbeat_timeout, set->start_timeout) >= 0;
    tx_launch_job_look(t->job, now, set->heartbeat_timeout, set->start_timeout);
    if (t->job->sign.kind == TX_LAUNCH_NONE || stopping(t))
        return false;
    t->signed_at = t->signed_at > 0.0 ? t->signed_at : now;
    if (now - t->signed_at > settle && !t->asked) {
        t->asked = true;
        kill(t->pid, SIGTERM);
    }
    return now - t->signed_at > settle + set->grace;
}

static void watch(attempt *t)
{
    for (;;) {
        tx_launch_server_wait(t->a->server, t->job, tick, &t->a->open);
        double now = tx_now();
        if (now - t->last > 4.0 * tick) /* txlaunch itself was stopped, or had no core */
            tx_launch_job_forgive(t->job, now - t->last);
        t->last = now;
        t->exited = tx_launch_ended(t->pid, &t->status, &t->killed);
        if (t->exited)
            break;
        forward(t);
        if (over(t, now))
            return;
    }
    /* What the ranks of other hosts said last may still be on its way. */
    while (t->job->open > 0 && tx_now() - t->last < settle && *t->a->signals < 2)
        tx_launch_server_wait(t->a->server, t->job, 0.05, &t->a->open);
}

static void suspect_hosts(const attempt *t)
{
    tx_launch_hosts *hosts = &t->a->hosts;
    int32_t first = 0;
    for (int32_t i = 0; i < hosts->count; i++) {
        tx_launch_host *host = &hosts->host[i];
        int32_t count = host->gone ? 0 : host->slots;
        count = count < t->job->size - first ? count : t->job->size - first;
        host->suspect = tx_launch_job_silent(t->job, first, count, t->last, mute);
        first += count;
    }
}

/* Whether the launcher failed itself, which its ranks do not outlive for long enough to tell by their ends: somebody
 * killed it, or it ended with a status that is not theirs. MPICH's has one for that, but gives it too where a rank dies
 * while MPI starts, or on another host. */
static bool launcher_failed(const attempt *t)
{
    const tx_launch_kind kind = t->job->sign.kind;
    const bool own = t->a->family == TX_LAUNCH_HYDRA && t->a->hosts.count == 0 && t->status == 255;
    if (!t->exited || t->asked || tx_launch_job_done(t->job) || (kind != TX_LAUNCH_NONE && kind != TX_LAUNCH_DIED))
        return false;
    return t->killed || (own && tx_launch_job_first(t->job)->step >= 0);
}

static void conclude(const attempt *t, tx_launch_outcome *o)
{
    tx_launch_job *job = t->job;
    const tx_launch_rank *first = tx_launch_job_first(job);
    if (launcher_failed(t))
        job->sign = (tx_launch_sign){.kind = TX_LAUNCH_LEFT, .rank = -1, .teller = -1};
    if (job->sign.kind == TX_LAUNCH_NONE)
        job->sign.kind = TX_LAUNCH_ENDED;
    *o = (tx_launch_outcome){.sign = job->sign,
                             .done = tx_launch_job_done(job),
                             .reported = job->reported,
                             .step = first->step,
                             .stride = first->stride,
                             .exited = t->exited,
                             .status = t->status,
                             .caught = (int)*t->a->caught};
    if (job->sign.rank >= 0) {
        const tx_launch_host *host = tx_launch_host_of(&t->a->hosts, job->sign.rank);
        o->who = job->rank[job->sign.rank];
        if (!o->who.here && host)
            snprintf(o->who.host, sizeof o->who.host, "%.63s", host->name);
    }
    for (int32_t i = 0; i < t->a->hosts.count; i++)
        o->unreachable = o->unreachable || t->a->hosts.host[i].suspect;
}

tx_status tx_launch_run(tx_launch_attempt *a, tx_launch_job *job, tx_launch_outcome *outcome)
{
    char place[128];
    attempt t = {.a = a, .job = job, .last = tx_now()};
    TX_TRY(tx_launch_server_begin(a->server, a->ranks, place));
    if (setenv(TX_BEAT_VARIABLE, place, 1) != 0)
        return tx_fail(TX_MEMORY, "the environment has no room: %s", strerror(errno));
    TX_TRY(tx_launch_job_start(job, a->ranks, t.last));
    int output = -1;
    tx_launch_logs *logs = NULL;
    if (a->set->log_dir)
        TX_TRY(tx_launch_logs_begin(a->set->log_dir, a->ranks, &logs, &output));
    const tx_status status = tx_launch_spawn(a->argv.word, &a->open, output, &t.pid);
    if (logs)
        close(output);
    if (!status) {
        watch(&t);
        suspect_hosts(&t);
        tx_launch_kill_all(t.pid);
    }
    tx_launch_logs_end(logs);
    TX_TRY(status);
    conclude(&t, outcome);
    return TX_OK;
}
