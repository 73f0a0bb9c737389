/* SPDX-License-Identifier: Apache-2.0
 * The strings of a topology. They come from drivers and files: what leaves the pool can be printed on a terminal and
 * written as JSON. */
#include "comm/topology/draft.h"

#include <stdlib.h>
#include <string.h>

typedef struct piece {
    struct piece *next;
    char text[];
} piece;

struct tx_topo_pool {
    piece *first;
};

tx_topo_pool *tx_topo_pool_create(void)
{
    return calloc(1, sizeof(tx_topo_pool));
}

void tx_topo_pool_free(tx_topo_pool *pool)
{
    for (piece *p = pool ? pool->first : NULL; p;) {
        piece *next = p->next;
        free(p);
        p = next;
    }
    free(pool);
}

/* Bytes of the UTF-8 character at `text`, whose shortest form it must be; 0 where there is none, or a control. */
static size_t character(const unsigned char *text)
{
    static const struct {
        unsigned char mask, mark; /* of the first byte */
        unsigned least;           /* the first character that needs so many bytes and is no control */
    } forms[] = {{0x80, 0x00, 0x20}, {0xE0, 0xC0, 0xA0}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};
    for (size_t size = 1; size <= 4; size++) {
        unsigned code = text[0] & ~forms[size - 1].mask & 0xFFu;
        if ((text[0] & forms[size - 1].mask) != forms[size - 1].mark)
            continue;
        for (size_t k = 1; k < size; k++) {
            if ((text[k] & 0xC0) != 0x80)
                return 0;
            code = code << 6 | (text[k] & 0x3Fu);
        }
        const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        return code < forms[size - 1].least || code == 0x7F || surrogate || code > 0x10FFFF ? 0 : size;
    }
    return 0;
}

const char *tx_topo_pool_text(tx_topo_pool *pool, const char *text)
{
    while (*text == ' ')
        text++;
    size_t size = strlen(text);
    while (size > 0 && text[size - 1] == ' ')
        size--;
    if (size == 0)
        return "";
    piece *p = malloc(sizeof *p + size + 1);
    if (!p)
        return NULL;
    for (size_t i = 0; i < size;) {
        size_t length = character((const unsigned char *)text + i);
        if (length == 0 || length > size - i) {
            p->text[i++] = '?';
            continue;
        }
        memcpy(p->text + i, text + i, length);
        i += length;
    }
    p->text[size] = '\0';
    p->next = pool->first;
    pool->first = p;
    return p->text;
}
