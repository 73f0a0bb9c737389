/* SPDX-License-Identifier: Apache-2.0
 * Devices, opened devices (engines) and their memory accounts. */
#ifndef TX_ENGINE_H
#define TX_ENGINE_H

#include "tx_base.h"

TX_API_BEGIN

/* ---- Devices ------------------------------------------------------------------------------- */

typedef enum tx_device_type { TX_DEVICE_CPU, TX_DEVICE_GPU, TX_DEVICE_OTHER } tx_device_type;

typedef struct tx_device_info {
    char id[32]; /* "cpu" or "opencl:0", as --device accepts it */
    char name[128];
    char vendor[64];
    char platform[128];
    char driver[128];
    tx_device_type type;
    int64_t memory;         /* bytes; 0 if unknown */
    int64_t max_allocation; /* bytes of the largest single allocation */
    int32_t compute_units;
    bool tf32; /* has tf32 matrix units that TX uses */
    /* Whether TX uses the device's instructions or matrix units for products of this type. Otherwise operands are
     * converted to fp32. */
    bool bf16, fp16;
    char units[16]; /* the matrix units of a GPU that TX uses, for example "WGMMA"; "" if none */
} tx_device_info;

/* Counts the devices of all backends; the CPU is first. A platform without devices is not an error. */
tx_status tx_device_count(int32_t *count);
tx_status tx_device_get(int32_t index, tx_device_info *info);
/* Returns why devices are missing from the list: an OpenCL driver that crashed when its devices were listed. Returns
 * NULL if there was no failure, or if they were not listed yet. */
const char *tx_devices_missing(void);
/* Finds a device by "cpu", "opencl", "opencl:N", "gpu", or "opencl:TEXT", where TEXT is part of the device's name in
 * any case. "auto" or NULL finds the first GPU if all GPUs have the same name and driver, and otherwise the cpu. */
tx_status tx_device_find(const char *name, int32_t *index);
/* Chooses a device for a user who names none: the GPU, or the first of GPUs with the same name and driver. If there is
 * none, or there are several kinds, it chooses the cpu. Writes a reason for the user. A CPU that OpenCL lists is no
 * GPU. Loads no OpenCL driver if the machine has no GPU. */
tx_status tx_device_choose(int32_t *index, char *reason, size_t size);

/* ---- Processors ---------------------------------------------------------------------------- */

/* Returns the number of processors in the affinity mask of the calling thread, at least 1. */
int32_t tx_cores_allowed(void);
/* Returns tx_cores_allowed() or the CPU limit of the control groups, whichever is less. Containers set such a limit ("2
 * CPUs"). */
int32_t tx_cores(void);
/* Whether `threads` threads (0 means tx_cores()) would share processors with each other, with other ranks on this host
 * or with other programs. If so, threads should sleep while they wait instead of spinning. */
bool tx_cores_shared(int32_t threads);

/* ---- Memory accounts ----------------------------------------------------------------------- */

/* Memory is counted in the categories of Hugging Face's memory anatomy. "Functionality" is split by use. X(NAME,
 * "name") */
#define TX_MEMORY_MAP(X)                                                                        \
    X(WEIGHTS, "weights")                                                                       \
    X(COPIES, "16-bit copies") /* 16-bit copies of the weights for mixed precision */           \
    X(OPTIMIZER, "optimizer states")                                                            \
    X(GRADIENTS, "gradients")                                                                   \
    X(ACTIVATIONS, "activations")     /* kept by the forward pass for the backward pass */      \
    X(TEMPORARY, "temporary")         /* all else in the planned arena */                       \
    X(SCRATCH, "scratch")             /* workspaces of kernels and libraries, packed weights */ \
    X(EXCHANGE, "exchange")           /* communication buffers not counted above */             \
    X(CACHE, "caches")                /* keys and values, the weights' optimizer groups */      \
    X(FUNCTIONALITY, "functionality") /* scalars; staging buffers in host memory */             \
    X(OFFLOADED, "offloaded")         /* states and weights in host memory; last because the total excludes it */

typedef enum tx_memory_kind {
#define X(name, text) TX_MEMORY_##name,
    TX_MEMORY_MAP(X)
#undef X
        TX_MEMORY_COUNT
} tx_memory_kind;

typedef struct tx_memory {
    int64_t bytes[TX_MEMORY_COUNT];
} tx_memory;

const char *tx_memory_name(tx_memory_kind kind);
/* Returns the device memory needed: all categories except OFFLOADED. */
int64_t tx_memory_total(const tx_memory *memory);

/* ---- Engine -------------------------------------------------------------------------------- */

typedef struct tx_engine tx_engine;

/* How long the autotuner may measure. */
typedef struct tx_tune_options {
    size_t size;    /* sizeof(tx_tune_options) */
    double seconds; /* no new measurement starts after this time */
    /* Called after each measurement and before a long one; may be NULL. `spent` is in seconds. */
    void (*progress)(void *user, const char *what, double spent);
    void *user;
} tx_tune_options;

typedef struct tx_engine_options {
    size_t size;        /* sizeof(tx_engine_options) */
    const char *device; /* see tx_device_find */
    /* Threads of the CPU backend; 0 means all that this process may use. Each thread of the program that computes gets
     * as many from OpenMP. If all together are more than the processors, they sleep while they wait, which is slow. */
    int32_t threads;
    bool profile; /* opens the device so that single operations can be timed */
    /* Allows fp32 matrix products to round their operands to tf32 (10 bits of mantissa) if the device has units for it.
     * It has no effect on other devices. */
    bool tf32;
    /* Compiling a plan measures every candidate for its matrix products again, also those of earlier runs, and stores
     * the results for all later runs on this device. The options must outlive the engine. With NULL the autotuner
     * measures only unknown products, for a few seconds. */
    const tx_tune_options *tune;
    /* Receives the number of kernel programs built while a plan is compiled, if that takes seconds. The calls come from
     * the compiling thread. It must outlive the engine; may be NULL. */
    const tx_reporter *report;
} tx_engine_options;

/* Lets engines build kernels in several processes of this program, since drivers build one at a time in a process. Call
 * it at the start of main, with its arguments: in such a process it builds kernels and does not return. Without it,
 * engines build kernels in threads. */
void tx_engine_workers(int argc, char *const *argv);

tx_status tx_engine_create(const tx_engine_options *options, tx_engine **engine);
void tx_engine_free(tx_engine *engine);
const tx_device_info *tx_engine_device(const tx_engine *engine);
/* Returns why the engine uses its device if `device` was "auto" or NULL, for users; otherwise "". If the start-up test
 * of a GPU failed, the engine uses the cpu, and the reason says so. */
const char *tx_engine_reason(const tx_engine *engine);
/* Reports the memory that the backend has allocated now. ACTIVATIONS is the whole planned arena (activations and
 * temporary), which the backend sees as one block. */
tx_status tx_engine_memory(const tx_engine *engine, tx_memory *counted);
/* Waits until the device has finished all submitted work. */
tx_status tx_engine_finish(tx_engine *engine);

typedef struct tx_traffic {
    int64_t to_device, from_device; /* bytes copied since the engine was created */
    int64_t transfers;              /* copies in the device's second queue, which overlap with computation */
    int64_t launches;               /* kernels and library calls submitted to the device */
    int64_t allocations;            /* calls of the backend's allocator */
} tx_traffic;
tx_status tx_engine_traffic(const tx_engine *engine, tx_traffic *traffic);

/* Returns the autotuner's choices so far (the kernel for each product), one a line, or "" if the backend measures
 * nothing. A checkpoint stores them: equal choices give equal bits. The caller frees `*text`. */
tx_status tx_engine_choices(const tx_engine *engine, char **text);
/* Forces these choices in plans compiled from now on; existing plans keep theirs. If this build or device lacks a
 * choice, the call fails with TX_UNSUPPORTED and changes nothing. */
tx_status tx_engine_choose(tx_engine *engine, const char *text);
/* Returns the measurements of this and earlier runs on this device. Each line is KEY, a tab, VALUE; "" if there are
 * none. The caller frees `*text`. */
tx_status tx_engine_tuned(const tx_engine *engine, char **text);

TX_API_END
#endif
