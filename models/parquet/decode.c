/* SPDX-License-Identifier: Apache-2.0
 * The encodings of Parquet's pages. */
#include "models/parquet/decode.h"

#include "api/base/arithmetic.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of strings that share their beginnings, and more for each byte that is stored. */
#define DELTA_BYTES ((int64_t)4 << 20)
#define DELTA_RATIO 1024

#define CUT_OFF "its values are cut off"
#define DAMAGED "its values are damaged"

static bool read_varint(tx_pq_bytes *in, uint64_t *value)
{
    return tx_varint_read(&in->at, in->end, value);
}

/* Number `index` of numbers of `bits` bits, 1 to 64, packed from the lowest bit of each byte on. */
static uint64_t unpack(const uint8_t *packed, const uint8_t *end, int bits, int64_t index)
{
    const int64_t bit = index * bits;
    const uint8_t *at = packed + bit / 8;
    const int shift = (int)(bit % 8);
    const int64_t left = end - at;
    uint64_t word;
    if (left >= 8)
        memcpy(&word, at, 8); /* little-endian machines only, as models/data/tokens.h */
    else
        word = tx_fixed_read(at, (int)left);
    word >>= shift;
    if (shift + bits > 64 && left > 8)
        word |= (uint64_t)at[8] << (64 - shift);
    return bits == 64 ? word : word & (((uint64_t)1 << bits) - 1);
}

int tx_pq_bits(uint32_t most)
{
    int bits = 0;
    for (; most; most >>= 1)
        bits++;
    return bits;
}

/* ---- Runs --------------------------------------------------------------------------------------------- */

/* A run: `count` times `value`, or, with `packed`, so many packed numbers. */
typedef struct run {
    int64_t count;
    uint32_t value;
    const uint8_t *packed, *end;
} run;

static const char *next_run(tx_pq_bytes *in, int bits, run *r)
{
    uint64_t header;
    if (!read_varint(in, &header))
        return CUT_OFF;
    if (header >> 1 > INT32_MAX || header >> 1 == 0)
        return DAMAGED;
    const int64_t count = (int64_t)(header >> 1), left = in->end - in->at;
    int64_t bytes = header & 1 ? count * bits : tx_ceil_div(bits, 8);
    if (!(header & 1) && bytes > left)
        return CUT_OFF;
    bytes = bytes < left ? bytes : left; /* the last run of packed numbers may lack its padding */
    *r = (run){.count = header & 1 ? 8 * count : count};
    if (header & 1) {
        r->packed = in->at;
        r->end = in->at + bytes;
        if (bits && r->count > 8 * bytes / bits)
            r->count = 8 * bytes / bits;
    } else
        r->value = (uint32_t)tx_fixed_read(in->at, (int)bytes);
    in->at += bytes;
    return r->count > 0 ? NULL : CUT_OFF;
}

const char *tx_pq_decode_runs(tx_pq_bytes *in, int bits, int64_t count, uint32_t *numbers)
{
    for (int64_t done = 0; done < count;) {
        run r;
        const char *fault = next_run(in, bits, &r);
        if (fault)
            return fault;
        const int64_t take = r.count < count - done ? r.count : count - done;
        for (int64_t i = 0; i < take; i++)
            numbers[done + i] = r.packed && bits ? (uint32_t)unpack(r.packed, r.end, bits, i) : r.value;
        done += take;
    }
    return NULL;
}

/* ---- Plain ----------------------------------------------------------------------------------------------- */

/* Nanoseconds since 1970 of the old form of timestamps: nanoseconds of the day, and the Julian day. */
static int64_t read_int96(const uint8_t *bytes)
{
    const uint64_t nanoseconds = tx_fixed_read(bytes, 8), days = tx_fixed_read(bytes + 8, 4) - 2440588;
    return (int64_t)(days * 86400000000000u + nanoseconds);
}

static tx_pq_value read_number(tx_pq_type type, const uint8_t *at)
{
    float single;
    tx_pq_value v = {0};
    switch (type) {
    case TX_PQ_INT32:
        v.integer = (int32_t)tx_fixed_read(at, 4);
        break;
    case TX_PQ_INT64:
        v.integer = (int64_t)tx_fixed_read(at, 8);
        break;
    case TX_PQ_INT96:
        v.integer = read_int96(at);
        break;
    case TX_PQ_FLOAT:
        memcpy(&single, at, 4);
        v.number = single;
        break;
    default:
        memcpy(&v.number, at, 8);
        break;
    }
    return v;
}

/* Bytes of a value; 0 of booleans and of strings of any length. */
static int64_t width_of(const tx_pq_node *leaf)
{
    static const uint8_t widths[TX_PQ_TYPES] = {
        [TX_PQ_INT32] = 4, [TX_PQ_INT64] = 8, [TX_PQ_INT96] = 12, [TX_PQ_FLOAT] = 4, [TX_PQ_DOUBLE] = 8};
    return leaf->type == TX_PQ_FIXED_BYTES ? leaf->width : widths[leaf->type];
}

static tx_pq_value read_fixed(const tx_pq_node *leaf, const uint8_t *at)
{
    return leaf->type == TX_PQ_FIXED_BYTES ? (tx_pq_value){.bytes = {at, (uint32_t)leaf->width}}
                                           : read_number(leaf->type, at);
}

static const char *decode_plain(const tx_pq_node *leaf, tx_pq_bytes in, int64_t count, tx_pq_value *values)
{
    const int64_t left = in.end - in.at, width = width_of(leaf);
    if (leaf->type == TX_PQ_BOOLEAN) {
        if (left < tx_ceil_div(count, 8))
            return CUT_OFF;
        for (int64_t i = 0; i < count; i++)
            values[i].integer = in.at[i / 8] >> (i % 8) & 1;
        return NULL;
    }
    if (leaf->type != TX_PQ_BYTES) {
        if (width && left / width < count)
            return CUT_OFF;
        for (int64_t i = 0; i < count; i++)
            values[i] = read_fixed(leaf, in.at + i * width);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        if (in.end - in.at < 4)
            return CUT_OFF;
        const uint32_t size = (uint32_t)tx_fixed_read(in.at, 4);
        in.at += 4;
        if (size > in.end - in.at)
            return CUT_OFF;
        values[i] = (tx_pq_value){.bytes = {in.at, size}};
        in.at += size;
    }
    return NULL;
}

/* ---- Differences ------------------------------------------------------------------------------------------ */

/* `count` integers, each stored as the difference to the one before, packed in blocks. */
static const char *decode_delta(tx_pq_bytes *in, int64_t count, int64_t *numbers)
{
    uint64_t block, minis, total, sum, coded;
    if (!read_varint(in, &block) || !read_varint(in, &minis) || !read_varint(in, &total) || !read_varint(in, &coded))
        return CUT_OFF;
    const int64_t first = tx_zigzag(coded);
    if (minis == 0 || block == 0 || block > INT32_MAX || block % minis || block / minis % 8 || total != (uint64_t)count)
        return DAMAGED;
    const int64_t each = (int64_t)(block / minis);
    sum = (uint64_t)first;
    if (count > 0)
        numbers[0] = first;
    for (int64_t done = 1; done < count;) {
        if (!read_varint(in, &coded) || (uint64_t)(in->end - in->at) < minis)
            return CUT_OFF;
        const int64_t least = tx_zigzag(coded);
        const uint8_t *widths = in->at;
        in->at += minis;
        for (uint64_t m = 0; m < minis && done < count; m++) {
            const int bits = widths[m];
            const int64_t bytes = each * bits / 8, take = each < count - done ? each : count - done;
            if (bits > 64)
                return DAMAGED;
            if (bytes > in->end - in->at && take * bits > 8 * (in->end - in->at))
                return CUT_OFF;
            const uint8_t *packed = in->at, *end = bytes < in->end - in->at ? packed + bytes : in->end;
            for (int64_t i = 0; i < take; i++) { /* differences wrap, as in the format */
                sum += (uint64_t)least + (bits ? unpack(packed, end, bits, i) : 0);
                numbers[done + i] = (int64_t)sum;
            }
            done += take;
            in->at = end;
        }
    }
    return NULL;
}

static const char *decode_delta_integers(const tx_pq_node *leaf, tx_pq_bytes in, int64_t count, tx_pq_value *values)
{
    int64_t *numbers = malloc(((size_t)count + 1) * sizeof *numbers);
    const char *fault = numbers ? decode_delta(&in, count, numbers) : "no memory for its values";
    for (int64_t i = 0; i < count && !fault; i++)
        values[i].integer = leaf->type == TX_PQ_INT32 ? (int32_t)numbers[i] : numbers[i];
    free(numbers);
    return fault;
}

/* Strings whose lengths come first. */
static const char *decode_lengths(tx_pq_bytes *in, int64_t count, int64_t *numbers, tx_pq_value *values)
{
    const char *fault = decode_delta(in, count, numbers);
    for (int64_t i = 0; i < count && !fault; i++) {
        if (numbers[i] < 0 || numbers[i] > in->end - in->at || numbers[i] > UINT32_MAX)
            return CUT_OFF;
        values[i] = (tx_pq_value){.bytes = {in->at, (uint32_t)numbers[i]}};
        in->at += numbers[i];
    }
    return fault;
}

/* Strings that share their beginning with the string before. The bytes of all are put together in `decoded`, which is
 * reserved first so that it does not move; `most` bounds it. */
static const char *join_prefixes(const int64_t *prefix, int64_t count, int64_t most, tx_pq_value *values,
                                 tx_buffer *decoded)
{
    int64_t total = 0, before = 0;
    for (int64_t i = 0; i < count; i++) {
        if (prefix[i] < 0 || prefix[i] > before)
            return DAMAGED;
        before = prefix[i] + values[i].bytes.size;
        total += before;
        if (total > most)
            return "its values are too large";
    }
    if (tx_buffer_reserve(decoded, (size_t)total + 1))
        return "no memory for its values";
    const uint8_t *last = NULL;
    for (int64_t i = 0; i < count; i++) {
        uint8_t *to = (uint8_t *)decoded->data + decoded->size;
        if (prefix[i])
            memcpy(to, last, (size_t)prefix[i]);
        if (values[i].bytes.size)
            memcpy(to + prefix[i], values[i].bytes.data, values[i].bytes.size);
        values[i].bytes.data = last = to;
        values[i].bytes.size += (uint32_t)prefix[i];
        decoded->size += values[i].bytes.size;
    }
    return NULL;
}

static const char *decode_delta_strings(bool prefixes, tx_pq_bytes in, int64_t count, tx_pq_value *values,
                                        tx_buffer *decoded)
{
    const size_t room = (size_t)count + 1;
    const int64_t most = DELTA_BYTES + DELTA_RATIO * (in.end - in.at);
    int64_t *prefix = malloc(2 * room * sizeof *prefix);
    const char *fault = prefix ? NULL : "no memory for its values";
    if (!fault && prefixes)
        fault = decode_delta(&in, count, prefix);
    if (!fault)
        fault = decode_lengths(&in, count, prefix + room, values);
    if (!fault && prefixes)
        fault = join_prefixes(prefix, count, most, values, decoded);
    free(prefix);
    return fault;
}

/* ---- Streams of bytes ------------------------------------------------------------------------------------- */

/* Byte k of all values, for each k in turn. */
static const char *decode_split(const tx_pq_node *leaf, tx_pq_bytes in, int64_t count, tx_pq_value *values,
                                tx_buffer *decoded)
{
    const int64_t width = width_of(leaf);
    if (width == 0 || (in.end - in.at) / width < count)
        return CUT_OFF;
    const int64_t stride = (in.end - in.at) / width;
    if (tx_buffer_reserve(decoded, (size_t)(count * width) + 1))
        return "no memory for its values";
    for (int64_t i = 0; i < count; i++) {
        uint8_t *to = (uint8_t *)decoded->data + decoded->size;
        for (int64_t k = 0; k < width; k++)
            to[k] = in.at[k * stride + i];
        values[i] = read_fixed(leaf, to);
        decoded->size += (size_t)width;
    }
    return NULL;
}

/* ---- All -------------------------------------------------------------------------------------------------- */

static const char *decode_booleans(tx_pq_bytes in, int64_t count, tx_pq_value *values)
{
    uint32_t *truths = malloc(((size_t)count + 1) * sizeof *truths);
    if (!truths)
        return "no memory for its values";
    const char *fault = in.end - in.at < 4 ? CUT_OFF : NULL;
    in.at += fault ? 0 : 4; /* the number of bytes, which the page has said before */
    if (!fault)
        fault = tx_pq_decode_runs(&in, 1, count, truths);
    for (int64_t i = 0; i < count && !fault; i++)
        values[i].integer = truths[i];
    free(truths);
    return fault;
}

const char *tx_pq_decode(const tx_pq_node *leaf, tx_pq_encoding encoding, tx_pq_bytes in, int64_t count,
                         tx_pq_value *values, tx_buffer *decoded)
{
    const bool integers = leaf->type == TX_PQ_INT32 || leaf->type == TX_PQ_INT64;
    const bool strings = leaf->type == TX_PQ_BYTES || leaf->type == TX_PQ_FIXED_BYTES;
    if (encoding == TX_PQ_PLAIN_ENCODING)
        return decode_plain(leaf, in, count, values);
    if (encoding == TX_PQ_RLE && leaf->type == TX_PQ_BOOLEAN)
        return decode_booleans(in, count, values);
    if (encoding == TX_PQ_DELTA_BINARY_PACKED && integers)
        return decode_delta_integers(leaf, in, count, values);
    if (encoding == TX_PQ_DELTA_LENGTH_BYTES && leaf->type == TX_PQ_BYTES)
        return decode_delta_strings(false, in, count, values, decoded);
    if (encoding == TX_PQ_DELTA_BYTES && strings)
        return decode_delta_strings(true, in, count, values, decoded);
    if (encoding == TX_PQ_BYTE_STREAM_SPLIT && width_of(leaf))
        return decode_split(leaf, in, count, values, decoded);
    return "its encoding does not fit its type";
}
