/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches that share a program, as a GPU's driver takes a second to build one. Skipped if there is no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/opencl/runtime/internal.h"
#include "tests/scratch.h"

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

static tx_operand planned(tx_dtype dtype, tx_shape shape)
{
    return (tx_operand){.dtype = dtype, .shape = shape, .arena = TX_ARENA_PLANNED};
}

static tx_command without_operands(tx_op op, tx_attrs attrs)
{
    tx_command command = {.op = op, .attrs = attrs};
    for (int i = 0; i < TX_MAX_IN; i++)
        command.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        command.out[i].dtype = TX_DTYPE_COUNT;
    return command;
}

/* y[0] = sum of x [n]. The result is not aligned, as in the middle of other results. */
static tx_command sum_of(int64_t n)
{
    tx_command command = without_operands(TX_OP_REDUCE, (tx_attrs){.alpha = 1, .control = -1});
    command.in[0] = planned(TX_F32, TX_SHAPE(n));
    command.out[0] = command.out[1] = planned(TX_F32, TX_SHAPE(1));
    command.out[0].offset = 4;
    return command;
}

/* Returns how many programs of `source` the commands need. */
static int programs_of(const char *source, const tx_command *commands, int32_t length)
{
    const tx_program program = {.length = length, .commands = commands};
    const tx_open_options options = {0};
    tx_executable *executable = NULL;
    tx_context *context = NULL;
    int64_t scratch;
    int count = 0;
    assert_ok(be->open(0, &options, &context));
    tx_cl_release_programs(context); /* of the start-up test */
    assert_ok(be->prepare(context, &program, &executable, &scratch));
    for (const tx_cl_program *p = context->programs; p; p = p->next)
        count += strcmp(p->source, source) == 0;
    be->destroy(executable);
    be->close(context);
    return count;
}

/* The kernels of scatter_add. */
static void kernels_of_an_op(void **state)
{
    tx_command c = without_operands(TX_OP_SCATTER_ADD, (tx_attrs){.rows = 50, .control = -1});
    c.in[0] = planned(TX_I32, TX_SHAPE(1000));
    c.in[1] = planned(TX_F32, TX_SHAPE(1000, 8));
    c.out[0] = planned(TX_F32, TX_SHAPE(50, 8));
    assert_int_equal(programs_of("scatter", &c, 1), 1);
}

/* Sums of single rows of any length. */
static void single_rows(void **state)
{
    const tx_command sums[] = {sum_of(3), sum_of(12), sum_of(1003)};
    assert_int_equal(programs_of("reduce", sums, 3), 1);
}

int main(void)
{
    int32_t count = 0;
    setenv("TX_OCL_VARIANT", "gpu", 1);
    if (be->device_count(&count) || count == 0)
        return printf("skipped: there is no OpenCL device\n"), 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_an_op),
        cmocka_unit_test(single_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
