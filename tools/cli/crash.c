/* SPDX-License-Identifier: Apache-2.0
 * The last line of a program that crashes. */
#include "tools/cli/program.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const struct {
    int number;
    const char *name;
} fatal[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"},
};
enum { FATAL = sizeof fatal / sizeof fatal[0] };

static const char *program_name;
static struct sigaction before[FATAL];

/* Calls async-signal-safe functions only. The action before, of a sanitizer or a library, handles the signal next: a
 * fault occurs again when the handler returns. */
static void on_crash(int number, siginfo_t *info, void *unused)
{
    char text[400], *end = stpcpy(stpncpy(text, program_name, 60), ": crashed with ");
    (void)unused;
    for (size_t i = 0; i < FATAL; i++)
        if (fatal[i].number == number) {
            end = stpcpy(end, fatal[i].name);
            sigaction(number, &before[i], NULL);
        }
    end =
        stpcpy(end, ", in TX, in a driver or for lack of memory: with OpenCL, try another driver or --device cpu; else"
                    " please report the command\n");
    (void)!write(STDERR_FILENO, text, (size_t)(end - text));
    if (info->si_code <= 0) /* sent by a process */
        raise(number);
}

void tx_catch_crashes(const tx_cli *program)
{
    static char memory[1 << 16]; /* for a handler after the stack has overflowed */
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    const struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_ONSTACK | SA_SIGINFO | SA_NODEFER};
    if (program_name)
        return;
    program_name = program->name;
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < FATAL; i++)
        sigaction(fatal[i].number, &action, &before[i]);
}
