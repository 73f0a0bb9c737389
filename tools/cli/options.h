/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options of the programs. One table drives parsing, checking, the help and the shell's completion.
 * Names have underscores as in transformers; on the command line - and _ are the same. A value follows after a space or
 * after =. A name of one letter has one dash. The first argument of a program without operands may be a JSON file of
 * options, {"learning_rate": 5e-5, ...}, as in transformers' HfArgumentParser; later options override it. */
#ifndef TX_TOOLS_OPTIONS_H
#define TX_TOOLS_OPTIONS_H

#include "tools/cli/program.h"

/* Reads argv[1..] into `values`, which has the defaults. Texts stay valid until the process ends. Every program accepts
 * --help [TOPIC], --version and --completion SHELL. Returns TX_GO_ON or the exit status. */
int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values);
/* The same, but `values` also records which options were given. The caller frees `values`, also after errors. */
int tx_options_read(const tx_cli *program, int argc, char *const *argv, tx_option_values *values);
/* Returns the option table of a program with `values`. */
tx_option_values tx_options_values(const tx_cli *program, void *values);
/* Finds the command that argv[1] names. Read its options by tx_options_parse(.., argc - 1, argv + 1, ..) then. `values`
 * has the defaults of the program's own options. Returns TX_GO_ON or the exit status. */
int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command);
/* Reads `count` numbers with commas between them, of magnitudes up to 1e6, the value of --option. */
tx_status tx_options_numbers(const char *option, const char *text, int32_t count, double *number);

#endif
