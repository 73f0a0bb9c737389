/* SPDX-License-Identifier: Apache-2.0
 * Command-line options from a table. */
#include "tools/cli/options.h"

#include "tools/cli/alive.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUMBER_MOST 1e6

/* ---- the command line ------------------------------------------------------------------------------ */

tx_option_values tx_options_values(const tx_cli *program, void *values)
{
    return (tx_option_values){.table = program->table, .values = values};
}

/* Turns a status of the library into an exit status, and prints its message. */
static int judge(const tx_cli *program, tx_status status)
{
    const bool usage = status == TX_INVALID || status == TX_UNSUPPORTED;
    return status ? tx_complain(program, usage ? TX_EXIT_USAGE : TX_EXIT_FAILURE, "%s", tx_error()) : TX_GO_ON;
}

/* Returns the option that has the argument as its short or alternative spelling, or NULL. */
static const tx_option *find_spelling(const tx_cli *program, const tx_option_values *v, const char *argument)
{
    const size_t length = strcspn(argument, "=");
    for (int32_t i = 0; i < program->table.spelling_count; i++) {
        const tx_option_spelling *s = &program->table.spelling[i];
        size_t same = 0; /* - matches _ except at the start */
        while (same < length &&
               (argument[same] == s->spelled[same] || (argument[same] == '-' && s->spelled[same] == '_')))
            same++;
        if (same == length && !s->spelled[same])
            return tx_option_find(&v->table, s->name);
    }
    return NULL;
}

/* True for --name, -n and the program's alternative spellings, with or without a value. */
static bool is_name(const tx_cli *program, const tx_option_values *v, const char *argument)
{
    if (argument[0] != '-' || !argument[1])
        return false;
    if (argument[1] == '-')
        return argument[2];
    return (isalpha((unsigned char)argument[1]) && (!argument[2] || argument[2] == '=')) ||
           find_spelling(program, v, argument);
}

/* The number of consecutive values of a list or of WORDS from argv[at] on. */
static int count_values(const tx_option *option, int argc, char *const *argv, int at)
{
    const bool words = option->kind == TX_OPTION_WORDS && option->most > 1;
    const int most = tx_option_is_list(option) ? argc : words ? (int)option->most : 1;
    int count = 1;
    while (count < most && at + count < argc && argv[at + count][0] != '-')
        count++;
    return count;
}

/* The values of a list, with commas between them. */
static tx_status store_list(tx_option_values *v, const tx_option *option, char *const *argv, int count)
{
    char text[TX_OPTION_LIST_TEXT] = "";
    for (int i = 0; i < count; i++)
        tx_list_add(text, sizeof text, ",", "%s", argv[i]);
    return tx_option_store(v, NULL, option, text);
}

/* Stores one value. That of an option that TX does not have may be an object of options. */
static tx_status store(tx_option_values *v, const tx_option *option, const char *value)
{
    return option->kind == TX_OPTION_FOREIGN && tx_option_find(&v->table, option->name) == option
               ? tx_option_set(v, option->name, value)
               : tx_option_store(v, NULL, option, value);
}

/* Whether a word is a value of a FLAG, which may have one more word for true. */
static bool is_truth(const tx_option *option, const char *word)
{
    return tx_option_truth(word) >= 0 || (option->choices && strcmp(option->choices, word) == 0);
}

/* Whether an option needs no value. Before a command, a word that is no value of a foreign flag is its program. */
static bool is_flag(const tx_cli *program, const tx_option *option)
{
    const size_t length = tx_choice_length(option->choices);
    const bool foreign = option->kind == TX_OPTION_FOREIGN && program->runs_command;
    return option->kind == TX_OPTION_FLAG || (foreign && length == 4 && strncmp(option->choices, "true", 4) == 0) ||
           (foreign && length == 5 && strncmp(option->choices, "false", 5) == 0);
}

/* Stores an option without "=": its values follow from argv[*at + 1] on. */
static int take_values(const tx_cli *program, tx_option_values *v, const tx_option *option, int argc, char *const *argv,
                       int *at)
{
    const char *next = *at + 1 < argc ? argv[*at + 1] : NULL;
    tx_status status = TX_OK;
    if (option->kind == TX_OPTION_FLAG || option->kind == TX_OPTION_OPTIONAL || option->kind == TX_OPTION_FOREIGN) {
        const bool flag = is_flag(program, option);
        const bool named = next && (is_name(program, v, next) || (next[0] == '-' && isalpha((unsigned char)next[1])));
        const bool given = next && (flag ? is_truth(option, next) : !named);
        *at += given;
        const char *unset = option->kind == TX_OPTION_OPTIONAL ? "" : "true";
        return judge(program, store(v, option, given ? next : unset));
    }
    if (!next || is_name(program, v, next))
        return tx_complain(program, TX_EXIT_USAGE, "%s: the value is missing%s", argv[*at],
                           next ? "; write a value that begins with -- after =" : "");
    const int count = count_values(option, argc, argv, *at + 1);
    if (tx_option_is_list(option))
        status = store_list(v, option, argv + *at + 1, count);
    for (int i = 1; i <= count && !tx_option_is_list(option) && !status; i++)
        status = tx_option_store(v, NULL, option, argv[*at + i]);
    *at += count;
    return judge(program, status);
}

/* Whether values of an option that is repeated are added to a list: files and folders of data. */
static bool is_added(const tx_option *option)
{
    return tx_option_is_list(option) && option->choices &&
           (strncmp(option->choices, "FILE", 4) == 0 || strncmp(option->choices, "DIR", 3) == 0);
}

static const char *text_of(const tx_option_values *v, const tx_option *option)
{
    return *(const char *const *)(const void *)((const char *)v->values + option->offset);
}

/* Stores the list of the earlier values and the present ones. */
static tx_status add_values(tx_option_values *v, const tx_option *option, const char *before)
{
    char text[TX_OPTION_LIST_TEXT] = "";
    tx_list_add(text, sizeof text, ",", "%s", before);
    tx_list_add(text, sizeof text, ",", "%s", text_of(v, option));
    return tx_option_store(v, NULL, option, text);
}

/* If an option is repeated, the last value wins and rank 0 prints a warning. A second file of an option that takes one
 * is an error, because it would silently replace the first. `before` is the earlier value. */
static int judge_again(const tx_cli *program, tx_option_values *v, const tx_option *option, const char *before)
{
    char *now = tx_option_text(v, option);
    int status = TX_GO_ON;
    if (now && strcmp(now, before) != 0 && option->choices && strcmp(option->choices, "FILE") == 0)
        status = tx_complain(program, TX_EXIT_USAGE, "--%s is given twice, as %s and %s: give one file", option->name,
                             before, now);
    else if (now && strcmp(now, before) != 0 && tx_launcher_rank() <= 0)
        tx_complain(program, 0, "warning: --%s is given twice: %s is used instead of %s", option->name, now, before);
    free(now);
    return status;
}

/* Reads the option argv[*at] and its values. Sets *at to the last argument read. */
static int parse_known(const tx_cli *program, tx_option_values *v, const tx_option *option, int argc, char *const *argv,
                       int *at)
{
    const char *value = strchr(argv[*at], '=');
    const bool again = tx_option_has_value(option) && option->kind != TX_OPTION_WORDS &&
                       v->source[option - v->table.option] == TX_OPTION_SET;
    const char *listed = again && is_added(option) ? text_of(v, option) : NULL;
    char *before = again && !listed ? tx_option_text(v, option) : NULL;
    int status = value ? judge(program, store(v, option, value + 1)) : take_values(program, v, option, argc, argv, at);
    if (listed && status == TX_GO_ON)
        status = judge(program, add_values(v, option, listed));
    else if (before && status == TX_GO_ON)
        status = judge_again(program, v, option, before);
    free(before);
    return status;
}

static int parse_option(const tx_cli *program, tx_option_values *v, int argc, char *const *argv, int *at)
{
    const char *argument = argv[*at], *value = strchr(argument, '=');
    const char *name = argument + (argument[1] == '-' ? 2 : 1);
    const tx_option *option = find_spelling(program, v, argument);
    option = option ? option : tx_option_find(&v->table, name);
    option = option ? option : tx_option_foreign(program->name, name);
    if (option)
        return parse_known(program, v, option, argc, argv, at);
    option = program->others ? tx_option_find(&program->others->table, name) : NULL;
    if (option)
        return parse_known(program, program->others, option, argc, argv, at);
    if (!value && *at + 1 < argc && argv[*at + 1][0] != '-')
        ++*at; /* its value */
    return judge(program, tx_option_unknown(&v->table, NULL, name));
}

static int check_operands(const tx_cli *program, const tx_option_values *v)
{
    if (!program->operand)
        return TX_GO_ON;
    const tx_words *words = (const tx_words *)(const void *)((const char *)v->values + program->operands);
    if (words->count < program->operands_least)
        return tx_complain(program, TX_EXIT_USAGE, "%s is missing; usage: %s", program->operand, program->usage);
    if (words->count > program->operands_most)
        return tx_complain(program, TX_EXIT_USAGE, "%s: one %s too many; usage: %s", words->word[words->count - 1],
                           program->operand, program->usage);
    return TX_GO_ON;
}

/* Fails if MPI's launcher started several processes of a program that has no ranks: each would do all the work. A batch
 * job of Slurm has SLURM_NTASKS outside of a step, too. */
static int check_ranks(const tx_cli *program)
{
    const char *variable = "";
    const int32_t ranks = program->one_process ? tx_launcher_ranks(&variable) : 1;
    if (ranks <= 1 || strcmp(variable, "SLURM_NTASKS") == 0)
        return TX_GO_ON;
    if (tx_launcher_rank() > 0)
        return TX_EXIT_USAGE;
    return tx_complain(program, TX_EXIT_USAGE, "it runs in one process, but the launcher started %d (%s): %s",
                       (int)ranks, variable, program->one_process);
}

/* Whether `argument` is a file of options. */
static bool is_file(const tx_cli *program, const char *argument)
{
    return !program->operand && argument[0] != '-' && tx_option_is_file(argument);
}

/* Reads a file of options: the program's, or if it has a key that the program lacks, the other program's. */
static tx_status read_file(const tx_cli *program, tx_option_values *v, const char *path)
{
    tx_json *all = NULL;
    bool own = true;
    TX_TRY(tx_option_file(path, &all));
    for (void *i = tx_json_first(all); i; i = tx_json_next(all, i))
        own = own && tx_option_find(&v->table, tx_json_key(i));
    tx_json_free(all);
    return tx_option_read(own || !program->others ? v : program->others, path);
}

/* Advice for a word without an option, or "": the option that takes it, or its place. */
static const char *taker_of(const tx_cli *program, const tx_option_values *v, const char *word)
{
    if (word[0] == '-')
        return "";
    if (is_file(program, word))
        return "; a file of options must be the first argument";
    if (strchr(word, ' ') && tx_option_find(&v->table, "prompt"))
        return "; --prompt takes a text";
    if (tx_option_find(&v->table, "train_file") && access(word, R_OK) == 0)
        return "; --train_file takes a text to train on";
    return strchr(word, '/') && tx_option_find(&v->table, "model") ? "; --model takes a model" : "";
}

/* Refuses an argument that is no option. Words of other programs' command lines have advice: sft, or llama.cpp's -ngl.
 */
static int refuse_word(const tx_cli *program, const tx_option_values *v, int argc, char *const *argv, int *at)
{
    char command[64];
    const char *argument = argv[*at];
    snprintf(command, sizeof command, "command %s", argument);
    const bool dash = argument[0] == '-' && isalpha((unsigned char)argument[1]);
    const tx_option *known = dash ? NULL : tx_option_find(&v->table, command);
    known = known ? known : tx_option_foreign(program->name, dash ? argument + 1 : command);
    if (known && argument[0] == '-' && *at + 1 < argc && argv[*at + 1][0] != '-')
        ++*at; /* its value */
    if (known && known->kind == TX_OPTION_FOREIGN)
        return tx_complain(program, TX_EXIT_USAGE, "%s: not an option of TX: %s", argument, known->help);
    return tx_complain(program, TX_EXIT_USAGE,
                       "%s: not an option, and not the value of one; --help all lists the options%s", argument,
                       taker_of(program, v, argument));
}

/* ---- the whole command line ----------------------------------------------------------------------- */

int tx_options_read(const tx_cli *program, int argc, char *const *argv, tx_option_values *v)
{
    /* Before any value is stored, so that --help shows the defaults. */
    const int answered = tx_usage_answer(program, argc, argv, v->values);
    int status = TX_GO_ON;
    bool only_operands = false;
    tx_warn_as(program);
    tx_catch_crashes(program);
    for (int i = 1; i < argc && answered == TX_GO_ON; i++) {
        int one = TX_GO_ON;
        if (i == 1 && is_file(program, argv[i]))
            one = judge(program, read_file(program, v, argv[i]));
        else if (!only_operands && is_name(program, v, argv[i]))
            one = parse_option(program, v, argc, argv, &i);
        else if (program->operand && !only_operands && strcmp(argv[i], "--") == 0)
            only_operands = true;
        else if (program->operand && (only_operands || argv[i][0] != '-' || !argv[i][1])) {
            one = judge(program, tx_option_add_word(v, argv[i], program->operands));
            only_operands = only_operands || program->runs_command;
        } else
            one = refuse_word(program, v, argc, argv, &i);
        status = one != TX_GO_ON ? one : status; /* continues, to report all mistakes at once */
    }
    if (answered != TX_GO_ON || status != TX_GO_ON)
        return answered != TX_GO_ON ? answered : status;
    status = check_operands(program, v);
    return status == TX_GO_ON ? check_ranks(program) : status;
}

int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values)
{
    static tx_option_values kept; /* a program parses once */
    kept = tx_options_values(program, values);
    return tx_options_read(program, argc, argv, &kept);
}

int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command)
{
    if (argc < 2 || argv[1][0] == '-') {
        const int status = tx_usage_answer(program, argc, argv, values);
        if (status != TX_GO_ON)
            return status;
        return tx_complain(program, TX_EXIT_USAGE, "a command is missing; usage: %s; --help lists the commands",
                           program->usage);
    }
    const char *nearest = NULL;
    size_t length = strlen(argv[1]), least = length / 3 + 2;
    for (int32_t i = 0; i < program->command_count; i++) {
        if (strcmp(program->commands[i].name, argv[1]) == 0) {
            *command = i;
            return TX_GO_ON;
        }
        tx_name_compare(argv[1], program->commands[i].name, &least, &nearest);
    }
    return tx_complain(program, TX_EXIT_USAGE, "%s: unknown command%s%s%s; --help lists all", argv[1],
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

tx_status tx_options_numbers(const char *option, const char *text, int32_t count, double *number)
{
    const char *at = text;
    char *end = NULL;
    for (int32_t i = 0; i < count; i++, at = end + 1) {
        number[i] = strtod(at, &end);
        if (end == at || *end != (i + 1 < count ? ',' : '\0'))
            return tx_fail(TX_INVALID, "--%s %s: give %d numbers with commas between them", option, text, count);
        if (!(fabs(number[i]) <= NUMBER_MOST))
            return tx_fail(TX_INVALID, "--%s %s: %.*s is not a number from %g to %g", option, text, (int)(end - at), at,
                           -NUMBER_MOST, NUMBER_MOST);
    }
    return TX_OK;
}
