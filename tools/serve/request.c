/* SPDX-License-Identifier: Apache-2.0
 * Parses the bodies of requests. */
#include "tools/serve/txserve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Default number of new tokens of a completion, as OpenAI's. */
#define COMPLETION_TOKENS 16

/* ---- Keys ----------------------------------------------------------------------------------------------- */

enum {
    IN_COMPLETION = 1 << SERVE_COMPLETION,
    IN_CHAT = 1 << SERVE_CHAT,
    IN_BOTH = IN_COMPLETION | IN_CHAT,
    IN_EMBED = 1 << SERVE_EMBED,
    IN_ENCODERS = IN_EMBED | 1 << SERVE_CLASSIFY
};

/* The keys of bodies. Those that are only `empty` must be null, false, 0, "", [] or {}: TX has no such feature. */
static const struct {
    const char *key;
    int in;
    bool empty;
} keys[] = {
    {"model", IN_BOTH | IN_ENCODERS, false},
    {"input", IN_ENCODERS, false},
    {"encoding_format", IN_EMBED, false},
    {"dimensions", IN_EMBED, true},
    {"prompt", IN_COMPLETION, false},
    {"messages", IN_CHAT, false},
    {"tools", IN_CHAT, false},
    {"tool_choice", IN_CHAT, false},
    {"max_tokens", IN_BOTH, false},
    {"max_completion_tokens", IN_CHAT, false},
    {"min_tokens", IN_BOTH, false},
    {"temperature", IN_BOTH, false},
    {"top_p", IN_BOTH, false},
    {"top_k", IN_BOTH, false},
    {"repetition_penalty", IN_BOTH, false},
    {"seed", IN_BOTH, false},
    {"n", IN_BOTH, false},
    {"best_of", IN_COMPLETION, false},
    {"stop", IN_BOTH, false},
    {"stream", IN_BOTH, false},
    {"stream_options", IN_BOTH, false},
    {"echo", IN_COMPLETION, false},
    {"logprobs", IN_BOTH, false},
    {"top_logprobs", IN_CHAT, false},
    {"response_format", IN_CHAT, false},
    {"user", IN_BOTH | IN_ENCODERS, false},
    {"metadata", IN_BOTH, false},
    {"store", IN_CHAT, false},
    {"service_tier", IN_CHAT, false},
    {"parallel_tool_calls", IN_CHAT, false},
    {"suffix", IN_COMPLETION, true},
    {"frequency_penalty", IN_BOTH, true},
    {"presence_penalty", IN_BOTH, true},
    {"logit_bias", IN_BOTH, true},
};

static bool is_zero(const tx_json *value)
{
    double number = 0.0;
    return tx_json_as_number(value, "", 0.0, 0.0, &number) == TX_OK;
}

static tx_status check_keys(const tx_json *body, serve_kind kind)
{
    const size_t count = sizeof keys / sizeof keys[0];
    for (void *m = tx_json_first(body); m; m = tx_json_next(body, m)) {
        size_t i = 0;
        while (i < count && (strcmp(keys[i].key, tx_json_key(m)) != 0 || !(keys[i].in & 1 << kind)))
            i++;
        if (i == count)
            return tx_fail(TX_INVALID, "%.60s: unknown key", tx_json_key(m));
        if (keys[i].empty && !tx_json_is_empty(tx_json_value(m)) && !is_zero(tx_json_value(m)))
            return tx_fail(TX_INVALID, "%s is not supported: leave it out", keys[i].key);
    }
    return TX_OK;
}

/* ---- Settings of generation ----------------------------------------------------------------------------- */

static tx_status read_stops(serve_call *c)
{
    const tx_json *stop = tx_json_find(c->body, "stop");
    const bool several = tx_json_type_of(stop) == TX_JSON_ARRAY;
    const size_t count = several ? tx_json_size(stop) : tx_json_has(c->body, "stop");
    if (count >= SERVE_STOPS)
        return tx_fail(TX_INVALID, "stop: %zu strings; at most %d are supported", count, SERVE_STOPS - 1);
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_json_as_string(several ? tx_json_at(stop, i) : stop, "stop", &c->stop[i]));
    c->how.stop_strings = c->stop;
    c->how.stop_count = (int32_t)count;
    return TX_OK;
}

static tx_status read_logprobs(serve_call *c)
{
    int64_t top = 0;
    if (c->kind == SERVE_CHAT) {
        TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "logprobs", &c->logprobs));
        TX_TRY(TX_JSON_OPTIONAL(int, c->body, "top_logprobs", 0, TX_BATCH_TOP, &top));
        if (top && !c->logprobs)
            return tx_fail(TX_INVALID, "top_logprobs needs logprobs");
    } else if (tx_json_has(c->body, "logprobs")) {
        TX_TRY(tx_json_get_int(c->body, "logprobs", 0, TX_BATCH_TOP, &top));
        c->logprobs = true;
    }
    c->top = (int32_t)top;
    return TX_OK;
}

/* Settings that the body does not have are those of the model's generation_config.json, as in txgen. */
static tx_status read_settings(serve_call *c, int64_t *texts)
{
    tx_generation *how = &c->how;
    const tx_json *body = c->body;
    int64_t seed = 0, best = -1;
    const char *most =
        c->kind == SERVE_CHAT && tx_json_has(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    *how = *tx_lm_generation(c->server->lm);
    how->max_length = -1;
    how->num_beams = 1;
    how->max_new_tokens = c->kind == SERVE_COMPLETION ? COMPLETION_TOKENS : -1;
    how->seed = (uint64_t)time(NULL) * 1000003u + c->server->serial;
    TX_TRY(TX_JSON_OPTIONAL(int, body, most, c->kind == SERVE_COMPLETION ? 0 : 1, INT32_MAX, &how->max_new_tokens));
    TX_TRY(TX_JSON_OPTIONAL(int, body, "min_tokens", 0, INT32_MAX, &how->min_new_tokens));
    TX_TRY(TX_JSON_OPTIONAL(int, body, "top_k", -1, INT32_MAX, &how->top_k));
    TX_TRY(TX_JSON_OPTIONAL(number, body, "temperature", 0.0, 100.0, &how->temperature));
    TX_TRY(TX_JSON_OPTIONAL(number, body, "top_p", 0.0, 1.0, &how->top_p));
    TX_TRY(TX_JSON_OPTIONAL(number, body, "repetition_penalty", 0.0, 100.0, &how->repetition_penalty));
    TX_TRY(TX_JSON_OPTIONAL(int, body, "n", 1, SERVE_TEXTS, texts));
    TX_TRY(TX_JSON_OPTIONAL(int, body, "best_of", 1, SERVE_TEXTS, &best));
    TX_TRY(TX_JSON_OPTIONAL(bool, body, "echo", &c->echo));
    TX_TRY(TX_JSON_OPTIONAL(bool, body, "stream", &c->stream));
    if (best >= 0 && best != *texts)
        return tx_fail(TX_INVALID, "best_of %" PRId64 " is not supported: it must equal n", best);
    if (tx_json_has(body, "seed")) {
        TX_TRY(tx_json_get_int(body, "seed", INT64_MIN, INT64_MAX, &seed));
        how->seed = (uint64_t)seed;
    }
    how->top_k = how->top_k < 0 ? 0 : how->top_k;
    how->do_sample = how->temperature > 0.0;
    TX_TRY(read_stops(c));
    TX_TRY(read_logprobs(c));
    return tx_generation_check(how);
}

static tx_status read_options(serve_call *c)
{
    tx_json *options = NULL;
    const char *model = c->server->name, *type = "text", *choice = "auto";
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "model", &model));
    c->status = strcmp(model, c->server->name) == 0 ? 0 : 404;
    if (c->status)
        return tx_fail(TX_NOT_FOUND, "the model %.200s does not exist; this server has %s", model, c->server->name);
    if (tx_json_has(c->body, "stream_options")) {
        TX_TRY(tx_json_get(c->body, "stream_options", TX_JSON_OBJECT, &options));
        TX_TRY(TX_JSON_OPTIONAL(bool, options, "include_usage", &c->usage));
    }
    if (tx_json_has(c->body, "response_format")) {
        TX_TRY(tx_json_get(c->body, "response_format", TX_JSON_OBJECT, &options));
        TX_TRY(tx_json_get_string(options, "type", &type));
    }
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "tool_choice", &choice));
    if (strcmp(type, "text") != 0)
        return tx_fail(TX_INVALID, "response_format %.40s is not supported: use text", type);
    if (strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0)
        return tx_fail(TX_INVALID, "tool_choice %.40s is not supported: use auto or none", choice);
    return TX_OK;
}

/* ---- Prompts -------------------------------------------------------------------------------------------- */

/* A prompt: a text, or an array of ids. */
static tx_status read_prompt(serve_call *c, const tx_json *prompt, tx_ids *ids)
{
    if (tx_json_type_of(prompt) == TX_JSON_STRING) {
        const char *text;
        size_t size;
        TX_TRY(tx_json_as_text(prompt, "prompt", &text, &size));
        TX_TRY(tx_encoder_text(c->server->encoder, text, size, ids));
        return ids->count ? TX_OK : tx_fail(TX_INVALID, "prompt: it is empty");
    }
    if (tx_json_type_of(prompt) != TX_JSON_ARRAY || !tx_json_size(prompt))
        return tx_fail(TX_INVALID, "prompt: give a text, ids, or an array of texts or of arrays of ids");
    TX_TRY(tx_ids_reserve(ids, tx_json_size(prompt)));
    for (size_t i = 0; i < tx_json_size(prompt); i++) {
        int64_t id;
        TX_TRY(tx_json_as_int(tx_json_at(prompt, i), "prompt", 0, tx_lm_vocab_size(c->server->lm) - 1, &id));
        ids->id[ids->count++] = (int32_t)id;
    }
    return TX_OK;
}

/* Replaces contents that are arrays of parts, [{"type": "text", "text": ..}, ..], by their texts. */
static tx_status join_parts(tx_json *messages)
{
    for (size_t i = 0; i < tx_json_size(messages); i++) {
        tx_json *message = tx_json_at(messages, i), *parts;
        if (tx_json_get(message, "content", TX_JSON_ARRAY, &parts))
            continue;
        serve_bytes text = {0};
        tx_status status = TX_OK;
        for (size_t p = 0; p < tx_json_size(parts) && !status; p++) {
            const char *type = "", *part = "";
            status = tx_json_get_string(tx_json_at(parts, p), "type", &type);
            if (!status && strcmp(type, "text") != 0)
                status = tx_fail(TX_INVALID, "a content part of type %.40s is not supported: use text", type);
            TX_THEN(status, tx_json_get_string(tx_json_at(parts, p), "text", &part));
            TX_THEN(status, serve_append(&text, part, strlen(part)));
        }
        TX_THEN(status, tx_json_set_text(message, "content", text.data ? text.data : "", text.size));
        free(text.data);
        TX_TRY(tx_fail_in(status, "messages"));
    }
    return TX_OK;
}

static tx_status read_conversation(serve_call *c, tx_ids *ids)
{
    const char *choice = "auto";
    int32_t end;
    tx_json *messages, *tools = NULL;
    tx_conversation said = {0};
    if (!c->server->chat)
        return tx_fail(TX_INVALID,
                       "the model has no chat template that TX can use: use /v1/completions, or start txserve with "
                       "--chat_template");
    const char *text = tx_chat_end(c->server->chat, &end);
    TX_TRY(tx_json_get(c->body, "messages", TX_JSON_ARRAY, &messages));
    TX_TRY(join_parts(messages));
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "tool_choice", &choice));
    if (tx_json_has(c->body, "tools") && strcmp(choice, "none") != 0)
        tools = tx_json_copy(tx_json_find(c->body, "tools"));
    tx_json *object = tx_json_pack("{s:o, s:o*}", "messages", tx_json_copy(messages), "tools", tools);
    tx_status status = object ? tx_conversation_read(object, false, &said) : TX_MEMORY;
    TX_THEN(status, tx_chat_prompt(c->server->chat, c->server->encoder, &said, ids));
    TX_THEN(status, tx_generation_add_end(&c->how, end, text, c->stop)); /* read_stops left room for it */
    tx_conversation_free(&said);
    tx_json_free(object);
    return status;
}

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Adds `copies` texts that continue a prompt. */
static tx_status add_texts(serve_call *c, const tx_ids *ids, int64_t copies)
{
    const int64_t room = c->server->context - (int64_t)ids->count;
    const int64_t most = c->how.max_new_tokens;
    if (room < (most > 0) || most > room)
        return tx_fail(TX_INVALID,
                       "the prompt has %zu tokens and %" PRId64 " new ones are requested; the context is %" PRId64
                       " tokens: shorten the prompt or request fewer",
                       ids->count, most < 0 ? 1 : most, c->server->context);
    for (int64_t k = 0; k < copies; k++) {
        serve_text *t = &c->text[c->count];
        t->ids = malloc(ids->count * sizeof *t->ids);
        if (!t->ids)
            return tx_fail(TX_MEMORY, "out of memory");
        memcpy(t->ids, ids->id, ids->count * sizeof *t->ids);
        t->call = c;
        t->index = c->count++;
        t->count = (int64_t)ids->count;
        t->sample = (uint64_t)k;
    }
    c->prompt_tokens += (int64_t)ids->count;
    return TX_OK;
}

static tx_status read_texts(serve_call *c, int64_t copies)
{
    const tx_json *prompt = tx_json_find(c->body, "prompt");
    const tx_json_type first = tx_json_type_of(tx_json_at(prompt, 0));
    const bool list = c->kind == SERVE_COMPLETION && tx_json_type_of(prompt) == TX_JSON_ARRAY &&
                      (first == TX_JSON_STRING || first == TX_JSON_ARRAY);
    const size_t count = list ? tx_json_size(prompt) : 1;
    if ((int64_t)count * copies > SERVE_TEXTS || (int64_t)count * copies > c->server->set->max_queue)
        return tx_fail(TX_INVALID, "%zu prompts with n = %" PRId64 ": at most %" PRId64 " texts a request", count,
                       copies, c->server->set->max_queue < SERVE_TEXTS ? c->server->set->max_queue : SERVE_TEXTS);
    c->text = calloc(count * (size_t)copies, sizeof *c->text);
    tx_status status = c->text ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
    for (size_t i = 0; i < count && !status; i++) {
        tx_ids ids = {0};
        status = c->kind == SERVE_CHAT ? read_conversation(c, &ids)
                                       : read_prompt(c, list ? tx_json_at(prompt, i) : prompt, &ids);
        TX_THEN(status, add_texts(c, &ids, copies));
        free(ids.id);
    }
    return status;
}

/* The inputs of an encoder: a text or an array of texts, which the body owns. */
static tx_status read_inputs(serve_call *c)
{
    const tx_json *input = tx_json_find(c->body, "input");
    const bool list = tx_json_type_of(input) == TX_JSON_ARRAY;
    const size_t count = list ? tx_json_size(input) : 1;
    const char *format = "float";
    if (count < 1 || count > SERVE_INPUTS)
        return tx_fail(TX_INVALID, "input: %zu texts; a request may have 1 to %d", count, SERVE_INPUTS);
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "encoding_format", &format));
    c->base64 = strcmp(format, "base64") == 0;
    if (!c->base64 && strcmp(format, "float") != 0)
        return tx_fail(TX_INVALID, "encoding_format %.40s is not supported: use float or base64", format);
    c->input = calloc(count, sizeof *c->input);
    c->text = calloc(1, sizeof *c->text);
    if (!c->input || !c->text)
        return tx_fail(TX_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        tx_text_input *to = &c->input[i];
        TX_TRY(tx_json_as_text(list ? tx_json_at(input, i) : input, "input", &to->text, &to->size));
        if (!to->size)
            return tx_fail(TX_INVALID, "input %zu is empty", i);
    }
    c->inputs = (int64_t)count;
    c->text->call = c;
    c->count = 1;
    return TX_OK;
}

void serve_release(serve_call *call)
{
    if (!call || --call->owners > 0)
        return;
    call->server->open--;
    for (int32_t i = 0; i < call->count; i++) {
        free(call->text[i].ids);
        free(call->text[i].answer.data);
        tx_json_free(call->text[i].logprobs);
    }
    free(call->text);
    free(call->input);
    free(call->out.data);
    tx_json_free(call->body);
    free(call);
}

int serve_parse(serve_server *server, serve_kind kind, const char *body, size_t size, serve_call **call)
{
    static const char *const names[] = {"cmpl", "chatcmpl", "embd", "classify"};
    int64_t copies = 1;
    serve_call *c = calloc(1, sizeof *c);
    if (!c) {
        tx_fail(TX_MEMORY, "out of memory");
        return 500;
    }
    *c = (serve_call){.server = server, .kind = kind, .owners = 1, .client = -1, .created = (int64_t)time(NULL)};
    pthread_mutex_lock(&server->lock);
    server->open++;
    snprintf(c->id, sizeof c->id, "%s-%" PRIx64 "-%" PRIx64, names[kind], (uint64_t)server->created, server->serial++);
    pthread_mutex_unlock(&server->lock);
    tx_status status = tx_json_parse(body, size, "the body", &c->body);
    if (!status && tx_json_type_of(c->body) != TX_JSON_OBJECT)
        status = tx_fail(TX_INVALID, "the body is not a JSON object");
    TX_THEN(status, check_keys(c->body, kind));
    TX_THEN(status, read_options(c));
    if (kind == SERVE_EMBED || kind == SERVE_CLASSIFY) {
        TX_THEN(status, read_inputs(c));
    } else {
        TX_THEN(status, read_settings(c, &copies));
        TX_THEN(status, read_texts(c, copies));
    }
    if (!status) {
        *call = c;
        return 0;
    }
    const int code = c->status ? c->status : status == TX_MEMORY ? 500 : 400;
    pthread_mutex_lock(&server->lock);
    serve_release(c);
    pthread_mutex_unlock(&server->lock);
    return code;
}
