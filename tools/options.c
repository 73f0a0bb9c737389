/* SPDX-License-Identifier: Apache-2.0
 * Command-line options from a table. */
#include "tools/options.h"

#include "api/json.h"
#include "tools/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_LENGTH 63
#define FILE_LIMIT (1 << 24)

typedef struct parser {
    const tx_cli *program;
    const char *file; /* of the options being read; NULL: the command line */
    char *values;
} parser;

/* Where an option stands, for "%s%s%s". */
#define PLACE(p, name) (p)->file ? (p)->file : "", (p)->file ? ": " : "--", name

int tx_complain(const tx_cli *program, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return status;
}

/* What the values point to: it lives as long as the process. */
static struct kept {
    struct kept *next;
    void *block;
} * kept;

static bool keep(void *block)
{
    struct kept *one = block ? malloc(sizeof *one) : NULL;
    if (!one)
        return false;
    *one = (struct kept){kept, block};
    kept = one;
    return true;
}

/* ---- names ------------------------------------------------------------------------------------ */

/* Copies the name in "some-name" or "some-name=value", with underscores; false when too long. */
static bool spell(const char *argument, char name[NAME_MAX_LENGTH + 1])
{
    size_t length = strcspn(argument, "=");
    if (length > NAME_MAX_LENGTH)
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = argument[i] == '-' ? '_' : argument[i];
    name[length] = '\0';
    return true;
}

/* Levenshtein's distance between two names of at most NAME_MAX_LENGTH characters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LENGTH + 1], width = strlen(b);
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

/* Makes `candidate` the nearest to `name` where it is nearer than `least`. */
static void compare(const char *name, const char *candidate, size_t *least, const char **nearest)
{
    size_t d = distance(name, candidate);
    if (d < *least) {
        *least = d;
        *nearest = candidate;
    }
}

static int unknown(const parser *p, const char *name)
{
    char spelled[NAME_MAX_LENGTH + 1];
    const char *nearest = NULL;
    if (spell(name, spelled)) {
        size_t least = strlen(spelled) / 3 + 2;
        for (int32_t i = 0; i < p->program->count; i++)
            if (p->program->options[i].name)
                compare(spelled, p->program->options[i].name, &least, &nearest);
    }
    if (nearest)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: unknown option; did you mean %s%s?", PLACE(p, name),
                           p->file ? "" : "--", nearest);
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: unknown option; --help lists all", PLACE(p, name));
}

static const tx_option *find(const tx_cli *program, const char *name)
{
    for (int32_t i = 0; i < program->count; i++)
        if (program->options[i].name && strcmp(program->options[i].name, name) == 0)
            return &program->options[i];
    return NULL;
}

static const tx_foreign *find_foreign(const tx_cli *program, const char *name)
{
    for (int32_t i = 0; i < program->foreign_count; i++)
        if (strcmp(program->foreign[i].name, name) == 0)
            return &program->foreign[i];
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------- */

/* 1 and 0 for the words that transformers takes for true and false, -1 for others. */
static int truth(const char *word)
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

static int store_number(const parser *p, const tx_option *option, const char *value, char *at)
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
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: not a %snumber", PLACE(p, option->name), value,
                           integer ? "whole " : "");
    if (!(real >= option->least && real <= option->most))
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must lie between %.15g and %.15g",
                           PLACE(p, option->name), value, option->least, option->most);
    if (integer)
        *(int64_t *)(void *)at = whole;
    else
        *(double *)(void *)at = real;
    return TX_GO_ON;
}

static int store_choice(const parser *p, const tx_option *option, const char *value, char *at)
{
    int place = find_choice(option->choices, value, strlen(value));
    if (place < 0)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must be one of %s", PLACE(p, option->name), value,
                           option->choices);
    *(int32_t *)(void *)at = place;
    return TX_GO_ON;
}

/* Adds the choices in "a,b" to the set. */
static int store_list(const parser *p, const tx_option *option, const char *value, char *at)
{
    uint32_t *set = (uint32_t *)(void *)at;
    for (const char *word = value;;) {
        size_t length = strcspn(word, ",");
        int place = find_choice(option->choices, word, length);
        if (place < 0)
            return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %.*s: must be one or more of %s",
                               PLACE(p, option->name), (int)length, word, option->choices);
        *set |= UINT32_C(1) << place;
        if (!word[length])
            return TX_GO_ON;
        word += length + 1;
    }
}

/* Room is taken in powers of two; the smaller blocks stay, they are few. */
static int add_word(const parser *p, const char *word, char *at)
{
    tx_words *words = (tx_words *)(void *)at;
    size_t count = (size_t)words->count;
    const char **list = (const char **)(uintptr_t)words->word;
    if ((count & (count - 1)) == 0) {
        const char **larger = malloc((count ? 2 * count : 1) * sizeof *larger);
        if (!keep(larger)) {
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

static int store(const parser *p, const tx_option *option, const char *value)
{
    char *at = p->values + option->offset;
    if (!*value && option->kind != TX_OPTION_OPTIONAL)
        return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: the value is empty", PLACE(p, option->name));
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
        return add_word(p, value, at);
    case TX_OPTION_FLAG:
        if (truth(value) < 0)
            return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s %s: must be true or false", PLACE(p, option->name),
                               value);
        *(bool *)at = truth(value) == 1;
        return TX_GO_ON;
    case TX_OPTION_HEADING:
        break;
    }
    return TX_EXIT_USAGE;
}

/* An option of others: accepted where its value asks for what TX does. `value` is NULL where none was given. */
static int judge_foreign(const parser *p, const tx_foreign *foreign, const char *value)
{
    if (foreign->same && value) {
        char *end, *other_end;
        double given = strtod(value, &end), same = strtod(foreign->same, &other_end);
        bool numbers = end != value && !*end && !*other_end;
        if (strcasecmp(value, foreign->same) == 0 || (truth(value) >= 0 && truth(value) == truth(foreign->same)) ||
            (numbers && given >= same && given <= same))
            return TX_GO_ON;
    }
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: an option of transformers that TX does not have: %s",
                       PLACE(p, foreign->name), foreign->advice);
}

/* ---- the command line ------------------------------------------------------------------------------ */

static bool is_name(const char *argument)
{
    return argument[0] == '-' && argument[1] == '-' && argument[2];
}

/* Reads the values that follow a LIST, all up to the next option. */
static int parse_list(const parser *p, const tx_option *option, int argc, char *const *argv, int *at)
{
    int status = TX_GO_ON;
    while (status == TX_GO_ON && *at + 1 < argc && argv[*at + 1][0] != '-')
        status = store(p, option, argv[++*at]);
    return status;
}

/* Reads the option argv[*at] and the values after it; *at ends at the last argument read. */
static int parse_option(const parser *p, int argc, char *const *argv, int *at)
{
    const char *argument = argv[*at], *value = strchr(argument, '=');
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    char name[NAME_MAX_LENGTH + 1] = "";
    const tx_option *option = spell(argument + 2, name) ? find(p->program, name) : NULL;
    if (!option) {
        const tx_foreign *foreign = find_foreign(p->program, name);
        if (!foreign)
            return unknown(p, argument + 2);
        if (!value && next && next[0] != '-')
            value = argv[++*at];
        else
            value = value ? value + 1 : "true";
        return judge_foreign(p, foreign, value);
    }
    if (option->kind == TX_OPTION_LIST)
        *(uint32_t *)(void *)(p->values + option->offset) = 0;
    if (value)
        return store(p, option, value + 1);
    if (option->kind == TX_OPTION_FLAG) {
        bool given = next && truth(next) >= 0;
        *at += given;
        return store(p, option, given ? next : "true");
    }
    if (option->kind == TX_OPTION_OPTIONAL) {
        bool given = next && next[0] != '-';
        *at += given;
        return store(p, option, given ? next : "");
    }
    if (!next || is_name(next))
        return tx_complain(p->program, TX_EXIT_USAGE, "%s: the value is missing%s", argument,
                           next ? "; one that begins with -- is given after =" : "");
    if (option->kind == TX_OPTION_LIST && next[0] != '-')
        return parse_list(p, option, argc, argv, at);
    return store(p, option, argv[++*at]);
}

static int check_operands(const parser *p)
{
    const tx_cli *program = p->program;
    if (!program->operand)
        return TX_GO_ON;
    const tx_words *words = (const tx_words *)(const void *)(p->values + program->operands);
    if (words->count < program->operands_least)
        return tx_complain(program, TX_EXIT_USAGE, "%s is missing; usage: %s", program->operand, program->usage);
    if (words->count > program->operands_most)
        return tx_complain(program, TX_EXIT_USAGE, "%s: one %s too many; usage: %s", words->word[words->count - 1],
                           program->operand, program->usage);
    return TX_GO_ON;
}

/* ---- a file of options ------------------------------------------------------------------------------ */

/* Whether `argument` is a file of options. */
static bool is_file(const tx_cli *program, const char *argument)
{
    size_t length = strlen(argument);
    return !program->operand && argument[0] != '-' && length > 5 && strcmp(argument + length - 5, ".json") == 0;
}

/* The text of a scalar as the command line would hold it; NULL for other values. `number` is room for numbers. */
static const char *scalar(const tx_json *json, char number[32])
{
    int64_t whole;
    double real;
    bool flag;
    const char *text;
    switch (tx_json_type_of(json)) {
    case TX_JSON_BOOL:
        return tx_json_as_bool(json, "", &flag) ? NULL : flag ? "true" : "false";
    case TX_JSON_INTEGER:
        if (tx_json_as_int(json, "", INT64_MIN, INT64_MAX, &whole))
            return NULL;
        snprintf(number, 32, "%" PRId64, whole);
        return number;
    case TX_JSON_NUMBER:
        if (tx_json_as_number(json, "", -HUGE_VAL, HUGE_VAL, &real))
            return NULL;
        snprintf(number, 32, "%.17g", real);
        return number;
    case TX_JSON_STRING:
        return tx_json_as_string(json, "", &text) ? NULL : text;
    default:
        return NULL;
    }
}

/* Stores one scalar; the types of JSON must fit the option. */
static int store_scalar(const parser *p, const tx_option *option, const tx_json *json)
{
    static const char *const wanted[] = {
        [TX_OPTION_FLAG] = "true or false", [TX_OPTION_INTEGER] = "a whole number", [TX_OPTION_REAL] = "a number",
        [TX_OPTION_TEXT] = "a string",      [TX_OPTION_OPTIONAL] = "a string",      [TX_OPTION_CHOICE] = "a string",
        [TX_OPTION_LIST] = "strings",       [TX_OPTION_WORDS] = "strings",
    };
    char number[32];
    const char *value = scalar(json, number);
    tx_json_type type = tx_json_type_of(json);
    bool numeric = option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL;
    if (option->kind == TX_OPTION_OPTIONAL && type == TX_JSON_BOOL) {
        *(const char **)(void *)(p->values + option->offset) = value && truth(value) == 1 ? "" : NULL;
        return TX_GO_ON;
    }
    /* A string may spell any value, as on the command line. */
    if (value && (type == TX_JSON_STRING || (numeric && type != TX_JSON_BOOL) || option->kind == TX_OPTION_FLAG))
        return store(p, option, value);
    return tx_complain(p->program, TX_EXIT_USAGE, "%s%s%s: must be %s", PLACE(p, option->name), wanted[option->kind]);
}

static int parse_member(const parser *p, const char *key, const tx_json *value)
{
    char name[NAME_MAX_LENGTH + 1] = "", number[32];
    const tx_option *option = spell(key, name) ? find(p->program, name) : NULL;
    if (!option) {
        const tx_foreign *foreign = find_foreign(p->program, name);
        if (!foreign)
            return unknown(p, key);
        /* An empty list or object asks for nothing, as null does. */
        bool empty = (tx_json_type_of(value) == TX_JSON_ARRAY || tx_json_type_of(value) == TX_JSON_OBJECT) &&
                     tx_json_size(value) == 0;
        if (empty || tx_json_type_of(value) == TX_JSON_NULL)
            return TX_GO_ON;
        return judge_foreign(p, foreign, scalar(value, number));
    }
    if (tx_json_type_of(value) == TX_JSON_NULL)
        return TX_GO_ON;
    bool several = option->kind == TX_OPTION_LIST || option->kind == TX_OPTION_WORDS;
    if (option->kind == TX_OPTION_LIST)
        *(uint32_t *)(void *)(p->values + option->offset) = 0;
    if (!several || tx_json_type_of(value) != TX_JSON_ARRAY)
        return store_scalar(p, option, value);
    int status = TX_GO_ON;
    for (size_t i = 0; i < tx_json_size(value) && status == TX_GO_ON; i++)
        status = store_scalar(p, option, tx_json_at(value, i));
    return status;
}

static int parse_file(const parser *line, const char *path)
{
    tx_json *json;
    if (tx_json_read(path, FILE_LIMIT, &json))
        return tx_complain(line->program, TX_EXIT_FAILURE, "%s", tx_error());
    if (!keep(json)) {
        tx_json_free(json);
        return tx_complain(line->program, TX_EXIT_FAILURE, "%s: out of memory", path);
    }
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return tx_complain(line->program, TX_EXIT_USAGE, "%s: must hold one object, {\"option\": value, ...}", path);
    parser p = {line->program, path, line->values};
    int status = TX_GO_ON;
    for (void *i = tx_json_first(json); i && status == TX_GO_ON; i = tx_json_next(json, i))
        status = parse_member(&p, tx_json_key(i), tx_json_value(i));
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values)
{
    /* Asked for first, so that the help shows the true defaults. */
    int status = tx_usage_answer(program, argc, argv, values);
    parser p = {program, NULL, values};
    bool only_operands = false;
    for (int i = 1; i < argc && status == TX_GO_ON; i++) {
        if (i == 1 && is_file(program, argv[i]))
            status = parse_file(&p, argv[i]);
        else if (!only_operands && is_name(argv[i]))
            status = parse_option(&p, argc, argv, &i);
        else if (program->operand && !only_operands && strcmp(argv[i], "--") == 0)
            only_operands = true;
        else if (program->operand && (only_operands || argv[i][0] != '-' || !argv[i][1]))
            status = add_word(&p, argv[i], p.values + program->operands);
        else
            status = tx_complain(program, TX_EXIT_USAGE, "%s: not an option; --help lists all%s", argv[i],
                                 is_file(program, argv[i]) ? "; a file of options comes first" : "");
    }
    return status == TX_GO_ON ? check_operands(&p) : status;
}

int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command)
{
    bool named = argc > 1 && argv[1][0] != '-';
    if (!named) {
        int status = tx_usage_answer(program, argc, argv, values);
        return status != TX_GO_ON ? status
                                  : tx_complain(program, TX_EXIT_USAGE,
                                                "a command is missing; usage: %s; --help "
                                                "lists the commands",
                                                program->usage);
    }
    const char *nearest = NULL;
    size_t length = strlen(argv[1]), least = length / 3 + 2;
    for (int32_t i = 0; i < program->command_count; i++) {
        if (strcmp(program->commands[i].name, argv[1]) == 0) {
            *command = i;
            return TX_GO_ON;
        }
        if (length <= NAME_MAX_LENGTH)
            compare(argv[1], program->commands[i].name, &least, &nearest);
    }
    return tx_complain(program, TX_EXIT_USAGE, "%s: there is no such command%s%s%s; --help lists all", argv[1],
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
