/* SPDX-License-Identifier: Apache-2.0
 * Conversations: answers each line of standard input, with all earlier messages as context. */
#include "tools/generate/txgen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The end of an answer -------------------------------------------------------------------------------- */

/* Adds the end of an answer in the template as an end-of-text token or as a stop string. */
static tx_status add_end(txgen_chat *c)
{
    int32_t id;
    const char *end = tx_chat_end(c->chat, &id);
    if (id < 0 && c->how.stop_count >= TXGEN_STOPS)
        return tx_fail(TX_INVALID, "--chat: give --stop at most %d times", TXGEN_STOPS - 1);
    return tx_fail_in(tx_generation_add_end(&c->how, id, end, c->stop), "--chat");
}

/* ---- An answer --------------------------------------------------------------------------------------------- */

static size_t held_back(const txgen_chat *c)
{
    return tx_chat_held_back(c->chat, c->answer, c->size);
}

static void show(txgen_chat *c, size_t upto)
{
    tx_alive_printed(c->alive);
    if (upto > c->shown) {
        fwrite(c->answer + c->shown, 1, upto - c->shown, stdout);
        c->shown = upto;
    }
    TX_THEN(c->status, txgen_flush());
}

static void on_text(void *context, int64_t index, const char *bytes, size_t size)
{
    txgen_chat *c = context;
    (void)index;
    txgen_chat_grow(c, bytes, size);
    show(c, c->size - held_back(c));
}

static bool on_stop(void *context)
{
    const txgen_chat *c = context;
    return c->status != TX_OK;
}

static tx_status answer(txgen_chat *c, const tx_ids *ids, int64_t most)
{
    const tx_lm_prompt prompt = {.ids = ids->id, .count = (int64_t)ids->count};
    const tx_lm_listener listener = {.size = sizeof listener, .context = c, .text = on_text, .stop = on_stop};
    tx_generation how = c->how;
    int32_t id;
    const char *end = tx_chat_end(c->chat, &id);
    how.max_new_tokens = most;
    txgen_chat_clear(c);
    TX_TRY(tx_lm_generate(c->lm, &prompt, 1, &how, &listener));
    TX_TRY(c->status);
    show(c, held_back(c) == strlen(end) ? c->size - held_back(c) : c->size);
    putchar('\n');
    show(c, 0);
    c->size = tx_chat_trim(c->chat, c->answer, c->size);
    return c->status;
}

/* ---- A conversation ---------------------------------------------------------------------------------------- */

/* Removes the messages from `first` up to the next user message. */
static void drop_oldest(tx_conversation *c, size_t first)
{
    size_t next = first + 1;
    while (next < c->count && strcmp(tx_conversation_role(c, next), "user") != 0)
        next++;
    tx_conversation_remove(c, first, next - first);
}

/* Returns the positions for conversation and answer together, and in `*room` those to reserve for the answer. */
static int64_t room_of(const txgen_chat *c, int64_t *room)
{
    const bool limited = tx_lm_is_limited(c->lm, &c->how);
    const int64_t positions = limited ? c->how.max_length : tx_lm_positions(c->lm), asked = c->how.max_new_tokens;
    *room = asked >= 0 && asked < positions / 4 ? asked : positions / 4 > 0 ? positions / 4 : 1;
    return positions;
}

/* Sets `*fits` if the last message without earlier ones leaves a position for an answer. Otherwise removes it and
 * prints a message. */
static tx_status check_last(const txgen_chat *c, tx_conversation *conversation, tx_ids *ids, bool *fits)
{
    tx_conversation alone = {0};
    int64_t room;
    const int64_t positions = room_of(c, &room);
    tx_status status = txgen_chat_begin(c, &alone);
    TX_THEN(status, tx_conversation_copy(&alone, conversation, conversation->count - 1));
    TX_THEN(status, tx_chat_prompt(c->chat, c->encoder, &alone, ids));
    tx_conversation_free(&alone);
    *fits = (int64_t)ids->count < positions;
    if (!status && !*fits) {
        fprintf(stderr, "txgen: the message has %zu tokens, but the context only %" PRId64 ": shorten it\n", ids->count,
                positions);
        drop_oldest(conversation, conversation->count - 1);
    }
    return status;
}

/* Encodes the conversation. Removes its oldest turns until enough positions remain for an answer. Sets `*most` to the
 * largest number of tokens of the answer. */
static tx_status fit(const txgen_chat *c, tx_conversation *conversation, tx_ids *ids, int64_t *most)
{
    int64_t turns = 0, room;
    const int64_t positions = room_of(c, &room), asked = c->how.max_new_tokens;
    const size_t first = c->system != NULL;
    TX_TRY(tx_chat_prompt(c->chat, c->encoder, conversation, ids));
    for (; (int64_t)ids->count + room > positions && conversation->count > first + 1; turns++) {
        drop_oldest(conversation, first);
        TX_TRY(tx_chat_prompt(c->chat, c->encoder, conversation, ids));
    }
    if (turns)
        fprintf(stderr,
                "txgen: the conversation exceeds the context of %" PRId64 " tokens: the oldest %" PRId64
                " turns are left out; /reset starts a new conversation\n",
                positions, turns);
    *most = positions - (int64_t)ids->count;
    *most = asked >= 0 && asked < *most ? asked : *most;
    return TX_OK;
}

static tx_status reply(txgen_chat *c, tx_conversation *conversation, const char *line, size_t size)
{
    tx_ids ids = {0};
    int64_t most = 0;
    bool fits = false;
    tx_status status = tx_conversation_add(conversation, "user", line, size);
    TX_THEN(status, check_last(c, conversation, &ids, &fits));
    if (!status && fits) {
        status = fit(c, conversation, &ids, &most);
        TX_THEN(status, answer(c, &ids, most));
        TX_THEN(status, tx_conversation_add(conversation, "assistant", c->answer, c->size));
    }
    free(ids.id);
    return status;
}

static tx_status converse(txgen_chat *c)
{
    tx_conversation conversation = {0};
    char *line = NULL;
    size_t room = 0, length;
    tx_status status = tx_lm_reserve(c->lm, 1, &c->how);
    TX_THEN(status, txgen_chat_begin(c, &conversation));
    while (!status && txgen_ask(c->alive, &line, &room, &length)) {
        if (strcmp(line, "/exit") == 0)
            break;
        if (strcmp(line, "/reset") == 0)
            status = txgen_chat_begin(c, &conversation);
        else if (length > 0)
            status = reply(c, &conversation, line, length);
    }
    fputc('\n', stderr);
    tx_conversation_free(&conversation);
    free(line);
    return status;
}

/* Reads --chat_template_kwargs. */
static tx_status read_variables(txgen_chat *c, const char *text)
{
    TX_TRY(tx_json_parse(text, strlen(text), "JSON", &c->variables));
    if (tx_json_type_of(c->variables) != TX_JSON_OBJECT)
        return tx_fail(TX_INVALID, "expected an object");
    for (void *i = tx_json_first(c->variables); i; i = tx_json_next(c->variables, i))
        if (!tx_chat_reads(c->chat, tx_json_key(i)))
            return tx_fail(TX_INVALID, "the chat template does not read %.60s", tx_json_key(i));
    return TX_OK;
}

tx_status txgen_run_chat(const txgen_settings *set, tx_lm *lm, const tx_generation *how)
{
    const tx_reporter report = {.warn = tx_warn};
    txgen_chat c = {.lm = lm, .how = *how, .system = set->system, .alive = set->alive};
    const tx_tokenizer *tokenizer = NULL;
    tx_status status = tx_lm_tokenizer(lm, &tokenizer);
    TX_THEN(status, tx_encoder_create(tokenizer, &c.encoder));
    TX_THEN(status, tx_chat_create(set->chat_template, tokenizer, &report, &c.chat));
    if (!status && set->chat_template_kwargs)
        status = tx_fail_in(read_variables(&c, set->chat_template_kwargs), "--chat_template_kwargs");
    TX_THEN(status, add_end(&c));
    TX_THEN(status, set->prompt.count > 0 || set->prompts ? txgen_answer_all(set, &c) : converse(&c));
    free(c.answer);
    tx_json_free(c.variables);
    tx_encoder_free(c.encoder);
    tx_chat_free(c.chat);
    return status;
}
