/* SPDX-License-Identifier: Apache-2.0
 * A rank that survives the loss of another one, and of its launcher: it leaves its waits and has time to save the last
 * complete step. A file in a shared folder tells txlaunch, which may have no other connection to it, that it is alive.
 */
#define _GNU_SOURCE /* prctl */
#include "comm/watch_state.h"

#include "api/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const double renewal = 1.0; /* seconds between two renewals of the file */

typedef char path[TX_REPORT_LINE + 128];

/* Creates a file, or renews its time. Returns false if the folder is gone. */
static bool touch(const char *name)
{
    const int file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    const bool renewed = file >= 0 && futimens(file, NULL) == 0;
    if (file >= 0)
        close(file);
    return renewed;
}

static void name_mark(const tx_watchdog *w, path name)
{
    snprintf(name, sizeof(path), "%s/" TX_SURVIVOR_MARK "%" PRId32, w->folder, w->rank);
}

static bool mark(tx_watchdog *w)
{
    path name;
    name_mark(w, name);
    w->marked = tx_now();
    return touch(name);
}

void tx_watchdog_mark_saved(const tx_watchdog *w, const char *checkpoint)
{
    const char *slash = strrchr(checkpoint, '/');
    path name;
    if (!w->survives)
        return;
    snprintf(name, sizeof name, "%s/" TX_SURVIVOR_SAVED "%.100s", w->folder, slash ? slash + 1 : checkpoint);
    touch(name);
}

void tx_watchdog_unmark(const tx_watchdog *w)
{
    path name;
    if (!w->survives)
        return;
    name_mark(w, name);
    unlink(name);
}

bool tx_watchdog_renew(tx_watchdog *w)
{
    return !w->survives || tx_now() - w->marked < renewal || mark(w);
}

bool tx_watchdog_survive(tx_watchdog *w, const char *why)
{
    if (!*w->folder || w->survives || !w->blames || !mark(w))
        return false;
    w->survives = true;
    w->quiet = 0.0;
    tx_watchdog_report(w, "%s; rank %" PRId32 " saves its last complete step", why, w->rank);
    tx_comm_abandon(why);
    return true;
}

/* ---- For the run ----------------------------------------------------------------------------- */

bool tx_watchdog_is_launched(const tx_watchdog *w)
{
    return w && w->channel >= 0;
}

void tx_watchdog_keep(tx_watchdog *w, const char *folder)
{
    if (!tx_watchdog_is_launched(w))
        return;
    pthread_mutex_lock(&w->lock);
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    if (*folder) {
        w->parent = getppid();
        if (w->rank == 0)
            tx_report(w->channel, 1.0, "%" PRId32 " keeps %s", w->rank, folder);
    }
    prctl(PR_SET_PDEATHSIG, *folder ? 0 : SIGKILL); /* the agent's death ends the process, or is noticed */
    pthread_mutex_unlock(&w->lock);
}

bool tx_watchdog_survives(tx_watchdog *w)
{
    if (!w)
        return false;
    char why[512];
    const bool failed = tx_comm_abandoned() != TX_OK;
    snprintf(why, sizeof why, "%s", failed ? tx_error() : "");
    pthread_mutex_lock(&w->lock);
    w->blames = w->blames || failed;
    const bool survives = w->survives || (failed && tx_watchdog_survive(w, why));
    pthread_mutex_unlock(&w->lock);
    return survives;
}
