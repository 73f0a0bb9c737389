/* SPDX-License-Identifier: Apache-2.0
 * Commands run one after the other, and what came of each. */
#include "tools/bench/part.h"
#include "api/base/clock.h"
#include "api/base/message.h"
#include "tools/bench/child.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const words[] = {
#define X(name, word) word,
    TX_PART_MAP(X)
#undef X
};

#define MESSAGE 600
#define KILLED_SECONDS 5.0 /* in which a process that was killed should be gone */

/* ---- Command lines ---------------------------------------------------------------------------------------- */

tx_status tx_part_add_word(tx_part_command *command, const char *word)
{
    char *copy = command->count < TX_PART_WORDS ? strdup(word) : NULL;
    if (!copy)
        return tx_fail(TX_MEMORY, "no room for the words of a command");
    command->word[command->count++] = copy;
    return TX_OK;
}

tx_status tx_part_add(tx_part_command *command, const char *format, ...)
{
    char text[512], *rest = NULL;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tx_status status = TX_OK;
    for (char *word = strtok_r(text, " ", &rest); word && !status; word = strtok_r(NULL, " ", &rest))
        status = tx_part_add_word(command, word);
    return status;
}

void tx_part_free(tx_part_command *command)
{
    for (int32_t i = 0; i < command->count; i++)
        free(command->word[i]);
    *command = (tx_part_command){0};
}

static void command_text(const tx_part_command *command, char *text, size_t size)
{
    text[0] = '\0';
    for (int32_t i = 0; i < command->count; i++)
        tx_list_add(text, size, " ", "%s", command->word[i]);
    tx_part_hide_paths(text);
}

/* ---- Paths ------------------------------------------------------------------------------------------------ */

/* Bytes of the path that `at` begins with; 0: it is none. */
static size_t path_length(const char *at)
{
    const char *name = at + (*at == '~');
    name += strspn(name, ".");
    if (*name != '/' || (!isalnum((unsigned char)name[1]) && !strchr("._-/", name[1])) || name[1] == '\0')
        return 0;
    return strncmp(at, "/dev/", 5) == 0 ? 0 : strcspn(at, " \t\n\"'\\,;:()<>=|");
}

void tx_part_hide_paths(char *text)
{
    static const char shown[] = "(path)";
    char *to = text;
    bool begins = true; /* a word, as a path does */
    for (const char *at = text; *at;) {
        const size_t length = begins ? path_length(at) : 0;
        if (length >= sizeof shown - 1) {
            memcpy(to, shown, sizeof shown - 1);
            to += sizeof shown - 1;
            at += length;
            begins = false;
            continue;
        }
        begins = strchr(" \t\n\"'(=,:;<|", *at) != NULL;
        *to++ = *at++;
    }
    *to = '\0';
}

/* ---- One part --------------------------------------------------------------------------------------------- */

typedef struct run {
    int state; /* as waitpid tells */
    bool stopped, gone;
    double seconds;
} run;

static void wait_for(pid_t process, double seconds, run *r)
{
    const double begin = tx_now();
    double killed = 0.0;
    for (;;) {
        const pid_t ended = waitpid(process, &r->state, WNOHANG);
        r->seconds = tx_now() - begin;
        r->gone = ended == process || (ended < 0 && errno != EINTR);
        if (r->gone || (killed > 0.0 && tx_now() - killed > KILLED_SECONDS))
            return;
        if (!r->stopped && r->seconds > seconds) {
            kill(process, SIGKILL);
            killed = tx_now();
            r->stopped = true;
        }
        usleep(10000);
    }
}

/* All that a file holds, which the caller frees. */
static char *text_of(FILE *file)
{
    const long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    rewind(file);
    if (text)
        text[fread(text, 1, (size_t)size, file)] = '\0';
    return text;
}

/* The last line by which one of TX's programs complained, without its name; else the last that has a letter. */
static const char *complaint(char *text)
{
    char *rest = NULL;
    const char *last = "";
    bool own = false;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *colon = strncmp(line, "tx", 2) == 0 ? strstr(line, ": ") : NULL;
        if (colon || (!own && strcspn(line, "abcdefghijklmnopqrstuvwxyz") < strlen(line)))
            last = colon ? colon + 2 : line;
        own |= colon != NULL;
    }
    return last;
}

static tx_part_state judge(const run *r, double limit, const char *said, char message[MESSAGE])
{
    if (r->stopped) {
        snprintf(message, MESSAGE, "did not end within %.0f s%s", limit,
                 r->gone ? "" : ", nor when it was killed: the driver hangs");
        return TX_PART_STOPPED;
    }
    if (WIFSIGNALED(r->state)) {
        snprintf(message, MESSAGE, "ended by signal %d (%s)%s%.400s", WTERMSIG(r->state), strsignal(WTERMSIG(r->state)),
                 *said ? ": " : "", said);
        return TX_PART_FAILED;
    }
    if (WEXITSTATUS(r->state) == 0)
        return TX_PART_OK;
    snprintf(message, MESSAGE, "%.590s", *said ? said : "its figures say what is wrong");
    return TX_PART_FAILED;
}

static tx_json *part_of(const char *name, tx_part_state state, const char *message)
{
    tx_json *part = tx_json_object();
    tx_json_set_string(part, "part", name);
    tx_json_set_string(part, "state", words[state]);
    if (*message && tx_json_set_string(part, "message", message)) /* a driver's text need not be UTF-8 */
        tx_json_set_string(part, "message", "its message is no UTF-8");
    return part;
}

static tx_status add_part(tx_json *parts, const char *name, char *said, char *output, const run *r, double limit,
                          const char *command, tx_part_state *state)
{
    char message[MESSAGE] = "";
    tx_json *figures = NULL;
    tx_part_hide_paths(said);
    tx_part_hide_paths(output);
    *state = judge(r, limit, complaint(said), message);
    const bool readable = *output && !tx_json_parse(output, strlen(output), "figures", &figures);
    if (*state == TX_PART_OK && !readable) {
        *state = TX_PART_FAILED;
        snprintf(message, sizeof message, "it printed no figures: %.500s", *output ? tx_error() : "nothing");
    }
    tx_json *part = part_of(name, *state, message);
    tx_json_set_number(part, "seconds", r->seconds);
    if (tx_json_set_string(part, "command", command))
        tx_json_set_string(part, "command", "(not UTF-8)");
    if (figures)
        tx_json_set(part, "figures", figures);
    return tx_json_append(parts, part);
}

tx_status tx_part_run(tx_json *parts, const char *name, const tx_part_command *command, double seconds,
                      tx_part_state *state)
{
    char path[4096], text[1024];
    command_text(command, text, sizeof text);
    TX_TRY(tx_child_self(path, sizeof path));
    char *name_at = strrchr(path, '/') + 1;
    snprintf(name_at, sizeof path - (size_t)(name_at - path), "%s", command->word[0]);
    FILE *output = tmpfile(), *errors = tmpfile();
    run r = {0};
    pid_t process = 0;
    tx_status status = output && errors ? TX_OK : tx_fail(TX_IO, "no temporary file: %s", strerror(errno));
    if (!status) {
        tx_part_command called = *command;
        called.word[0] = path;
        if (tx_child_spawn(called.word, fileno(output), fileno(errors), &process)) {
            r.state = 1 << 8; /* as if it had ended with 1, saying so */
            fputs(tx_error(), errors);
        } else {
            wait_for(process, seconds, &r);
        }
        char *said = text_of(errors), *printed = text_of(output);
        status = said && printed ? add_part(parts, name, said, printed, &r, seconds, text, state)
                                 : tx_fail(TX_MEMORY, "no memory for what %s printed", name);
        free(said);
        free(printed);
    }
    if (output)
        fclose(output);
    if (errors)
        fclose(errors);
    return status;
}

tx_status tx_part_leave_out(tx_json *parts, const char *name, const char *format, ...)
{
    char message[MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return tx_json_append(parts, part_of(name, TX_PART_LEFT_OUT, message));
}
