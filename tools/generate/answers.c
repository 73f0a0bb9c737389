/* SPDX-License-Identifier: Apache-2.0
 * Encodes conversations, collects answers, and answers many conversations. */
#include "tools/generate/txgen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A conversation and its answer ------------------------------------------------------------------------- */

tx_status txgen_chat_begin(const txgen_chat *c, tx_conversation *conversation)
{
    tx_conversation_remove(conversation, 0, conversation->count);
    TX_TRY(tx_conversation_set(conversation, c->variables));
    return c->system ? tx_conversation_add(conversation, "system", c->system, strlen(c->system)) : TX_OK;
}

void txgen_chat_clear(txgen_chat *c)
{
    c->size = c->shown = 0;
    c->status = TX_OK;
}

void txgen_chat_grow(txgen_chat *c, const char *bytes, size_t size)
{
    TX_THEN(c->status, tx_array_reserve(&c->answer, &c->room, c->size + size, 1, "bytes of an answer"));
    if (c->status || !size)
        return;
    memcpy(c->answer + c->size, bytes, size);
    c->size += size;
}

/* ---- Many conversations ------------------------------------------------------------------------------------ */

/* Conversations to answer. */
typedef struct waiting {
    txgen_chat *chat;
    tx_json **object; /* the output line of each; NULL for a --prompt */
    tx_lm_prompt *prompt;
    size_t count, room[2];
    tx_conversation read; /* the conversation of the current line */
    tx_status status;
} waiting;

static tx_status add(waiting *w, tx_json *object, tx_conversation *said)
{
    tx_ids ids = {0};
    tx_status status = tx_array_reserve(&w->object, &w->room[0], w->count + 1, sizeof *w->object, "conversations");
    TX_THEN(status, tx_array_reserve(&w->prompt, &w->room[1], w->count + 1, sizeof *w->prompt, "conversations"));
    TX_THEN(status, tx_chat_prompt(w->chat->chat, w->chat->encoder, said, &ids));
    if (!status && (int64_t)ids.count >= tx_lm_positions(w->chat->lm))
        status = tx_fail(TX_INVALID,
                         "the conversation has %zu tokens, but the model has only %" PRId64 " positions: shorten it",
                         ids.count, tx_lm_positions(w->chat->lm));
    if (status) {
        free(ids.id);
        tx_json_free(object);
        return status;
    }
    w->object[w->count] = object;
    w->prompt[w->count++] = (tx_lm_prompt){.ids = ids.id, .count = (int64_t)ids.count};
    return TX_OK;
}

static void release(waiting *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free((void *)(uintptr_t)w->prompt[i].ids);
        tx_json_free(w->object[i]);
    }
    free(w->prompt);
    free(w->object);
    tx_conversation_free(&w->read);
}

/* ---- Reading --------------------------------------------------------------------------------------------- */

/* Reads the conversation of a line, whose variables override --chat_template_kwargs. Removes a final assistant message,
 * and adds --system if there is no system message. */
static tx_status read_line(waiting *w, const tx_json *object, tx_conversation *said)
{
    tx_conversation *read = &w->read;
    tx_status status = TX_OK;
    TX_TRY(tx_conversation_read(object, false, read));
    if (strcmp(tx_conversation_role(read, read->count - 1), "assistant") == 0)
        tx_conversation_remove(read, read->count - 1, 1);
    if (!read->count)
        return tx_fail(TX_FORMAT, "the conversation has no message to answer");
    TX_TRY(txgen_chat_begin(w->chat, said));
    if (strcmp(tx_conversation_role(read, 0), "system") == 0)
        tx_conversation_remove(said, 0, said->count);
    for (size_t i = 0; i < read->count && !status; i++)
        status = tx_conversation_copy(said, read, i);
    for (void *i = tx_json_first(read->said); i && !status; i = tx_json_next(read->said, i))
        if (strcmp(tx_json_key(i), "messages") != 0)
            status = tx_json_set(said->said, tx_json_key(i), tx_json_copy(tx_json_value(i)));
    return status;
}

static tx_status add_line(void *context, const char *line, size_t size)
{
    waiting *w = context;
    tx_json *object = NULL, *result = tx_json_object();
    tx_conversation said = {0};
    tx_status status = tx_json_parse_line(line, size, "JSON", &object);
    TX_THEN(status, read_line(w, object, &said));
    TX_THEN(status, tx_json_set(result, "messages", tx_json_copy(tx_json_find(said.said, "messages"))));
    if (status)
        tx_json_free(result);
    else
        status = add(w, result, &said);
    tx_conversation_free(&said);
    tx_json_free(object);
    return status;
}

static tx_status add_lines(waiting *w, const char *path)
{
    const tx_status status = txgen_each_line(path, add_line, w);
    if (*w->read.ignored)
        tx_print_line(stderr, "txgen: warning: %s: keys that are not read: %s", path, w->read.ignored);
    return status || w->count ? status : tx_fail(TX_INVALID, "%s: the file has no conversation", path);
}

static tx_status add_prompt(waiting *w, const char *text)
{
    tx_conversation said = {0};
    tx_status status = txgen_chat_begin(w->chat, &said);
    TX_THEN(status, tx_conversation_add(&said, "user", text, strlen(text)));
    TX_THEN(status, add(w, NULL, &said));
    tx_conversation_free(&said);
    return status;
}

/* ---- Answering ------------------------------------------------------------------------------------------- */

static void on_begin(void *context, int64_t index)
{
    waiting *w = context;
    tx_alive_doing(w->chat->alive, "answering conversation %" PRId64 " of %zu", index + 1, w->count);
    txgen_chat_clear(w->chat);
}

static void on_text(void *context, int64_t index, const char *bytes, size_t size)
{
    waiting *w = context;
    (void)index;
    txgen_chat_grow(w->chat, bytes, size);
}

static tx_status write_answer(waiting *w, int64_t index)
{
    txgen_chat *c = w->chat;
    tx_json *object = w->object[index], *list;
    TX_TRY(c->status);
    c->size = tx_chat_trim(c->chat, c->answer, c->size);
    if (!object) {
        fwrite(c->answer, 1, c->size, stdout);
        putchar('\n');
    } else {
        char *whole = NULL; /* valid UTF-8: the last token may end within a character */
        size_t size = 0;
        TX_TRY(tx_json_get(object, "messages", TX_JSON_ARRAY, &list));
        TX_TRY(tx_utf8_replace(c->answer, c->size, &whole, &size));
        tx_json *message = tx_json_pack("{s:s, s:s%}", "role", "assistant", "content", whole, size);
        free(whole);
        TX_TRY(tx_json_append(list, message));
        TX_TRY(tx_print_json(object));
    }
    return txgen_flush();
}

static void on_end(void *context, int64_t index)
{
    waiting *w = context;
    if (!w->status)
        w->status = write_answer(w, index);
}

static bool on_stop(void *context)
{
    return ((const waiting *)context)->status != TX_OK;
}

tx_status txgen_answer_all(const txgen_settings *set, txgen_chat *c)
{
    waiting w = {.chat = c};
    tx_status status = TX_OK;
    for (int32_t i = 0; i < set->prompt.count && !status; i++)
        status = add_prompt(&w, set->prompt.word[i]);
    if (!status && set->prompts)
        status = add_lines(&w, set->prompts);
    const tx_lm_listener listener = {
        .size = sizeof listener, .context = &w, .begin = on_begin, .text = on_text, .end = on_end, .stop = on_stop};
    TX_THEN(status, tx_lm_generate(c->lm, w.prompt, (int64_t)w.count, &c->how, &listener));
    TX_THEN(status, w.status);
    release(&w);
    return status;
}
