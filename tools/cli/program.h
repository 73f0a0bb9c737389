/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program is to the command line: its options, commands and operands, and how it ends. */
#ifndef TX_TOOLS_PROGRAM_H
#define TX_TOOLS_PROGRAM_H

#include "tx_options.h"

#include <stdio.h>

/* The first word of programs that do several things. */
typedef struct tx_cli_command {
    const char *name, *help;
    const struct tx_cli *program; /* its own options; NULL: those of the program */
} tx_cli_command;

typedef struct tx_cli {
    const char *name, *usage, *about;
    const tx_option *options;
    int32_t count;
    const void *values; /* the defaults of a command's options */
    const tx_option_spelling *spellings;
    int32_t spelling_count;
    const tx_cli_command *commands;
    int32_t command_count;
    const char *operand; /* "FILE": the word for arguments that are no options; NULL: there are none */
    size_t operands;     /* offset of their tx_words */
    int32_t operands_least, operands_most;
} tx_cli;

#define TX_EXIT_FAILURE 1
#define TX_EXIT_USAGE 2
#define TX_GO_ON (-1)

/* Prints one line, its end added: control characters in names that it tells are shown, and reach no terminal. */
void tx_print_line(FILE *to, const char *format, ...) TX_PRINTF(2, 3);
/* Prints "program: message" on stderr and returns `status`. */
int tx_complain(const tx_cli *program, int status, const char *format, ...) TX_PRINTF(3, 4);

/* Every program ends by this call. Returns `status`; or TX_EXIT_FAILURE, with a message, if the program succeeded but
 * its standard output could not be written. */
int tx_end(const tx_cli *program, int status);

/* Answers --help, -h, --version and --completion bash where argv asks for one, from the table alone; TX_GO_ON
 * where it does not. `values` holds the defaults, or is NULL. (usage.c) */
int tx_usage_answer(const tx_cli *program, int argc, char *const *argv, const void *values);

#endif
