/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs work in a child process first, because the work may crash its process.
 */
#define _GNU_SOURCE /* pipe2 */
#include "api/base/rehearse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* seconds, also of CPU time, after which a child is assumed to hang */
#define SECONDS_MAX 60

/* The child process. It is silent, writes no core dump and ends by _exit, so that no stream of the parent is
 * flushed twice. Its exit status is the status of the work. The message of a failure is written to `out`. */
static _Noreturn void run_child(int out, tx_status (*work)(const void *), const void *data)
{
    struct rlimit none = {0, 0}, time = {SECONDS_MAX, SECONDS_MAX};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        signal(fatal[i], SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    const tx_status status = work(data);
    if (status && write(out, tx_error(), strlen(tx_error())) < 0)
        _exit(-TX_INTERNAL);
    _exit(-(int)status);
}

/* Converts the end of the child to a status; `message` is empty unless the work failed. */
static tx_status judge(const char *what, int end, const char *message)
{
    if (WIFSIGNALED(end))
        return tx_fail(TX_FORMAT, "%s (its process ended with signal %d, %s)", what, WTERMSIG(end),
                       strsignal(WTERMSIG(end)));
    if (WEXITSTATUS(end) > -TX_INTERNAL || (WEXITSTATUS(end) && !*message))
        return tx_fail(TX_FORMAT, "%s (its process ended early)", what);
    return WEXITSTATUS(end) ? tx_fail((tx_status)-WEXITSTATUS(end), "%s", message) : TX_OK;
}

tx_status tx_rehearse(const char *what, tx_status (*work)(const void *), const void *data)
{
    char message[2048] = "";
    int end = 0, ends[2] = {-1, -1};
    const pid_t child = pipe2(ends, O_CLOEXEC) ? -1 : fork();
    if (child == 0)
        run_child(ends[1], work, data);
    tx_status status = child < 0 ? tx_fail(TX_IO, "cannot start a child process: %s", strerror(errno)) : TX_OK;
    close(ends[1]);
    /* The end of the child closes the other end of the pipe. */
    if (!status && poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, SECONDS_MAX * 1000) == 0)
        kill(child, SIGKILL);
    pid_t ended = child;
    while (!status && (ended = waitpid(child, &end, 0)) < 0 && errno == EINTR)
        continue;
    if (!status && ended < 0)
        status = tx_fail(TX_IO, "cannot wait for a child process: %s", strerror(errno));
    if (!status) /* a pipe holds more than a message, so the child did not block */
        status = judge(what, end, read(ends[0], message, sizeof message - 1) < 0 ? "" : message);
    close(ends[0]);
    return status;
}
