/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of programs that are silent for long: a thread prints a line of its own, "txgen: still loading m, 12 s", two
 * seconds after the start and ten seconds after every other line, at the latest. Lines end with a newline on terminals,
 * too. Only the first rank of a job prints; with TX_PROGRESS=0 in the environment none does.
 *
 * All functions take NULL. Any thread may call all but _start and _stop. */
#ifndef TX_TOOLS_ALIVE_H
#define TX_TOOLS_ALIVE_H

#include "tools/cli/program.h"

typedef struct tx_alive tx_alive;

/* Starts the thread, which prints to `to`. `doing` names the first action: "reading its inputs". Returns NULL
 * if there is no memory, or no need. */
tx_alive *tx_alive_start(const tx_cli *program, FILE *to, const char *doing);
void tx_alive_stop(tx_alive *alive);
/* Sets the action from now on. While the text is empty nothing is printed: the program waits for its user. */
void tx_alive_doing(tx_alive *alive, const char *format, ...) TX_PRINTF(2, 3);
/* The same as a tx_reporter has it; the context is the tx_alive. */
void tx_alive_progress(void *alive, const char *what, int64_t done, int64_t total);
/* The program has printed a line itself. */
void tx_alive_told(tx_alive *alive);
/* Calls `ask` every half a second: it writes the present action, or nothing if it does not know. It may be
 * called until _stop. */
void tx_alive_set_status(tx_alive *alive, void (*ask)(void *context, char *text, size_t size), void *context);

#endif
