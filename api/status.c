/* SPDX-License-Identifier: Apache-2.0
 * Status codes and the thread's error message. */
#include "tx.h"

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

/* Messages quote what files and drivers say: keeps them one line, without escape sequences for a terminal. */
static void keep_one_line(void)
{
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = ' ';
}

tx_status tx_fail(tx_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    keep_one_line();
    return status;
}

tx_status tx_fail_in(tx_status status, const char *format, ...)
{
    char old[sizeof message];
    memcpy(old, message, sizeof message);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int room = (int)sizeof message - used;
    if (used >= 0 && room > 3)
        snprintf(message + used, (size_t)room, ": %.*s", room - 3, old);
    keep_one_line();
    return status;
}
