/* SPDX-License-Identifier: Apache-2.0
 * Command buffers (cl_khr_command_buffer): launches recorded once and given to the device at once. */
#include "backends/opencl/internal.h"

#include <CL/cl_ext.h>
#include <stdlib.h>
#include <string.h>

/* X(name, function): the extension's functions that are used. */
#define FUNCTION_MAP(X)                     \
    X(create, clCreateCommandBufferKHR)     \
    X(launch, clCommandNDRangeKernelKHR)    \
    X(finalize, clFinalizeCommandBufferKHR) \
    X(enqueue, clEnqueueCommandBufferKHR)   \
    X(release, clReleaseCommandBufferKHR)

struct tx_cl_recorder {
#define X(name, function) function##_fn name;
    FUNCTION_MAP(X)
#undef X
};

struct tx_cl_recording {
    const tx_cl_recorder *recorder;
    cl_command_buffer_khr buffer;
};

static bool offers(const tx_context *context)
{
    const char *wish = getenv("TX_OCL_RECORD");
    char extensions[8192] = "";
    cl_device_command_buffer_capabilities_khr has = 0;
    cl_command_queue_properties needs = 0;
    /* A CPU device's time is the host's: PoCL is not faster for it. */
    if (wish && *wish ? strcmp(wish, "0") == 0 : context->limits.cpu)
        return false;
    if (clGetDeviceInfo(context->device, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL) != CL_SUCCESS ||
        !strstr(extensions, "cl_khr_command_buffer"))
        return false;
    if (clGetDeviceInfo(context->device, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR, sizeof has, &has, NULL) ||
        clGetDeviceInfo(context->device, CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR, sizeof needs, &needs,
                        NULL))
        return false;
    /* A step is given before the one before has ended; the queue is in order. */
    return (has & CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR) && needs == 0;
}

tx_cl_recorder *tx_cl_recorder_of(const tx_context *context)
{
    tx_cl_recorder *recorder = offers(context) ? calloc(1, sizeof *recorder) : NULL;
    if (!recorder)
        return NULL;
    bool whole = true;
    void *found;
#define X(name, function)                                                                 \
    found = clGetExtensionFunctionAddressForPlatform(context->platform, #function);       \
    memcpy(&recorder->name, &found, sizeof found); /* ISO C casts no data to functions */ \
    whole &= found != NULL;
    FUNCTION_MAP(X)
#undef X
    if (whole)
        return recorder;
    free(recorder);
    return NULL;
}

/* TX_OK, or what went wrong and how to do without. */
static tx_status check(cl_int code, const char *call)
{
    tx_status status = tx_cl_check(code, call);
    return status ? tx_fail_in(status, "recording launches (TX_OCL_RECORD=0 does without)") : TX_OK;
}

tx_status tx_cl_record_begin(const tx_context *context, tx_cl_recording **out)
{
    const cl_command_buffer_properties_khr properties[] = {CL_COMMAND_BUFFER_FLAGS_KHR,
                                                           CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0};
    tx_cl_recording *recording = calloc(1, sizeof *recording);
    cl_command_queue queue = context->compute;
    cl_int code;
    *out = NULL;
    if (!recording)
        return tx_fail(TX_MEMORY, "out of host memory");
    recording->recorder = context->recorder;
    recording->buffer = recording->recorder->create(1, &queue, properties, &code);
    if (code != CL_SUCCESS) {
        free(recording);
        return check(code, "clCreateCommandBufferKHR");
    }
    *out = recording;
    return TX_OK;
}

tx_status tx_cl_record_launch(tx_cl_recording *recording, const tx_cl_step *s)
{
    return check(recording->recorder->launch(recording->buffer, NULL, NULL, s->kernel, s->dims, NULL, s->global,
                                             s->has_local ? s->local : NULL, 0, NULL, NULL, NULL),
                 "clCommandNDRangeKernelKHR");
}

tx_status tx_cl_record_end(tx_cl_recording *recording)
{
    return check(recording->recorder->finalize(recording->buffer), "clFinalizeCommandBufferKHR");
}

tx_status tx_cl_record_play(const tx_cl_recording *recording)
{
    return check(recording->recorder->enqueue(0, NULL, recording->buffer, 0, NULL, NULL), "clEnqueueCommandBufferKHR");
}

void tx_cl_record_free(tx_cl_recording *recording)
{
    if (!recording)
        return;
    recording->recorder->release(recording->buffer);
    free(recording);
}
