/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program says about itself, made from its table of options: help, manual page, completion for bash. */
#ifndef TX_TOOLS_USAGE_H
#define TX_TOOLS_USAGE_H

#include "tools/cli/program.h"

/* Answers --help, -h, --version, --man and --completion bash where argv asks for one; TX_GO_ON where it does not.
 * `values` holds the defaults, or is NULL. */
int tx_usage_answer(const tx_cli *program, int argc, char *const *argv, const void *values);

#endif
