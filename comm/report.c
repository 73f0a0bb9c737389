/* SPDX-License-Identifier: Apache-2.0
 * Reports of the ranks to txlaunch. */
#include "comm/report.h"

#include "api/base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

int tx_report_descriptor(void)
{
    const char *text = getenv(TX_REPORT_VARIABLE);
    if (!text || !*text)
        return -1;
    const int named = atoi(text);
    return fcntl(named, F_GETFD) >= 0 ? named : STDERR_FILENO;
}

/* Waits until the pipe has a reader and space for a whole report. */
static bool has_room(int descriptor, double seconds)
{
    const double end = tx_now() + seconds;
    for (;;) {
        struct pollfd wanted = {.fd = descriptor, .events = POLLOUT};
        const double left = end - tx_now();
        const int ready = poll(&wanted, 1, left > 0.0 ? (int)(1000.0 * left) + 1 : 0);
        if (ready >= 0 || errno != EINTR)
            return ready > 0 && wanted.revents == POLLOUT;
    }
}

void tx_report(int descriptor, double seconds, const char *format, ...)
{
    char line[TX_REPORT_LINE];
    va_list args;
    va_start(args, format);
    const int length = tx_format_list(line + 1, sizeof line - 1, format, args);
    va_end(args);
    if (descriptor < 0 || length < 0 || length > TX_REPORT_LINE - 2)
        return;
    for (char *c = line + 1; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    line[0] = TX_REPORT_MARK;
    line[length + 1] = '\n';
    if (has_room(descriptor, seconds) && write(descriptor, line, (size_t)length + 2) < 0)
        return; /* the reader has just closed it */
}
