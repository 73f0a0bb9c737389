/* SPDX-License-Identifier: Apache-2.0
 * Opens chat templates, and finds their variables and tokens. */
#include "models/chat/chat.h"
#include "models/chat/parser.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/names.h"
#include "models/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)

/* ---- Opening -------------------------------------------------------------------------------------------- */

static tx_status read_file(tx_chat *chat, const char *path)
{
    size_t size;
    TX_TRY(tx_file_read_text(path, FILE_LIMIT, &chat->text, &size));
    return tx_fail_in(tx_jinja_parse(chat->text, size, &chat->jinja), "%s", path);
}

static tx_status read_own(tx_chat *chat, bool tools)
{
    size_t size;
    TX_TRY(tx_tokenizer_chat(chat->tokenizer, tools, &chat->text, &size));
    if (!chat->text)
        return tx_fail(TX_NOT_FOUND, "the model has no chat template: set --chat_template to one of %s, or to a file",
                       tx_chat_template_names());
    chat->is_own = true;
    return tx_fail_in(tx_jinja_parse(chat->text, size, &chat->jinja), "the model's");
}

static tx_status choose(tx_chat *chat, const char *name, bool tools)
{
    if (!name)
        return read_own(chat, tools);
    if (tx_ends_with(name, ".jinja"))
        return read_file(chat, name);
    const bool is_text = strstr(name, "{%") || strstr(name, "{{");
    const char *found = is_text ? name : tx_chat_template_find(name);
    if (!found)
        return tx_fail(TX_INVALID,
                       "--chat_template %s: unknown: use one of %s, a .jinja file, or the text of a template", name,
                       tx_chat_template_names());
    TX_TRY(tx_copy_text(found, &chat->text));
    return tx_fail_in(tx_jinja_parse(chat->text, strlen(found), &chat->jinja), "--chat_template");
}

/* ---- Variables ------------------------------------------------------------------------------------------ */

static tx_status give_text(tx_chat *chat, const char *name, const char *text, size_t size)
{
    for (int asks = 0; asks < 2; asks++)
        TX_TRY(tx_json_set_text(chat->given[asks], name, text, size));
    return TX_OK;
}

/* Sets a token's text as a variable, if the tokenizer names the token. */
static tx_status give_token(tx_chat *chat, const char *name, int32_t id)
{
    const char *text;
    size_t size;
    if (id < 0)
        return TX_OK;
    TX_TRY(tx_tokenizer_piece(chat->tokenizer, id, false, &text, &size));
    return give_text(chat, name, text, size);
}

/* Sets the named tokens of an object as variables. As in transformers, all its members name tokens, or in
 * tokenizer_config.json those whose names end with _token. */
static tx_status give_named(tx_chat *chat, const tx_json *object, bool all)
{
    const char *text;
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const tx_json_type type = tx_json_type_of(tx_json_value(i));
        if ((type != TX_JSON_STRING && type != TX_JSON_OBJECT) || !(all || tx_ends_with(tx_json_key(i), "_token")))
            continue;
        TX_TRY(tx_tokenizer_role(object, tx_json_key(i), &text));
        if (text)
            TX_TRY(give_text(chat, tx_json_key(i), text, strlen(text)));
    }
    return TX_OK;
}

static tx_status give_variables(tx_chat *chat)
{
    static const char *const more[] = {"extra_special_tokens", "model_specific_special_tokens"};
    const tx_tokenizer *t = chat->tokenizer;
    tx_json *config = NULL;
    for (int asks = 0; asks < 2; asks++) {
        chat->given[asks] = tx_json_object();
        TX_TRY(tx_json_set_bool(chat->given[asks], "add_generation_prompt", asks));
    }
    tx_status status = tx_tokenizer_config(t, &config);
    TX_THEN(status, give_named(chat, config, false));
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (!status && tx_json_type_of(tx_json_find(config, more[i])) == TX_JSON_OBJECT)
            status = give_named(chat, tx_json_find(config, more[i]), true);
    tx_json_free(config);
    TX_TRY(status);
    TX_TRY(give_token(chat, "bos_token", t->begin));
    TX_TRY(give_token(chat, "eos_token", t->end));
    return t->end < 0 ? TX_OK : tx_tokenizer_piece(t, t->end, false, &chat->eos, &chat->eos_size);
}

/* ---- Tokens --------------------------------------------------------------------------------------------- */

/* Protects the added tokens that the template writes around questions and answers: in messages they are plain text. */
static tx_status keep_tokens(tx_chat *chat)
{
    const tx_additions *additions = &chat->tokenizer->additions;
    for (int32_t i = 0; i < additions->count; i++) {
        const tx_added *a = &additions->at[i];
        const bool is_word = a->size > 1 && a->text[strspn(a->text, " \n\t")];
        if (!is_word || (!strstr(chat->frame.question, a->text) && !strstr(chat->frame.end, a->text)))
            continue;
        if (a->normalized && chat->tokenizer->normalizer.count)
            return tx_fail(TX_UNSUPPORTED,
                           "%s, which the chat template uses, is searched in normalized text (normalized in "
                           "tokenizer.json) and cannot be distinguished there from the same text in a message",
                           a->text);
        TX_TRY(tx_ids_reserve(&chat->kept, 1));
        chat->kept.id[chat->kept.count++] = a->id;
    }
    return TX_OK;
}

/* The last added token in a text, or -1. Sets `*end` to the byte after it. */
static int32_t last_token(const tx_tokenizer *tokenizer, const char *text, size_t *end)
{
    int32_t id = -1;
    *end = 0;
    for (int32_t i = 0; i < tokenizer->additions.count; i++) {
        const tx_added *a = &tokenizer->additions.at[i];
        for (const char *at = text; *a->text && (at = strstr(at, a->text)); at++)
            if ((size_t)(at - text) + a->size > *end && a->text[strspn(a->text, " \n\t")]) {
                *end = (size_t)(at - text) + a->size;
                id = a->id;
            }
    }
    return id;
}

/* Without a generation prompt, the words before an answer are its header. */
static void find_header(tx_chat *chat, const tx_reporter *report)
{
    const char *before = chat->frame.before;
    const bool words = !*chat->frame.prompt && before[strspn(before, " \n\t")];
    chat->header = words ? before : chat->frame.prompt;
    if (words)
        tx_reporter_print(report,
                          "the chat template has no generation prompt: training does not learn the header %s of "
                          "answers, and prompts do not end with it: add it {%% if add_generation_prompt %%}",
                          before);
}

/* If answers have no end, as in GLM's templates, they end before the token that begins the next question. */
static tx_status find_next(tx_chat *chat)
{
    char *next = NULL;
    TX_TRY(tx_chat_find_next(chat, &next));
    for (int32_t i = 0; i < chat->tokenizer->additions.count; i++) {
        const tx_added *a = &chat->tokenizer->additions.at[i];
        if (a->size <= 1 || !tx_begins_with(next, a->text))
            continue;
        next[a->size] = '\0';
        free(chat->frame.end);
        chat->frame.end = next;
        chat->frame.open = true;
        return TX_OK;
    }
    free(next);
    return TX_OK;
}

static tx_status find_end(tx_chat *chat, const tx_reporter *report)
{
    size_t size;
    TX_TRY(tx_chat_find_frame(chat, &chat->frame));
    find_header(chat, report);
    if (!*chat->frame.end)
        TX_TRY(find_next(chat));
    char *end = chat->frame.end;
    if (!*end)
        return tx_fail(TX_INVALID, "the chat template has no end of answers%s: use another --chat_template",
                       chat->tokenizer->end < 0 ? ", or it is eos_token, which the tokenizer does not define" : "");
    chat->end_id = last_token(chat->tokenizer, end, &size);
    if (chat->end_id >= 0)
        end[size] = '\0';
    else
        chat->end_id = tx_tokenizer_find(chat->tokenizer, end);
    if (chat->end_id < 0)
        tx_reporter_print(
            report,
            "the chat template ends answers with %s, which is not a token of the tokenizer: messages can contain the "
            "same ids",
            end);
    return keep_tokens(chat);
}

static tx_status make(const char *name, bool tools, const tx_tokenizer *tokenizer, const tx_reporter *report,
                      tx_chat **chat)
{
    tx_chat *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "chat template: out of memory");
    created->tokenizer = tokenizer;
    tx_status status = choose(created, name, tools);
    TX_THEN(status, give_variables(created));
    TX_THEN(status, tx_chat_find_habits(created));
    TX_THEN(status, find_end(created, report));
    if (!status)
        tx_parser_find_forms(created);
    return TX_RETURN(status, created, chat, tx_chat_free);
}

/* Opens the model's template for conversations with tools, if it has one. */
static tx_status make_tools(tx_chat *chat, const tx_reporter *report)
{
    char *text = NULL;
    size_t size;
    TX_TRY(tx_tokenizer_chat(chat->tokenizer, true, &text, &size));
    const bool exists = text;
    free(text);
    if (!exists)
        return TX_OK;
    TX_TRY(tx_fail_in(make(NULL, true, chat->tokenizer, report, &chat->tools), "tool_use"));
    if (strcmp(chat->tools->frame.end, chat->frame.end) != 0)
        tx_reporter_print(report,
                          "the chat template tool_use ends answers with %s, not with %s: such answers do not end",
                          chat->tools->frame.end, chat->frame.end);
    const tx_ids *kept = &chat->tools->kept;
    TX_TRY(tx_ids_reserve(&chat->kept, kept->count));
    if (kept->count)
        memcpy(chat->kept.id + chat->kept.count, kept->id, kept->count * sizeof *kept->id);
    chat->kept.count += kept->count;
    return TX_OK;
}

tx_status tx_chat_create(const char *name, const tx_tokenizer *tokenizer, const tx_reporter *report, tx_chat **chat)
{
    TX_NEEDS(tokenizer && chat, TX_INVALID);
    tx_chat *created = NULL;
    tx_status status = make(name, false, tokenizer, report, &created);
    if (!status && !name)
        status = make_tools(created, report);
    return TX_RETURN(status, created, chat, tx_chat_free);
}

bool tx_chat_reads(const tx_chat *chat, const char *variable)
{
    TX_NEEDS(chat && variable, false);
    return strstr(chat->text, variable) || (chat->tools && strstr(chat->tools->text, variable));
}

void tx_chat_free(tx_chat *chat)
{
    if (!chat)
        return;
    tx_chat_free(chat->tools);
    tx_jinja_free(chat->jinja);
    free(chat->text);
    tx_json_free(chat->given[0]);
    tx_json_free(chat->given[1]);
    free(chat->kept.id);
    free(chat->frame.question);
    free(chat->frame.prompt);
    free(chat->frame.before);
    free(chat->frame.end);
    free(chat);
}

int32_t tx_chat_end_token(const tx_chat *chat, bool *keeps_eos)
{
    const int32_t id = chat->end_id;
    *keeps_eos = id != chat->tokenizer->end && strstr(chat->text, "eos_token");
    return id >= 0 && chat->tokenizer->vocab.token[id].added ? id : -1;
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

tx_status tx_chat_replaces(const tx_chat *chat, bool *replaces)
{
    char *own = NULL;
    size_t size;
    TX_TRY(tx_tokenizer_chat(chat->tokenizer, false, &own, &size));
    *replaces = own && strcmp(own, chat->text) != 0;
    free(own);
    return TX_OK;
}

tx_status tx_chat_save(const tx_chat *chat, const char *folder)
{
    return tx_file_write(TX_PATH(folder, "chat_template.jinja"), chat->text, strlen(chat->text));
}

/* ---- The end of an answer ------------------------------------------------------------------------------- */

const char *tx_chat_end(const tx_chat *chat, int32_t *id)
{
    TX_NEEDS(chat && id, NULL);
    *id = chat->end_id;
    return chat->frame.end;
}

size_t tx_chat_held_back(const tx_chat *chat, const char *answer, size_t size)
{
    TX_NEEDS(chat && (answer || !size), 0);
    size_t held = strlen(chat->frame.end);
    for (held = held < size ? held : size; held > 0; held--)
        if (memcmp(answer + size - held, chat->frame.end, held) == 0)
            break;
    return held;
}

size_t tx_chat_trim(const tx_chat *chat, char *answer, size_t size)
{
    TX_NEEDS(chat && (answer || !size), 0);
    const size_t before = strlen(chat->frame.before);
    if (tx_chat_held_back(chat, answer, size) == strlen(chat->frame.end))
        size -= strlen(chat->frame.end);
    if (before && size >= before && memcmp(answer, chat->frame.before, before) == 0) {
        size -= before;
        memmove(answer, answer + before, size);
    }
    return size;
}
