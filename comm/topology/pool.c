/* SPDX-License-Identifier: Apache-2.0
 * The strings of a topology. They come from drivers and files: what leaves the pool can be printed on a terminal and
 * written as JSON. */
#include "comm/topology/pool.h"

#include <stdbool.h>
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

/* Bytes of the UTF-8 character at `text`, whose shortest form it must be; 0 where there is none. */
static size_t character(const unsigned char *text)
{
    static const struct form {
        unsigned char first, last;     /* of the first byte */
        unsigned char second, seconds; /* limits of the second */
        size_t size;
    } forms[] = {{0x20, 0x7E, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                 {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
                 {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *f = &forms[i];
        if (text[0] < f->first || text[0] > f->last)
            continue;
        if (f->size > 1 && (text[1] < f->second || text[1] > f->seconds))
            return 0;
        for (size_t k = 2; k < f->size; k++)
            if ((text[k] & 0xC0) != 0x80)
                return 0;
        /* C1 controls move a terminal's cursor as well. */
        return text[0] == 0xC2 && text[1] < 0xA0 ? 0 : f->size;
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
