/* SPDX-License-Identifier: Apache-2.0
 * Parses the bodies of requests. */
#include "tools/serve/txserve.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
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
    IN_ENCODERS = IN_EMBED | 1 << SERVE_CLASSIFY,
    IN_ALL = IN_BOTH | IN_ENCODERS
};

/* The keys of bodies, with spaces between them, and those of generation. Keys without `only` are read, or cannot change
 * an answer. The others may be null or have the JSON in `only`, which changes nothing: TX has no such feature. EMPTY
 * stands for false, 0, "", [] and {}. */
#define EMPTY ""
static const struct {
    const char *keys;
    int in;
    const char *only;
} rows[] = {
    {"model user metadata store service_tier prompt_cache_key prompt_cache_retention safety_identifier verbosity "
     "request_id priority cache_prompt",
     IN_ALL, NULL},
    {"input", IN_ENCODERS, NULL},
    {"encoding_format dimensions", IN_EMBED, NULL},
    {"prompt echo", IN_COMPLETION, NULL},
#define SETTING(KIND, name, initial, least, most, choices, key, ...) {key, IN_BOTH, NULL},
#include "tx_generation.def"
    {"seed n best_of stop stream stream_options logprobs response_format", IN_BOTH, NULL},
    {"messages tools tool_choice parallel_tool_calls function_call documents chat_template_kwargs reasoning_effort "
     "add_generation_prompt continue_final_message max_completion_tokens top_logprobs",
     IN_CHAT, NULL},
    {"suffix frequency_penalty presence_penalty logit_bias min_p top_a mirostat use_beam_search early_stopping "
     "ignore_eos stop_token_ids include_stop_str_in_output bad_words prompt_logprobs functions grammar guided_json "
     "guided_regex guided_choice",
     IN_BOTH, EMPTY},
    {"length_penalty repeat_penalty typical_p tfs_z", IN_BOTH, "1"},
    {"skip_special_tokens spaces_between_special_tokens", IN_BOTH, "true"},
    {"add_special_tokens", IN_COMPLETION, "true"},
    {"add_special_tokens", IN_CHAT, "false"},
    {"modalities", IN_CHAT, "[\"text\"]"},
};

static bool is_among(const char *keys, const char *key)
{
    const size_t size = strlen(key);
    for (size_t length; *keys; keys += length + (keys[length] == ' ')) {
        length = strcspn(keys, " ");
        if (length == size && memcmp(keys, key, size) == 0)
            return true;
    }
    return false;
}

/* Returns true if a value is the one of `only`, or a number that equals it. */
static bool is_neutral(const tx_json *value, const char *only)
{
    double number = 0.0, wanted = strtod(only, NULL);
    const bool equal = tx_json_as_number(value, "", -HUGE_VAL, HUGE_VAL, &number) == TX_OK && number == wanted;
    if (!*only)
        return tx_json_is_empty(value) || equal;
    char *text = tx_json_text(value, TX_JSON_LINE);
    const bool same = text && strcmp(text, only) == 0;
    free(text);
    return same || (equal && isdigit((unsigned char)*only));
}

/* A key that is null gives nothing, so it may be any key. */
static tx_status check_keys(const tx_json *body, serve_kind kind)
{
    for (void *m = tx_json_first(body); m; m = tx_json_next(body, m)) {
        const tx_json *value = tx_json_value(m);
        const char *key = tx_json_key(m), *only = EMPTY;
        bool known = tx_json_type_of(value) == TX_JSON_NULL;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !known; i++) {
            known = rows[i].keys && rows[i].in & 1 << kind && is_among(rows[i].keys, key);
            only = rows[i].only;
        }
        if (!known)
            return tx_fail(TX_INVALID, "%.60s: unknown key", key);
        if (tx_json_type_of(value) != TX_JSON_NULL && only && !is_neutral(value, only))
            return tx_fail(TX_INVALID, "%s is not supported: leave it out", key);
    }
    return TX_OK;
}

/* Objects, arrays and strings take up to a hundred times their bytes as JSON. Bodies with more of them are hostile. */
#define CONTAINERS 65536u

static tx_status check_body(const char *body, size_t size)
{
    size_t strings = 0, containers = 0;
    bool inside = false;
    for (size_t i = 0; i < size; i++) {
        i += inside && body[i] == '\\';
        if (i < size && body[i] == '"') {
            inside = !inside;
            strings += inside;
        } else if (i < size && !inside) {
            containers += body[i] == '{' || body[i] == '[';
        }
    }
    return containers <= CONTAINERS && strings <= 4 * CONTAINERS
               ? TX_OK
               : tx_fail(TX_INVALID, "the body has %zu objects and arrays and %zu strings: at most %u and %u",
                         containers, strings, CONTAINERS, 4 * CONTAINERS);
}

/* ---- Settings of generation ----------------------------------------------------------------------------- */

static tx_status read_stops(serve_call *c)
{
    const tx_json *stop = tx_json_find(c->body, "stop");
    const bool is_list = tx_json_type_of(stop) == TX_JSON_ARRAY;
    const size_t count = is_list ? tx_json_size(stop) : tx_json_has(c->body, "stop");
    if (count >= SERVE_STOPS)
        return tx_fail(TX_INVALID, "stop: %zu strings; at most %d are supported", count, SERVE_STOPS - 1);
    for (size_t i = 0; i < count; i++) {
        TX_TRY(tx_json_as_string(is_list ? tx_json_at(stop, i) : stop, "stop", &c->stop[i]));
        if (strlen(c->stop[i]) > SERVE_STOP_BYTES)
            return tx_fail(TX_INVALID, "stop: a string has at most %d bytes", SERVE_STOP_BYTES);
    }
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
    how->seed = (uint64_t)time(NULL) * 1000003u + c->number;
    TX_TRY(tx_generation_read_body(how, body));
    TX_TRY(TX_JSON_OPTIONAL(int, body, most, c->kind == SERVE_COMPLETION ? 0 : 1, INT32_MAX, &how->max_new_tokens));
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
    if (tx_json_type_of(tx_json_find(c->body, "tool_choice")) == TX_JSON_OBJECT)
        return tx_fail(TX_INVALID, "a named tool_choice is not supported: use auto or none");
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
        TX_TRY(tx_encoder_text(c->encoder, text, size, ids));
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

/* Checks tools before they are rendered. */
static tx_status check_tools(const tx_json *tools)
{
    if (tx_json_type_of(tools) != TX_JSON_ARRAY)
        return tx_fail(TX_INVALID, "expected an array");
    for (size_t i = 0; i < tx_json_size(tools); i++) {
        const char *text = "function";
        tx_json *function = NULL;
        tx_status status = tx_json_type_of(tx_json_at(tools, i)) == TX_JSON_OBJECT
                               ? TX_JSON_OPTIONAL(string, tx_json_at(tools, i), "type", &text)
                               : tx_fail(TX_INVALID, "expected an object");
        if (!status && strcmp(text, "function") != 0)
            status = tx_fail(TX_INVALID, "type %.40s is not supported: use function", text);
        TX_THEN(status, tx_json_get(tx_json_at(tools, i), "function", TX_JSON_OBJECT, &function));
        TX_THEN(status, tx_json_get_string(function, "name", &text));
        TX_TRY(tx_fail_in(status, "tool %zu", i + 1));
    }
    return TX_OK;
}

/* Reads the variables of the template, and the end of the prompt. */
static tx_status read_variables(const serve_call *c, tx_conversation *said)
{
    bool asks = true, continues = false;
    tx_json *variables = NULL;
    if (tx_json_has(c->body, "reasoning_effort"))
        TX_TRY(tx_json_set(said->said, "reasoning_effort", tx_json_copy(tx_json_find(c->body, "reasoning_effort"))));
    if (tx_json_has(c->body, "chat_template_kwargs"))
        TX_TRY(tx_json_get(c->body, "chat_template_kwargs", TX_JSON_OBJECT, &variables));
    for (void *i = tx_json_first(variables); i; i = tx_json_next(variables, i))
        if (!tx_chat_reads(c->server->chat, tx_json_key(i)))
            return tx_fail(TX_INVALID, "chat_template_kwargs: the chat template does not read %.60s", tx_json_key(i));
    TX_TRY(tx_conversation_set(said, variables));
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "continue_final_message", &continues));
    asks = !continues;
    TX_TRY(TX_JSON_OPTIONAL(bool, c->body, "add_generation_prompt", &asks));
    if (asks && continues)
        return tx_fail(TX_INVALID, "continue_final_message and add_generation_prompt exclude each other");
    said->suffix = continues ? TX_CHAT_CONTINUE_FINAL : asks ? TX_CHAT_GENERATION_PROMPT : TX_CHAT_NO_SUFFIX;
    return TX_OK;
}

static tx_status read_conversation(serve_call *c, tx_ids *ids)
{
    const char *choice = "auto";
    int32_t end;
    tx_json *messages, *tools = tx_json_find(c->body, "tools"), *documents = tx_json_find(c->body, "documents");
    tx_conversation said = {0};
    if (!c->server->chat)
        return tx_fail(TX_INVALID,
                       "the model has no chat template that TX can use: use /v1/completions, or start txserve with "
                       "--chat_template");
    const char *text = tx_chat_end(c->server->chat, &end);
    TX_TRY(tx_json_get(c->body, "messages", TX_JSON_ARRAY, &messages));
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "tool_choice", &choice));
    if (!tx_json_has(c->body, "tools") || tx_json_is_empty(tools) || strcmp(choice, "none") == 0)
        tools = NULL;
    if (tools)
        TX_TRY(tx_fail_in(check_tools(tools), "tools"));
    tx_json *object = tx_json_pack("{s:O, s:O*, s:O*}", "messages", messages, "tools", tools, "documents", documents);
    tx_status status = object ? tx_conversation_read(object, false, &said) : TX_MEMORY;
    tx_json_free(object);
    TX_THEN(status, tx_json_set_null(c->body, "messages")); /* `said` has a copy */
    TX_THEN(status, tx_json_set_null(c->body, "tools"));
    TX_THEN(status, read_variables(c, &said));
    TX_THEN(status, tx_chat_prompt(c->server->chat, c->encoder, &said, ids));
    TX_THEN(status, tx_generation_add_end(&c->how, end, text, c->stop)); /* read_stops left room for it */
    tx_conversation_free(&said);
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

/* Reads the ids of an input. */
static tx_status read_ids(const tx_json *list, tx_text_input *to)
{
    int32_t *ids = malloc(tx_json_size(list) * sizeof *ids);
    to->ids = ids;
    to->size = tx_json_size(list);
    for (size_t i = 0; i < to->size; i++) {
        int64_t id = 0;
        if (!ids)
            return tx_fail(TX_MEMORY, "out of memory");
        TX_TRY(tx_json_as_int(tx_json_at(list, i), "input", 0, INT32_MAX, &id));
        ids[i] = (int32_t)id;
    }
    return TX_OK;
}

/* The inputs of an encoder: a text, ids, or an array of them. The body owns the texts. */
static tx_status read_inputs(serve_call *c)
{
    const tx_json *input = tx_json_find(c->body, "input");
    const tx_json_type first = tx_json_type_of(tx_json_at(input, 0));
    const bool list = tx_json_type_of(input) == TX_JSON_ARRAY && first != TX_JSON_INTEGER;
    const size_t count = list ? tx_json_size(input) : 1;
    const char *format = "float";
    if (count < 1 || count > SERVE_INPUTS)
        return tx_fail(TX_INVALID, "input: %zu texts; a request may have 1 to %d", count, SERVE_INPUTS);
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "encoding_format", &format));
    c->base64 = strcmp(format, "base64") == 0;
    if (!c->base64 && strcmp(format, "float") != 0)
        return tx_fail(TX_INVALID, "encoding_format %.40s is not supported: use float or base64", format);
    if (c->kind == SERVE_EMBED)
        TX_TRY(TX_JSON_OPTIONAL(int, c->body, "dimensions", 1, tx_embedder_width(c->server->embedder), &c->dimensions));
    c->input = calloc(count, sizeof *c->input);
    c->text = calloc(1, sizeof *c->text);
    if (!c->input || !c->text)
        return tx_fail(TX_MEMORY, "out of memory");
    c->inputs = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        tx_text_input *to = &c->input[i];
        const tx_json *item = list ? tx_json_at(input, i) : input;
        TX_TRY(tx_json_type_of(item) == TX_JSON_ARRAY && c->kind == SERVE_EMBED
                   ? read_ids(item, to)
                   : tx_json_as_text(item, "input", &to->text, &to->size));
        if (!to->size)
            return tx_fail(TX_INVALID, "input %zu is empty", i);
    }
    c->text->call = c;
    c->count = 1;
    return TX_OK;
}

int serve_parse(serve_call *c)
{
    int64_t copies = 1;
    tx_status status = check_body(c->raw.data, c->raw.size);
    TX_THEN(status, tx_json_parse(c->raw.data ? c->raw.data : "", c->raw.size, "the body", &c->body));
    free(c->raw.data);
    c->raw = (serve_bytes){0};
    if (!status && tx_json_type_of(c->body) != TX_JSON_OBJECT)
        status = tx_fail(TX_INVALID, "the body is not a JSON object");
    TX_THEN(status, check_keys(c->body, c->kind));
    TX_THEN(status, read_options(c));
    if (c->kind == SERVE_EMBED || c->kind == SERVE_CLASSIFY) {
        TX_THEN(status, read_inputs(c));
    } else {
        TX_THEN(status, read_settings(c, &copies));
        TX_THEN(status, read_texts(c, copies));
    }
    const int code = c->status ? c->status : status == TX_MEMORY ? 500 : 400;
    c->status = 0; /* serve_fail sets it, with the message */
    return status ? code : 0;
}
