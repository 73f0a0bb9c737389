/* SPDX-License-Identifier: Apache-2.0
 * A chat template chosen, and what the tokenizer has for it. */
#include "models/chat/chat.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/names.h"
#include "models/text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)

/* ---- Which template ------------------------------------------------------------------------------------ */

static tx_status read_json(tx_chat *chat, const char *path)
{
    TX_TRY(tx_json_read(path, FILE_LIMIT, &chat->json));
    return tx_fail_in(tx_chat_template_read(chat->json, &chat->template), "%s", path);
}

static tx_status read_jinja(tx_chat *chat, const char *path)
{
    char *text = NULL;
    size_t size;
    TX_TRY(tx_file_read_text(path, FILE_LIMIT, &text, &size));
    tx_status status = tx_fail_in(tx_chat_jinja_read(text, size, &chat->template, &chat->json), "%s", path);
    free(text);
    return status;
}

static tx_status read_own(tx_chat *chat)
{
    char *text = NULL;
    size_t size;
    TX_TRY(tx_tokenizer_chat(chat->tokenizer, &text, &size));
    if (!text)
        return tx_fail(TX_NOT_FOUND, "the model has no chat template: name one with --chat_template: %s, or a file",
                       tx_chat_template_names());
    tx_status status = tx_fail_in(tx_chat_jinja_read(text, size, &chat->template, &chat->json), "the model's");
    chat->is_own = true;
    free(text);
    return status;
}

static tx_status choose(tx_chat *chat, const char *name)
{
    if (!name)
        return read_own(chat);
    chat->is_chosen = true;
    if (tx_ends_with(name, ".json"))
        return read_json(chat, name);
    if (tx_ends_with(name, ".jinja"))
        return read_jinja(chat, name);
    const tx_chat_template *found = tx_chat_template_find(name);
    if (!found)
        return tx_fail(TX_INVALID, "--chat_template %s: there are %s; or give a .json file", name,
                       tx_chat_template_names());
    chat->template = *found;
    return TX_OK;
}

/* ---- Its tokens ---------------------------------------------------------------------------------------- */

static bool uses(const tx_chat_template *t, const char *word)
{
    bool used = false;
#define X(member) used = used || (t->member && strstr(t->member, word));
    TX_CHAT_TEXTS(X)
#undef X
    return used;
}

/* Text and size of a token by its id. */
static tx_status find_text(const tx_chat *chat, int32_t id, const char **text, size_t *size)
{
    *text = "";
    *size = 0;
    return id < 0 ? TX_OK : tx_tokenizer_piece(chat->tokenizer, id, false, text, size);
}

static tx_status find_ends(tx_chat *chat)
{
    const tx_tokenizer *t = chat->tokenizer;
    TX_TRY(find_text(chat, t->begin, &chat->bos, &chat->bos_size));
    TX_TRY(find_text(chat, t->end, &chat->eos, &chat->eos_size));
    return t->end >= 0 || !uses(&chat->template, "{eos}")
               ? TX_OK
               : tx_fail(TX_INVALID,
                         "chat template %s ends answers with eos_token, which the tokenizer does not name: name it in "
                         "tokenizer_config.json, or take another --chat_template",
                         chat->template.name);
}

/* Adds the added token to those that are found in the template alone. */
static tx_status keep(tx_chat *chat, const tx_added *added)
{
    if (added->normalized && chat->tokenizer->normalizer.count)
        return tx_fail(
            TX_UNSUPPORTED,
            "%s, which chat template %s uses, is sought in normalized text (normalized in tokenizer.json), where "
            "it cannot be told from the same text in a message",
            added->text, chat->template.name);
    TX_TRY(tx_ids_reserve(&chat->kept, 1));
    chat->kept.id[chat->kept.count++] = added->id;
    return TX_OK;
}

static tx_status keep_tokens(tx_chat *chat)
{
    const tx_additions *additions = &chat->tokenizer->additions;
    for (int32_t i = 0; i < additions->count; i++) {
        const tx_added *a = &additions->at[i];
        const bool is_bos = a->id == chat->tokenizer->begin && uses(&chat->template, "{bos}");
        const bool is_eos = a->id == chat->tokenizer->end && uses(&chat->template, "{eos}");
        const bool is_word = a->size > 1 && a->text[strspn(a->text, " \n\t")];
        if (is_bos || is_eos || (is_word && uses(&chat->template, a->text)))
            TX_TRY(keep(chat, a));
    }
    return TX_OK;
}

/* What ends an answer: "{eos}" in the end of the template is eos_token. */
static tx_status find_end(tx_chat *chat, const tx_reporter *report)
{
    const char *end = chat->template.end, *eos = strstr(end, "{eos}");
    end += strspn(end, " \n\t");
    const size_t before = eos ? (size_t)(eos - end) : strlen(end), of_eos = eos ? chat->eos_size : 0;
    const char *behind = eos ? eos + 5 : "";
    chat->end = malloc(before + of_eos + strlen(behind) + 1);
    if (!chat->end)
        return tx_fail(TX_MEMORY, "chat template: out of memory");
    memcpy(chat->end, end, before);
    if (of_eos)
        memcpy(chat->end + before, chat->eos, of_eos);
    strcpy(chat->end + before + of_eos, behind);
    chat->end_id = tx_tokenizer_find(chat->tokenizer, chat->end);
    if (chat->end_id < 0)
        tx_tell(report,
                "chat template %s ends answers with %s, which is no token of the tokenizer: it is spelled as text, and "
                "anybody can write it",
                chat->template.name, chat->end);
    return TX_OK;
}

static tx_status make(tx_chat *chat, const char *name, const tx_reporter *report)
{
    TX_TRY(choose(chat, name));
    TX_TRY(find_ends(chat));
    TX_TRY(keep_tokens(chat));
    return find_end(chat, report);
}

tx_status tx_chat_create(const char *name, const tx_tokenizer *tokenizer, const tx_reporter *report, tx_chat **chat)
{
    tx_chat *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "chat template: out of memory");
    made->tokenizer = tokenizer;
    tx_status status = make(made, name, report);
    return TX_GIVE(status, made, chat, tx_chat_free);
}

void tx_chat_free(tx_chat *chat)
{
    if (!chat)
        return;
    tx_json_free(chat->json);
    free(chat->kept.id);
    free(chat->end);
    free(chat);
}

int32_t tx_chat_end_token(const tx_chat *chat, bool *keeps_eos)
{
    const int32_t id = chat->end_id;
    *keeps_eos = id != chat->tokenizer->end && uses(&chat->template, "{eos}");
    return id >= 0 && chat->tokenizer->vocab.token[id].added ? id : -1;
}

tx_status tx_chat_replaces(const tx_chat *chat, bool *replaces)
{
    char *own = NULL, *text = NULL;
    size_t size;
    TX_TRY(tx_tokenizer_chat(chat->tokenizer, &own, &size));
    const tx_status status = own ? tx_chat_jinja_write(&chat->template, &text) : TX_OK;
    *replaces = own && text && strcmp(own, text) != 0;
    free(own);
    free(text);
    return status;
}

tx_status tx_chat_save(const tx_chat *chat, const char *folder)
{
    char *text = NULL;
    TX_TRY(tx_chat_jinja_write(&chat->template, &text));
    const tx_status status = tx_file_write(TX_PATH(folder, "chat_template.jinja"), text, strlen(text));
    free(text);
    return status;
}

/* ---- The end of an answer ------------------------------------------------------------------------------ */

const char *tx_chat_end(const tx_chat *chat, int32_t *id)
{
    TX_NEEDS(chat && id, NULL);
    *id = chat->end_id;
    return chat->end;
}

size_t tx_chat_held_back(const tx_chat *chat, const char *answer, size_t size)
{
    TX_NEEDS(chat && (answer || !size), 0);
    size_t held = strlen(chat->end);
    for (held = held < size ? held : size; held > 0; held--)
        if (memcmp(answer + size - held, chat->end, held) == 0)
            break;
    return held;
}

size_t tx_chat_trim(const tx_chat *chat, char *answer, size_t size)
{
    TX_NEEDS(chat && (answer || !size), 0);
    const char *before = chat->template.answer_before;
    const size_t in_front = before ? strlen(before) : 0;
    if (tx_chat_held_back(chat, answer, size) == strlen(chat->end))
        size -= strlen(chat->end);
    if (in_front && size >= in_front && memcmp(answer, before, in_front) == 0) {
        size -= in_front;
        memmove(answer, answer + in_front, size);
    }
    return size;
}
