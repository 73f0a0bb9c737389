/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports facts about a device: its OpenCL properties, how TX classifies it, and how its compiler built the kernels.
 * People use this report to diagnose problems on devices that they do not have.
 */
#include "api/base/number.h"
#include "backends/opencl/runtime/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void add_text(FILE *to, cl_device_id device, const char *key, cl_device_info parameter)
{
    char text[8192] = "";
    if (clGetDeviceInfo(device, parameter, sizeof text, text, NULL) == CL_SUCCESS)
        fprintf(to, "%s\t%s\n", key, text);
}

static void add_number(FILE *to, cl_device_id device, const char *key, cl_device_info parameter)
{
    const int64_t value = tx_cl_number(device, parameter, -1);
    if (value >= 0)
        fprintf(to, "%s\t%" PRId64 "\n", key, value);
}

static void add_device(FILE *to, cl_device_id device)
{
    add_number(to, device, "vendor id", CL_DEVICE_VENDOR_ID);
    add_number(to, device, "clock MHz", CL_DEVICE_MAX_CLOCK_FREQUENCY);
    add_number(to, device, "compute units", CL_DEVICE_MAX_COMPUTE_UNITS);
    add_number(to, device, "work-group items", CL_DEVICE_MAX_WORK_GROUP_SIZE);
    add_number(to, device, "memory bytes", CL_DEVICE_GLOBAL_MEM_SIZE);
    add_number(to, device, "allocation bytes", CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    add_number(to, device, "cache bytes", CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    add_number(to, device, "local memory bytes", CL_DEVICE_LOCAL_MEM_SIZE);
    add_number(to, device, "alignment bits", CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    add_number(to, device, "memory shared with the host", CL_DEVICE_HOST_UNIFIED_MEMORY);
    add_number(to, device, "memory with error correction", CL_DEVICE_ERROR_CORRECTION_SUPPORT);
    add_number(to, device, "timer ns", CL_DEVICE_PROFILING_TIMER_RESOLUTION);
    add_text(to, device, "version", CL_DEVICE_VERSION);
    add_text(to, device, "compiler's version", CL_DEVICE_OPENCL_C_VERSION);
    add_text(to, device, "extensions", CL_DEVICE_EXTENSIONS);
}

static void add_classification(FILE *to, const tx_context *c)
{
    fprintf(to, "TX architecture\t%s\n", c->can.architecture[0] ? c->can.architecture : "unknown");
    fprintf(to, "TX matrix units take\t%s%s%s%s\n", c->can.f16 ? "f16 " : "", c->can.bf16 ? "bf16 " : "",
            c->can.tf32 ? "tf32" : "", c->can.f16 || c->can.bf16 || c->can.tf32 ? "" : "nothing");
    fprintf(to, "TX items in step\t%" PRId32 "\n", c->can.sub_group);
    fprintf(to, "TX units that run work-groups\t%" PRId32 "\n", c->can.units);
    fprintf(to, "TX kernels\t%s\n", c->limits.cpu ? "for CPUs" : "for GPUs");
    fprintf(to, "TX work-group items\t%zu\n", c->limits.max_group);
    fprintf(to, "TX local memory bytes\t%" PRId64 "\n", c->limits.local_bytes);
    fprintf(to, "TX allocation bytes\t%" PRId64 "\n", c->limits.max_allocation);
    fprintf(to, "TX lanes\t%" PRId32 "\n", c->limits.lanes);
    tx_print(to, "TX operations of a launch\t%.3g\n", c->limits.launch_work);
    fprintf(to, "TX programs compiled at a time\t%" PRId32 "\n", c->limits.compilers);
    fprintf(to, "TX programs are cached\t%s\n", c->cache ? "yes" : "no");
    fprintf(to, "TX came with compiled programs\t%s\n", tx_cl_shipped_digest(c) ? "yes" : "no");
    if (c->limits.simulated[0])
        fprintf(to, "TX simulated\t%s\n", c->limits.simulated);
}

/* Private memory holds spilled registers and indexed arrays. */
static void add_kernel(FILE *to, cl_device_id device, const char *options, cl_kernel kernel)
{
    char name[128] = "";
    cl_ulong private_bytes = 0, local_bytes = 0;
    size_t group = 0;
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private_bytes, &private_bytes, NULL);
    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_bytes, &local_bytes, NULL);
    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof group, &group, NULL);
    fprintf(to, TX_FACT_KERNEL "%s%s%s\tprivate %" PRIu64 ", local %" PRIu64 " bytes, work-groups of up to %zu\n", name,
            *options ? " " : "", options, (uint64_t)private_bytes, (uint64_t)local_bytes, group);
}

static void add_kernels(FILE *to, cl_device_id device, const tx_cl_program *p)
{
    cl_uint count = 0;
    if (!p->program || clCreateKernelsInProgram(p->program, 0, NULL, &count) != CL_SUCCESS || count == 0)
        return;
    cl_kernel *kernel = calloc(count, sizeof *kernel);
    if (kernel && clCreateKernelsInProgram(p->program, count, kernel, NULL) == CL_SUCCESS)
        for (cl_uint i = 0; i < count; i++) {
            add_kernel(to, device, p->options, kernel[i]);
            clReleaseKernel(kernel[i]);
        }
    free(kernel);
}

tx_status tx_cl_facts(const tx_context *context, char **text)
{
    char *made = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&made, &size);
    if (!to)
        return tx_fail(TX_MEMORY, "out of host memory");
    add_device(to, context->device);
    add_classification(to, context);
    for (const tx_cl_program *p = context->programs; p; p = p->next)
        add_kernels(to, context->device, p);
    if (fclose(to)) {
        free(made);
        return tx_fail(TX_MEMORY, "out of host memory");
    }
    *text = made;
    return TX_OK;
}
