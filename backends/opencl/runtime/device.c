/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenCL platforms and devices: enumeration, which tolerates broken installations, properties, opening and closing.
 */
#include "api/base/drivers.h"
#include "backends/opencl/gemm/gemm.h"
#include "backends/opencl/runtime/internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64

typedef struct device_list {
    int32_t count;
    cl_platform_id platform[MAX_DEVICES];
    cl_device_id device[MAX_DEVICES];
} device_list;

/* Returns true if TX can run on the device: it is available, has a compiler and is little-endian. */
static bool usable(cl_device_id device)
{
    return tx_cl_number(device, CL_DEVICE_AVAILABLE, 0) && tx_cl_number(device, CL_DEVICE_COMPILER_AVAILABLE, 0) &&
           tx_cl_number(device, CL_DEVICE_ENDIAN_LITTLE, 0);
}

static void load_drivers(void)
{
    cl_uint count = 0;
    /* PoCL compiles a kernel for its binary, and then again for each form of launch. TX's kernels have fixed sizes of
     * groups, so that the second form is no faster, and the first is the one that later starts have. */
    setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 0);
    clGetPlatformIDs(0, NULL, &count);
}

/* A missing driver, a platform without devices or a failing platform only means fewer devices, never a failure. */
static void list_here(device_list *list)
{
    cl_platform_id platforms[32];
    cl_uint platform_count = 0;
    list->count = 0;
    tx_load_drivers("", load_drivers);
    if (clGetPlatformIDs(32, platforms, &platform_count) != CL_SUCCESS)
        return;
    for (cl_uint p = 0; p < platform_count && p < 32; p++) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint count = 0;
        const cl_device_type types = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR;
        if (clGetDeviceIDs(platforms[p], types, MAX_DEVICES, devices, &count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < MAX_DEVICES && list->count < MAX_DEVICES; d++) {
            if (!usable(devices[d]))
                continue;
            list->platform[list->count] = platforms[p];
            list->device[list->count++] = devices[d];
        }
    }
}

static void device_text(cl_device_id device, cl_device_info what, char *text, size_t size)
{
    text[0] = '\0';
    char long_text[1024] = "";
    if (clGetDeviceInfo(device, what, sizeof long_text, long_text, NULL) == CL_SUCCESS)
        snprintf(text, size, "%.*s", (int)size - 1, long_text);
}

/* Functions that set the operand types for which extensions have providers. */
#define TX_OPERAND_TYPES(add) void add(const tx_cl_capabilities *can, tx_device_info *info);
#include "backends/opencl/extensions.def"
#undef TX_OPERAND_TYPES
static void (*const add_types[])(const tx_cl_capabilities *can, tx_device_info *info) = {
#define TX_OPERAND_TYPES(add) add,
#include "backends/opencl/extensions.def"
#undef TX_OPERAND_TYPES
    NULL};

static tx_status describe(cl_platform_id platform, cl_device_id device, int32_t index, tx_device_info *info,
                          tx_cl_capabilities *can, tx_cl_limits *limits)
{
    memset(info, 0, sizeof *info);
    snprintf(info->id, sizeof info->id, "opencl:%d", index);
    device_text(device, CL_DEVICE_NAME, info->name, sizeof info->name);
    device_text(device, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    device_text(device, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    char name[128] = "";
    if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL) == CL_SUCCESS)
        snprintf(info->platform, sizeof info->platform, "%.*s", (int)sizeof info->platform - 1, name);
    const cl_device_type type = (cl_device_type)tx_cl_number(device, CL_DEVICE_TYPE, 0);
    info->type = type & CL_DEVICE_TYPE_GPU   ? TX_DEVICE_GPU
                 : type & CL_DEVICE_TYPE_CPU ? TX_DEVICE_CPU
                                             : TX_DEVICE_OTHER;
    info->memory = tx_cl_number(device, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    info->max_allocation = tx_cl_number(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0);
    info->compute_units = (int32_t)tx_cl_number(device, CL_DEVICE_MAX_COMPUTE_UNITS, 0);
    tx_cl_read_capabilities(device, info, can);
    TX_TRY(tx_cl_read_limits(device, can, info, limits));
    info->bf16 = limits->cpu && can->bf16; /* gemm_vector.c */
    for (int i = 0; !limits->cpu && add_types[i]; i++)
        add_types[i](can, info);
    return TX_OK;
}

static tx_status rehearse(const void *unused)
{
    device_list list;
    tx_device_info info;
    tx_cl_capabilities can;
    tx_cl_limits limits;
    (void)unused;
    list_here(&list);
    for (int32_t i = 0; i < list.count; i++)
        (void)describe(list.platform[i], list.device[i], i, &info, &can, &limits);
    return TX_OK;
}

/* Restores the handlers of crashes: those of LLVM in a driver return, and then a signal that another process or abort()
 * sends does not reach the program's own handler. */
static void list_devices(device_list *list)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    enum { CRASHES = sizeof crashes / sizeof crashes[0] };
    struct sigaction before[CRASHES];
    bool known[CRASHES];
    list->count = 0;
    if (tx_rehearse_drivers(rehearse) != TX_OK)
        return;
    for (int i = 0; i < CRASHES; i++)
        known[i] = sigaction(crashes[i], NULL, &before[i]) == 0;
    list_here(list);
    for (int i = 0; i < CRASHES; i++)
        if (known[i])
            sigaction(crashes[i], &before[i], NULL);
}

tx_status tx_cl_device_count(int32_t *count)
{
    device_list list;
    list_devices(&list);
    *count = list.count;
    return TX_OK;
}

static tx_status find_device(int32_t index, device_list *list)
{
    list_devices(list);
    if (index < 0 || index >= list->count)
        return tx_fail(TX_NOT_FOUND, "no device opencl:%d; %d devices were found (see clinfo -l)", index, list->count);
    return TX_OK;
}

tx_status tx_cl_device_info(int32_t index, tx_device_info *info)
{
    device_list list;
    tx_cl_capabilities can;
    tx_cl_limits limits;
    tx_status status = find_device(index, &list);
    return status == TX_OK ? describe(list.platform[index], list.device[index], index, info, &can, &limits) : status;
}

/* Returns a text that changes whenever compiled code, a check result or a measurement may change. It has platform,
 * device and driver with versions, the variant of the kernels, simulated limits, and a digest of programs that came
 * with TX. */
static char *read_identity(const tx_context *context)
{
    char platform[256] = "", device[256] = "";
    clGetPlatformInfo(context->platform, CL_PLATFORM_VERSION, sizeof platform, platform, NULL);
    device_text(context->device, CL_DEVICE_VERSION, device, sizeof device);
    const tx_device_info *info = &context->info;
    const uint64_t digest = tx_cl_shipped_digest(context);
    char text[2048], shipped[24] = "";
    if (digest)
        snprintf(shipped, sizeof shipped, "%016" PRIx64 "\n", digest);
    snprintf(text, sizeof text, "TX " TX_VERSION "\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s", info->platform, platform,
             info->vendor, info->name, device, info->driver, context->limits.cpu ? "cpu" : "gpu",
             context->limits.simulated, shipped);
    return strdup(text);
}

#define TX_OPENED(open, close)                                           \
    tx_status open(tx_context *context, const tx_open_options *options); \
    void close(tx_context *context);
#include "backends/opencl/extensions.def"
#undef TX_OPENED

static const struct {
    tx_status (*open)(tx_context *context, const tx_open_options *options);
    void (*close)(tx_context *context);
} opened[] = {
#define TX_OPENED(open, close) {open, close},
#include "backends/opencl/extensions.def"
    {NULL, NULL}};

static tx_status make(const device_list *list, int32_t index, tx_context **context)
{
    *context = calloc(1, sizeof **context);
    if (!*context)
        return tx_fail(TX_MEMORY, "out of host memory");
    (*context)->platform = list->platform[index];
    (*context)->device = list->device[index];
    return TX_OK;
}

static tx_status identify(tx_context *context, int32_t index)
{
    tx_cl_cache_open(context);
    TX_TRY(describe(context->platform, context->device, index, &context->info, &context->can, &context->limits));
    context->identity = read_identity(context);
    return context->identity ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
}

/* The other process has rehearsed the drivers. */
tx_status tx_cl_open_plain(int32_t index, tx_context **context)
{
    device_list list;
    list_here(&list);
    if (index < 0 || index >= list.count)
        return tx_fail(TX_NOT_FOUND, "no device opencl:%d", index);
    TX_TRY(make(&list, index, context));
    TX_TRY(identify(*context, index));
    return tx_cl_make_context(*context);
}

tx_status tx_cl_open(int32_t index, const tx_open_options *options, tx_context **out)
{
    const char *gemm = getenv("TX_GEMM"), *parts = getenv("TX_GEMM_PARTS");
    device_list list;
    tx_context *context;
    TX_TRY(find_device(index, &list));
    TX_TRY(make(&list, index, &context));
    context->profile = options && options->profile;
    context->tf32 = options && options->tf32;
    context->report = options ? options->report : NULL;
    if (gemm)
        snprintf(context->gemm, sizeof context->gemm, "%s", gemm);
    if (parts)
        snprintf(context->parts, sizeof context->parts, "%s", parts);
    tx_status status = identify(context, index);
    if (status == TX_OK)
        tx_cl_journal_open(context);
    TX_THEN(status, tx_cl_make_context(context));
    for (int i = 0; opened[i].open; i++)
        TX_THEN(status, opened[i].open(context, options));
    if (status != TX_OK) {
        if (tx_cl_explain(context, status) != TX_MEMORY && status != TX_DEVICE)
            tx_fail_in(status, "%s (%s)", context->info.id, context->info.name);
        tx_cl_close(context);
        return status;
    }
    *out = context;
    return TX_OK;
}

void tx_cl_close(tx_context *context)
{
    if (!context)
        return;
    for (int i = 0; opened[i].close; i++)
        opened[i].close(context);
    tx_cl_drop_context(context);
    tx_cl_journal_close(context);
    free(context->identity);
    free(context->cache);
    free(context);
}
