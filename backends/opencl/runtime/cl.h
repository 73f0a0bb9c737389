/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal interface of the OpenCL backend: the opened device, the program cache, and the builder with which an
 * op describes its launches in `prepare`. All files of the backend include this header, and no header of another
 * backend.
 */
#ifndef TX_OPENCL_CL_H
#define TX_OPENCL_CL_H

#define CL_TARGET_OPENCL_VERSION 120
#include "backends/backend.h"

#include <CL/cl.h>
#include <time.h>

/* ---- Errors -------------------------------------------------------------------------------------- */

/* Returns the name of an OpenCL error code ("CL_INVALID_VALUE"). */
const char *tx_cl_error_name(cl_int code);
/* Records "WHAT: CL_XXX (-n)" and returns the status for the code; CL_SUCCESS gives TX_OK. */
tx_status tx_cl_check(cl_int code, const char *what);

/* ---- The opened device ----------------------------------------------------------------------------- */

typedef struct tx_cl_program tx_cl_program; /* one built program, in the context's list */
typedef struct tx_cl_builder tx_cl_builder;
typedef struct tx_cl_journal tx_cl_journal; /* journal.c */

/* Values are PCI vendor IDs. */
typedef enum tx_cl_vendor { TX_CL_OTHER, TX_CL_AMD = 0x1002, TX_CL_NVIDIA = 0x10DE, TX_CL_INTEL = 0x8086 } tx_cl_vendor;

/* Properties of a device (capabilities.c). */
typedef struct tx_cl_capabilities {
    tx_cl_vendor vendor;   /* of a GPU */
    char architecture[24]; /* "sm_90", "gfx942", "xe-hpg"; "" if unknown */
    bool f16, bf16, tf32;  /* types of the matrix units, or of a CPU's instructions for them */
    int32_t sub_group;     /* work-items that execute in lockstep; 0 if unknown */
    int32_t units; /* units that run a work-group and have local memory: multiprocessors (NVIDIA), compute units or
                      work-group processors (AMD), Xe cores (Intel), CPU cores */
} tx_cl_capabilities;

/* Limits for kernels and launches: those of the device, or smaller ones that TX_OCL_LIMITS simulates. No other code
 * queries OpenCL for them. */
typedef struct tx_cl_limits {
    bool cpu;            /* true for CPU devices: one work-item processes a long run of elements */
    bool libraries;      /* libraries that query OpenCL see the same local memory and work-group limits */
    size_t max_group;    /* CL_DEVICE_MAX_WORK_GROUP_SIZE */
    size_t max_item[3];  /* CL_DEVICE_MAX_WORK_ITEM_SIZES, none above max_group */
    int64_t local_bytes; /* reported local memory; TX requires at least 16 KiB */
    int64_t max_allocation;
    int64_t alignment;     /* sub-buffers begin at a multiple of this many bytes */
    int32_t lanes;         /* preferred vector width in floats: 4, 8 or 16 */
    int32_t compute_units; /* tx_cl_capabilities.units */
    int32_t patience;      /* seconds without progress after which a wait fails; 0 = no limit (TX_OCL_TIMEOUT) */
    int32_t compilers;     /* programs that may be compiled at a time (TX_OCL_COMPILERS) */
    int32_t cache_mib;     /* largest size of the cache folder; 0 = no limit (TX_CACHE_SIZE) */
    double launch_work;    /* floating-point operations that a launch should not exceed; 0 = no limit */
    bool narrowed;         /* of a command: the driver refused a kernel of it; work-groups are now smaller */
    char simulated[80];    /* simulated limits, "local=16384,group=128"; "" if none */
} tx_cl_limits;

/* Functions of OpenCL C that a driver may lack (tune/builtins.c), X(NAME, function). */
#define TX_CL_BUILTIN_MAP(X)                                 \
    X(EXP2, "native_exp2") /* as accurate as exp2, nearly */ \
    X(SINCOS, "sincos")                                      \
    X(FMA, "fma")
#define X(name, function) TX_CL_##name,
typedef enum tx_cl_builtin { TX_CL_BUILTIN_MAP(X) TX_CL_BUILTINS } tx_cl_builtin;
#undef X

/* Facts about the driver that TX learns while kernels run. */
typedef enum tx_cl_claims { TX_CL_UNTRIED, TX_CL_BELIEVED, TX_CL_WRONG } tx_cl_claims;
typedef struct tx_cl_driver {
    tx_cl_claims groups; /* reliability of CL_KERNEL_WORK_GROUP_SIZE; rusticl of Mesa 22.3 always returns the sub-group
                            size (check.c) */
    bool missing[TX_CL_BUILTINS]; /* functions that do not build or are inaccurate; programs get -DTX_NO_<NAME> */
} tx_cl_driver;

/* Markers in the compute queue, one after each few launches of a program. A marker that is reached is progress. */
#define TX_CL_BEATS 64
typedef struct tx_cl_interval {
    cl_event event;
    const char *first, *last; /* names of the ops before the marker */
} tx_cl_interval;
typedef struct tx_cl_beats {
    int first, count;
    tx_cl_interval beat[TX_CL_BEATS];
} tx_cl_beats;

struct tx_cl_selection;
struct tx_context {
    char gemm[48]; /* TX_GEMM, a prefix of the names of preferred providers; may be empty */
    char parts[8]; /* TX_GEMM_PARTS; may be empty */
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue compute, transfer; /* both in order */
    bool profile;                       /* `compute` records times */
    bool tf32;                          /* allow tf32 operands in fp32 products */
    tx_cl_capabilities can;
    tx_cl_limits limits;
    tx_cl_driver driver;
    tx_device_info info;
    char *identity;      /* platform, device and driver with versions: part of the key of cached files */
    char *cache;         /* folder of cached files, already created; NULL if caching is disabled */
    bool cache_is_fixed; /* the folder cannot be written */
    tx_cl_program *programs;
    tx_cl_journal *journal; /* NULL without a cache folder */
    int32_t generation;     /* how many times the OpenCL context was replaced (tx_cl_renew) */
    char lost[256];         /* why the OpenCL context can no longer be used; "" if it can */
    tx_cl_beats beats;      /* wait.c */
    bool hung;              /* a kernel never ended: waits for the queues would not end either */
    /* Selects among candidates by more than their expected shares (select.h). An extension sets it; otherwise NULL. */
    tx_status (*select)(tx_cl_builder *b, struct tx_cl_selection *selection);
    struct tx_cl_tuner *tuner; /* state of that extension */
    const tx_reporter *report; /* receives the progress of long builds; may be NULL */
    bool single;               /* a persistent launch failed (generation/persistent.c): no others are tried */
    bool clblast;              /* CLBlast has cached programs of this context */
    tx_memory held;
    tx_traffic traffic;
};

/* Returns seconds of a monotonic clock. */
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

/* Returns the number of blocks of `size` that cover `count`. */
static inline int64_t tx_cl_blocks(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* Returns the number of work-items of fill.cl for a range of bytes. Drivers divide it well. */
static inline size_t tx_cl_fill_items(int64_t bytes)
{
    return (size_t)tx_cl_blocks(bytes + 1, 16 * 256) * 256;
}

/* Returns the name of a storage type in common.cl: f32, bf16 or f16. */
static inline const char *tx_cl_storage(tx_dtype dtype)
{
    return dtype == TX_BF16 ? "bf16" : dtype == TX_F16 ? "f16" : "f32";
}

/* Returns a work-group size for reductions: 1 on CPU devices, else the largest power of two that is at most
 * `wanted` and within the limit. */
size_t tx_cl_group(const tx_cl_builder *b, size_t wanted);

/* Maximum work-groups of a grid on NVIDIA devices in all dimensions except the first. */
#define TX_CL_MOST_GROUPS 65535

/* A display freezes during a launch, and drivers abort a launch after a few seconds. */
#define TX_CL_LAUNCH_SECONDS 0.25

/* Returns how many of `count` parts along a dimension one launch may process, so that no launch exceeds launch_work
 * or the grid limit. `work` is the number of floating-point operations of all parts. On CPUs it returns `count`. */
int64_t tx_cl_parts_per_launch(tx_cl_builder *b, int64_t count, double work);

/* Returns true if variant `name` of a kernel fits the limits for local memory and work-group size. If it does not
 * and `why` is still empty, writes the reason there for tx_cl_variant: "64x32 needs 41 KiB of local memory and the
 * device has 32". */
bool tx_cl_fits(const tx_cl_limits *limits, const char *name, int64_t local_bytes, size_t group, char *why,
                size_t size);

/* ---- Kernels and cached files ------------------------------------------------------------------------ */

/* Kernel sources embedded in the library, one for each file NAME.cl. */
typedef struct tx_cl_source {
    const char *name;
    const unsigned char *text;
    size_t size;
} tx_cl_source;
extern const tx_cl_source tx_cl_sources[];
extern const int32_t tx_cl_source_count;

/* Builds NAME.cl with `options` and creates a kernel from it, which the caller releases. The program comes from the
 * context's list, else from the disk cache, else from source. The message of a failed build has the first lines of
 * its log. */
tx_status tx_cl_kernel(tx_context *context, const char *source, const char *options, const char *name,
                       cl_kernel *kernel);
/* Returns the whole text from which a program is built: the prelude (enumerators, rng.h, common.cl) and NAME.cl,
 * without its other kernels unless `kernel` is "". The caller frees it. */
tx_status tx_cl_program_text(const char *source, const char *kernel, char **text);
/* The two parts of it: enumerators and rng.h, which are the same in all programs, and the rest. */
tx_status tx_cl_shared_text(char **text);
tx_status tx_cl_own_text(const char *source, const char *kernel, char **text);
/* Returns true if the program of kernel `held` of a source also has `kernel`. */
bool tx_cl_in_program(const char *source, const char *held, const char *kernel);
/* Returns true if the source has the line `#define TX_ONE_PROGRAM`: its kernels are launched together with the same
 * options, so that one program has all of them. */
bool tx_cl_one_program(const char *source);

/* Small files keyed by `key` and the device's identity: programs, check results, measured choices. Loading returns
 * false without a message if the file is missing or damaged. A NUL follows `data`, which the caller frees. The user is
 * warned of the first failure to store. */
bool tx_cl_cache_load(const tx_context *context, const char *key, void **data, size_t *size);
void tx_cl_cache_store(const tx_context *context, const char *key, const void *data, size_t size);
/* Locks `key` against other processes and threads, which wait for it at most five minutes: load the value again, then
 * compute and store it, then unlock. Returns -1, without a lock, after such a wait, if the folder cannot be written or
 * if its file system has no locks. */
int tx_cl_cache_lock(const tx_context *context, const char *key);
void tx_cl_cache_unlock(int lock);

/* ---- Builder ------------------------------------------------------------------------------------------- */

/* An op records its launches: nothing is built or run until all commands of a program have recorded theirs. */

struct tx_cl_builder {
    tx_context *context;
    const tx_cl_limits *limits;        /* the device's, or smaller ones after a refusal by the driver */
    tx_status status;                  /* of the first call that failed; later calls do nothing */
    const struct tx_cl_forced *forced; /* the candidate that is being measured (select.h), or NULL */
    bool ahead; /* selections run no trials: they collect the programs of trials that are needed, and set `open` */
    bool open;  /* a selection is preliminary: the command must be emitted again */
    struct tx_cl_command *command; /* receives the launches */
    /* Emits the launches of a command that the builder's command executes, too. */
    tx_status (*emit)(tx_cl_builder *b, const tx_command *c);
    const tx_command *before, *after; /* commands that it executes, too, before and after its own; or NULL */
    cl_uint argument;                 /* index of the next argument of its last launch */
};

/* Rows up to which a product reads its weights in one kernel (gemm_few.c) and its launch executes other commands, too
 * (join.c). */
#define TX_CL_FEW_ROWS 8

/* Returns a builder without a command, for selections and trials outside programs. */
static inline tx_cl_builder tx_cl_asker(tx_context *context)
{
    return (tx_cl_builder){.context = context, .limits = &context->limits};
}

/* Every op has a function tx_cl_<op> that emits its launches. It returns builder->status or its own failure. */
#define TX_OP(NAME, name, ...) tx_status tx_cl_##name(tx_cl_builder *b, const tx_command *c);
#define TX_VIRTUAL(...)
#include "api/ops.def"

/* Returns true if both are present and have memory in common. */
bool tx_cl_overlap(const tx_operand *a, const tx_operand *b);

/* Begins a launch of kernel `name` (not copied) of `source`.cl, built with `options`. dims is 1..3, and local may be
 * NULL; otherwise global is rounded up to a multiple of it. The calls below pass the arguments in order. Failures are
 * kept in b->status. */
void tx_cl_launch(tx_cl_builder *b, const char *source, const char *options, const char *name, cl_uint dims,
                  const size_t *global, const size_t *local);

/* Passes two arguments for each operand: `__global T *buffer, long offset`, with the offset in elements of the
 * operand's type. An absent or NULL operand is passed as NULL and 0. */
#define TX_CL_OPERANDS(b, ...) tx_cl_arg_operands(b, TX_CL_LIST(const tx_operand *, __VA_ARGS__))
/* Passes one argument for each number, converted to the type in the macro's name. */
#define TX_CL_I32(b, ...) tx_cl_arg_values(b, "int", sizeof(int32_t), TX_CL_LIST(int32_t, __VA_ARGS__))
#define TX_CL_I64(b, ...) tx_cl_arg_values(b, "long", sizeof(int64_t), TX_CL_LIST(int64_t, __VA_ARGS__))
#define TX_CL_F32(b, ...) tx_cl_arg_values(b, "float", sizeof(float), TX_CL_LIST(float, __VA_ARGS__))
#define TX_CL_LIST(type, ...)                              \
    sizeof((type[]){__VA_ARGS__}) / sizeof(type), (type[]) \
    {                                                      \
        __VA_ARGS__                                        \
    }
/* These functions and the macros return b->status. */
tx_status tx_cl_arg_operands(tx_cl_builder *b, size_t count, const tx_operand *const *operands);
/* `type` is the name of the values' type in OpenCL C, a constant. */
tx_status tx_cl_arg_values(tx_cl_builder *b, const char *type, size_t size, size_t count, const void *values);
tx_status tx_cl_arg_control(tx_cl_builder *b); /* one argument: __global const uint *control, TX_CONTROL_COUNT words */
tx_status tx_cl_arg_result(tx_cl_builder *b);  /* one argument: __global float *result, TX_RESULT_COUNT floats */
void tx_cl_arg_local(tx_cl_builder *b, size_t bytes); /* __local T * */

/* Reserves an array in arena SCRATCH for this command. Commands share the arena, so the next command overwrites it. */
tx_operand tx_cl_scratch(tx_cl_builder *b, tx_dtype dtype, tx_shape shape);

/* The arguments of a host call. */
typedef struct tx_cl_run {
    tx_context *context;
    cl_command_queue queue; /* the compute queue: enqueue here, do not wait */
    const tx_controls *controls;
    cl_mem *const *memory; /* [arena][chunk] */
} tx_cl_run;
typedef tx_status (*tx_cl_call_fn)(const tx_cl_run *run, void *data);
/* Emits a host call that runs between the launches before and after it, for libraries that launch kernels
 * themselves. `data` is passed to `fn`, and to `destroy` (may be NULL) when the executable is destroyed. The call
 * counts as `launches` launches. */
void tx_cl_call(tx_cl_builder *b, tx_cl_call_fn fn, void *data, void (*destroy)(void *data), int32_t launches);

/* Sets the name of the implementation of this command (copied). The default is "opencl". */
void tx_cl_variant(tx_cl_builder *b, const char *name);

#endif
