/* SPDX-License-Identifier: Apache-2.0
 * Writes TensorBoard's event files. */
#include "models/train/events.h"

#include "api/base/clock.h"
#include "api/base/file.h"
#include "models/files/folder.h"
#include "models/tokenizer/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tx_tensorboard {
    int file; /* -1 after an error */
    char path[TX_PATH_ROOM];
    tx_reporter report;
    tx_buffer value, summary, event, record; /* the messages of an event, and its frame */
};

/* ---- CRC-32C ------------------------------------------------------------------------------------ */

/* The masked checksum of a record by Castagnoli's polynomial with reversed bits: rotated and shifted, so that records
 * can contain records. */
static uint32_t masked_crc(const char *data, size_t size)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        c ^= (uint8_t)data[i];
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* ---- protobuf ------------------------------------------------------------------------------------- */

/* Wire types. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_fixed(tx_buffer *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        tx_buffer_add(to, (char[]){(char)(value >> 8 * i)}, 1);
}

static void put_varint(tx_buffer *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_fixed(to, value | 0x80, 1);
    put_fixed(to, value, 1);
}

static void put_key(tx_buffer *to, int field, int type)
{
    put_varint(to, (uint64_t)(field << 3 | type));
}

static void put_bytes(tx_buffer *to, int field, const char *bytes, size_t size)
{
    put_key(to, field, BYTES);
    put_varint(to, size);
    tx_buffer_add(to, bytes, size);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Warns that the file ends, and closes it. */
static void give_up(tx_tensorboard *b, const char *why)
{
    tx_reporter_print(&b->report, "%.900s: cannot write the events: %s; training continues without them", b->path, why);
    close(b->file);
    b->file = -1;
}

/* Event.wall_time = 1. */
static void begin_event(tx_tensorboard *b, double wall_time)
{
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    tx_buffer_clear(&b->event);
    put_key(&b->event, 1, FIXED64);
    put_fixed(&b->event, bits, 8);
}

/* Frames the event and writes it without buffering. */
static void write_event(tx_tensorboard *b)
{
    tx_buffer *r = &b->record;
    tx_buffer_clear(r);
    put_fixed(r, b->event.size, 8);
    put_fixed(r, masked_crc(r->data, r->size), 4);
    tx_buffer_add(r, b->event.data, b->event.size);
    put_fixed(r, masked_crc(b->event.data, b->event.size), 4);
    if (b->value.status || b->summary.status || b->event.status || r->status) {
        give_up(b, "out of memory");
        return;
    }
    for (size_t at = 0; at < r->size;) {
        const ssize_t written = write(b->file, r->data + at, r->size - at);
        if (written > 0)
            at += (size_t)written;
        else if (written == 0 || errno != EINTR) {
            give_up(b, strerror(errno));
            return;
        }
    }
}

/* Creates a new file. Two runs may start in the same second, so names are numbered. */
static tx_status create(tx_tensorboard *b, const char *folder, time_t now)
{
    char host[256] = "", name[512];
    if (gethostname(host, sizeof host - 1) || !host[0])
        snprintf(host, sizeof host, "localhost");
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%ld.%d", (int64_t)now, host, (long)getpid(),
                 i);
        b->file = open(tx_path_in(b->path, folder, name), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (b->file >= 0)
            return TX_OK;
        if (errno != EEXIST)
            break;
    }
    return tx_fail(TX_IO, "%s: cannot create the event file: %s", b->path, strerror(errno));
}

tx_status tx_tensorboard_open(const char *folder, const tx_reporter *report, tx_tensorboard **board)
{
    TX_TRY(tx_folder_create(folder));
    tx_tensorboard *b = calloc(1, sizeof *b);
    if (!b)
        return tx_fail(TX_MEMORY, "%s: out of memory", folder);
    b->file = -1;
    b->report = *report;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tx_status status = create(b, folder, now.tv_sec);
    if (status) {
        tx_tensorboard_close(b);
        return status;
    }
    static const char version[] = "brain.Event:2"; /* Event.file_version = 3 */
    begin_event(b, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_bytes(&b->event, 3, version, sizeof version - 1);
    write_event(b);
    *board = b;
    return TX_OK;
}

/* Event.step = 2, Event.summary = 5 { value = 1 { tag = 1, simple_value = 2 } }. */
void tx_tensorboard_scalar(tx_tensorboard *board, const char *tag, int64_t step, double value, double wall_time)
{
    tx_tensorboard *b = board;
    const bool large = isfinite(value) && fabs(value) > (double)FLT_MAX;
    const float narrow = large ? copysignf(INFINITY, value > 0.0 ? 1.0f : -1.0f) : (float)value;
    uint32_t bits;
    if (b->file < 0)
        return;
    memcpy(&bits, &narrow, sizeof bits);
    tx_buffer_clear(&b->value);
    tx_buffer_clear(&b->summary);
    put_bytes(&b->value, 1, tag, strlen(tag));
    put_key(&b->value, 2, FIXED32);
    put_fixed(&b->value, bits, 4);
    put_bytes(&b->summary, 1, b->value.data, b->value.size);
    begin_event(b, wall_time);
    put_key(&b->event, 2, VARINT);
    put_varint(&b->event, (uint64_t)step);
    put_bytes(&b->event, 5, b->summary.data, b->summary.size);
    write_event(b);
}

void tx_tensorboard_close(tx_tensorboard *board)
{
    if (!board)
        return;
    if (board->file >= 0)
        close(board->file);
    free(board->value.data);
    free(board->summary.data);
    free(board->event.data);
    free(board->record.data);
    free(board);
}
