/* SPDX-License-Identifier: Apache-2.0
 * Runs commands one after the other, and records the result of each. */
#include "tools/bench/part.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {
#define X(name, word) word,
    TX_PART_MAP(X)
#undef X
};

#define MESSAGE 600
#define KILLED_SECONDS 5.0 /* time for a killed process to end */

/* ---- Paths ------------------------------------------------------------------------------------------------ */

/* Returns the length of the path at `at`, or 0 if there is none. */
static size_t path_length(const char *at)
{
    const char *name = at + (*at == '~');
    name += strspn(name, ".");
    if (*name != '/' || (!isalnum((unsigned char)name[1]) && !strchr("._-/", name[1])) || name[1] == '\0')
        return 0;
    return strncmp(at, "/dev/", 5) == 0 ? 0 : strcspn(at, " \t\n\"'\\,;:()<>=|");
}

/* Replaces paths in a text by "(path)", except those below /dev/. The text does not get longer. */
static void hide_paths(char *text)
{
    static const char shown[] = "(path)";
    char *to = text;
    bool begins = true; /* a path may begin here, at the start of a word */
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

/* Waits for the process to end, and kills it after `seconds`. Returns true if it was killed. It may still run then, if
 * a driver hangs. */
static bool wait_for(tx_process *process, double seconds)
{
    double killed = 0.0;
    while (!tx_process_poll(process) && (killed <= 0.0 || tx_now() - killed <= KILLED_SECONDS)) {
        if (killed <= 0.0 && process->seconds > seconds) {
            kill(process->id, SIGKILL);
            killed = tx_now();
        }
        usleep(10000);
    }
    return killed > 0.0;
}

static tx_part_state classify(const tx_process *process, bool stopped, double limit, const char *said,
                              char message[MESSAGE])
{
    if (stopped) {
        snprintf(message, MESSAGE, "did not end within %.0f s%s", limit,
                 process->ended ? "" : ", nor when it was killed: the driver hangs");
        return TX_PART_STOPPED;
    }
    if (tx_process_well(process, said, message, MESSAGE))
        return TX_PART_OK;
    if (!*message)
        snprintf(message, MESSAGE, "failed without a message; see its figures");
    return TX_PART_FAILED;
}

static tx_json *part_of(const char *name, tx_part_state state, const char *message)
{
    tx_json *part = tx_json_object();
    tx_json_set_string(part, "part", name);
    tx_json_set_string(part, "state", words[state]);
    if (*message && tx_json_set_string(part, "message", message)) /* a driver's text may not be UTF-8 */
        tx_json_set_string(part, "message", "its message is not UTF-8");
    return part;
}

/* Appends a part that ended with `state` and `message`. Without readable figures, its state becomes FAILED. */
static tx_status add_part(tx_json *parts, const char *name, char *output, const char *command, double seconds,
                          tx_part_state *state, char message[MESSAGE])
{
    tx_json *figures = NULL;
    hide_paths(output);
    const bool readable = *output && !tx_json_parse(output, strlen(output), "figures", &figures);
    if (*state == TX_PART_OK && !readable) {
        *state = TX_PART_FAILED;
        snprintf(message, MESSAGE, "it printed no figures: %.500s", *output ? tx_error() : "nothing");
    }
    tx_json *part = part_of(name, *state, message);
    tx_json_set_number(part, "seconds", seconds);
    if (tx_json_set_string(part, "command", command))
        tx_json_set_string(part, "command", "(not UTF-8)");
    if (figures)
        tx_json_set(part, "figures", figures);
    return tx_json_append(parts, part);
}

tx_status tx_part_run(tx_json *parts, const char *name, const tx_command_line *command, double seconds,
                      tx_part_state *state)
{
    char text[1024], message[MESSAGE] = "";
    FILE *output = tmpfile(), *errors = tmpfile();
    tx_process process = {0};
    tx_status status = output && errors ? TX_OK : tx_fail(TX_IO, "no temporary file: %s", strerror(errno));
    tx_command_line_text(command, text, sizeof text);
    hide_paths(text);
    if (!status) {
        const tx_child_spawning how = {.output = fileno(output), .errors = fileno(errors)};
        const tx_status started = tx_process_start(command, &how, &process);
        const bool stopped = !started && wait_for(&process, seconds);
        char *said = started ? strdup(tx_error()) : tx_process_text(errors), *printed = tx_process_text(output);
        if (said && printed) {
            hide_paths(said);
            *state = TX_PART_FAILED;
            if (started)
                snprintf(message, sizeof message, "%s", said);
            else
                *state = classify(&process, stopped, seconds, tx_process_complaint(said), message);
            status = add_part(parts, name, printed, text, process.seconds, state, message);
        } else {
            status = tx_fail(TX_MEMORY, "no memory for the output of %s", name);
        }
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

void tx_part_facts(const tx_json *device, tx_json *to)
{
    static const char *const facts[] = {"device", "name", "vendor", "platform", "driver", "type", "version"};
    const char *text;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (!tx_json_get_string(device, facts[i], &text))
            tx_json_set_string(to, facts[i], text);
}
