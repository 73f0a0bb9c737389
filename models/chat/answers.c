/* SPDX-License-Identifier: Apache-2.0
 * Finds the bytes of a rendered conversation whose tokens get labels in training. If the template has blocks
 * `generation`, it is their contents. Otherwise it is, for each message with labels, the text after the header
 * that the loop over the messages wrote for it. */
#include "models/chat/chat.h"

#include <string.h>

static bool is_learnt(const tx_conversation *c, size_t message)
{
    return message < c->count && c->learnt[message];
}

/* Sets or clears the flag of bytes begin .. end - 1. */
static void flag(tx_jinja_text *t, size_t begin, size_t end, bool learnt)
{
    for (size_t i = begin; i < end; i++) {
        const unsigned others = (unsigned char)t->flags.data[i] & ~TX_CHAT_LEARNT;
        t->flags.data[i] = (char)(learnt ? others | TX_CHAT_LEARNT : others);
    }
}

/* Flags the contents of blocks `generation`, except for messages without labels. */
static void flag_blocks(const tx_conversation *c, tx_jinja_text *t)
{
    for (size_t i = 0; i < t->bytes.size; i++)
        flag(t, i, i + 1, (unsigned char)t->flags.data[i] & TX_JINJA_GENERATION);
    for (size_t i = 0; i < t->turns; i++)
        if (!is_learnt(c, t->turn[i].message))
            flag(t, t->turn[i].begin, t->turn[i].end, false);
}

/* Flags the answer in a turn: after the header, without white space at its end. */
static tx_status flag_turn(const tx_chat *chat, const tx_jinja_turn *turn, tx_jinja_text *t)
{
    const char *prompt = chat->header, *bytes = t->bytes.data;
    const bool last = turn == &t->turn[t->turns - 1];
    size_t begin = turn->begin, end = chat->frame.closes && last ? t->bytes.size : turn->end;
    while (*prompt && begin < end && bytes[begin] == *prompt) {
        begin++;
        prompt++;
    }
    if (begin == turn->begin && *prompt)
        return tx_fail(TX_FORMAT,
                       "message %zu: the chat template does not begin an answer with its generation prompt: mark the "
                       "answers by {%% generation %%} and {%% endgeneration %%}",
                       turn->message + 1);
    while (end > begin && strchr(" \n\t", bytes[end - 1]) && !((unsigned char)t->flags.data[end - 1] & TX_JINJA_SAID))
        end--;
    flag(t, begin, end, true);
    return TX_OK;
}

tx_status tx_chat_mark_answers(const tx_chat *chat, const tx_conversation *c, tx_jinja_text *t)
{
    size_t wanted = 0, found = 0;
    if (tx_jinja_marks_generation(chat->jinja)) {
        flag_blocks(c, t);
        return TX_OK;
    }
    for (size_t i = 0; i < c->count; i++)
        wanted += c->learnt[i];
    for (size_t i = 0; i < t->turns; i++)
        if (is_learnt(c, t->turn[i].message)) {
            TX_TRY(flag_turn(chat, &t->turn[i], t));
            found++;
        }
    return found == wanted ? TX_OK
                           : tx_fail(TX_FORMAT,
                                     "the chat template renders %zu of %zu answers to learn separately: mark them by "
                                     "{%% generation %%} "
                                     "and {%% endgeneration %%}",
                                     found, wanted);
}
