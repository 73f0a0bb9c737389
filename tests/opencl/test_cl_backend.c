/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the OpenCL backend below its kernels: enumeration, memory accounting, copies, the disk cache, build failures,
 * profiles. Skipped if there is no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "backends/opencl/tune/tuner.h"
#include "tests/scratch.h"

extern const tx_backend tx_backend_opencl;
static const tx_backend *const be = &tx_backend_opencl;

static tx_context *open_or_skip(bool profile)
{
    int32_t count = 0;
    assert_ok(be->device_count(&count));
    if (count == 0)
        skip();
    tx_context *context = NULL;
    const tx_open_options options = {.profile = profile};
    assert_ok(be->open(0, &options, &context));
    return context;
}

static void test_devices(void **state)
{
    int32_t count = -1;
    tx_device_info info;
    assert_ok(be->device_count(&count));
    assert_true(count >= 0);
    for (int32_t i = 0; i < count; i++) {
        char id[32];
        snprintf(id, sizeof id, "opencl:%d", i);
        assert_ok(be->device_info(i, &info));
        assert_string_equal(info.id, id);
        assert_true(info.max_allocation > 0);
    }
    assert_refused(be->device_info(count, &info), TX_NOT_FOUND, "opencl:");
    assert_refused(be->device_info(-1, &info), TX_NOT_FOUND, "opencl:-1");
}

static void test_memory(void **state)
{
    tx_context *context = open_or_skip(false);
    tx_memory held;
    tx_traffic traffic;
    be->account(context, &held, &traffic);
    assert_int_equal(tx_memory_total(&held), 0);
    assert_int_equal(traffic.allocations, 0);

    tx_buffer *device = NULL, *host = NULL;
    assert_ok(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 5000, &device));
    assert_ok(be->allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_PINNED, 4096, &host));
    unsigned char *pinned = be->map(host), data[1000];
    assert_non_null(pinned);
    assert_null(be->map(device));
    be->account(context, &held, &traffic);
    assert_int_equal(held.bytes[TX_MEMORY_WEIGHTS], 5000);
    assert_int_equal(held.bytes[TX_MEMORY_FUNCTIONALITY], 4096);
    assert_int_equal(traffic.allocations, 2);

    for (int i = 0; i < 1000; i++)
        pinned[i] = (unsigned char)(i * 7);
    assert_ok(be->fill(context, device, 0, 0xAB, 4992)); /* in wide stores */
    assert_ok(be->fill(context, device, 4992, 0xCD, 8)); /* and in narrow ones */
    assert_ok(be->write(context, TX_QUEUE_COMPUTE, device, 501, pinned, 1000));
    assert_ok(be->read(context, device, 500, data, 1000));
    assert_int_equal(data[0], 0xAB);
    assert_memory_equal(data + 1, pinned, 999);
    assert_ok(be->read(context, device, 4991, data, 2));
    assert_int_equal(data[0], 0xAB);
    assert_int_equal(data[1], 0xCD);

    tx_event *first = NULL, *second = NULL;
    assert_ok(be->read_begin(context, TX_QUEUE_COMPUTE, device, 501, pinned + 2000, 600, &first));
    assert_ok(be->read_begin(context, TX_QUEUE_COMPUTE, device, 1101, pinned + 2600, 400, &second));
    assert_ok(be->wait(context, second));
    assert_ok(be->wait(context, first));
    assert_ok(be->wait(context, NULL)); /* a point that was reached */
    assert_memory_equal(pinned + 2000, pinned, 1000);
    be->account(context, &held, &traffic);
    assert_int_equal(traffic.to_device, 1000);
    assert_int_equal(traffic.from_device, 2002);

    assert_refused(be->write(context, TX_QUEUE_COMPUTE, device, 4500, pinned, 1000), TX_INTERNAL, "4500");
    assert_refused(be->read(context, device, -1, data, 1), TX_INTERNAL, "-1");
    tx_buffer *none = NULL;
    assert_refused(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, INT64_MAX, &none), TX_MEMORY, "at most");
    assert_refused(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 0, &none), TX_INVALID, "0 bytes");
    be->release(context, device);
    be->release(context, host);
    be->account(context, &held, NULL);
    assert_int_equal(tx_memory_total(&held), 0);
    be->close(context);
}

/* A user event, and the barrier that blocks the following commands of `queue` until the event's status is set. The
 * barrier's own event is kept, since PoCL 3.1 crashes if an event fails that is not retained. */
typedef struct hold {
    cl_event user, barrier;
} hold;

static hold hold_up(tx_context *context, cl_command_queue queue)
{
    cl_int code;
    hold h = {.user = clCreateUserEvent(context->context, &code)};
    assert_int_equal(code, CL_SUCCESS);
    assert_int_equal(clEnqueueBarrierWithWaitList(queue, 1, &h.user, &h.barrier), CL_SUCCESS);
    return h;
}

static void let_go(hold h)
{
    clReleaseEvent(h.barrier);
    clReleaseEvent(h.user);
}

/* While one queue is blocked, the other continues unless it waits for it. SIGALRM ends a test that hangs. */
static void test_queues_are_two(void **state)
{
    tx_context *context = open_or_skip(false);
    tx_buffer *device = NULL;
    char from[64] = "beside", to[64] = "";
    assert_ok(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 64, &device));
    alarm(60);
    for (int queue = 0; queue < 2; queue++) {
        const tx_queue_id first = (tx_queue_id)queue, other = (tx_queue_id)!queue;
        tx_event *done = NULL;
        hold held = hold_up(context, queue == TX_QUEUE_COMPUTE ? context->compute : context->transfer);
        from[0]++;
        assert_ok(be->write(context, other, device, 0, from, 64));
        assert_ok(be->read_begin(context, other, device, 0, to, 64, &done));
        assert_ok(be->wait(context, done));
        assert_string_equal(to, from);

        assert_ok(tx_order(be, context, first, other));
        assert_ok(be->mark(context, other, &done));
        cl_int reached = CL_COMPLETE;
        assert_int_equal(
            clGetEventInfo((cl_event)done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof reached, &reached, NULL),
            CL_SUCCESS);
        assert_int_not_equal(reached, CL_COMPLETE);
        assert_int_equal(clSetUserEventStatus(held.user, CL_COMPLETE), CL_SUCCESS);
        assert_ok(be->wait(context, done));
        let_go(held);
    }
    be->release(context, device);
    alarm(0);
    be->close(context);
}

/* A failure on the device is reported to a wait for the operation, or for a later point of its queue. */
static void test_failures_reach_the_host(void **state)
{
    tx_context *context = open_or_skip(false);
    tx_buffer *device = NULL;
    char data[64] = "";
    assert_ok(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, 64, &device));
    assert_ok(be->fill(context, device, 0, 7, 64));
    alarm(60);
    tx_event *copied = NULL, *behind = NULL;
    hold held = hold_up(context, context->transfer);
    assert_ok(be->read_begin(context, TX_QUEUE_TRANSFER, device, 0, data, 64, &copied));
    assert_ok(be->mark(context, TX_QUEUE_TRANSFER, &behind));
    assert_int_equal(clSetUserEventStatus(held.user, CL_OUT_OF_RESOURCES), CL_SUCCESS);
    assert_refused(be->wait(context, copied), TX_DEVICE, "choose another device");
    assert_refused(be->wait(context, behind), TX_DEVICE, "choose another device");
    assert_int_equal(data[0], 0);
    let_go(held);
    be->release(context, device);
    alarm(0);
    be->close(context);
}

/* Overwrites the middle of every file, or cuts it off. */
static void damage(const char *folder, bool cut)
{
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (struct dirent *e = readdir(list); e; e = readdir(list)) {
        if (e->d_name[0] == '.')
            continue;
        char *path = tx_path_join(folder, e->d_name);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        long size = ftell(file);
        if (cut)
            assert_int_equal(truncate(path, size / 2), 0);
        assert_int_equal(fseek(file, size / 3, SEEK_SET), 0);
        if (!cut)
            fputs("damaged", file);
        fclose(file);
        free(path);
    }
    closedir(list);
}

static void test_cache(void **state)
{
    char *folder = make_scratch();
    assert_int_equal(setenv("TX_CACHE_DIR", folder, 1), 0);
    be->close(open_or_skip(false));
    int files = count_entries(folder);
    assert_true(files > 1);
    for (int round = 0; round < 3; round++) { /* files as they are, with wrong bytes, cut off */
        if (round > 0)
            damage(folder, round == 2);
        tx_context *context = open_or_skip(false);
        void *data = NULL;
        size_t size = 0;
        assert_false(tx_cl_cache_load(context, "test", &data, &size)); /* none, or damaged */
        tx_cl_cache_store(context, "test", "value", 6);
        assert_true(tx_cl_cache_load(context, "test", &data, &size));
        assert_int_equal(size, 6);
        assert_string_equal(data, "value");
        free(data);
        be->close(context);
        assert_int_equal(count_entries(folder), files + 1); /* nothing temporary is left */
    }
    remove_scratch(folder);
    unsetenv("TX_CACHE_DIR");
}

static int64_t kept(tx_context *context, int first, int end)
{
    int64_t found = 0;
    for (int i = first; i < end; i++) {
        char key[16];
        void *data = NULL;
        size_t size = 0;
        snprintf(key, sizeof key, "%d", i);
        found += tx_cl_cache_load(context, key, &data, &size);
        free(data);
    }
    return found;
}

/* The folder stays below its limit: files that were loaded or stored recently remain, and so do files of others. */
static void test_cache_size(void **state)
{
    enum { FILES = 640, BYTES = 8000, USED = 20 };
    char *folder = make_scratch(), other[256];
    const struct timespec past[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(setenv("TX_CACHE_DIR", folder, 1), 0);
    assert_int_equal(setenv("TX_CACHE_SIZE", "2", 1), 0);
    tx_context *context = open_or_skip(false);
    unsigned char *data = calloc(1, BYTES);
    snprintf(other, sizeof other, "%s/cl-notes", folder);
    fclose(fopen(other, "w"));
    for (int i = 0; i < FILES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        tx_cl_cache_store(context, key, data, BYTES);
        if (i == USED) { /* all are old, and these are then used again */
            DIR *list = opendir(folder);
            for (struct dirent *one; (one = readdir(list)) != NULL;)
                utimensat(dirfd(list), one->d_name, past, 0);
            closedir(list);
            assert_int_equal(kept(context, 0, USED / 2), USED / 2);
        }
    }
    assert_int_equal(kept(context, USED / 2, USED), 0);
    assert_in_range(kept(context, 0, FILES), 2 * 1048576 / BYTES / 2, 2 * 1048576 / BYTES + 2 * 64);
    assert_int_equal(access(other, F_OK), 0);
    be->close(context);
    free(data);
    unsetenv("TX_CACHE_SIZE");
    unsetenv("TX_CACHE_DIR");
    remove_scratch(folder);
}

/* The variant of the kernels depends on the device's type: measurements of earlier versions are ignored, in a file of
 * their own and in the table. */
static void test_variant(void **state)
{
    char *folder = make_scratch();
    assert_int_equal(setenv("TX_CACHE_DIR", folder, 1), 0);
    tx_context *context = open_or_skip(false);
    const bool cpu = context->info.type == TX_DEVICE_CPU;
    const char *other = cpu ? "gpu" : "cpu";
    char *kind = strstr(context->identity, cpu ? "\ncpu\n" : "\ngpu\n");
    assert_non_null(kind);
    tx_cl_table_put(context, "variant", other);
    tx_cl_table_put(context, "key", "value");
    memcpy(kind + 1, "any", 3); /* as measured, before the variant is known */
    tx_cl_cache_store(context, "variant 1", other, 3);
    be->close(context);
    context = open_or_skip(false);
    assert_int_equal(context->limits.cpu, cpu);
    char value[16];
    assert_true(tx_cl_table_get(context, "key", value, sizeof value));
    assert_string_equal(value, "value");
    be->close(context);
    unsetenv("TX_CACHE_DIR");
    remove_scratch(folder);
}

/* Opens device 0 under TX_OCL_LIMITS. */
static tx_context *open_limited(const char *limits)
{
    assert_int_equal(setenv("TX_OCL_LIMITS", limits, 1), 0);
    return open_or_skip(false);
}

static void test_simulated_limits(void **state)
{
    char *folder = make_scratch();
    assert_int_equal(setenv("TX_CACHE_DIR", folder, 1), 0);
    tx_context *context = open_limited("");
    const tx_cl_limits own = context->limits;
    const int64_t memory = context->info.memory;
    assert_string_equal(own.simulated, "");
    tx_cl_cache_store(context, "test", "own", 4);
    be->close(context);

    context = open_limited("align=65536,group=8,local=16384");
    const tx_cl_limits *l = &context->limits;
    assert_string_equal(l->simulated, "local=16384,group=8,align=65536");
    assert_true(l->local_bytes == 16384 && l->max_group == 8 && l->max_item[0] <= 8 && l->alignment == 65536);
    assert_true(l->max_allocation == own.max_allocation && !l->libraries);
    tx_device_info info;
    assert_ok(be->device_info(0, &info));
    assert_non_null(strstr(info.name, "simulated: local=16384,group=8,align=65536"));
    assert_string_equal(context->info.name, info.name);
    void *data = NULL;
    size_t size = 0;
    assert_false(tx_cl_cache_load(context, "test", &data, &size)); /* findings about the real device */
    be->close(context);

    context = open_limited("allocation=1/64");
    assert_true(context->limits.max_allocation == memory / 64 && context->info.max_allocation == memory / 64);
    assert_true(context->limits.libraries);
    tx_buffer *none = NULL;
    assert_refused(be->allocate(context, TX_MEMORY_WEIGHTS, TX_SPACE_DEVICE, memory / 64 + 1, &none), TX_MEMORY,
                   "at most");
    be->close(context);
    unsetenv("TX_OCL_LIMITS");
    unsetenv("TX_CACHE_DIR");
    remove_scratch(folder);
}

static void test_limits_refused(void **state)
{
    be->close(open_or_skip(false));
    /* clang-format off */
    static const char *const wrong[] = {
        "lokal=16384", "local",     "local=",      "local=x",       "local=-1",       "local=1/2",
        "local=16384 ",
        "local=99999999999999",     "group=0",     "group=1e2",     "align=3000",     "align=0",           "fp64=0",
        "allocation=5/4",           "allocation=1/0",               "allocation=/4",  "allocation=1/2/3",  "=1",
        "local=16384,,group=8",     "allocation=99999999999999999999",
    };
    /* clang-format on */
    tx_context *context = NULL;
    tx_device_info info;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(setenv("TX_OCL_LIMITS", wrong[i], 1), 0);
        assert_refused(be->open(0, NULL, &context), TX_INVALID, "TX_OCL_LIMITS");
        assert_refused(be->device_info(0, &info), TX_INVALID, "TX_OCL_LIMITS");
    }
    unsetenv("TX_OCL_LIMITS");
    assert_int_equal(setenv("TX_OCL_VARIANT", "both", 1), 0);
    assert_refused(be->open(0, NULL, &context), TX_INVALID, "TX_OCL_VARIANT=both");
    unsetenv("TX_OCL_VARIANT");
    assert_int_equal(setenv("TX_OCL_COMPILERS", "0", 1), 0);
    assert_refused(be->open(0, NULL, &context), TX_INVALID, "TX_OCL_COMPILERS=0");
    unsetenv("TX_OCL_COMPILERS");
}

static void test_build_failure(void **state)
{
    tx_context *context = open_or_skip(false);
    cl_kernel kernel = NULL;
    assert_refused(tx_cl_kernel(context, "norm", "-DROW_LOOP(i,n)=broken -Dnorm=+", "norm", &kernel), TX_DEVICE,
                   "norm.cl");
    assert_refused(tx_cl_kernel(context, "norm", "", "nobody", &kernel), TX_DEVICE, "nobody");
    assert_refused(tx_cl_kernel(context, "nowhere", "", "norm", &kernel), TX_INTERNAL, "nowhere");
    assert_null(kernel);
    be->close(context);
}

/* The report on a command names a larger variant of the kernel that was not used. */
static void test_stands_aside(void **state)
{
    assert_int_equal(setenv("TX_OCL_VARIANT", "gpu", 1), 0);
    for (int small = 0; small < 2; small++) {
        tx_context *context = open_limited(small ? "local=16384" : "");
        tx_command command = {.op = TX_OP_ATTENTION,
                              .attrs = {.attention.heads = 1, .attention.kv_heads = 1, .scale = 0.125f}};
        for (int i = 0; i < TX_MAX_IN; i++)
            command.in[i].dtype = TX_DTYPE_COUNT;
        for (int i = 0; i < TX_MAX_OUT; i++)
            command.out[i].dtype = TX_DTYPE_COUNT;
        command.in[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, 128, 192), .arena = TX_ARENA_PLANNED};
        command.out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, 128, 64), .arena = TX_ARENA_PLANNED};
        command.out[1] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1, 1, 128), .arena = TX_ARENA_PLANNED};
        const tx_program program = {.length = 1, .commands = &command};
        tx_executable *executable = NULL;
        int64_t scratch;
        assert_ok(be->prepare(context, &program, &executable, &scratch));
        const char *variant = be->command_info(executable, 0).variant;
        assert_true((strstr(variant, "KiB of local memory and the device has 16") != NULL) == (small == 1));
        be->destroy(executable);
        be->close(context);
    }
    unsetenv("TX_OCL_LIMITS");
    unsetenv("TX_OCL_VARIANT");
}

/* Runs y = 2.5 on 1000 elements, timed. */
static void test_profile(void **state)
{
    tx_context *context = open_or_skip(true);
    tx_command command = {.op = TX_OP_FILL, .attrs = {.alpha = 2.5f, .control = -1}};
    for (int i = 0; i < TX_MAX_IN; i++)
        command.in[i].dtype = TX_DTYPE_COUNT;
    for (int i = 0; i < TX_MAX_OUT; i++)
        command.out[i].dtype = TX_DTYPE_COUNT;
    command.out[0] = (tx_operand){.dtype = TX_F32, .shape = TX_SHAPE(1000), .arena = TX_ARENA_PLANNED, .offset = 512};
    const tx_program program = {.length = 1, .commands = &command};
    tx_executable *executable = NULL;
    int64_t scratch = -1;
    assert_ok(be->prepare(context, &program, &executable, &scratch));
    assert_int_equal(scratch, 0);
    const tx_controls controls = {0};
    double seconds = 0;
    assert_refused(be->run(executable, 0, 1, &controls, NULL), TX_INTERNAL, "bind the program");

    tx_buffer *memory = NULL;
    assert_ok(be->allocate(context, TX_MEMORY_ACTIVATIONS, TX_SPACE_DEVICE, 8192, &memory));
    tx_bindings bindings = {0};
    assert_refused(be->bind(executable, &bindings), TX_INTERNAL, "chunk 0");
    bindings.arena[TX_ARENA_PLANNED] = (tx_extent){1, &memory};
    assert_ok(be->bind(executable, &bindings));
    assert_refused(be->run(executable, 0, 2, &controls, NULL), TX_INTERNAL, "program of 1");
    assert_ok(be->run(executable, 0, 1, &controls, &seconds));
    assert_true(seconds > 0 && seconds < 10);
    float y[1000];
    assert_ok(be->read(context, memory, 512, y, sizeof y));
    for (int i = 0; i < 1000; i++)
        assert_true(y[i] == 2.5f);
    assert_int_equal(be->command_info(executable, 0).launches, 1);
    be->destroy(executable);
    be->release(context, memory);
    be->close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_queues_are_two),
        cmocka_unit_test(test_failures_reach_the_host),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_size),
        cmocka_unit_test(test_build_failure),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_simulated_limits),
        cmocka_unit_test(test_limits_refused),
        cmocka_unit_test(test_stands_aside),
        cmocka_unit_test(test_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
