/* SPDX-License-Identifier: Apache-2.0
 * The launcher's command line, and what the command says of its output folder. */
#include "api/base/file.h"
#include "api/base/json.h"
#include "tools/txlaunch.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wordexp.h>

#define OPTIONS_LIMIT (1 << 24)

tx_launch_family tx_launch_family_of(const char *version)
{
    if (strstr(version, "HYDRA"))
        return TX_LAUNCH_HYDRA;
    return strstr(version, "Open MPI") || strstr(version, "OpenRTE") || strstr(version, "PRRTE") ? TX_LAUNCH_OPENMPI
                                                                                                 : TX_LAUNCH_OTHER;
}

/* ---- The output folder ------------------------------------------------------------------------------------ */

/* The rest of `word` after --NAME, - and _ being the same: "" or "=..."; NULL where it is another word. */
static const char *after_name(const char *word, const char *name)
{
    if (strncmp(word, "--", 2) != 0)
        return NULL;
    for (word += 2; *name; word++, name++)
        if (*word != *name && !(*word == '-' && *name == '_'))
            return NULL;
    return *word == 0 || *word == '=' ? word : NULL;
}

static tx_status set_folder(tx_launch_output *output, const char *folder)
{
    char *copy = strdup(folder);
    if (!copy)
        return tx_fail(TX_MEMORY, "%s: out of memory", folder);
    free(output->folder);
    output->folder = copy;
    return TX_OK;
}

/* A file that cannot be read is the command's to complain of. */
static tx_status read_options(const char *path, tx_launch_output *output)
{
    tx_json *json = NULL;
    const char *folder = NULL;
    bool resumes = true; /* unless it is false; other values are the command's to judge */
    tx_status status = TX_OK;
    if (tx_json_read(path, OPTIONS_LIMIT, &json))
        return TX_OK;
    if (tx_json_type_of(json) == TX_JSON_OBJECT) {
        output->overwrites = output->overwrites || tx_json_has(json, "overwrite_output_dir");
        tx_json_get_bool(json, "resume_from_checkpoint", &resumes);
        output->resumes = output->resumes || (resumes && tx_json_has(json, "resume_from_checkpoint"));
        if (!tx_json_get_string(json, "output_dir", &folder))
            status = set_folder(output, folder);
    }
    tx_json_free(json);
    return status;
}

tx_status tx_launch_output_find(const tx_words *command, tx_launch_output *output)
{
    tx_launch_output made = {0};
    tx_status status = TX_OK;
    for (int32_t i = 1; i < command->count && !status; i++) { /* the file first: options win over it */
        const char *word = command->word[i];
        size_t length = strlen(word);
        if (word[0] != '-' && length > 5 && strcmp(word + length - 5, ".json") == 0)
            status = read_options(word, &made);
    }
    for (int32_t i = 1; i < command->count && !status; i++) {
        const char *value = after_name(command->word[i], "output_dir");
        if (value && *value)
            status = set_folder(&made, value + 1);
        else if (value && i + 1 < command->count)
            status = set_folder(&made, command->word[i + 1]);
        made.overwrites = made.overwrites || after_name(command->word[i], "overwrite_output_dir");
        made.resumes = made.resumes || after_name(command->word[i], "resume_from_checkpoint");
    }
    if (status)
        free(made.folder);
    else
        *output = made;
    return status;
}

bool tx_launch_output_has_checkpoint(const char *folder, char *name, size_t room)
{
    static const char prefix[] = "checkpoint-";
    long long newest = -1;
    DIR *dir = folder ? opendir(folder) : NULL;
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char manifest[1200], *end;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        long long step = strtoll(entry->d_name + strlen(prefix), &end, 10);
        int length = snprintf(manifest, sizeof manifest, "%.900s/%.255s/manifest.json", folder, entry->d_name);
        if (*end || end == entry->d_name + strlen(prefix) || step <= newest || length >= (int)sizeof manifest ||
            !tx_file_exists(manifest))
            continue;
        newest = step;
        snprintf(name, room, "%s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    return newest >= 0;
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
                            int32_t ranks, const tx_launch_output *output, tx_launch_start start, tx_launch_argv *argv)
{
    tx_launch_argv made = {0};
    char *list = NULL;
    tx_status status = hosts->count > 0 ? join_hosts(hosts, &list) : TX_OK;
    if (!status)
        status = begin(set, family, list, ranks, &made);
    for (int32_t i = 0; i < set->command.count; i++)
        add(&status, &made, set->command.word[i]);
    if (start == TX_LAUNCH_RESUME) {
        if (output->overwrites)
            add(&status, &made, "--overwrite_output_dir=false");
        add(&status, &made, "--resume_from_checkpoint");
    } else if (start == TX_LAUNCH_ANEW) {
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
