/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers and dates as C writes them, whatever locale the host program has set for its own texts. Code of the library
 * that reads or prints a number with a fraction calls these. */
#ifndef TX_NUMBER_H
#define TX_NUMBER_H

#include "tx_base.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* strtod and strtof. */
double tx_number_read(const char *text, char **end);
float tx_number_read_single(const char *text, char **end);
/* snprintf, vsnprintf, fprintf, vfprintf and strftime. */
int tx_format(char *text, size_t size, const char *format, ...) TX_PRINTF(3, 4);
int tx_format_list(char *text, size_t size, const char *format, va_list list) TX_PRINTF(3, 0);
int tx_print(FILE *to, const char *format, ...) TX_PRINTF(2, 3);
int tx_print_list(FILE *to, const char *format, va_list list) TX_PRINTF(2, 0);
size_t tx_format_time(char *text, size_t size, const char *format, const struct tm *time);

#endif
