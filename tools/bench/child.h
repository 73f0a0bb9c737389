/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that a command starts and talks to. */
#ifndef TX_TOOLS_BENCH_CHILD_H
#define TX_TOOLS_BENCH_CHILD_H

#include "tx.h"

#include <stdio.h>
#include <sys/types.h>

typedef struct tx_child {
    pid_t process;   /* 0: none */
    FILE *to, *from; /* its standard input and output */
} tx_child;

/* Starts the program that arguments[0] names; its errors go where ours go. `advice` ends the message where there is no
 * such program. */
tx_status tx_child_start(char *const arguments[], const char *advice, tx_child *child);
/* Starts a program that reads nothing and writes to two files of this process. */
tx_status tx_child_spawn(char *const arguments[], int output, int errors, pid_t *process);
/* Closes both and waits until it has ended; how, as waitpid tells. Sets no message. */
int tx_child_end(tx_child *child);
/* The path of this program. */
tx_status tx_child_self(char *path, size_t size);

#endif
