/* SPDX-License-Identifier: Apache-2.0
 * The messages of chats: parses answers to content, thoughts and tool calls, and makes their JSON. */
#include "tools/serve/txserve.h"

#include <stdlib.h>
#include <string.h>

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Writes an id of nine letters and digits, the only form that Mistral's templates accept. */
static void make_id(const serve_text *t, char id[10])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t x = (uint64_t)t->call->server->created * 1000003u + t->call->number;
    x = (x << 20) + (uint64_t)t->index * 4096u + (uint64_t)t->call_count;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u; /* splitmix64: a bijection, so ids repeat only by their length */
    x ^= x >> 27;
    for (int i = 0; i < 9; i++, x /= 36)
        id[i] = letters[x % 36];
    id[9] = '\0';
}

/* Moves the unsent arguments into the list of calls. */
static tx_status take_arguments(serve_text *t)
{
    serve_bytes *arguments = &t->part[TX_CHAT_ARGUMENTS];
    tx_json *last = tx_json_find(tx_json_at(t->calls, tx_json_size(t->calls) - 1), "function");
    char *text = NULL;
    size_t size;
    if (!arguments->size)
        return TX_OK;
    TX_TRY(tx_utf8_replace(arguments->data, arguments->size, &text, &size));
    tx_status status = TX_OK;
    if (!t->call->stream)
        status = tx_json_set_text(last, "arguments", text, size);
    else if (!t->calls && (t->calls = tx_json_array()) == NULL)
        status = tx_fail(TX_MEMORY, "out of memory");
    if (t->call->stream)
        TX_THEN(status, tx_json_append(t->calls, tx_json_pack("{s:I, s:{s:s%}}", "index", t->call_count - 1, "function",
                                                              "arguments", text, size)));
    arguments->size = 0;
    free(text);
    return status;
}

/* Begins a call. Its name is an event of its own. */
static tx_status add_call(serve_text *t, const tx_chat_piece *piece)
{
    char id[10], *name = NULL;
    size_t size = 0;
    const bool stream = t->call->stream;
    if (t->call->one_call && t->call_count) {
        t->done = true;
        return TX_OK;
    }
    if (stream && serve_has_part(t))
        TX_TRY(t->write(t));
    TX_TRY(take_arguments(t));
    make_id(t, id);
    TX_TRY(tx_utf8_replace(piece->text, piece->size, &name, &size));
    if (!t->calls)
        t->calls = tx_json_array();
    tx_json *call = tx_json_pack("{s:s%, s:s, s:{s:s%, s:s}}", "id", piece->id ? piece->id : id,
                                 piece->id ? piece->id_size : strlen(id), "type", "function", "function", "name", name,
                                 size, "arguments", "");
    free(name);
    tx_status status = call ? TX_OK : TX_MEMORY;
    if (stream)
        TX_THEN(status, tx_json_set_int(call, "index", t->call_count));
    t->call_count++;
    if (status) {
        tx_json_free(call);
        return status;
    }
    TX_TRY(tx_json_append(t->calls, call));
    return stream ? t->write(t) : TX_OK;
}

static tx_status on_piece(void *context, const tx_chat_piece *piece)
{
    serve_text *t = context;
    if (t->done)
        return TX_OK;
    return piece->kind == TX_CHAT_CALL ? add_call(t, piece)
                                       : serve_append(&t->part[piece->kind], piece->text, piece->size);
}

/* ---- Parsing -------------------------------------------------------------------------------------------- */

tx_status serve_begin_message(serve_text *t)
{
    const serve_call *c = t->call;
    const tx_chat_parsing how = {.thoughts = !c->server->set->reasoning_format,
                                 .tools = c->tools,
                                 .prompt = t->ids,
                                 .count = (size_t)t->count - c->prefix_ids,
                                 .context = t,
                                 .piece = on_piece};
    return tx_chat_parser_create(c->server->chat, &how, &t->parser);
}

void serve_free_message(serve_text *t)
{
    tx_chat_parser_free(t->parser);
    free(t->special);
    tx_json_free(t->calls);
    for (size_t i = 0; i < sizeof t->part / sizeof t->part[0]; i++)
        free(t->part[i].data);
}

tx_status serve_add_special(serve_text *t, int32_t id)
{
    TX_TRY(tx_array_reserve(&t->special, &t->special_room, t->specials + 1, sizeof *t->special, "special tokens"));
    t->special[t->specials++] = (struct serve_special){t->answer.size, id};
    return TX_OK;
}

tx_status serve_parse_answer(serve_text *t, size_t upto, serve_writer write)
{
    t->write = write;
    if (t->call->prefix && !t->prefixed)
        TX_TRY(tx_chat_parser_add(t->parser, t->call->prefix, strlen(t->call->prefix), false));
    t->prefixed = true;
    for (size_t size; t->special_shown < t->specials && t->special[t->special_shown].at <= upto; t->special_shown++) {
        const struct serve_special *s = &t->special[t->special_shown];
        const char *bytes;
        TX_TRY(tx_chat_parser_add(t->parser, t->answer.data + t->shown, s->at - t->shown, false));
        t->shown = s->at;
        if (!tx_tokenizer_piece(t->call->server->tokenizer, s->id, false, &bytes, &size))
            TX_TRY(tx_chat_parser_add(t->parser, bytes, size, true));
    }
    TX_TRY(tx_chat_parser_add(t->parser, t->answer.data + t->shown, upto - t->shown, false));
    t->shown = upto;
    return TX_OK;
}

tx_status serve_end_message(serve_text *t, size_t upto, tx_batch_end end, serve_writer write)
{
    const tx_chat *chat = t->call->server->chat;
    int32_t id;
    const size_t size = strlen(tx_chat_end(chat, &id));
    bool malformed = false;
    if (upto - t->shown >= size && tx_chat_held_back(chat, t->answer.data, upto) == size)
        upto -= size;
    TX_TRY(serve_parse_answer(t, upto, write));
    if (!t->done)
        TX_TRY(tx_chat_parser_end(t->parser, &malformed));
    if (end == TX_BATCH_STOPPED && t->call_count)
        t->finish = malformed ? "malformed_tool_call" : "tool_calls";
    return TX_OK;
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

bool serve_has_part(const serve_text *t)
{
    return t->part[TX_CHAT_CONTENT].size || t->part[TX_CHAT_THOUGHT].size || t->part[TX_CHAT_ARGUMENTS].size ||
           t->calls;
}

/* Sets a text unless it is empty, and empties it. */
static tx_status set_part(serve_text *t, tx_chat_piece_kind kind, const char *key, tx_json *message)
{
    serve_bytes *part = &t->part[kind];
    char *text = NULL;
    size_t size;
    if (!part->size)
        return TX_OK;
    tx_status status = tx_utf8_replace(part->data, part->size, &text, &size);
    TX_THEN(status, tx_json_set_text(message, key, text, size));
    part->size = 0;
    free(text);
    return status;
}

tx_json *serve_make_message(serve_text *t)
{
    tx_json *message = tx_json_object();
    tx_status status = t->greeted ? TX_OK : tx_json_set_string(message, "role", "assistant");
    TX_THEN(status, take_arguments(t));
    if (!t->call->stream)
        TX_THEN(status, t->calls ? tx_json_set_null(message, "content") : tx_json_set_string(message, "content", ""));
    TX_THEN(status, set_part(t, TX_CHAT_CONTENT, "content", message));
    TX_THEN(status, set_part(t, TX_CHAT_THOUGHT, "reasoning_content", message));
    if (t->calls) {
        tx_json *calls = t->calls;
        t->calls = NULL;
        if (status)
            tx_json_free(calls);
        TX_THEN(status, tx_json_set(message, "tool_calls", calls));
    }
    if (!status)
        return message;
    tx_json_free(message);
    return NULL;
}
