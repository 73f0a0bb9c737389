/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload. It counts a process's calls on the files of one folder, makes one of these calls fail, and
 * keeps a log. disk.h computes from the log the state of the disk after any call. Environment variables configure it:
 *
 *     TX_FAULT_FOLDER  Absolute path. Files elsewhere are not affected.
 *     TX_FAULT_AT      Number of the call that fails, from 1, or 0 for no failure.
 *
 *     TX_FAULT_MODE    kill      The process is killed instead of making the call.
 *                      eio       The call fails with EIO, once.
 *                      readonly  This call and all after it fail with EROFS, as on a disk that was remounted.
 *
 *                      short     A write takes half of its bytes, once.
 *                      full      The disk is full after TX_FAULT_AT bytes. Further writes fail with ENOSPC.
 *                      slow      Each flush of a file takes TX_FAULT_AT milliseconds.
 *     TX_FAULT_LOG     File that receives the log.
 *
 * Calls of fsync are not forwarded: the log, not this machine's disk, decides which data persist. */
#define _GNU_SOURCE
#include <dirent.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define DESCRIPTORS 1024

typedef enum fault_mode { NONE, KILL, EIO_ONCE, READ_ONLY, SHORT_ONCE, FULL, UNREADABLE, SLOW } fault_mode;

static struct {
    bool ready;
    char folder[PATH_MAX];
    fault_mode mode;
    long at;
    atomic_long calls, bytes, reads; /* a thread flushes checkpoints while the run writes its log */
    int log;
    char *path[DESCRIPTORS]; /* of descriptors that lead into the folder */
    int handle[DESCRIPTORS], handles;
    bool writable[DESCRIPTORS];
} shim = {.log = -1};

static void set_up(void)
{
    static const char *const names[] = {"none", "kill", "eio", "readonly", "short", "full", "unreadable", "slow"};
    if (shim.ready)
        return;
    shim.ready = true;
    const char *folder = getenv("TX_FAULT_FOLDER"), *mode = getenv("TX_FAULT_MODE"), *at = getenv("TX_FAULT_AT");
    const char *log = getenv("TX_FAULT_LOG");
    if (!folder || !realpath(folder, shim.folder))
        return;
    for (int m = 0; mode && m < (int)(sizeof names / sizeof names[0]); m++)
        if (strcmp(mode, names[m]) == 0)
            shim.mode = (fault_mode)m;
    shim.at = at ? atol(at) : 0;
    if (log)
        shim.log = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

/* ---- Which files --------------------------------------------------------------------------------- */

static bool is_tracked(int descriptor)
{
    return descriptor >= 0 && descriptor < DESCRIPTORS && shim.path[descriptor];
}

/* Computes the absolute path without links in its folder. Returns false for a path outside the watched folder. */
static bool locate(int folder, const char *path, char out[PATH_MAX])
{
    char joined[2 * PATH_MAX], parent[PATH_MAX];
    set_up();
    if (!shim.folder[0] || !path)
        return false;
    if (path[0] == '/' || folder == AT_FDCWD)
        snprintf(joined, sizeof joined, "%s", path);
    else if (is_tracked(folder))
        snprintf(joined, sizeof joined, "%s/%s", shim.path[folder], path);
    else
        return false;
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/')
        joined[--length] = '\0';
    char *slash = strrchr(joined, '/');
    const char *name = slash ? slash + 1 : joined;
    if (slash)
        *slash = '\0';
    if (!realpath(slash ? (slash == joined ? "/" : joined) : ".", parent))
        return false;
    if (snprintf(out, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name) >= PATH_MAX)
        return false;
    const size_t inside = strlen(shim.folder);
    return strncmp(out, shim.folder, inside) == 0 && (out[inside] == '/' || !out[inside]);
}

static const char *within(const char *path)
{
    const char *rest = path + strlen(shim.folder);
    return *rest ? rest : "/";
}

/* Sets the path that a descriptor refers to, or NULL for a file that is not watched. Keeps errno. */
static void track(int descriptor, const char *path)
{
    const int error = errno;
    if (descriptor >= 0 && descriptor < DESCRIPTORS) {
        free(shim.path[descriptor]);
        shim.path[descriptor] = path ? strdup(path) : NULL;
        shim.handle[descriptor] = ++shim.handles;
    }
    errno = error;
}

/* ---- The log and the fault ------------------------------------------------------------------------- */

static void put(const void *data, size_t size)
{
    if (shim.log >= 0 && syscall(SYS_write, shim.log, data, size) != (long)size)
        abort();
}

/* One event: a letter, the number of the call, numbers, then `data`. */
static void note(char what, long a, long b, const void *data, size_t size)
{
    char line[96];
    const int error = errno;
    const int length = snprintf(line, sizeof line, "%c %ld %ld %ld %zu\n", what, atomic_load(&shim.calls), a, b, size);
    put(line, (size_t)length);
    put(data, size);
    put("\n", 1);
    errno = error;
}

static _Thread_local long call; /* the number of this thread's last call */

/* Counts a call. Returns true and sets errno if the call has to fail. */
static bool fails(void)
{
    call = ++shim.calls;
    if (shim.mode == KILL && call == shim.at)
        kill(getpid(), SIGKILL);
    if (shim.mode == EIO_ONCE && call == shim.at) {
        errno = EIO;
        return true;
    }
    if (shim.mode == READ_ONLY && shim.at > 0 && call >= shim.at) {
        errno = EROFS;
        return true;
    }
    return false;
}

/* Returns the number of bytes that a write accepts, or -1 with errno set if it fails. */
static ssize_t taken(size_t size)
{
    size_t take = size;
    if (shim.mode == SHORT_ONCE && call == shim.at && size > 1)
        take = size / 2;
    if (shim.mode == FULL && shim.bytes + (long)size > shim.at)
        take = shim.at > shim.bytes ? (size_t)(shim.at - shim.bytes) : 0;
    if (take == 0 && size > 0) {
        errno = ENOSPC;
        return -1;
    }
    shim.bytes += (long)take;
    return (ssize_t)take;
}

/* ---- Opening and closing --------------------------------------------------------------------------- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    char place[PATH_MAX];
    struct stat info;
    const bool inside = locate(folder, path, place);
    const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    const bool fresh = inside && (flags & O_CREAT) && lstat(place, &info) != 0;
    if (inside && writes && fails())
        return -1;
    const int descriptor = (int)syscall(SYS_openat, folder, path, flags, mode);
    track(descriptor, inside ? place : NULL);
    if (inside && descriptor >= 0) {
        if (descriptor < DESCRIPTORS)
            shim.writable[descriptor] = writes;
        const bool is_folder = fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode);
        note('O', shim.handle[descriptor], (fresh ? 1 : 0) | (flags & O_TRUNC ? 2 : 0) | (is_folder ? 4 : 0),
             within(place), strlen(within(place)));
    }
    return descriptor;
}

#define OPEN_MODE(flags, mode)                 \
    mode_t mode = 0;                           \
    if ((flags)&O_CREAT) {                     \
        va_list rest;                          \
        va_start(rest, flags);                 \
        mode = (mode_t)va_arg(rest, unsigned); \
        va_end(rest);                          \
    }

EXPORT int open(const char *path, int flags, ...)
{
    OPEN_MODE(flags, mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    OPEN_MODE(flags, mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    OPEN_MODE(flags, mode)
    return open_at(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    OPEN_MODE(flags, mode)
    return open_at(folder, path, flags, mode);
}

EXPORT int close(int descriptor)
{
    set_up();
    const bool failed = is_tracked(descriptor) && fails();
    const int error = errno;
    if (failed)
        note('E', shim.handle[descriptor], shim.writable[descriptor], within(shim.path[descriptor]),
             strlen(within(shim.path[descriptor])));
    track(descriptor, NULL);
    const int result = (int)syscall(SYS_close, descriptor); /* a close that fails has closed */
    if (!failed)
        return result;
    errno = error;
    return -1;
}

EXPORT int closedir(DIR *list)
{
    int (*real)(DIR *);
    *(void **)&real = dlsym(RTLD_NEXT, "closedir"); /* as POSIX has it */
    track(dirfd(list), NULL);
    return real(list);
}

/* ---- Data ------------------------------------------------------------------------------------------ */

EXPORT ssize_t write(int descriptor, const void *data, size_t size)
{
    set_up();
    if (!is_tracked(descriptor)) {
        if (descriptor == STDOUT_FILENO && shim.folder[0])
            note('X', 0, 0, data, size);
        return syscall(SYS_write, descriptor, data, size);
    }
    if (fails())
        return -1;
    const ssize_t take = taken(size);
    if (take < 0)
        return -1;
    const off_t at = lseek(descriptor, 0, SEEK_CUR);
    const ssize_t done = syscall(SYS_write, descriptor, data, (size_t)take);
    if (done > 0)
        note('W', shim.handle[descriptor], at, data, (size_t)done);
    return done;
}

EXPORT ssize_t pwrite(int descriptor, const void *data, size_t size, off_t at)
{
    set_up();
    if (!is_tracked(descriptor))
        return syscall(SYS_pwrite64, descriptor, data, size, at);
    if (fails())
        return -1;
    const ssize_t take = taken(size);
    if (take < 0)
        return -1;
    const ssize_t done = syscall(SYS_pwrite64, descriptor, data, (size_t)take, at);
    if (done > 0)
        note('W', shim.handle[descriptor], at, data, (size_t)done);
    return done;
}

/* Several threads read at a time. */
EXPORT ssize_t pread(int descriptor, void *data, size_t size, off_t at)
{
    set_up();
    if (shim.mode == UNREADABLE && is_tracked(descriptor) &&
        __atomic_add_fetch(&shim.reads, 1, __ATOMIC_RELAXED) == shim.at) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, descriptor, data, size, at);
}

EXPORT ssize_t pread64(int descriptor, void *data, size_t size, off_t at)
{
    return pread(descriptor, data, size, at);
}

EXPORT ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t at)
{
    return pwrite(descriptor, data, size, at);
}

EXPORT int ftruncate(int descriptor, off_t size)
{
    set_up();
    if (is_tracked(descriptor) && fails())
        return -1;
    const int result = (int)syscall(SYS_ftruncate, descriptor, size);
    if (result == 0 && is_tracked(descriptor))
        note('T', shim.handle[descriptor], size, "", 0);
    return result;
}

EXPORT int ftruncate64(int descriptor, off_t size)
{
    return ftruncate(descriptor, size);
}

EXPORT int fsync(int descriptor)
{
    set_up();
    if (!is_tracked(descriptor))
        return (int)syscall(SYS_fsync, descriptor);
    if (fails())
        return -1;
    if (shim.mode == SLOW)
        usleep((useconds_t)(1000 * shim.at));
    note('F', shim.handle[descriptor], 0, "", 0);
    return 0;
}

EXPORT int fdatasync(int descriptor)
{
    return fsync(descriptor);
}

/* ---- Names ----------------------------------------------------------------------------------------- */

static int rename_at(int from, const char *old, int to, const char *new)
{
    char old_place[PATH_MAX], new_place[PATH_MAX], both[2 * PATH_MAX];
    const bool inside = locate(from, old, old_place) && locate(to, new, new_place);
    if (inside && fails())
        return -1;
    const int result = (int)syscall(SYS_renameat2, from, old, to, new, 0);
    if (inside && result == 0) {
        const int length = snprintf(both, sizeof both, "%s\n%s", within(old_place), within(new_place));
        note('R', 0, 0, both, (size_t)length);
    }
    return result;
}

EXPORT int rename(const char *old, const char *new)
{
    return rename_at(AT_FDCWD, old, AT_FDCWD, new);
}

EXPORT int renameat(int from, const char *old, int to, const char *new)
{
    return rename_at(from, old, to, new);
}

/* Creates or removes a name by system call `number`. `what` is the operation's letter in the log. */
static int change_at(char what, long number, int folder, const char *path, unsigned detail)
{
    char place[PATH_MAX];
    const bool inside = locate(folder, path, place);
    if (inside && fails())
        return -1;
    const int result = (int)syscall(number, folder, path, detail);
    if (inside && result == 0)
        note(what, 0, 0, within(place), strlen(within(place)));
    return result;
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    return change_at('M', SYS_mkdirat, AT_FDCWD, path, mode);
}

EXPORT int mkdirat(int folder, const char *path, mode_t mode)
{
    return change_at('M', SYS_mkdirat, folder, path, mode);
}

EXPORT int unlink(const char *path)
{
    return change_at('U', SYS_unlinkat, AT_FDCWD, path, 0);
}

EXPORT int unlinkat(int folder, const char *path, int flags)
{
    return change_at('U', SYS_unlinkat, folder, path, (unsigned)flags);
}

EXPORT int rmdir(const char *path)
{
    return change_at('U', SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}
