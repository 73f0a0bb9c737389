/* SPDX-License-Identifier: Apache-2.0
 *
 * The known-answer test of open(). It runs a few small kernels, so that a device whose compiler or processor
 * computes wrong results is refused before training.
 */
#include "backends/cpu/cpu.h"

#include <math.h>

#define MAX_WIDTH 64

typedef struct tx_check {
    tx_op op;
    int64_t width; /* elements in a row */
    float in[2][MAX_WIDTH], expect[MAX_WIDTH];
    tx_attrs attrs;
} tx_check;

static tx_operand vector_of(int64_t width)
{
    return (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, width)};
}

/* Runs one check on one thread. Returns false if a number is off by more than 1e-6. */
static bool holds(const tx_cpu_kernels *kernels, const tx_check *check)
{
    const tx_operand vector = vector_of(check->width), none = {.dtype = TX_DTYPE_COUNT};
    const tx_command command = {
        .op = check->op,
        .attrs = check->attrs,
        .in = {vector, vector, none, none, none, none},
        .out = {vector, vector, none, none, none},
    };
    const tx_controls controls = {{{.f32 = 0.0f}}};
    float out[MAX_WIDTH], work[MAX_WIDTH];
    const tx_cpu_call call = {
        .command = &command,
        .in = {check->in[0], check->in[1]},
        .out = {out, work},
        .controls = &controls,
        .threads = 1,
    };
    kernels->run[check->op](&call);
    for (int64_t i = 0; i < check->width; i++)
        if (!(fabsf(out[i] - check->expect[i]) <= 1e-6f))
            return false;
    return true;
}

tx_status tx_cpu_self_test(const tx_cpu_kernels *kernels)
{
    /* Dropout of ones with key, counter and row 0. Philox4x32-10's published first block is 6627e8d5 e169c58d
     * bc57ac4c 9b00dbd8. At p = 0.7 (threshold b3333300) columns 1 and 2 are kept. */
    static const tx_check check[] = {
        {TX_OP_SOFTMAX, 3, {{0.0f, 0.69314718f, 1.38629436f}}, {1.0f / 7.0f, 2.0f / 7.0f, 4.0f / 7.0f}, {0}},
        {TX_OP_GELU, 3, {{-1.0f, 0.5f, 2.0f}}, {-0.15865525f, 0.34573123f, 1.95449974f}, {.exact = true}},
        {TX_OP_GELU, 3, {{-1.0f, 0.5f, 2.0f}}, {-0.15880801f, 0.34571400f, 1.95459769f}, {0}},
        {TX_OP_ADD, 3, {{1.0f, 2.0f, 3.0f}, {0.5f, -2.0f, 4.0f}}, {1.5f, 0.0f, 7.0f}, {0}},
        {TX_OP_DROPOUT, 4, {{0.3f, 0.3f, 0.3f, 0.3f}}, {0.0f, 1.0f, 1.0f, 0.0f}, {.draw.p = 0.7f}},
    };
    for (size_t i = 0; i < sizeof check / sizeof check[0]; i++)
        if (!holds(kernels, &check[i]))
            return tx_fail(TX_DEVICE, "cpu: kernels \"%s\" fail known-answer test %zu; try TX_CPU_VARIANT=base",
                           kernels->name, i);
    return TX_OK;
}
