/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts other programs as child processes. Used by txlaunch and txbench, and by process.h. */
#ifndef TX_TOOLS_PROCESS_CHILD_H
#define TX_TOOLS_PROCESS_CHILD_H

#include "tx.h"

#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

/* ---- Starting one ------------------------------------------------------------------------------------------- */

typedef struct tx_child_spawning {
    int input;            /* the child's standard input; 0 means /dev/null */
    int output, errors;   /* the child's standard output and error; -1 inherits that of this process */
    bool group;           /* start a process group, which the terminal's signals do not reach */
    int orphan;           /* the signal that the child gets if this process dies, or 0 */
    const sigset_t *mask; /* the child's signal mask; NULL inherits that of this process */
    /* Binds the child to `cores` of this process's cores, from index first_core on. If `cores` is 0, it is not bound.
     */
    int32_t first_core, cores;
    const char *advice; /* appended to the error if the program is not found; may be NULL */
} tx_child_spawning;

/* Starts argv[0], which is searched in PATH if it has no slash. Returns TX_NOT_FOUND if there is no such program and
 * TX_IO if it cannot be executed. The caller waits for the process. */
tx_status tx_child_spawn(const char *const *argv, const tx_child_spawning *how, pid_t *process);

/* ---- A child with pipes ------------------------------------------------------------------------------------ */

typedef struct tx_child {
    pid_t process;   /* 0 if there is none */
    FILE *to, *from; /* its standard input and output */
} tx_child;

/* Starts argv[0] with pipes to its standard input and output; standard error is inherited. `advice` is appended to the
 * error if the program is not found. */
tx_status tx_child_start(const char *const *argv, const char *advice, tx_child *child);
/* Closes both pipes and waits for the child to end. Returns its state as waitpid does. Sets no error message. */
int tx_child_end(tx_child *child);

/* Finds the path of this program. */
tx_status tx_child_self(char *path, size_t size);
/* Makes this process a subreaper: orphaned descendants become its children. */
tx_status tx_child_adopt(void);

#endif
