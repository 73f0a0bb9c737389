/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of txplot, and its server on localhost while runs go on. */
#ifndef TX_TOOLS_FOLLOW_H
#define TX_TOOLS_FOLLOW_H

#include "tx.h"

/* The NUL-terminated text of tools/train/plot.html. @DATA@ is the place of the runs. */
extern const unsigned char tx_plot_page[];

/* Draws the page of `size` bytes, which the caller frees. A failure is shown instead of the page. */
typedef tx_status tx_follow_draw(const void *context, char **page, size_t *size);

/* Serves http://localhost:port/ until SIGINT or SIGTERM. Port 0 is a free one. `ready` is called with the port when
 * the page can be fetched. */
tx_status tx_follow(int64_t port, tx_follow_draw *draw, const void *context, void (*ready)(int64_t port));

#endif
