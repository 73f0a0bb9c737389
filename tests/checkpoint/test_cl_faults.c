/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL calls fail, one in each run, while a model is built, trained and read. The causes are exhausted memory or
 * device resources, a failed build, a lost device, and kernels that report success without running. The run ends with
 * one message that names the device and says what to do, or continues without the call and gives the same bits. Nothing
 * crashes, and every OpenCL object and every block of memory is released.
 *
 * The first, the last and some other calls of each OpenCL function fail.
 *
 *     test_cl_faults memory|resources|host|build|lost|query|wrong [clblast|copies]
 *
 * With clblast the products of CLBlast are used. With copies, all kinds of copies by both queues run instead of a
 * training. Exit status 77: no OpenCL device. */
#include "api/model/engine.h"
#include "tests/checkpoint/cl_fault.h"
#include "tests/checkpoint/tiny.h"
#include "tests/skip.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The run --------------------------------------------------------------------------------------- */

enum { STEPS = 2 };

static const tx_optimizer_options adam = {
    .size = sizeof adam, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

/* Everything from opening the device to the trained parameters. */
static tx_status attempt_training(const char *choices, float **values, int64_t *count)
{
    tiny t;
    tx_results results;
    *values = NULL;
    tx_status status = tiny_create("opencl", &adam, choices, &t);
    TX_THEN(status, tiny_train(&t, 0, STEPS, &results));
    if (!status) {
        *values = tiny_read(&t, count);
        status = *values ? TX_OK : TX_DEVICE;
    }
    tiny_free(&t);
    return status;
}

enum { NUMBERS = 1024, BYTES = NUMBERS * sizeof(float) };

/* Host to device by the transfer queue, within the device by the other, to mapped memory and back by the first. */
static tx_status copy_around(tx_engine *engine, tx_buffer **b, const float *from, float *to)
{
    const tx_backend *backend = engine->backend;
    tx_context *c = engine->context;
    tx_event *event = NULL;
    for (int i = 0; i < 3; i++)
        TX_TRY(backend->allocate(c, TX_MEMORY_FUNCTIONALITY, i < 2 ? TX_SPACE_DEVICE : TX_SPACE_PINNED, BYTES, &b[i]));
    TX_TRY(backend->write(c, TX_QUEUE_TRANSFER, b[0], 0, from, BYTES));
    TX_TRY(backend->mark(c, TX_QUEUE_TRANSFER, &event));
    tx_status status = backend->await(c, TX_QUEUE_COMPUTE, event);
    backend->forget(c, event);
    TX_TRY(status);
    TX_TRY(backend->copy(c, TX_QUEUE_COMPUTE, b[0], 0, b[1], 0, BYTES));
    TX_TRY(backend->fill(c, b[1], 64, 0, 64));
    TX_TRY(backend->finish(c));
    TX_TRY(backend->copy(c, TX_QUEUE_TRANSFER, b[1], 0, b[2], 0, BYTES));
    TX_TRY(backend->finish(c));
    TX_TRY(backend->copy(c, TX_QUEUE_TRANSFER, b[2], 0, b[0], 0, BYTES));
    TX_TRY(backend->read_begin(c, TX_QUEUE_TRANSFER, b[0], 0, to, BYTES, &event));
    return backend->wait(c, event);
}

static tx_status attempt_copies(float **values, int64_t *count)
{
    const tx_engine_options options = {.size = sizeof options, .device = "opencl"};
    tx_engine *engine = NULL;
    tx_buffer *buffer[3] = {NULL};
    float from[NUMBERS], *to = calloc(NUMBERS, sizeof *to);
    for (int i = 0; i < NUMBERS; i++)
        from[i] = (float)i;
    tx_status status = tx_engine_create(&options, &engine);
    TX_THEN(status, copy_around(engine, buffer, from, to));
    for (int i = 0; i < 3; i++)
        if (buffer[i])
            engine->backend->release(engine->context, buffer[i]);
    tx_engine_free(engine);
    *count = NUMBERS;
    *values = status ? NULL : to;
    if (status)
        free(to);
    return status;
}

typedef struct reference {
    bool copies;
    char *choices, *name; /* of the device */
    float *values;
    int64_t count;
} reference;

/* Forgets the journal of the last run: a kernel with which a device was lost counts as hung in later ones. */
static void forget_trials(void)
{
    char pattern[256];
    glob_t files = {0};
    snprintf(pattern, sizeof pattern, "%s/cl-trying-*", getenv("TX_CACHE_DIR"));
    (void)glob(pattern, 0, NULL, &files);
    for (size_t i = 0; i < files.gl_pathc; i++)
        unlink(files.gl_pathv[i]);
    globfree(&files);
}

static tx_status attempt(const reference *r, float **values, int64_t *count)
{
    forget_trials();
    return r->copies ? attempt_copies(values, count) : attempt_training(r->choices, values, count);
}

static tx_status make_reference(reference *r)
{
    tiny t;
    tx_status status = tiny_create("opencl", &adam, NULL, &t);
    TX_THEN(status, tiny_train(&t, 0, STEPS, NULL));
    TX_THEN(status, tx_engine_choices(t.engine, &r->choices));
    if (!status && !(r->name = strdup(tx_engine_device(t.engine)->name)))
        status = TX_MEMORY;
    tiny_free(&t);
    if (status)
        return status;
    for (int i = 0; i < 2 && !status; i++) { /* in the second libraries know the device */
        free(r->values);
        fault_arm();
        status = attempt(r, &r->values, &r->count);
        fault.armed = false;
    }
    return status;
}

/* A device that answers no query counts as a smaller one, whose sums are rounded in another order. */
static bool close_enough(const reference *r, const float *values)
{
    double sum = 0.0;
    for (int64_t i = 0; i < r->count; i++)
        sum += fabs((double)values[i] - (double)r->values[i]);
    return sum <= 1e-4 * (double)r->count;
}

/* Checks the end of a run with a failed call. Returns a description of the error, or NULL if the end is correct. */
static const char *judge(const reference *r, tx_status status, const float *values, int64_t count, long objects,
                         long blocks)
{
    if (!fault.failed)
        return "the call was not made again";
    if (fault.objects != objects)
        return "OpenCL objects are not given back";
    if (fault.blocks != blocks)
        return "blocks are not given back";
    if (status == TX_OK) {
        const bool same = count == r->count && memcmp(values, r->values, (size_t)count * sizeof *values) == 0;
        return same || (fault.kinds == QUERY && count == r->count && close_enough(r, values)) ? NULL
                                                                                              : "the bits are others";
    }
    if (fault.kinds == QUERY) /* the failed query may be that of the name, or that of the devices */
        return strstr(tx_error(), "device") || strstr(tx_error(), "opencl:")
                   ? NULL
                   : "the message does not say that it is the device";
    if (status != TX_MEMORY && status != TX_DEVICE)
        return "the status is no failure of a device";
    if (!strstr(tx_error(), "opencl:0 (") || !strstr(tx_error(), r->name))
        return "the message does not name the device";
    const bool said =
        strstr(tx_error(), "CL_") || (fault.lasting && strstr(tx_error(), "destroyed the OpenCL context"));
    if (!said || !strstr(tx_error(), "choose another device"))
        return "the message does not say what failed and what to do";
    return NULL;
}

static bool fail_call(const reference *r, const char *name, long at)
{
    float *values;
    int64_t count = 0;
    const long objects = fault.objects, blocks = fault.blocks;
    fault.name = name;
    fault.at = at;
    fault_arm();
    const tx_status status = attempt(r, &values, &count);
    fault.armed = false;
    char message[1100];
    snprintf(message, sizeof message, "%s", status ? tx_error() : "");
    const long extra = values ? 1 : 0; /* which the caller still holds */
    fault.blocks -= extra;
    const char *wrong = judge(r, status, values, count, objects, blocks);
    fault.blocks += extra;
    free(values);
    if (wrong)
        printf("FAIL: %s, call %ld: %s: status %d, %ld objects, %ld blocks: %s\n", name, at, wrong, (int)status,
               fault.objects - objects, fault.blocks - blocks, message);
    return !wrong;
}

static const struct {
    const char *name;
    int kinds;
    cl_int code;
    bool lasting;
    long runs; /* of a function; a build takes long */
} modes[] = {
    {"memory", MEMORY, CL_MEM_OBJECT_ALLOCATION_FAILURE, false, 8},
    {"resources", OBJECT | MEMORY | QUEUE | BUILD, CL_OUT_OF_RESOURCES, false, 6},
    {"host", OBJECT | MEMORY | QUEUE | BUILD, CL_OUT_OF_HOST_MEMORY, false, 4},
    {"build", BUILD, CL_BUILD_PROGRAM_FAILURE, true, 8},
    {"lost", OBJECT | MEMORY | QUEUE | BUILD, CL_DEVICE_NOT_AVAILABLE, true, 4},
    {"query", QUERY, CL_OUT_OF_HOST_MEMORY, false, 20},
    {"wrong", KERNEL, CL_SUCCESS, false, 0},
};

/* The variant of the first product of a plan has `text` in it. */
static bool product_says(const tiny *t, const char *text)
{
    for (int32_t i = 0; i < tx_plan_length(t->train); i++) {
        tx_profile_entry entry;
        if (tx_plan_profile_entry(t->train, i, &entry) == TX_OK && strcmp(entry.op, "matmul") == 0)
            return strstr(entry.variant, text) != NULL;
    }
    return false;
}

/* Kernels that do nothing. The first tries builtins, which other code replaces. In the test of the device it is
 * refused, in that of a provider of products another is taken, which shows. */
static bool test_wrong_kernels(void)
{
    enum { BUILTINS = 1, MOST = 40 };
    bool switched = false, good = true;
    for (long at = 1; at <= MOST && !switched && good; at++) {
        tiny t;
        fault.at = at;
        fault_arm();
        const tx_status status = tiny_create("opencl", &adam, NULL, &t);
        fault.armed = false;
        switched = status == TX_OK && product_says(&t, "is switched off: ");
        if (at <= BUILTINS)
            good = status == TX_OK && !switched;
        else
            good = switched || (status == TX_DEVICE && strstr(tx_error(), "fails the known-answer test"));
        if (!good)
            printf("FAIL: kernel %ld does nothing: status %d, message: %s\n", at, (int)status,
                   status ? tx_error() : "none");
        tiny_free(&t);
    }
    printf("wrong: %s, %s\n", good ? "the device is refused" : "the device is not refused",
           switched ? "a provider is switched off" : "no provider is switched off");
    return good && switched;
}

/* Fails calls of every function that was called: all calls if they are few, otherwise the first, the last and evenly
 * spread ones. */
static bool fail_calls(const reference *r, long most)
{
    const int names = fault.names;
    long runs = 0;
    bool good = names > 0;
    fault_function seen[FAULT_NAMES];
    memcpy(seen, fault.seen, sizeof seen);
    for (int f = 0; f < names; f++) {
        const long calls = seen[f].calls, times = calls < most ? calls : most;
        for (long i = 0; i < times; i++)
            good = fail_call(r, seen[f].name, times > 1 ? 1 + i * (calls - 1) / (times - 1) : 1) && good;
        printf("%s: %ld of %ld calls failed\n", seen[f].name, times, calls);
        runs += times;
    }
    printf("%d functions, %ld runs\n", names, runs);
    return good;
}

/* In `folder` nothing is built yet, and nothing is known of the device. */
static int run_mode(size_t m, reference *r, const char *folder)
{
    float *values;
    int64_t count;
    const bool fresh = modes[m].kinds == BUILD || modes[m].kinds == KERNEL;
    setenv("TX_CACHE_DIR", fresh ? "" : folder, 1);
    fault.kinds = modes[m].kinds;
    fault.code = modes[m].code;
    fault.lasting = modes[m].lasting;
    if (modes[m].kinds == KERNEL)
        return test_wrong_kernels() ? 0 : 1;
    if (make_reference(r)) {
        printf("FAIL: %s\n", tx_error());
        return 1;
    }
    bool good = fail_calls(r, modes[m].runs);
    good = attempt(r, &values, &count) == TX_OK && good; /* and now it works */
    free(values);
    free(r->values);
    free(r->choices);
    free(r->name);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    size_t m = 0;
    char folder[] = "/tmp/tx_faults_XXXXXX", command[64];
    reference r = {.copies = argc > 2 && strcmp(argv[2], "copies") == 0};
    while (m < sizeof modes / sizeof modes[0] && (argc < 2 || strcmp(argv[1], modes[m].name) != 0))
        m++;
    if (m == sizeof modes / sizeof modes[0])
        return 2;
    tx_test_device("opencl");
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (argc > 2 && !r.copies)
        setenv("TX_GEMM", argv[2], 1);
    if (!mkdtemp(folder))
        return 1;
    const int code = run_mode(m, &r, folder);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : code;
}
