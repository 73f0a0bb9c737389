/* SPDX-License-Identifier: Apache-2.0
 * Status codes and the thread's error message. */
#include "api/base/needs.h"
#include "api/base/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[4096];

const char *tx_error(void)
{
    return message;
}

const char *tx_status_text(tx_status status)
{
    switch (status) {
#define X(name, value, text) \
    case TX_##name:          \
        return text;
        TX_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

void tx_escape(const char *text, char *safe, size_t size)
{
    TX_NEEDS(text && safe && size, );
    static const char hexadecimal[] = "0123456789abcdef";
    size_t used = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c && used + 5 < size; c++) {
        /* U+0080 to U+009F are control characters of a terminal too. */
        const bool second = *c >= 0x80 && *c < 0xA0 && (const char *)c > text && c[-1] == 0xC2;
        if (second) {
            used--; /* together with its first byte */
            used += (size_t)snprintf(safe + used, size - used, "\\u00%c%c", hexadecimal[*c >> 4], hexadecimal[*c & 15]);
        } else if (*c == '\t') {
            safe[used++] = ' ';
        } else if (*c == '\n' || *c == '\r') {
            safe[used++] = '\\';
            safe[used++] = *c == '\n' ? 'n' : 'r';
        } else if (*c < ' ' || *c == 0x7F) {
            safe[used++] = '\\';
            safe[used++] = 'x';
            safe[used++] = hexadecimal[*c >> 4];
            safe[used++] = hexadecimal[*c & 15];
        } else {
            safe[used++] = (char)*c;
        }
    }
    safe[used] = '\0';
}

void tx_list_add(char *list, size_t size, const char *between, const char *format, ...)
{
    TX_NEEDS(list && size && between && format, );
    size_t used = strlen(list);
    if (used)
        snprintf(list + used, size - used, "%s", between);
    used = strlen(list);
    va_list args;
    va_start(args, format);
    tx_format_list(list + used, size - used, format, args);
    va_end(args);
}

const char *tx_s(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void set_message(const char *format, va_list args)
{
    char text[sizeof message];
    tx_format_list(text, sizeof text, format ? format : "no message", args);
    tx_escape(text, message, sizeof message);
}

tx_status tx_fail(tx_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    return status;
}

tx_status tx_fail_in(tx_status status, const char *format, ...)
{
    char old[sizeof message];
    if (status == TX_OK)
        return status;
    memcpy(old, message, sizeof message);
    va_list args;
    va_start(args, format);
    set_message(format, args);
    va_end(args);
    size_t used = strlen(message), room = sizeof message - used;
    if (room > 3)
        snprintf(message + used, room, ": %.*s", (int)room - 3, old);
    return status;
}
