/* SPDX-License-Identifier: Apache-2.0
 * Names and values of options. */
#include "tools/cli/option_value.h"

#include "tools/cli/usage.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What the values point to: it lives until the end of the process, or until it is forgotten. */
static struct kept {
    struct kept *next;
    void *block;
    tx_json *json;
} * kept;

bool tx_option_keep(void *block, tx_json *json)
{
    struct kept *one = block || json ? malloc(sizeof *one) : NULL;
    if (!one)
        return false;
    *one = (struct kept){kept, block, json};
    kept = one;
    return true;
}

void tx_options_forget(void)
{
    while (kept) {
        struct kept *one = kept;
        kept = one->next;
        free(one->block);
        tx_json_free(one->json);
        free(one);
    }
}

/* ---- names ------------------------------------------------------------------------------------ */

bool tx_option_spell(const char *argument, char name[TX_OPTION_NAME + 1])
{
    size_t length = strcspn(argument, "=");
    if (length > TX_OPTION_NAME)
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = argument[i] == '-' ? '_' : argument[i];
    name[length] = '\0';
    return true;
}

/* Levenshtein's distance between two names of at most TX_OPTION_NAME characters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[TX_OPTION_NAME + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[width];
}

void tx_option_compare(const char *name, const char *candidate, size_t *least, const char **nearest)
{
    size_t d = distance(name, candidate);
    if (d < *least) {
        *least = d;
        *nearest = candidate;
    }
}

int tx_option_unknown(const tx_option_source *p, const char *name)
{
    char spelled[TX_OPTION_NAME + 1];
    const char *nearest = NULL;
    if (tx_option_spell(name, spelled)) {
        size_t least = strlen(spelled) / 3 + 2;
        for (int32_t i = 0; i < p->program->count; i++)
            if (p->program->options[i].name)
                tx_option_compare(spelled, p->program->options[i].name, &least, &nearest);
    }
    if (nearest)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: unknown option; did you mean %s%s?",
                           TX_OPTION_PLACE(p, name),
                           p->file      ? ""
                           : nearest[1] ? "--"
                                        : "-",
                           nearest);
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: unknown option; --help lists all", TX_OPTION_PLACE(p, name));
}

const tx_option *tx_option_find(const tx_cli *program, const char *name)
{
    for (int32_t i = 0; i < program->count; i++)
        if (program->options[i].name && strcmp(program->options[i].name, name) == 0)
            return &program->options[i];
    return NULL;
}

const tx_foreign *tx_option_find_foreign(const tx_cli *program, const char *name)
{
    for (int32_t i = 0; i < program->foreign_count; i++)
        if (strcmp(program->foreign[i].name, name) == 0)
            return &program->foreign[i];
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------- */

int tx_option_truth(const char *word)
{
    static const char *const words[] = {"false", "true", "no", "yes", "f", "t", "n", "y", "0", "1"};
    for (int i = 0; i < (int)(sizeof words / sizeof words[0]); i++)
        if (strcasecmp(word, words[i]) == 0)
            return i % 2;
    return -1;
}

/* Place of the choice that is the first `length` bytes of `value`, or -1. */
static int find_choice(const char *choices, const char *value, size_t length)
{
    int index = 0;
    for (const char *at = choices;; index++) {
        size_t size = tx_choice_length(at);
        if (length == size && memcmp(at, value, size) == 0)
            return index;
        if (!at[size])
            return -1;
        at += size + 1;
    }
}

/* Reads a whole number; 500.0 and 1e3 are such. */
static bool read_integer(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (end != text && !*end && !errno) {
        *value = whole;
        return true;
    }
    double real = strtod(text, &end);
    if (end == text || *end || !(fabs(real) <= 9007199254740992.0) || floor(real) != real)
        return false;
    *value = (int64_t)real;
    return true;
}

static int store_number(const tx_option_source *p, const tx_option *option, const char *value, char *at)
{
    bool integer = option->kind == TX_OPTION_INTEGER, good;
    int64_t whole = 0;
    double real = 0.0;
    if (integer) {
        good = read_integer(value, &whole);
        real = (double)whole;
    } else {
        char *end;
        real = strtod(value, &end);
        good = end != value && !*end && isfinite(real);
    }
    if (!good)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: not a %snumber", TX_OPTION_PLACE(p, option->name),
                           value, integer ? "whole " : "");
    if (!(real >= option->least && real <= option->most))
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must lie between %.15g and %.15g",
                           TX_OPTION_PLACE(p, option->name), value, option->least, option->most);
    if (integer)
        *(int64_t *)(void *)at = whole;
    else
        *(double *)(void *)at = real;
    return TX_GO_ON;
}

static int store_choice(const tx_option_source *p, const tx_option *option, const char *value, char *at)
{
    int place = find_choice(option->choices, value, strlen(value));
    if (place < 0)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must be one of %s", TX_OPTION_PLACE(p, option->name),
                           value, option->choices);
    *(int32_t *)(void *)at = place;
    return TX_GO_ON;
}

/* Adds the choices in "a,b" to the set. */
static int store_list(const tx_option_source *p, const tx_option *option, const char *value, char *at)
{
    uint32_t *set = (uint32_t *)(void *)at;
    for (const char *word = value;;) {
        size_t length = strcspn(word, ",");
        int place = find_choice(option->choices, word, length);
        if (place < 0)
            return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %.*s: must be one or more of %s",
                               TX_OPTION_PLACE(p, option->name), (int)length, word, option->choices);
        *set |= UINT32_C(1) << place;
        if (!word[length])
            return TX_GO_ON;
        word += length + 1;
    }
}

/* Room is taken in powers of two; the smaller blocks stay, they are few. */
int tx_option_add_word(const tx_option_source *p, const char *word, char *at)
{
    tx_words *words = (tx_words *)(void *)at;
    size_t count = (size_t)words->count;
    const char **list = (const char **)(uintptr_t)words->word;
    if ((count & (count - 1)) == 0) {
        const char **larger = malloc((count ? 2 * count : 1) * sizeof *larger);
        if (!tx_option_keep(larger, NULL)) {
            free(larger);
            return tx_complain(p->program, TX_EXIT_FAILURE, "arguments: out of memory");
        }
        if (count)
            memcpy(larger, list, count * sizeof *larger);
        words->word = list = larger;
    }
    list[words->count++] = word;
    return TX_GO_ON;
}

int tx_option_store(const tx_option_source *p, const tx_option *option, const char *value)
{
    char *at = p->values + option->offset;
    if (!*value && option->kind != TX_OPTION_OPTIONAL)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: the value is empty", TX_OPTION_PLACE(p, option->name));
    switch (option->kind) {
    case TX_OPTION_INTEGER:
    case TX_OPTION_REAL:
        return store_number(p, option, value, at);
    case TX_OPTION_TEXT:
    case TX_OPTION_OPTIONAL:
        *(const char **)(void *)at = value;
        return TX_GO_ON;
    case TX_OPTION_CHOICE:
        return store_choice(p, option, value, at);
    case TX_OPTION_LIST:
        return store_list(p, option, value, at);
    case TX_OPTION_WORDS:
        return tx_option_add_word(p, value, at);
    case TX_OPTION_FLAG:
        if (tx_option_truth(value) < 0)
            return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must be true or false",
                               TX_OPTION_PLACE(p, option->name), value);
        *(bool *)at = tx_option_truth(value) == 1;
        return TX_GO_ON;
    case TX_OPTION_HEADING:
        break;
    }
    return TX_EXIT_USAGE;
}

int tx_option_judge_foreign(const tx_option_source *p, const tx_foreign *foreign, const char *value)
{
    if (foreign->same && value) {
        char *end, *other_end;
        double given = strtod(value, &end), same = strtod(foreign->same, &other_end);
        bool numbers = end != value && !*end && !*other_end;
        if (strcasecmp(value, foreign->same) == 0 ||
            (tx_option_truth(value) >= 0 && tx_option_truth(value) == tx_option_truth(foreign->same)) ||
            (numbers && given >= same && given <= same))
            return TX_GO_ON;
    }
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: an option of transformers that TX does not have: %s",
                       TX_OPTION_PLACE(p, foreign->name), foreign->advice);
}
