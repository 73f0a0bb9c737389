/* SPDX-License-Identifier: Apache-2.0
 * Command-line options from a table. */
#include "tools/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LENGTH 63

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

/* Length of the choice that begins at `text`. */
static size_t choice_length(const char *text)
{
    return strcspn(text, "|");
}

static int find_choice(const char *choices, const char *value)
{
    int index = 0;
    for (const char *at = choices;; index++) {
        size_t length = choice_length(at);
        if (strlen(value) == length && memcmp(at, value, length) == 0)
            return index;
        if (!at[length])
            return -1;
        at += length + 1;
    }
}

/* ---- help ----------------------------------------------------------------------------------- */

#define HELP_COLUMN 32
#define HELP_WIDTH 110

/* Writes the default as " (default 8)"; "" where there is none. */
static void default_text(const tx_option *option, const void *values, char *text, size_t size)
{
    const void *at = (const char *)values + option->offset;
    *text = '\0';
    if (option->kind == TX_OPTION_INTEGER)
        snprintf(text, size, " (default %" PRId64 ")", *(const int64_t *)at);
    else if (option->kind == TX_OPTION_REAL)
        snprintf(text, size, " (default %g)", *(const double *)at);
    else if (option->kind == TX_OPTION_TEXT && *(const char *const *)at)
        snprintf(text, size, " (default %s)", *(const char *const *)at);
    else if (option->kind == TX_OPTION_CHOICE) {
        const char *choice = option->choices;
        for (int32_t i = *(const int32_t *)at; i > 0; i--)
            choice += choice_length(choice) + 1;
        snprintf(text, size, " (default %.*s)", (int)choice_length(choice), choice);
    }
}

/* Prints a name and its explanation (which begins with a space), broken between words. */
static void print_entry(const char *head, const char *text)
{
    size_t column = (size_t)printf("  %-*s", HELP_COLUMN - 2, head);
    bool full = column > HELP_COLUMN;
    while (*text) {
        size_t word = 1 + strcspn(text + 1, " ");
        if (full || column + word > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            full = false;
        }
        printf("%.*s", (int)word, text);
        column += word;
        text += word;
    }
    putchar('\n');
}

static void print_help(const tx_cli *program, const void *values)
{
    printf("usage: %s\n\n%s\n", program->usage, program->about);
    for (int32_t i = 0; i < program->count; i++) {
        const tx_option *option = &program->options[i];
        char head[128], value[256], text[1024];
        if (option->kind == TX_OPTION_HEADING) {
            printf("\n%s\n", option->help);
            continue;
        }
        snprintf(head, sizeof head, "--%s%s%s", option->name, option->choices ? " " : "",
                 option->choices ? option->choices : "");
        default_text(option, values, value, sizeof value);
        snprintf(text, sizeof text, " %s%s", option->help, value);
        print_entry(head, text);
    }
    putchar('\n');
    print_entry("--help", " print this");
    print_entry("--version", " print the version");
}

/* ---- names ------------------------------------------------------------------------------------ */

/* Copies the name in "--some-name" or "--some-name=value", with underscores; false when too long. */
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

static int unknown(const tx_cli *program, const char *argument, const char *name)
{
    const char *nearest = NULL;
    size_t least = strlen(name) / 3 + 2;
    for (int32_t i = 0; i < program->count; i++)
        if (program->options[i].name) {
            size_t d = distance(name, program->options[i].name);
            if (d < least) {
                least = d;
                nearest = program->options[i].name;
            }
        }
    if (nearest)
        return tx_complain(program, TX_EXIT_USAGE, "%s: unknown option; did you mean --%s?", argument, nearest);
    return tx_complain(program, TX_EXIT_USAGE, "%s: unknown option; --help lists all", argument);
}

/* ---- values ------------------------------------------------------------------------------------- */

static int store_number(const tx_cli *program, const tx_option *option, const char *value, char *at)
{
    char *end = NULL;
    bool integer = option->kind == TX_OPTION_INTEGER;
    errno = 0;
    int64_t whole = integer ? (int64_t)strtoll(value, &end, 10) : 0;
    double real = integer ? (double)whole : strtod(value, &end);
    if (end == value || *end || errno || !isfinite(real))
        return tx_complain(program, TX_EXIT_USAGE, "--%s %s: not a %snumber", option->name, value,
                           integer ? "whole " : "");
    if (!(real >= option->least && real <= option->most))
        return tx_complain(program, TX_EXIT_USAGE, "--%s %s: must lie between %.15g and %.15g", option->name, value,
                           option->least, option->most);
    if (integer)
        *(int64_t *)(void *)at = whole;
    else
        *(double *)(void *)at = real;
    return TX_GO_ON;
}

static int store(const tx_cli *program, const tx_option *option, const char *value, char *at)
{
    switch (option->kind) {
    case TX_OPTION_INTEGER:
    case TX_OPTION_REAL:
        return store_number(program, option, value, at);
    case TX_OPTION_TEXT:
    case TX_OPTION_PAIR: /* one of the two */
        if (!*value)
            return tx_complain(program, TX_EXIT_USAGE, "--%s: the value is empty", option->name);
        *(const char **)(void *)at = value;
        return TX_GO_ON;
    case TX_OPTION_CHOICE: {
        int place = find_choice(option->choices, value);
        if (place < 0)
            return tx_complain(program, TX_EXIT_USAGE, "--%s %s: must be one of %s", option->name, value,
                               option->choices);
        *(int32_t *)(void *)at = place;
        return TX_GO_ON;
    }
    case TX_OPTION_FLAG: {
        int place = find_choice("false|true|False|True", value);
        if (place < 0)
            return tx_complain(program, TX_EXIT_USAGE, "--%s=%s: must be true or false", option->name, value);
        *(bool *)at = place % 2 == 1;
        return TX_GO_ON;
    }
    case TX_OPTION_HEADING:
        break;
    }
    return TX_EXIT_USAGE;
}

static const tx_option *find(const tx_cli *program, const char *name)
{
    for (int32_t i = 0; i < program->count; i++)
        if (program->options[i].name && strcmp(program->options[i].name, name) == 0)
            return &program->options[i];
    return NULL;
}

int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values)
{
    /* Asked for first, so that the help shows the true defaults. */
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(program, values);
            return 0;
        }
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        char name[NAME_MAX_LENGTH + 1] = "";
        if (strcmp(argument, "--version") == 0) {
            printf("%s %s\n", program->name, TX_VERSION);
            return 0;
        }
        if (argument[0] != '-' || argument[1] != '-')
            return tx_complain(program, TX_EXIT_USAGE, "%s: not an option; --help lists all", argument);
        const tx_option *option = spell(argument + 2, name) ? find(program, name) : NULL;
        if (!option)
            return unknown(program, argument, name);
        const char *value = strchr(argument, '=');
        if (value)
            value++;
        else if (option->kind == TX_OPTION_FLAG)
            value = "true";
        else if (i + 1 < argc)
            value = argv[++i];
        else
            return tx_complain(program, TX_EXIT_USAGE, "%s: the value is missing", argument);
        char *at = (char *)values + option->offset;
        int status = store(program, option, value, at);
        if (status == TX_GO_ON && option->kind == TX_OPTION_PAIR)
            status = i + 1 < argc ? store(program, option, argv[++i], at + sizeof(const char *))
                                  : tx_complain(program, TX_EXIT_USAGE, "--%s: two values are needed: %s", option->name,
                                                option->choices);
        if (status != TX_GO_ON)
            return status;
    }
    return TX_GO_ON;
}
