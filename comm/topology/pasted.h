/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that was copied from a terminal, a line and its words at a time. */
#ifndef TX_COMM_TOPOLOGY_PASTED_H
#define TX_COMM_TOPOLOGY_PASTED_H

#include "comm/topology/draft.h"

#define TX_PASTED_WORDS (TX_TOPO_DEVICES_MAX + 16)

typedef struct tx_pasted {
    char *text, *rest; /* all of it; what follows the present line, which is cut into words */
    int64_t line;      /* from 1 */
    const char *words[TX_PASTED_WORDS];
    int32_t count; /* of words */
} tx_pasted;

/* A copy of the text (a NUL follows its `size` bytes) without the terminal's escape sequences, before its first line.
 * The caller frees `pasted->text`. */
tx_status tx_pasted_begin(tx_pasted *pasted, const char *text, size_t size);
/* Cuts the next line into words; false at the end of the text, and where the line has too many of them, which `*status`
 * tells. */
bool tx_pasted_next(tx_pasted *pasted, tx_status *status);
/* Digits to the end of `text`, as a number of at most six; -1 where that is not so. */
int32_t tx_pasted_digits(const char *text);
/* "GPU3" */
bool tx_pasted_gpu(const char *word);

#endif
