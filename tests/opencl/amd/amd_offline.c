/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds recorded programs (kernel_texts.c) with AMD's own OpenCL runtime, which offers devices without hardware
 * (extension cl_amd_offline_devices).
 *
 *     amd_offline TARGET FOLDER    for example: amd_offline gfx942 FOLDER; a line of FOLDER/programs.tsv is the source
 *                                  and the options of a program
 *
 * Prints each program that does not build and each kernel that spills registers to memory. Exit status 77: there is no
 * such runtime or device. */
#include "backends/opencl/runtime/cl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OFFLINE_DEVICES_AMD = 0x403F, DEVICES = 1024, TEXT = 1 << 20 };

/* Finds the device of the target in a context of all offline devices. */
static cl_context open_target(const char *target, cl_device_id *found)
{
    cl_platform_id platform = NULL;
    static cl_device_id devices[DEVICES];
    char name[256];
    size_t bytes = 0;
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS)
        return NULL;
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                                OFFLINE_DEVICES_AMD, 1, 0};
    cl_context context = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, NULL);
    if (!context || clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, &bytes) != CL_SUCCESS)
        return NULL;
    for (size_t i = 0; i < bytes / sizeof devices[0]; i++)
        if (clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof name, name, NULL) == CL_SUCCESS &&
            strcmp(name, target) == 0)
            return *found = devices[i], context;
    return NULL;
}

static char *read_text(const char *folder, const char *source)
{
    char path[1024], *text = calloc(1, TEXT);
    snprintf(path, sizeof path, "%s/%s.cl", folder, source);
    FILE *file = fopen(path, "r");
    if (!text || !file || fread(text, 1, TEXT - 1, file) == 0)
        return fprintf(stderr, "amd_offline: %s cannot be read\n", path), NULL;
    fclose(file);
    return text;
}

/* Returns the number of kernels of the program that spill. */
static int count_spills(cl_program program, cl_device_id device, const char *what)
{
    cl_kernel kernels[64];
    cl_uint count = 0;
    int spills = 0;
    if (clCreateKernelsInProgram(program, 64, kernels, &count) != CL_SUCCESS)
        return printf("FAIL %s: no kernels\n", what), 1;
    for (cl_uint i = 0; i < count; i++) {
        char name[128] = "";
        cl_ulong bytes = 0;
        clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
        clGetKernelWorkGroupInfo(kernels[i], device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof bytes, &bytes, NULL);
        if (bytes > 0)
            printf("SPILL %s: %s, %llu bytes\n", what, name, (unsigned long long)bytes);
        spills += bytes > 0;
        clReleaseKernel(kernels[i]);
    }
    return spills;
}

/* Builds one program. Returns the number of faults. */
static int build(cl_context context, cl_device_id device, const char *folder, const char *source, const char *options)
{
    static char log[65536];
    char what[4096], all[4096];
    char *text = read_text(folder, source);
    if (!text)
        return 1;
    snprintf(what, sizeof what, "%s.cl %s", source, options);
    snprintf(all, sizeof all, "-cl-std=CL1.2 -w %s", options);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&text, NULL, NULL);
    int faults = clBuildProgram(program, 1, &device, all, NULL, NULL) != CL_SUCCESS;
    if (faults) {
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        printf("FAIL %s: %.400s\n", what, log);
    } else {
        faults = count_spills(program, device, what);
    }
    clReleaseProgram(program);
    free(text);
    return faults;
}

int main(int argc, char **argv)
{
    static char line[8192];
    char path[1024];
    int faults = 0, programs = 0;
    cl_device_id device = NULL;
    cl_context context = argc == 3 ? open_target(argv[1], &device) : NULL;
    if (!context)
        return fprintf(stderr, "amd_offline: AMD's runtime offers no such device\n"), 77;
    snprintf(path, sizeof path, "%s/programs.tsv", argv[2]);
    FILE *list = fopen(path, "r");
    while (list && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = '\0';
        char *options = strchr(line, '\t');
        if (!options)
            continue;
        *options++ = '\0';
        faults += build(context, device, argv[2], line, options);
        programs++;
    }
    printf("%s: %d programs, %d faults\n", argv[1], programs, faults);
    return faults > 0 || programs == 0;
}
