/* SPDX-License-Identifier: Apache-2.0
 * Answers of a simulated device to OpenCL's clGet...Info functions. */
#ifndef TX_TESTS_ANSWER_H
#define TX_TESTS_ANSWER_H

#include "backends/opencl/runtime/cl.h"

#include <string.h>

static inline cl_int answer(const void *data, size_t bytes, size_t size, void *value, size_t *whole)
{
    if (whole)
        *whole = bytes;
    if (value && size < bytes)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, data, bytes);
    return CL_SUCCESS;
}

#endif
