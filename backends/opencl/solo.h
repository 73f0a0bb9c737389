/* SPDX-License-Identifier: Apache-2.0
 *
 * One command alone, on memory of its own: what trials and measurements run. */
#ifndef TX_OPENCL_SOLO_H
#define TX_OPENCL_SOLO_H

#include "backends/opencl/internal.h"

typedef struct tx_cl_solo {
    tx_command command;   /* set before the rest: operands without a place; absent ones have dtype TX_DTYPE_COUNT */
    tx_controls controls; /* run-time scalars */
    tx_program program;
    int64_t bytes; /* of the memory that holds all operands */
    tx_buffer *memory, *scratch, *control;
    tx_executable *executable;
} tx_cl_solo;

/* A command of which all operands are absent. */
tx_command tx_cl_solo_command(tx_op op, const tx_attrs *attrs);

/* Gives the operands their places, inputs first, one after another with a guard of TX_ALIGNMENT bytes or more before
 * and behind each. */
void tx_cl_solo_place(tx_cl_solo *s);

/* Numbers in [-1, 1), always the same, for the inputs at their places in `host` (`bytes` bytes, zeroed before), rounded
 * where these are of 16 bits, and `integers` for every element of the TX_I32 ones. */
void tx_cl_solo_fill(const tx_cl_solo *s, int32_t integers, unsigned char *host);

/* Element i of an operand of TX_F32 or 16 bits. */
void tx_cl_solo_put(void *data, tx_dtype type, int64_t i, float v);
float tx_cl_solo_get(const void *data, tx_dtype type, int64_t i);

/* Prepares a command whose operands have places, takes memory, and writes `bytes` bytes from `host` into it. To be
 * closed in any case. */
tx_status tx_cl_solo_open(tx_context *context, tx_cl_solo *s, const void *host);
void tx_cl_solo_close(tx_context *context, tx_cl_solo *s);

/* Runs it once and waits. */
tx_status tx_cl_solo_run(tx_context *context, const tx_cl_solo *s);

/* The least seconds of a few runs: until there are five or a quarter of a second is gone, one in any case. It should
 * have run before. The time counts as the tuner's. */
tx_status tx_cl_solo_time(tx_context *context, const tx_cl_solo *s, double *seconds);

#endif
