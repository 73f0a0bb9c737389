/* SPDX-License-Identifier: Apache-2.0
 * Inside the conformance suite: a case run and judged. */
#ifndef TX_TESTS_OPS_CHECK_H
#define TX_TESTS_OPS_CHECK_H

#include "tests/ops/rig.h"

/* Beside the magnitude of a sum of so many terms, its error in fp32. */
double tx_check_rounding(double length);

typedef struct tx_outcome {
    bool passed;
    bool refused;       /* the device does not support it (TX_UNSUPPORTED) */
    double worst;       /* largest error / tolerance */
    char variant[256];  /* what ran it */
    char failure[1024]; /* why it did not pass */
} tx_outcome;

/* Runs one case in all ways: twice from other garbage, with other inputs, in place. Never fails itself. */
void tx_check_case(const tx_target *target, tx_op op, const tx_case *c, tx_outcome *outcome);
/* Runs one case on two contexts and compares bit by bit. */
void tx_check_same(const tx_target *target, const tx_target *peer, tx_op op, const tx_case *c, tx_outcome *outcome);

#endif
