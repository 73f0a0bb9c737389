/* SPDX-License-Identifier: Apache-2.0
 * Simulated cards, see stand_in.h. */
#include "tests/opencl/stand_in.h"

#include "tests/opencl/answer.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name) REAL_AS(name, real)
#define REAL_AS(name, as)        \
    static __typeof__(&name) as; \
    if (!as)                     \
        *(void **)&as = dlsym(RTLD_NEXT, #name);

stand_in_state stand_in;

/* As a library of its own (LD_PRELOAD) and in workers: TX_TEST_CARD names the card, each build takes TX_TEST_DELAY
 * seconds longer, and workers crash while they build a source that contains TX_TEST_CRASH. PoCL does not load real
 * PTX, with which TX may have been built. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *delay = getenv("TX_TEST_DELAY"), *crash = getenv("TX_TEST_CRASH");
    stand_in.card = getenv("TX_TEST_CARD");
    setenv("TX_PTX", "", 0);
    stand_in.delay = delay ? (unsigned)atoi(delay) : 0;
    if (crash && strcmp(program_invocation_name, "tx-kernels") == 0) {
        stand_in.failure = STAND_IN_BUILD_CRASH;
        stand_in.what = crash;
    }
}

typedef struct card {
    const char *id, *name, *vendor;
    cl_uint vendor_id;
    const char *version, *driver, *extensions;
    cl_uint units;
    size_t group;
    cl_ulong local, memory, allocation;
    cl_uint sub_group, architecture, engines;
} card;

static const card cards[] = {
#define CARD(id, name, vendor, number, version, driver, extensions, units, group, local, memory, allocation, ...) \
    {#id,                                                                                                         \
     name,                                                                                                        \
     vendor,                                                                                                      \
     number,                                                                                                      \
     version,                                                                                                     \
     driver,                                                                                                      \
     extensions,                                                                                                  \
     units,                                                                                                       \
     group,                                                                                                       \
     (cl_ulong)local << 10,                                                                                       \
     (cl_ulong)memory << 20,                                                                                      \
     (cl_ulong)allocation << 20,                                                                                  \
     __VA_ARGS__},
#include "tests/opencl/cards.def"
};
#define CARDS (sizeof cards / sizeof cards[0])

const char *stand_in_card(int i)
{
    return (size_t)i < CARDS ? cards[i].id : NULL;
}

static const card *claimed(void)
{
    for (size_t i = 0; stand_in.card && i < CARDS; i++)
        if (strcmp(cards[i].id, stand_in.card) == 0)
            return &cards[i];
    return NULL;
}

/* ---- Answers to queries of the device -------------------------------------------------------------------------- */

#define ANSWER(...) return answer((__VA_ARGS__), sizeof *(__VA_ARGS__), size, value, whole)
#define TEXT(text) return answer(text, strlen(text) + 1, size, value, whole)

/* Questions of the vendors' extensions: those of others are not known. */
static cl_int ask_vendor(const card *c, cl_device_info what, size_t size, void *value, size_t *whole)
{
    const bool nvidia = c->vendor_id == TX_CL_NVIDIA, intel = c->engines > 0;
    const cl_uint major = c->architecture / 10, minor = c->architecture % 10;
    const size_t sub_groups[] = {c->sub_group, 2 * c->sub_group};
    if (what == 0x4000 && nvidia)
        ANSWER(&major);
    if (what == 0x4001 && nvidia)
        ANSWER(&minor);
    if ((what == 0x4003 && nvidia) || (what == 0x4043 && strstr(c->extensions, "cl_amd_")))
        ANSWER(&c->sub_group);
    if (what == 0x4038 && strstr(c->extensions, "cl_amd_")) /* the board's name */
        TEXT(c->name);
    if (what == 0x4250 && intel)
        ANSWER(&c->architecture);
    if (what == 0x4254 && intel)
        ANSWER(&c->engines);
    if (what == 0x4108 && intel)
        ANSWER(&sub_groups);
    return CL_INVALID_VALUE;
}

EXPORT cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t size, void *value,
                                          size_t *whole)
{
    REAL(clGetDeviceInfo)
    const card *c = claimed();
    const cl_device_type type = CL_DEVICE_TYPE_GPU;
    if (!c)
        return real(device, what, size, value, whole);
    const size_t items[3] = {c->group, c->group, 64};
    switch (what) {
    case CL_DEVICE_TYPE:
        ANSWER(&type);
    case CL_DEVICE_NAME:
        TEXT(c->name);
    case CL_DEVICE_VENDOR:
        TEXT(c->vendor);
    case CL_DEVICE_VENDOR_ID:
        ANSWER(&c->vendor_id);
    case CL_DEVICE_VERSION:
        TEXT(c->version);
    case CL_DRIVER_VERSION:
        TEXT(c->driver);
    case CL_DEVICE_EXTENSIONS:
        TEXT(c->extensions);
    case CL_DEVICE_MAX_COMPUTE_UNITS:
        ANSWER(&c->units);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        ANSWER(&c->group);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        ANSWER(&items);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        ANSWER(&c->local);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        ANSWER(&c->memory);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        ANSWER(&c->allocation);
    default:
        return what >= 0x4000 ? ask_vendor(c, what, size, value, whole) : real(device, what, size, value, whole);
    }
}

/* The size of a kernel's private memory. */
static cl_ulong spilled_by(cl_kernel kernel, cl_device_id device)
{
    char options[1024] = "";
    cl_program program = NULL;
    clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL);
    return strstr(options, stand_in.spills) ? 512 : 0;
}

EXPORT cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                                   cl_kernel_work_group_info what, size_t size, void *value,
                                                   size_t *whole)
{
    REAL(clGetKernelWorkGroupInfo)
    if (what == CL_KERNEL_WORK_GROUP_SIZE && stand_in.most_group > 0)
        ANSWER(&stand_in.most_group);
    if (what == CL_KERNEL_PRIVATE_MEM_SIZE && stand_in.spills) {
        const cl_ulong bytes = spilled_by(kernel, device);
        ANSWER(&bytes);
    }
    return real(kernel, device, what, size, value, whole);
}

/* ---- Refused calls ---------------------------------------------------------------------------------------------- */

static bool fails(stand_in_call call)
{
    const long number = ++stand_in.calls[call];
    if (stand_in.fails != call || stand_in.at == 0 || number < stand_in.at || number - stand_in.at >= stand_in.times)
        return false;
    stand_in.failed = true;
    return true;
}

/* Copies build options without those that only Intel's GPU compiler accepts. */
static void without_options(const char *options, char *text, size_t size)
{
    static const char own[] = "-cl-intel-256-GRF-per-thread";
    const char *at = strstr(options, own);
    const int before = (int)(at ? (size_t)(at - options) : strlen(options));
    snprintf(text, size, "%.*s%s", before, options, at ? at + strlen(own) : "");
}

EXPORT cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                                         const char *options, void(CL_CALLBACK *notify)(cl_program, void *), void *data)
{
    REAL(clBuildProgram)
    char text[1024] = "";
    stand_in.beside += gettid() != getpid();
    sleep(stand_in.delay);
    if (options)
        without_options(options, text, sizeof text);
    stand_in_before_build(program, text, sizeof text);
    return fails(STAND_IN_BUILD) ? CL_BUILD_PROGRAM_FAILURE : real(program, count, devices, text, notify, data);
}

EXPORT cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char *name, cl_int *code)
{
    REAL(clCreateKernel)
    if (!fails(STAND_IN_KERNEL))
        return real(program, name, code);
    *code = CL_OUT_OF_RESOURCES;
    return NULL;
}

static void broken(cl_kernel kernel, const char *what, size_t value, size_t most)
{
    char name[64] = "";
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (!stand_in.broken[0])
        snprintf(stand_in.broken, sizeof stand_in.broken, "%s: %s of %zu, at most %zu", name, what, value, most);
}

/* NVIDIA's grids have at most 2^16 - 1 work-groups in all dimensions except the first. */
#define MOST_GROUPS 65535

static bool takes(cl_kernel kernel, cl_uint dims, const size_t *global, const size_t *local)
{
    const card *c = claimed();
    const size_t most = stand_in.most_group ? stand_in.most_group : c ? c->group : SIZE_MAX;
    size_t items = 1;
    for (cl_uint i = 0; local && i < dims; i++) {
        items *= local[i];
        if (c && i > 0 && global[i] / local[i] > MOST_GROUPS)
            broken(kernel, "a grid", global[i] / local[i], MOST_GROUPS);
    }
    if (items > most)
        broken(kernel, "a work-group", items, most);
    return items <= most;
}

static double groups_of(cl_uint dims, const size_t *global, const size_t *local)
{
    double groups = 1.0;
    for (cl_uint i = 0; i < dims; i++)
        groups *= (double)global[i] / (double)(local ? local[i] : 1);
    return groups;
}

EXPORT cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                 const size_t *first, const size_t *global, const size_t *local,
                                                 cl_uint count, const cl_event *wait, cl_event *event)
{
    REAL(clEnqueueNDRangeKernel)
    if (fails(STAND_IN_ENQUEUE))
        return CL_OUT_OF_RESOURCES;
    if (!takes(kernel, dims, global, local))
        return CL_INVALID_WORK_GROUP_SIZE;
    const cl_int code = stand_in_before_launch(queue, kernel);
    if (code != CL_SUCCESS)
        return code;
    if (stand_in.slow > 0.0)
        usleep((useconds_t)(1e6 * stand_in.slow * groups_of(dims, global, local)));
    return real(queue, kernel, dims, first, global, local, count, wait, event);
}

/* ---- Matrix units ------------------------------------------------------------------------------------------------ */

static const char emulated[] = {
#include "matrix_emulated.h"
    0};

/* `text` with every `from` replaced. Takes `text`. */
static char *replace(char *text, const char *from, const char *to)
{
    size_t count = 1;
    for (const char *at = text; (at = strstr(at, from)) != NULL; at++)
        count++;
    char *made = malloc(strlen(text) + count * strlen(to) + 1), *end = made;
    if (!made)
        abort();
    const char *rest = text;
    for (const char *at; (at = strstr(rest, from)) != NULL; rest = at + strlen(from))
        end += sprintf(end, "%.*s%s", (int)(at - rest), rest, to);
    strcpy(end, rest);
    free(text);
    return made;
}

/* gemm_matrix.cl with its instructions computed. Loops stay loops, for PoCL takes each barrier as the end of a
 * part. */
static char *without_matrix_units(const char *text)
{
    char *made = strdup(text);
    if (!made)
        abort();
    made = replace(made, "#if !EMULATED", emulated);
    made = replace(made, "\"//@90a ", "\"");
    made = replace(made, "static void ", "static __attribute__((always_inline)) void ");
    return replace(made, "#pragma unroll", "");
}

/* NVIDIA's driver compiles for the card's architecture, and a program's binary is its PTX. Here PTX is a comment with
 * its first lines, then the program's source. */
#define PTX "/*\n.version "

EXPORT cl_program CL_API_CALL clCreateProgramWithSource(cl_context context, cl_uint count, const char **text,
                                                        const size_t *size, cl_int *code)
{
    REAL(clCreateProgramWithSource)
    const card *c = claimed();
    stand_in.sources++;
    if (count != 1 || !strstr(text[0], "mma.sync.aligned"))
        return real(context, count, text, size, code);
    char *made = without_matrix_units(text[0]), *whole = malloc(strlen(made) + 96);
    if (!whole)
        abort();
    sprintf(whole, PTX "9.0\n.target sm_%u, texmode_independent\n.address_size 64\n*/\n%s", c ? c->architecture : 0,
            made);
    cl_program program =
        real(context, 1, (const char **)(c && c->vendor_id == TX_CL_NVIDIA ? &whole : &made), NULL, code);
    free(made);
    free(whole);
    return program;
}

/* Returns the text of a program whose binary is PTX, or NULL for other programs. */
static char *ptx_of(cl_program program, size_t *size)
{
    char *text = NULL;
    if (clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, size) == CL_SUCCESS && *size > 0 &&
        !(text = malloc(*size)))
        abort();
    if (text && clGetProgramInfo(program, CL_PROGRAM_SOURCE, *size, text, NULL) == CL_SUCCESS &&
        strncmp(text, PTX, strlen(PTX)) == 0)
        return text;
    free(text);
    return NULL;
}

EXPORT cl_int CL_API_CALL clGetProgramInfo(cl_program program, cl_program_info what, size_t size, void *value,
                                           size_t *whole)
{
    REAL(clGetProgramInfo)
    size_t bytes = 0;
    char *ptx = what == CL_PROGRAM_BINARY_SIZES || what == CL_PROGRAM_BINARIES ? ptx_of(program, &bytes) : NULL;
    if (!ptx)
        return real(program, what, size, value, whole);
    if (what == CL_PROGRAM_BINARY_SIZES)
        *(size_t *)value = bytes;
    else
        memcpy(*(unsigned char **)value, ptx, bytes);
    free(ptx);
    return CL_SUCCESS;
}

EXPORT cl_program CL_API_CALL clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                                        const size_t *sizes, const unsigned char **binaries,
                                                        cl_int *verdicts, cl_int *code)
{
    REAL(clCreateProgramWithBinary)
    REAL_AS(clCreateProgramWithSource, from_source)
    const char *text = (const char *)binaries[0];
    if (sizes[0] <= strlen(PTX) || strncmp(text, PTX, strlen(PTX)) != 0)
        return real(context, count, devices, sizes, binaries, verdicts, code);
    stand_in.ptx++;
    char *whole = strndup(text, sizes[0]);
    char *made = whole && strstr(whole, "mma.sync.aligned") ? without_matrix_units(whole) : strdup(whole);
    cl_program program = from_source(context, 1, (const char **)&made, NULL, code);
    free(whole);
    free(made);
    return program;
}
