/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that a program starts. */
#ifndef TX_TOOLS_PROCESS_CHILD_H
#define TX_TOOLS_PROCESS_CHILD_H

#include "tx.h"

#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- Starting one ------------------------------------------------------------------------------------------- */

typedef struct tx_child_spawning {
    int input;            /* the descriptor that it reads from; 0: nothing */
    int output, errors;   /* descriptors that it writes to; -1: where this process does */
    bool group;           /* it leads a process group of its own, which signals of a terminal do not reach */
    int orphan;           /* the signal that it gets should this process die; 0: none */
    const sigset_t *mask; /* of its signals; NULL: this process's */
    /* Of the processors that this process may run on, those that it may run on; `cores` 0: all. */
    int32_t first_core, cores;
    const char *advice; /* ends the message where there is no such program; NULL: nothing does */
} tx_child_spawning;

/* Starts a program, which is looked for in PATH where its name has no slash. TX_NOT_FOUND: there is none; TX_IO: it
 * cannot be started. The caller waits for it. */
tx_status tx_child_spawn(const char *const *argv, const tx_child_spawning *how, pid_t *process);

/* ---- One that is talked to --------------------------------------------------------------------------------- */

typedef struct tx_child {
    pid_t process;   /* 0: none */
    FILE *to, *from; /* its standard input and output */
} tx_child;

/* Starts the program that argv[0] names; its errors go where ours go. `advice` ends the message where there is no
 * such program. */
tx_status tx_child_start(const char *const *argv, const char *advice, tx_child *child);
/* Closes both and waits until it has ended; how, as waitpid tells. Sets no message. */
int tx_child_end(tx_child *child);

/* The path of this program. */
tx_status tx_child_self(char *path, size_t size);
/* Takes in what descendants of this process leave behind: they become its children. */
tx_status tx_child_adopt(void);

#endif
