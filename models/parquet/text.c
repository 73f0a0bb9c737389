/* SPDX-License-Identifier: Apache-2.0
 * Values of Parquet files as JSON text. */
#include "models/parquet/text.h"

#include "api/base/half.h"
#include "api/base/number.h"
#include "models/tokenizer/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Bytes of the longest decimal that is written, and of its value in the file. */
#define DIGITS_MOST 160
#define DECIMAL_MOST 64

static void print(tx_buffer *to, const char *format, ...) TX_PRINTF(2, 3);
static void print(tx_buffer *to, const char *format, ...)
{
    char text[96];
    va_list args;
    va_start(args, format);
    const int size = tx_format_list(text, sizeof text, format, args);
    va_end(args);
    tx_buffer_add(to, text, size < (int)sizeof text ? (size_t)size : sizeof text - 1);
}

/* ---- Strings ------------------------------------------------------------------------------------------------- */

/* Whether none of eight bytes is a control character, a quote, a backslash or not ASCII. */
static bool is_plain(const char *text)
{
    const uint64_t ones = UINT64_MAX / 255, high = ones << 7;
    uint64_t word;
    memcpy(&word, text, 8);
    const uint64_t quote = word ^ ones * '"', slash = word ^ ones * '\\';
    return !((word | (word - ones * 0x20) | (quote - ones) | (slash - ones)) & high);
}

/* The number of bytes from the start that a JSON string holds as they are. */
static size_t plain_prefix(const char *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        if (size - at >= 8 && is_plain(text + at)) {
            at += 8;
            continue;
        }
        const unsigned char byte = (unsigned char)text[at];
        if (byte < 0x20 || byte == '"' || byte == '\\')
            break;
        const size_t bytes = byte < 0x80 ? 1 : tx_utf8_read(text + at, size - at, NULL);
        if (bytes == 0)
            break;
        at += bytes;
    }
    return at;
}

bool tx_pq_write_string(tx_buffer *to, const char *text, size_t size)
{
    tx_buffer_add(to, "\"", 1);
    for (size_t at = 0; at < size;) {
        const size_t plain = plain_prefix(text + at, size - at);
        tx_buffer_add(to, text + at, plain);
        at += plain;
        if (at == size)
            break;
        const unsigned char byte = (unsigned char)text[at++];
        if (byte >= 0x80)
            return false;
        if (byte == '\n' || byte == '\t' || byte == '\r')
            print(to, "\\%c", byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r');
        else if (byte < 0x20)
            print(to, "\\u%04x", byte);
        else
            print(to, "\\%c", byte);
    }
    tx_buffer_add(to, "\"", 1);
    return true;
}

/* ---- Numbers ------------------------------------------------------------------------------------------------- */

/* The fewest digits that read back the same. JSON has no NaN and no infinity. */
static void write_number(tx_buffer *to, double value, bool single)
{
    char text[32];
    if (!isfinite(value)) {
        print(to, "null");
        return;
    }
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        tx_format(text, sizeof text, "%.*g", digits, value);
        if (single ? tx_number_read_single(text, NULL) == (float)value : tx_number_read(text, NULL) == value)
            break;
    }
    print(to, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

/* The decimal digits of a big-endian two's complement number, which is destroyed; from the end of `digits` backwards.
 * Returns their number. */
static int make_digits(uint8_t *number, int size, bool *negative, char digits[DIGITS_MOST])
{
    int count = 0;
    *negative = size > 0 && number[0] & 0x80;
    for (int i = size - 1, carry = 1; i >= 0 && *negative; i--) {
        const int byte = (uint8_t)~number[i] + carry;
        number[i] = (uint8_t)byte;
        carry = byte >> 8;
    }
    bool rest = true;
    while (rest && count < DIGITS_MOST) {
        int remainder = 0;
        rest = false;
        for (int i = 0; i < size; i++) {
            const int part = remainder << 8 | number[i];
            number[i] = (uint8_t)(part / 10);
            remainder = part % 10;
            rest |= number[i] > 0;
        }
        digits[DIGITS_MOST - ++count] = (char)('0' + remainder);
    }
    return count;
}

static const char *write_decimal(tx_buffer *to, const tx_pq_node *leaf, const tx_pq_value *value)
{
    uint8_t number[DECIMAL_MOST];
    char digits[DIGITS_MOST];
    const bool integer = leaf->type == TX_PQ_INT32 || leaf->type == TX_PQ_INT64;
    const int size = integer ? 8 : (int)(value->bytes.size < DECIMAL_MOST + 1 ? value->bytes.size : DECIMAL_MOST + 1);
    bool negative;
    if (size > DECIMAL_MOST || leaf->scale >= DIGITS_MOST - 1 || leaf->type == TX_PQ_BOOLEAN ||
        leaf->type == TX_PQ_INT96 || leaf->type == TX_PQ_FLOAT || leaf->type == TX_PQ_DOUBLE)
        return "a decimal number of an unknown form";
    for (int i = 0; i < size; i++)
        number[i] = (uint8_t)(integer ? (uint64_t)value->integer >> (56 - 8 * i) : value->bytes.data[i]);
    int count = make_digits(number, size, &negative, digits);
    while (count <= leaf->scale) /* a digit before the point */
        digits[DIGITS_MOST - ++count] = '0';
    const char *first = digits + DIGITS_MOST - count;
    if (negative)
        tx_buffer_add(to, "-", 1);
    tx_buffer_add(to, first, (size_t)(count - leaf->scale));
    if (leaf->scale) {
        tx_buffer_add(to, ".", 1);
        tx_buffer_add(to, first + count - leaf->scale, (size_t)leaf->scale);
    } else if (count > 18) {
        tx_buffer_add(to, ".0", 2); /* readers of JSON take integers of 64 bits */
    }
    return NULL;
}

/* ---- Times --------------------------------------------------------------------------------------------------- */

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* a - floor_divide(a, b) * b, whose product may overflow. */
static int64_t floor_modulo(int64_t a, int64_t b)
{
    return a % b < 0 ? a % b + b : a % b;
}

/* The date of any day since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms", civil_from_days). */
static void write_date(tx_buffer *to, int64_t days)
{
    const int64_t cycle = 146097, shifted = floor_modulo(days, cycle) + 719468, day = shifted % cycle;
    const int64_t era = floor_divide(days, cycle) + shifted / cycle;
    const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    const int64_t of_year = day - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    print(to, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year + era * 400 + (month >= 10),
          month < 10 ? month + 3 : month - 9, of_year - (153 * month + 2) / 5 + 1);
}

/* `ticks` since midnight, `second` of which are a second. The fraction is left out if it is 0, and has 6 digits unless
 * it needs 9. */
static void write_clock(tx_buffer *to, int64_t ticks, int64_t second)
{
    const int64_t seconds = ticks / second, nanoseconds = ticks % second * (1000000000 / second);
    print(to, "%02" PRId64 ":%02" PRId64 ":%02" PRId64, seconds / 3600, seconds / 60 % 60, seconds % 60);
    if (nanoseconds % 1000)
        print(to, ".%09" PRId64, nanoseconds);
    else if (nanoseconds)
        print(to, ".%06" PRId64, nanoseconds / 1000);
}

static void write_time(tx_buffer *to, const tx_pq_node *leaf, int64_t ticks, int digits, bool has_date)
{
    const int64_t second = digits == 3 ? 1000 : digits == 6 ? 1000000 : 1000000000, day = 86400 * second;
    tx_buffer_add(to, "\"", 1);
    if (has_date) {
        write_date(to, floor_divide(ticks, day));
        tx_buffer_add(to, "T", 1);
    }
    write_clock(to, floor_modulo(ticks, day), second);
    print(to, has_date && leaf->utc ? "+00:00\"" : "\"");
}

/* ---- All ----------------------------------------------------------------------------------------------------- */

static const char *write_bytes(tx_buffer *to, const tx_pq_node *leaf, const tx_pq_value *value)
{
    const uint8_t *b = value->bytes.data;
    if (leaf->meaning == TX_PQ_UUID && value->bytes.size == 16) {
        print(to, "\"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7],
              b[8], b[9]);
        print(to, "%02x%02x%02x%02x%02x%02x\"", b[10], b[11], b[12], b[13], b[14], b[15]);
        return NULL;
    }
    if (leaf->meaning == TX_PQ_HALF && value->bytes.size == 2) {
        write_number(to, tx_f16_to_f32((uint16_t)(b[0] | b[1] << 8)), true);
        return NULL;
    }
    if (leaf->meaning == TX_PQ_INTERVAL)
        return "an interval, which TX does not read";
    return tx_pq_write_string(to, (const char *)b, value->bytes.size) ? NULL : "bytes that are no UTF-8 text";
}

static void write_integer(tx_buffer *to, const tx_pq_node *leaf, int64_t value)
{
    if (leaf->meaning == TX_PQ_UNSIGNED)
        print(to, "%" PRIu64, leaf->type == TX_PQ_INT32 ? (uint64_t)(uint32_t)value : (uint64_t)value);
    else
        print(to, "%" PRId64, value);
}

bool tx_pq_is_key(const tx_pq_value *value)
{
    return !value->bytes.size || !memchr(value->bytes.data, '\0', value->bytes.size);
}

const char *tx_pq_write_value(tx_buffer *to, const tx_pq_node *leaf, const tx_pq_value *value)
{
    const bool integer = leaf->type == TX_PQ_INT32 || leaf->type == TX_PQ_INT64;
    if (leaf->meaning == TX_PQ_DECIMAL)
        return write_decimal(to, leaf, value);
    if (leaf->type == TX_PQ_INT96) {
        write_time(to, leaf, value->integer, 9, true);
    } else if (integer && leaf->meaning == TX_PQ_DATE) {
        tx_buffer_add(to, "\"", 1);
        write_date(to, value->integer);
        tx_buffer_add(to, "\"", 1);
    } else if (integer && (leaf->meaning == TX_PQ_TIME || leaf->meaning == TX_PQ_TIMESTAMP)) {
        write_time(to, leaf, value->integer, leaf->second, leaf->meaning == TX_PQ_TIMESTAMP);
    } else if (leaf->type == TX_PQ_BOOLEAN) {
        print(to, value->integer ? "true" : "false");
    } else if (integer) {
        write_integer(to, leaf, value->integer);
    } else if (leaf->type == TX_PQ_FLOAT || leaf->type == TX_PQ_DOUBLE) {
        write_number(to, value->number, leaf->type == TX_PQ_FLOAT);
    } else {
        return write_bytes(to, leaf, value);
    }
    return NULL;
}
