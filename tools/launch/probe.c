/* SPDX-License-Identifier: Apache-2.0
 * Tests which hosts answer, by running `true` on them, all at the same time. */
#define _GNU_SOURCE /* ppoll */
#include "tools/launch/txlaunch.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

static const double probe_seconds = 10.0; /* time for `true` on a host */

static void start_one(const tx_launch_attempt *a, const tx_launch_host *host, tx_launch_child *child)
{
    tx_launch_argv argv = {0};
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    *child = (tx_launch_child){0};
    if (!tx_launch_probe(a->set, a->family, host->name, &argv))
        (void)tx_launch_spawn(argv.word, &a->open, nowhere, nowhere, &child->pid);
    tx_launch_argv_free(&argv);
    if (nowhere >= 0)
        close(nowhere);
}

void tx_launch_probes_start(tx_launch_probes *p, const tx_launch_attempt *a, bool excluded, double now)
{
    for (int32_t i = 0; i < a->hosts.count; i++) {
        p->child[i] = (tx_launch_child){0};
        a->hosts.host[i].answers = false;
        if (a->hosts.host[i].excluded || !excluded)
            start_one(a, &a->hosts.host[i], &p->child[i]);
    }
    p->began = now;
    p->running = true;
}

bool tx_launch_probes_end(tx_launch_probes *p, const tx_launch_attempt *a, double now)
{
    bool all = true;
    for (int32_t i = 0; i < a->hosts.count; i++)
        all = all && (!p->child[i].pid || p->child[i].ended);
    if (!all && now - p->began < probe_seconds)
        return false;
    for (int32_t i = 0; i < a->hosts.count; i++) {
        const tx_launch_child *c = &p->child[i];
        a->hosts.host[i].answers = c->ended && c->status == 0;
        if (c->pid && !c->ended)
            kill(-c->pid, SIGKILL);
    }
    p->running = false;
    return true;
}

void tx_launch_probe_all(const tx_launch_attempt *a)
{
    tx_launch_probes p = {.child = calloc((size_t)a->hosts.count + 1, sizeof *p.child)};
    if (!p.child)
        return; /* no host answers */
    tx_launch_probes_start(&p, a, false, tx_now());
    while (p.running && !*a->caught && !tx_launch_probes_end(&p, a, tx_now())) {
        ppoll(NULL, 0, &(struct timespec){.tv_nsec = 10000000}, &a->open);
        tx_launch_reap(p.child, a->hosts.count);
    }
    tx_launch_kill_all(0);
    free(p.child);
}
