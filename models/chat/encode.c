/* SPDX-License-Identifier: Apache-2.0
 * Encodes rendered conversations, and marks the ids that get labels in training. */
#include "models/chat/chat.h"

#include "api/base/needs.h"
#include "models/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

/* ---- Marking by prefixes --------------------------------------------------------------------------------------
 * For a text whose ids have no known positions, because a normalizer changes it. */

/* Counts the ids that the prefix of the text up to byte `at` determines. `*whole` is true if it ends with the last of
 * them. */
static tx_status count_prefix(tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks, size_t at,
                              const tx_ids *ids, tx_ids *scratch, size_t *count, bool *whole)
{
    scratch->count = 0;
    TX_TRY(tx_encoder_marked(encoder, text->bytes.data, at, marks, scratch));
    size_t same = 0;
    while (same < scratch->count && same < ids->count && scratch->id[same] == ids->id[same])
        same++;
    *count = same;
    *whole = same == scratch->count;
    return TX_OK;
}

/* Marks the ids of bytes begin..end-1, which are all tokens with some of these bytes. */
static tx_status mark(tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks, size_t begin, size_t end,
                      const tx_ids *ids, tx_ids *scratch, int32_t *learnt)
{
    size_t first, last = ids->count;
    bool whole = true;
    TX_TRY(count_prefix(encoder, text, marks, begin, ids, scratch, &first, &whole));
    if (end < text->bytes.size)
        TX_TRY(count_prefix(encoder, text, marks, end, ids, scratch, &last, &whole));
    last += !whole && last < ids->count;
    for (size_t i = first; i < last; i++)
        learnt[i] = 1;
    return TX_OK;
}

/* ---- Positions of ids ------------------------------------------------------------------------------------- */

/* Maximum number of bytes of an unknown token. */
#define UNKNOWN_MOST 4096

static bool begins(const char *text, size_t size, const char *piece, size_t piece_size)
{
    return piece_size <= size && memcmp(text, piece, piece_size) == 0;
}

/* Returns true if a text begins with a piece, and sets `*taken` to its length there. The tokenizer may have added a
 * blank before the piece, which is not in the text. */
static bool match_piece(const char *text, size_t left, const char *piece, size_t size, size_t *taken)
{
    const size_t blank = size > 0 && *piece == ' ' && !begins(text, left, piece, size);
    *taken = size - blank;
    return begins(text, left, piece + blank, size - blank);
}

/* Finds the byte at which each id begins, and the end after the last. False if the ids do not match the text. */
static bool find_positions(const tx_tokenizer *tokenizer, const tx_chat_text *text, const tx_ids *ids, size_t *begin)
{
    const char *bytes = text->bytes.data, *piece;
    size_t at = 0, size, taken;
    bool unknown = false;
    for (size_t i = 0; i < ids->count; i++) {
        if (tx_tokenizer_piece(tokenizer, ids->id[i], false, &piece, &size))
            return false;
        begin[i] = at;
        if (ids->id[i] == tokenizer->unk) {
            unknown = true;
            continue;
        }
        const size_t end = text->bytes.size, most = unknown && end - at > UNKNOWN_MOST ? at + UNKNOWN_MOST : end;
        while (!match_piece(bytes + at, end - at, piece, size, &taken)) {
            if (at == most || !(unknown || (bytes[at] && strchr(" \t\r\n", bytes[at]))))
                return false;
            at++;
        }
        begin[i] = at; /* skipped bytes belong to the previous id */
        at += taken;
        unknown = false;
    }
    begin[ids->count] = text->bytes.size;
    return unknown || at == text->bytes.size;
}

/* Normalizes the text part by part. */
static tx_status normalize(const tx_tokenizer *tokenizer, const tx_chat_text *text, tx_chat_text *normal)
{
    tx_buffer scratch[2] = {{0}};
    tx_matcher *matcher = NULL;
    TX_TRY(tx_matcher_create(&matcher));
    tx_matcher_begin(matcher, text->bytes.size);
    tx_status status =
        tx_array_reserve(&normal->part, &normal->room[0], text->parts, sizeof *normal->part, "parts of a text");
    for (size_t i = 0; i < text->parts && !status; i++) {
        const size_t begin = i ? text->part[i - 1].end : 0;
        const char *bytes = text->bytes.data + begin;
        size_t size = text->part[i].end - begin;
        status = tx_normalizer_run(&tokenizer->normalizer, matcher, scratch, &bytes, &size, NULL);
        tx_buffer_add(&normal->bytes, bytes, size);
        TX_THEN(status, normal->bytes.status);
        normal->part[normal->parts++] = (tx_text_part){normal->bytes.size, text->part[i].frame};
    }
    tx_matcher_free(matcher);
    free(scratch[0].data);
    free(scratch[1].data);
    return status;
}

/* Marks the ids of bytes first..end-1, starting at id `*next`, which is advanced. An id without bytes belongs to the
 * ids after it. */
static void mark_placed(const size_t *begin, size_t count, size_t first, size_t end, size_t *next, int32_t *learnt)
{
    while (*next < count && begin[*next + 1] <= first && begin[*next] < first)
        ++*next;
    for (size_t i = *next; i < count && begin[i] < end; i++)
        learnt[i] = 1;
}

/* ---- Texts ----------------------------------------------------------------------------------------------- */

static tx_status mark_all(const tx_chat *chat, tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks,
                          const tx_ids *ids, tx_ids *learnt)
{
    tx_ids scratch = {0};
    tx_status status = TX_OK;
    learnt->count = 0;
    TX_TRY(tx_ids_reserve(learnt, ids->count));
    learnt->count = ids->count;
    if (ids->count)
        memset(learnt->id, 0, ids->count * sizeof *learnt->id);
    size_t *places = malloc((ids->count + 1) * sizeof *places), next = 0;
    if (!places)
        return tx_fail(TX_MEMORY, "no memory for the positions of %zu ids", ids->count);
    tx_chat_text normal = {0};
    const tx_chat_text *of = text;
    bool placed = find_positions(chat->tokenizer, text, ids, places);
    if (!placed && chat->tokenizer->normalizer.count) {
        status = normalize(chat->tokenizer, text, &normal);
        of = &normal;
        placed = !status && find_positions(chat->tokenizer, &normal, ids, places);
    }
    for (size_t i = 0; i < text->parts && !status;) {
        const size_t first = i;
        while (i < text->parts && text->answer[i] == text->answer[first])
            i++;
        const tx_chat_text *t = placed ? of : text;
        const size_t begin = first ? t->part[first - 1].end : 0, end = t->part[i - 1].end;
        if (!text->answer[first] || end == begin)
            continue;
        if (placed)
            mark_placed(places, ids->count, begin, end, &next, learnt->id);
        else
            status = mark(encoder, text, marks, begin, end, ids, &scratch, learnt->id);
    }
    tx_chat_text_free(&normal);
    free(places);
    free(scratch.id);
    return status;
}

tx_status tx_chat_encode(const tx_chat *chat, tx_encoder *encoder, const tx_chat_text *text, tx_ids *ids,
                         tx_ids *learnt)
{
    const tx_marks marks = {.text = text->bytes.data,
                            .part = text->part,
                            .parts = text->parts,
                            .kept = chat->kept.id,
                            .kept_count = chat->kept.count};
    ids->count = 0;
    TX_TRY(tx_encoder_marked(encoder, text->bytes.data ? text->bytes.data : "", text->bytes.size, &marks, ids));
    return learnt ? mark_all(chat, encoder, text, &marks, ids, learnt) : TX_OK;
}

tx_status tx_chat_prompt(const tx_chat *chat, tx_encoder *encoder, tx_conversation *conversation, tx_ids *ids)
{
    TX_NEEDS(chat && encoder && conversation && ids, TX_INVALID);
    tx_chat_text text = {0};
    tx_status status = tx_chat_accept(chat, conversation);
    TX_THEN(status, tx_chat_render(chat, conversation, true, TX_CHAT_NONE, &text));
    if (!status && conversation->lost)
        status = tx_fail(TX_FORMAT, "message %zu: the chat template does not render messages of the role %.40s",
                         conversation->lost, tx_conversation_role(conversation, conversation->lost - 1));
    TX_THEN(status, tx_chat_encode(chat, encoder, &text, ids, NULL));
    tx_chat_text_free(&text);
    return status;
}
