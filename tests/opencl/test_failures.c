/* SPDX-License-Identifier: Apache-2.0
 *
 * What real drivers get wrong (stand_in.h), in processes of their own.
 *
 *     test_failures fill       memory is filled though the driver's fill is wrong, a buffer of 6 GiB too
 *
 *     test_failures types      each card reports the operand types for which it has providers
 *
 * Exit status 77: there is no OpenCL device. */
#include "api/graph/op.h"
#include "backends/opencl/gemm/gemm_tile.h"
#include "backends/opencl/runtime/internal.h"
#include "tests/opencl/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Fills ------------------------------------------------------------------------------------------------------- */

enum { SMALL = 256 };

/* Every first and last byte of a small buffer. */
static tx_status fill_small(tx_context *context, const char **wrong)
{
    tx_buffer *buffer = NULL;
    unsigned char got[SMALL];
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, SMALL, &buffer);
    for (int first = 0; first < 40 && !status; first++)
        for (int last = first + 1; last < 90 && !status; last++) {
            status = tx_cl_fill_bytes(context, buffer, 0, 0xA5, SMALL);
            TX_THEN(status, tx_cl_fill_bytes(context, buffer, first, 0x3C, last - first));
            TX_THEN(status, tx_cl_read(context, buffer, 0, got, SMALL));
            for (int i = 0; i < SMALL && !status; i++)
                if (got[i] != (i >= first && i < last ? 0x3C : 0xA5))
                    *wrong = "a small fill is wrong";
        }
    tx_cl_release(context, buffer);
    return status;
}

/* Both moments of a model of 805 million parameters. */
static tx_status fill_large(tx_context *context, const char **wrong)
{
    const int64_t bytes = ((int64_t)6 << 30) - 48;
    tx_buffer *buffer = NULL;
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &buffer);
    TX_THEN(status, tx_cl_fill_bytes(context, buffer, 0, 0x5A, bytes));
    TX_THEN(status, tx_cl_finish(context));
    for (int64_t i = 0; i < bytes && !status; i += 4093)
        if (stand_in.memory[i] != 0x5A)
            *wrong = "6 GiB are not filled";
    tx_cl_release(context, buffer);
    return status;
}

static int test_fill(void)
{
    tx_context *context = NULL;
    const char *wrong = NULL;
    stand_in.card = "mi300x";
    stand_in.failure = STAND_IN_FILL;
    tx_status status = tx_cl_open(0, NULL, &context);
    if (status)
        return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    status = fill_small(context, &wrong);
    TX_THEN(status, fill_large(context, &wrong));
    tx_cl_close(context);
    printf("%s  %s\n", status || wrong ? "FAIL" : "ok", status ? tx_error() : wrong ? wrong : "fills are right");
    return status || wrong;
}

/* ---- Types of operands ------------------------------------------------------------------------------------------- */

/* Returns true if matrix units compute the product of such operands on this device. */
static bool has_provider(tx_context *context, tx_dtype from, bool tf32)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, square = {.dtype = from, .shape = TX_SHAPE(2048, 2048)},
                     y = {.dtype = TX_F32, .shape = TX_SHAPE(2048, 2048)};
    const tx_attrs attrs = {.flat = true};
    const tx_cl_product p = {.g = tx_gemm_of(&attrs, &square.shape, &square.shape),
                             .from = from,
                             .a = &square,
                             .b = &square,
                             .y = &y,
                             .bias = &none,
                             .z = &none,
                             .kept = &none};
    const tx_cl_provider *one;
    char why[TX_CL_WHY] = "";
    bool found = false;
    context->tf32 = tf32;
    for (int i = 0; (one = tx_cl_gemm_provider(i)) != NULL; i++)
        found = found || (one->tile && !one->full && strcmp(one->tile->kernel, "gemm_matrix") == 0 &&
                          one->suits(context, one, &p, why) > 0.0);
    return found;
}

static int test_types(void)
{
    int bad = 0;
    for (int i = 0; (stand_in.card = stand_in_card(i)) != NULL; i++) {
        tx_context *context = NULL;
        tx_device_info info;
        tx_status status = tx_cl_device_info(0, &info);
        TX_THEN(status, tx_cl_open(0, NULL, &context));
        if (status)
            return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
        const bool fp16 = has_provider(context, TX_F16, false), bf16 = has_provider(context, TX_BF16, false),
                   tf32 = has_provider(context, TX_F32, true),
                   good = info.fp16 == fp16 && info.bf16 == bf16 && info.tf32 == tf32;
        printf("%s  %s: reports fp16 %d, bf16 %d, tf32 %d; has %d, %d, %d\n", good ? "ok" : "FAIL", stand_in.card,
               info.fp16, info.bf16, info.tf32, fp16, bf16, tf32);
        bad += !good;
        tx_cl_close(context);
    }
    return bad > 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "fill") == 0)
        return test_fill();
    if (argc == 2 && strcmp(argv[1], "types") == 0)
        return test_types();
    return fprintf(stderr, "usage: test_failures fill|types\n"), 2;
}
