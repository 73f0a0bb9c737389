/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizers in double precision, by the formulas of the papers and of PyTorch, one parameter at a time. */
#ifndef TX_TESTS_OPTIMIZER_REFERENCE_H
#define TX_TESTS_OPTIMIZER_REFERENCE_H

#include "tx.h"

/* Options of the tests. */
#define OPTIONS(kind_) .size = sizeof(tx_optimizer_options), .kind = TX_##kind_
#define ADAM .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f
#define SLOW .beta3 = 0.9999f, .slow_weight = 5

/* A parameter, and the states that an optimizer keeps for it. */
typedef struct tx_reference {
    int64_t rows, columns; /* columns is 0 for a vector */
    bool decays, table;
    uint32_t site;         /* key of the tensor's random numbers */
    double *p, *m, *v, *c; /* rows times columns each; Adafactor's row sums begin v, its column sums c */
} tx_reference;

/* False: no memory. All that is kept begins at 0. */
bool tx_reference_create(tx_reference *r, int64_t rows, int64_t columns, const double *p);
void tx_reference_free(tx_reference *r);
/* Update number t (from 1). `least` is the size from which moments are of 8 bits. */
void tx_reference_update(tx_reference *r, const tx_optimizer_options *o, double rate, int64_t t, const double *g,
                         int64_t least);

#endif
