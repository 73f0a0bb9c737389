/* SPDX-License-Identifier: Apache-2.0
 * Renders conversations to texts whose parts are marked as the template's or as untrusted. */
#include "models/chat/chat.h"

#include <stdlib.h>
#include <string.h>

void tx_chat_text_free(tx_chat_text *text)
{
    free(text->bytes.data);
    free(text->part);
    free(text->answer);
    tx_jinja_text_free(&text->rendered);
    *text = (tx_chat_text){0};
}

/* ---- Parts ---------------------------------------------------------------------------------------------- */

/* Adds a part, from the end of the part before to `end`. */
static tx_status end_part(tx_chat_text *t, size_t end, bool frame, bool answer)
{
    if (end == (t->parts ? t->part[t->parts - 1].end : 0))
        return TX_OK;
    TX_TRY(tx_array_reserve(&t->part, &t->room[0], t->parts + 1, sizeof *t->part, "parts of a text"));
    TX_TRY(tx_array_reserve(&t->answer, &t->room[1], t->parts + 1, sizeof *t->answer, "parts of a text"));
    t->answer[t->parts] = answer;
    t->part[t->parts++] = (tx_text_part){end, frame};
    return TX_OK;
}

/* Divides the rendered bytes into runs with the same flags. */
static tx_status take_runs(tx_chat_text *t)
{
    static const unsigned compared = TX_JINJA_SAID | TX_CHAT_LEARNT;
    const tx_buffer before = t->bytes;
    const char *flags = t->rendered.flags.data;
    t->bytes = t->rendered.bytes; /* the next rendering uses the other buffer */
    t->rendered.bytes = before;
    for (size_t begin = 0, end; begin < t->bytes.size; begin = end) {
        const unsigned run = (unsigned char)flags[begin];
        for (end = begin; end < t->bytes.size && !(((unsigned char)flags[end] ^ run) & compared);)
            end++;
        TX_TRY(end_part(t, end, !(run & TX_JINJA_SAID), run & TX_CHAT_LEARNT));
    }
    return TX_OK;
}

/* ---- Rendering ------------------------------------------------------------------------------------------ */

static size_t common(const tx_buffer *x, const tx_buffer *y)
{
    size_t n = 0;
    while (n < x->size && n < y->size && x->data[n] == y->data[n])
        n++;
    return n;
}

/* Flags the bytes from the first that differs from the prompt with its generation prompt, as TRL does. */
static tx_status mark_completion(const tx_chat *chat, const tx_conversation *c, tx_jinja_text *text)
{
    tx_jinja_text prompt = {0};
    tx_json *said = tx_json_copy(c->said), *messages = said ? tx_json_find(said, "messages") : NULL;
    if (!said)
        return tx_fail(TX_MEMORY, "no memory for a prompt");
    while (tx_json_size(messages) > c->prompt)
        tx_json_remove(messages, tx_json_size(messages) - 1);
    const tx_status status = tx_jinja_render(chat->jinja, said, chat->given[1], &prompt);
    for (size_t i = status ? text->bytes.size : common(&prompt.bytes, &text->bytes); i < text->bytes.size; i++)
        text->flags.data[i] = (char)((unsigned char)text->flags.data[i] | TX_CHAT_LEARNT);
    tx_jinja_text_free(&prompt);
    tx_json_free(said);
    return tx_fail_in(status, "prompt");
}

tx_status tx_chat_render(const tx_chat *chat, tx_conversation *c, bool asks, tx_chat_labels labels, tx_chat_text *text)
{
    const bool open = asks && c->suffix == TX_CHAT_CONTINUE_FINAL;
    bool changed = true;
    text->parts = 0;
    tx_buffer_clear(&text->bytes);
    asks = asks && c->suffix == TX_CHAT_GENERATION_PROMPT;
    chat = tx_chat_with(chat, tx_json_has(c->said, "tools"));
    TX_TRY(tx_chat_prepare(chat, c));
    for (tx_status status = TX_OK; changed;) {
        status = open ? tx_chat_render_open(chat, c, &text->rendered)
                      : tx_jinja_render(chat->jinja, c->said, chat->given[asks], &text->rendered);
        TX_THEN(status, tx_chat_find_lost(chat, c, asks));
        if (!status && !c->lost)
            break;
        changed = false;
        if (!status || status == TX_FORMAT)
            TX_TRY(tx_chat_adapt(chat, c, &changed));
        if (!changed)
            TX_TRY(status);
    }
    if (c->lost)
        tx_conversation_ignore(c, "a message");
    if (labels == TX_CHAT_ANSWERS)
        TX_TRY(tx_chat_mark_answers(chat, c, &text->rendered));
    if (labels == TX_CHAT_COMPLETION)
        TX_TRY(mark_completion(chat, c, &text->rendered));
    return take_runs(text);
}

tx_status tx_chat_render_plain(const tx_chat *chat, const tx_conversation *c, tx_chat_text *text)
{
    text->parts = 0;
    tx_buffer_clear(&text->bytes);
    for (size_t i = 0; i < c->count; i++) {
        const char *said;
        size_t size;
        TX_TRY(tx_json_get_text(tx_conversation_message(c, i), "content", &said, &size));
        tx_buffer_add(&text->bytes, said, size);
        TX_TRY(end_part(text, text->bytes.size, true, c->learnt[i]));
    }
    tx_buffer_add(&text->bytes, chat->eos, chat->eos_size);
    TX_TRY(end_part(text, text->bytes.size, true, true));
    return text->bytes.status;
}

/* ---- The frame of an answer ----------------------------------------------------------------------------- */

static char *copy_of(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy && size)
        memcpy(copy, text, size);
    if (copy)
        copy[size] = '\0';
    return copy;
}

/* Derives the frame from three texts: a question, the same with a generation prompt, and the same with the answer "b".
 */
static tx_status find_texts(const tx_buffer *question, const tx_jinja_text *prompted, const tx_jinja_text *answered,
                            tx_chat_frame *frame)
{
    const tx_buffer *all = &answered->bytes, *asked = &prompted->bytes;
    const tx_jinja_turn *turn = answered->turns ? &answered->turn[answered->turns - 1] : NULL;
    const bool prompts = question->size != asked->size || common(question, asked) < asked->size;
    const size_t last = prompted->turns ? prompted->turn[prompted->turns - 1].end : asked->size;
    const size_t begin = !prompts             ? asked->size
                         : last < asked->size ? last
                                              : common(question, asked); /* the loop may itself write it */
    size_t said = all->size, end = turn ? turn->end : all->size;
    while (said > 0 && !((unsigned char)answered->flags.data[said - 1] & TX_JINJA_SAID))
        said--; /* the answer is the last untrusted byte */
    if (!said)
        return tx_fail(TX_FORMAT, "the chat template does not write the text of the assistant");
    const size_t shared = prompts || !turn ? common(asked, all) : turn->begin;
    const size_t before = shared < said - 1 ? shared : said - 1;
    size_t after = said;
    while (after < all->size && strchr(" \n\t", all->data[after]))
        after++;
    frame->closes = after >= end;
    end = frame->closes ? all->size : end;
    while (end > after && strchr(" \n\t", all->data[end - 1]))
        end--;
    frame->question = copy_of(question->data, question->size);
    frame->prompt = copy_of(asked->data + begin, asked->size - begin);
    frame->before = copy_of(all->data + before, said - 1 - before);
    frame->end = copy_of(all->data + after, end - after);
    return frame->question && frame->prompt && frame->before && frame->end
               ? TX_OK
               : tx_fail(TX_MEMORY, "chat template: out of memory");
}

tx_status tx_chat_find_frame(const tx_chat *chat, tx_chat_frame *frame)
{
    tx_conversation c = {0};
    tx_jinja_text text[3];
    memset(text, 0, sizeof text);
    tx_status status = tx_conversation_add(&c, "user", "a", 1);
    TX_THEN(status, tx_chat_prepare(chat, &c));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[0], &text[0]));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[1], &text[1]));
    TX_THEN(status, tx_conversation_add(&c, "assistant", "b", 1));
    TX_THEN(status, tx_chat_prepare(chat, &c));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[0], &text[2]));
    TX_THEN(status, find_texts(&text[0].bytes, &text[1], &text[2], frame));
    for (int i = 0; i < 3; i++)
        tx_jinja_text_free(&text[i]);
    tx_conversation_free(&c);
    return tx_fail_in(status, "a question and its answer");
}

tx_status tx_chat_find_next(const tx_chat *chat, char **next)
{
    static const char *const roles[] = {"user", "assistant", "user"};
    tx_conversation c = {0};
    tx_jinja_text text = {0};
    tx_status status = TX_OK;
    for (int i = 0; i < 3; i++)
        TX_THEN(status, tx_conversation_add(&c, roles[i], "a", 1));
    TX_THEN(status, tx_chat_prepare(chat, &c));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[0], &text));
    size_t begin = status || text.turns != 3 ? text.bytes.size : text.turn[2].begin;
    while (begin < text.bytes.size && strchr(" \n\t", text.bytes.data[begin]))
        begin++;
    *next = status ? NULL : copy_of(text.bytes.data + begin, text.bytes.size - begin);
    if (!status && !*next)
        status = tx_fail(TX_MEMORY, "chat template: out of memory");
    tx_jinja_text_free(&text);
    tx_conversation_free(&c);
    return tx_fail_in(status, "two questions");
}
