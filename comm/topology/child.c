/* SPDX-License-Identifier: Apache-2.0
 * Work that may die, done in a child process: what it makes comes back through a pipe. */
#include "comm/topology/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that computes longer is taken to hang. */
#define SECONDS_MAX 60
#define ANSWER_MAX ((size_t)1 << 30)

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        data += done;
        size -= (size_t)done;
    }
    return true;
}

/* The child: silent, without core dumps, and ended by _exit, so that nothing of the parent's is flushed twice. The
 * answer is the status as one character, then the text or the message. */
static _Noreturn void run_child(int out, tx_topo_work work, const void *data)
{
    struct rlimit none = {0, 0}, time = {SECONDS_MAX, SECONDS_MAX};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        signal(fatal[i], SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    char *text = NULL;
    tx_status status = work(data, &text);
    char letter = (char)('A' - (int)status);
    const char *answer = status ? tx_error() : text;
    bool sent = write_all(out, &letter, 1) && write_all(out, answer, strlen(answer));
    _exit(sent ? 0 : 1);
}

/* Everything up to the end of the pipe, with a NUL; NULL when it is too much. */
static char *read_all(int fd)
{
    size_t room = 4096, used = 0;
    char *text = malloc(room);
    while (text) {
        if (used + 1 == room) {
            char *bigger = room < ANSWER_MAX ? realloc(text, room * 2) : NULL;
            if (!bigger)
                break;
            text = bigger;
            room *= 2;
        }
        ssize_t done = read(fd, text + used, room - used - 1);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            break;
        used += (size_t)done;
        if (done == 0) {
            text[used] = '\0';
            return text;
        }
    }
    free(text);
    return NULL;
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
    int ends[2], end = 0;
    if (pipe(ends))
        return tx_fail(TX_IO, "cannot make a pipe: %s", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child < 0) {
        tx_status status = tx_fail(TX_IO, "cannot start a process: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    if (child == 0) {
        close(ends[0]);
        run_child(ends[1], work, data);
    }
    close(ends[1]);
    char *answer = read_all(ends[0]);
    close(ends[0]);
    pid_t ended;
    do
        ended = waitpid(child, &end, 0);
    while (ended < 0 && errno == EINTR);
    tx_status status = ended == child ? judge(what, end, answer, text)
                                      : tx_fail(TX_IO, "cannot wait for a process: %s", strerror(errno));
    if (status)
        free(answer);
    return status;
}
