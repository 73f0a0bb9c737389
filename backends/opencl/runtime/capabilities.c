/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects the vendor and architecture of a device from identifiers, names, extensions and vendor-specific queries.
 * Whether a driver really supports a feature is found by measurement (tune/gemm_trial.c, tune/attention_trial.c).
 */
#include "backends/opencl/runtime/internal.h"

#include <stdio.h>
#include <string.h>

/* Parameters of cl_nv_device_attribute_query, cl_amd_device_attribute_query, cl_intel_device_attribute_query and
 * cl_intel_required_subgroup_size. */
enum {
    COMPUTE_CAPABILITY_MAJOR_NV = 0x4000,
    COMPUTE_CAPABILITY_MINOR_NV = 0x4001,
    WARP_SIZE_NV = 0x4003,
    WAVEFRONT_WIDTH_AMD = 0x4043,
    IP_VERSION_INTEL = 0x4250,
    NUM_EUS_PER_SUB_SLICE_INTEL = 0x4254,
    SUB_GROUP_SIZES_INTEL = 0x4108
};

int64_t tx_cl_number(cl_device_id device, cl_device_info what, int64_t missing)
{
    union {
        cl_ulong wide;
        cl_uint narrow;
    } value;
    size_t size = 0;
    if (clGetDeviceInfo(device, what, sizeof value, &value, &size) != CL_SUCCESS)
        return missing;
    const cl_ulong number = size == sizeof value.narrow ? value.narrow : value.wide;
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static cl_uint query(cl_device_id device, cl_device_info what)
{
    return (cl_uint)tx_cl_number(device, what, 0);
}

static bool has_extension(cl_device_id device, const char *name)
{
    char text[8192] = "", *rest = NULL;
    if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL) != CL_SUCCESS)
        return false;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        if (strcmp(word, name) == 0)
            return true;
    return false;
}

static void read_nvidia(cl_device_id device, tx_cl_capabilities *c)
{
    const cl_uint capability =
        10 * query(device, COMPUTE_CAPABILITY_MAJOR_NV) + query(device, COMPUTE_CAPABILITY_MINOR_NV);
    if (capability > 0)
        snprintf(c->architecture, sizeof c->architecture, "sm_%u", capability);
    c->sub_group = (int32_t)query(device, WARP_SIZE_NV);
    c->f16 = capability >= 70;
    c->bf16 = c->tf32 = capability >= 80;
}

/* ROCm names devices after their architectures: "gfx90a:sramecc+:xnack-". */
static void read_amd(cl_device_id device, const char *name, tx_cl_capabilities *c)
{
    static const char *const matrix[] = {"gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12"};
    if (strncmp(name, "gfx", 3) == 0)
        snprintf(c->architecture, sizeof c->architecture, "%.*s", (int)strcspn(name, ":"), name);
    for (size_t i = 0; i < sizeof matrix / sizeof matrix[0]; i++)
        c->bf16 = c->bf16 || strncmp(c->architecture, matrix[i], strlen(matrix[i])) == 0;
    c->f16 = c->bf16;
    c->tf32 = strcmp(c->architecture, "gfx942") == 0;
    c->sub_group = (int32_t)query(device, WAVEFRONT_WIDTH_AMD);
}

/* The version A.B of the graphics core: A is in the upper 10 bits, B in the next 8. */
static const char *xe_generation(cl_uint version)
{
    const cl_uint major = version >> 22, minor = version >> 14 & 255;
    if (major == 12)
        return minor < 50 ? "xe-lp" : minor < 60 ? "xe-hpg" : minor < 70 ? "xe-hpc" : "xe-lpg";
    return major == 20 ? "xe2" : major == 30 ? "xe3" : "";
}

/* Intel's drivers count vector engines. A work-group runs on a sub-slice ("Xe core") of 8 or 16 engines. */
static void read_intel(cl_device_id device, tx_cl_capabilities *c)
{
    const cl_uint engines = query(device, NUM_EUS_PER_SUB_SLICE_INTEL);
    size_t sizes[8] = {0};
    snprintf(c->architecture, sizeof c->architecture, "%s", xe_generation(query(device, IP_VERSION_INTEL)));
    c->f16 = c->bf16 = has_extension(device, "cl_intel_subgroup_matrix_multiply_accumulate");
    c->tf32 = has_extension(device, "cl_intel_subgroup_matrix_multiply_accumulate_tf32");
    if (clGetDeviceInfo(device, SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, NULL) == CL_SUCCESS)
        c->sub_group = (int32_t)sizes[0];
    if (engines > 1)
        c->units = (int32_t)tx_cl_blocks(c->units, (int64_t)engines);
}

/* PoCL's devices are this host, and its compiler supports inline assembly. */
static void read_cpu(const tx_device_info *info, tx_cl_capabilities *c)
{
#if defined(__x86_64__)
    c->bf16 = strcmp(info->platform, "Portable Computing Language") == 0 && __builtin_cpu_supports("avx512bf16");
#else
    (void)info;
    (void)c;
#endif
}

void tx_cl_read_capabilities(cl_device_id device, const tx_device_info *info, tx_cl_capabilities *c)
{
    const cl_uint vendor = info->type == TX_DEVICE_GPU ? query(device, CL_DEVICE_VENDOR_ID) : 0;
    *c = (tx_cl_capabilities){.vendor = vendor == TX_CL_NVIDIA || vendor == TX_CL_AMD || vendor == TX_CL_INTEL
                                            ? (tx_cl_vendor)vendor
                                            : TX_CL_OTHER,
                              .units = info->compute_units};
    if (c->vendor == TX_CL_NVIDIA)
        read_nvidia(device, c);
    else if (c->vendor == TX_CL_AMD)
        read_amd(device, info->name, c);
    else if (c->vendor == TX_CL_INTEL)
        read_intel(device, c);
    else if (info->type == TX_DEVICE_CPU)
        read_cpu(info, c);
}
