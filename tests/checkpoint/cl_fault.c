/* SPDX-License-Identifier: Apache-2.0
 * OpenCL calls that fail, see cl_fault.h. */
#include "tests/checkpoint/cl_fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

fault_state fault;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the counters in `fault` */

void fault_arm(void)
{
    fault.names = 0;
    fault.failed = false;
    fault.armed = true;
}

/* How often a function of that name was called, this time included. */
static long count_call(const char *name)
{
    int i = 0;
    while (i < fault.names && strcmp(fault.seen[i].name, name) != 0)
        i++;
    if (i == FAULT_NAMES)
        abort();
    if (i == fault.names) {
        fault.seen[i].name = name;
        fault.seen[i].calls = 0;
        fault.names++;
    }
    return ++fault.seen[i].calls;
}

static bool fails(int kind, const char *name)
{
    if (!fault.armed || !(fault.kinds & kind))
        return false;
    pthread_mutex_lock(&mutex);
    const long number = count_call(name);
    const bool meant = !fault.name || strcmp(fault.name, name) == 0;
    const bool now = (meant && number == fault.at) || (fault.lasting && fault.failed);
    fault.failed = fault.failed || now;
    pthread_mutex_unlock(&mutex);
    return now;
}

/* libOpenCL's own function of that name and type. */
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (!real)                     \
        *(void **)&real = dlsym(RTLD_NEXT, #name);

/* A call that creates an object and reports its success in `code`. */
#define MAKES(kind, type, name, parameters, arguments) \
    EXPORT type CL_API_CALL name parameters            \
    {                                                  \
        REAL(name)                                     \
        if (fails(kind, #name)) {                      \
            if (code)                                  \
                *code = fault.code;                    \
            return NULL;                               \
        }                                              \
        type made = real arguments;                    \
        fault.objects += made != NULL;                 \
        return made;                                   \
    }

/* A call that only does something. */
#define DOES(kind, name, parameters, arguments)                  \
    EXPORT cl_int CL_API_CALL name parameters                    \
    {                                                            \
        REAL(name)                                               \
        return fails(kind, #name) ? fault.code : real arguments; \
    }

/* A blocking call waits even if it fails. The caller may then free the buffer that the device writes to, and this
 * device, unlike a lost one, keeps writing. */
#define WAITS(name, parameters, arguments)              \
    EXPORT cl_int CL_API_CALL name parameters           \
    {                                                   \
        REAL(name)                                      \
        const cl_int code = real arguments;             \
        return fails(QUEUE, #name) ? fault.code : code; \
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
WAITS(clFinish, (cl_command_queue queue), (queue))
DOES(QUEUE, clFlush, (cl_command_queue queue), (queue))
WAITS(clWaitForEvents, (cl_uint count, const cl_event *events), (count, events))
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
#define GIVES(kind, name, parameters, arguments)      \
    EXPORT cl_int CL_API_CALL name parameters         \
    {                                                 \
        REAL(name)                                    \
        if (fails(kind, #name))                       \
            return fault.code;                        \
        const cl_int code = real arguments;           \
        fault.objects += event && code == CL_SUCCESS; \
        return code;                                  \
    }

GIVES(QUEUE, clEnqueueReadBuffer,
      (cl_command_queue queue, cl_mem memory, cl_bool waits, size_t offset, size_t size, void *data, cl_uint count,
       const cl_event *wait, cl_event *event),
      (queue, memory, waits, offset, size, data, count, wait, event))
GIVES(QUEUE, clEnqueueCopyBuffer,
      (cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset, size_t size, cl_uint count,
       const cl_event *wait, cl_event *event),
      (queue, from, to, from_offset, to_offset, size, count, wait, event))
GIVES(QUEUE, clEnqueueMarkerWithWaitList,
      (cl_command_queue queue, cl_uint count, const cl_event *wait, cl_event *event), (queue, count, wait, event))
GIVES(QUEUE, clEnqueueBarrierWithWaitList,
      (cl_command_queue queue, cl_uint count, const cl_event *wait, cl_event *event), (queue, count, wait, event))
GIVES(QUEUE | KERNEL, clEnqueueNDRangeKernel,
      (cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *first, const size_t *global,
       const size_t *local, cl_uint count, const cl_event *wait, cl_event *event),
      (queue, kernel, dims, first, global, local, count, wait, event))

EXPORT void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory, cl_bool waits, cl_map_flags flags,
                                            size_t offset, size_t size, cl_uint count, const cl_event *wait,
                                            cl_event *event, cl_int *code)
{
    REAL(clEnqueueMapBuffer)
    if (fails(MEMORY, "clEnqueueMapBuffer")) {
        *code = fault.code;
        return NULL;
    }
    return real(queue, memory, waits, flags, offset, size, count, wait, event, code);
}

#define ASKS(name, type, what)                                                            \
    DOES(QUERY, name, (type object, what about, size_t size, void *value, size_t *whole), \
         (object, about, size, value, whole))

ASKS(clGetPlatformInfo, cl_platform_id, cl_platform_info)
ASKS(clGetDeviceInfo, cl_device_id, cl_device_info)
ASKS(clGetContextInfo, cl_context, cl_context_info)
ASKS(clGetCommandQueueInfo, cl_command_queue, cl_command_queue_info)
ASKS(clGetMemObjectInfo, cl_mem, cl_mem_info)
ASKS(clGetProgramInfo, cl_program, cl_program_info)
ASKS(clGetKernelInfo, cl_kernel, cl_kernel_info)
ASKS(clGetEventProfilingInfo, cl_event, cl_profiling_info)
DOES(QUERY, clGetPlatformIDs, (cl_uint room, cl_platform_id *platforms, cl_uint *count), (room, platforms, count))
DOES(QUERY, clGetDeviceIDs,
     (cl_platform_id platform, cl_device_type type, cl_uint room, cl_device_id *devices, cl_uint *count),
     (platform, type, room, devices, count))
DOES(QUERY, clGetProgramBuildInfo,
     (cl_program program, cl_device_id device, cl_program_build_info about, size_t size, void *value, size_t *whole),
     (program, device, about, size, value, whole))
DOES(QUERY, clGetKernelWorkGroupInfo,
     (cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info about, size_t size, void *value, size_t *whole),
     (kernel, device, about, size, value, whole))

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

/* A call that makes a block, which its caller gives back by free(). */
#define ALLOCATES(type, name, parameters, arguments) \
    type __real_##name parameters;                   \
    type __wrap_##name parameters;                   \
    type __wrap_##name parameters                    \
    {                                                \
        type made = __real_##name arguments;         \
        fault.blocks += made != NULL;                \
        return made;                                 \
    }

ALLOCATES(void *, malloc, (size_t size), (size))
ALLOCATES(void *, calloc, (size_t number, size_t size), (number, size))
ALLOCATES(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
ALLOCATES(char *, strdup, (const char *text), (text))
ALLOCATES(char *, strndup, (const char *text, size_t most), (text, most))
ALLOCATES(char *, json_dumps, (const void *json, size_t flags), (json, flags))
ALLOCATES(FILE *, open_memstream, (char **text, size_t *size), (text, size)) /* the block is the text */

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __real_free(void *memory);
void __wrap_free(void *memory);

void *__wrap_realloc(void *memory, size_t size)
{
    void *moved = __real_realloc(memory, size);
    fault.blocks += !memory && moved;
    return moved;
}

void __wrap_free(void *memory)
{
    fault.blocks -= memory != NULL;
    __real_free(memory);
}
