/* SPDX-License-Identifier: Apache-2.0
 * Parses the bodies of requests. */
#include "tools/serve/txserve.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
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
    IN_ENCODERS = IN_EMBED | 1 << SERVE_CLASSIFY | 1 << SERVE_RERANK,
    IN_TOKENIZE = 1 << SERVE_TOKENIZE,
    IN_CONTENT = 1 << SERVE_TOKENIZE_CONTENT,
    IN_MESSAGES = IN_CHAT | 1 << SERVE_TOKENIZE_CHAT,
    IN_RESPONSE = 1 << SERVE_RESPONSE,
    IN_ADAPTERS = 1 << SERVE_LOAD | 1 << SERVE_UNLOAD,
    IN_ALL = -1
};

/* The keys of bodies, with spaces between them, and those of generation; KEY.MEMBER is a key of an object. Keys without
 * `only` are read, or cannot change an answer. The others may be null or have the JSON in `only` of one of their rows,
 * which changes nothing: TX has no such feature. EMPTY stands for false, 0, "", [] and {}. */
#define EMPTY ""
static const struct {
    const char *keys;
    int in;
    const char *only;
} rows[] = {
    {"model user metadata service_tier prompt_cache_key prompt_cache_options prompt_cache_retention "
     "safety_identifier request_id priority cache_prompt",
     IN_ALL, NULL},
    {"store", ~IN_RESPONSE, NULL},
    {"input", IN_RESPONSE | IN_EMBED | 1 << SERVE_CLASSIFY, NULL},
    {"query documents top_n return_documents", 1 << SERVE_RERANK, NULL},
    {"encoding_format dimensions", IN_EMBED, NULL},
    {"prompt", IN_COMPLETION | IN_TOKENIZE, NULL},
    {"echo", IN_COMPLETION, NULL},
    {"add_special_tokens", IN_TOKENIZE, NULL},
    {"content add_special parse_special", IN_CONTENT, NULL},
    {"with_pieces", IN_CONTENT, EMPTY},
    {"return_token_strs", IN_TOKENIZE | IN_MESSAGES, EMPTY},
    {"tokens", 1 << SERVE_DETOKENIZE, NULL},
    {"lora_name", IN_ADAPTERS, NULL},
    {"lora_path load_inplace", 1 << SERVE_LOAD, NULL},
    {"lora_int_id", 1 << SERVE_UNLOAD, EMPTY},
#define SETTING(KIND, name, initial, least, most, choices, key, ...) {key, IN_BOTH | IN_RESPONSE, NULL},
#include "tx_generation.def"
    {"seed stop logit_bias stream dry_sequence_breakers", IN_BOTH | IN_RESPONSE, NULL},
    {"instructions max_output_tokens text reasoning", IN_RESPONSE, NULL},
    {"tools tool_choice parallel_tool_calls chat_template_kwargs", IN_RESPONSE, NULL},
    {"store previous_response_id conversation background include prompt max_tool_calls top_logprobs", IN_RESPONSE,
     EMPTY},
    {"truncation", IN_RESPONSE, "\"disabled\""},
    {"include", IN_RESPONSE, "[\"reasoning.encrypted_content\"]"}, /* thoughts have their text, which may come back */
    {"text.format text.format.type text.format.name text.format.description text.format.schema text.format.strict "
     "reasoning.effort stream_options tool_choice.type tool_choice.name",
     IN_RESPONSE, NULL},
    {"reasoning.summary reasoning.generate_summary reasoning.context", IN_RESPONSE, "\"auto\""},
    {"reasoning.mode", IN_RESPONSE, "\"standard\""},
    {"verbosity", IN_CHAT, "\"medium\""},
    {"text.verbosity", IN_RESPONSE, "\"medium\""},
    {"n best_of stream_options logprobs response_format json_schema guided_json "
     "guided_regex guided_choice guided_grammar grammar stream_options.include_usage",
     IN_BOTH, NULL},
    {"stream_options.include_obfuscation stream_options.continuous_usage_stats", IN_BOTH | IN_RESPONSE, EMPTY},
    {"response_format.type response_format.schema response_format.json_schema response_format.json_schema.name "
     "response_format.json_schema.description response_format.json_schema.schema response_format.json_schema.strict",
     IN_BOTH, NULL},
    {"messages tools documents chat_template_kwargs reasoning_effort add_generation_prompt continue_final_message",
     IN_MESSAGES, NULL},
    {"tool_choice parallel_tool_calls max_completion_tokens top_logprobs tool_choice.type tool_choice.function "
     "tool_choice.function.name",
     IN_CHAT, NULL},
    {"function_call", IN_CHAT, "\"none\""},
    {"suffix top_a mirostat use_beam_search early_stopping "
     "ignore_eos stop_token_ids include_stop_str_in_output bad_words prompt_logprobs functions",
     IN_BOTH, EMPTY},
    {"length_penalty repeat_penalty tfs_z", IN_BOTH, "1"},
    {"skip_special_tokens spaces_between_special_tokens", IN_BOTH, "true"},
    {"add_special_tokens", IN_COMPLETION, "true"},
    {"add_special_tokens", IN_MESSAGES, "false"},
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

/* Returns true if the table has keys of the object that a key has. */
static bool has_members(const char *key, serve_kind kind)
{
    const size_t size = strlen(key);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *at = rows[i].in & 1 << kind ? rows[i].keys : NULL; at; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (strncmp(at, key, size) == 0 && at[size] == '.')
                return true;
        }
    return false;
}

/* Checks the keys of the object `parent`, or of the body if that is "". A key that is null gives nothing, so it may be
 * any key. */
static tx_status check_keys(const tx_json *object, const char *parent, serve_kind kind)
{
    for (void *m = tx_json_first(object); m; m = tx_json_next(object, m)) {
        const tx_json *value = tx_json_value(m);
        char key[100];
        snprintf(key, sizeof key, "%s%s%.60s", parent, *parent ? "." : "", tx_json_key(m));
        bool known = tx_json_type_of(value) == TX_JSON_NULL, good = known;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !good && !strchr(tx_json_key(m), '.'); i++) {
            const bool here = rows[i].keys && rows[i].in & 1 << kind && is_among(rows[i].keys, key);
            known = known || here;
            good = here && (!rows[i].only || is_neutral(value, rows[i].only));
        }
        if (!known)
            return tx_fail(TX_INVALID, "%s: unknown key", key);
        if (!good)
            return tx_fail(TX_INVALID, "%s is not supported: leave it out", key);
        if (tx_json_type_of(value) == TX_JSON_OBJECT && has_members(key, kind))
            TX_TRY(check_keys(value, key, kind));
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
        if (inside && body[i] == '\\') {
            i++;
        } else if (body[i] == '"') {
            inside = !inside;
            strings += inside;
        } else if (!inside) {
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

/* "logit_bias": {"50256": -100} */
static tx_status read_bias(serve_call *c)
{
    tx_json *biases = NULL;
    if (!tx_json_has(c->body, "logit_bias"))
        return TX_OK;
    TX_TRY(tx_json_get(c->body, "logit_bias", TX_JSON_OBJECT, &biases));
    if (tx_json_size(biases) > SERVE_BIASES)
        return tx_fail(TX_INVALID, "logit_bias: %zu ids; at most %d are supported", tx_json_size(biases), SERVE_BIASES);
    c->bias = calloc(tx_json_size(biases) + 1, sizeof *c->bias);
    if (!c->bias)
        return tx_fail(TX_MEMORY, "out of memory");
    c->how.logit_bias = c->bias;
    for (void *m = tx_json_first(biases); m; m = tx_json_next(biases, m)) {
        char *end = NULL;
        double bias = 0.0;
        const long long id = strtoll(tx_json_key(m), &end, 10);
        if (end == tx_json_key(m) || *end || id < 0 || id >= tx_lm_vocab_size(c->server->lm))
            return tx_fail(TX_INVALID, "logit_bias: %.40s is no id of the vocabulary", tx_json_key(m));
        TX_TRY(tx_json_as_number(tx_json_value(m), "logit_bias", -100, 100, &bias));
        c->bias[c->how.bias_count++] = (tx_logit_bias){(int32_t)id, (float)bias};
    }
    return TX_OK;
}

/* "dry_sequence_breakers": ["\n"] */
static tx_status read_breakers(serve_call *c)
{
    const char *texts[SERVE_STOPS] = {NULL};
    tx_json *list = NULL;
    if (!tx_json_has(c->body, "dry_sequence_breakers"))
        return TX_OK;
    TX_TRY(tx_json_get(c->body, "dry_sequence_breakers", TX_JSON_ARRAY, &list));
    const size_t count = tx_json_size(list);
    if (count >= SERVE_STOPS)
        return tx_fail(TX_INVALID, "dry_sequence_breakers: %zu texts; at most %d are supported", count,
                       SERVE_STOPS - 1);
    for (size_t i = 0; i < count; i++)
        TX_TRY(tx_json_as_string(tx_json_at(list, i), "dry_sequence_breakers", &texts[i]));
    TX_TRY(tx_breakers_create(c->server->tokenizer, texts, (int32_t)count, &c->breakers));
    c->how.dry_breakers = c->breakers;
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
    TX_TRY(read_bias(c));
    TX_TRY(read_breakers(c));
    TX_TRY(serve_read_grammar(c));
    TX_TRY(read_logprobs(c));
    return tx_generation_check(how);
}

static tx_status read_options(serve_call *c)
{
    tx_json *options = NULL;
    const char *model = c->server->name;
    TX_TRY(TX_JSON_OPTIONAL(string, c->body, "model", &model));
    const tx_status status = serve_use_model(c, model);
    c->status = status ? 404 : 0;
    TX_TRY(status);
    TX_TRY(TX_JSON_OPTIONAL(int, c->body, "priority", INT32_MIN, INT32_MAX, &c->priority));
    if (tx_json_has(c->body, "stream_options")) {
        TX_TRY(tx_json_get(c->body, "stream_options", TX_JSON_OBJECT, &options));
        TX_TRY(TX_JSON_OPTIONAL(bool, options, "include_usage", &c->usage));
    }
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
    return serve_read_ids(prompt, "prompt", tx_lm_vocab_size(c->server->lm), ids);
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
        if (c->kind == SERVE_CHAT)
            TX_TRY(serve_begin_message(t));
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
        status = c->kind == SERVE_CHAT ? serve_read_conversation(c, &ids)
                                       : read_prompt(c, list ? tx_json_at(prompt, i) : prompt, &ids);
        TX_THEN(status, add_texts(c, &ids, copies));
        free(ids.id);
    }
    return status;
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
    if (c->kind == SERVE_TOKENIZE && tx_json_has(c->body, "messages"))
        c->kind = SERVE_TOKENIZE_CHAT;
    else if (c->kind == SERVE_TOKENIZE && tx_json_has(c->body, "content"))
        c->kind = SERVE_TOKENIZE_CONTENT;
    TX_THEN(status, check_keys(c->body, "", c->kind));
    if (c->kind == SERVE_RESPONSE)
        TX_THEN(status, serve_read_response(c));
    TX_THEN(status, read_options(c));
    if (1 << c->kind & IN_ENCODERS) {
        TX_THEN(status, serve_read_inputs(c));
    } else if (1 << c->kind & IN_ADAPTERS) {
        TX_THEN(status, serve_change_adapters(c));
    } else if (!(1 << c->kind & IN_BOTH)) {
        TX_THEN(status, c->kind == SERVE_DETOKENIZE ? serve_detokenize(c) : serve_tokenize(c));
    } else {
        TX_THEN(status, read_settings(c, &copies));
        TX_THEN(status, read_texts(c, copies));
    }
    const int code = c->status ? c->status : status == TX_MEMORY ? 500 : 400;
    c->status = 0; /* serve_fail sets it, with the message */
    return status ? code : 0;
}
