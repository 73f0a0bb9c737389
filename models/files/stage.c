/* SPDX-License-Identifier: Apache-2.0
 * Holds the large files of a checkpoint in memory until they are on disk. */
#define _GNU_SOURCE /* O_DIRECT, MADV_HUGEPAGE */
#include "models/files/stage.h"

#include "api/base/arithmetic.h"
#include "api/base/file.h"
#include "api/base/grow.h"
#include "api/base/memory_left.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of memory: huge pages cost fewer faults. Of direct writes: places in memory, and in the file. */
#define HUGE_PAGE ((int64_t)2 << 20)
#define ALIGNMENT ((int64_t)4096)
/* Bytes of a write. */
#define PIECE ((int64_t)4 << 20)

_Thread_local tx_stage *tx_stage_used;

typedef struct staged {
    char *path, *memory;
    int64_t bytes, room;
} staged;

/* Files 0 .. used - 1 are placed. The memory of all is kept. */
struct tx_stage {
    staged *file;
    size_t used, count, room;
};

tx_status tx_stage_create(tx_stage **stage)
{
    *stage = calloc(1, sizeof **stage);
    return *stage ? TX_OK : tx_fail(TX_MEMORY, "no memory for a checkpoint");
}

void tx_stage_free(tx_stage *stage)
{
    if (!stage)
        return;
    tx_stage_clear(stage);
    for (size_t i = 0; i < stage->count; i++)
        free(stage->file[i].memory);
    free(stage->file);
    free(stage);
}

void tx_stage_clear(tx_stage *stage)
{
    for (size_t i = 0; i < stage->used; i++) {
        free(stage->file[i].path);
        stage->file[i].path = NULL;
    }
    stage->used = 0;
}

/* Gives the file at least so much memory. */
static bool reserve(staged *f, int64_t bytes)
{
    char owner[120];
    if (f->room >= bytes)
        return true;
    free(f->memory);
    *f = (staged){0};
    if (tx_memory_left("", owner, sizeof owner) / 2 < bytes)
        return false;
    const int64_t room = tx_round_up(bytes, HUGE_PAGE);
    f->memory = aligned_alloc((size_t)HUGE_PAGE, (size_t)room);
    if (!f->memory)
        return false;
    f->room = room;
    (void)madvise(f->memory, (size_t)room, MADV_HUGEPAGE);
    return true;
}

char *tx_stage_place(tx_stage *stage, const char *path, int64_t bytes)
{
    if (stage->used == stage->count) {
        if (tx_array_reserve(&stage->file, &stage->room, stage->count + 1, sizeof *stage->file, "staged files"))
            return NULL;
        stage->file[stage->count++] = (staged){0};
    }
    staged *f = &stage->file[stage->used];
    if (!reserve(f, bytes) || !(f->path = strdup(path)))
        return NULL;
    f->bytes = bytes;
    /* A direct write also writes the rest of the last block. */
    memset(f->memory + bytes, 0, (size_t)(tx_round_up(bytes, ALIGNMENT) - bytes));
    stage->used++;
    return f->memory;
}

const char *tx_stage_data(const tx_stage *stage, const char *path)
{
    for (size_t i = 0; i < stage->used; i++)
        if (strcmp(stage->file[i].path, path) == 0)
            return stage->file[i].memory;
    return NULL;
}

/* ---- Writing ----------------------------------------------------------------------------------- */

/* Lets the writes go through the page cache. Returns false if they do. */
static bool use_cache(int descriptor)
{
    const int flags = fcntl(descriptor, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(descriptor, F_SETFL, flags & ~O_DIRECT) == 0;
}

/* Writes whole blocks, the last one with zeros after the end of the file. */
static tx_status write_blocks(int descriptor, const staged *f)
{
    const int64_t end = tx_round_up(f->bytes, ALIGNMENT);
    for (int64_t at = 0; at < end;) {
        const ssize_t done = pwrite(descriptor, f->memory + at, (size_t)tx_min(end - at, PIECE), (off_t)at);
        if (done < 0 && (errno == EINTR || (errno == EINVAL && use_cache(descriptor))))
            continue;
        if (done < 0)
            return tx_file_fail(f->path, "write");
        at += done; /* after an incomplete write it may be unaligned, which fails with EINVAL */
    }
    return TX_OK;
}

static tx_status write_file(const staged *f)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    int descriptor = open(f->path, flags | O_DIRECT, 0666);
    if (descriptor < 0 && errno == EINVAL)
        descriptor = open(f->path, flags, 0666);
    if (descriptor < 0)
        return tx_file_fail(f->path, "create");
    tx_status status = write_blocks(descriptor, f);
    if (!status && ftruncate(descriptor, (off_t)f->bytes) != 0)
        status = tx_file_fail(f->path, "write");
    if (close(descriptor) != 0 && !status)
        status = tx_file_fail(f->path, "close");
    return status;
}

tx_status tx_stage_write(const tx_stage *stage)
{
    tx_status status = TX_OK;
    for (size_t i = 0; i < stage->used && !status; i++)
        status = write_file(&stage->file[i]);
    return status;
}
