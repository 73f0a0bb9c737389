/* SPDX-License-Identifier: Apache-2.0
 * Starting a row of txbench ddp as a program of its own. */
#include "tools/bench/ddp.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SHARING "TX_COMM_SHM="
enum { MOST_ARGUMENTS = 48 };

/* The environment with windows off; the caller frees the list, not its texts. */
static char **without_sharing(void)
{
    static char off[] = SHARING "0";
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **list = calloc(count + 2, sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        if (strncmp(environ[i], SHARING, strlen(SHARING)) != 0)
            list[kept++] = environ[i];
    if (list)
        list[kept] = off;
    return list;
}

/* Starts it with its standard output on a pipe, whose other end is *from; its errors go where ours go. */
static tx_status spawn(char *const arguments[], char *const environment[], pid_t *process, FILE **from)
{
    int ends[2];
    if (pipe(ends))
        return tx_fail(TX_IO, "cannot make a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int error = posix_spawnp(process, arguments[0], &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *from = error ? NULL : fdopen(ends[0], "r");
    if (*from)
        return TX_OK;
    close(ends[0]);
    if (!error)
        waitpid(*process, NULL, 0);
    return error ? tx_fail(TX_NOT_FOUND,
                           "%s: cannot be started: %s; it is the launcher of the MPI that TX was built with",
                           arguments[0], strerror(error))
                 : tx_fail(TX_MEMORY, "no memory to read what %s prints", arguments[0]);
}

/* The line that is a JSON object; launchers may say something before it. */
static tx_status read_object(FILE *from, const char *where, tx_json **printed)
{
    char *line = NULL;
    size_t room = 0;
    tx_status status = TX_OK;
    *printed = NULL;
    for (ssize_t length; (length = getline(&line, &room, from)) >= 0;)
        if (line[0] == '{' && !*printed && !status)
            status = tx_json_parse(line, (size_t)length, where, printed);
    free(line);
    return status;
}

static tx_status finish(pid_t process, FILE *from, const char *where, tx_json **printed)
{
    int state = 0;
    tx_json *read = NULL;
    tx_status status = read_object(from, where, &read);
    fclose(from);
    while (waitpid(process, &state, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(state))
        status = tx_fail(TX_IO, "%s was ended by signal %d", where, WTERMSIG(state));
    else if (WEXITSTATUS(state) != 0)
        status = tx_fail(TX_IO, "%s failed with status %d: see its message above", where, WEXITSTATUS(state));
    else if (!status && !read)
        status = tx_fail(TX_FORMAT, "%s printed no figures", where);
    if (status)
        tx_json_free(read);
    else
        *printed = read;
    return status;
}

tx_status tx_ddp_start(const char *launcher, int32_t ranks, bool shared, char *const arguments[], tx_json **printed)
{
    char program[4096], name[256], count[16], number[] = "-n", command[] = "ddp";
    char *all[MOST_ARGUMENTS];
    int32_t used = 0;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return tx_fail(TX_IO, "/proc/self/exe: cannot tell the path of this program: %s", strerror(errno));
    program[length] = '\0';
    if (launcher) {
        snprintf(name, sizeof name, "%s", launcher);
        snprintf(count, sizeof count, "%" PRId32, ranks);
        all[used++] = name;
        all[used++] = number;
        all[used++] = count;
    }
    all[used++] = program;
    all[used++] = command;
    while (*arguments && used < MOST_ARGUMENTS - 1)
        all[used++] = *arguments++;
    all[used] = NULL;
    char **environment = shared ? environ : without_sharing();
    if (!environment)
        return tx_fail(TX_MEMORY, "no memory for an environment");
    pid_t process = 0;
    FILE *from = NULL;
    tx_status status = spawn(all, environment, &process, &from);
    if (!shared)
        free(environment);
    return status ? status : finish(process, from, launcher ? launcher : "txbench", printed);
}
