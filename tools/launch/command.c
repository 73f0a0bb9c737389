/* SPDX-License-Identifier: Apache-2.0
 * The launcher's command line. */
#include "tools/launch/txlaunch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

tx_launch_family tx_launch_family_of(const char *version)
{
    if (strstr(version, "HYDRA"))
        return TX_LAUNCH_HYDRA;
    return strstr(version, "Open MPI") || strstr(version, "OpenRTE") || strstr(version, "PRRTE") ? TX_LAUNCH_OPENMPI
                                                                                                 : TX_LAUNCH_OTHER;
}

/* ---- Command lines ---------------------------------------------------------------------------------------------- */

/* Adds a word unless an earlier one failed. */
static void add(tx_status *status, tx_launch_argv *argv, const char *word)
{
    if (*status)
        return;
    char **grown = realloc(argv->word, (argv->count + 2) * sizeof *grown), *copy = strdup(word);
    argv->word = grown ? grown : argv->word;
    if (!grown || !copy) {
        free(copy);
        *status = tx_fail(TX_MEMORY, "no memory for the command line");
        return;
    }
    argv->word[argv->count++] = copy;
    argv->word[argv->count] = NULL;
}

void tx_launch_argv_free(tx_launch_argv *argv)
{
    for (size_t i = 0; i < argv->count; i++)
        free(argv->word[i]);
    free(argv->word);
    *argv = (tx_launch_argv){0};
}

/* "H1:2,H2:2" of the hosts that are not gone. */
static tx_status join_hosts(const tx_launch_hosts *hosts, char **list)
{
    size_t room = (size_t)hosts->count * (sizeof hosts->host->name + 16) + 1, at = 0;
    char *made = malloc(room);
    if (!made)
        return tx_fail(TX_MEMORY, "no memory for the list of hosts");
    made[0] = 0;
    for (int32_t i = 0; i < hosts->count; i++)
        if (!hosts->host[i].gone && hosts->host[i].slots > 0)
            at += (size_t)snprintf(made + at, room - at, "%s%s:%" PRId32, at ? "," : "", hosts->host[i].name,
                                   hosts->host[i].slots);
    *list = made;
    return TX_OK;
}

/* The launcher's own part. */
static tx_status begin(const tx_launch_settings *set, tx_launch_family family, const char *hosts, int32_t ranks,
                       tx_launch_argv *argv)
{
    tx_status status = TX_OK;
    char number[16];
    snprintf(number, sizeof number, "%" PRId32, ranks);
    add(&status, argv, set->launcher);
    if (family == TX_LAUNCH_OPENMPI) { /* MPICH and Slurm hand the whole environment on */
        add(&status, argv, "-x");
        add(&status, argv, TX_BEAT_VARIABLE);
    }
    if (hosts && family == TX_LAUNCH_OTHER && !status)
        status = tx_fail(TX_UNSUPPORTED, "%s is neither MPICH's nor Open MPI's: name the hosts by --launcher_args",
                         set->launcher);
    if (hosts) {
        add(&status, argv, family == TX_LAUNCH_HYDRA ? "-hosts" : "-host");
        add(&status, argv, hosts);
    }
    add(&status, argv, "-n");
    add(&status, argv, number);
    wordexp_t words;
    int fault = set->launcher_args && !status ? wordexp(set->launcher_args, &words, WRDE_NOCMD) : WRDE_NOSPACE;
    if (fault == 0) {
        for (size_t i = 0; i < words.we_wordc; i++)
            add(&status, argv, words.we_wordv[i]);
        wordfree(&words);
    } else if (set->launcher_args && !status) {
        status = tx_fail(TX_INVALID, "--launcher_args: \"%s\" is no list of words", set->launcher_args);
    }
    return status;
}

static tx_status finish(tx_status status, tx_launch_argv *made, tx_launch_argv *argv)
{
    if (status)
        tx_launch_argv_free(made);
    else
        *argv = *made;
    return status;
}

tx_status tx_launch_command(const tx_launch_settings *set, tx_launch_family family, const tx_launch_hosts *hosts,
                            int32_t ranks, const tx_launch_output *output, const tx_launch_start *start,
                            tx_launch_argv *argv)
{
    tx_launch_argv made = {0};
    char *list = NULL, resume[sizeof start->checkpoint + 32];
    tx_status status = hosts->count > 0 ? join_hosts(hosts, &list) : TX_OK;
    if (!status)
        status = begin(set, family, list, ranks, &made);
    for (int32_t i = 0; i < set->command.count; i++)
        add(&status, &made, set->command.word[i]);
    if (start->how == TX_LAUNCH_RESUME) {
        if (output->overwrites)
            add(&status, &made, "--overwrite_output_dir=false");
        snprintf(resume, sizeof resume, "--resume_from_checkpoint%s%s", start->checkpoint[0] ? "=" : "",
                 start->checkpoint);
        add(&status, &made, resume);
    } else if (start->how == TX_LAUNCH_ANEW) {
        add(&status, &made, "--overwrite_output_dir");
    }
    free(list);
    return finish(status, &made, argv);
}

tx_status tx_launch_probe(const tx_launch_settings *set, tx_launch_family family, const char *host,
                          tx_launch_argv *argv)
{
    tx_launch_argv made = {0};
    tx_status status = begin(set, family, host, 1, &made);
    add(&status, &made, "true");
    return finish(status, &made, argv);
}
