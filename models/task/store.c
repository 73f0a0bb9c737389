/* SPDX-License-Identifier: Apache-2.0
 * Keeps the ids of samples in memory or in a file. instruction_data.c and preference_data.c fill it, and the rows of
 * both tasks are read from it. */
#include "models/task/store.h"

#include "api/base/file.h"
#include "models/tx_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Name of the file in messages. It has no name in its folder, so that nothing remains if the process ends. */
#define NAME "the file of tokens"
#define PIECE 4096

static tx_status make_file(tx_store *s)
{
    char name[TX_PATH_ROOM];
    TX_TRY(tx_folder_create(s->folder));
    snprintf(name, sizeof name, "%s/samples.%ld-%p.tmp", s->folder, (long)getpid(), (void *)s);
    TX_TRY(tx_file_open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, &s->descriptor, NULL));
    return unlink(name) == 0 ? TX_OK : tx_file_fail(name, "unlink");
}

static tx_status write_held(tx_store *s)
{
    const char *next = (const char *)s->held.id;
    for (size_t left = s->held.count * sizeof *s->held.id; left > 0;) {
        const ssize_t done = write(s->descriptor, next, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tx_file_fail(NAME, "write");
        next += done;
        left -= (size_t)done;
    }
    s->written += (int64_t)s->held.count;
    s->held.count = 0;
    return TX_OK;
}

tx_status tx_store_add(tx_store *store, const int32_t *ids, size_t count)
{
    tx_store *s = store;
    TX_TRY(tx_ids_reserve(&s->held, count));
    if (count)
        memcpy(s->held.id + s->held.count, ids, count * sizeof *ids);
    s->held.count += count;
    s->count += (int64_t)count;
    if (s->held.count < TX_STORE_MEMORY || !s->folder || s->refused)
        return TX_OK;
    if (!s->written && make_file(s)) {
        s->refused = true;
        tx_reporter_print(s->report, "the tokens of the samples stay in memory: %s", tx_error());
        return TX_OK;
    }
    return write_held(s);
}

tx_status tx_store_read(const tx_store *store, int64_t first, int64_t count, int32_t *ids)
{
    const int64_t left = store->written - first, in_file = left < 0 ? 0 : left < count ? left : count;
    const int64_t width = (int64_t)sizeof *ids;
    if (in_file)
        TX_TRY(tx_file_read_at(store->descriptor, NAME, first * width, ids, in_file * width));
    if (count > in_file)
        memcpy(ids + in_file, store->held.id + (first + in_file - store->written), (size_t)((count - in_file) * width));
    return TX_OK;
}

tx_status tx_store_digest(const tx_store *store, tx_digest *digest)
{
    int32_t piece[PIECE];
    for (int64_t at = 0, count; at < store->count; at += count) {
        count = store->count - at < PIECE ? store->count - at : PIECE;
        TX_TRY(tx_store_read(store, at, count, piece));
        TX_TRY(tx_digest_add(digest, piece, (size_t)count * sizeof *piece));
    }
    return TX_OK;
}

void tx_store_free(tx_store *store)
{
    if (store->written)
        close(store->descriptor);
    free(store->held.id);
    *store = (tx_store){.folder = NULL};
}
