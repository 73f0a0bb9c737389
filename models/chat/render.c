/* SPDX-License-Identifier: Apache-2.0
 * From conversations to texts. */
#include "models/chat/chat.h"

#include "models/text/unicode.h"
#include "models/text/utf8.h"

#include <stdlib.h>
#include <string.h>

void tx_chat_text_free(tx_chat_text *text)
{
    free(text->bytes.data);
    free(text->part);
    free(text->answer);
    *text = (tx_chat_text){0};
}

/* ---- Parts --------------------------------------------------------------------------------------------- */

static tx_status add_part(tx_chat_text *t, const char *bytes, size_t size, bool frame, bool answer)
{
    if (!size)
        return TX_OK;
    tx_buffer_add(&t->bytes, bytes, size);
    TX_TRY(t->bytes.status);
    TX_TRY(tx_array_reserve(&t->part, &t->room[0], t->parts + 1, sizeof *t->part, "parts of a text"));
    TX_TRY(tx_array_reserve(&t->answer, &t->room[1], t->parts + 1, sizeof *t->answer, "parts of a text"));
    t->answer[t->parts] = answer;
    t->part[t->parts++] = (tx_text_part){t->bytes.size, frame};
    return TX_OK;
}

/* Adds a text of the template, with what "{bos}" and "{eos}" stand for. */
static tx_status add_frame(const tx_chat *chat, const char *text, bool answer, tx_chat_text *t)
{
    for (const char *at = text ? text : ""; *at;) {
        const bool bos = strncmp(at, "{bos}", 5) == 0, eos = strncmp(at, "{eos}", 5) == 0;
        size_t size = 1;
        if (bos || eos) {
            TX_TRY(add_part(t, bos ? chat->bos : chat->eos, bos ? chat->bos_size : chat->eos_size, true, answer));
            at += 5;
            continue;
        }
        while (at[size] && at[size] != '{')
            size++;
        TX_TRY(add_part(t, at, size, true, answer));
        at += size;
    }
    return TX_OK;
}

static tx_status add_said(const char *text, size_t size, bool answer, tx_chat_text *t)
{
    char *mended = NULL;
    if (tx_utf8_prefix(text, size) < size)
        TX_TRY(tx_utf8_replace(text, size, &mended, &size));
    tx_status status = add_part(t, mended ? mended : text, size, false, answer);
    free(mended);
    return status;
}

/* As Python's str.strip sees it. */
static bool is_space(uint32_t code)
{
    return tx_unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

/* Leaves white space out at both ends of what is behind `mark`. */
static void strip(tx_chat_text *t, size_t mark)
{
    const char *bytes = t->bytes.data;
    size_t begin = mark, end = t->bytes.size, length;
    uint32_t code;
    while (end > mark && (length = tx_utf8_read_last(bytes + mark, end - mark, &code)) && is_space(code))
        end -= length;
    while (begin < end && (length = tx_utf8_read(bytes + begin, end - begin, &code)) && is_space(code))
        begin += length;
    if (begin > mark)
        memmove(t->bytes.data + mark, bytes + begin, end - begin);
    t->bytes.size = mark + end - begin;
    for (size_t i = t->parts; i > 0 && t->part[i - 1].end > mark; i--) {
        size_t *at = &t->part[i - 1].end;
        const size_t kept = *at < end ? *at : end;
        *at = kept <= mark ? kept : kept < begin ? mark : mark + kept - begin;
    }
}

/* ---- Turns --------------------------------------------------------------------------------------------- */

/* A conversation on its way. */
typedef struct rendering {
    const tx_chat *chat;
    const tx_chat_message *system; /* that waits for the user's first turn; NULL: none */
    const tx_chat_message *before; /* the turn before, of user or assistant; NULL: none */
    tx_chat_text *text;
} rendering;

static tx_status add_system(const rendering *r, const tx_chat_message *m)
{
    const tx_chat_template *t = &r->chat->template;
    TX_TRY(add_frame(r->chat, t->system_before, false, r->text));
    const size_t mark = r->text->bytes.size;
    TX_TRY(add_said(m->text, m->size, false, r->text));
    if (t->trim && !t->system_in_user)
        strip(r->text, mark);
    return add_frame(r->chat, t->system_after, false, r->text);
}

static tx_status add_user(rendering *r, const tx_chat_message *m)
{
    const tx_chat_template *t = &r->chat->template;
    TX_TRY(add_frame(r->chat, t->user_before, false, r->text));
    const size_t mark = r->text->bytes.size;
    if (r->system)
        TX_TRY(add_system(r, r->system));
    r->system = NULL;
    TX_TRY(add_said(m->text, m->size, false, r->text));
    if (m->input) {
        TX_TRY(add_frame(r->chat, t->input ? t->input : "\n\n", false, r->text));
        TX_TRY(add_said(m->input, m->input_size, false, r->text));
    }
    if (t->trim)
        strip(r->text, mark);
    return add_frame(r->chat, t->user_after, false, r->text);
}

static tx_status add_answer(const rendering *r, const tx_chat_message *m)
{
    const tx_chat_template *t = &r->chat->template;
    TX_TRY(add_frame(r->chat, t->prompt, false, r->text));
    TX_TRY(add_frame(r->chat, t->answer_before, m->learnt, r->text));
    const size_t mark = r->text->bytes.size;
    TX_TRY(add_said(m->text, m->size, m->learnt, r->text));
    if (t->trim)
        strip(r->text, mark);
    TX_TRY(add_frame(r->chat, t->end, m->learnt, r->text));
    return add_frame(r->chat, t->after, false, r->text);
}

/* Whether the template has a place for the turn. */
static tx_status check_turn(const rendering *r, const tx_chat_message *m, bool is_first)
{
    const tx_chat_template *t = &r->chat->template;
    const tx_chat_role wanted = r->before && r->before->role == TX_CHAT_USER ? TX_CHAT_ASSISTANT : TX_CHAT_USER;
    if (m->role == TX_CHAT_SYSTEM && t->no_system)
        return tx_fail(TX_FORMAT, "chat template %s has no role system", t->name);
    if (m->role == TX_CHAT_SYSTEM && (t->system_in_user || t->alternate) && !is_first)
        return tx_fail(TX_FORMAT, "chat template %s: role system begins a conversation", t->name);
    if (m->role != TX_CHAT_SYSTEM && t->alternate && m->role != wanted)
        return tx_fail(TX_FORMAT,
                       "chat template %s: user and assistant take turns, user first; role %s where %s's turn is",
                       t->name, tx_chat_roles[m->role], tx_chat_roles[wanted]);
    return TX_OK;
}

static tx_status add_turn(rendering *r, const tx_chat_message *m, bool is_first)
{
    TX_TRY(check_turn(r, m, is_first));
    if (m->role == TX_CHAT_SYSTEM && r->chat->template.system_in_user) {
        r->system = m;
        return TX_OK;
    }
    if (m->role != TX_CHAT_SYSTEM)
        r->before = m;
    return m->role == TX_CHAT_SYSTEM ? add_system(r, m) : m->role == TX_CHAT_USER ? add_user(r, m) : add_answer(r, m);
}

tx_status tx_chat_render(const tx_chat *chat, const tx_conversation *c, bool asks, tx_chat_text *text)
{
    const tx_chat_template *t = &chat->template;
    rendering r = {.chat = chat, .text = text};
    text->parts = 0;
    tx_buffer_clear(&text->bytes);
    TX_TRY(add_frame(chat, t->begin, false, text));
    bool with_input = false;
    for (size_t i = 0; i < c->count; i++)
        with_input = with_input || c->message[i].input;
    const char *usual = with_input && t->default_system_input ? t->default_system_input : t->default_system;
    const tx_chat_message first = {.role = TX_CHAT_SYSTEM, .text = usual, .size = usual ? strlen(usual) : 0};
    if (usual && (c->count == 0 || c->message[0].role != TX_CHAT_SYSTEM))
        TX_TRY(add_turn(&r, &first, true));
    for (size_t i = 0; i < c->count; i++)
        TX_TRY(tx_fail_in(add_turn(&r, &c->message[i], i == 0), "message %zu", i + 1));
    if (r.system)
        return tx_fail(TX_FORMAT, "chat template %s: the system's text stands in the user's turn, and there is none",
                       t->name);
    return asks ? add_frame(chat, t->prompt, false, text) : TX_OK;
}

tx_status tx_chat_render_plain(const tx_chat *chat, const tx_conversation *c, tx_chat_text *text)
{
    text->parts = 0;
    tx_buffer_clear(&text->bytes);
    for (size_t i = 0; i < c->count; i++) {
        TX_TRY(add_said(c->message[i].text, c->message[i].size, c->message[i].learnt, text));
        if (text->parts)
            text->part[text->parts - 1].frame = true;
    }
    return add_part(text, chat->eos, chat->eos_size, true, true);
}
