/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the OpenCL backend: the opened device, the program cache, and the builder with which an op
 * says at prepare time what it launches. Files of this folder include this header and nothing of other backends. */
#ifndef TX_OPENCL_CL_H
#define TX_OPENCL_CL_H

#define CL_TARGET_OPENCL_VERSION 120
#include "backends/backend.h"

#include <CL/cl.h>
#include <time.h>

/* ---- Errors -------------------------------------------------------------------------------------- */

/* The name of an OpenCL error code ("CL_INVALID_VALUE"). */
const char *tx_cl_error_name(cl_int code);
/* Records "WHAT: CL_XXX (-n)" and returns the status that fits the code; TX_OK for CL_SUCCESS. */
tx_status tx_cl_check(cl_int code, const char *what);

/* ---- The opened device ----------------------------------------------------------------------------- */

typedef struct tx_cl_program tx_cl_program; /* one built program, in the context's list */
typedef struct tx_cl_builder tx_cl_builder;

/* By PCI's numbers. */
typedef enum tx_cl_vendor { TX_CL_OTHER, TX_CL_AMD = 0x1002, TX_CL_NVIDIA = 0x10DE, TX_CL_INTEL = 0x8086 } tx_cl_vendor;

/* What kind of device it is (capabilities.c). */
typedef struct tx_cl_capabilities {
    tx_cl_vendor vendor;   /* of a GPU */
    char architecture[24]; /* "sm_90", "gfx942", "xe-hpg"; "": not known */
    bool f16, bf16, tf32;  /* its matrix units take these, or a CPU's instructions in kernels */
    int32_t sub_group;     /* work-items that run in step; 0: not known */
    int32_t units;         /* what runs a work-group and has local memory: multiprocessors (NVIDIA), compute units or
                            * work-group processors (AMD), Xe cores (Intel), cores */
} tx_cl_capabilities;

/* What kernels and launches are fitted to. The numbers are those of the device, or of the smaller one that
 * TX_OCL_LIMITS simulates: nothing else asks OpenCL for them. */
typedef struct tx_cl_limits {
    bool cpu;            /* cores with vector units: one work-item does a long run of elements. By the device's type */
    bool libraries;      /* those that ask OpenCL for its limits get the same local memory and work-groups as here */
    size_t max_group;    /* CL_DEVICE_MAX_WORK_GROUP_SIZE */
    size_t max_item[3];  /* CL_DEVICE_MAX_WORK_ITEM_SIZES, none above max_group */
    int64_t local_bytes; /* reported local memory; at least 16 KiB is relied on */
    int64_t max_allocation;
    int64_t alignment;     /* bytes: a sub-buffer begins at a multiple of it */
    int32_t lanes;         /* floats in the vectors that it prefers: 4, 8 or 16 */
    int32_t compute_units; /* tx_cl_capabilities.units */
    int32_t compilers;     /* programs that may be compiled at a time, by TX_OCL_COMPILERS */
    double launch_work;    /* floating-point operations that a launch should not exceed; 0: any number */
    bool narrowed;         /* the driver refused a kernel of the command: work-groups are smaller for another form */
    char simulated[80];    /* the limits that are not the device's own, "local=16384,group=128"; empty: none */
} tx_cl_limits;

/* Facts about the driver that show while kernels run. */
typedef enum tx_cl_claims { TX_CL_UNTRIED, TX_CL_BELIEVED, TX_CL_WRONG } tx_cl_claims;
typedef struct tx_cl_driver {
    tx_cl_claims groups; /* CL_KERNEL_WORK_GROUP_SIZE: rusticl of Mesa 22.3 gives the sub-group's size for it, whatever
                          * the kernel runs in (check.c) */
    bool native_exp2;    /* native_exp2 is known to have nearly the bits of exp2 */
} tx_cl_driver;

/* Variables of the environment, read when the device is opened. limits.c and cache.c read the others then. */
typedef struct tx_cl_options {
    char gemm[48]; /* TX_GEMM: the beginning of the names of the providers that go first; may be empty */
} tx_cl_options;

struct tx_cl_selection;
struct tx_context {
    tx_cl_options options;
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue compute, transfer; /* both in order */
    bool profile;                       /* `compute` records times */
    bool tf32;                          /* fp32 products may round their operands to tf32 */
    tx_cl_capabilities can;
    tx_cl_limits limits;
    tx_cl_driver driver;
    tx_device_info info;
    char *identity; /* platform, device and driver with versions: what cached files are keyed by */
    char *cache;    /* folder of cached files, made; NULL: none */
    tx_cl_program *programs;
    /* Selects among candidates by more than their shares (select.h); set by an extension, NULL without it. */
    tx_status (*select)(tx_context *context, struct tx_cl_selection *selection);
    struct tx_cl_tuner *tuner; /* the extension's */
    bool survey; /* commands are emitted to learn which programs they need; nothing is built (compile.c) */
    const tx_reporter *report; /* is told of long builds; or NULL */
    bool clblast;              /* CLBlast has programs of this context in its cache */
    tx_memory held;
    tx_traffic traffic;
};

/* Seconds since some fixed moment; never goes back. */
static inline double tx_cl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int64_t tx_cl_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Blocks of `size` that hold `count`. */
static inline int64_t tx_cl_blocks(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* The name of a storage type in common.cl: f32, bf16, f16. */
static inline const char *tx_cl_storage(tx_dtype dtype)
{
    return dtype == TX_BF16 ? "bf16" : dtype == TX_F16 ? "f16" : "f32";
}

/* A work-group size for reductions: 1 on CPU devices, else the largest power of two that is at most `wanted` and
 * that the device takes. */
size_t tx_cl_group(const tx_context *context, size_t wanted);

/* NVIDIA's grids have so many work-groups at most in all dimensions but the first. */
#define TX_CL_MOST_GROUPS 65535

/* Displays freeze while a launch runs, and drivers end one after a second or some. */
#define TX_CL_LAUNCH_SECONDS 0.25

/* How many of a launch's `count` parts along a dimension a launch should take, so that none exceeds launch_work, nor
 * has more than a grid. `work`: the floating-point operations of all. On CPUs: all. */
int64_t tx_cl_parts_per_launch(tx_cl_builder *b, int64_t count, double work);

/* Whether a variant `name` of a kernel fits that takes so much local memory and so large work-groups. Where it does not
 * and `why` is still empty, it is told there, for tx_cl_variant: "64x32 needs 41 KiB of local memory and the device
 * has 32". */
bool tx_cl_fits(const tx_cl_limits *limits, const char *name, int64_t local_bytes, size_t group, char *why,
                size_t size);

/* ---- Kernels and cached files ------------------------------------------------------------------------ */

/* Source texts in the library, one a file NAME.cl. */
typedef struct tx_cl_source {
    const char *name;
    const unsigned char *text;
    size_t size;
} tx_cl_source;
extern const tx_cl_source tx_cl_sources[];
extern const int32_t tx_cl_source_count;

/* Builds NAME.cl with `options` (from the context's list, else from the disk cache, else from source) and makes
 * a kernel of it, which the caller releases. A failed build says the first lines of its log. */
tx_status tx_cl_kernel(tx_context *context, const char *source, const char *options, const char *name,
                       cl_kernel *kernel);
/* The whole text a program is built from: prelude (what api numbers, rng.h, common.cl) and NAME.cl. The
 * caller frees it. */
tx_status tx_cl_program_text(const char *source, char **text);

/* Small files keyed by `key` and the device's identity: programs, verdicts, measured choices. Loading fails
 * quietly (false) when there is none or it is damaged; a NUL follows `data`, which the caller frees. Storing is best
 * effort. */
bool tx_cl_cache_load(const tx_context *context, const char *key, void **data, size_t *size);
void tx_cl_cache_store(const tx_context *context, const char *key, const void *data, size_t size);

/* ---- Builder ------------------------------------------------------------------------------------------- */

struct tx_cl_builder {
    tx_context *context;
    tx_status status; /* of the first call that failed; later calls do nothing */
    tx_executable *executable;
    const struct tx_cl_forced *forced; /* the candidate under trial (select.h), or NULL */
    int64_t scratch;                   /* bytes that the command being built has reserved */
    size_t widest;                     /* work-items in the largest work-group that it asked for */
    double work;                       /* the largest that it asked tx_cl_parts_per_launch about */
};

/* Every op has a function tx_cl_<op> that emits its launches. Returns builder->status, or a failure of its own. */
#define TX_OP(NAME, name, ...) tx_status tx_cl_##name(tx_cl_builder *b, const tx_command *c);
#define TX_VIRTUAL(...)
#include "api/ops.def"

/* Begins a launch: kernel `name` of `source`.cl built with `options`; dims is 1..3; local may be NULL.
 * Where local is given, global is rounded up to a multiple of it; a kernel that the driver does not run in work-groups
 * of that size is refused. The arguments follow, in order, by the calls below; failures are kept in b->status. */
void tx_cl_launch(tx_cl_builder *b, const char *source, const char *options, const char *name, cl_uint dims,
                  const size_t *global, const size_t *local);

/* For each operand two arguments: `__global T *buffer, long offset`, the offset in elements of the operand's type. One
 * that is absent, or NULL, gives NULL and 0. */
#define TX_CL_OPERANDS(b, ...) tx_cl_arg_operands(b, TX_CL_LIST(const tx_operand *, __VA_ARGS__))
/* For each number one argument, converted to the type that the macro is named after. */
#define TX_CL_I32(b, ...) tx_cl_arg_values(b, sizeof(int32_t), TX_CL_LIST(int32_t, __VA_ARGS__))
#define TX_CL_I64(b, ...) tx_cl_arg_values(b, sizeof(int64_t), TX_CL_LIST(int64_t, __VA_ARGS__))
#define TX_CL_F32(b, ...) tx_cl_arg_values(b, sizeof(float), TX_CL_LIST(float, __VA_ARGS__))
#define TX_CL_LIST(type, ...)                              \
    sizeof((type[]){__VA_ARGS__}) / sizeof(type), (type[]) \
    {                                                      \
        __VA_ARGS__                                        \
    }
/* These and the macros return b->status. */
tx_status tx_cl_arg_operands(tx_cl_builder *b, size_t count, const tx_operand *const *operands);
tx_status tx_cl_arg_values(tx_cl_builder *b, size_t size, size_t count, const void *values);
tx_status tx_cl_arg_control(tx_cl_builder *b); /* one argument: __global const uint *control, TX_CONTROL_COUNT words */
tx_status tx_cl_arg_result(tx_cl_builder *b);  /* one argument: __global float *result, TX_RESULT_COUNT floats */
void tx_cl_arg_local(tx_cl_builder *b, size_t bytes); /* __local T * */

/* Reserves a piece of arena SCRATCH for this command; returns its offset in bytes, a multiple of TX_ALIGNMENT. Commands
 * share the arena, so its content is lost at the next command. */
int64_t tx_cl_scratch(tx_cl_builder *b, int64_t bytes);

/* What a host call sees when it runs. */
typedef struct tx_cl_run {
    tx_context *context;
    cl_command_queue queue; /* the compute queue: enqueue here, do not wait */
    const tx_controls *controls;
    cl_mem *const *memory; /* [arena][chunk] */
} tx_cl_run;
typedef tx_status (*tx_cl_call_fn)(const tx_cl_run *run, void *data);
/* Emits a call made at run time between the launches before and after it (for libraries that launch by themselves).
 * `data` is handed to `fn`, and to `destroy` (may be NULL) when the executable goes; `launches` is what it counts for.
 */
void tx_cl_call(tx_cl_builder *b, tx_cl_call_fn fn, void *data, void (*destroy)(void *data), int32_t launches);

/* Names what runs this command (copied); else it is "opencl". */
void tx_cl_variant(tx_cl_builder *b, const char *name);

#endif
