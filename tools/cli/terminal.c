/* SPDX-License-Identifier: Apache-2.0
 * The width and the colours of terminals. */
#include "tools/cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

size_t tx_terminal_width(int descriptor)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    const long given = columns ? strtol(columns, NULL, 10) : 0;
    if (given >= TX_LEAST_WIDTH)
        return (size_t)given;
    if (!isatty(descriptor) || ioctl(descriptor, TIOCGWINSZ, &size) || size.ws_col < TX_LEAST_WIDTH)
        return TX_STANDARD_WIDTH;
    return size.ws_col;
}

bool tx_terminal_has_colors(int descriptor)
{
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(descriptor) && !(off && *off) && term && strcmp(term, "dumb") != 0;
}

size_t tx_print_filled(const char *text, size_t length, size_t width, size_t column, size_t indent)
{
    for (size_t at = 0, word; at < length; at += word) {
        const size_t blanks = strspn(text + at, " \n");
        const size_t end = at + blanks + strcspn(text + at + blanks, " \n|");
        word = (end < length ? end + (text[end] == '|') : length) - at;
        if (blanks >= word)
            continue;
        if (column + word > width && column > indent) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        } else {
            const size_t before = column == 0 || blanks == 0 ? 0 : text[at] == '\n' ? 1 : blanks;
            printf("%*s", (int)before, "");
            column += before;
        }
        printf("%.*s", (int)(word - blanks), text + at + blanks);
        column += word - blanks;
    }
    return column;
}
