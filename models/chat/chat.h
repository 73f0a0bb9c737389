/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations as the ids that a model is given: a chat template together with a tokenizer. */
#ifndef TX_CHAT_CHAT_H
#define TX_CHAT_CHAT_H

#include "models/chat/conversation.h"
#include "models/chat/template.h"
#include "models/report.h"
#include "models/text/buffer.h"
#include "models/text/marks.h"

/* Immutable once made. */
struct tx_chat {
    tx_chat_template template;
    tx_json *json; /* that holds the template's texts; NULL: nobody has to */
    const tx_tokenizer *tokenizer;
    bool is_own;    /* the template is the one that the tokenizer's folder has */
    bool is_chosen; /* it was named */
    tx_ids kept;    /* the added tokens in the template's texts, which are found nowhere else */
    const char *bos, *eos;
    size_t bos_size, eos_size;
    char *end;      /* what ends an answer, without white space in front */
    int32_t end_id; /* its id, where it is one token; -1: it is not */
};

/* The added token that ends an answer; -1: a plain word, or several tokens, end it. `*keeps_eos`: the template has
 * eos_token in another place. */
int32_t tx_chat_end_token(const tx_chat *chat, bool *keeps_eos);
/* Whether the tokenizer's folder has another template than this one. */
tx_status tx_chat_replaces(const tx_chat *chat, bool *replaces);
/* Writes the template as chat_template.jinja into a model's folder. */
tx_status tx_chat_save(const tx_chat *chat, const char *folder);

/* ---- Rendering (render.c) ------------------------------------------------------------------------------ */

/* Begin with {0}. */
typedef struct tx_chat_text {
    tx_buffer bytes;
    tx_text_part *part; /* what is the template's is frame */
    bool *answer;       /* by part: it is to be learnt */
    size_t parts, room[2];
} tx_chat_text;

void tx_chat_text_free(tx_chat_text *text); /* leaves {0} */
/* The text of a conversation, in the place of what `text` held. `asks`: it ends with what a model continues. TX_FORMAT
 * where the template has no place for one of the turns. Texts of the conversation that are not UTF-8 are mended. */
tx_status tx_chat_render(const tx_chat *chat, const tx_conversation *conversation, bool asks, tx_chat_text *text);
/* The same of a prompt and its completion as they are (TX_CHAT_PLAIN), eos_token behind them: the texts of special
 * tokens become their ids anywhere. Only the members tokenizer, eos and eos_size of `chat` count. */
tx_status tx_chat_render_plain(const tx_chat *chat, const tx_conversation *conversation, tx_chat_text *text);

/* ---- Ids (encode.c) ------------------------------------------------------------------------------------ */

/* The ids of a text in the place of what `ids` held, as transformers' apply_chat_template has them, but that special
 * tokens, and those of the template, are text like any other where somebody says them. Of each id `learnt` (NULL:
 * nobody asks) has 1 or 0: whether some of it is to be learnt. */
tx_status tx_chat_encode(const tx_chat *chat, tx_encoder *encoder, const tx_chat_text *text, tx_ids *ids,
                         tx_ids *learnt);

#endif
