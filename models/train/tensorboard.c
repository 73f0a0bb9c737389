/* SPDX-License-Identifier: Apache-2.0
 * Writes TensorBoard's event files. */
#include "models/train/tensorboard.h"

#include "api/base/clock.h"
#include "api/base/file.h"
#include "models/files/folder.h"

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

/* Maximum bytes of a record besides its tag: frame 16, wall_time 9, step 11, three keys and lengths 33, value 5. */
#define OVERHEAD 80

struct tx_tensorboard {
    int file; /* -1 after an error */
    char path[TX_PATH_ROOM];
    tx_reporter report;
    uint8_t *record;
    size_t room;
    uint32_t table[256];
};

/* ---- CRC-32C ------------------------------------------------------------------------------------ */

/* Castagnoli's polynomial with reversed bits. */
static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        table[i] = c;
    }
}

/* The masked checksum of a record: rotated and shifted, so that records can contain records. */
static uint32_t masked_crc(const tx_tensorboard *b, const uint8_t *data, size_t size)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < size; i++)
        c = b->table[(c ^ data[i]) & 0xff] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* ---- protobuf ------------------------------------------------------------------------------------- */

/* Wire types. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static uint8_t *put_fixed(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_key(uint8_t *at, int field, int type)
{
    return put_varint(at, (uint64_t)(field << 3 | type));
}

static uint8_t *put_bytes(uint8_t *at, int field, const void *bytes, size_t size)
{
    at = put_varint(put_key(at, field, BYTES), size);
    memcpy(at, bytes, size);
    return at + size;
}

static size_t varint_size(uint64_t value)
{
    uint8_t scratch[10];
    return (size_t)(put_varint(scratch, value) - scratch);
}

/* Event.wall_time = 1. */
static uint8_t *put_wall_time(uint8_t *at, double wall_time)
{
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    return put_fixed(put_key(at, 1, FIXED64), bits, 8);
}

/* Event.summary = 5 { value = 1 { tag = 1, simple_value = 2 } }. */
static uint8_t *put_summary(uint8_t *at, const char *tag, float value)
{
    size_t length = strlen(tag), inner = 1 + varint_size(length) + length + 5;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    at = put_varint(put_key(at, 5, BYTES), 1 + varint_size(inner) + inner);
    at = put_varint(put_key(at, 1, BYTES), inner);
    at = put_bytes(at, 1, tag, length);
    return put_fixed(put_key(at, 2, FIXED32), bits, 4);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

/* Warns that the file ends, and closes it. */
static void give_up(tx_tensorboard *b, const char *why)
{
    tx_reporter_print(&b->report, "%.900s: cannot write the events: %s; training continues without them", b->path, why);
    close(b->file);
    b->file = -1;
}

/* The start of the event in the record, which has space for a tag of that length. NULL after an error. */
static uint8_t *begin_event(tx_tensorboard *b, size_t tag)
{
    if (b->room < OVERHEAD + tag) {
        uint8_t *larger = realloc(b->record, OVERHEAD + tag);
        if (!larger) {
            give_up(b, "out of memory");
            return NULL;
        }
        b->record = larger;
        b->room = OVERHEAD + tag;
    }
    return b->record + 12;
}

/* Frames the event that ends at `end` and writes it without buffering. */
static void write_event(tx_tensorboard *b, uint8_t *end)
{
    size_t size = (size_t)(end - b->record) - 12;
    put_fixed(b->record, size, 8);
    put_fixed(b->record + 8, masked_crc(b, b->record, 8), 4);
    end = put_fixed(end, masked_crc(b, b->record + 12, size), 4);
    for (uint8_t *at = b->record; at < end;) {
        ssize_t written = write(b->file, at, (size_t)(end - at));
        if (written > 0)
            at += written;
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
    make_table(b->table);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tx_status status = create(b, folder, now.tv_sec);
    if (status) {
        tx_tensorboard_close(b);
        return status;
    }
    static const char version[] = "brain.Event:2"; /* Event.file_version = 3 */
    uint8_t *at = begin_event(b, sizeof version);
    if (at) {
        at = put_wall_time(at, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
        write_event(b, put_bytes(at, 3, version, sizeof version - 1));
    }
    *board = b;
    return TX_OK;
}

void tx_tensorboard_scalar(tx_tensorboard *board, const char *tag, int64_t step, double value, double wall_time)
{
    uint8_t *at = board->file < 0 ? NULL : begin_event(board, strlen(tag));
    if (!at)
        return;
    bool large = isfinite(value) && fabs(value) > (double)FLT_MAX;
    float narrow = large ? copysignf(INFINITY, value > 0.0 ? 1.0f : -1.0f) : (float)value;
    at = put_wall_time(at, wall_time);
    at = put_varint(put_key(at, 2, VARINT), (uint64_t)step); /* Event.step = 2 */
    write_event(board, put_summary(at, tag, narrow));
}

void tx_tensorboard_close(tx_tensorboard *board)
{
    if (!board)
        return;
    if (board->file >= 0)
        close(board->file);
    free(board->record);
    free(board);
}
