/* SPDX-License-Identifier: Apache-2.0
 * Derives merges from the scores of pieces. */
#include "models/tokenizer/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    double score;
    int32_t id;           /* of the merged piece */
    uint16_t left, right; /* numbers of characters */
    uint16_t at;          /* bytes of the left part */
} pair;

static int compare_open(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left != y->left)
        return x->left > y->left ? -1 : 1;
    if (x->right != y->right)
        return x->right > y->right ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_closed(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->left > y->left) - (x->left < y->left);
}

typedef struct pairs {
    pair *at;
    size_t count, room;
} pairs;

static bool is_part(const tx_pieces *p, const char *text)
{
    const int32_t id = tx_named_find(p->names, p->count, text);
    return id >= 0 && (!p->closed || p->normal[id]);
}

/* Finds all pairs of pieces that make a piece. */
static tx_status split_piece(const tx_pieces *p, int32_t id, pairs *all)
{
    char left[TX_PIECE_MOST + 1];
    const char *text = p->text[id];
    const size_t size = strlen(text);
    size_t characters = 0, before = 0;
    for (size_t i = 0; i < size; i++)
        characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    for (size_t i = 1; i < size; i++) {
        before += ((unsigned char)text[i - 1] & 0xC0) != 0x80;
        if (((unsigned char)text[i] & 0xC0) == 0x80)
            continue;
        memcpy(left, text, i);
        left[i] = '\0';
        if (!is_part(p, left) || !is_part(p, text + i))
            continue;
        TX_TRY(tx_array_reserve(&all->at, &all->room, all->count + 1, sizeof *all->at, "merges"));
        all->at[all->count++] =
            (pair){p->score[id], id, (uint16_t)before, (uint16_t)(characters - before), (uint16_t)i};
    }
    return TX_OK;
}

tx_status tx_pieces_add_merge(const char *left, size_t left_size, const char *right, tx_json *merges)
{
    char text[TX_PIECE_MOST + 1];
    snprintf(text, sizeof text, "%.*s", (int)left_size, left);
    tx_json *both = tx_json_array();
    TX_TRY(tx_json_append(merges, both));
    TX_TRY(tx_json_append_string(both, text));
    return tx_json_append_string(both, right);
}

tx_status tx_pieces_add_merges(const tx_pieces *p, tx_json *merges)
{
    pairs all = {0};
    tx_status status = TX_OK;
    for (size_t id = 0; id < p->count && !status; id++)
        if (p->normal[id])
            status = split_piece(p, (int32_t)id, &all);
    if (all.count)
        qsort(all.at, all.count, sizeof *all.at, p->closed ? compare_closed : compare_open);
    for (size_t i = 0; i < all.count && !status; i++)
        status = tx_pieces_add_merge(p->text[all.at[i].id], all.at[i].at, p->text[all.at[i].id] + all.at[i].at, merges);
    free(all.at);
    return status;
}
