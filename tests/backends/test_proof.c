/* SPDX-License-Identifier: Apache-2.0
 *
 * Known-answer tests find planted faults: a backend is the cpu backend, whose results are changed when they are read.
 */
#include "backends/tune/verify.h"
#include "tests/scratch.h"

static struct {
    tx_backend backend;
    const tx_backend *cpu;
    tx_context *context, *reference;
    int64_t at; /* the changed byte */
    int64_t bytes;
    unsigned char change[4];
} fault;

static tx_status read_changed(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes)
{
    tx_status status = fault.cpu->read(context, from, offset, data, bytes);
    memcpy((unsigned char *)data + fault.at, fault.change, (size_t)fault.bytes);
    return status;
}

static int set_up(void **state)
{
    int32_t count;
    const tx_open_options options = {.threads = 1};
    fault.cpu = tx_backends(&count)[0];
    fault.backend = *fault.cpu;
    fault.backend.read = read_changed;
    return fault.cpu->open(0, &options, &fault.context);
}

static int tear_down(void **state)
{
    fault.cpu->close(fault.context);
    tx_verify_close(fault.reference);
    return 0;
}

/* A product of 5 x 4 by 4 x 3 with a bias. */
static tx_probe product(tx_dtype type)
{
    const tx_attrs attrs = {.flat = true};
    tx_probe probe = {.command = tx_probe_command(TX_OP_MATMUL, &attrs)};
    probe.command.in[0] = (tx_operand){.dtype = type, .shape = TX_SHAPE(5, 4)};
    probe.command.in[1] = (tx_operand){.dtype = type, .shape = TX_SHAPE(4, 3)};
    probe.command.in[2] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(3)};
    probe.command.out[0] = (tx_operand){.dtype = type, .shape = TX_SHAPE(5, 3)};
    assert_ok(tx_probe_create(&probe));
    tx_probe_fill(&probe, TX_PROBE_EXACT, 0);
    return probe;
}

/* Proves the product with `bytes` bytes of `change` at `at`. */
static tx_status prove(const tx_probe *probe, int64_t at, const void *change, size_t bytes)
{
    tx_probe_run run;
    fault.at = at;
    fault.bytes = (int64_t)bytes;
    memcpy(fault.change, change, bytes);
    assert_ok(tx_probe_open(&run, &fault.backend, fault.context, probe, NULL));
    const tx_status status = tx_verify(&run, &fault.reference);
    tx_probe_close(&run);
    return status;
}

/* The result of the product without a fault. */
static float result(const tx_probe *probe, int64_t i)
{
    tx_probe_run run;
    unsigned char *data = malloc((size_t)probe->bytes);
    assert_non_null(data);
    assert_ok(tx_probe_open(&run, fault.cpu, fault.context, probe, NULL));
    assert_ok(tx_probe_launch(&run));
    assert_ok(tx_probe_read(&run, data));
    const float value = tx_probe_get(data, &probe->command.out[0], i);
    tx_probe_close(&run);
    free(data);
    return value;
}

static void right_results_pass(void **state)
{
    for (int type = 0; type < 2; type++) {
        tx_probe probe = product(type ? TX_BF16 : TX_F32);
        assert_ok(prove(&probe, 0, "", 0));
        tx_probe_free(&probe);
    }
}

static void wrong_elements_are_found(void **state)
{
    tx_probe probe = product(TX_F32);
    const int64_t at = probe.command.out[0].offset + 7 * (int64_t)sizeof(float);
    const float right = result(&probe, 7), next = nextafterf(right, 100.0f), none = NAN;
    assert_refused(prove(&probe, at, &next, sizeof next), TX_DEVICE, "element 1 of row 2 of matmul is");
    assert_refused(prove(&probe, at, &none, sizeof none), TX_DEVICE, "is nan and should be");
    probe.tolerance[0] = 1e-5;
    assert_ok(prove(&probe, at, &next, sizeof next));
    assert_refused(prove(&probe, at, &none, sizeof none), TX_DEVICE, "is nan and should be");
    probe.part[0] = (tx_columns){0, 1}; /* column 1 is not compared */
    probe.part[1] = (tx_columns){2, 1};
    assert_ok(prove(&probe, at, &none, sizeof none));
    assert_refused(prove(&probe, at + 4, &none, sizeof none), TX_DEVICE, "element 2 of row 2");
    probe.tolerance[0] = -1.0;
    assert_ok(prove(&probe, at + 4, &none, sizeof none));
    tx_probe_free(&probe);
}

static void writes_outside_the_result_are_found(void **state)
{
    tx_probe probe = product(TX_F32);
    const tx_operand *y = &probe.command.out[0], *a = &probe.command.in[0];
    const int64_t places[] = {
        0, a->offset, a->offset + tx_operand_bytes(a), y->offset - 1, y->offset + tx_operand_bytes(y), probe.bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const unsigned char other = (unsigned char)~probe.data[places[i]];
        assert_refused(prove(&probe, places[i], &other, 1), TX_DEVICE, "matmul wrote outside its result");
    }
    tx_probe_free(&probe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_results_pass),
        cmocka_unit_test(wrong_elements_are_found),
        cmocka_unit_test(writes_outside_the_result_are_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
