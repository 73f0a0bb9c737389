/* SPDX-License-Identifier: Apache-2.0
 * The HTML page that txplot fills in. */
#ifndef TX_TOOLS_PLOT_H
#define TX_TOOLS_PLOT_H

/* The NUL-terminated text of tools/train/plot.html. @DATA@ is the place of the runs. */
extern const unsigned char tx_plot_page[];

#endif
