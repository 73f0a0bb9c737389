/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates an OpenCL device of AMD. Preloaded by LD_PRELOAD, these functions replace libOpenCL's. amd_compile.py
 * compiles programs to AMD's machine code, and the emulator runs them in the memory of the local device (PoCL).
 * CL_DEVICE_NAME, which stand_in.c sets (TX_TEST_CARD), selects the card. A program's binary is its decoded image. */
#include "backends/opencl/runtime/cl.h"
#include "tests/opencl/amd/amd_wave.h"
#include "tests/opencl/answer.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_ARGUMENTS 64

extern char **environ;

struct _cl_program {
    atomic_int holders;
    char *text, *log;
    unsigned char *image;
    size_t size;
    bool open, gfx12;
    amd_program amd;
};

struct _cl_kernel {
    atomic_int holders;
    cl_program program;
    const amd_kernel *amd;
    struct argument {
        size_t size;
        unsigned char value[1024]; /* rotary passes a table */
    } argument[MOST_ARGUMENTS];
};

/* The compilers are programs as usual. */
__attribute__((constructor)) static void leave_children_alone(void)
{
    unsetenv("LD_PRELOAD");
}

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "amd_card: %s\n", what);
    abort();
}

static void *grown(void *p, size_t size)
{
    p = realloc(p, size);
    if (!p)
        stop("out of memory");
    return p;
}

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

EXPORT cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **text,
                                                        const size_t *size, cl_int *code)
{
    (void)context;
    char *whole = NULL;
    size_t bytes = 0;
    for (cl_uint n = 0; n < count; n++) {
        const size_t more = size && size[n] ? size[n] : strlen(text[n]);
        whole = grown(whole, bytes + more + 1);
        memcpy(whole + bytes, text[n], more);
        bytes += more;
        whole[bytes] = '\0';
    }
    cl_program made = grown(NULL, sizeof *made);
    *made = (struct _cl_program){.holders = 1, .text = whole};
    *code = CL_SUCCESS;
    return made;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                                        const size_t *size, const unsigned char **binary,
                                                        cl_int *verdict, cl_int *code)
{
    (void)context, (void)count, (void)devices;
    cl_program made = grown(NULL, sizeof *made);
    *made = (struct _cl_program){.holders = 1, .image = grown(NULL, *size), .size = *size};
    memcpy(made->image, *binary, *size);
    *verdict = *code = CL_SUCCESS;
    return made;
}

EXPORT cl_int CL_API_CALL clRetainProgram(cl_program p)
{
    p->holders++;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clReleaseProgram(cl_program p)
{
    if (--p->holders > 0)
        return CL_SUCCESS;
    if (p->open)
        amd_close(&p->amd);
    free(p->image);
    free(p->text);
    free(p->log);
    free(p);
    return CL_SUCCESS;
}

/* Reads a whole file and appends a NUL. Returns NULL if the file cannot be read. */
static void *read_file(const char *path, size_t *size)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    if (fstat(fileno(file), &about) != 0)
        stop("a file cannot be read");
    *size = (size_t)about.st_size;
    char *bytes = grown(NULL, *size + 1);
    bytes[*size] = '\0';
    if (fread(bytes, 1, *size, file) != *size)
        stop("a file cannot be read");
    fclose(file);
    return bytes;
}

/* Runs amd_compile.py, which writes to `log`. */
static bool compile(char *target, char *text, char *image, const char *log, char *options)
{
    char *words[64] = {"python3", AMD_COMPILE, target, text, image}, *rest = NULL;
    int count = 5, status = 1;
    pid_t child;
    posix_spawn_file_actions_t actions;
    for (char *word = strtok_r(options, " ", &rest); word && count < 63; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawnp(&child, words[0], &actions, NULL, words, environ) == 0)
        waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

static void compile_text(cl_program p, char *target, char *options)
{
    char folder[] = "/tmp/tx-amd-XXXXXX", text[64], image[64], log[64];
    size_t size;
    if (!mkdtemp(folder))
        stop("no folder for files");
    snprintf(text, sizeof text, "%s/text.cl", folder);
    snprintf(image, sizeof image, "%s/image", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    FILE *file = fopen(text, "w");
    if (!file || fputs(p->text, file) < 0 || fclose(file) != 0)
        stop("a text cannot be written");
    if (compile(target, text, image, log, options))
        p->image = read_file(image, &p->size);
    p->log = read_file(log, &size);
    unlink(text);
    unlink(image);
    unlink(log);
    rmdir(folder);
}

EXPORT cl_int CL_API_CALL clBuildProgram(cl_program p, cl_uint count, const cl_device_id *devices, const char *options,
                                         void(CL_CALLBACK *notify)(cl_program, void *), void *data)
{
    (void)count, (void)notify, (void)data;
    char name[256] = "";
    clGetDeviceInfo(devices[0], CL_DEVICE_NAME, sizeof name, name, NULL);
    name[strcspn(name, ":")] = '\0';
    if (!p->image) {
        char *own = strdup(options);
        compile_text(p, name, own);
        free(own);
    }
    p->gfx12 = strncmp(name, "gfx12", 5) == 0;
    p->open = p->image && amd_open(&p->amd, p->image, p->size);
    return p->open ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

EXPORT cl_int CL_API_CALL clGetProgramBuildInfo(cl_program p, cl_device_id device, cl_program_build_info what,
                                                size_t size, void *value, size_t *whole)
{
    (void)device;
    const char *log = p->log ? p->log : "";
    return what == CL_PROGRAM_BUILD_LOG ? answer(log, strlen(log) + 1, size, value, whole) : CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clGetProgramInfo(cl_program p, cl_program_info what, size_t size, void *value, size_t *whole)
{
    if (what == CL_PROGRAM_BINARY_SIZES)
        return answer(&p->size, sizeof p->size, size, value, whole);
    if (what != CL_PROGRAM_BINARIES)
        return CL_INVALID_VALUE;
    memcpy(*(unsigned char **)value, p->image, p->size);
    return CL_SUCCESS;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static cl_kernel kernel_of(cl_program p, const amd_kernel *amd)
{
    cl_kernel made = grown(NULL, sizeof *made);
    *made = (struct _cl_kernel){.holders = 1, .program = p, .amd = amd};
    clRetainProgram(p);
    return made;
}

EXPORT cl_kernel CL_API_CALL clCreateKernel(cl_program p, const char *name, cl_int *code)
{
    *code = CL_SUCCESS;
    for (uint32_t n = 0; n < p->amd.header->kernels; n++)
        if (strcmp(p->amd.kernel[n].name, name) == 0)
            return kernel_of(p, &p->amd.kernel[n]);
    *code = CL_INVALID_KERNEL_NAME;
    return NULL;
}

EXPORT cl_int CL_API_CALL clCreateKernelsInProgram(cl_program p, cl_uint count, cl_kernel *kernels, cl_uint *all)
{
    if (all)
        *all = p->amd.header->kernels;
    for (uint32_t n = 0; kernels && n < count && n < p->amd.header->kernels; n++)
        kernels[n] = kernel_of(p, &p->amd.kernel[n]);
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clRetainKernel(cl_kernel k)
{
    k->holders++;
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clReleaseKernel(cl_kernel k)
{
    if (--k->holders > 0)
        return CL_SUCCESS;
    clReleaseProgram(k->program);
    free(k);
    return CL_SUCCESS;
}

EXPORT cl_int CL_API_CALL clGetKernelInfo(cl_kernel k, cl_kernel_info what, size_t size, void *value, size_t *whole)
{
    return what == CL_KERNEL_FUNCTION_NAME ? answer(k->amd->name, strlen(k->amd->name) + 1, size, value, whole)
                                           : CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel k, cl_device_id device, cl_kernel_work_group_info what,
                                                   size_t size, void *value, size_t *whole)
{
    (void)device;
    const size_t items = k->amd->most_items;
    const cl_ulong local = k->amd->local_bytes, own = k->amd->private_bytes;
    switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE:
        return answer(&items, sizeof items, size, value, whole);
    case CL_KERNEL_LOCAL_MEM_SIZE:
        return answer(&local, sizeof local, size, value, whole);
    case CL_KERNEL_PRIVATE_MEM_SIZE:
        return answer(&own, sizeof own, size, value, whole);
    default:
        return CL_INVALID_VALUE;
    }
}

/* The kernel's own arguments are its first. */
static const amd_argument *argument_of(cl_kernel k, cl_uint index)
{
    const amd_argument *a = k->program->amd.argument + k->amd->first_argument + index;
    return index < k->amd->arguments && a->kind <= AMD_LOCAL ? a : NULL;
}

EXPORT cl_int CL_API_CALL clSetKernelArg(cl_kernel k, cl_uint index, size_t size, const void *value)
{
    const amd_argument *a = argument_of(k, index);
    if (!a || index >= MOST_ARGUMENTS)
        return CL_INVALID_ARG_INDEX;
    if (a->kind != AMD_LOCAL && (size != a->size || size > sizeof k->argument[index].value))
        return CL_INVALID_ARG_SIZE;
    k->argument[index].size = size;
    memset(k->argument[index].value, 0, sizeof k->argument[index].value);
    if (value)
        memcpy(k->argument[index].value, value, size);
    return CL_SUCCESS;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

typedef struct call {
    cl_command_queue queue;
    cl_kernel kernel;
    amd_launch launch;
    unsigned char *bytes; /* the arguments, as the kernel reads them */
    amd_range range[MOST_ARGUMENTS + 3];
    cl_mem mapped[MOST_ARGUMENTS];
} call;

static void set(call *c, const amd_argument *a, uint64_t value)
{
    memcpy(c->bytes + a->offset, &value, a->size);
}

/* The buffer's memory. When it has been mapped all commands before this one are done. */
static void set_buffer(call *c, const amd_argument *a, cl_mem buffer)
{
    size_t size = 0;
    cl_int code = CL_SUCCESS;
    if (!buffer)
        return;
    clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL);
    void *place =
        clEnqueueMapBuffer(c->queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        stop("a buffer cannot be mapped");
    c->mapped[c->launch.ranges] = buffer;
    c->range[c->launch.ranges++] = (amd_range){(uint64_t)(uintptr_t)place, size};
    set(c, a, (uint64_t)(uintptr_t)place);
}

static void set_all(call *c)
{
    const amd_kernel *amd = c->kernel->amd;
    const amd_argument *a = c->kernel->program->amd.argument + amd->first_argument;
    for (uint32_t n = 0; n < amd->arguments; n++, a++) {
        const struct argument *own = &c->kernel->argument[n];
        cl_mem buffer;
        memcpy(&buffer, own->value, sizeof buffer);
        if (a->kind == AMD_GLOBAL) {
            set_buffer(c, a, buffer);
        } else if (a->kind == AMD_LOCAL) {
            c->launch.local_bytes = (c->launch.local_bytes + a->align - 1) / a->align * a->align;
            set(c, a, c->launch.local_bytes);
            c->launch.local_bytes += (uint32_t)own->size;
        } else if (a->kind == AMD_BY_VALUE) {
            memcpy(c->bytes + a->offset, own->value, a->size);
        }
    }
}

static cl_int set_sizes(call *c, cl_uint dims, const size_t *global, const size_t *local)
{
    const amd_kernel *amd = c->kernel->amd;
    uint32_t items = 1;
    for (cl_uint n = 0; n < 3; n++) {
        const uint32_t all = n < dims ? (uint32_t)global[n] : 1;
        uint32_t group = n >= dims ? 1 : local ? (uint32_t)local[n] : amd->group[n];
        for (group = group ? group : 64; !local && all % group; group /= 2) {
        }
        if (all % group != 0 || (amd->group[n] && amd->group[n] != group))
            return CL_INVALID_WORK_GROUP_SIZE;
        c->launch.items[n] = group;
        c->launch.groups[n] = all / group;
        items *= group;
    }
    return items <= amd->most_items ? CL_SUCCESS : CL_INVALID_WORK_GROUP_SIZE;
}

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                 const size_t *first, const size_t *global, const size_t *local,
                                                 cl_uint count, const cl_event *wait, cl_event *event)
{
    const amd_kernel *amd = kernel->amd;
    cl_program p = kernel->program;
    call c = {.queue = queue, .kernel = kernel, .bytes = calloc(1, AMD_ARGUMENT_BYTES(amd))};
    c.launch = (amd_launch){&p->amd, amd, p->gfx12, {0}, {0}, amd->local_bytes, c.bytes, c.range, 0};
    if (!c.bytes || first)
        stop("a grid with an offset");
    cl_int code = set_sizes(&c, dims, global, local);
    if (code == CL_SUCCESS && count > 0)
        code = clWaitForEvents(count, wait);
    if (code == CL_SUCCESS) {
        set_all(&c);
        amd_run(&c.launch);
        for (int n = 0; n < c.launch.ranges; n++)
            clEnqueueUnmapMemObject(queue, c.mapped[n], (void *)(uintptr_t)c.range[n].first, 0, NULL,
                                    NULL); /* NOLINT */
        if (event)
            code = clEnqueueMarkerWithWaitList(queue, 0, NULL, event);
    }
    free(c.bytes);
    return code;
}
