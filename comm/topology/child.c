/* SPDX-License-Identifier: Apache-2.0
 * Work that may die, done in a child process: what it makes comes back in a file that both have open. */
#define _GNU_SOURCE /* memfd_create */
#include "comm/topology/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that computes longer is taken to hang. */
#define SECONDS_MAX 60
#define ANSWER_MAX (1 << 30) /* bytes */

/* The child: silent, without core dumps, and ended by _exit, so that nothing of the parent's is flushed twice. The
 * answer is the status as one character, then the text or the message. */
static _Noreturn void run_child(FILE *out, tx_topo_work work, const void *data)
{
    struct rlimit none = {0, 0}, time = {SECONDS_MAX, SECONDS_MAX}, size = {ANSWER_MAX, ANSWER_MAX};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    setrlimit(RLIMIT_FSIZE, &size);
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        signal(fatal[i], SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    char *text = NULL;
    tx_status status = work(data, &text);
    fprintf(out, "%c%s", 'A' - (int)status, status ? tx_error() : text);
    _exit(fclose(out) ? 1 : 0);
}

/* What the child's end and its answer mean; the text after the status's letter is moved to the front. */
static tx_status judge(const char *what, int end, char *answer, char **text)
{
    int status = answer && answer[0] ? 'A' - answer[0] : 1;
    if (WIFSIGNALED(end))
        return tx_fail(TX_FORMAT, "%s (its process ended with signal %d, %s)", what, WTERMSIG(end),
                       strsignal(WTERMSIG(end)));
    if (!WIFEXITED(end) || WEXITSTATUS(end) != 0 || status > 0 || status < TX_INTERNAL)
        return tx_fail(TX_FORMAT, "%s (its process ended early)", what);
    if (status)
        return tx_fail((tx_status)status, "%s", answer + 1);
    memmove(answer, answer + 1, strlen(answer));
    *text = answer;
    return TX_OK;
}

tx_status tx_topo_in_child(const char *what, tx_topo_work work, const void *data, char **text)
{
    int end = 0;
    const int memory = memfd_create("answer", MFD_CLOEXEC);
    FILE *file = memory < 0 ? NULL : fdopen(memory, "r+");
    const pid_t child = file ? fork() : -1;
    if (child == 0)
        run_child(file, work, data);
    pid_t ended = child;
    if (child > 0)
        do
            ended = waitpid(child, &end, 0);
        while (ended < 0 && errno == EINTR);
    tx_status status = ended < 0 ? tx_fail(TX_IO, "cannot run a process: %s", strerror(errno)) : TX_OK;
    char *answer = NULL;
    size_t room = 0;
    if (!status) {
        rewind(file);
        status = judge(what, end, getdelim(&answer, &room, '\0', file) < 1 ? NULL : answer, text);
    }
    if (status)
        free(answer);
    if (file)
        fclose(file);
    else if (memory >= 0)
        close(memory);
    return status;
}
