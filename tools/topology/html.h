/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of txtopo's page share. */
#ifndef TX_TOOLS_TXTOPO_HTML_H
#define TX_TOOLS_TXTOPO_HTML_H

#include "comm/topology/topology.h"

#include <stdio.h>

/* txtopo.html: the page around what is filled in. */
extern const unsigned char tx_txtopo_page[];

/* txtopo_html.c: text with what HTML would read as its own escaped, for attributes as well. */
void tx_html_text(FILE *out, const char *text);
/* "16.0 GiB"; "" for 0. */
const char *tx_html_memory(int64_t bytes, char text[32]);

/* txtopo_tree.c: the tree with the devices where they hang. */
void tx_html_tree(FILE *out, const tx_topology *topology);

#endif
