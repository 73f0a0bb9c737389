/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files on disk, keyed by a text and the device's identity. The folder is TX_CACHE_DIR (empty disables
 * caching), else $XDG_CACHE_HOME/tx, else ~/.cache/tx. Damaged files and files of another key are ignored. A folder
 * that cannot be written is only read.
 *
 * Processes lock a key while they compute its value, so that the others wait and then load it. All locks are bytes of
 * one file, cl-lock, and the system releases those of a process that ends.
 *
 * A file's modification time is its last use, to a day. If the folder exceeds TX_CACHE_SIZE, the files whose last use
 * is oldest are removed. A process that reads one of them keeps it, as it is open, or compiles again.
 */
#define _GNU_SOURCE /* locks of open files */
#include "backends/opencl/runtime/internal.h"

#include "api/base/file.h"
#include "api/base/grow.h"
#include "api/base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_BYTES (1 << 30)
#define DAY (24 * 3600)
#define STORES_PER_SCAN 64 /* of the folder, which takes about a millisecond per 500 files */
#define KEPT(bytes) ((bytes) / 8 * 7)
#define WAIT_SECONDS 300 /* for another process, which may be stopped or hang in its driver */
#define POLL_SECONDS 0.02

/* The start of a file. The two hashes of the key detect two keys with the same file name. */
typedef struct cache_header {
    char magic[8];
    uint64_t key[2], size, checksum;
} cache_header;

static const char magic[8] = "TXCACHE";

/* Hashes from a given start. A final mix makes the two hashes of a key different. */
static uint64_t hash(uint64_t start, const void *data, size_t size)
{
    uint64_t h = tx_hash(TX_HASH_START ^ start, data, size);
    h ^= h >> 32;
    return h * 0x9E3779B97F4A7C15u;
}

/* Returns the path of the folder, or NULL if caching is off or memory is short. */
static char *find_folder(void)
{
    const char *folder = getenv("TX_CACHE_DIR"), *below = "";
    if (!folder) {
        folder = getenv("XDG_CACHE_HOME");
        below = "tx";
        if (!folder || folder[0] != '/') {
            folder = getenv("HOME");
            below = ".cache/tx";
        }
    }
    if (!folder || !folder[0])
        return NULL;
    return *below ? tx_path_join(folder, below) : strdup(folder);
}

/* Warns once a process that kernels are not stored. */
static void warn(const tx_context *context, const char *folder, const char *how, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char text[1400];
    if (!context->report || !context->report->warn || atomic_flag_test_and_set(&warned))
        return;
    snprintf(
        text, sizeof text,
        "%.600s: this cache of kernels %s (%.500s): each start compiles the kernels that it lacks; set TX_CACHE_DIR "
        "to a folder that you can write",
        folder, how, why);
    context->report->warn(context->report->context, text);
}

void tx_cl_cache_open(tx_context *context)
{
    char *path = find_folder();
    const tx_status status = path ? tx_folder_create(path) : TX_OK;
    if (path && (status || access(path, R_OK | X_OK) != 0)) {
        warn(context, path, "cannot be used", status ? tx_error() : strerror(errno));
        free(path);
        path = NULL;
    }
    context->cache_is_fixed = path && access(path, W_OK) != 0;
    if (context->cache_is_fixed)
        warn(context, path, "is read and not written", strerror(errno));
    context->cache = path;
}

/* Computes the two hashes of a key and returns the path of its file, which contains them. Returns NULL if caching
 * is disabled or memory is short. */
static char *file_of(const tx_context *context, const char *key, uint64_t hashes[2])
{
    char name[48];
    if (!context->cache)
        return NULL;
    for (uint64_t i = 0; i < 2; i++)
        hashes[i] = hash(hash(i, context->identity, strlen(context->identity)), key, strlen(key));
    snprintf(name, sizeof name, "cl-%016" PRIx64 "%016" PRIx64, hashes[0], hashes[1]);
    return tx_path_join(context->cache, name);
}

/* Records that a file is used. */
static void touch(const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && time(NULL) - info.st_mtime > DAY)
        utimensat(AT_FDCWD, path, NULL, 0);
}

typedef struct cached {
    time_t used;
    int64_t bytes;
    char name[64];
} cached;

static int by_use(const void *a, const void *b)
{
    const cached *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : strcmp(x->name, y->name);
}

static bool is_own(const char *name)
{
    return strncmp(name, "cl-", 3) == 0 &&
           (strspn(name + 3, "0123456789abcdef") == 32 || strncmp(name + 3, "trying-", 7) == 0);
}

/* Lists the backend's files in a folder, temporary ones of processes that were killed too. The caller frees *list. */
static int32_t list_files(DIR *folder, cached **list)
{
    int32_t count = 0;
    struct stat info;
    for (struct dirent *one; (one = readdir(folder)) != NULL;) {
        if (!is_own(one->d_name) || strlen(one->d_name) >= sizeof(*list)->name ||
            fstatat(dirfd(folder), one->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
            continue;
        cached *larger = tx_grown(*list, count, sizeof **list);
        if (!larger)
            break;
        *list = larger;
        (*list)[count] = (cached){.used = info.st_mtime, .bytes = info.st_blocks * 512};
        strcpy((*list)[count++].name, one->d_name);
    }
    return count;
}

/* Removes files until the folder is smaller than its limit. */
static void prune(const char *path, int64_t limit)
{
    cached *list = NULL;
    int64_t bytes = 0;
    DIR *folder = opendir(path);
    const int32_t count = folder ? list_files(folder, &list) : 0;
    for (int32_t i = 0; i < count; i++)
        bytes += list[i].bytes;
    if (bytes > limit) {
        qsort(list, (size_t)count, sizeof *list, by_use);
        for (int32_t i = 0; i < count && bytes > KEPT(limit); bytes -= list[i++].bytes)
            unlinkat(dirfd(folder), list[i].name, 0);
    }
    free(list);
    if (folder)
        closedir(folder);
}

bool tx_cl_cache_load(const tx_context *context, const char *key, void **data, size_t *size)
{
    uint64_t hashes[2];
    cache_header header;
    char *path = file_of(context, key, hashes), *file = NULL;
    size_t bytes = 0;
    bool found = path && tx_file_read(path, MAX_BYTES, &file, &bytes) == TX_OK && bytes > sizeof header;
    if (found) {
        memcpy(&header, file, sizeof header);
        bytes -= sizeof header;
        memmove(file, file + sizeof header, bytes + 1); /* with the terminating NUL */
        found = memcmp(header.magic, magic, sizeof magic) == 0 && memcmp(header.key, hashes, sizeof hashes) == 0 &&
                header.size == bytes && header.checksum == hash(0, file, bytes);
    }
    if (found) {
        touch(path);
        *data = file;
        *size = bytes;
    } else {
        free(file);
    }
    free(path);
    return found;
}

/* Opens one of the backend's own files. Something else in its place, such as a pipe, is removed. */
static tx_status open_own(const char *path, int flags, int *file)
{
    const tx_status status = tx_file_open(path, flags | O_NOFOLLOW, file, NULL);
    return status == TX_FORMAT && unlink(path) == 0 ? tx_file_open(path, flags | O_NOFOLLOW, file, NULL) : status;
}

/* Opens the file of the locks, for all users of the folder. Linux may refuse O_CREAT for a file of another user. */
static bool open_locks(const char *path, int *file)
{
    if (open_own(path, O_RDWR, file) == TX_OK)
        return true;
    if (open_own(path, O_RDWR | O_CREAT, file) != TX_OK)
        return false;
    (void)fchmod(*file, 0666);
    return true;
}

int tx_cl_cache_lock(const tx_context *context, const char *key)
{
    const double end = tx_cl_now() + WAIT_SECONDS;
    uint64_t hashes[2];
    int file = -1;
    char *entry = context->cache_is_fixed ? NULL : file_of(context, key, hashes);
    char *path = entry ? tx_path_join(context->cache, "cl-lock") : NULL;
    const bool opened = path && open_locks(path, &file);
    free(entry);
    free(path);
    if (!opened)
        return -1;
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(hashes[0] >> 2), .l_len = 1};
    int code;
    while ((code = fcntl(file, F_OFD_SETLK, &range)) != 0 && (errno == EAGAIN || errno == EACCES) && tx_cl_now() < end)
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * POLL_SECONDS)}, NULL);
    if (code == 0)
        return file;
    close(file);
    return -1;
}

void tx_cl_cache_unlock(int lock)
{
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (lock < 0)
        return;
    (void)fcntl(lock, F_OFD_SETLK, &all); /* a child of this process may have copies of the descriptor */
    close(lock);
}

static tx_status store(const char *path, const cache_header *header, const void *data)
{
    tx_file *file = NULL;
    tx_status status = tx_file_create(path, &file);
    if (status == TX_FORMAT && unlink(path) == 0) /* not a regular file */
        status = tx_file_create(path, &file);
    if (status)
        return status;
    status = tx_file_append(file, header, sizeof *header);
    TX_THEN(status, tx_file_append(file, data, header->size));
    return tx_file_end(file, status);
}

void tx_cl_cache_store(const tx_context *context, const char *key, const void *data, size_t size)
{
    cache_header header = {.size = size, .checksum = hash(0, data, size)};
    char *path = size > 0 && !context->cache_is_fixed ? file_of(context, key, header.key) : NULL;
    if (!path)
        return;
    memcpy(header.magic, magic, sizeof magic);
    if (store(path, &header, data))
        warn(context, context->cache, "cannot be written", tx_error());
    free(path);
    if (context->limits.cache_mib > 0 && header.key[0] % STORES_PER_SCAN == 0)
        prune(context->cache, (int64_t)context->limits.cache_mib << 20);
}
