/* SPDX-License-Identifier: Apache-2.0
 * The cpu backend by its table: memory accounting, refusals, and the same bits with any number of threads. The linker
 * redirects TX's calls of oneDNN and pthread_create to the functions here (--wrap), which can fail. The conformance
 * suite tests the kernels' results. */
#include "tests/unit.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "api/graph/op.h"

extern const tx_backend tx_backend_cpu;
static const tx_backend *const cpu = &tx_backend_cpu;

static tx_context *open_cpu(int32_t threads)
{
    tx_context *context = NULL;
    const tx_open_options options = {.threads = threads};
    assert_int_equal(cpu->open(0, &options, &context), TX_OK);
    return context;
}

/* ---- Memory ------------------------------------------------------------------------------------ */

static void memory_is_counted_and_zero(void **state)
{
    static const int64_t sizes[] = {1, 513, (2 << 20) - 1, (5 << 20) + 3};
    tx_context *context = open_cpu(1);
    tx_buffer *buffer[4];
    tx_memory held;
    tx_traffic traffic;
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cpu->allocate(context, TX_MEMORY_WEIGHTS, (tx_memory_space)(i % 3), sizes[i], &buffer[i]),
                         TX_OK);
        const char *data = cpu->map(buffer[i]);
        assert_int_equal((uintptr_t)data % TX_ALIGNMENT, 0);
        for (int64_t b = 0; b < sizes[i]; b++)
            if (data[b])
                fail_msg("byte %lld of %lld is not 0", (long long)b, (long long)sizes[i]);
        sum += sizes[i];
    }
    cpu->account(context, &held, &traffic);
    assert_int_equal(held.bytes[TX_MEMORY_WEIGHTS], sum);
    assert_int_equal(tx_memory_total(&held), sum);
    assert_int_equal(traffic.allocations, 4);
    for (int i = 0; i < 4; i++)
        cpu->release(context, buffer[i]);
    cpu->account(context, &held, &traffic);
    assert_int_equal(tx_memory_total(&held), 0);
    cpu->close(context);
}

static void bad_calls_are_refused(void **state)
{
    tx_context *context = open_cpu(0), *none = NULL;
    tx_buffer *buffer, *more = NULL;
    char data[8] = "abcdefg", back[8] = {0};
    const tx_open_options negative = {.threads = -1}, many = {.threads = 100000};
    assert_int_equal(cpu->open(1, NULL, &none), TX_NOT_FOUND);
    assert_int_equal(cpu->open(0, &negative, &none), TX_INVALID);
    assert_int_equal(cpu->open(0, &many, &none), TX_INVALID);
    assert_non_null(strstr(tx_error(), "100000 threads is out of range; the maximum is "));
    setenv("TX_CPU_VARIANT", "abacus", 1);
    assert_int_equal(cpu->open(0, NULL, &none), TX_UNSUPPORTED);
    assert_non_null(strstr(tx_error(), "TX_CPU_VARIANT=abacus is invalid"));
    unsetenv("TX_CPU_VARIANT");
    assert_null(none);
    assert_int_equal(cpu->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, INT64_MAX / 2, &more), TX_MEMORY);
    assert_int_equal(cpu->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 0, &more), TX_INVALID);
    assert_null(more);
    assert_int_equal(cpu->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 8, &buffer), TX_OK);
    assert_int_equal(cpu->write(context, TX_QUEUE_COMPUTE, buffer, 0, data, 8), TX_OK);
    assert_int_equal(cpu->write(context, TX_QUEUE_COMPUTE, buffer, 1, data, 8), TX_INVALID);
    assert_int_equal(cpu->read(context, buffer, -1, back, 1), TX_INVALID);
    tx_event *reading = NULL;
    assert_int_equal(cpu->read_begin(context, TX_QUEUE_COMPUTE, buffer, 7, back, 2, &reading), TX_INVALID);
    assert_int_equal(cpu->fill(context, buffer, 7, 'x', 1), TX_OK);
    assert_int_equal(cpu->fill(context, buffer, 7, 'x', INT64_MAX), TX_INVALID);
    assert_int_equal(cpu->read(context, buffer, 0, back, 8), TX_OK);
    assert_memory_equal(back, "abcdefgx", 8);
    cpu->release(context, buffer);
    cpu->close(context);
}

/* ---- The transfer queue without a thread --------------------------------------------------------- */

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*serve)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*serve)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*serve)(void *), void *argument)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, serve, argument);
}

static void a_missing_thread_is_told(void **state)
{
    tx_context *context = open_cpu(1);
    tx_buffer *buffer;
    char data[8] = "abcdefg", back[8] = "";
    assert_int_equal(cpu->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_PINNED, 8, &buffer), TX_OK);
    no_threads = true;
    assert_int_equal(cpu->write(context, TX_QUEUE_TRANSFER, buffer, 0, data, 8), TX_MEMORY);
    assert_non_null(strstr(tx_error(), "cannot start the thread of the transfer queue"));
    assert_int_equal(cpu->finish(context), TX_OK);
    no_threads = false;
    assert_int_equal(cpu->write(context, TX_QUEUE_TRANSFER, buffer, 0, data, 8), TX_OK);
    assert_int_equal(cpu->finish(context), TX_OK);
    assert_int_equal(cpu->read(context, buffer, 0, back, 8), TX_OK);
    assert_memory_equal(back, data, 8);
    cpu->release(context, buffer);
    cpu->close(context);
}

/* ---- Programs ---------------------------------------------------------------------------------- */

typedef struct tx_bench {
    tx_context *context;
    tx_buffer *arena, *scratch;
    tx_executable *executable;
    tx_controls controls;
} tx_bench;

static void bench_open(tx_bench *bench, int32_t threads, int64_t bytes, const tx_program *program)
{
    int64_t scratch;
    memset(bench, 0, sizeof *bench);
    bench->context = open_cpu(threads);
    assert_int_equal(cpu->allocate(bench->context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, bytes, &bench->arena),
                     TX_OK);
    assert_int_equal(cpu->prepare(bench->context, program, &bench->executable, &scratch), TX_OK);
    scratch = scratch > 0 ? scratch : 1;
    assert_int_equal(cpu->allocate(bench->context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, scratch, &bench->scratch),
                     TX_OK);
}

static tx_status bench_bind(tx_bench *bench, bool with_scratch)
{
    tx_bindings bindings = {.arena[TX_ARENA_PLANNED] = {1, &bench->arena}};
    if (with_scratch)
        bindings.arena[TX_ARENA_SCRATCH] = (tx_extent){1, &bench->scratch};
    return cpu->bind(bench->executable, &bindings);
}

static void bench_close(tx_bench *bench)
{
    cpu->destroy(bench->executable);
    cpu->release(bench->context, bench->arena);
    cpu->release(bench->context, bench->scratch);
    cpu->close(bench->context);
}

/* The next free place in the arena for an operand. */
static tx_operand place(int64_t *used, tx_dtype dtype, tx_shape shape)
{
    tx_operand o = {.dtype = dtype, .shape = shape, .arena = TX_ARENA_PLANNED, .offset = *used};
    *used += (tx_operand_bytes(&o) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
    return o;
}

#define ABSENT ((tx_operand){.dtype = TX_DTYPE_COUNT})

static void bad_programs_are_refused(void **state)
{
    int64_t used = 0;
    const tx_operand qkv = place(&used, TX_F32, TX_SHAPE(1, 3, 12)), k = place(&used, TX_F32, TX_SHAPE(1, 4, 4));
    const tx_operand v = place(&used, TX_F32, TX_SHAPE(1, 4, 4)), at = place(&used, TX_I32, TX_SHAPE(1));
    const tx_operand o = place(&used, TX_F32, TX_SHAPE(1, 3, 4));
    const tx_command command = {
        .op = TX_OP_ATTENTION_CACHED,
        .attrs = {.attention.heads = 1, .attention.kv_heads = 1, .scale = 0.5f},
        .in = {qkv, k, v, at, ABSENT, ABSENT},
        .out = {o, ABSENT, ABSENT, ABSENT, ABSENT},
    };
    const tx_program program = {.length = 1, .commands = &command};
    tx_bench bench;
    bench_open(&bench, 1, used, &program);
    assert_int_equal(cpu->run(bench.executable, 0, 1, &bench.controls, NULL), TX_INVALID); /* not bound */
    assert_int_equal(bench_bind(&bench, false), TX_INVALID);
    assert_int_equal(bench_bind(&bench, true), TX_OK);
    assert_int_equal(cpu->run(bench.executable, 0, 2, &bench.controls, NULL), TX_INVALID);
    assert_int_equal(cpu->run(bench.executable, 0, 1, &bench.controls, NULL), TX_OK);
    bench_close(&bench);

    bench_open(&bench, 1, o.offset, &program); /* the output does not fit */
    assert_int_equal(bench_bind(&bench, true), TX_INVALID);
    bench_close(&bench);
}

#define COMMANDS 8
enum { B = 3, T = 150, HEADS = 4, KV_HEADS = 2, SIZE = 24, WIDTH = HEADS * SIZE, QKV = (HEADS + 2 * KV_HEADS) * SIZE };

/* A program whose kernels split their work in every way: rows, columns, blocks, tasks. Returns the bytes of its arena.
 */
static int64_t mixed_program(tx_command command[COMMANDS])
{
    int64_t used = 0;
    const tx_attrs a = {.attention.heads = HEADS,
                        .sums = 3,
                        .attention.kv_heads = KV_HEADS,
                        .attention.causal = true,
                        .scale = 0.2f,
                        .draw.p = 0.25f,
                        .draw.site = 3,
                        .eps = 1e-5f,
                        .alpha = 1.0f,
                        .control = -1,
                        .vocab = WIDTH - 5,
                        .rows = 40,
                        .exact = true};
    tx_attrs total = a, columns = a;
    total.reduction = TX_REDUCE_SUMSQ;
    columns.axis = TX_AXIS_ROWS;
    const int64_t rows = B * T, blocks = tx_row_blocks(rows);
    const tx_operand qkv = place(&used, TX_F32, TX_SHAPE(B, T, QKV)),
                     dout = place(&used, TX_F32, TX_SHAPE(B, T, WIDTH));
    const tx_operand gamma = place(&used, TX_F32, TX_SHAPE(WIDTH)), labels = place(&used, TX_I32, TX_SHAPE(B, T));
    const tx_operand out = place(&used, TX_F32, TX_SHAPE(B, T, WIDTH)),
                     lse = place(&used, TX_F32, TX_SHAPE(B, HEADS, T));
    const tx_operand dqkv = place(&used, TX_F32, TX_SHAPE(B, T, QKV)),
                     delta = place(&used, TX_F32, TX_SHAPE(B, HEADS, T));
    const tx_operand y = place(&used, TX_F32, TX_SHAPE(B, T, WIDTH)), mean = place(&used, TX_F32, TX_SHAPE(B, T));
    const tx_operand rstd = place(&used, TX_F32, TX_SHAPE(B, T)), dx = place(&used, TX_F32, TX_SHAPE(B, T, WIDTH));
    const tx_operand dgamma = place(&used, TX_F32, TX_SHAPE(WIDTH)), dbeta = place(&used, TX_F32, TX_SHAPE(WIDTH));
    const tx_operand work = place(&used, TX_F32, TX_SHAPE(blocks, 2, WIDTH));
    const tx_operand sum = place(&used, TX_F32, TX_SHAPE(1)), sums = place(&used, TX_F32, TX_SHAPE(QKV));
    const tx_operand all = place(&used, TX_F32, TX_SHAPE(tx_reduce_work(TX_AXIS_ALL, &qkv.shape)));
    const tx_operand parts = place(&used, TX_F32, TX_SHAPE(tx_reduce_work(TX_AXIS_ROWS, &qkv.shape)));
    const tx_operand losses = place(&used, TX_F32, TX_SHAPE(B, T)), norm = place(&used, TX_F32, TX_SHAPE(B, T));
    const tx_operand table = place(&used, TX_F32, TX_SHAPE(40, WIDTH));
    const tx_operand none = ABSENT;
    const tx_command made[COMMANDS] = {
        {TX_OP_ATTENTION, 0, a, {qkv, none, none, none, none, none}, {out, lse, none, none, none}},
        {TX_OP_ATTENTION_GRAD, 0, a, {dout, qkv, out, lse, none, none}, {dqkv, delta, none, none, none}},
        {TX_OP_LAYER_NORM, 0, a, {out, gamma, gamma, none, none, none}, {y, mean, rstd, none, none}},
        {TX_OP_LAYER_NORM_GRAD, 0, a, {dout, out, gamma, mean, rstd, none}, {dx, dgamma, dbeta, none, work}},
        {TX_OP_REDUCE, 0, total, {dqkv, none, none, none, none, none}, {sum, all, none, none, none}},
        {TX_OP_REDUCE, 0, columns, {dqkv, none, none, none, none, none}, {sums, parts, none, none, none}},
        {TX_OP_CROSS_ENTROPY, 0, a, {y, labels, none, none, none, none}, {losses, norm, none, none, none}},
        {TX_OP_SCATTER_ADD, 0, a, {labels, dx, none, none, none, none}, {table, none, none, none, none}},
    };
    memcpy(command, made, sizeof made);
    return used;
}

/* Numbers between -1 and 1, and labels below 40. */
static void fill_inputs(char *arena, const tx_command *command)
{
    const tx_operand *floats[] = {&command[0].in[0], &command[1].in[0], &command[2].in[1]};
    uint32_t random = 1;
    for (int f = 0; f < 3; f++) {
        float *x = (float *)(void *)(arena + floats[f]->offset);
        for (int64_t i = 0; i < tx_operand_count(floats[f]); i++) {
            random = random * 1664525u + 1013904223u;
            x[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
        }
    }
    int32_t *labels = (int32_t *)(void *)(arena + command[6].in[1].offset);
    for (int64_t i = 0; i < B * T; i++)
        labels[i] = (int32_t)(i * 7 % 40);
}

static void bits_do_not_depend_on_threads(void **state)
{
    static const int32_t threads[] = {1, 2, 3, 7};
    tx_command command[COMMANDS];
    const int64_t bytes = mixed_program(command);
    const tx_program program = {.length = COMMANDS, .commands = command};
    char *expected = malloc((size_t)bytes);
    assert_non_null(expected);
    for (int i = 0; i < 4; i++) {
        tx_bench bench;
        bench_open(&bench, threads[i], bytes, &program);
        fill_inputs(cpu->map(bench.arena), command);
        assert_int_equal(bench_bind(&bench, true), TX_OK);
        bench.controls.word[TX_CONTROL_SEED_LO].u32 = 42;
        assert_int_equal(cpu->run(bench.executable, 0, COMMANDS, &bench.controls, NULL), TX_OK);
        if (i == 0)
            memcpy(expected, cpu->map(bench.arena), (size_t)bytes);
        assert_memory_equal(cpu->map(bench.arena), expected, (size_t)bytes);
        bench_close(&bench);
    }
    float total;
    memcpy(&total, expected + command[4].out[0].offset, sizeof total);
    assert_true(isfinite(total) && total > 0.0f);
    free(expected);
}

/* NaN in, NaN out: nothing may hide a number that went wrong. */
static void nan_is_not_lost(void **state)
{
    int64_t used = 0;
    const tx_operand x = place(&used, TX_F32, TX_SHAPE(2, 70)), y = place(&used, TX_F32, TX_SHAPE(2, 70));
    const tx_operand one = place(&used, TX_F32, TX_SHAPE(1)), work = place(&used, TX_F32, TX_SHAPE(1));
    const tx_operand labels = place(&used, TX_I32, TX_SHAPE(2)), losses = place(&used, TX_F32, TX_SHAPE(2));
    const tx_operand lse = place(&used, TX_F32, TX_SHAPE(2)), none = ABSENT;
    const tx_attrs a = {.alpha = 1.0f, .control = -1, .vocab = 70, .reduction = TX_REDUCE_MAX};
    const tx_command command[] = {
        {TX_OP_SOFTMAX, 0, a, {x, none, none, none, none, none}, {y, none, none, none, none}},
        {TX_OP_REDUCE, 0, a, {x, none, none, none, none, none}, {one, work, none, none, none}},
        {TX_OP_CROSS_ENTROPY, 0, a, {x, labels, none, none, none, none}, {losses, lse, none, none, none}},
        {TX_OP_GELU, 0, a, {x, none, none, none, none, none}, {y, none, none, none, none}},
    };
    for (int i = 0; i < 4; i++) {
        const tx_program program = {.length = 1, .commands = &command[i]};
        const tx_operand *out = &command[i].out[0];
        tx_bench bench;
        bench_open(&bench, 1, used, &program);
        assert_int_equal(bench_bind(&bench, true), TX_OK);
        char *arena = cpu->map(bench.arena);
        ((float *)(void *)(arena + x.offset))[37] = NAN;
        assert_int_equal(cpu->run(bench.executable, 0, 1, &bench.controls, NULL), TX_OK);
        const float *result = (const float *)(void *)(arena + out->offset);
        bool found = false;
        for (int64_t j = 0; j < tx_operand_count(out); j++)
            found = found || isnan(result[j]);
        assert_true(found);
        bench_close(&bench);
    }
}

/* ---- oneDNN that fails --------------------------------------------------------------------------- */

/* dnnl_status_t */
enum { DNNL_OUT_OF_MEMORY = 1, DNNL_RUNTIME_ERROR = 5 };

static int creations_left = -1, runs_left = -1; /* calls until one fails; below 0 none does */

static bool fails(int *left)
{
    if (*left < 0)
        return false;
    return (*left)-- == 0;
}

int __real_dnnl_primitive_create(void **primitive, const void *desc);
int __wrap_dnnl_primitive_create(void **primitive, const void *desc);
int __real_dnnl_memory_create(void **memory, const void *layout, void *engine, void *data);
int __wrap_dnnl_memory_create(void **memory, const void *layout, void *engine, void *data);
int __real_dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *args);
int __wrap_dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *args);

int __wrap_dnnl_primitive_create(void **primitive, const void *desc)
{
    return fails(&creations_left) ? DNNL_OUT_OF_MEMORY : __real_dnnl_primitive_create(primitive, desc);
}

int __wrap_dnnl_memory_create(void **memory, const void *layout, void *engine, void *data)
{
    return fails(&creations_left) ? DNNL_OUT_OF_MEMORY : __real_dnnl_memory_create(memory, layout, engine, data);
}

static bool signalled_in_products; /* the process gets a signal while oneDNN runs */
static volatile sig_atomic_t in_product, taken, taken_in_product;

static void take_signal(int number)
{
    (void)number;
    taken++;
    taken_in_product += in_product;
}

int __wrap_dnnl_primitive_execute(const void *primitive, void *stream, int count, const void *args)
{
    in_product = 1;
    if (signalled_in_products)
        kill(getpid(), SIGUSR1);
    const int status =
        fails(&runs_left) ? DNNL_RUNTIME_ERROR : __real_dnnl_primitive_execute(primitive, stream, count, args);
    in_product = 0;
    return status;
}

enum { ROWS = 48, DEPTH = 24, COLUMNS = 40 }; /* more than few rows, so that oneDNN multiplies */

typedef struct tx_softmax_of_product {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_tensor *x, *y;
} tx_softmax_of_product;

static void graph_open(tx_softmax_of_product *p)
{
    const tx_engine_options options = {.size = sizeof options, .device = "cpu"};
    const tx_param_spec spec = {.shape = TX_SHAPE(DEPTH, COLUMNS), .init = TX_INIT_UNIFORM, .scale = 0.5f};
    assert_int_equal(tx_engine_create(&options, &p->engine), TX_OK);
    assert_int_equal(tx_model_create(p->engine, &p->model), TX_OK);
    assert_int_equal(tx_graph_create(p->model, &p->graph), TX_OK);
    p->x = tx_input(p->graph, "x", TX_F32, TX_SHAPE(ROWS, DEPTH));
    p->y = tx_output(tx_softmax(tx_linear(p->x, tx_param(p->graph, "w", &spec), NULL, false)));
}

static void graph_close(tx_softmax_of_product *p)
{
    tx_graph_free(p->graph);
    tx_model_free(p->model);
    tx_engine_free(p->engine);
}

static void failed_products_end_the_plan(void **state)
{
    tx_softmax_of_product p;
    tx_plan *plan = NULL;
    float x[ROWS * DEPTH], before[ROWS * COLUMNS], after[ROWS * COLUMNS];
    graph_open(&p);
    assert_int_equal(tx_plan_create(p.graph, "product", &plan), TX_OK);
    assert_int_equal(tx_model_init(p.model, 1), TX_OK);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < ROWS * DEPTH; i++)
            x[i] = (float)(i % (7 + run));
        assert_int_equal(tx_plan_write(plan, p.x, x, sizeof x), TX_OK);
        runs_left = run == 1 ? 0 : -1;
        assert_int_equal(tx_plan_run(plan), run == 1 ? TX_INTERNAL : TX_OK);
        if (run == 1)
            assert_non_null(strstr(tx_error(), "plan product: cpu: command 0: matmul of 1 x [48, 24] by [24, 40]: "
                                               "oneDNN: runtime_error"));
        assert_int_equal(tx_plan_read(plan, p.y, after, sizeof after), TX_OK);
        if (run == 1) /* the softmax has not run */
            assert_memory_equal(after, before, sizeof after);
        memcpy(before, after, sizeof after);
    }
    tx_plan_free(plan);
    graph_close(&p);
}

/* In some of oneDNN's kernels the stack pointer is at memory that a signal handler must not overwrite. */
static void signals_wait_for_the_command(void **state)
{
    tx_softmax_of_product p;
    tx_plan *plan = NULL;
    const float x[ROWS * DEPTH] = {0};
    graph_open(&p);
    assert_int_equal(tx_plan_create(p.graph, "product", &plan), TX_OK);
    assert_int_equal(tx_model_init(p.model, 1), TX_OK);
    assert_int_equal(tx_plan_write(plan, p.x, x, sizeof x), TX_OK);
    signal(SIGUSR1, take_signal);
    signalled_in_products = true;
    assert_int_equal(tx_plan_run(plan), TX_OK);
    signalled_in_products = false;
    signal(SIGUSR1, SIG_DFL);
    assert_int_equal(taken, 1);
    assert_int_equal(taken_in_product, 0);
    tx_plan_free(plan);
    graph_close(&p);
}

static void products_that_cannot_be_made_are_told(void **state)
{
    tx_softmax_of_product p;
    tx_plan *plan = NULL;
    graph_open(&p);
    int failed = -1;
    while (!plan) {
        creations_left = ++failed;
        const tx_status status = tx_plan_create(p.graph, "product", &plan);
        creations_left = -1;
        assert_int_equal(status, plan ? TX_OK : TX_MEMORY);
        if (!plan)
            assert_non_null(strstr(tx_error(), "(matmul): oneDNN: out_of_memory"));
    }
    assert_int_equal(failed, 5); /* a primitive, and memory for a, b, c and scratch */
    tx_plan_free(plan);
    graph_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_counted_and_zero),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(a_missing_thread_is_told),
        cmocka_unit_test(bad_programs_are_refused),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(nan_is_not_lost),
        cmocka_unit_test(failed_products_end_the_plan),
        cmocka_unit_test(signals_wait_for_the_command),
        cmocka_unit_test(products_that_cannot_be_made_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
