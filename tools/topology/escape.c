/* SPDX-License-Identifier: Apache-2.0
 * Values in the page, escaped. */
#include "tools/topology/txtopo.h"

#include <stdarg.h>
#include <string.h>

/* Text with what HTML would read as its own escaped, for attributes as well. */
static void escape(FILE *out, const char *text)
{
    static const char *const names[] = {['<'] = "&lt;", ['>'] = "&gt;", ['&'] = "&amp;", ['"'] = "&quot;"};
    for (; *text; text++) {
        const size_t c = (unsigned char)*text;
        if (c < sizeof names / sizeof names[0] && names[c])
            fputs(names[c], out);
        else
            fputc(*text, out);
    }
}

void tx_html(FILE *out, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (const char *at = format; *at;) {
        const size_t plain = strcspn(at, "%");
        fwrite(at, 1, plain, out);
        at += plain;
        if (!*at)
            break;
        const size_t length = strcspn(at, "sdxfg") + 1;
        char directive[16];
        snprintf(directive, sizeof directive, "%.*s", (int)length, at);
        at += length;
        if (at[-1] == 's')
            escape(out, va_arg(values, const char *));
        else if (at[-1] == 'd' || at[-1] == 'x')
            fprintf(out, directive, va_arg(values, int));
        else
            fprintf(out, directive, va_arg(values, double));
    }
    va_end(values);
}
