/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL devices that are not here. The functions of stand_in.c stand before libOpenCL's, for TX and for the libraries
 * that it uses: the device that is here (PoCL) claims to be another card, its driver can refuse what another would, and
 * the instructions of matrix units are computed by matrix_emulated.cl in their place. */
#ifndef TX_TESTS_STAND_IN_H
#define TX_TESTS_STAND_IN_H

#include "backends/opencl/runtime/cl.h"

#include <stdatomic.h>

/* What a driver can refuse. */
typedef enum stand_in_call { STAND_IN_BUILD, STAND_IN_KERNEL, STAND_IN_ENQUEUE, STAND_IN_CALLS } stand_in_call;

typedef struct stand_in_state {
    const char *card; /* of cards.def; NULL: the device's own answers */
    /* Calls `at` (from 1) to at + times - 1 of this kind fail; 0: none does. */
    stand_in_call fails;
    long at, times;
    size_t
        most_group; /* CL_KERNEL_WORK_GROUP_SIZE of every kernel, which larger launches fail by; 0: the driver's own */
    const char
        *spills; /* kernels of programs whose options contain this have private memory; NULL: the driver's own answer,
                    "": all kernels */
    atomic_long calls[STAND_IN_CALLS]; /* some by threads */
    atomic_long beside;                /* builds by other threads than the first */
    unsigned delay;                    /* seconds that a build takes longer */
    double slow;                       /* seconds that a work-group takes longer, one after the other */
    atomic_bool failed;                /* a call did */
    char broken[160];                  /* a launch that the card would not take; empty: none */
} stand_in_state;
extern stand_in_state stand_in;

/* The cards' names; number i, NULL behind the last. */
const char *stand_in_card(int i);

#endif
