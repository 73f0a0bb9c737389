/* SPDX-License-Identifier: Apache-2.0
 *
 * What a class of commands has been given, by the first of them or by tx_engine_choose: names of providers of matrix
 * products and of forms of attention. It keeps it as long as the device is open. */
#ifndef TX_OPENCL_CHOICE_H
#define TX_OPENCL_CHOICE_H

#include "backends/opencl/cl.h"

#define TX_CL_CHOICE_KEY 128
#define TX_CL_CHOICE_NAME 48

typedef struct tx_cl_choice tx_cl_choice;

const char *tx_cl_choice_find(const tx_context *context, const char *key); /* NULL: none yet */
tx_status tx_cl_choice_keep(tx_context *context, const char *key, const char *name);
void tx_cl_choices_free(tx_context *context);

/* The upper power of two that a dimension is classed by, as its exponent. */
static inline int tx_cl_class_of(int64_t dimension)
{
    int bits = 0;
    for (dimension--; dimension > 0; dimension >>= 1)
        bits++;
    return bits;
}

#endif
