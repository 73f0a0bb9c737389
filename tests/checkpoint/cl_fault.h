/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL calls that fail. The functions of cl_fault.c replace libOpenCL's, for TX and its libraries, and count objects.
 * The linker redirects TX's calls of the allocator there, which counts blocks. */
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
    bool armed, lasting; /* lasting: all later calls fail as well */
    int kinds;
    cl_int code;
    const char *name;            /* function whose call fails, or NULL for any function */
    long at;                     /* number of the call that fails, from 1, or 0 if no call fails */
    atomic_long objects, blocks; /* live OpenCL objects and memory blocks; threads change them, too */
    atomic_bool failed;
    fault_function seen[FAULT_NAMES]; /* functions of these kinds that were called while armed */
    int names;
} fault_state;
extern fault_state fault;

/* Starts to count calls, and to make the call fail that `fault` names. */
void fault_arm(void);

#endif
