/* SPDX-License-Identifier: Apache-2.0
 * Compares the bytes of an answer with marks, and reports its pieces. Used by parser.c and calls.c. */
#include "models/chat/parser.h"

#include <string.h>

/* ---- Marks ----------------------------------------------------------------------------------------------- */

tx_match tx_parser_match(const tx_chat_parser *p, size_t at, const char *mark)
{
    const size_t rest = p->held.size - at, size = strlen(mark), most = rest < size ? rest : size;
    if (!size || memcmp(p->held.data + at, mark, most) != 0)
        return TX_MATCH_NO;
    return most == size ? TX_MATCH : p->ended ? TX_MATCH_NO : TX_MATCH_HALF;
}

bool tx_parser_skip(tx_chat_parser *p, const char *more)
{
    while (p->at < p->held.size &&
           (tx_is_blank(p->held.data[p->at]) || memchr(more, p->held.data[p->at], strlen(more))))
        p->at++;
    return p->at < p->held.size;
}

/* ---- Pieces ---------------------------------------------------------------------------------------------- */

void tx_parser_report(tx_chat_parser *p, tx_chat_piece_kind kind, const char *text, size_t size)
{
    tx_chat_piece piece = {.kind = kind, .text = text, .size = size};
    if (!p->status && size)
        p->status = p->how.piece(p->how.context, &piece);
}

void tx_parser_flush(tx_chat_parser *p, tx_chat_piece_kind kind, size_t end)
{
    while (p->from < end) {
        const char special = p->special.data[p->from];
        size_t i = p->from;
        while (i < end && p->special.data[i] == special)
            i++;
        if (!special || kind == TX_CHAT_ARGUMENTS)
            tx_parser_report(p, kind, p->held.data + p->from, i - p->from);
        p->from = i;
    }
}

bool tx_parser_to_content(tx_chat_parser *p, bool fresh)
{
    p->fresh = fresh;
    p->announced = false;
    p->body = TX_CHAT_CONTENT;
    p->at = p->from;
    p->state = fresh ? p->start : p->text;
    return true;
}
