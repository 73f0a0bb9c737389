/* SPDX-License-Identifier: Apache-2.0
 * The page that txplot fills in. */
#ifndef TX_TOOLS_PLOT_H
#define TX_TOOLS_PLOT_H

/* The text of tools/train/plot.html, a NUL after it; @DATA@ stands for the runs. */
extern const unsigned char tx_plot_page[];

#endif
