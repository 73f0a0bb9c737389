/* SPDX-License-Identifier: Apache-2.0
 *
 * Known-answer tests: a context runs one command on its own data, the cpu backend runs the same command, and the
 * results are compared. A backend tests a device at opening, and each candidate for a command before it is used.
 * Measurements use the same probes.
 */
#ifndef TX_VERIFY_H
#define TX_VERIFY_H

#include "backends/backend.h"

typedef struct tx_columns {
    int64_t first, count;
} tx_columns;

/* A command with its operands' data. */
typedef struct tx_probe {
    tx_command command;   /* tx_probe_create needs its op, attributes, types and shapes */
    tx_controls controls; /* tx_probe_create sets a seed, a step and a sample */
    int64_t bytes;
    unsigned char *data; /* all operands, inputs first, with guards of at least TX_ALIGNMENT bytes around each */
    /* Tolerance for the difference of an output from that of the cpu backend, as a share of its largest element.
     * 16-bit outputs may also differ by a unit in the last place. An output with a negative tolerance is not
     * compared. */
    double tolerance[TX_MAX_OUT];
    /* The columns of output 0 that are compared, each range with its own largest element. If both ranges are empty,
     * all columns are compared. */
    tx_columns part[2];
} tx_probe;

/* Returns a command without operands. */
tx_command tx_probe_command(tx_op op, const tx_attrs *attrs);

/* Lays out the operands and allocates their data. All bytes are 0xFF, which is NaN in outputs. Call tx_probe_free
 * even after a failure. */
tx_status tx_probe_create(tx_probe *probe);
void tx_probe_free(tx_probe *probe);

/* Fills fp32 and 16-bit inputs, and the outputs of a command that adds to them, always with the same numbers. Each
 * element of an I32 input becomes `integers`.
 * TX_PROBE_EXACT uses eighths in [-1, 1], which all types represent. Their products are multiples of 1/64, and sums
 * of 2^17 products are exact in fp32. TX_PROBE_ROUGH uses numbers in (-1, 1) with all bits of fp32, rounded to the
 * type. */
typedef enum tx_probe_numbers { TX_PROBE_EXACT, TX_PROBE_ROUGH } tx_probe_numbers;
void tx_probe_fill(tx_probe *probe, tx_probe_numbers numbers, int32_t integers);

/* Write and read element i of an fp32 or 16-bit operand in `data`, which has the layout of the probe. */
void tx_probe_put(unsigned char *data, const tx_operand *operand, int64_t i, float v);
float tx_probe_get(const unsigned char *data, const tx_operand *operand, int64_t i);

/* A probe that a context runs in its own memory. */
typedef struct tx_probe_run {
    const tx_backend *backend;
    tx_context *context;
    const tx_probe *probe;
    tx_program program;
    tx_executable *executable;
    tx_buffer *memory, *scratch, *control;
} tx_probe_run;

/* Prepares the command, allocates device memory and writes the data. Call tx_probe_close even after a failure. The
 * backend needs only the functions that are called here. `trial` is that of a tx_program. */
tx_status tx_probe_open(tx_probe_run *run, const tx_backend *backend, tx_context *context, const tx_probe *probe,
                        const void *trial);
/* Runs the command and waits for it. */
tx_status tx_probe_launch(const tx_probe_run *run);
/* Reads all operands. */
tx_status tx_probe_read(const tx_probe_run *run, unsigned char *data);
void tx_probe_close(tx_probe_run *run);

/* Runs an open probe and compares the results with those of the cpu backend. Returns TX_DEVICE with a message for a
 * wrong result or a write outside an output. *reference is a context of the cpu backend, opened by the first test.
 * Close it with tx_verify_close, which accepts NULL. */
tx_status tx_verify(const tx_probe_run *run, tx_context **reference);
void tx_verify_close(tx_context *reference);

#endif
