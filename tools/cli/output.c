/* SPDX-License-Identifier: Apache-2.0
 * HTML pages that programs write. */
#include "tools/cli/output.h"

#include "tx_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the page with the data. "<" in a string of the data is escaped, because "</script>" would end the script. */
static void fill_page(FILE *to, const char *page, const char *json)
{
    const char *place = strstr(page, "@DATA@");
    fwrite(page, 1, (size_t)(place - page), to);
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", to);
        else
            fputc(*json, to);
    fputs(place + strlen("@DATA@"), to);
}

tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data)
{
    char *json = tx_json_text(data, TX_JSON_LINE), *text = NULL;
    size_t size = 0;
    FILE *to = json ? open_memstream(&text, &size) : NULL;
    if (to)
        fill_page(to, (const char *)page, json);
    bool whole = to && !ferror(to);
    if (to && fclose(to))
        whole = false;
    tx_status status = whole ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for the page", path);
    if (!status && strcmp(path, "-") == 0) {
        fwrite(text, 1, size, stdout);
        if (fflush(stdout) || ferror(stdout))
            status = tx_fail(TX_IO, "standard output: cannot write");
    } else if (!status) {
        status = tx_file_write_output(path, text, size);
    }
    free(text);
    free(json);
    return status;
}
