/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates OpenCL devices of other machines. The functions of stand_in.c replace libOpenCL's, for TX and for its
 * libraries. The local device (PoCL) reports the properties of another card, and its driver refuses calls as the other
 * one would; matrix_emulated.cl computes the instructions of matrix units. */
#ifndef TX_TESTS_STAND_IN_H
#define TX_TESTS_STAND_IN_H

#include "backends/opencl/runtime/cl.h"

#include <stdatomic.h>

/* Calls that the driver can refuse. */
typedef enum stand_in_call { STAND_IN_BUILD, STAND_IN_KERNEL, STAND_IN_ENQUEUE, STAND_IN_CALLS } stand_in_call;

typedef struct stand_in_state {
    const char *card; /* name in cards.def, or NULL for the device's own properties */
    /* Calls number `at` (from 1) to at + times - 1 of this kind fail. With 0 none fails. */
    stand_in_call fails;
    long at, times;
    size_t most_group; /* CL_KERNEL_WORK_GROUP_SIZE of every kernel, which limits launches, or 0 for the driver's */
    /* Kernels of programs whose options contain this text report private memory. "" means all kernels, NULL the
     * driver's own values. */
    const char *spills;
    atomic_long calls[STAND_IN_CALLS]; /* threads may call, too */
    atomic_long beside;                /* builds by other threads than the first */
    unsigned delay;                    /* seconds that a build takes longer */
    double slow;                       /* seconds that a work-group takes longer, one after the other */
    atomic_bool failed;                /* a call did */
    char broken[160];                  /* a launch that the card would not take; empty: none */
} stand_in_state;
extern stand_in_state stand_in;

/* Returns the name of card number i, or NULL after the last one. */
const char *stand_in_card(int i);

#endif
