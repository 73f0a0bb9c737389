/* SPDX-License-Identifier: Apache-2.0
 * Runs programs of TX as separate processes. */
#include "tools/process/process.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- Command lines ----------------------------------------------------------------------------------------- */

tx_status tx_command_line_add_word(tx_command_line *command, const char *word)
{
    char *copy = command->count < TX_COMMAND_WORDS ? strdup(word) : NULL;
    if (!copy)
        return tx_fail(TX_MEMORY, "no memory for the words of a command, or more than %d words", TX_COMMAND_WORDS);
    command->word[command->count++] = copy;
    return TX_OK;
}

tx_status tx_command_line_add(tx_command_line *command, const char *format, ...)
{
    char text[512], *rest = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tx_status status = TX_OK;
    for (char *word = strtok_r(text, " ", &rest); word && !status; word = strtok_r(NULL, " ", &rest))
        status = tx_command_line_add_word(command, word);
    return status;
}

void tx_command_line_free(tx_command_line *command)
{
    for (int32_t i = 0; i < command->count; i++)
        free(command->word[i]);
    *command = (tx_command_line){0};
}

void tx_command_line_text(const tx_command_line *command, char *text, size_t size)
{
    text[0] = '\0';
    for (int32_t i = 0; i < command->count; i++)
        tx_list_add(text, size, " ", "%s", command->word[i]);
}

/* ---- Processes --------------------------------------------------------------------------------------------- */

tx_status tx_process_beside(const char *name, char *path, size_t size)
{
    TX_TRY(tx_child_self(path, size));
    char *at = strrchr(path, '/') + 1;
    snprintf(at, size - (size_t)(at - path), "%s", name);
    return TX_OK;
}

tx_status tx_process_start(const tx_command_line *command, const tx_child_spawning *how, tx_process *process)
{
    char path[4096];
    const char *argv[TX_COMMAND_WORDS + 1] = {path};
    TX_TRY(tx_process_beside(command->word[0], path, sizeof path));
    for (int32_t i = 1; i < command->count; i++)
        argv[i] = command->word[i];
    *process = (tx_process){.begin = tx_now()};
    return tx_child_spawn(argv, how, &process->id);
}

bool tx_process_poll(tx_process *process)
{
    if (process->ended)
        return true;
    const pid_t ended = waitpid(process->id, &process->state, WNOHANG);
    process->seconds = tx_now() - process->begin;
    process->ended = ended == process->id || (ended < 0 && errno != EINTR);
    return process->ended;
}

bool tx_process_well(const tx_process *process, const char *said, char *message, size_t size)
{
    const int state = process->state;
    if (!WIFSIGNALED(state) && WEXITSTATUS(state) == 0)
        return true;
    if (WIFSIGNALED(state))
        snprintf(message, size, "ended by signal %d (%s)%s%.400s", WTERMSIG(state), strsignal(WTERMSIG(state)),
                 *said ? ": " : "", said);
    else
        snprintf(message, size, "%s", said);
    return false;
}

/* ---- Output of processes ----------------------------------------------------------------------------------- */

char *tx_process_text(FILE *file)
{
    const long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    rewind(file);
    if (text)
        text[fread(text, 1, (size_t)size, file)] = '\0';
    return text;
}

/* Returns true for "still loading m, 12 s", "kernels 27 of 42, 9 s left" and "book.txt 43 %, 9 s left". */
static bool is_progress(const char *line)
{
    int counted = 0, share = 0;
    (void)sscanf(line, "%*s %*d of %*d%n", &counted);
    (void)sscanf(line, "%*s %*d %%%n", &share);
    return strncmp(line, "still ", 6) == 0 || counted > 0 || share > 0;
}

const char *tx_process_complaint(char *text)
{
    char *rest = NULL;
    const char *last = "";
    bool own = false;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *colon = strncmp(line, "tx", 2) == 0 ? strstr(line, ": ") : NULL;
        if (colon && is_progress(colon + 2))
            continue;
        if (colon || (!own && strcspn(line, "abcdefghijklmnopqrstuvwxyz") < strlen(line)))
            last = colon ? colon + 2 : line;
        own |= colon != NULL;
    }
    return last;
}
