/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of OpenCL C that some drivers lack (docs/design/drivers.md). Kernels then use other forms: exp2 for
 * native_exp2, a polynomial for sincos, two operations for fma.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <math.h>
#include <stdio.h>

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

#define OPTION_SIZE 24

static const char *option_of(tx_cl_builtin builtin, char text[OPTION_SIZE])
{
    snprintf(text, OPTION_SIZE, "-DTRY=%d", (int)builtin);
    return text;
}

static tx_status try_builtin(tx_context *context, tx_cl_builtin builtin)
{
    float y[2 * ITEMS];
    char option[OPTION_SIZE];
    cl_kernel kernel = NULL;
    tx_status status = tx_cl_kernel(context, "builtins", option_of(builtin, option), "builtins", &kernel);
    context->driver.missing[builtin] = status == TX_DEVICE;
    if (status == TX_DEVICE)
        return TX_OK;
    TX_THEN(status, run(context, kernel, y, sizeof y));
    for (int i = 0; status == TX_OK && i < ITEMS; i++)
        context->driver.missing[builtin] = context->driver.missing[builtin] || !is_right(builtin, i, &y[2 * i]);
    if (kernel)
        clReleaseKernel(kernel);
    return status;
}

tx_status tx_cl_want_builtins(tx_context *context)
{
    char option[OPTION_SIZE];
    tx_cl_program *one;
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        TX_TRY(tx_cl_want_program(context, "builtins", option_of((tx_cl_builtin)i, option), "builtins", false, &one));
    return TX_OK;
}

tx_status tx_cl_try_builtins(tx_context *context)
{
    TX_TRY(tx_cl_want_builtins(context));
    tx_cl_compile(context);
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        TX_TRY(try_builtin(context, (tx_cl_builtin)i));
    return TX_OK;
}
