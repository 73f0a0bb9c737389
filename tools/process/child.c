/* SPDX-License-Identifier: Apache-2.0
 * Starts other programs as child processes. */
#define _GNU_SOURCE /* pipe2, CPU_SET */
#include "tools/process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Starting one ------------------------------------------------------------------------------------------- */

/* Binds this thread to `count` of its cores, from index `first` on. If its cores are unknown, it is not bound. */
static void bind_cores(int32_t first, int32_t count)
{
    cpu_set_t all, some;
    if (count == 0 || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    CPU_ZERO(&some);
    int32_t place = 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all)) {
            if (place >= first && place < first + count)
                CPU_SET(core, &some);
            place++;
        }
    if (CPU_COUNT(&some) > 0)
        sched_setaffinity(0, sizeof some, &some);
}

/* Runs in the child until exec. Writes errno to the pipe `fault` if exec fails. */
static _Noreturn void exec_child(const char *const *argv, const tx_child_spawning *how, int fault, pid_t parent)
{
    const int input = how->input > 0 ? how->input : open("/dev/null", O_RDONLY);
    if (how->group)
        setpgid(0, 0);
    if (input >= 0)
        dup2(input, STDIN_FILENO);
    if (how->output >= 0)
        dup2(how->output, STDOUT_FILENO);
    if (how->errors >= 0)
        dup2(how->errors, STDERR_FILENO);
    bind_cores(how->first_core, how->cores);
    if (how->orphan)
        prctl(PR_SET_PDEATHSIG, how->orphan);
    if (!how->orphan || getppid() == parent) {
        if (how->mask)
            sigprocmask(SIG_SETMASK, how->mask, NULL);
        execvp(argv[0], (char *const *)(uintptr_t)argv); /* exec does not write to argv */
    }
    const int error = errno;
    const ssize_t written = write(fault, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 127 : 126);
}

tx_status tx_child_spawn(const char *const *argv, const tx_child_spawning *how, pid_t *process)
{
    int ends[2], error = 0;
    const pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tx_fail(TX_MEMORY, "%s: cannot be started: %s", argv[0], strerror(errno));
    const pid_t result = fork();
    if (result == 0)
        exec_child(argv, how, ends[1], parent);
    if (result < 0)
        error = errno;
    close(ends[1]);
    if (result > 0) {
        ssize_t got;
        do
            got = read(ends[0], &error, sizeof error);
        while (got < 0 && errno == EINTR);
        if (got <= 0) /* exec succeeded and closed the pipe */
            error = 0;
        if (how->group)
            setpgid(result, result);
    }
    close(ends[0]);
    if (error) {
        if (result > 0)
            waitpid(result, NULL, 0);
        return tx_fail(error == ENOENT ? TX_NOT_FOUND : TX_IO, "%s: cannot be started: %s%s%s", argv[0],
                       strerror(error), error == ENOENT && how->advice ? "; " : "",
                       error == ENOENT && how->advice ? how->advice : "");
    }
    *process = result;
    return TX_OK;
}

/* ---- A child with pipes ------------------------------------------------------------------------------------ */

tx_status tx_child_start(const char *const *argv, const char *advice, tx_child *child)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    *child = (tx_child){0};
    tx_status status = pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)
                           ? tx_fail(TX_MEMORY, "%s: cannot be started: %s", argv[0], strerror(errno))
                           : TX_OK;
    const tx_child_spawning how = {.input = to[0], .output = from[1], .errors = -1, .advice = advice};
    TX_THEN(status, tx_child_spawn(argv, &how, &child->process));
    close(to[0]);
    close(from[1]);
    child->to = fdopen(to[1], "w");
    child->from = fdopen(from[0], "r");
    if (!status && !(child->to && child->from))
        status = tx_fail(TX_MEMORY, "%s: out of memory", argv[0]);
    if (status)
        tx_child_end(child);
    return status;
}

int tx_child_end(tx_child *child)
{
    int state = 0;
    if (child->to)
        fclose(child->to);
    if (child->from)
        fclose(child->from);
    while (child->process && waitpid(child->process, &state, 0) < 0 && errno == EINTR)
        ;
    *child = (tx_child){0};
    return state;
}

/* ---- This process ------------------------------------------------------------------------------------------ */

tx_status tx_child_self(char *path, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 ? TX_OK
                      : tx_fail(TX_IO, "/proc/self/exe: cannot read the path of this program: %s", strerror(errno));
}

tx_status tx_child_adopt(void)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return tx_fail(TX_UNSUPPORTED, "cannot adopt orphaned descendants (PR_SET_CHILD_SUBREAPER): %s",
                       strerror(errno));
    return TX_OK;
}
