/* SPDX-License-Identifier: Apache-2.0
 * Threads transfer blocks between memory and a file. A transfer is split into parts, several of which run at a time.
 * Aligned memory is transferred directly, other memory through an aligned buffer of each thread. */
#define _GNU_SOURCE /* O_DIRECT, O_TMPFILE */
#include "api/residency/swap.h"

#include "api/base/file.h"
#include "api/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A virtual disk reached its full rate with 4 parts of 1 MiB in progress. */
enum { THREADS = 4, ROOM = 64 };
#define PART (INT64_C(1) << 20)

/* A transfer of bytes at .. end of the file. */
typedef struct transfer {
    int64_t number;
    bool out;
    int64_t at, end, given; /* threads have started the parts up to `given` */
    int64_t left;           /* bytes that are still to be transferred */
    char *memory;
} transfer;

struct tx_swap {
    char *folder;
    int file;
    int64_t bytes;
    pthread_t thread[THREADS];
    int threads;
    pthread_mutex_t mutex; /* for all members below */
    pthread_cond_t more, fewer;
    transfer transfer[ROOM]; /* in the order in which they were started */
    int32_t transfers;
    int64_t begun;
    bool stop;
    char error[256]; /* of the first failure */
};

/* Returns the start of the block that contains byte `at`. */
static int64_t begin_of(int64_t at)
{
    return at / TX_FILE_BLOCK * TX_FILE_BLOCK;
}

/* ---- A part -------------------------------------------------------------------------------------------------- */

/* Makes one system call for blocks first .. first + bytes. Returns 0 or errno. An incomplete transfer is an error too.
 */
static int move(int file, bool out, int64_t first, void *block, int64_t bytes)
{
    ssize_t moved;
    do
        moved = out ? pwrite(file, block, (size_t)bytes, first) : pread(file, block, (size_t)bytes, first);
    while (moved < 0 && errno == EINTR);
    return moved == bytes ? 0 : moved < 0 ? errno : EIO;
}

/* Transfers bytes at .. end in whole blocks. Blocks that are written in part keep their other bytes. */
static int move_through(int file, bool out, int64_t at, int64_t end, char *memory, char *block)
{
    const int64_t first = begin_of(at), last = begin_of(end - 1), bytes = last + TX_FILE_BLOCK - first;
    int error = 0;
    if (!out)
        error = move(file, false, first, block, bytes);
    if (out && first < at)
        error = move(file, false, first, block, TX_FILE_BLOCK);
    if (out && !error && last + TX_FILE_BLOCK > end && (last > first || first == at))
        error = move(file, false, last, block + (last - first), TX_FILE_BLOCK);
    if (out && !error) {
        memcpy(block + (at - first), memory, (size_t)(end - at));
        error = move(file, true, first, block, bytes);
    } else if (!error) {
        memcpy(memory, block + (at - first), (size_t)(end - at));
    }
    return error;
}

/* Memory from a device's driver may be inaccessible to direct I/O (EFAULT), but not to threads. */
static int move_part(int file, bool out, int64_t at, int64_t end, char *memory, char *block)
{
    const bool whole = at % TX_FILE_BLOCK == 0 && end % TX_FILE_BLOCK == 0 && (uintptr_t)memory % TX_FILE_BLOCK == 0;
    const int error = whole ? move(file, out, at, memory, end - at) : EFAULT;
    return error == EFAULT ? move_through(file, out, at, end, memory, block) : error;
}

/* ---- Threads --------------------------------------------------------------------------------------------------- */

/* Sets `t` to the next part, up to `given`. Returns false if there is none. The mutex must be locked. */
static bool next_part(tx_swap *s, transfer *t)
{
    int32_t i = 0;
    while (i < s->transfers && s->transfer[i].given == s->transfer[i].end)
        i++;
    if (i == s->transfers)
        return false;
    transfer *from = &s->transfer[i];
    *t = *from;
    t->at = from->given;
    t->memory += from->given - from->at;
    const int64_t stop = from->given / PART * PART + PART;
    t->given = from->given = tx_min(stop, from->end);
    return true;
}

static void complete_part(tx_swap *s, const transfer *t, int error)
{
    if (error && !*s->error)
        snprintf(s->error, sizeof s->error,
                 "%.120s: cannot %s bytes %" PRId64 " to %" PRId64 " of the offload file: %s", s->folder,
                 t->out ? "write" : "read", t->at, t->given, strerror(error));
    int32_t i = 0;
    while (s->transfer[i].number != t->number)
        i++;
    s->transfer[i].left -= t->given - t->at;
    if (s->transfer[i].left == 0)
        memmove(&s->transfer[i], &s->transfer[i + 1], (size_t)(--s->transfers - i) * sizeof *s->transfer);
    pthread_cond_broadcast(&s->fewer);
}

static void *serve(void *argument)
{
    tx_swap *s = argument;
    transfer t;
    char *block = aligned_alloc(TX_FILE_BLOCK, (size_t)PART);
    pthread_mutex_lock(&s->mutex);
    while (!s->stop || s->transfers > 0) {
        if (!next_part(s, &t)) {
            if (s->stop)
                break;
            pthread_cond_wait(&s->more, &s->mutex);
            continue;
        }
        const bool failed = *s->error != '\0';
        pthread_mutex_unlock(&s->mutex);
        const int error = failed ? 0 : block ? move_part(s->file, t.out, t.at, t.given, t.memory, block) : ENOMEM;
        pthread_mutex_lock(&s->mutex);
        complete_part(s, &t, error);
    }
    pthread_mutex_unlock(&s->mutex);
    free(block);
    return NULL;
}

/* ---- Transfers --------------------------------------------------------------------------------------------------- */

static bool same_memory(const transfer *t, const void *memory, int64_t bytes)
{
    const char *begin = memory;
    return t->memory < begin + bytes && begin < t->memory + (t->end - t->at);
}

/* Whether one of two transfers writes bytes of the other. If two write parts of the same block, both write the whole
 * block. */
static bool same_file(const transfer *a, const transfer *b)
{
    if (a->out && b->out)
        return begin_of(a->at) < b->end && begin_of(b->at) < a->end;
    return (a->out || b->out) && a->at < b->end && b->at < a->end;
}

/* Waits for transfers of that memory, and for those that conflict with `next` if it is not NULL. The mutex must be
 * locked. */
static tx_status wait_for_transfers(tx_swap *s, const void *memory, int64_t bytes, const transfer *next)
{
    for (int32_t i = 0; i < s->transfers; i++) {
        const transfer *t = &s->transfer[i];
        if (same_memory(t, memory, bytes) || (next && same_file(t, next))) {
            pthread_cond_wait(&s->fewer, &s->mutex);
            i = -1;
        }
    }
    return *s->error ? tx_fail(TX_IO, "%s", s->error) : TX_OK;
}

tx_status tx_swap_begin(tx_swap *s, bool out, int64_t at, void *memory, int64_t bytes)
{
    if (at < 0 || bytes < 0 || bytes > s->bytes || at > s->bytes - bytes)
        return tx_fail(TX_INTERNAL, "bytes %" PRId64 " to %" PRId64 " are outside the offload file of %" PRId64, at,
                       at + bytes, s->bytes);
    if (bytes == 0)
        return TX_OK;
    transfer t = {.out = out, .at = at, .end = at + bytes, .given = at, .left = bytes, .memory = memory};
    pthread_mutex_lock(&s->mutex);
    tx_status status = wait_for_transfers(s, memory, bytes, &t);
    while (status == TX_OK && s->transfers == ROOM)
        pthread_cond_wait(&s->fewer, &s->mutex);
    if (status == TX_OK) {
        t.number = s->begun++;
        s->transfer[s->transfers++] = t;
        pthread_cond_broadcast(&s->more);
    }
    pthread_mutex_unlock(&s->mutex);
    return status;
}

tx_status tx_swap_wait(tx_swap *s, const void *memory, int64_t bytes)
{
    pthread_mutex_lock(&s->mutex);
    tx_status status = wait_for_transfers(s, memory, bytes, NULL);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* ---- The file --------------------------------------------------------------------------------------------------- */

/* Opens the file; returns a descriptor or -1. Some file systems do not support unnamed files, others no direct I/O. */
static int open_file(const char *folder)
{
    const int flags = O_RDWR | O_TMPFILE | O_CLOEXEC;
    int file = open(folder, flags | O_DIRECT, 0600);
    if (file < 0 && errno == EINVAL)
        file = open(folder, flags, 0600);
    char *name = file < 0 && (errno == EOPNOTSUPP || errno == EISDIR) ? tx_path_join(folder, "tx_swap_XXXXXX") : NULL;
    if (name) {
        file = mkostemp(name, O_CLOEXEC);
        if (file >= 0)
            unlink(name);
    }
    free(name);
    return file;
}

tx_status tx_swap_reserve(tx_swap *s, int64_t bytes, int64_t *at)
{
    const double gib = (double)((int64_t)1 << 30);
    const int64_t blocks = tx_file_blocks(bytes);
    const int error = blocks ? posix_fallocate(s->file, s->bytes, blocks) : 0;
    if (error)
        return tx_fail(TX_IO, "%s: cannot reserve %.2f GiB for the offload file: %s", s->folder, (double)blocks / gib,
                       strerror(error));
    *at = s->bytes;
    s->bytes += blocks;
    return TX_OK;
}

tx_status tx_swap_create(const char *folder, tx_swap **swap)
{
    tx_swap *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "no memory for a file");
    s->folder = strdup(folder);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->fewer, NULL);
    s->file = s->folder ? open_file(folder) : -1;
    tx_status status = !s->folder    ? tx_fail(TX_MEMORY, "no memory for a file")
                       : s->file < 0 ? tx_file_fail(folder, "create the offload file")
                                     : TX_OK;
    while (status == TX_OK && s->threads < THREADS) {
        if (tx_thread_start(&s->thread[s->threads], serve, s))
            s->threads++;
        else
            status = tx_fail(TX_MEMORY, "cannot start a thread for the offload file: %s", strerror(errno));
    }
    if (status == TX_OK)
        *swap = s;
    else
        tx_swap_free(s);
    return status;
}

void tx_swap_free(tx_swap *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < s->threads; i++)
        pthread_join(s->thread[i], NULL);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->fewer);
    pthread_mutex_destroy(&s->mutex);
    if (s->file >= 0)
        close(s->file);
    free(s->folder);
    free(s);
}
