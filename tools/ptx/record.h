/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend that records the programs of ops as in every start, and builds and runs nothing: no driver is needed. */
#ifndef TX_TOOLS_PTX_RECORD_H
#define TX_TOOLS_PTX_RECORD_H

#include "api/model/engine.h"

#include <stdio.h>

/* Opens an engine for a kind of card, counted from 0. Returns TX_NOT_FOUND after the last one. */
tx_status tx_record_open(int card, tx_engine *engine);
void tx_record_close(tx_engine *engine);
/* Sets whether products of fp32 may round to tf32 from now on. */
void tx_record_tf32(tx_engine *engine, bool on);
/* Writes the recorded programs: their texts to SOURCE.KERNEL.cl in `folder`, and a line for each program to `list`:
 * key (backends/opencl/shipped/pack.h), processor and version of PTX of clang, source, kernel or "all", options. */
tx_status tx_record_write(const tx_engine *engine, const char *folder, FILE *list);
/* Counts the recorded programs, and prints source, kernel and options of each unless `to` is NULL. */
int tx_record_count(const tx_engine *engine, FILE *to);

#endif
