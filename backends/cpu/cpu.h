/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal interface of the cpu backend: the arguments of a kernel, the distribution of work over threads, and
 * the tables of kernels. Kernel files are compiled once for each instruction set (CMakeLists.txt); open() selects a
 * table.
 */
#ifndef TX_BACKENDS_CPU_CPU_H
#define TX_BACKENDS_CPU_CPU_H

#include "backends/backend.h"
#include "backends/cpu/gemm.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct tx_cpu_product tx_cpu_product; /* a kind of matrix product (prepared.h) */

/* A command with resolved operands. */
typedef struct tx_cpu_call {
    const tx_command *command;
    const void *in[TX_MAX_IN]; /* NULL if absent */
    void *out[TX_MAX_OUT];
    const tx_controls *controls;
    float *results;        /* arena RESULT; NULL if the program was bound without it */
    void *scratch;         /* arena SCRATCH; in a tx_cpu_body the slice of its thread */
    int64_t scratch_bytes; /* of a thread's slice */
    int32_t threads;
    const tx_cpu_product *product; /* prepares and runs `prepared`; NULL if the op has no matrix product */
    void *prepared;
} tx_cpu_call;

typedef void tx_cpu_kernel(const tx_cpu_call *call);

typedef struct tx_cpu_kernels {
    const char *name;              /* the instruction set */
    const tx_gemm_rows *gemm_rows; /* the loops of matrix products */
    tx_cpu_kernel *run[TX_OP_KERNELS];
} tx_cpu_kernels;

/* tx_cpu_<name>_<variant>: the name of a function in the variant that is being compiled. */
#define TX_CPU_JOIN_(name, variant) tx_cpu_##name##_##variant
#define TX_CPU_JOIN(name, variant) TX_CPU_JOIN_(name, variant)
#define TX_CPU_NAME(name) TX_CPU_JOIN(name, TX_CPU_VARIANT)

#define TX_TILE 64 /* queries, and keys, in a tile of attention */
#define TX_TILES 4 /* tiles of queries that share a tile of keys */

/* Bytes of scratch that one thread needs for heads of `size` elements: `tiles` tiles [key][query], `rows` rows of
 * queries, and `copies` transposed tiles of head rows. */
static inline int64_t tx_cpu_tile_bytes(int64_t tiles, int64_t rows, int64_t copies, int64_t size)
{
    return (tiles * TX_TILE + rows + copies * size) * TX_TILE * (int64_t)sizeof(float);
}
static inline int64_t tx_cpu_attention_scratch(int64_t size)
{
    return tx_cpu_tile_bytes(2, 3 * TX_TILES + 1, 2 + 2 * TX_TILES, size);
}
static inline int64_t tx_cpu_attention_grad_scratch(int64_t size)
{
    return tx_cpu_tile_bytes(4, 0, 2, size);
}
/* Bytes after these for the gradient: q | k | v, dq | dk | dv, do and o of a key head and the `shared`
 * query heads that read it. */
static inline int64_t tx_cpu_attention_grad_copies(int64_t length, int64_t size, int64_t shared)
{
    return (4 * shared + 4) * length * size * (int64_t)sizeof(float);
}

/* Returns true if attention reads keys and values from caches (operands 1 and 2) at positions (operand 3). */
static inline bool tx_cpu_reads_caches(const tx_command *c)
{
    return c->op != TX_OP_ATTENTION && c->op != TX_OP_ATTENTION_GRAD;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Processes items first..last-1. */
typedef void tx_cpu_body(const tx_cpu_call *call, int64_t first, int64_t last);

/* Splits `count` items into one contiguous slice for each thread, in multiples of `grain` items. At most `grain`
 * items run on the calling thread only. */
void tx_cpu_slices(const tx_cpu_call *call, int64_t count, int64_t grain, tx_cpu_body *body);
/* Assigns `count` items to threads one by one. Use it for few items of uneven cost. */
void tx_cpu_tasks(const tx_cpu_call *call, int64_t count, tx_cpu_body *body);

/* With fewer elements a second thread does not pay. */
#define TX_CPU_GRAIN 8192
/* The same limit in rows of `width` elements. */
static inline int64_t tx_cpu_rows_grain(int64_t width)
{
    return width < TX_CPU_GRAIN ? TX_CPU_GRAIN / width : 1;
}

/* The same limit in columns of `height` elements, rounded up to whole cache lines to avoid false sharing. */
static inline int64_t tx_cpu_columns_grain(int64_t height)
{
    return (tx_cpu_rows_grain(height) + 31) / 32 * 32;
}

/* Returns attrs.alpha, multiplied by the command's control if it has one. */
static inline float tx_cpu_factor(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    return attrs->control >= 0 ? attrs->alpha * call->controls->word[attrs->control].f32 : attrs->alpha;
}

/* Returns the position of the first token of sample b, clamped to 0..last. Operand `i` holds positions; absent
 * means 0. */
static inline int64_t tx_cpu_position(const tx_cpu_call *call, int i, int64_t b, int64_t last)
{
    const int64_t position = call->in[i] ? ((const int32_t *)call->in[i])[b] : 0;
    return position < 0 ? 0 : position < last ? position : last;
}

/* Returns the row of the caches that sample b of a call with caches uses: operand 4, or b without it. */
static inline int64_t tx_cpu_slot(const tx_cpu_call *call, int64_t b)
{
    return call->in[4] ? tx_cpu_position(call, 4, b, call->command->in[1].shape.dim[0] - 1) : b;
}

/* Returns the row of token t of sample b in a table of `rows` rows. Operand `i` holds one position for each sample
 * of `time` tokens, or one for each token. */
static inline int64_t tx_cpu_place(const tx_cpu_call *call, int i, int64_t b, int64_t t, int64_t time, int64_t rows)
{
    const bool of_tokens = call->in[i] && call->command->in[i].shape.rank == 2;
    return of_tokens ? tx_cpu_position(call, i, b * time + t, rows - 1) : tx_cpu_position(call, i, b, rows - time) + t;
}

/* ---- Device ---------------------------------------------------------------------------------- */

struct tx_buffer {
    tx_context *context;
    tx_memory_kind kind;
    int64_t bytes;
    int64_t mapped; /* bytes mapped from the system; 0 = allocated on the heap */
    bool adopted;   /* the memory belongs to the caller */
    char *data;
};

typedef struct tx_cpu_transfers tx_cpu_transfers;

struct tx_context {
    int32_t threads;
    const tx_cpu_kernels *kernels;
    tx_cpu_transfers *transfers; /* NULL until the first copy on the transfer queue */
    tx_memory held;
    tx_traffic traffic;
};

/* plan.c: the functions for programs in the backend's table. */
tx_status tx_cpu_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes);
tx_status tx_cpu_bind(tx_executable *executable, const tx_bindings *bindings);
tx_status tx_cpu_run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds);
tx_command_info tx_cpu_command_info(const tx_executable *executable, int32_t index);
void tx_cpu_destroy(tx_executable *executable);

/* transfer.c: the transfer queue. Enqueues a copy; starts the queue if `*transfers` is NULL. */
tx_status tx_cpu_transfer(tx_cpu_transfers **transfers, void *to, const void *from, int64_t bytes);
/* Returns the number of the last enqueued copy, counted from 1, or 0 before the first. */
int64_t tx_cpu_transfers_given(const tx_cpu_transfers *transfers);
/* Waits until that copy is done. */
void tx_cpu_transfers_wait(tx_cpu_transfers *transfers, int64_t number);
/* Finishes all enqueued copies and ends the thread. */
void tx_cpu_transfers_free(tx_cpu_transfers *transfers);

/* check.c: runs the known-answer test. */
tx_status tx_cpu_self_test(const tx_cpu_kernels *kernels);
/* choices.c: implements the slots of the same names in tx_backend. */
tx_status tx_cpu_facts(const tx_context *context, char **text);
tx_status tx_cpu_choices(const tx_context *context, char **text);
tx_status tx_cpu_choose(tx_context *context, const char *text);
/* variants.c: returns the best table that this processor can run. */
const tx_cpu_kernels *tx_cpu_kernels_choose(void);

#endif
