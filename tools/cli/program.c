/* SPDX-License-Identifier: Apache-2.0
 * Messages of programs, and their exit. */
#include "tools/cli/program.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

/* Longer lines are truncated. */
#define LINE 8192

void tx_print_line(FILE *to, const char *format, ...)
{
    char text[LINE], safe[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tx_escape(text, safe, sizeof safe);
    fprintf(to, "%s\n", safe);
}

int tx_complain(const tx_cli *program, int status, const char *format, ...)
{
    char text[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tx_print_line(stderr, "%s: %s", program->name, text);
    return status;
}

int tx_complain_misuse(const tx_cli *program, const tx_misuse *misuses, size_t count)
{
    int status = TX_GO_ON;
    for (size_t i = 0; i < count; i++)
        if (misuses[i].met)
            status = tx_complain(program, TX_EXIT_USAGE, "%s", misuses[i].message);
    return status;
}

int tx_end(const tx_cli *program, int status)
{
    errno = 0;
    const bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (status || written)
        return status;
    if (errno == EPIPE) /* its reader has ended, as head does */
        return 128 + SIGPIPE;
    return tx_complain(program, TX_EXIT_FAILURE, "standard output: cannot write%s%s", errno ? ": " : "",
                       errno ? strerror(errno) : "");
}
