/* SPDX-License-Identifier: Apache-2.0
 *
 * What real drivers get wrong (stand_in.h), in processes of their own.
 *
 *     test_failures fill       memory is filled though the driver's fill is wrong, a buffer of 6 GiB too
 *
 * Exit status 77: there is no OpenCL device. */
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

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "fill") == 0)
        return test_fill();
    return fprintf(stderr, "usage: test_failures fill\n"), 2;
}
