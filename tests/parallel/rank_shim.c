/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload into one rank. It causes the fault that TX_SHIM in the environment names:
 *
 *     stop:init       The process stops itself (SIGSTOP) when it calls MPI_Init_thread.
 *     stop:finalize   The process stops itself when it calls MPI_Finalize.
 *     stop:open:TEXT  The process stops itself when it opens a file whose path contains TEXT.
 *
 *     slow:SECONDS    Each fsync of a file under TX_SHIM_FOLDER takes this long.
 *     eio:TEXT        A file whose path contains TEXT cannot be read after the first TX_SHIM_READS reads.
 *
 *     online:COUNT    The machine reports this many processors; the process may use the real ones.
 *     memory:BYTES    An allocation of this many bytes fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Sets a pointer to the function that this library replaces. */
static void find(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

/* Returns the part of TX_SHIM after "WORD:", or NULL if it names another fault. */
static const char *fault_argument(const char *word)
{
    const char *what = getenv("TX_SHIM");
    size_t length = strlen(word);
    return what && strncmp(what, word, length) == 0 ? what + length : NULL;
}

static void stop_at(const char *place)
{
    const char *where = fault_argument("stop:");
    if (where && strcmp(where, place) == 0)
        raise(SIGSTOP);
}

/* 0, or the errno with which opening the file fails. */
static int look_at(const char *path, int flags)
{
    const char *stop = fault_argument("stop:open:"), *unread = fault_argument("eio:");
    if (stop && strstr(path, stop))
        raise(SIGSTOP);
    if (!unread || (flags & O_CREAT) || !strstr(path, unread))
        return 0;
    static atomic_int reads;
    const char *good = getenv("TX_SHIM_READS");
    return atomic_fetch_add(&reads, 1) < (good ? atoi(good) : 0) ? 0 : EIO;
}

static int open_as(const char *name, const char *path, int flags, mode_t mode)
{
    int (*next)(const char *, int, ...);
    find(name, &next);
    int fault = look_at(path, flags);
    if (fault) {
        errno = fault;
        return -1;
    }
    return next(path, flags, mode);
}

#define OPEN(name)                                                          \
    EXPORT int name(const char *path, int flags, ...)                       \
    {                                                                       \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = flags & O_CREAT ? (mode_t)va_arg(more, unsigned) : 0; \
        va_end(more);                                                       \
        return open_as(#name, path, flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

/* glibc's own: looking for a function may allocate. */
extern void *__libc_malloc(size_t size);

EXPORT void *malloc(size_t size)
{
    const char *bytes = fault_argument("memory:");
    if (bytes && strtoull(bytes, NULL, 10) == size) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

EXPORT long sysconf(int name)
{
    long (*next)(int);
    const char *online = fault_argument("online:");
    find("sysconf", &next);
    return online && name == _SC_NPROCESSORS_ONLN ? atol(online) : next(name);
}

EXPORT int fsync(int descriptor)
{
    int (*next)(int);
    const char *seconds = fault_argument("slow:"), *folder = getenv("TX_SHIM_FOLDER");
    char link[64], path[PATH_MAX] = "";
    find("fsync", &next);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (seconds && folder && readlink(link, path, sizeof path - 1) > 0 && strncmp(path, folder, strlen(folder)) == 0)
        usleep((useconds_t)(1e6 * atof(seconds)));
    return next(descriptor);
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given)
{
    int (*next)(int *, char ***, int, int *);
    find("MPI_Init_thread", &next);
    stop_at("init");
    if (!getenv("HWLOC_COMPONENTS")) { /* hwloc's plugin would list OpenCL devices in this process */
        fputs("rank_shim: MPI starts without HWLOC_COMPONENTS\n", stderr);
        abort();
    }
    return next(argc, argv, wanted, given);
}

EXPORT int MPI_Finalize(void)
{
    int (*next)(void);
    find("MPI_Finalize", &next);
    stop_at("finalize");
    return next();
}
