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

/* A fault of a driver (stand_in_failures.c); `what` names the kernel, the function or a part of the source. */
typedef enum stand_in_failure {
    STAND_IN_NO_FAILURE,
    STAND_IN_FILL,         /* clEnqueueFillBuffer writes wrong values; large buffers take little memory */
    STAND_IN_BUILTIN,      /* functions of OpenCL C are missing: `what` has the build options */
    STAND_IN_BUILD_CRASH,  /* the process crashes while it builds a source that contains `what` */
    STAND_IN_WORKER_CRASH, /* the same in workers only (test_failures) */
    STAND_IN_LAUNCH_CRASH, /* the process crashes when it launches a kernel */
    STAND_IN_DEATH,        /* after the launch of a kernel all calls for this context fail */
    STAND_IN_HANG,         /* the launch of a kernel never ends */
} stand_in_failure;

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
    atomic_long sources, ptx;          /* programs that were made of source, and of PTX */
    unsigned delay;                    /* seconds that a build takes longer */
    double slow;                       /* seconds that a work-group takes longer, one after the other */
    stand_in_failure failure;
    const char *what;
    unsigned char *memory; /* STAND_IN_FILL: the last buffer of more than 1 GiB */
    atomic_bool failed;    /* a call did */
    char broken[160];      /* a launch that the card would not take; empty: none */
} stand_in_state;
extern stand_in_state stand_in;

/* Called before a build, whose options they may extend, and before a launch, whose code they return. */
void stand_in_before_build(cl_program program, char *options, size_t size);
cl_int stand_in_before_launch(cl_command_queue queue, cl_kernel kernel);

/* Returns the name of card number i, or NULL after the last one. */
const char *stand_in_card(int i);

#endif
