/* SPDX-License-Identifier: Apache-2.0
 * Divides an answer into thoughts, text and tool calls while it grows. */
#include "models/chat/parser.h"

#include "api/base/needs.h"
#include "models/chat/chat.h"

#include <stdlib.h>
#include <string.h>

/* The last ids of a prompt that can show an open thought. */
#define PROMPT_IDS 64

static const struct {
    const char *begin, *end;
} thoughts[] = {
#define THOUGHT(begin, end) {begin, end},
#include "models/chat/forms.def"
};

static const tx_calls_form forms[] = {
#define CALLS(name, kind, sign, open, begin, name_end, key, key_end, value, value_end, end, close) \
    {name, TX_CALLS_##kind, sign, open, begin, name_end, key, key_end, value, value_end, end, close},
#include "models/chat/forms.def"
};

static bool read_content(tx_chat_parser *p);
static bool read_header(tx_chat_parser *p);

/* ---- Thoughts and text ----------------------------------------------------------------------------------- */

/* Reports text up to the first of some marks, without blanks before it, and moves `at` to the mark. Returns its index,
 * or -1 if none is there yet. */
static int find_mark(tx_chat_parser *p, const char *const *marks, int count)
{
    size_t end = p->from;
    int found = -1;
    bool half = false;
    for (; p->at < p->held.size && found < 0 && !half; p->at += found < 0 && !half) {
        for (int i = 0; i < count && found < 0; i++) {
            const tx_match match = tx_parser_match(p, p->at, marks[i]);
            found = match == TX_MATCH ? i : -1;
            half = half || match == TX_MATCH_HALF;
        }
    }
    for (; p->fresh && p->from < p->at && tx_is_blank(p->held.data[p->from]); p->from++)
        continue;
    p->fresh = p->fresh && p->from == p->at;
    for (end = p->at; count && !(p->ended && found < 0) && end > p->from && tx_is_blank(p->held.data[end - 1]); end--)
        continue;
    tx_parser_flush(p, p->body, end);
    return found;
}

static bool read_thought(tx_chat_parser *p)
{
    if (find_mark(p, &p->thought_end, 1) < 0)
        return false;
    p->from = p->at += strlen(p->thought_end);
    p->thought = p->thought_end = NULL;
    return tx_parser_to_content(p, true);
}

/* Starts to read a thought, whose mark ends at `at`. */
static bool to_thought(tx_chat_parser *p)
{
    p->from = p->at;
    p->fresh = true;
    p->body = TX_CHAT_THOUGHT;
    p->state = read_thought;
    return true;
}

static bool has_channels(const tx_chat_parser *p)
{
    return p->form && p->form->kind == TX_CALLS_CHANNELS;
}

/* The begin of an answer, or of its text after a thought or a call. */
static bool read_start(tx_chat_parser *p)
{
    const tx_match written = tx_parser_match(p, p->at, p->before);
    if (written == TX_MATCH_HALF)
        return false;
    if (written == TX_MATCH)
        p->from = p->at += strlen(p->before);
    p->before = "";
    if (!tx_parser_skip(p, ""))
        return false;
    const tx_match thought = p->thought ? tx_parser_match(p, p->at, p->thought) : TX_MATCH_NO;
    const tx_match to = has_channels(p) ? tx_parser_match(p, p->at, "to=") : TX_MATCH_NO;
    if (thought == TX_MATCH_HALF || to == TX_MATCH_HALF) {
        p->at = p->from;
        return false;
    }
    if (thought == TX_MATCH) {
        p->at += strlen(p->thought);
        return to_thought(p);
    }
    p->thought = NULL;
    p->bare = p->form && p->form->kind == TX_CALLS_BARE && p->held.data[p->at] == '{';
    if (p->fresh)
        p->from = p->at;
    p->at = p->from;
    p->state = p->bare ? tx_calls_between : to == TX_MATCH ? read_header : read_content;
    return true;
}

static bool read_content(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    const char *const marks[] = {f ? f->open : "", f ? f->begin : "", f ? f->end : "", f ? f->close : ""};
    const int found = find_mark(p, marks, has_channels(p) ? 4 : f ? 2 : 0);
    if (found < 0)
        return false;
    p->from = p->at;
    p->announced = false;
    if (has_channels(p) && found > 1) { /* the end of a message */
        p->from = p->at += strlen(marks[found]);
        return tx_parser_to_content(p, true);
    }
    p->at += found == 0 ? strlen(f->open) : 0;
    p->state = has_channels(p) ? read_header : tx_calls_between;
    return true;
}

/* ---- Messages with headers ------------------------------------------------------------------------------- */

/* The place after a word in a header, or NULL. */
static const char *after(const tx_buffer *header, const char *word)
{
    const char *at = strstr(header->data, word);
    return at ? at + strlen(word) : NULL;
}

/* Reads the recipient and the channel of a message. */
static bool read_header(tx_chat_parser *p)
{
    const tx_calls_form *f = p->form;
    tx_match match = TX_MATCH_NO;
    for (; p->at < p->held.size; p->at++)
        if ((match = tx_parser_match(p, p->at, f->name_end)) != TX_MATCH_NO)
            break;
    if (match != TX_MATCH)
        return false;
    p->name.size = 0;
    tx_buffer_add(&p->name, p->held.data + p->from, p->at - p->from);
    tx_buffer_add(&p->name, "", 1);
    p->from = p->at += strlen(f->name_end);
    if (p->name.status)
        return false;
    const char *to = after(&p->name, "to=functions."), *channel = after(&p->name, f->open);
    if (to && p->how.tools) {
        p->name.size = strcspn(to, " <\n");
        memmove(p->name.data, to, p->name.size);
        tx_calls_announce(p);
        p->state = tx_calls_arguments;
        return true;
    }
    tx_parser_to_content(p, true);
    p->body = p->how.thoughts && channel && strncmp(channel, "analysis", 8) == 0 ? TX_CHAT_THOUGHT : TX_CHAT_CONTENT;
    p->state = read_content;
    return true;
}

/* ---- Parsers --------------------------------------------------------------------------------------------- */

tx_status tx_parser_opens_thought(const tx_chat *chat, const tx_chat_parsing *how, bool *opens)
{
    const char *mark = tx_chat_with(chat, how->tools)->thought;
    const size_t count = how->count < PROMPT_IDS ? how->count : PROMPT_IDS;
    char *text = NULL;
    size_t size = 0;
    *opens = false;
    if (!count || !mark)
        return TX_OK;
    TX_TRY(tx_tokenizer_decode(chat->tokenizer, how->prompt + how->count - count, count, false, &text, &size));
    while (size && tx_is_blank(text[size - 1]))
        size--;
    *opens = size >= strlen(mark) && memcmp(text + size - strlen(mark), mark, strlen(mark)) == 0;
    free(text);
    return TX_OK;
}

void tx_parser_find_forms(tx_chat *chat)
{
    for (size_t i = 0; i < sizeof thoughts / sizeof thoughts[0] && !chat->thought; i++)
        if (strstr(chat->text, thoughts[i].end)) {
            chat->thought = thoughts[i].begin;
            chat->thought_end = thoughts[i].end;
        }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0] && !chat->form; i++)
        chat->form = strstr(chat->text, forms[i].sign) ? &forms[i] : NULL;
}

/* Sets the marks that the parser searches for. */
static tx_status set_marks(tx_chat_parser *p, const tx_chat *chat)
{
    const tx_chat *own = tx_chat_with(chat, p->how.tools);
    bool open = false;
    p->thought = p->how.thoughts ? own->thought : NULL;
    p->thought_end = p->how.thoughts ? own->thought_end : NULL;
    p->form = own->form;
    if (p->form && !p->how.tools && !(has_channels(p) && p->how.thoughts))
        p->form = NULL;
    if (p->thought)
        TX_TRY(tx_parser_opens_thought(chat, &p->how, &open));
    if (open)
        to_thought(p);
    return TX_OK;
}

tx_status tx_chat_parser_create(const tx_chat *chat, const tx_chat_parsing *how, tx_chat_parser **parser)
{
    TX_NEEDS(chat && how && how->piece && (how->prompt || !how->count) && parser, TX_INVALID);
    tx_chat_parser *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "chat: out of memory");
    created->how = *how;
    created->before = chat->frame.before;
    created->body = TX_CHAT_CONTENT;
    created->state = created->start = read_start;
    created->text = read_content;
    const tx_status status = set_marks(created, chat);
    return TX_RETURN(status, created, parser, tx_chat_parser_free);
}

/* Whether a special token is a mark, or a part of one. */
static bool is_mark(const tx_chat_parser *p, const char *token, size_t size)
{
    const tx_calls_form *f = p->form;
    const char *const marks[] = {
        p->thought,          p->thought_end,          f ? "[CALL_ID]" : NULL, f ? f->open : NULL,
        f ? f->begin : NULL, f ? f->name_end : NULL,  f ? f->key : NULL,      f ? f->key_end : NULL,
        f ? f->value : NULL, f ? f->value_end : NULL, f ? f->end : NULL,      f ? f->close : NULL};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        for (const char *at = marks[i]; at && strlen(at) >= size; at++)
            if (memcmp(at, token, size) == 0)
                return true;
    return false;
}

static tx_status advance(tx_chat_parser *p)
{
    while (!p->status && !p->held.status && p->state(p))
        continue;
    if (p->from > p->held.size / 2) {
        p->held.size -= p->from;
        p->special.size -= p->from;
        memmove(p->held.data, p->held.data + p->from, p->held.size);
        memmove(p->special.data, p->special.data + p->from, p->special.size);
        p->at -= p->from;
        p->value -= p->value < p->from ? p->value : p->from;
        p->from = 0;
    }
    const tx_buffer *all[] = {&p->held, &p->special, &p->name, &p->arguments, &p->key};
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !p->status; i++)
        p->status = all[i]->status;
    return p->status;
}

tx_status tx_chat_parser_add(tx_chat_parser *p, const char *bytes, size_t size, bool special)
{
    TX_NEEDS(p && (bytes || !size), TX_INVALID);
    const char flag = special;
    if (!size || (special && !is_mark(p, bytes, size)))
        return p->status;
    tx_buffer_add(&p->held, bytes, size);
    for (size_t i = 0; i < size; i++)
        tx_buffer_add(&p->special, &flag, 1);
    return advance(p);
}

tx_status tx_chat_parser_end(tx_chat_parser *p, bool *malformed)
{
    TX_NEEDS(p && malformed, TX_INVALID);
    p->ended = true;
    if (p->held.size > p->at)
        advance(p);
    tx_calls_end(p);
    while (p->fresh && p->from < p->held.size && tx_is_blank(p->held.data[p->from]))
        p->from++;
    tx_parser_flush(p, p->body, p->held.size);
    *malformed = p->malformed;
    return p->status;
}

void tx_chat_parser_free(tx_chat_parser *p)
{
    if (!p)
        return;
    free(p->held.data);
    free(p->special.data);
    free(p->name.data);
    free(p->arguments.data);
    free(p->key.data);
    free(p);
}
