/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL calls that fail, one after the other, while a model is built, trained and read: memory that is not given, a
 * device out of resources, a build that fails, a device that is lost, kernels that say that they ran and did not. The
 * run ends with one message that names the device and says what to do, or does without the call and gives the same
 * bits; nothing crashes, and every OpenCL object and every block of TX is given back.
 *
 * The functions below stand before libOpenCL's, for TX and for the libraries that it uses.
 *
 *     test_cl_faults memory|resources|host|build|lost|wrong [clblast]      exit status 77: there is no OpenCL device */
#include "backends/opencl/cl.h"
#include "tests/checkpoint/tiny.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- What fails ---------------------------------------------------------------------------------- */

/* Kinds of calls. */
enum { OBJECT = 1, MEMORY = 2, QUEUE = 4, BUILD = 8, KERNEL = 16 };

static struct {
    bool armed, lasting;
    int kinds;
    cl_int code;
    long at;                            /* the call that fails, from 1 */
    atomic_long calls, objects, blocks; /* some by threads */
    atomic_bool failed;
} fault;

static bool fails(int kind)
{
    if (!fault.armed || !(fault.kinds & kind))
        return false;
    const long number = ++fault.calls;
    if (number != fault.at && !(fault.lasting && fault.at > 0 && number > fault.at))
        return false;
    fault.failed = true;
    return true;
}

/* libOpenCL's own function of that name and type. */
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
        *(void **)&real = dlsym(RTLD_NEXT, #name);

/* A call that makes an object and tells its success by `code`. */
#define MAKES(kind, type, name, parameters, arguments) \
    EXPORT type CL_API_CALL name parameters            \
    {                                                  \
        REAL(name)                                     \
        if (fails(kind)) {                             \
            if (code)                                  \
                *code = fault.code;                    \
            return NULL;                               \
        }                                              \
        type made = real arguments;                    \
        fault.objects += made != NULL;                 \
        return made;                                   \
    }

/* A call that only does something. */
#define DOES(kind, name, parameters, arguments)           \
    EXPORT cl_int CL_API_CALL name parameters             \
    {                                                     \
        REAL(name)                                        \
        return fails(kind) ? fault.code : real arguments; \
    }

#define RELEASES(name, type, change)            \
    EXPORT cl_int CL_API_CALL name(type object) \
    {                                           \
        REAL(name)                              \
        fault.objects += change;                \
        return real(object);                    \
    }

MAKES(OBJECT, cl_context, clCreateContext,
      (const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
       void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *code),
      (properties, count, devices, notify, data, code))
MAKES(OBJECT, cl_command_queue, clCreateCommandQueue,
      (cl_context context, cl_device_id device, cl_command_queue_properties properties, cl_int *code),
      (context, device, properties, code))
MAKES(MEMORY, cl_mem, clCreateBuffer, (cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code),
      (context, flags, size, host, code))
MAKES(MEMORY, cl_mem, clCreateSubBuffer,
      (cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *code),
      (buffer, flags, type, info, code))
MAKES(OBJECT, cl_program, clCreateProgramWithSource,
      (cl_context context, cl_uint count, const char **text, const size_t *size, cl_int *code),
      (context, count, text, size, code))
MAKES(OBJECT, cl_program, clCreateProgramWithBinary,
      (cl_context context, cl_uint count, const cl_device_id *devices, const size_t *size, const unsigned char **text,
       cl_int *status, cl_int *code),
      (context, count, devices, size, text, status, code))
MAKES(OBJECT, cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *code), (program, name, code))

DOES(BUILD, clBuildProgram,
     (cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
      void(CL_CALLBACK *notify)(cl_program, void *), void *data),
     (program, count, devices, options, notify, data))
DOES(OBJECT, clSetKernelArg, (cl_kernel kernel, cl_uint index, size_t size, const void *value),
     (kernel, index, size, value))
DOES(QUEUE, clFinish, (cl_command_queue queue), (queue))
DOES(QUEUE, clFlush, (cl_command_queue queue), (queue))
DOES(QUEUE, clWaitForEvents, (cl_uint count, const cl_event *events), (count, events))
DOES(MEMORY, clEnqueueMigrateMemObjects,
     (cl_command_queue queue, cl_uint objects, const cl_mem *memory, cl_mem_migration_flags flags, cl_uint count,
      const cl_event *wait, cl_event *event),
     (queue, objects, memory, flags, count, wait, event))
DOES(QUEUE, clEnqueueWriteBuffer,
     (cl_command_queue queue, cl_mem memory, cl_bool waits, size_t offset, size_t size, const void *data, cl_uint count,
      const cl_event *wait, cl_event *event),
     (queue, memory, waits, offset, size, data, count, wait, event))
DOES(QUEUE, clEnqueueFillBuffer,
     (cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_size, size_t offset, size_t size,
      cl_uint count, const cl_event *wait, cl_event *event),
     (queue, memory, pattern, pattern_size, offset, size, count, wait, event))

/* These may make an event. */
EXPORT cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool waits, size_t offset,
                                              size_t size, void *data, cl_uint count, const cl_event *wait,
                                              cl_event *event)
{
    REAL(clEnqueueReadBuffer)
    if (fails(QUEUE))
        return fault.code;
    const cl_int code = real(queue, memory, waits, offset, size, data, count, wait, event);
    fault.objects += event && code == CL_SUCCESS;
    return code;
}

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                 const size_t *first, const size_t *global, const size_t *local,
                                                 cl_uint count, const cl_event *wait, cl_event *event)
{
    REAL(clEnqueueNDRangeKernel)
    if (fails(QUEUE) || fails(KERNEL))
        return fault.code;
    const cl_int code = real(queue, kernel, dims, first, global, local, count, wait, event);
    fault.objects += event && code == CL_SUCCESS;
    return code;
}

EXPORT void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool waits, cl_map_flags flags,
                                            size_t offset, size_t size, cl_uint count, const cl_event *wait,
                                            cl_event *event, cl_int *code)
{
    REAL(clEnqueueMapBuffer)
    if (fails(MEMORY)) {
        *code = fault.code;
        return NULL;
    }
    return real(queue, memory, waits, flags, offset, size, count, wait, event, code);
}

RELEASES(clReleaseContext, cl_context, -1)
RELEASES(clReleaseCommandQueue, cl_command_queue, -1)
RELEASES(clReleaseMemObject, cl_mem, -1)
RELEASES(clReleaseProgram, cl_program, -1)
RELEASES(clReleaseKernel, cl_kernel, -1)
RELEASES(clReleaseEvent, cl_event, -1)
RELEASES(clRetainContext, cl_context, 1)
RELEASES(clRetainCommandQueue, cl_command_queue, 1)
RELEASES(clRetainMemObject, cl_mem, 1)
RELEASES(clRetainProgram, cl_program, 1)
RELEASES(clRetainKernel, cl_kernel, 1)
RELEASES(clRetainEvent, cl_event, 1)

/* ---- Blocks of TX: the linker sends its calls of the allocator here ---------------------------------- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__real_realloc(void *memory, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    void *memory = __real_malloc(size);
    fault.blocks += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t number, size_t size)
{
    void *memory = __real_calloc(number, size);
    fault.blocks += memory != NULL;
    return memory;
}

void *__wrap_realloc(void *memory, size_t size)
{
    void *moved = __real_realloc(memory, size);
    fault.blocks += !memory && moved;
    return moved;
}

char *__wrap_strdup(const char *text)
{
    char *copy = __real_strdup(text);
    fault.blocks += copy != NULL;
    return copy;
}

char *__wrap_strndup(const char *text, size_t most)
{
    char *copy = __real_strndup(text, most);
    fault.blocks += copy != NULL;
    return copy;
}

void __wrap_free(void *memory)
{
    fault.blocks -= memory != NULL;
    __real_free(memory);
}

/* ---- The run --------------------------------------------------------------------------------------- */

enum { STEPS = 2 };

static const tx_optimizer_options adam = {
    .size = sizeof adam, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

/* Everything from opening the device to the trained parameters. */
static tx_status attempt(const char *choices, float **values, int64_t *count)
{
    tiny t;
    tx_results results;
    *values = NULL;
    tx_status status = tiny_create("opencl", &adam, choices, &t);
    if (!status)
        status = tiny_train(&t, 0, STEPS, &results);
    if (!status) {
        *values = tiny_read(&t, count);
        status = *values ? TX_OK : TX_DEVICE;
    }
    tiny_free(&t);
    return status;
}

typedef struct reference {
    char *choices, *name; /* of the device */
    float *values;
    int64_t count;
    long calls;
} reference;

static tx_status make_reference(reference *r)
{
    tiny t;
    tx_status status = tiny_create("opencl", &adam, NULL, &t);
    if (!status)
        status = tiny_train(&t, 0, STEPS, NULL);
    if (!status)
        status = tx_engine_choices(t.engine, &r->choices);
    if (!status && !(r->name = strdup(tx_engine_device(t.engine)->name)))
        status = TX_MEMORY;
    tiny_free(&t);
    if (status)
        return status;
    fault.calls = 0;
    fault.armed = true;
    status = attempt(r->choices, &r->values, &r->count);
    fault.armed = false;
    r->calls = fault.calls;
    return status;
}

/* What is wrong with the end of a run whose call `at` failed; NULL: nothing. */
static const char *judge(const reference *r, tx_status status, const float *values, int64_t count, long objects,
                         long blocks)
{
    if (!fault.failed)
        return "the call was not made again";
    if (fault.objects != objects)
        return "OpenCL objects are not given back";
    if (fault.blocks != blocks)
        return "blocks are not given back";
    if (status == TX_OK)
        return count == r->count && memcmp(values, r->values, (size_t)count * sizeof *values) == 0
                   ? NULL
                   : "the bits are others";
    if (status != TX_MEMORY && status != TX_DEVICE)
        return "the status is no failure of a device";
    if (!strstr(tx_error(), "opencl:0 (") || !strstr(tx_error(), r->name))
        return "the message does not name the device";
    if (!strstr(tx_error(), "CL_") || !strstr(tx_error(), "choose another device"))
        return "the message does not say what failed and what to do";
    return NULL;
}

static bool fail_call(const reference *r, long at)
{
    float *values;
    int64_t count = 0;
    const long objects = fault.objects, blocks = fault.blocks;
    fault.at = at;
    fault.calls = 0;
    fault.failed = false;
    fault.armed = true;
    const tx_status status = attempt(r->choices, &values, &count);
    fault.armed = false;
    char message[1100];
    snprintf(message, sizeof message, "%s", status ? tx_error() : "");
    const long extra = values ? 1 : 0; /* which the caller still holds */
    fault.blocks -= extra;
    const char *wrong = judge(r, status, values, count, objects, blocks);
    fault.blocks += extra;
    free(values);
    if (wrong)
        printf("FAIL: call %ld: %s: status %d, %ld objects, %ld blocks: %s\n", at, wrong, (int)status,
               fault.objects - objects, fault.blocks - blocks, message);
    return !wrong;
}

static const struct {
    const char *name;
    int kinds;
    cl_int code;
    bool lasting;
    long runs; /* at most; a build takes long */
} modes[] = {
    {"memory", MEMORY, CL_MEM_OBJECT_ALLOCATION_FAILURE, false, 30},
    {"resources", OBJECT | MEMORY | QUEUE | BUILD, CL_OUT_OF_RESOURCES, false, 30},
    {"host", OBJECT | MEMORY | QUEUE | BUILD, CL_OUT_OF_HOST_MEMORY, false, 20},
    {"build", BUILD, CL_BUILD_PROGRAM_FAILURE, true, 8},
    {"lost", OBJECT | MEMORY | QUEUE | BUILD, CL_DEVICE_NOT_AVAILABLE, true, 30},
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

/* Kernels that do nothing: in the test of the device it is refused, in that of a provider of products another is taken,
 * which shows. */
static bool test_wrong_kernels(void)
{
    bool refused = true, switched = false, good = true;
    for (long at = 1; at <= 40 && !switched && good; at++) {
        tiny t;
        fault.at = at;
        fault.calls = 0;
        fault.failed = false;
        fault.armed = true;
        const tx_status status = tiny_create("opencl", &adam, NULL, &t);
        fault.armed = false;
        refused = refused && status == TX_DEVICE;
        if (refused && !strstr(tx_error(), "fails the known-answer test"))
            good = false;
        if (status == TX_OK)
            switched = product_says(&t, "is switched off: ");
        else if (status != TX_DEVICE)
            good = false;
        if (!good)
            printf("FAIL: kernel %ld does nothing: status %d, message: %s\n", at, (int)status, tx_error());
        good = good && (at > 3 || refused);
        tiny_free(&t);
    }
    printf("wrong: %s, %s\n", good ? "the device is refused" : "the device is not refused",
           switched ? "a provider is switched off" : "no provider is switched off");
    return good && switched;
}

int main(int argc, char **argv)
{
    size_t m = 0;
    int32_t index;
    while (m < sizeof modes / sizeof modes[0] && (argc < 2 || strcmp(argv[1], modes[m].name) != 0))
        m++;
    if (m == sizeof modes / sizeof modes[0])
        return 2;
    if (tx_device_find("opencl", &index)) {
        printf("skipped: %s\n", tx_error());
        return 77;
    }
    if (argc > 2)
        setenv("TX_GEMM", argv[2], 1);
    if (modes[m].kinds == BUILD || modes[m].kinds == KERNEL)
        setenv("TX_CACHE_DIR", "", 1); /* so that there is something to build, and nothing known of the device */
    fault.kinds = modes[m].kinds;
    fault.code = modes[m].code;
    fault.lasting = modes[m].lasting;
    if (modes[m].kinds == KERNEL)
        return test_wrong_kernels() ? 0 : 1;
    reference r = {0};
    if (make_reference(&r)) {
        printf("FAIL: %s\n", tx_error());
        return 1;
    }
    /* All calls where they are few, else evenly spread ones with the first and the last. */
    const long runs = r.calls < modes[m].runs ? r.calls : modes[m].runs;
    bool good = r.calls > 0;
    for (long i = 0; i < runs; i++)
        good = fail_call(&r, runs > 1 ? 1 + i * (r.calls - 1) / (runs - 1) : 1) && good;
    float *values;
    int64_t count;
    good = attempt(r.choices, &values, &count) == TX_OK && good; /* and now it works */
    printf("%s: %ld of %ld calls failed\n", modes[m].name, runs, r.calls);
    free(values);
    free(r.values);
    free(r.choices);
    free(r.name);
    return good ? 0 : 1;
}
