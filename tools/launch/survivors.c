/* SPDX-License-Identifier: Apache-2.0
 * Ranks that survive the loss of another one save their last complete step, also if the launcher has ended and nothing
 * connects them to txlaunch any more. Their files in a shared folder show when they have ended, and their checkpoints.
 */
#include "comm/report.h"
#include "tools/launch/txlaunch.h"
#include "tx_folder.h"
#include "tx_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const double absence = 3.0;  /* seconds without a file after which no rank survives */
static const double silence = 15.0; /* seconds without a change after which the ranks of the files are dead */

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool tx_launch_survivors_live(tx_launch_survivors *s, const char *folder, double now)
{
    tx_names names = {0};
    struct stat info;
    int64_t change = 0;
    bool some = false;
    if (!*folder || tx_folder_list(folder, &names))
        return false;
    for (size_t i = 0; i < names.count; i++)
        if (begins(names.name[i], TX_SURVIVOR_MARK) && stat(TX_PATH(folder, names.name[i]), &info) == 0) {
            some = true;
            change += (int64_t)info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1000000;
        }
    tx_names_free(&names);
    s->began = s->began > 0.0 ? s->began : now;
    if (some)
        s->seen = now;
    if (change != s->change)
        s->changed = now;
    s->change = change;
    return some ? now - s->changed < silence : now - (s->seen > 0.0 ? s->seen : s->began) < absence;
}

void tx_launch_survivors_end(tx_launch_job *job)
{
    tx_names names = {0};
    char *slash = strrchr(job->kept, '/');
    int64_t newest = *job->saved ? tx_checkpoint_step(job->saved) : -1;
    if (!slash)
        return;
    const tx_status status = tx_folder_list(job->kept, &names);
    *slash = '\0';
    for (size_t i = 0; i < names.count && !status; i++) {
        const char *name = names.name[i] + sizeof TX_SURVIVOR_SAVED - 1;
        if (!begins(names.name[i], TX_SURVIVOR_SAVED) || tx_checkpoint_step(name) < newest)
            continue;
        newest = tx_checkpoint_step(name);
        job->rescued = true;
        snprintf(job->saved, sizeof job->saved, "%.3900s/%.100s", job->kept, name);
    }
    tx_names_free(&names);
    (void)tx_folder_remove(job->kept, slash + 1); /* ranks that txlaunch cannot reach save nothing any more */
    *slash = '/';
}
