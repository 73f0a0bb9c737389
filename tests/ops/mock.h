/* SPDX-License-Identifier: Apache-2.0
 * Inside the conformance suite: a backend that runs the references, with a fault planted on demand. */
#ifndef TX_TESTS_OPS_MOCK_H
#define TX_TESTS_OPS_MOCK_H

#include "backends/backend.h"

/* X(NAME, "description of the planted error") */
#define TX_FAULT_MAP(X)                                               \
    X(NONE, "no fault")                                               \
    X(OFF, "one element off by 1e-3")                                 \
    X(NAN, "one element NaN")                                         \
    X(UNWRITTEN, "the last element not written")                      \
    X(AFTER, "one element written after the end")                     \
    X(BEFORE, "one element written before the beginning")             \
    X(INPUT, "an input modified")                                     \
    X(CONTROL, "a run-time scalar modified")                          \
    X(UNSTABLE, "every second run off by one unit in the last place") \
    X(STALE, "the first run's result given again for other inputs")   \
    X(SCRATCH, "one element written after the end of the scratch memory")

typedef enum tx_fault {
#define X(name, text) TX_FAULT_##name,
    TX_FAULT_MAP(X)
#undef X
        TX_FAULT_COUNT
} tx_fault;

const char *tx_fault_text(tx_fault fault);

extern const tx_backend tx_backend_mock;
/* Opens the mock with a fault; close with tx_backend_mock.close. */
tx_status tx_mock_open(tx_fault fault, tx_context **context);
/* Returns element 0 of output 0 of the last command, before rounding to its storage type. Intermediate fp32 tensors are
 * kept in double precision too, so that this is the program's result in double precision throughout. */
double tx_mock_last(const tx_context *context);

#endif
