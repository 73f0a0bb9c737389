/* SPDX-License-Identifier: Apache-2.0
 * Command-line options from a table. */
#include "api/base/message.h"
#include "tools/cli/option_value.h"
#include "tools/cli/usage.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Longer lines are cut off. */
#define LINE 8192

void tx_print_line(FILE *to, const char *format, ...)
{
    char text[LINE], safe[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tx_escape(text, safe, sizeof safe);
    fprintf(to, "%s\n", safe);
}

int tx_complain(const tx_cli *program, int status, const char *format, ...)
{
    char text[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tx_print_line(stderr, "%s: %s", program->name, text);
    return status;
}

/* ---- the command line ------------------------------------------------------------------------------ */

/* Whether it is spelled as an option: --name, or -n, with or without a value. */
static bool is_name(const char *argument)
{
    if (argument[0] != '-' || !argument[1])
        return false;
    return argument[1] == '-' ? argument[2]
                              : isalpha((unsigned char)argument[1]) && (!argument[2] || argument[2] == '=');
}

/* Reads the values that follow a LIST, all up to the next option. */
static int parse_list(const tx_option_source *p, const tx_option *option, int argc, char *const *argv, int *at)
{
    int status = TX_GO_ON;
    while (status == TX_GO_ON && *at + 1 < argc && argv[*at + 1][0] != '-')
        status = tx_option_store(p, option, argv[++*at]);
    return status;
}

/* Reads the option argv[*at] and the values after it; *at ends at the last argument read. */
static int parse_option(const tx_option_source *p, int argc, char *const *argv, int *at)
{
    const char *argument = argv[*at], *value = strchr(argument, '=');
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    char name[TX_OPTION_NAME + 1] = "";
    const char *spelled = argument + (argument[1] == '-' ? 2 : 1);
    const tx_option *option = tx_option_spell(spelled, name) ? tx_option_find(p->program, name) : NULL;
    if (!option) {
        const tx_foreign *foreign = tx_option_find_foreign(p->program, name);
        if (!foreign)
            return tx_option_unknown(p, spelled);
        if (!value && next && next[0] != '-')
            value = argv[++*at];
        else
            value = value ? value + 1 : "true";
        return tx_option_judge_foreign(p, foreign, value);
    }
    if (option->kind == TX_OPTION_LIST)
        *(uint32_t *)(void *)(p->values + option->offset) = 0;
    if (value)
        return tx_option_store(p, option, value + 1);
    if (option->kind == TX_OPTION_FLAG) {
        bool given = next && tx_option_truth(next) >= 0;
        *at += given;
        return tx_option_store(p, option, given ? next : "true");
    }
    if (option->kind == TX_OPTION_OPTIONAL) {
        bool given = next && next[0] != '-';
        *at += given;
        return tx_option_store(p, option, given ? next : "");
    }
    if (!next || is_name(next))
        return tx_complain(p->program, TX_EXIT_USAGE, "%s: the value is missing%s", argument,
                           next ? "; one that begins with -- is given after =" : "");
    if (option->kind == TX_OPTION_LIST && next[0] != '-')
        return parse_list(p, option, argc, argv, at);
    return tx_option_store(p, option, argv[++*at]);
}

static int check_operands(const tx_option_source *p)
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

/* Whether `argument` is a file of options. */
static bool is_file(const tx_cli *program, const char *argument)
{
    size_t length = strlen(argument);
    return !program->operand && argument[0] != '-' && length > 5 && strcmp(argument + length - 5, ".json") == 0;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values)
{
    /* Asked for first, so that the help shows the true defaults. */
    int status = tx_usage_answer(program, argc, argv, values);
    tx_option_source p = {program, NULL, values};
    bool only_operands = false;
    for (int i = 1; i < argc && status == TX_GO_ON; i++) {
        if (i == 1 && is_file(program, argv[i]))
            status = tx_option_read_file(&p, argv[i]);
        else if (!only_operands && is_name(argv[i]))
            status = parse_option(&p, argc, argv, &i);
        else if (program->operand && !only_operands && strcmp(argv[i], "--") == 0)
            only_operands = true;
        else if (program->operand && (only_operands || argv[i][0] != '-' || !argv[i][1]))
            status = tx_option_add_word(&p, argv[i], p.values + program->operands);
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
        if (length <= TX_OPTION_NAME)
            tx_option_compare(argv[1], program->commands[i].name, &least, &nearest);
    }
    return tx_complain(program, TX_EXIT_USAGE, "%s: there is no such command%s%s%s; --help lists all", argv[1],
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
