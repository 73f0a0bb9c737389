/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product by emulated matrix units of a simulated H200. */
#ifndef TX_TESTS_EMULATED_H
#define TX_TESTS_EMULATED_H

#include "backends/opencl/runtime/internal.h"
#include "tests/opencl/stand_in.h"

typedef struct product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    int64_t shift; /* elements by which a and b begin after an aligned address */
    float *a, *b, *y;
    bool bf16; /* the device has a and b in bf16 */
    tx_epilogue epilogue;
    bool exact;             /* form of GELU */
    tx_dtype to;            /* type of y, z and kept */
    float *bias, *z, *kept; /* NULL without them */
    float *sums;            /* of y's columns, or NULL */
} product;

/* Returns the element of a or b. */
float *element_a(const product *p, int64_t row, int64_t term);
float *element_b(const product *p, int64_t term, int64_t column);

/* Allocate zeros; `release` frees all operands of a product. */
float *zeros(int64_t count);
product make(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, int64_t shift);
void release(const product *p);

/* Computes p->y, p->kept and p->sums by a provider, and the bytes of scratch memory. */
tx_status multiply(tx_context *context, const char *provider, const product *p, int64_t *scratch);

/* Returns a random number from -1 to 1. */
float draw(void);

/* Opens the simulated card, without tf32 and with it, and runs `prove`. Returns the exit status: 77 if there is no
 * OpenCL device. */
int on_card(bool (*prove)(tx_context *const context[2]));

#endif
