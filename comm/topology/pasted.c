/* SPDX-License-Identifier: Apache-2.0
 * Lines and words of text that was copied from a terminal. */
#include "comm/topology/pasted.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

tx_status tx_pasted_begin(tx_pasted *pasted, const char *text, size_t size)
{
    char *copy = malloc(size + 1), *to = copy;
    *pasted = (tx_pasted){.text = copy, .rest = copy};
    if (!copy)
        return tx_fail(TX_MEMORY, "topology: out of memory");
    while (*text) {
        if (*text != '\x1b') {
            *to++ = *text++;
            continue;
        }
        /* ESC [ ... letter */
        text += text[1] == '[' ? 2 + strspn(text + 2, "0123456789;?") : 0;
        text += *text && *text != '\n';
    }
    *to = '\0';
    return TX_OK;
}

bool tx_pasted_next(tx_pasted *pasted, tx_status *status)
{
    char *line = pasted->rest, *end = line + strcspn(line, "\n"), *left = NULL;
    if (!*line)
        return false;
    pasted->rest = end + (*end == '\n');
    *end = '\0';
    pasted->line++;
    pasted->count = 0;
    for (char *word = strtok_r(line, " \t\r\v\f", &left); word; word = strtok_r(NULL, " \t\r\v\f", &left)) {
        if (pasted->count == TX_PASTED_WORDS) {
            *status = tx_fail(TX_FORMAT, "more than %d devices", TX_TOPO_DEVICES_MAX);
            return false;
        }
        pasted->words[pasted->count++] = word;
    }
    return true;
}

int32_t tx_pasted_digits(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length <= 6 && strspn(text, "0123456789") == length ? (int32_t)strtol(text, NULL, 10) : -1;
}

bool tx_pasted_gpu(const char *word)
{
    return strncasecmp(word, "GPU", 3) == 0 && tx_pasted_digits(word + 3) >= 0;
}
