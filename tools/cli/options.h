/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options of the programs: one table drives parsing, checking, the help and the shell's completion.
 * Names are spelled with underscores, as transformers spells them; on the command line - and _ are the
 * same, and values follow after a space or after =; a name of one letter has one dash. A program without operands
 * takes, as its first argument, a JSON file of options, {"learning_rate": 5e-5, ...}, as transformers' HfArgumentParser
 * does; what follows it wins. */
#ifndef TX_TOOLS_OPTIONS_H
#define TX_TOOLS_OPTIONS_H

#include "tools/cli/program.h"

/* Reads argv[1..] into `values`, which holds the defaults; texts live as long as the process. --help, --version
 * and --completion are known to every program. Returns TX_GO_ON, or the status to exit with. */
int tx_options_parse(const tx_cli *program, int argc, char *const *argv, void *values);
/* The same into values of that table, which know what was given; the caller frees them on any outcome. */
int tx_options_read(const tx_cli *program, int argc, char *const *argv, tx_option_values *values);
/* The values of a program's options. */
tx_option_values tx_options_values(const tx_cli *program, void *values);
/* Finds the command that argv[1] names; its options are then read by tx_options_parse(.., argc - 1, argv + 1, ..).
 * `values` holds the defaults of the program's own options. Returns TX_GO_ON, or the status to exit with. */
int tx_options_command(const tx_cli *program, int argc, char *const *argv, const void *values, int32_t *command);

#endif
