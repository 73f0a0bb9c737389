/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of TX run as processes of their own: what a driver crashes, hangs or has run out of memory takes one of them
 * along and not this process. */
#ifndef TX_TOOLS_PROCESS_PROCESS_H
#define TX_TOOLS_PROCESS_PROCESS_H

#include "tools/process/child.h"

/* ---- Command lines ----------------------------------------------------------------------------------------- */

#define TX_COMMAND_WORDS 40

/* The program's name first, which lies beside this one. Its words are copied. */
typedef struct tx_command_line {
    char *word[TX_COMMAND_WORDS + 1]; /* NULL ends it */
    int32_t count;
} tx_command_line;

/* Adds the words of a format, at the spaces; where it has none, the argument may hold some. */
tx_status tx_command_line_add(tx_command_line *command, const char *format, ...) TX_PRINTF(2, 3);
/* The same for one word, as it is. */
tx_status tx_command_line_add_word(tx_command_line *command, const char *word);
void tx_command_line_free(tx_command_line *command);
/* The words with spaces between them, cut to the size. */
void tx_command_line_text(const tx_command_line *command, char *text, size_t size);

/* ---- Processes --------------------------------------------------------------------------------------------- */

typedef struct tx_process {
    pid_t id;
    double begin, seconds; /* when it started; how long it has run */
    int state;             /* as waitpid tells, once it has ended */
    bool ended;
} tx_process;

/* The path of a program that lies beside this one. */
tx_status tx_process_beside(const char *name, char *path, size_t size);
/* Starts the command. */
tx_status tx_process_start(const tx_command_line *command, const tx_child_spawning *how, tx_process *process);
/* Whether it has ended. */
bool tx_process_poll(tx_process *process);
/* Whether one that ended did so well. Else the message is the signal that ended it and what it `said`, which may be "".
 */
bool tx_process_well(const tx_process *process, const char *said, char *message, size_t size);

/* All that a file holds, which the caller frees; NULL: no memory, or it cannot be read. */
char *tx_process_text(FILE *file);
/* The last line by which one of TX's programs complained, without its name; else the last that has a letter; "" where
 * there is none. `text` is cut into lines. */
const char *tx_process_complaint(char *text);

#endif
