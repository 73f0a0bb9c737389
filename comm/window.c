/* SPDX-License-Identifier: Apache-2.0
 * Segments of POSIX shared memory. They are allocated to the last page when made: a full /dev/shm is an error here and
 * not a SIGBUS in the middle of a sum. */
#include "comm/window.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* What a rank tells all others about its segment. */
typedef struct offer {
    int32_t status; /* of making its own; then of mapping the others' */
    char name[64];
    char text[320]; /* what is wrong */
} offer;

/* ---- One segment --------------------------------------------------------------------------------------- */

/* Maps a file, or with file -1 memory of this process alone. */
static void *map(int file, int64_t bytes)
{
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* Both are as good as the system can: huge pages, and page tables now rather than in the first sum. */
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    madvise(memory, (size_t)bytes, MADV_POPULATE_WRITE);
#endif
    return memory;
}

static tx_status lacking(int64_t bytes, int32_t members, const char *what, int error)
{
    struct statvfs room;
    char has[96] = "";
    if (statvfs("/dev/shm", &room) == 0)
        snprintf(has, sizeof has, " (/dev/shm has %.1f MB free of %.1f)",
                 1e-6 * (double)room.f_bavail * (double)room.f_frsize,
                 1e-6 * (double)room.f_blocks * (double)room.f_frsize);
    return tx_fail(TX_MEMORY,
                   "cannot %s a window of %" PRId32 " x %.1f MB in shared memory: %s%s; make /dev/shm larger, or set "
                   "TX_COMM_SHM=0 to go without",
                   what, members, 1e-6 * (double)bytes, strerror(error), has);
}

/* Makes a segment under a name that nobody else has. */
static tx_status make(int64_t bytes, int32_t members, char *name, size_t room, void **memory)
{
    int file = -1;
    struct timespec now;
    for (int tries = 0; tries < 100 && file < 0 && (tries == 0 || errno == EEXIST); tries++) {
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(name, room, "/tx-%ld-%" PRIx64, (long)getpid(),
                 (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    if (file < 0) {
        name[0] = '\0';
        return lacking(bytes, members, "make", errno);
    }
    int error;
    do
        error = posix_fallocate(file, 0, bytes);
    while (error == EINTR);
    *memory = error ? NULL : map(file, bytes);
    error = error || *memory ? error : errno;
    close(file);
    return error ? lacking(bytes, members, "make", error) : TX_OK;
}

static tx_status open_other(const char *name, int64_t bytes, int32_t members, char **memory)
{
    int file = shm_open(name, O_RDWR, 0);
    *memory = file < 0 ? NULL : map(file, bytes);
    int error = errno;
    if (file >= 0)
        close(file);
    return *memory ? TX_OK : lacking(bytes, members, "map another rank's part of", error);
}

/* ---- All of them ----------------------------------------------------------------------------------------- */

void tx_window_free(tx_window *window)
{
    for (int32_t i = 0; window && i < window->members; i++)
        if (window->segment[i])
            munmap(window->segment[i], (size_t)window->bytes);
    free(window);
}

/* Tells all ranks what came of this one's part; the same status and message on every rank. */
static tx_status agree(tx_transport *transport, const tx_comm_rank *ranks, offer *own, offer *all, tx_status status)
{
    own->status = (int32_t)status;
    snprintf(own->text, sizeof own->text, "%s", status ? tx_error() : "");
    status = tx_transport_gather(transport, own, all, sizeof *own);
    for (int32_t r = 0; r < transport->size && !status; r++)
        if (all[r].status)
            return tx_fail((tx_status)all[r].status, "rank %" PRId32 " on %s %s", r, ranks[r].name, all[r].text);
    return status;
}

static tx_status map_others(const tx_layout *l, int32_t group, const offer *all, tx_window *w)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < w->members && !status; i++)
        if (i != w->place)
            status = open_other(all[l->member[l->start[group] + i]].name, w->bytes, w->members, &w->segment[i]);
    return status;
}

static tx_status fill(tx_transport *transport, const tx_layout *l, const tx_comm_rank *ranks, offer *all, tx_window *w)
{
    offer own = {0};
    void *memory = NULL;
    tx_status status = TX_OK;
    if (w->members > 1)
        status = make(w->bytes, w->members, own.name, sizeof own.name, &memory);
    else if (!(memory = map(-1, w->bytes)))
        status = tx_fail(TX_MEMORY, "has no memory for a window of %" PRId64 " bytes", w->bytes);
    w->segment[w->place] = memory;
    status = agree(transport, ranks, &own, all, status);
    if (!status)
        status = agree(transport, ranks, &own, all, map_others(l, l->group[transport->rank], all, w));
    if (own.name[0])
        shm_unlink(own.name);
    return status;
}

tx_status tx_window_create(tx_transport *transport, const tx_layout *layout, const tx_comm_rank *ranks, int64_t bytes,
                           tx_window **window)
{
    const int32_t group = layout->group[transport->rank];
    const int32_t members = layout->start[group + 1] - layout->start[group];
    const int64_t page = sysconf(_SC_PAGESIZE);
    if (bytes <= 0 || bytes > INT64_MAX - page)
        return tx_fail(TX_INVALID, "a window of %" PRId64 " bytes is none", bytes);
    tx_window *w = calloc(1, sizeof *w + (size_t)members * sizeof *w->segment);
    offer *all = malloc((size_t)transport->size * sizeof *all);
    if (!w || !all) {
        free(w);
        free(all);
        return tx_fail(TX_MEMORY, "no memory for a window's description");
    }
    w->bytes = (bytes + page - 1) / page * page;
    w->place = layout->place[transport->rank];
    w->members = members;
    tx_status status = fill(transport, layout, ranks, all, w);
    free(all);
    if (status) {
        tx_window_free(w);
        return status;
    }
    *window = w;
    return TX_OK;
}

const tx_window *tx_window_find(const tx_window *list, const void *data, int64_t bytes)
{
    const uintptr_t at = (uintptr_t)data;
    for (const tx_window *w = list; w; w = w->next) {
        const uintptr_t first = (uintptr_t)w->segment[w->place];
        if (at >= first && at - first < (uintptr_t)w->bytes && (uintptr_t)bytes <= (uintptr_t)w->bytes - (at - first))
            return w;
    }
    return NULL;
}
