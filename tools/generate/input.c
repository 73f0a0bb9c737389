/* SPDX-License-Identifier: Apache-2.0
 * Reads the input of txgen: prompts as texts or ids, and the text of --perplexity. */
#include "tools/generate/txgen.h"

#include "tx_file.h"
#include "tx_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (INT64_C(1) << 32)

bool txgen_ask(tx_alive *alive, char **line, size_t *room, size_t *length)
{
    tx_alive_doing(alive, "%s", "");
    fputs("> ", stderr);
    const ssize_t got = getline(line, room, stdin);
    tx_alive_doing(alive, "computing an answer");
    *length = got > 0 ? (size_t)got : 0;
    while (*length > 0 && ((*line)[*length - 1] == '\n' || (*line)[*length - 1] == '\r'))
        (*line)[--*length] = '\0';
    return got >= 0;
}

/* ---- The list of prompts --------------------------------------------------------------------------- */

void txgen_prompts_free(txgen_prompts *prompts)
{
    for (int64_t i = 0; i < prompts->count; i++) {
        free((void *)(uintptr_t)prompts->prompt[i].ids);
        free((void *)(uintptr_t)prompts->prompt[i].text);
    }
    free(prompts->prompt);
    *prompts = (txgen_prompts){0};
}

static tx_status reserve(txgen_prompts *p)
{
    return tx_array_reserve(&p->prompt, &p->room, (size_t)p->count + 1, sizeof *p->prompt, "prompts");
}

/* ---- Ids ------------------------------------------------------------------------------------------- */

/* Reads "1 2, 3" into `ids`, which has room for all of them. */
static tx_status read_ids(const char *word, int32_t *ids, int64_t *count)
{
    static const char separators[] = " ,\t\n";
    const char *at = word;
    for (at += strspn(at, separators); *at; at += strspn(at, separators)) {
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(separators, *end)))
            return tx_fail(TX_INVALID, "--ids: \"%.20s\" does not begin with a token id", at);
        ids[(*count)++] = (int32_t)id;
        at = end;
    }
    return *count > 0 ? TX_OK : tx_fail(TX_INVALID, "--ids: no token id given");
}

static tx_status add_ids(txgen_prompts *p, const char *word)
{
    tx_status status = reserve(p);
    int32_t *ids = status ? NULL : malloc((strlen(word) / 2 + 1) * sizeof *ids);
    if (status || !ids)
        return status ? status : tx_fail(TX_MEMORY, "--ids: out of memory");
    tx_lm_prompt *prompt = &p->prompt[p->count++];
    *prompt = (tx_lm_prompt){.ids = ids};
    return read_ids(word, ids, &prompt->count);
}

/* ---- Text ------------------------------------------------------------------------------------------ */

bool txgen_is_json_lines(const char *path)
{
    size_t length = strlen(path);
    return length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
}

tx_status txgen_read_file(const char *path, char **text, size_t *size)
{
    size_t begin = 0;
    TX_TRY(strcmp(path, "-") == 0 ? tx_file_read_input(text, size) : tx_file_read(path, FILE_LIMIT, text, size));
    const tx_status status = tx_text_begin(*text, *size, false, &begin);
    if (status) {
        free(*text);
        *text = NULL;
        return tx_fail_in(status, "%s", path);
    }
    *size -= begin;
    memmove(*text, *text + begin, *size + 1);
    return TX_OK;
}

tx_status txgen_each_line(const char *path, txgen_take *take, void *context)
{
    char *data = NULL;
    size_t size;
    int64_t number = 1;
    tx_status status = txgen_read_file(path, &data, &size);
    for (size_t at = 0; !status && at < size; number++) {
        const char *line = data + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;
        at += length + 1;
        length -= length > 0 && line[length - 1] == '\r';
        if (!tx_line_is_blank(line, length))
            status = tx_fail_in(take(context, line, length), "%s: line %" PRId64, path, number);
    }
    free(data);
    return status;
}

/* Passes on the "text" of each line of JSON. */
typedef struct texts {
    txgen_take *take;
    void *context;
} texts;

static tx_status take_json(void *context, const char *line, size_t size)
{
    const texts *t = context;
    tx_json *json = NULL;
    const char *text = NULL;
    size_t text_size = 0;
    tx_status status = tx_json_parse_line(line, size, "JSON", &json);
    TX_THEN(status, tx_json_get_text(json, "text", &text, &text_size));
    TX_THEN(status, t->take(t->context, text, text_size));
    tx_json_free(json);
    return status;
}

static tx_status add_text(void *prompts, const char *text, size_t size)
{
    txgen_prompts *p = prompts;
    tx_status status = reserve(p);
    char *copy = status ? NULL : malloc(size + 1);
    if (status || !copy)
        return status ? status : tx_fail(TX_MEMORY, "prompt: out of memory");
    memcpy(copy, text, size);
    copy[size] = '\0';
    p->prompt[p->count++] = (tx_lm_prompt){.text = copy, .size = size};
    return TX_OK;
}

tx_status txgen_read_prompts(const txgen_settings *settings, txgen_prompts *prompts)
{
    const txgen_settings *set = settings;
    tx_status status = TX_OK;
    for (int32_t i = 0; i < set->ids.count && !status; i++)
        status = add_ids(prompts, set->ids.word[i]);
    for (int32_t i = 0; i < set->prompt.count && !status; i++)
        status = add_text(prompts, set->prompt.word[i], strlen(set->prompt.word[i]));
    if (status || (prompts->count > 0 && !set->prompts))
        return status;
    if (!set->prompts) {
        char *text = NULL;
        size_t size = 0;
        status = txgen_read_file("-", &text, &size);
        TX_THEN(status, add_text(prompts, text, size));
        free(text);
        return status;
    }
    status = txgen_is_json_lines(set->prompts) ? txgen_each_line(set->prompts, take_json, &(texts){add_text, prompts})
                                               : txgen_each_line(set->prompts, add_text, prompts);
    if (!status && prompts->count == 0)
        status = tx_fail(TX_INVALID, "%s: the file has no prompt", set->prompts);
    return status;
}

/* ---- The text of --perplexity ------------------------------------------------------------------------- */

static tx_status join_text(void *context, const char *text, size_t size)
{
    FILE *to = context;
    if (ftell(to) > 0)
        fputs("\n\n", to);
    fwrite(text, 1, size, to);
    return ferror(to) ? tx_fail(TX_MEMORY, "no memory for the text") : TX_OK;
}

tx_status txgen_read_text(const char *path, char **text, size_t *size)
{
    if (!txgen_is_json_lines(path))
        return txgen_read_file(path, text, size);
    FILE *to = open_memstream(text, size);
    tx_status status = to ? txgen_each_line(path, take_json, &(texts){join_text, to}) : TX_MEMORY;
    if (!to || (fclose(to) && !status))
        status = tx_fail(TX_MEMORY, "%s: out of memory", path);
    return status;
}
