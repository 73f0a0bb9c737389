/* SPDX-License-Identifier: Apache-2.0
 * Devices, opened devices (engines), and their memory accounts. */
#ifndef TX_ENGINE_H
#define TX_ENGINE_H

#include "tx_base.h"

TX_API_BEGIN

/* ---- Devices ------------------------------------------------------------------------------- */

typedef enum tx_device_type { TX_DEVICE_CPU, TX_DEVICE_GPU, TX_DEVICE_OTHER } tx_device_type;

typedef struct tx_device_info {
    char id[32]; /* "cpu" or "opencl:0": what --device takes */
    char name[128];
    char vendor[64];
    char platform[128];
    char driver[128];
    tx_device_type type;
    int64_t memory;         /* bytes; 0 when unknown */
    int64_t max_allocation; /* bytes in one allocation */
    int32_t compute_units;
    bool tf32; /* has matrix units for tf32 that TX uses */
    /* Has instructions or matrix units for products of the type that TX uses; else operands are widened to fp32. */
    bool bf16, fp16;
} tx_device_info;

/* Number of devices over all backends; the cpu comes first. A platform without devices is not an error. */
tx_status tx_device_count(int32_t *count);
tx_status tx_device_get(int32_t index, tx_device_info *info);
/* Finds "cpu", "opencl", "opencl:N", "gpu", or "opencl:TEXT" with TEXT part of a name (any case). */
tx_status tx_device_find(const char *name, int32_t *index);

/* ---- Processors ---------------------------------------------------------------------------- */

/* Processors that the calling thread may run on; at least 1. */
int32_t tx_cores_allowed(void);
/* The lesser of these and of the number that control groups let this process keep busy, as containers are given "2
 * CPUs". */
int32_t tx_cores(void);
/* Whether so many threads would share processors (pass 0 for tx_cores threads), with each other, with other ranks of
 * this host or with other programs. A thread that spins while it waits then takes time from those that work. */
bool tx_cores_shared(int32_t threads);

/* ---- Memory accounts ----------------------------------------------------------------------- */

/* The categories of the Hugging Face memory anatomy, the last of which is told by what it is for. X(NAME, "name") */
#define TX_MEMORY_MAP(X)                                                                      \
    X(WEIGHTS, "weights")                                                                     \
    X(COPIES, "16-bit copies") /* of the weights, which mixed precision reads */              \
    X(OPTIMIZER, "optimizer states")                                                          \
    X(GRADIENTS, "gradients")                                                                 \
    X(ACTIVATIONS, "activations")     /* kept by the forward pass for the backward pass */    \
    X(TEMPORARY, "temporary")         /* everything else in the planned arena */              \
    X(SCRATCH, "scratch")             /* of kernels and libraries, packed weights */          \
    X(EXCHANGE, "exchange")           /* what ranks exchange and is none of the above */      \
    X(CACHE, "caches")                /* of keys and values; the weights' optimizer groups */ \
    X(FUNCTIONALITY, "functionality") /* scalars, and host memory they and inputs go by */    \
    X(OFFLOADED, "offloaded")         /* states and weights, to host memory: comes last, and is no part of the total */

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
/* All but OFFLOADED: what a device has to have. */
int64_t tx_memory_total(const tx_memory *memory);

/* ---- Engine -------------------------------------------------------------------------------- */

typedef struct tx_engine tx_engine;

/* How long to measure which kernel is the fastest. */
typedef struct tx_tune_options {
    size_t size;    /* sizeof(tx_tune_options) */
    double seconds; /* no new measurement begins after so many */
    /* Called after each measurement, and before a long one; may be NULL. `spent` are seconds. */
    void (*progress)(void *user, const char *what, double spent);
    void *user;
} tx_tune_options;

typedef struct tx_engine_options {
    size_t size;        /* sizeof(tx_engine_options) */
    const char *device; /* see tx_device_find; NULL is "cpu" */
    int32_t threads;    /* of the cpu backend; 0 is all that this process may use */
    bool profile;       /* opens the device so that single operations can be timed */
    /* fp32 matrix products may round their operands to tf32 (10 bits of mantissa) where the device has units for that;
     * elsewhere it changes nothing. */
    bool tf32;
    /* Plans that are compiled measure all ways to compute their matrix products, whatever earlier runs found, and what
     * is found is kept for all later runs on this device. Outlives the engine. NULL: a few seconds, for what is not
     * known yet. */
    const tx_tune_options *tune;
    /* Is told, from the thread that compiles a plan, how many of its kernels' programs are built, where that takes
     * seconds. Outlives the engine; may be NULL. */
    const tx_reporter *report;
} tx_engine_options;

tx_status tx_engine_create(const tx_engine_options *options, tx_engine **engine);
void tx_engine_free(tx_engine *engine);
const tx_device_info *tx_engine_device(const tx_engine *engine);
/* What the backend's allocation calls hold now. ACTIVATIONS stands for the whole planned arena
 * (activations and temporary): the backend sees one block. */
tx_status tx_engine_memory(const tx_engine *engine, tx_memory *counted);
/* Waits until the device has done all it was given. */
tx_status tx_engine_finish(tx_engine *engine);

typedef struct tx_traffic {
    int64_t to_device, from_device; /* bytes copied since the engine was made */
    int64_t transfers;              /* copies that went by the device's second queue, beside what it computes */
    int64_t launches;               /* kernels or library calls given to the device */
    int64_t allocations;            /* calls of the backend's allocator */
} tx_traffic;
tx_status tx_engine_traffic(const tx_engine *engine, tx_traffic *traffic);

/* What the backend chose by measuring so far (which kernel runs which product), one choice a line; "" where it
 * chooses nothing. For a checkpoint: the same choices, the same bits. The caller frees `*text`. */
tx_status tx_engine_choices(const tx_engine *engine, char **text);
/* Makes it choose the same in the plans that are compiled from now on; those that are stay as they are. A choice that
 * this build or device does not have is TX_UNSUPPORTED, and nothing is changed. */
tx_status tx_engine_choose(tx_engine *engine, const char *text);
/* What this and earlier runs found out about the device by measuring, one line each: KEY, a tab, VALUE; "" where
 * nothing is measured. The caller frees `*text`. */
tx_status tx_engine_tuned(const tx_engine *engine, char **text);

TX_API_END
#endif
