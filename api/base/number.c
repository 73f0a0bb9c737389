/* SPDX-License-Identifier: Apache-2.0
 * Numbers and dates in the locale "C". The thread has it only during a call, so that the host's locale, also that of
 * its other threads, stays. */
#define _POSIX_C_SOURCE 200809L
#include "api/base/number.h"

#include <locale.h>
#include <stdlib.h>

/* Evaluates `call` in the locale "C", for which the C library allocates nothing. */
#define IN_C(call)                                                   \
    do {                                                             \
        const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); \
        const locale_t host = uselocale(c);                          \
        call;                                                        \
        uselocale(host);                                             \
        freelocale(c);                                               \
    } while (0)

double tx_number_read(const char *text, char **end)
{
    double number;
    IN_C(number = strtod(text, end));
    return number;
}

float tx_number_read_single(const char *text, char **end)
{
    float number;
    IN_C(number = strtof(text, end));
    return number;
}

int tx_format_list(char *text, size_t size, const char *format, va_list list)
{
    int length;
    IN_C(length = vsnprintf(text, size, format, list));
    return length;
}

int tx_format(char *text, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int length = tx_format_list(text, size, format, list);
    va_end(list);
    return length;
}

int tx_print_list(FILE *to, const char *format, va_list list)
{
    int length;
    IN_C(length = vfprintf(to, format, list));
    return length;
}

int tx_print(FILE *to, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int length = tx_print_list(to, format, list);
    va_end(list);
    return length;
}

size_t tx_format_time(char *text, size_t size, const char *format, const struct tm *time)
{
    size_t length;
    IN_C(length = strftime(text, size, format, time));
    return length;
}
