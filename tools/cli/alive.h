/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress lines of programs that print nothing for a long time. A thread prints "txgen: still loading m, 12 s" at most
 * two seconds after the start and ten seconds after any other line. Operations of known length that take more than a
 * second are shown instead: "txgen: kernels 27 of 42, 9 s left". On terminals this is one line, which is rewritten and
 * erased at the end. Only rank 0 of a job prints. TX_PROGRESS=0 in the environment turns progress lines off.
 *
 * All functions accept NULL. All except _start and _stop may be called from any thread. */
#ifndef TX_TOOLS_ALIVE_H
#define TX_TOOLS_ALIVE_H

#include "tools/cli/program.h"

typedef struct tx_alive tx_alive;

/* Starts the thread, which prints to `to`. `doing` names the first action: "reading its inputs". Returns NULL
 * if there is no memory, or if this process prints no progress. */
tx_alive *tx_alive_start(const tx_cli *program, FILE *to, const char *doing);
void tx_alive_stop(tx_alive *alive);
/* Sets the current action. Nothing is printed while the text is empty: the program waits for its user. */
void tx_alive_doing(tx_alive *alive, const char *format, ...) TX_PRINTF(2, 3);
/* The `progress` callback of a tx_reporter; the context is the tx_alive. */
void tx_alive_progress(void *alive, const char *what, int64_t done, int64_t total);
/* Sets the program whose warnings follow; reading its options calls it. */
void tx_warn_as(const tx_cli *program);
/* The `warn` of reporters and options of the library: prints a warning of the program. The context is its tx_alive, or
 * NULL. */
void tx_warn(void *alive, const char *message);
/* Returns the reporter for engines: prints warnings, and shows progress between _start and _stop. */
const tx_reporter *tx_alive_reporter(void);
/* Reports that the program prints a line itself: erases a rewritten line, and the next progress line waits. */
void tx_alive_printed(tx_alive *alive);
/* Calls `ask` every half second until _stop. It writes the current action to `text`; an empty text keeps the last. */
void tx_alive_set_status(tx_alive *alive, void (*ask)(void *context, char *text, size_t size), void *context);
/* Writes "WHAT 27 of 42, 9 s left", or "WHAT 43 %, 9 s left" for large totals. The rest is estimated from `seconds`
 * since the first of the `done` units began, and left out when only a few are done. */
void tx_bar_text(char *text, size_t size, const char *what, int64_t done, int64_t total, double seconds);

#endif
