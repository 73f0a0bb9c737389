/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options of the programs: one table drives parsing, checking, the help, the manual page and the shell's
 * completion. Names are spelled with underscores, as transformers spells them; on the command line - and _ are the
 * same, and values follow after a space or after =; a name of one letter has one dash. A program without operands
 * takes, as its first argument, a JSON file of options, {"learning_rate": 5e-5, ...}, as transformers' HfArgumentParser
 * does; what follows it wins. */
#ifndef TX_TOOLS_OPTIONS_H
#define TX_TOOLS_OPTIONS_H

#include "models/options/option.h"

#include <stdio.h>

/* The first word of programs that do several things. */
typedef struct tx_cli_command {
    const char *name, *help;
    const struct tx_cli *program; /* its own options; NULL: those of the program */
} tx_cli_command;

/* Another way to spell an option, dashes included: "-n" or "--lr". */
typedef struct tx_spelling {
    const char *spelled, *name;
} tx_spelling;

typedef struct tx_cli {
    const char *name, *usage, *about;
    const tx_option *options;
    int32_t count;
    const void *values; /* the defaults, where `program` is a command's: the manual page shows them */
    const tx_foreign *foreign;
    int32_t foreign_count;
    const tx_spelling *spellings;
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

/* Reads argv[1..] into `values`, which holds the defaults; texts live as long as the process. --help, --version,
 * --man and --completion are known to every program. Returns TX_GO_ON, or the status to exit with. */
int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values);
/* The same into values of that table, which know what was given; the caller frees them on any outcome. */
int tx_options_read(const tx_cli *program, int argc, char *const *argv, tx_option_values *values);
/* The values of a program's options. */
tx_option_values tx_options_values(const tx_cli *program, void *values);
/* Finds the command that argv[1] names; its options are then read by tx_options_parse(.., argc - 1, argv + 1, ..).
 * `values` holds the defaults of the program's own options. Returns TX_GO_ON, or the status to exit with. */
int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command);
/* Prints one line, its end added: control characters in names that it tells are shown, and reach no terminal. */
void tx_print_line(FILE *to, const char *format, ...) TX_PRINTF(2, 3);
/* Prints "program: message" on stderr and returns `status`. */
int tx_complain(const tx_cli *program, int status, const char *format, ...) TX_PRINTF(3, 4);

#endif
