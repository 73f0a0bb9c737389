/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options of the programs: one table drives parsing, checking and the help. Names are spelled with
 * underscores, as transformers spells them; on the command line - and _ are the same, and values follow after a
 * space or after =. */
#ifndef TX_TOOLS_OPTIONS_H
#define TX_TOOLS_OPTIONS_H

#include "tx.h"

typedef enum tx_option_kind {
    TX_OPTION_HEADING, /* a line of the help */
    TX_OPTION_FLAG,    /* bool */
    TX_OPTION_INTEGER, /* int64_t */
    TX_OPTION_REAL,    /* double */
    TX_OPTION_TEXT,    /* const char *, NULL when not given */
    TX_OPTION_PAIR,    /* const char *[2], NULL when not given: two values follow */
    TX_OPTION_CHOICE   /* int32_t, place in `choices` */
} tx_option_kind;

typedef struct tx_option {
    tx_option_kind kind;
    const char *name;
    size_t offset;       /* of the value in the struct that holds all of them */
    double least, most;  /* of an INTEGER or REAL, both included */
    const char *choices; /* "linear|cosine|constant"; for the others the word for the value, as FILE */
    const char *help;
} tx_option;

typedef struct tx_cli {
    const char *name, *usage, *about;
    const tx_option *options;
    int32_t count;
} tx_cli;

#define TX_EXIT_FAILURE 1
#define TX_EXIT_USAGE 2
#define TX_GO_ON (-1)

/* Reads argv[1..] into `values`, which holds the defaults. --help and --version are known to every program.
 * Returns TX_GO_ON, or the status to exit with. */
int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values);
/* Prints "program: message" on stderr and returns `status`. */
int tx_complain(const tx_cli *program, int status, const char *format, ...) TX_PRINTF(3, 4);

#endif
