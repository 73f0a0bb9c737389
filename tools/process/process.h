/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs programs of TX as separate processes. A driver that crashes, hangs or exhausts memory then ends only such a
 * process and not the caller. Used by txbench, txlaunch and txsearch. */
#ifndef TX_TOOLS_PROCESS_PROCESS_H
#define TX_TOOLS_PROCESS_PROCESS_H

#include "tools/process/child.h"

/* ---- Command lines ----------------------------------------------------------------------------------------- */

#define TX_COMMAND_WORDS 40

/* The words of a command. The first is the name of a program in the folder of this program. Words are copied. */
typedef struct tx_command_line {
    char *word[TX_COMMAND_WORDS + 1]; /* NULL ends it */
    int32_t count;
} tx_command_line;

/* Formats a text, splits it at spaces and adds the words. */
tx_status tx_command_line_add(tx_command_line *command, const char *format, ...) TX_PRINTF(2, 3);
/* Adds one word, which may contain spaces. */
tx_status tx_command_line_add_word(tx_command_line *command, const char *word);
void tx_command_line_free(tx_command_line *command);
/* Joins the words with spaces. The text is truncated to the size. */
void tx_command_line_text(const tx_command_line *command, char *text, size_t size);

/* ---- Processes --------------------------------------------------------------------------------------------- */

typedef struct tx_process {
    pid_t id;
    double begin, seconds; /* time of the start, as tx_now; seconds that it has run */
    int state;             /* once it has ended: its state, as from waitpid */
    bool ended;
} tx_process;

/* Returns the path of a program in the folder of this program. */
tx_status tx_process_beside(const char *name, char *path, size_t size);
tx_status tx_process_start(const tx_command_line *command, const tx_child_spawning *how, tx_process *process);
/* Returns true if the process has ended. Does not block. */
bool tx_process_poll(tx_process *process);
/* Returns true if the ended process succeeded. Otherwise `message` becomes the signal that ended it, if any, and the
 * error message `said`, which may be "". */
bool tx_process_well(const tx_process *process, const char *said, char *message, size_t size);

/* Returns the contents of a file, or NULL if it cannot be read. The caller frees them. */
char *tx_process_text(FILE *file);
/* Returns the last error line of a TX program ("txtrain: ..."), without the program's name. If there is none, returns
 * the last line with a letter, or "". Splits `text` into lines in place. */
const char *tx_process_complaint(char *text);

#endif
