/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL calls that fail. The functions of cl_fault.c stand before libOpenCL's, for TX and for the libraries that it
 * uses, and count objects; the linker sends TX's calls of the allocator there, which counts blocks. */
#ifndef TX_TESTS_CL_FAULT_H
#define TX_TESTS_CL_FAULT_H

#include "backends/opencl/runtime/cl.h"

#include <stdatomic.h>

/* Kinds of calls. */
enum { OBJECT = 1, MEMORY = 2, QUEUE = 4, BUILD = 8, KERNEL = 16, QUERY = 32 };

enum { FAULT_NAMES = 48 };

typedef struct fault_function {
    const char *name;
    long calls;
} fault_function;

typedef struct fault_state {
    bool armed, lasting; /* lasting: and all behind it */
    int kinds;
    cl_int code;
    const char *name;            /* of the function whose call fails; NULL: of any */
    long at;                     /* which of its calls, from 1; 0: none */
    atomic_long objects, blocks; /* that are held; some by threads */
    atomic_bool failed;
    fault_function seen[FAULT_NAMES]; /* of these kinds, that were called while armed */
    int names;
} fault_state;
extern fault_state fault;

/* Begins to count, and to fail what the state says. */
void fault_arm(void);

#endif
