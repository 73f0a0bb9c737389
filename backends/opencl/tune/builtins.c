/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of OpenCL C that some drivers lack (docs/design/drivers.md). Kernels then use other forms: exp2 for
 * native_exp2, a polynomial for sincos, two operations for fma.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ITEMS = 1024 };

#define RELATIVE \
    2.5e-6 /* error of native_exp2: GPUs by AMD, Intel and NVIDIA are below; Intel's CPU driver has 13 bits */
#define ABSOLUTE 2.5e-7 /* error of sincos, whose arguments are at most 3 */

static bool is_right(tx_cl_builtin builtin, int i, const float y[2])
{
    const double x = -i / 64.0;
    if (builtin == TX_CL_EXP2)
        return fabs((double)y[0] * exp2(-x) - 1.0) <= RELATIVE;
    if (builtin == TX_CL_SINCOS)
        return fabs((double)y[0] - sin(0.1875 * x)) <= ABSOLUTE && fabs((double)y[1] - cos(0.1875 * x)) <= ABSOLUTE;
    return (double)y[0] == 4.0 * x + i && (double)y[1] == 3.0 * x + 1.0;
}

static tx_status run(tx_context *context, cl_kernel kernel, float *y, int64_t bytes)
{
    const size_t items = ITEMS;
    tx_buffer *memory = NULL;
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &memory);
    TX_THEN(status, tx_cl_check(clSetKernelArg(kernel, 0, sizeof(cl_mem), &memory->memory), "clSetKernelArg"));
    TX_THEN(status, tx_cl_check(tx_cl_enqueue(context, kernel, 1, &items, NULL, NULL), "clEnqueueNDRangeKernel"));
    TX_THEN(status, tx_cl_read(context, memory, 0, y, bytes));
    if (memory)
        tx_cl_release(context, memory);
    return status;
}

#define ALL ((1u << TX_CL_BUILTINS) - 1)
#define VALUES (2 * TX_CL_BUILTINS) /* of an item */

static const char *option_of(unsigned tried, char text[24])
{
    snprintf(text, 24, "-DTRY=%u", tried);
    return text;
}

/* Tries the functions whose bits are set, in one program. Sets *built to false if it does not build. */
static tx_status try_builtins(tx_context *context, unsigned tried, bool *built)
{
    float y[VALUES * ITEMS];
    char option[24];
    cl_kernel kernel = NULL;
    tx_status status = tx_cl_kernel(context, "builtins", option_of(tried, option), "builtins", &kernel);
    *built = status != TX_DEVICE;
    if (!*built)
        return TX_OK;
    TX_THEN(status, run(context, kernel, y, sizeof y));
    for (int i = 0; status == TX_OK && i < ITEMS * TX_CL_BUILTINS; i++) {
        const int builtin = i % TX_CL_BUILTINS;
        if (tried >> builtin & 1 && !is_right((tx_cl_builtin)builtin, i / TX_CL_BUILTINS, &y[2 * i]))
            context->driver.missing[builtin] = true;
    }
    if (kernel)
        clReleaseKernel(kernel);
    return status;
}

tx_status tx_cl_want_builtins(tx_context *context)
{
    char option[24];
    tx_cl_program *one;
    return tx_cl_want_program(context, "builtins", option_of(ALL, option), "builtins", false, &one);
}

/* If the driver lacks one of the functions, tries them one by one. */
tx_status tx_cl_try_builtins(tx_context *context)
{
    bool built;
    memset(context->driver.missing, 0, sizeof context->driver.missing);
    TX_TRY(tx_cl_want_builtins(context));
    tx_cl_compile(context);
    TX_TRY(try_builtins(context, ALL, &built));
    for (int i = 0; i < TX_CL_BUILTINS && !built; i++) {
        bool alone;
        TX_TRY(try_builtins(context, 1u << i, &alone));
        context->driver.missing[i] = context->driver.missing[i] || !alone;
    }
    return TX_OK;
}
