/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options of the programs: one table drives parsing, checking, the help, the manual page and the shell's
 * completion. Names are spelled with underscores, as transformers spells them; on the command line - and _ are the
 * same, and values follow after a space or after =; a name of one letter has one dash. A program without operands
 * takes, as its first argument, a JSON file of options, {"learning_rate": 5e-5, ...}, as transformers' HfArgumentParser
 * does; what follows it wins. */
#ifndef TX_TOOLS_OPTIONS_H
#define TX_TOOLS_OPTIONS_H

#include "tx.h"

#include <stdio.h>

typedef enum tx_option_kind {
    TX_OPTION_HEADING,  /* a line of the help */
    TX_OPTION_FLAG,     /* bool; its value may be left out */
    TX_OPTION_INTEGER,  /* int64_t */
    TX_OPTION_REAL,     /* double */
    TX_OPTION_TEXT,     /* const char *, NULL when not given */
    TX_OPTION_OPTIONAL, /* const char *, NULL when not given, "" when given without a value */
    TX_OPTION_CHOICE,   /* int32_t, place in `choices` */
    TX_OPTION_LIST,     /* uint32_t, a bit for each place in `choices`; values separated by commas or blanks */
    TX_OPTION_WORDS     /* tx_words: may be given several times */
} tx_option_kind;

/* Texts in the order given. */
typedef struct tx_words {
    const char *const *word;
    int32_t count;
} tx_words;

typedef struct tx_option {
    tx_option_kind kind;
    const char *name;
    size_t offset;      /* of the value in the struct that holds all of them */
    double least, most; /* of an INTEGER or REAL, both included */
    /* "linear|cosine|constant"; for the others the word for the value. The shell completes files where that holds FILE,
     * folders where it holds DIR, and the words of it that are in lower case: "cpu|opencl|opencl:N". In a file of
     * options a value called JSON may be an object. */
    const char *choices;
    const char *help;
} tx_option;

/* An option of others that TX does not have. */
typedef struct tx_foreign {
    const char *name;
    const char *same;   /* the value that asks for what TX does anyway, which is accepted; NULL: there is none */
    const char *advice; /* what to use, or what TX does */
} tx_foreign;

/* The first word of programs that do several things. */
typedef struct tx_cli_command {
    const char *name, *help;
    const struct tx_cli *program; /* its own options; NULL: those of the program */
} tx_cli_command;

typedef struct tx_cli {
    const char *name, *usage, *about;
    const tx_option *options;
    int32_t count;
    const void *values; /* the defaults, where `program` is a command's: the manual page shows them */
    const tx_foreign *foreign;
    int32_t foreign_count;
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
/* Frees the texts that values point to; for who parses more than once. */
void tx_options_forget(void);
/* Finds the command that argv[1] names; its options are then read by tx_options_parse(.., argc - 1, argv + 1, ..).
 * `values` holds the defaults of the program's own options. Returns TX_GO_ON, or the status to exit with. */
int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command);
/* Prints one line, its end added: control characters in names that it tells are shown, and reach no terminal. */
void tx_print_line(FILE *to, const char *format, ...) TX_PRINTF(2, 3);
/* Prints "program: message" on stderr and returns `status`. */
int tx_complain(const tx_cli *program, int status, const char *format, ...) TX_PRINTF(3, 4);

#endif
