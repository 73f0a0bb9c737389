/* SPDX-License-Identifier: Apache-2.0
 * What txgen reads: prompts as text and as ids. */
#include "tools/generate/txgen.h"

#include "api/base/file.h"
#include "api/base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (INT64_C(1) << 32)

/* ---- The list of prompts --------------------------------------------------------------------------- */

void txgen_prompts_free(txgen_prompts *prompts)
{
    for (int64_t i = 0; i < prompts->count; i++) {
        free((void *)(uintptr_t)prompts->prompt[i].ids);
        free(prompts->text[i]);
    }
    free(prompts->prompt);
    free(prompts->text);
    free(prompts->size);
    *prompts = (txgen_prompts){0};
}

static bool grow(void **array, int64_t room, size_t size)
{
    void *larger = realloc(*array, (size_t)room * size);
    if (larger)
        *array = larger;
    return larger != NULL;
}

/* Appends a prompt; takes ids and text over, even on failure. */
static tx_status add(txgen_prompts *p, int32_t *ids, int64_t count, char *text, size_t size)
{
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 8;
        void *prompt = p->prompt, *texts = p->text, *sizes = p->size;
        bool good = grow(&prompt, room, sizeof *p->prompt);
        p->prompt = prompt;
        good = grow(&texts, room, sizeof *p->text) && good;
        p->text = texts;
        good = grow(&sizes, room, sizeof *p->size) && good;
        p->size = sizes;
        if (!good) {
            free(ids);
            free(text);
            return tx_fail(TX_MEMORY, "prompts: out of memory");
        }
        p->room = room;
    }
    p->prompt[p->count] = (tx_prompt){ids, count};
    p->text[p->count] = text;
    p->size[p->count++] = size;
    return TX_OK;
}

tx_status txgen_add_text(txgen_prompts *prompts, tx_encoder *encoder, const char *text, size_t size, int64_t begin)
{
    tx_ids ids = {0};
    tx_status status = tx_encoder_run(encoder, text, size, true, &ids);
    if (!status && ids.count == 0) {
        ids.id = begin >= 0 ? malloc(sizeof *ids.id) : NULL;
        if (begin < 0)
            status = tx_fail(TX_INVALID, "prompt: it is empty, and the model has no bos_token_id to begin with");
        else if (!ids.id)
            status = tx_fail(TX_MEMORY, "prompt: out of memory");
        else
            ids.id[ids.count++] = (int32_t)begin;
    }
    char *copy = status ? NULL : malloc(size + 1);
    if (!status && !copy)
        status = tx_fail(TX_MEMORY, "prompt: out of memory");
    if (status) {
        free(ids.id);
        return status;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    return add(prompts, ids.id, (int64_t)ids.count, copy, size);
}

/* ---- Ids ------------------------------------------------------------------------------------------- */

tx_status txgen_read_ids(const txgen_settings *settings, txgen_prompts *prompts)
{
    static const char separators[] = " ,\t\n";
    for (int32_t w = 0; w < settings->ids.count; w++) {
        const char *at = settings->ids.word[w];
        int64_t count = 0;
        int32_t *ids = malloc((strlen(at) / 2 + 1) * sizeof *ids);
        if (!ids)
            return tx_fail(TX_MEMORY, "--ids: out of memory");
        for (at += strspn(at, separators); *at; at += strspn(at, separators)) {
            char *end;
            errno = 0;
            long long id = strtoll(at, &end, 10);
            if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(separators, *end))) {
                free(ids);
                return tx_fail(TX_INVALID, "--ids: \"%.20s\" does not begin with a token id", at);
            }
            ids[count++] = (int32_t)id;
            at = end;
        }
        if (count == 0) {
            free(ids);
            return tx_fail(TX_INVALID, "--ids: no token id given");
        }
        tx_status status = add(prompts, ids, count, NULL, 0);
        if (status)
            return status;
    }
    return TX_OK;
}

/* ---- Text ------------------------------------------------------------------------------------------ */

static bool is_json_lines(const char *path)
{
    size_t length = strlen(path);
    return length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
}

/* Takes one line, or the text in it. */
typedef tx_status take_line(void *context, const char *text, size_t size);

static tx_status each_line(const char *path, const char *data, size_t size, take_line *take, void *context)
{
    const bool json_lines = is_json_lines(path);
    int64_t number = 0;
    tx_status status = TX_OK;
    for (size_t at = 0; at < size && !status;) {
        const char *line = data + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;
        at += length + 1;
        number++;
        length -= length > 0 && line[length - 1] == '\r';
        if (length == 0)
            continue;
        if (!json_lines) {
            status = take(context, line, length);
            continue;
        }
        char where[512];
        tx_json *json = NULL;
        const char *text = NULL;
        snprintf(where, sizeof where, "%s: line %lld", path, (long long)number);
        size_t text_size = 0;
        status = tx_json_parse_line(line, length, where, &json);
        if (!status) {
            status = tx_json_get_text(json, "text", &text, &text_size);
            status = status ? tx_fail_in(status, "%s", where) : take(context, text, text_size);
        }
        tx_json_free(json);
    }
    return status;
}

typedef struct prompt_lines {
    txgen_prompts *prompts;
    tx_encoder *encoder;
    int64_t begin;
} prompt_lines;

static tx_status take_prompt(void *context, const char *text, size_t size)
{
    const prompt_lines *lines = context;
    return txgen_add_text(lines->prompts, lines->encoder, text, size, lines->begin);
}

static tx_status read_file(const char *path, char **text, size_t *size)
{
    return strcmp(path, "-") == 0 ? tx_file_read_input(text, size) : tx_file_read(path, FILE_LIMIT, text, size);
}

tx_status txgen_read_prompts(const txgen_settings *settings, tx_encoder *encoder, int64_t begin, txgen_prompts *prompts)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < settings->prompt.count && !status; i++)
        status = txgen_add_text(prompts, encoder, settings->prompt.word[i], strlen(settings->prompt.word[i]), begin);
    if (status || (settings->prompt.count > 0 && !settings->prompts))
        return status;
    char *text = NULL;
    size_t size = 0;
    const char *path = settings->prompts ? settings->prompts : "-";
    status = read_file(path, &text, &size);
    prompt_lines lines = {prompts, encoder, begin};
    if (!status)
        status = settings->prompts ? each_line(path, text, size, take_prompt, &lines)
                                   : txgen_add_text(prompts, encoder, text, size, begin);
    free(text);
    if (!status && prompts->count == 0)
        status = tx_fail(TX_INVALID, "%s: it holds no prompt", path);
    return status;
}

/* ---- A text to be measured ---------------------------------------------------------------------------- */

typedef struct joined {
    char *text;
    size_t size;
} joined;

static tx_status join_text(void *context, const char *text, size_t size)
{
    joined *j = context;
    const size_t gap = j->size > 0 ? 2 : 0;
    memcpy(j->text + j->size, "\n\n", gap);
    memcpy(j->text + j->size + gap, text, size);
    j->size += gap + size;
    return TX_OK;
}

tx_status txgen_read_text(const char *path, char **text, size_t *size)
{
    char *data = NULL;
    size_t count = 0;
    tx_status status = read_file(path, &data, &count);
    if (status || !is_json_lines(path)) {
        *text = data;
        *size = count;
        return status;
    }
    joined j = {.text = malloc(count + 1)}; /* {"text": ""} is longer than what takes its place */
    status = j.text ? each_line(path, data, count, join_text, &j) : tx_fail(TX_MEMORY, "%s: out of memory", path);
    free(data);
    if (status) {
        free(j.text);
        return status;
    }
    *text = j.text;
    *size = j.size;
    return TX_OK;
}
