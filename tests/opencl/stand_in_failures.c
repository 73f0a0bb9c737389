/* SPDX-License-Identifier: Apache-2.0
 * What drivers get wrong (stand_in_failure): crashes, hangs, contexts that end, missing functions, wrong fills. */
#include "tests/opencl/stand_in.h"

#include "tests/opencl/answer.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
        *(void **)&real = dlsym(RTLD_NEXT, #name);

#define GIB ((size_t)1 << 30)

/* After this launch the context is dead, or its queue never ends. */
static cl_context dead;
static atomic_bool hung;

static bool is_dead(cl_command_queue queue)
{
    cl_context context = NULL;
    clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    return dead && context == dead;
}

static void wait_if_hung(void)
{
    while (hung)
        sleep(1);
}

static _Noreturn void crash(void)
{
    raise(SIGSEGV);
    abort();
}

void stand_in_before_build(cl_program program, char *options, size_t size)
{
    const size_t used = strlen(options);
    char *text = NULL;
    size_t bytes = 0;
    if (stand_in.failure == STAND_IN_BUILTIN)
        snprintf(options + used, size - used, "%s", stand_in.what);
    if (stand_in.failure != STAND_IN_BUILD_CRASH ||
        clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &bytes) != CL_SUCCESS || !(text = calloc(1, bytes + 1)))
        return;
    clGetProgramInfo(program, CL_PROGRAM_SOURCE, bytes, text, NULL);
    if (strstr(text, stand_in.what))
        crash();
    free(text);
}

cl_int stand_in_before_launch(cl_command_queue queue, cl_kernel kernel)
{
    char name[64] = "";
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (is_dead(queue))
        return CL_INVALID_COMMAND_QUEUE;
    if (!stand_in.what || strcmp(name, stand_in.what) != 0)
        return CL_SUCCESS;
    if (stand_in.failure == STAND_IN_LAUNCH_CRASH)
        crash();
    if (stand_in.failure == STAND_IN_DEATH)
        clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof dead, &dead, NULL);
    hung = stand_in.failure == STAND_IN_HANG || hung;
    return CL_SUCCESS;
}

EXPORT cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties, cl_uint count,
                                              const cl_device_id *devices,
                                              void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                              void *data, cl_int *code)
{
    REAL(clCreateContext)
    cl_context made = real(properties, count, devices, notify, data, code);
    dead = made == dead ? NULL : dead; /* another at the same address */
    return made;
}

#define DIES(name, parameters, arguments)     \
    EXPORT cl_int CL_API_CALL name parameters \
    {                                         \
        REAL(name)                            \
        if (is_dead(queue))                   \
            return CL_INVALID_COMMAND_QUEUE;  \
        return real arguments;                \
    }
#define WAITS(name, parameters, arguments, ends)                           \
    EXPORT cl_int CL_API_CALL name parameters                              \
    {                                                                      \
        REAL(name)                                                         \
        if (ends)                                                          \
            wait_if_hung();                                                \
        return is_dead(queue) ? CL_INVALID_COMMAND_QUEUE : real arguments; \
    }

DIES(clFlush, (cl_command_queue queue), (queue))
DIES(clEnqueueMigrateMemObjects,
     (cl_command_queue queue, cl_uint objects, const cl_mem *memory, cl_mem_migration_flags flags, cl_uint count,
      const cl_event *wait, cl_event *event),
     (queue, objects, memory, flags, count, wait, event))
DIES(clEnqueueMarkerWithWaitList, (cl_command_queue queue, cl_uint count, const cl_event *wait, cl_event *event),
     (queue, count, wait, event))
WAITS(clEnqueueWriteBuffer,
      (cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset, size_t size, const void *data,
       cl_uint count, const cl_event *wait, cl_event *event),
      (queue, memory, blocks, offset, size, data, count, wait, event), blocks)
WAITS(clEnqueueReadBuffer,
      (cl_command_queue queue, cl_mem memory, cl_bool blocks, size_t offset, size_t size, void *data, cl_uint count,
       const cl_event *wait, cl_event *event),
      (queue, memory, blocks, offset, size, data, count, wait, event), blocks)
WAITS(clFinish, (cl_command_queue queue), (queue), true)

EXPORT cl_int CL_API_CALL clWaitForEvents(cl_uint count, const cl_event *events)
{
    REAL(clWaitForEvents)
    wait_if_hung();
    return real(count, events);
}

EXPORT cl_int CL_API_CALL clGetEventInfo(cl_event event, cl_event_info what, size_t size, void *value, size_t *whole)
{
    REAL(clGetEventInfo)
    const cl_int runs = CL_RUNNING;
    if (what == CL_EVENT_COMMAND_EXECUTION_STATUS && hung)
        return answer(&runs, sizeof runs, size, value, whole);
    return real(event, what, size, value, whole);
}

/* Writes the wrong values, and ends the context at 2 GiB. */
EXPORT cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern,
                                              size_t pattern_size, size_t offset, size_t size, cl_uint count,
                                              const cl_event *wait, cl_event *event)
{
    REAL(clEnqueueFillBuffer)
    const unsigned char wrong[16] = {1};
    if (stand_in.failure != STAND_IN_FILL)
        return real(queue, memory, pattern, pattern_size, offset, size, count, wait, event);
    return size >= 2 * GIB ? CL_OUT_OF_RESOURCES
                           : real(queue, memory, wrong, pattern_size, offset, size, count, wait, event);
}

/* A buffer of `size` bytes that needs 16 MiB for each GiB: these pages are repeated. The real one has the first of
 * them, and PoCL's kernels reach the others at the addresses that follow. */
static unsigned char *map_repeated(size_t size)
{
    const size_t piece = (size_t)16 << 20;
    const int file = memfd_create("stand_in", 0);
    size = (size + piece - 1) / piece * piece;
    unsigned char *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || at == MAP_FAILED || ftruncate(file, (off_t)((size / GIB + 1) * piece)) != 0)
        abort();
    for (size_t i = 0; i < size; i += piece)
        if (mmap(at + i, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)(i / GIB * piece)) ==
            MAP_FAILED)
            abort();
    close(file);
    return at;
}

EXPORT cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code)
{
    REAL(clCreateBuffer)
    if (stand_in.failure != STAND_IN_FILL || size <= GIB) {
        cl_mem memory = real(context, flags, size, host, code);
        if (*code == CL_INVALID_BUFFER_SIZE) /* this machine has less memory than the card */
            *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return memory;
    }
    stand_in.memory = map_repeated(size);
    return real(context, flags | CL_MEM_USE_HOST_PTR, (size_t)16 << 20, stand_in.memory, code);
}
