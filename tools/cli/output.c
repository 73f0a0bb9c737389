/* SPDX-License-Identifier: Apache-2.0
 * JSON and HTML pages that programs write. */
#include "tools/cli/output.h"

#include "tx_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_print_json(const tx_json *json)
{
    char *text = tx_json_text(json, TX_JSON_LINE);
    if (!text)
        return TX_MEMORY;
    puts(text);
    free(text);
    return TX_OK;
}

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

tx_status tx_page_text(const unsigned char *page, const tx_json *data, char **text, size_t *size)
{
    char *json = tx_json_text(data, TX_JSON_LINE), *created = NULL;
    FILE *to = json ? open_memstream(&created, size) : NULL;
    if (to)
        fill_page(to, (const char *)page, json);
    bool whole = to && !ferror(to);
    if (to && fclose(to))
        whole = false;
    free(json);
    *text = whole ? created : NULL;
    if (whole)
        return TX_OK;
    free(created);
    return tx_fail(TX_MEMORY, "no memory for the page");
}

tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data)
{
    char *text = NULL;
    size_t size = 0;
    tx_status status = tx_fail_in(tx_page_text(page, data, &text, &size), "%s", path);
    if (!status && strcmp(path, "-") == 0) {
        fwrite(text, 1, size, stdout);
        if (fflush(stdout) || ferror(stdout))
            status = tx_fail(TX_IO, "standard output: cannot write");
    } else if (!status) {
        status = tx_file_write_output(path, text, size);
    }
    free(text);
    return status;
}
