/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the cpu backend: what a kernel is given, how it spreads its work over threads, and the tables of
 * kernels. Kernel files are compiled once for each instruction set (CMakeLists.txt); open() picks a table. */
#ifndef TX_BACKENDS_CPU_CPU_H
#define TX_BACKENDS_CPU_CPU_H

#include "backends/backend.h"
#include "backends/cpu/gemm.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct tx_cpu_product tx_cpu_product; /* a kind of matrix product (prepared.h) */

/* One command, ready to run. */
typedef struct tx_cpu_call {
    const tx_command *command;
    const void *in[TX_MAX_IN]; /* NULL where absent */
    void *out[TX_MAX_OUT];
    const tx_controls *controls;
    float *results;        /* arena RESULT; NULL if the program was bound without it */
    void *scratch;         /* arena SCRATCH; in a body its thread's part of it */
    int64_t scratch_bytes; /* of a thread's part */
    int32_t threads;
    const tx_cpu_product *product; /* prepares and runs `prepared`; NULL if the op multiplies no matrices */
    void *prepared;
} tx_cpu_call;

typedef void tx_cpu_kernel(const tx_cpu_call *call);

typedef struct tx_cpu_kernels {
    const char *name;              /* of the instruction set */
    const tx_gemm_rows *gemm_rows; /* of matrix products */
    tx_cpu_kernel *run[TX_OP_KERNELS];
} tx_cpu_kernels;

/* tx_cpu_<name>_<variant>: what a kernel file calls its own in the variant that is being compiled. */
#define TX_CPU_JOIN_(name, variant) tx_cpu_##name##_##variant
#define TX_CPU_JOIN(name, variant) TX_CPU_JOIN_(name, variant)
#define TX_CPU_NAME(name) TX_CPU_JOIN(name, TX_CPU_VARIANT)

#define TX_TILE 64 /* queries, and keys, in a tile of attention */

/* Bytes that one thread needs for heads of this size: whole tiles of [key][query], `tiles` of them, `rows` single rows
 * of queries, and `copies` transposed tiles of head rows. */
static inline int64_t tx_cpu_tile_bytes(int64_t tiles, int64_t rows, int64_t copies, int64_t size)
{
    return (tiles * TX_TILE + rows + copies * size) * TX_TILE * (int64_t)sizeof(float);
}
static inline int64_t tx_cpu_attention_scratch(int64_t size)
{
    return tx_cpu_tile_bytes(2, 3, 1, size);
}
static inline int64_t tx_cpu_attention_grad_scratch(int64_t size)
{
    return tx_cpu_tile_bytes(3, 0, 2, size);
}
/* What follows in a thread's part where operands are of 16 bits: of one head q | k | v as fp32, and a tile of o. */
static inline int64_t tx_cpu_attention_wide(tx_dtype type, int64_t length, int64_t size)
{
    return type == TX_F32 ? 0 : (3 * length + TX_TILE) * size * (int64_t)sizeof(float);
}
/* The same for the gradient: of a key head and the `shared` query heads that read it q | k | v, dq | dk | dv, do, o. */
static inline int64_t tx_cpu_attention_grad_wide(tx_dtype type, int64_t length, int64_t size, int64_t shared)
{
    return type == TX_F32 ? 0 : (4 * shared + 4) * length * size * (int64_t)sizeof(float);
}

/* True if attention reads keys and values from caches, operands 1 and 2, whose rows are positions, operand 3. */
static inline bool tx_cpu_reads_caches(const tx_command *c)
{
    return c->op != TX_OP_ATTENTION_GRAD && tx_present(&c->in[3]);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Works on items first..last-1. */
typedef void tx_cpu_body(const tx_cpu_call *call, int64_t first, int64_t last);

/* Splits `count` items into one contiguous slice a thread, of a multiple of `grain` items; what is not more than
 * `grain` stays on the calling thread. */
void tx_cpu_slices(const tx_cpu_call *call, int64_t count, int64_t grain, tx_cpu_body *body);
/* Gives out `count` items one by one: for few items of uneven cost. */
void tx_cpu_tasks(const tx_cpu_call *call, int64_t count, tx_cpu_body *body);

static inline int64_t tx_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements below which a second thread does not pay. */
#define TX_CPU_GRAIN 8192
/* The same in rows of `width` elements. */
static inline int64_t tx_cpu_rows_grain(int64_t width)
{
    return width < TX_CPU_GRAIN ? TX_CPU_GRAIN / width : 1;
}

/* The same in columns of `height` elements: whole cache lines, so that threads do not write the same one. */
static inline int64_t tx_cpu_columns_grain(int64_t height)
{
    return (tx_cpu_rows_grain(height) + 31) / 32 * 32;
}

/* attrs.alpha, times the control that the command names. */
static inline float tx_cpu_factor(const tx_cpu_call *call)
{
    const tx_attrs *attrs = &call->command->attrs;
    return attrs->control >= 0 ? attrs->alpha * call->controls->word[attrs->control].f32 : attrs->alpha;
}

/* Where the first token of sample b stands by operand `i` (absent: 0), kept within 0..most. */
static inline int64_t tx_cpu_position(const tx_cpu_call *call, int i, int64_t b, int64_t most)
{
    const int64_t position = call->in[i] ? ((const int32_t *)call->in[i])[b] : 0;
    return position < 0 ? 0 : position < most ? position : most;
}

/* Where token t of row b stands in a table of `rows` rows: operand `i` is of rows of `time` tokens, or of tokens. */
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
    int64_t mapped; /* bytes mapped from the system; 0: the memory is the heap's */
    bool adopted;   /* the memory is not the buffer's own */
    char *data;
};

typedef struct tx_cpu_transfers tx_cpu_transfers;

struct tx_context {
    int32_t threads;
    const tx_cpu_kernels *kernels;
    tx_cpu_transfers *transfers; /* NULL until the first copy that goes by them */
    tx_memory held;
    tx_traffic traffic;
};

/* plan.c: the program slots of the table. */
tx_status tx_cpu_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes);
tx_status tx_cpu_bind(tx_executable *executable, const tx_bindings *bindings);
tx_status tx_cpu_run(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds);
tx_command_info tx_cpu_command_info(const tx_executable *executable, int32_t index);
void tx_cpu_destroy(tx_executable *executable);

/* transfer.c: the transfer queue. Gives it a copy; `*transfers` is made if it is NULL. */
tx_status tx_cpu_transfer(tx_cpu_transfers **transfers, void *to, const void *from, int64_t bytes);
/* The number of the last copy given, from 1; 0: none. */
int64_t tx_cpu_transfers_given(const tx_cpu_transfers *transfers);
/* Waits until that copy has been made. */
void tx_cpu_transfers_wait(tx_cpu_transfers *transfers, int64_t number);
/* Makes what was given, and ends the thread. */
void tx_cpu_transfers_free(tx_cpu_transfers *transfers);

/* check.c: runs a few kernels on numbers whose result is known. */
tx_status tx_cpu_self_test(const tx_cpu_kernels *kernels);
/* choices.c */
tx_status tx_cpu_facts(const tx_context *context, char **text);
tx_status tx_cpu_choices(const tx_context *context, char **text);
tx_status tx_cpu_choose(tx_context *context, const char *text);
/* variants.c: the best table that this processor can run. */
const tx_cpu_kernels *tx_cpu_kernels_choose(void);

#endif
