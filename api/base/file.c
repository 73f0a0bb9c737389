/* SPDX-License-Identifier: Apache-2.0
 * Reads whole files and writes files atomically. */
#include "api/base/file.h"

#include "api/base/needs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary names to try before the leftovers of other processes make the call fail. */
#define TEMPORARY_NAMES 1000
/* Initial buffer for standard input. */
#define INPUT_ROOM ((size_t)1 << 16)
/* Room for ".<pid>-<number>.tmp" after the final name. */
#define TEMPORARY_SUFFIX 48

struct tx_file {
    int descriptor;
    char *path;      /* final name */
    char *temporary; /* name until the commit; NULL if the file is written directly */
};

tx_status tx_file_fail(const char *path, const char *doing)
{
    TX_NEEDS(path && doing, TX_INVALID);
    int error = errno;
    tx_status status = TX_IO;
    if (error == ENOENT || error == ENOTDIR)
        status = TX_NOT_FOUND;
    else if (error == ENOMEM || error == EMFILE || error == ENFILE) /* memory, or descriptors */
        status = TX_MEMORY;
    return tx_fail(status, "%s: cannot %s: %s", path, doing, strerror(error));
}

/* ---- Opening ----------------------------------------------------------------------------------- */

static tx_status fail_kind(const char *path, mode_t mode)
{
    const char *what = S_ISFIFO(mode)   ? "a pipe"
                       : S_ISDIR(mode)  ? "a folder"
                       : S_ISLNK(mode)  ? "a link"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    return tx_fail(TX_FORMAT, "%s: %s, not a regular file", path, what);
}

tx_status tx_file_open(const char *path, int flags, int *descriptor, int64_t *size)
{
    TX_NEEDS(path && descriptor, TX_INVALID);
    struct stat info;
    /* Without O_NONBLOCK, open would wait for ever for a pipe without a writer. */
    int opened = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666);
    if (opened < 0) {
        const int error = errno;
        bool exists = (flags & O_NOFOLLOW ? lstat : stat)(path, &info) == 0;
        if (exists && !S_ISREG(info.st_mode) && (error == ELOOP || error == ENXIO || error == EISDIR))
            return fail_kind(path, info.st_mode);
        errno = error;
        return tx_file_fail(path, (flags & O_ACCMODE) == O_RDONLY ? "open" : "open for writing");
    }
    tx_status status = TX_OK;
    if (fstat(opened, &info) != 0)
        status = tx_file_fail(path, "read");
    else if (!S_ISREG(info.st_mode))
        status = fail_kind(path, info.st_mode);
    else if (fcntl(opened, F_SETFL, fcntl(opened, F_GETFL) & ~O_NONBLOCK) != 0)
        status = tx_file_fail(path, "open");
    if (status) {
        close(opened);
        return status;
    }
    *descriptor = opened;
    if (size)
        *size = (int64_t)info.st_size;
    return TX_OK;
}

/* ---- Reading ----------------------------------------------------------------------------------- */

static tx_status fail_short(int descriptor, const char *path, int64_t wanted)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return tx_file_fail(path, "read");
    return tx_fail(TX_IO, "%s: has %" PRId64 " bytes, %" PRId64 " are needed: it was truncated after it was opened",
                   path, (int64_t)info.st_size, wanted);
}

tx_status tx_file_read_at(int descriptor, const char *path, int64_t at, void *data, int64_t bytes)
{
    const int64_t end = at + bytes;
    char *next = data;
    while (at < end) {
        ssize_t got = pread(descriptor, next, (size_t)(end - at), (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tx_file_fail(path, "read");
        if (got == 0)
            return fail_short(descriptor, path, end);
        next += got;
        at += got;
    }
    return TX_OK;
}

/* Reads until the end of the file or one byte after `limit`. */
static tx_status read_all(int descriptor, const char *path, size_t expected, int64_t limit, char **data, size_t *size)
{
    size_t room = expected + 1, used = 0; /* the spare byte detects the end of the file, then stores the NUL */
    char *buffer = malloc(room);
    while (buffer) {
        ssize_t got = read(descriptor, buffer + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(buffer);
            return tx_file_fail(path, "read");
        }
        used += (size_t)got;
        if ((int64_t)used > limit) {
            free(buffer);
            return tx_fail(TX_FORMAT, "%s: larger than the %" PRId64 " bytes that such a file may have", path, limit);
        }
        if (got == 0) {
            buffer[used] = '\0';
            *data = buffer;
            *size = used;
            return TX_OK;
        }
        if (used == room) {
            char *larger = realloc(buffer, room *= 2);
            if (!larger)
                free(buffer);
            buffer = larger;
        }
    }
    return tx_fail(TX_MEMORY, "%s: no memory for its contents", path);
}

tx_status tx_file_read(const char *path, int64_t limit, char **data, size_t *size)
{
    TX_NEEDS(path && data && size, TX_INVALID);
    int descriptor = -1;
    int64_t bytes = 0;
    if (strcmp(path, "/dev/stdin") == 0)
        return read_all(STDIN_FILENO, path, INPUT_ROOM, limit, data, size);
    tx_status status;
    TX_TRY(tx_file_open(path, O_RDONLY, &descriptor, &bytes));
    if (bytes > limit)
        status = tx_fail(TX_FORMAT, "%s: %" PRId64 " bytes, larger than the %" PRId64 " that such a file may have",
                         path, bytes, limit);
    else
        status = read_all(descriptor, path, (size_t)bytes, limit, data, size);
    close(descriptor);
    return status;
}

tx_status tx_file_read_text(const char *path, int64_t limit, char **text, size_t *size)
{
    TX_NEEDS(path && text && size, TX_INVALID);
    char *read;
    size_t bytes;
    TX_TRY(tx_file_read(path, limit, &read, &bytes));
    const size_t length = strlen(read);
    if (length < bytes) {
        free(read);
        return tx_fail(TX_FORMAT, "%s: byte %zu is NUL: this is not a text file", path, length + 1);
    }
    *text = read;
    *size = bytes;
    return TX_OK;
}

tx_status tx_file_read_input(char **data, size_t *size)
{
    TX_NEEDS(data && size, TX_INVALID);
    return read_all(STDIN_FILENO, "standard input", INPUT_ROOM, INT64_MAX, data, size);
}

bool tx_file_exists(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0;
}

bool tx_is_folder(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ---- Folders ------------------------------------------------------------------------------------- */

_Thread_local bool tx_file_defers_flush;

tx_status tx_folder_flush(const char *path)
{
    if (tx_file_defers_flush)
        return TX_OK;
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return tx_file_fail(path, "open to flush it");
    tx_status status = TX_OK;
    /* EINVAL means that the file system cannot flush folders. */
    if (fsync(descriptor) != 0 && errno != EINVAL)
        status = tx_file_fail(path, "flush to disk");
    close(descriptor);
    return status;
}

/* Flushes the name `path`, so that it survives a power failure. */
static tx_status flush_name(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return tx_fail(TX_MEMORY, "%s: no memory for the name", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder ? 1 : 0] = '\0';
    tx_status status = tx_folder_flush(slash ? folder : ".");
    free(folder);
    return status;
}

static tx_status create_one(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return flush_name(path);
    int error = errno; /* of mkdir; for an existing folder EEXIST, EROFS or EACCES */
    if (tx_is_folder(path))
        return TX_OK;
    errno = error;
    return tx_file_fail(path, "make the folder");
}

tx_status tx_folder_create(const char *path)
{
    if (path[0] == '\0')
        return tx_fail(TX_INVALID, "the name of a folder is empty");
    char *part = strdup(path);
    if (!part)
        return tx_fail(TX_MEMORY, "%s: no memory for the name", path);
    tx_status status = TX_OK;
    for (char *slash = strchr(part + 1, '/'); slash && !status; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = create_one(part);
        *slash = '/';
    }
    TX_THEN(status, create_one(part));
    free(part);
    return status;
}

char *tx_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder), size = length + strlen(name) + 2;
    char *path = malloc(size);
    if (!path) {
        tx_fail(TX_MEMORY, "%s/%s: no memory for the name", folder, name);
        return NULL;
    }
    snprintf(path, size, "%s%s%s", folder, length > 0 && folder[length - 1] == '/' ? "" : "/", name);
    return path;
}

/* ---- Writing ------------------------------------------------------------------------------------- */

static void file_free(tx_file *file)
{
    free(file->path);
    free(file->temporary);
    free(file);
}

bool tx_file_is_temporary(const char *name, const char *of)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        int used = 0;
        (void)sscanf(dot, ".%*[0-9]-%*[0-9].tmp%n", &used);
        if (used > 0 && !dot[used] && dot > name)
            return !of || (strlen(of) == (size_t)(dot - name) && strncmp(name, of, strlen(of)) == 0);
    }
    return false;
}

/* Removes the temporary files of this path that killed processes left: the system has released their locks. */
static void remove_left(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = strndup(path, slash == path ? 1 : slash ? (size_t)(slash - path) : 0);
    DIR *list = folder ? opendir(*folder ? folder : ".") : NULL;
    for (struct dirent *one; list && (one = readdir(list)) != NULL;) {
        if (!tx_file_is_temporary(one->d_name, name))
            continue;
        const int left = openat(dirfd(list), one->d_name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (left >= 0 && flock(left, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(list), one->d_name, 0);
        if (left >= 0)
            close(left);
    }
    if (list)
        closedir(list);
    free(folder);
}

/* Locks a new temporary file. Returns false if another process has just removed it (remove_left). */
static bool hold(int descriptor)
{
    struct stat info;
    return (flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && fstat(descriptor, &info) == 0 &&
           info.st_nlink > 0;
}

static tx_status open_temporary(tx_file *file)
{
    size_t size = strlen(file->path) + TEMPORARY_SUFFIX;
    remove_left(file->path);
    for (int k = 0; k < TEMPORARY_NAMES; k++) {
        snprintf(file->temporary, size, "%s.%ld-%d.tmp", file->path, (long)getpid(), k);
        file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor >= 0 && hold(file->descriptor))
            return TX_OK;
        if (file->descriptor >= 0)
            close(file->descriptor);
        else if (errno != EEXIST)
            break;
    }
    return tx_file_fail(file->path, "create a temporary file in its folder");
}

/* `direct` is the descriptor of a file that is written directly, which this call owns, or -1 for a file that is
 * replaced. */
static tx_status create(const char *path, int direct, tx_file **file)
{
    tx_file *made = calloc(1, sizeof *made);
    tx_status status = TX_OK;
    if (made) {
        made->descriptor = direct;
        made->path = strdup(path);
        made->temporary = direct < 0 ? malloc(strlen(path) + TEMPORARY_SUFFIX) : NULL;
    }
    if (!made || !made->path || (direct < 0 && !made->temporary))
        status = tx_fail(TX_MEMORY, "%s: no memory to write it", path);
    else if (direct < 0)
        status = open_temporary(made);
    if (status) {
        if (direct >= 0)
            close(direct);
        if (made)
            file_free(made);
        return status;
    }
    *file = made;
    return TX_OK;
}

tx_status tx_file_create(const char *path, tx_file **file)
{
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode))
        return fail_kind(path, info.st_mode);
    return create(path, -1, file);
}

char *tx_file_target(const char *path)
{
    struct stat info;
    char *target = NULL;
    /* /dev/stdout may be a pipe, which has no path. */
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
        target = realpath(path, NULL);
    if (!target && !(target = strdup(path)))
        tx_fail(TX_MEMORY, "%s: no memory for the name", path);
    return target;
}

/* Creates an empty file at the target of a dangling link. */
static tx_status make_target(const char *path)
{
    const int made = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (made < 0)
        return tx_file_fail(path, "create the target of the link");
    close(made);
    return TX_OK;
}

/* Returns a descriptor of standard output or error if that is the same file, else -1. */
static int shared_output(const struct stat *info)
{
    struct stat own;
    for (int i = STDOUT_FILENO; i <= STDERR_FILENO; i++)
        if (fstat(i, &own) == 0 && own.st_dev == info->st_dev && own.st_ino == info->st_ino)
            return fcntl(i, F_DUPFD_CLOEXEC, 0);
    return -1;
}

tx_status tx_file_create_output(const char *path, tx_file **file)
{
    struct stat info;
    int direct = -1;
    if (stat(path, &info) != 0 && lstat(path, &info) == 0)
        TX_TRY(make_target(path));
    const bool exists = stat(path, &info) == 0;
    if (exists && (S_ISDIR(info.st_mode) || S_ISSOCK(info.st_mode)))
        return fail_kind(path, info.st_mode);
    if (exists)
        direct = shared_output(&info);
    if (exists && direct < 0 && !S_ISREG(info.st_mode) && (direct = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC)) < 0)
        return tx_file_fail(path, "open for writing");
    char *target = tx_file_target(path);
    const tx_status status = target ? create(target, direct, file) : TX_MEMORY;
    free(target);
    return status;
}

tx_status tx_file_append(tx_file *file, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        ssize_t done = write(file->descriptor, next, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tx_file_fail(file->path, "write");
        next += done;
        size -= (size_t)done;
    }
    return TX_OK;
}

tx_status tx_file_commit(tx_file *file)
{
    tx_status status = TX_OK;
    /* EINVAL, EROFS: a pipe or a device that cannot be flushed. */
    if (!tx_file_defers_flush && fsync(file->descriptor) != 0 &&
        (file->temporary || (errno != EINVAL && errno != EROFS)))
        status = tx_file_fail(file->path, "flush to disk");
    /* A later read then comes from the disk and not from memory, if the system supports it. */
    if (!tx_file_defers_flush)
        (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_DONTNEED);
    if (close(file->descriptor) != 0 && !status)
        status = tx_file_fail(file->path, "close");
    if (file->temporary) {
        if (!status && rename(file->temporary, file->path) != 0)
            status = tx_file_fail(file->path, "rename the temporary file");
        if (status)
            unlink(file->temporary);
        else
            status = flush_name(file->path);
    }
    file_free(file);
    return status;
}

void tx_file_discard(tx_file *file)
{
    if (!file)
        return;
    close(file->descriptor);
    if (file->temporary)
        unlink(file->temporary);
    file_free(file);
}

tx_status tx_file_end(tx_file *file, tx_status status)
{
    if (!status)
        return tx_file_commit(file);
    tx_file_discard(file);
    return status;
}

tx_status tx_file_write(const char *path, const void *data, size_t size)
{
    TX_NEEDS(path && (data || !size), TX_INVALID);
    tx_file *file;
    TX_TRY(tx_file_create(path, &file));
    return tx_file_end(file, tx_file_append(file, data, size));
}

tx_status tx_file_write_output(const char *path, const void *data, size_t size)
{
    TX_NEEDS(path && (data || !size), TX_INVALID);
    tx_file *file;
    TX_TRY(tx_file_create_output(path, &file));
    return tx_file_end(file, tx_file_append(file, data, size));
}
