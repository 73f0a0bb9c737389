/* SPDX-License-Identifier: Apache-2.0
 *
 * The command-line description of a program: its options, commands and operands. Also its messages and its exit. */
#ifndef TX_TOOLS_PROGRAM_H
#define TX_TOOLS_PROGRAM_H

#include "tx_options.h"

#include <stdio.h>

/* A command: the first argument of programs with several commands. */
typedef struct tx_cli_command {
    const char *name, *help;
    const struct tx_cli *program; /* the command's own options; NULL if it has those of the program */
} tx_cli_command;

typedef struct tx_cli {
    /* `usage` and each line of `example`, which begins with two blanks, have at most 80 columns. Lines of `about` that
     * begin with a blank stay lines of their own. */
    const char *name, *usage, *about, *example;
    const char *most_used; /* names of the options in the short help, separated by blanks; NULL shows all,
                            * or those before the first topic if there are more than TX_HELP_OPTIONS */
    tx_option_table table;
    const void *values; /* the defaults of a command's options */
    const tx_cli_command *commands;
    int32_t command_count;
    const char *operand; /* name of the operands in the help, such as "FILE"; NULL if there are none */
    size_t operands;     /* offset of the tx_words of operands in the values */
    int32_t operands_least, operands_most;
    /* Advice for users who start several ranks of the program, which it does not have; NULL if it has ranks. */
    const char *one_process;
    /* Options of another program that this one also reads: those that its own table lacks. NULL if there are none. */
    tx_option_values *others;
    bool runs_command; /* the first operand ends the options: it is a command with its own */
} tx_cli;

/* The members of a table, and of a program, for arrays. */
#define TX_CLI_OPTIONS(array) .option = array, .count = (int32_t)(sizeof array / sizeof array[0])
#define TX_CLI_SPELLINGS(array) .spelling = array, .spelling_count = (int32_t)(sizeof array / sizeof array[0])
#define TX_CLI_COMMANDS(array) .commands = array, .command_count = (int32_t)(sizeof array / sizeof array[0])

#define TX_HELP_OPTIONS 20
#define TX_EXIT_FAILURE 1
#define TX_EXIT_USAGE 2
#define TX_GO_ON (-1)

/* Prints one line and a newline. Control characters are escaped, so that names of files cannot control a terminal. */
void tx_print_line(FILE *to, const char *format, ...) TX_PRINTF(2, 3);
/* Prints "program: message" on stderr and returns `status`. */
int tx_complain(const tx_cli *program, int status, const char *format, ...) TX_PRINTF(3, 4);

/* From now on a crash prints a line of the program before it ends it. Only the first call counts. */
void tx_catch_crashes(const tx_cli *program);

/* Options that must not be given together, or not without others: whether they were, and the message. */
typedef struct tx_misuse {
    bool met;
    const char *message;
} tx_misuse;
/* Prints a line for each that is met and returns TX_EXIT_USAGE, or returns TX_GO_ON. */
int tx_complain_misuse(const tx_cli *program, const tx_misuse *misuses, size_t count);

/* Returns the exit status of the program; every program calls it last. If `status` is 0 but standard output could not
 * be written, prints a message and returns TX_EXIT_FAILURE. */
int tx_end(const tx_cli *program, int status);

/* Prints the help, the version or the completion script if argv has --help [TOPIC], -h, --version or --completion
 * SHELL, and returns the exit status. Otherwise returns TX_GO_ON. `values` has the defaults, or is NULL. (usage.c) */
int tx_usage_answer(const tx_cli *program, int argc, char *const *argv, const void *values);
/* The options that every program has. (usage.c) */
extern const tx_option_table tx_common_options;
/* Prints the completion script for "bash", "zsh" or "fish", or for "words" the words that may follow a command line
 * whose last word is unfinished. Returns the exit status. (completion.c) */
int tx_print_completion(const tx_cli *program, const char *shell, int count, char *const *words);

#endif
