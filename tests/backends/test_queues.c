/* SPDX-License-Identifier: Apache-2.0
 *
 * The two queues of a device by the backend's table: events order operations, other operations run concurrently, events
 * and copies leave no memory allocated. Also the spaces of memory.
 *
 *     test_queues cpu|opencl      exit status 77: there is no such device */
#include "tests/ops/conformance.h"
#include "tests/scratch.h"

static tx_target target;
static const tx_backend *be;
static tx_context *context;

/* ---- A program: slow products, and y = 2 x ---------------------------------------------------------- */

enum { SIDE = 768, COUNT = 4 << 20, SLOW = 0, TWICE = 1, COMMANDS = 2, CHUNKS = 5 };
static const int64_t BYTES = COUNT * (int64_t)sizeof(float);

typedef struct work {
    tx_command command[COMMANDS];
    tx_executable *executable;
    tx_buffer *chunk[CHUNKS]; /* a, b and a b; x and y */
    tx_buffer *scratch, *control;
    tx_buffer *pinned; /* the host's end of copies */
    float *host;
} work;

static tx_operand in_chunk(int32_t chunk, tx_shape shape)
{
    return (tx_operand){.dtype = TX_F32, .shape = shape, .arena = TX_ARENA_PLANNED, .chunk = chunk};
}

static void set_operands(tx_command *c)
{
    for (int i = 0; i < TX_MAX_IN; i++)
        c->in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        c->out[i].dtype = TX_DTYPE_COUNT;
}

static void open_work(work *w)
{
    *w = (work){0};
    w->command[SLOW] = (tx_command){.op = TX_OP_MATMUL, .attrs = {.flat = true, .control = -1, .alpha = 1.0f}};
    w->command[TWICE] = (tx_command){.op = TX_OP_SCALE, .attrs = {.control = -1, .alpha = 2.0f}};
    for (int c = 0; c < COMMANDS; c++)
        set_operands(&w->command[c]);
    for (int32_t i = 0; i < 2; i++)
        w->command[SLOW].in[i] = in_chunk(i, TX_SHAPE(SIDE, SIDE));
    w->command[SLOW].out[0] = in_chunk(2, TX_SHAPE(SIDE, SIDE));
    w->command[TWICE].in[0] = in_chunk(3, TX_SHAPE(COUNT));
    w->command[TWICE].out[0] = in_chunk(4, TX_SHAPE(COUNT));
    const tx_program program = {.length = COMMANDS, .commands = w->command};
    int64_t scratch = 0;
    assert_ok(be->prepare(context, &program, &w->executable, &scratch));
    scratch = scratch ? scratch : 1;
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, scratch, &w->scratch));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof(tx_controls), &w->control));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, BYTES, &w->pinned));
    assert_ok(be->fill(context, w->control, 0, 0, sizeof(tx_controls)));
    w->host = be->map(w->pinned);
    for (int i = 0; i < CHUNKS; i++) {
        const int64_t bytes = i < 3 ? SIDE * SIDE * (int64_t)sizeof(float) : BYTES;
        assert_ok(be->allocate(context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, bytes, &w->chunk[i]));
        assert_ok(be->fill(context, w->chunk[i], 0, 0, bytes));
    }
    tx_bindings bindings = {0};
    bindings.arena[TX_ARENA_PLANNED] = (tx_extent){CHUNKS, w->chunk};
    bindings.arena[TX_ARENA_SCRATCH] = (tx_extent){1, &w->scratch};
    bindings.arena[TX_ARENA_CONTROL] = (tx_extent){1, &w->control};
    assert_ok(be->bind(w->executable, &bindings));
    assert_ok(be->finish(context));
}

static void close_work(work *w)
{
    be->destroy(w->executable);
    for (int i = 0; i < CHUNKS; i++)
        be->release(context, w->chunk[i]);
    be->release(context, w->scratch);
    be->release(context, w->control);
    be->release(context, w->pinned);
}

static void run(const work *w, int32_t command, int times)
{
    static const tx_controls controls;
    for (int i = 0; i < times; i++)
        assert_ok(be->run(w->executable, command, 1, &controls, NULL));
}

static void set_all(float *x, float value)
{
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = value;
}

static void are_all(const float *x, float value)
{
    for (int64_t i = 0; i < COUNT; i++)
        if (x[i] != value)
            fail_msg("element %lld is %g instead of %g", (long long)i, (double)x[i], (double)value);
}

static tx_traffic traffic(void)
{
    tx_memory held;
    tx_traffic now;
    be->account(context, &held, &now);
    return now;
}

/* ---- Order ------------------------------------------------------------------------------------------- */

/* A copy to the host reads the results of programs before it. */
static void test_copy_follows_programs(void **state)
{
    work w;
    open_work(&w);
    for (int i = 1; i <= 5; i++) {
        tx_event *done = NULL;
        set_all(w.host, (float)i);
        assert_ok(be->write(context, TX_QUEUE_COMPUTE, w.chunk[3], 0, w.host, BYTES));
        assert_ok(be->finish(context));
        run(&w, SLOW, 4);
        run(&w, TWICE, 1);
        assert_ok(tx_order(be, context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
        assert_ok(be->read_begin(context, TX_QUEUE_TRANSFER, w.chunk[4], 0, w.host, BYTES, &done));
        assert_ok(be->wait(context, done));
        are_all(w.host, 2.0f * (float)i);
    }
    close_work(&w);
}

/* A program reads data that were copied to the device before it, but not data copied after it. */
static void test_programs_follow_copy(void **state)
{
    work w;
    open_work(&w);
    float *next = malloc((size_t)BYTES), *y = malloc((size_t)BYTES);
    assert_non_null(next);
    assert_non_null(y);
    for (int i = 1; i <= 5; i++) {
        set_all(w.host, (float)i);
        set_all(next, -1.0f);
        for (int k = 0; k < 3; k++) /* so that the one that counts comes late */
            assert_ok(be->write(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, next, BYTES));
        assert_ok(be->write(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, w.host, BYTES));
        assert_ok(tx_order(be, context, TX_QUEUE_TRANSFER, TX_QUEUE_COMPUTE));
        run(&w, SLOW, i % 2 ? 0 : 4); /* the program starts at once, or as late as possible */
        run(&w, TWICE, 1);
        assert_ok(tx_order(be, context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
        assert_ok(be->write(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, next, BYTES));
        assert_ok(be->read(context, w.chunk[4], 0, y, BYTES));
        are_all(y, 2.0f * (float)i);
        assert_ok(be->finish(context));
    }
    free(next);
    free(y);
    close_work(&w);
}

/* An event marks one point of its queue. An event of the past delays no operation that waits for it. */
static void test_event_is_a_point(void **state)
{
    work w;
    open_work(&w);
    tx_event *point[2] = {NULL, NULL};
    set_all(w.host, 3.0f);
    assert_ok(be->write(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, w.host, BYTES));
    assert_ok(be->mark(context, TX_QUEUE_TRANSFER, &point[0]));
    assert_ok(be->await(context, TX_QUEUE_COMPUTE, point[0]));
    run(&w, TWICE, 1);
    assert_ok(be->mark(context, TX_QUEUE_COMPUTE, &point[1]));
    assert_ok(be->await(context, TX_QUEUE_TRANSFER, point[1]));
    assert_ok(be->await(context, TX_QUEUE_TRANSFER, point[0])); /* a second time, and by its own queue */
    assert_ok(be->wait(context, point[1]));
    float last = 0.0f;
    assert_ok(be->read(context, w.chunk[4], BYTES - 4, &last, 4));
    assert_true(last == 6.0f);
    be->forget(context, point[0]);
    assert_ok(be->wait(context, NULL));
    assert_ok(be->await(context, TX_QUEUE_COMPUTE, NULL));
    be->forget(context, NULL);
    close_work(&w);
}

/* More copies than a queue may hold, two to each place: the second one stays. */
static void test_copies_keep_their_order(void **state)
{
    enum { COPIES = 2000, PLACES = COPIES / 2 };
    static int32_t value[COPIES], got[PLACES];
    tx_buffer *large = NULL, *buffer = NULL, *other = NULL;
    float *zeros = calloc(COUNT, sizeof *zeros);
    assert_non_null(zeros);
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, BYTES, &large));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof got, &buffer));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, sizeof got, &other));
    const tx_traffic before = traffic();
    assert_ok(be->write(context, TX_QUEUE_TRANSFER, large, 0, zeros, BYTES)); /* which later copies wait for */
    for (int32_t i = 0; i < COPIES; i++) {
        value[i] = i;
        assert_ok(be->write(context, TX_QUEUE_TRANSFER, buffer, i % PLACES * 4, &value[i], 4));
    }
    assert_ok(be->copy(context, TX_QUEUE_TRANSFER, buffer, 0, other, 0, sizeof got));
    tx_event *done = NULL;
    assert_ok(be->read_begin(context, TX_QUEUE_TRANSFER, other, 0, got, sizeof got, &done));
    assert_ok(be->wait(context, done));
    for (int32_t i = COPIES - PLACES; i < COPIES; i++)
        assert_int_equal(got[i % PLACES], i);
    const tx_traffic after = traffic();
    assert_int_equal(after.transfers - before.transfers, COPIES + 3);
    assert_int_equal(after.to_device - before.to_device, BYTES + COPIES * 4);
    assert_int_equal(after.from_device - before.from_device, sizeof got);
    be->release(context, large);
    be->release(context, buffer);
    be->release(context, other);
    free(zeros);
}

/* ---- Beside each other --------------------------------------------------------------------------------- */

/* Products give the same bits while copies go on, and the copies arrive whole. */
static void test_copies_beside_products(void **state)
{
    const size_t size = SIDE * SIDE * sizeof(float);
    float *alone = malloc(size), *beside = malloc(size);
    assert_non_null(alone);
    assert_non_null(beside);
    work w;
    open_work(&w);
    uint32_t random = 1;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < SIDE * SIDE; k++) {
            random = random * 1664525u + 1013904223u;
            beside[k] = (float)(int32_t)random * 0x1p-31f;
        }
        assert_ok(be->write(context, TX_QUEUE_COMPUTE, w.chunk[i], 0, beside, (int64_t)size));
        assert_ok(be->finish(context));
    }
    run(&w, SLOW, 1);
    assert_ok(be->read(context, w.chunk[2], 0, alone, (int64_t)size));
    set_all(w.host, 5.0f);
    for (int i = 0; i < 3; i++) {
        assert_ok(be->write(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, w.host, BYTES));
        assert_ok(be->copy(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, w.chunk[4], 0, BYTES));
        assert_ok(be->copy(context, TX_QUEUE_TRANSFER, w.chunk[4], 0, w.pinned, 0, BYTES));
        run(&w, SLOW, 2);
        assert_ok(be->finish(context));
        are_all(w.host, 5.0f);
        assert_ok(be->read(context, w.chunk[2], 0, beside, (int64_t)size));
        assert_memory_equal(beside, alone, size);
    }
    free(alone);
    free(beside);
    close_work(&w);
}

/* A call that begins a copy does not wait for its end: in one of some tries at least, it is seen to be under way. */
static void test_begin_does_not_wait(void **state)
{
    work w;
    open_work(&w);
    assert_ok(be->fill(context, w.chunk[3], 0, 1, BYTES));
    volatile unsigned char *last = (unsigned char *)w.host + BYTES - 1;
    bool seen = false;
    for (int i = 0; i < 50 && !seen; i++) {
        tx_event *done = NULL;
        memset(w.host, 0, (size_t)BYTES);
        assert_ok(be->finish(context));
        for (int k = 0; k < 4; k++) {
            be->forget(context, done);
            assert_ok(be->read_begin(context, TX_QUEUE_TRANSFER, w.chunk[3], 0, w.host, BYTES, &done));
        }
        seen = *last == 0;
        assert_ok(be->wait(context, done));
        assert_int_equal(*last, 1);
    }
    assert_true(seen);
    close_work(&w);
}

/* ---- Memory that stays allocated ------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
#define KEEPS_FREED 1 /* freed memory stays for a while */
#elif defined(__has_feature)
#define KEEPS_FREED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define KEEPS_FREED 0
#endif

static long resident_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages;
}

static void many_events(int count)
{
    for (int i = 0; i < count; i++) {
        tx_event *event = NULL;
        assert_ok(tx_order(be, context, TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER));
        assert_ok(be->mark(context, TX_QUEUE_TRANSFER, &event));
        assert_ok(be->await(context, TX_QUEUE_COMPUTE, event));
        assert_ok(be->wait(context, event));
    }
    assert_ok(be->finish(context));
}

static void test_many_events(void **state)
{
    enum { EVENTS = 40000, LEAST = 100 }; /* an event takes more bytes than LEAST */
    many_events(1000);
    const long before = resident_pages();
    if (KEEPS_FREED || before == 0)
        skip();
    many_events(EVENTS);
    const long grown = (resident_pages() - before) * sysconf(_SC_PAGESIZE);
    if (grown > EVENTS / 2 * LEAST)
        fail_msg("%d events took %ld bytes", EVENTS, grown);
}

/* A copy that is refused creates no event and no copy, and the queue continues. */
static void test_refused_copies(void **state)
{
    tx_buffer *buffer = NULL, *other = NULL;
    char data[16] = "fifteen letters", back[16] = "";
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, 16, &buffer));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, 8, &other));
    const tx_traffic before = traffic();
    tx_event *event = NULL;
    assert_ok(be->write(context, TX_QUEUE_TRANSFER, buffer, 0, data, 16));
    assert_true(be->write(context, TX_QUEUE_TRANSFER, buffer, 1, data, 16) != TX_OK);
    assert_true(be->read_begin(context, TX_QUEUE_TRANSFER, buffer, -1, back, 8, &event) != TX_OK);
    assert_null(event);
    assert_true(be->copy(context, TX_QUEUE_TRANSFER, buffer, 0, other, 0, 16) != TX_OK);
    assert_true(be->copy(context, TX_QUEUE_TRANSFER, other, 1, buffer, 0, 8) != TX_OK);
    assert_ok(be->read_begin(context, TX_QUEUE_TRANSFER, buffer, 0, back, 16, &event));
    assert_ok(be->wait(context, event));
    assert_string_equal(back, data);
    const tx_traffic after = traffic();
    assert_int_equal(after.transfers - before.transfers, 2);
    be->release(context, buffer);
    be->release(context, other);
}

/* ---- Spaces ------------------------------------------------------------------------------------------------ */

static void test_spaces(void **state)
{
    enum { SPACES = 2, SIZE = 1000 };
    static const tx_memory_space space[SPACES] = {TX_SPACE_DEVICE, TX_SPACE_PINNED};
    tx_buffer *from[SPACES], *to[SPACES];
    unsigned char data[SIZE], back[SIZE];
    for (int s = 0; s < SPACES; s++) {
        assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, space[s], SIZE, &from[s]));
        assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, space[s], SIZE, &to[s]));
        assert_true((be->map(from[s]) == NULL) == (space[s] == TX_SPACE_DEVICE && !be->host_memory));
    }
    for (int queue = 0; queue < 2; queue++)
        for (int i = 0; i < SPACES; i++)
            for (int k = 0; k < SPACES; k++) {
                for (int b = 0; b < SIZE; b++)
                    data[b] = (unsigned char)(b * 7 + queue * 100 + i * 10 + k);
                assert_ok(be->write(context, TX_QUEUE_COMPUTE, from[i], 0, data, SIZE));
                assert_ok(be->fill(context, to[k], 0, 0xFF, SIZE));
                assert_ok(be->finish(context));
                assert_ok(be->copy(context, (tx_queue_id)queue, from[i], 8, to[k], 16, SIZE - 16));
                assert_ok(be->finish(context));
                assert_ok(be->read(context, to[k], 0, back, SIZE));
                assert_memory_equal(back + 16, data + 8, SIZE - 16);
                assert_int_equal(back[15], 0xFF);
            }
    for (int s = 0; s < SPACES; s++) {
        be->release(context, from[s]);
        be->release(context, to[s]);
    }
    tx_memory held;
    tx_traffic now;
    be->account(context, &held, &now);
    assert_int_equal(tx_memory_total(&held), 0);
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    if (tx_target_open(device, &(tx_open_options){.threads = 2}, &target)) {
        printf("skipped: %s\n", tx_error());
        return 77;
    }
    be = target.backend;
    context = target.context;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_events), /* before others free memory, which would be taken again */
        cmocka_unit_test(test_copy_follows_programs),
        cmocka_unit_test(test_programs_follow_copy),
        cmocka_unit_test(test_event_is_a_point),
        cmocka_unit_test(test_copies_keep_their_order),
        cmocka_unit_test(test_copies_beside_products),
        cmocka_unit_test(test_begin_does_not_wait),
        cmocka_unit_test(test_refused_copies),
        cmocka_unit_test(test_spaces),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tx_target_close(&target);
    return failed;
}
