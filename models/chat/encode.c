/* SPDX-License-Identifier: Apache-2.0
 * From texts of conversations to ids, and which of these are learnt. */
#include "models/chat/chat.h"

#include <stdlib.h>
#include <string.h>

/* How many of `ids` the beginning of the text up to byte `at` settles. `whole`: it ends where the last of them does. */
static tx_status settled(tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks, size_t at,
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

/* Marks the ids of bytes begin..end-1: a token that has some of them belongs to them. */
static tx_status mark(tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks, size_t begin, size_t end,
                      const tx_ids *ids, tx_ids *scratch, int32_t *learnt)
{
    size_t first, last = ids->count;
    bool whole = true;
    TX_TRY(settled(encoder, text, marks, begin, ids, scratch, &first, &whole));
    if (end < text->bytes.size)
        TX_TRY(settled(encoder, text, marks, end, ids, scratch, &last, &whole));
    last += !whole && last < ids->count;
    for (size_t i = first; i < last; i++)
        learnt[i] = 1;
    return TX_OK;
}

static tx_status mark_all(tx_encoder *encoder, const tx_chat_text *text, const tx_marks *marks, const tx_ids *ids,
                          tx_ids *learnt)
{
    tx_ids scratch = {0};
    tx_status status = TX_OK;
    learnt->count = 0;
    TX_TRY(tx_ids_reserve(learnt, ids->count));
    learnt->count = ids->count;
    if (ids->count)
        memset(learnt->id, 0, ids->count * sizeof *learnt->id);
    for (size_t i = 0; i < text->parts && !status;) {
        const size_t begin = i ? text->part[i - 1].end : 0;
        const bool answer = text->answer[i];
        while (i < text->parts && text->answer[i] == answer)
            i++;
        const size_t end = text->part[i - 1].end;
        if (answer && end > begin)
            status = mark(encoder, text, marks, begin, end, ids, &scratch, learnt->id);
    }
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
    return learnt ? mark_all(encoder, text, &marks, ids, learnt) : TX_OK;
}
