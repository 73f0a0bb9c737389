/* SPDX-License-Identifier: Apache-2.0
 * Renders conversations to texts whose parts are marked as the template's or as untrusted. */
#include "models/chat/chat.h"

#include "models/text/utf8.h"

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

/* ---- Keys ----------------------------------------------------------------------------------------------- */

static bool is_among(const char *key, const char *const *keys)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* Refuses parts of the conversation that the template does not read, and notes other keys as ignored. */
static tx_status check_keys(const tx_chat *chat, const tx_json *object, tx_conversation *c)
{
    static const char *const parts[] = {"tools", "documents", "tool_calls", "reasoning_content", "tool_plan", NULL};
    /* The library's own keys, and duplicates of a checked key. */
    static const char *const silent[] = {"role", "thinking", "reasoning", "instruction", "input", "weight", NULL};
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const char *key = tx_json_key(i);
        if (strstr(chat->text, key) || tx_json_is_empty(tx_json_value(i)))
            continue;
        if (is_among(key, parts))
            return tx_fail(TX_FORMAT, "%s: the chat template does not render it", key);
        if (!is_among(key, silent))
            tx_conversation_ignore(c, key);
    }
    return TX_OK;
}

/* If the template does not handle lists of parts in `content`, joins their texts. */
static tx_status join_parts(const tx_chat *chat, tx_json *message)
{
    const tx_json *list = tx_json_find(message, "content");
    tx_buffer all = {0};
    if (!list || tx_json_type_of(list) != TX_JSON_ARRAY || strstr(chat->text, "'type'") ||
        strstr(chat->text, "\"type\"") || strstr(chat->text, ".type"))
        return TX_OK;
    for (size_t i = 0; i < tx_json_size(list); i++) {
        const char *type = "", *text = "";
        size_t size = 0;
        tx_status status = tx_json_get_string(tx_json_at(list, i), "type", &type);
        TX_THEN(status,
                strcmp(type, "text") == 0
                    ? tx_json_get_text(tx_json_at(list, i), "text", &text, &size)
                    : tx_fail(TX_FORMAT, "content: the chat template does not render parts of type \"%.40s\"", type));
        if (status) {
            free(all.data);
            return status == TX_NOT_FOUND ? TX_FORMAT : status;
        }
        tx_buffer_add(&all, text, size);
    }
    tx_status status = all.status;
    TX_THEN(status, tx_json_set_text(message, "content", all.data ? all.data : "", all.size));
    free(all.data);
    return status;
}

static tx_status prepare(const tx_chat *chat, tx_conversation *c)
{
    TX_TRY(check_keys(chat, c->said, c));
    for (size_t i = 0; i < c->count; i++) {
        tx_json *message = tx_conversation_message(c, i);
        TX_TRY(tx_fail_in(check_keys(chat, message, c), "message %zu", i + 1));
        TX_TRY(tx_fail_in(join_parts(chat, message), "message %zu", i + 1));
    }
    return TX_OK;
}

/* ---- Rendering ------------------------------------------------------------------------------------------ */

tx_status tx_chat_render(const tx_chat *chat, tx_conversation *c, bool asks, bool learns, tx_chat_text *text)
{
    text->parts = 0;
    tx_buffer_clear(&text->bytes);
    TX_TRY(prepare(chat, c));
    TX_TRY(tx_jinja_render(chat->jinja, c->said, chat->given[asks], &text->rendered));
    if (learns)
        TX_TRY(tx_chat_mark_answers(chat, c, &text->rendered));
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

static size_t common(const tx_buffer *x, const tx_buffer *y)
{
    size_t n = 0;
    while (n < x->size && n < y->size && x->data[n] == y->data[n])
        n++;
    return n;
}

/* Derives the frame from three texts: a question, the same with a generation prompt, and the same with the answer "b".
 */
static tx_status find_texts(const tx_buffer *question, const tx_jinja_text *prompted, const tx_jinja_text *answered,
                            tx_chat_frame *frame)
{
    const tx_buffer *all = &answered->bytes, *asked = &prompted->bytes;
    const size_t last = prompted->turns ? prompted->turn[prompted->turns - 1].end : asked->size;
    const size_t begin =
        last < asked->size ? last : common(question, asked); /* the loop may itself write the generation prompt */
    size_t said = all->size, end = all->size;
    while (said > 0 && !((unsigned char)answered->flags.data[said - 1] & TX_JINJA_SAID))
        said--; /* the answer is the last untrusted byte */
    if (!said)
        return tx_fail(TX_FORMAT, "the chat template does not write the text of the assistant");
    const size_t shared = common(asked, all), before = shared < said - 1 ? shared : said - 1;
    size_t after = said;
    while (after < end && strchr(" \n\t", all->data[after]))
        after++;
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
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[0], &text[0]));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[1], &text[1]));
    TX_THEN(status, tx_conversation_add(&c, "assistant", "b", 1));
    TX_THEN(status, tx_jinja_render(chat->jinja, c.said, chat->given[0], &text[2]));
    TX_THEN(status, find_texts(&text[0].bytes, &text[1], &text[2], frame));
    for (int i = 0; i < 3; i++)
        tx_jinja_text_free(&text[i]);
    tx_conversation_free(&c);
    return tx_fail_in(status, "a question and its answer");
}
