/* SPDX-License-Identifier: Apache-2.0
 * Builds the launcher's command line. */
#include "tools/launch/txlaunch.h"

#include "tools/process/child.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_launch_family tx_launch_family_of(const char *version)
{
    if (strstr(version, "HYDRA"))
        return TX_LAUNCH_HYDRA;
    return strstr(version, "Open MPI") || strstr(version, "OpenRTE") || strstr(version, "PRRTE") ? TX_LAUNCH_OPENMPI
                                                                                                 : TX_LAUNCH_OTHER;
}

/* ---- Command lines ---------------------------------------------------------------------------------------------- */

enum { OWN = 12 }; /* largest number of words other than those of --launcher_args and the command */

static void add(tx_launch_argv *argv, const char *word)
{
    argv->word[argv->count++] = word;
}

void tx_launch_argv_free(tx_launch_argv *argv)
{
    wordfree(&argv->args);
    free(argv->hosts);
    free(argv->word);
    *argv = (tx_launch_argv){0};
}

static tx_status give_up(tx_launch_argv *argv, tx_status status)
{
    tx_launch_argv_free(argv);
    return status;
}

/* Returns "H1:2,H2:2" for the hosts that are not gone, or NULL if there is no memory. */
static char *join_hosts(const tx_launch_hosts *hosts)
{
    size_t room = (size_t)hosts->count * (sizeof hosts->host->name + 16) + 1;
    char *list = calloc(room, 1);
    for (int32_t i = 0; i < hosts->count && list; i++)
        if (!hosts->host[i].excluded && hosts->host[i].slots > 0)
            tx_list_add(list, room, ",", "%s:%" PRId32, hosts->host[i].name, hosts->host[i].slots);
    return list;
}

/* Builds the launcher's own arguments and reserves room for `more` words. Takes ownership of `hosts`, which may be
 * NULL. Frees everything on errors. */
static tx_status begin(const tx_launch_settings *set, tx_launch_family family, char *hosts, int32_t ranks, int32_t more,
                       tx_launch_argv *argv)
{
    *argv = (tx_launch_argv){.hosts = hosts};
    if (hosts && family == TX_LAUNCH_OTHER)
        return give_up(argv, tx_fail(TX_UNSUPPORTED,
                                     "%s is neither MPICH's nor Open MPI's launcher: give the hosts in --launcher_args",
                                     set->launcher));
    if (set->log_dir && family == TX_LAUNCH_OTHER)
        return give_up(argv,
                       tx_fail(TX_UNSUPPORTED,
                               "--log_dir: %s is neither MPICH's nor Open MPI's launcher, which mark lines with ranks",
                               set->launcher));
    if (set->launcher_args && wordexp(set->launcher_args, &argv->args, WRDE_NOCMD) != 0) {
        argv->args = (wordexp_t){0};
        return give_up(argv, tx_fail(TX_INVALID, "--launcher_args: \"%s\" has invalid shell quoting or expansion",
                                     set->launcher_args));
    }
    argv->word = calloc(OWN + argv->args.we_wordc + (size_t)more, sizeof *argv->word);
    if (!argv->word)
        return give_up(argv, tx_fail(TX_MEMORY, "no memory for the command line"));
    snprintf(argv->ranks, sizeof argv->ranks, "%" PRId32, ranks);
    add(argv, set->launcher);
    if (hosts) {
        add(argv, family == TX_LAUNCH_HYDRA ? "-hosts" : "-host");
        add(argv, hosts);
    }
    if (set->log_dir)
        add(argv, family == TX_LAUNCH_HYDRA ? "-prepend-rank" : "--tag-output");
    add(argv, "-n");
    add(argv, argv->ranks);
    for (size_t i = 0; i < argv->args.we_wordc; i++)
        add(argv, argv->args.we_wordv[i]);
    return TX_OK;
}

tx_status tx_launch_command(const tx_launch_settings *set, tx_launch_family family, const tx_launch_hosts *hosts,
                            int32_t ranks, const tx_launch_output *output, const tx_launch_start *start,
                            tx_launch_argv *argv)
{
    char *list = hosts->count > 0 ? join_hosts(hosts) : NULL;
    if (hosts->count > 0 && !list)
        return tx_fail(TX_MEMORY, "no memory for the list of hosts");
    TX_TRY(begin(set, family, list, ranks, set->command.count, argv));
    const tx_status status = tx_child_self(argv->self, sizeof argv->self);
    if (status)
        return give_up(argv, status);
    add(argv, argv->self);
    add(argv, TX_LAUNCH_AGENT);
    for (int32_t i = 0; i < set->command.count; i++)
        add(argv, set->command.word[i]);
    if (start->how == TX_LAUNCH_RESUME) {
        if (output->overwrites)
            add(argv, "--overwrite_output_dir=false");
        snprintf(argv->resume, sizeof argv->resume, "--resume_from_checkpoint%s%s", start->checkpoint[0] ? "=" : "",
                 start->checkpoint);
        add(argv, argv->resume);
    } else if (start->how == TX_LAUNCH_ANEW) {
        add(argv, "--overwrite_output_dir");
    }
    return TX_OK;
}

tx_status tx_launch_probe(const tx_launch_settings *set, tx_launch_family family, const char *host,
                          tx_launch_argv *argv)
{
    char *list = strdup(host);
    if (!list)
        return tx_fail(TX_MEMORY, "no memory for the command line");
    TX_TRY(begin(set, family, list, 1, 0, argv));
    add(argv, "true");
    return TX_OK;
}
