/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the engine and a backend.
 *
 * The engine owns graphs, shapes, validation, lifetimes and offsets. A backend owns a device: it allocates memory,
 * copies data and executes programs. A program is a flat list of commands whose operands are (arena, chunk, offset).
 * `prepare` turns it into an executable, `bind` sets the addresses of the arenas, and `run` executes it. `run`
 * neither allocates nor waits for the device.
 *
 * A context has two queues. Each queue executes its work in order. The queues run concurrently, and only events
 * order work across them. Programs and fills use the compute queue; each copy names its queue.
 *
 * A backend is a const table of functions. Every slot is required unless its comment says "Optional"; an optional
 * slot may be NULL.
 */
#ifndef TX_BACKEND_H
#define TX_BACKEND_H

#include "api/base/arithmetic.h"
#include "tx.h"

#define TX_BACKEND_VERSION 8

/* ---- Ops ----------------------------------------------------------------------------------- */

typedef enum tx_op {
#define TX_OP(NAME, ...) TX_OP_##NAME,
#define TX_VIRTUAL(NAME, ...)
#include "ops.def"
    TX_OP_KERNELS, /* ops below this value have kernels; ops above it have none */
#define TX_OP(NAME, ...)
#define TX_VIRTUAL(NAME, ...) TX_OP_##NAME,
#include "ops.def"
    TX_OP_COUNT
} tx_op;

/* The index of an operand of an op: in[TX_IN(matmul, bias)], out[TX_OUT(layer_norm, rstd)]. */
#define TX_IN(op, name) offsetof(struct tx_in_##op, name)
#define TX_OUT(op, name) offsetof(struct tx_out_##op, name)
#define TX_NAMES_(...) __VA_ARGS__
#define TX_OP(NAME, name, CLASS, CAST, min, n_in, n_out, in_place, adds, infer, grad, in, out) \
    struct tx_in_##name {                                                                      \
        char TX_NAMES_ in;                                                                     \
    };                                                                                         \
    struct tx_out_##name {                                                                     \
        char TX_NAMES_ out;                                                                    \
    };
#include "ops.def"

/* How an output that "adds" (ops.def) is written. */
typedef enum tx_accumulate { TX_STORE, TX_ADD, TX_ADD_CONTROL } tx_accumulate;

/* The function applied to a matrix product before it is stored; see op MATMUL in ops.def. */
#define TX_EPILOGUE_MAP(X) X(NONE) X(GELU) X(GELU_GRAD) X(ADD)
typedef enum tx_epilogue {
#define X(name) TX_EPILOGUE_##name,
    TX_EPILOGUE_MAP(X)
#undef X
} tx_epilogue;

/* The activation of the gates of op SWIGLU in ops.def. */
typedef enum tx_gate { TX_GATE_SILU, TX_GATE_GELU, TX_GATE_CLAMPED } tx_gate;

#define TX_PLACES 4 /* most matrices of op PLACE_ROWS */

/* Attributes of a command, by families of ops. An op reads the attributes that its row in ops.def names; the others
 * are 0. */
typedef struct tx_attrs {
    tx_accumulate accumulate;

    /* Products. */
    bool trans_a, trans_b, flat;
    bool full;       /* stays fp32 in mixed precision */
    bool as_product; /* a sum has the type of a product in its place */
    bool keeps;
    tx_epilogue epilogue;

    /* Element-wise ops, norms, losses and reductions. */
    tx_gate gate;
    bool exact, inverse;
    uint32_t sums;   /* gradient of a norm, bit i: output 1 + i, a sum over rows, is present */
    bool summed;     /* reshape: the gradient is summed over the tensor-parallel group */
    int32_t control; /* a tx_control, or -1 */
    float alpha, eps, scale, smoothing;
    tx_reduction reduction;
    tx_axis axis;

    /* Attention, norms of heads, and rotary positions. */
    struct {
        int32_t heads, kv_heads, head_size;
        int32_t window; /* the most keys that a query attends to; 0 = no limit */
        float cap;      /* soft cap of the scores; 0 = none */
        bool causal;
        bool chunked; /* queries attend to their own chunk of `window` positions */
        bool whole;   /* rows are whole although ranks divide positions; each rank has some of the heads */
    } attention;
    const tx_rope *rope; /* owned by the graph */

    /* Top-k (api/experts/ops.def). */
    struct {
        int32_t groups, kept, best;
        bool normalized;
    } choice;

    /* Recurrent layers (api/scan/ops.def). */
    struct {
        int32_t k_heads, v_heads, k_size; /* heads of keys and of values, and elements of a head of keys */
        bool delta;                       /* the gated delta rule; else Mamba-2 */
        bool silu;                        /* short convolution: SiLU of the result */
        float low, high;                  /* limits of the step */
    } scan;

    /* Random numbers. */
    struct {
        float p;
        int32_t site;
        int64_t row, column; /* index in the model of the first row, and of the first key of an attention */
    } draw;

    /* Tables, ranges and indices. */
    int64_t vocab, rows;
    /* Range: the first value. Embedding: the first row of this rank's shard of the table.
     * Update: index of the first weight in its arena. Attention: index of the first head in the model. Both are
     * keys of random numbers. */
    int64_t first;
    int64_t gap;     /* rows of the sequence between the two halves of this rank's rows (context parallelism) */
    int64_t padding; /* embedding: 1 + the row that is not trained; 0 = none */
    int32_t step;    /* of a range */
    int32_t place[TX_PLACES], placed[TX_PLACES]; /* the first row of each matrix, and its rows */

    tx_rounding rounding; /* of op FAKE_QUANTIZE */

    /* Collectives and messages. */
    struct {
        int32_t bucket;            /* collective: the bucket; message: its index within a micro-batch */
        int32_t packing;           /* all-gather: 1 + index in model->parallel's packings; 0 = a whole bucket */
        int32_t peer, micro_batch; /* message: the other rank; the micro-batch */
        bool around;               /* message: true within a context-parallel ring, false between pipeline stages */
    } exchange;

    /* Updates of parameters. */
    struct {
        float beta1, beta2, beta3, momentum, weight_decay;
        float slow_weight, beta3_steps, slow_weight_steps, warmup_steps;
        float rate;               /* factor of the learning rate; 0 means 1 */
        int32_t projection_steps; /* APOLLO: updates by one projection */
        bool nesterov, relative_step, scale_parameter, warmup_init, by_tensor, scale_front, unlimited;
    } update;
} tx_attrs;

/* The number of values after which a range repeats. */
static inline int64_t tx_range_period(const tx_attrs *attrs, int64_t count)
{
    return attrs->rows > 0 ? attrs->rows : count;
}

/* Returns the index of the gamma vector that normalizes row `row` of an RMS norm. Without heads it is always 0.
 * With heads it is 0 for q, 1 for k, and -1 for v, which is not normalized. */
static inline int64_t tx_norm_part(const tx_attrs *attrs, int64_t row)
{
    if (attrs->attention.heads == 0)
        return 0;
    const int64_t head = row % (attrs->attention.heads + 2 * (int64_t)attrs->attention.kv_heads);
    return head < attrs->attention.heads                                        ? 0
           : head < attrs->attention.heads + (int64_t)attrs->attention.kv_heads ? 1
                                                                                : -1;
}

/* ---- Programs -------------------------------------------------------------------------------- */

/* The arenas of device and host memory. X(NAME, memory kind, PLACED, LASTS, ALIKE); the last columns are 0 or 1.
 *   PLACED  The planner places tensors by lifetime, so that they share memory.
 *   LASTS   While a plan runs, only nodes of its graph write to the arena.
 *   ALIKE   All ranks have the same layout of it. */
#define TX_ARENA_MAP(X)                                                                                               \
    X(WEIGHTS, WEIGHTS, 0, 1, 1)                                                                                      \
    X(FROZEN, WEIGHTS, 0, 1, 1)        /* parameters that never change, each in its own type */                       \
    X(FROZEN_SHARDS, WEIGHTS, 0, 0, 1) /* this rank's shards of FROZEN, if it is sharded */                           \
    X(KEPT, WEIGHTS, 0, 1, 0)          /* device copies of offloaded WEIGHTS that plans read directly */              \
    X(SHARDS, WEIGHTS, 0, 0, 1)        /* this rank's shards of WEIGHTS, if they are sharded */                       \
    X(HALF, COPIES, 0, 1, 1)           /* 16-bit copies of WEIGHTS, in its order */                                   \
    X(GRADIENTS, GRADIENTS, 0, 0, 1)                                                                                  \
    X(OPTIMIZER, OPTIMIZER, 0, 0, 1)                                                                                  \
    X(STAGING, OFFLOADED, 1, 0, 0)        /* host buffers for transfers between file and device */                    \
    X(PLANNED, ACTIVATIONS, 1, 1, 0)      /* inputs, activations, temporaries */                                      \
    X(OFFLOADED, OFFLOADED, 1, 0, 0)      /* offloaded activations of blocks */                                       \
    X(STATE, CACHE, 0, 0, 0)              /* key-value caches, optimizer group bytes */                               \
    X(SHARED_STATE, ACTIVATIONS, 0, 0, 0) /* states in the memory of PLANNED (tx_model_share_states) */               \
    X(LENT_STATE, GRADIENTS, 0, 0, 0)     /* states in the memory of GRADIENTS */                                     \
    X(WEIGHTS_WINDOW, EXCHANGE, 0, 0, 1)  /* exchange buffers for WEIGHTS (below: GRADIENTS) of a device with its own \
                                             memory */                                                                \
    X(GRADIENTS_WINDOW, EXCHANGE, 0, 0, 1)                                                                            \
    X(EXCHANGE, EXCHANGE, 1, 1, 1)     /* other data that ranks exchange */                                           \
    X(TP, EXCHANGE, 1, 1, 1)           /* data that a tensor-parallel group exchanges */                              \
    X(CONTROL, FUNCTIONALITY, 0, 0, 0) /* TX_CONTROL_COUNT words written by the host */                               \
    X(RESULT, FUNCTIONALITY, 0, 0, 0)  /* TX_RESULT_COUNT floats written by the device */                             \
    X(SCRATCH, SCRATCH, 0, 0, 0)       /* size requested by prepare() */

typedef enum tx_arena_id {
#define X(name, ...) TX_ARENA_##name,
    TX_ARENA_MAP(X)
#undef X
        TX_ARENA_COUNT
} tx_arena_id;

#define TX_MAX_IN 6
#define TX_MAX_OUT 5

typedef struct tx_operand {
    tx_dtype dtype; /* TX_DTYPE_COUNT if the operand is absent */
    tx_shape shape;
    tx_arena_id arena;
    int32_t chunk;  /* the allocation of the arena, by index */
    int64_t offset; /* bytes within the chunk; a multiple of TX_ALIGNMENT except for ranges and results */
} tx_operand;

typedef struct tx_command {
    tx_op op;
    tx_direction direction;
    tx_attrs attrs;
    tx_operand in[TX_MAX_IN];
    tx_operand out[TX_MAX_OUT];
} tx_command;

typedef struct tx_program {
    int32_t length;
    const tx_command *commands; /* must outlive the executable */
    const void *trial; /* the candidate that the backend's autotuner measures, of a backend type; NULL otherwise */
    bool whole;   /* all commands run at once, and only then outputs are read: a launch may execute several commands */
    bool forward; /* no command belongs to a backward pass or an update */
} tx_program;

static inline bool tx_present(const tx_operand *o)
{
    return o->dtype != TX_DTYPE_COUNT;
}
static inline int64_t tx_operand_count(const tx_operand *o)
{
    return tx_shape_count(&o->shape);
}
static inline int64_t tx_operand_bytes(const tx_operand *o)
{
    return tx_dtype_bytes(o->dtype, tx_shape_count(&o->shape));
}

/* The matrix product of a MATMUL command (tx_gemm_of): c[i] = op(a[i]) op(b[i]) for i < batch. op(a) is m x k and
 * op(b) is k x n. Strides are in elements; a stride of 0 uses one operand for the whole batch. */
typedef struct tx_gemm {
    int64_t batch, m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c;
} tx_gemm;

/* Block sizes of sums over rows and over whole tensors. A block size depends only on the count, so every device
 * adds in the same order. There are enough blocks for GPUs of hundreds of compute units. If the first block is
 * aligned to 16 bytes, all are. */
#define TX_MAX_BLOCKS 1024
static inline int64_t tx_block_size(int64_t count, int64_t min_size)
{
    int64_t size = tx_ceil_div(count, TX_MAX_BLOCKS);
    return size < min_size ? min_size : tx_round_up(size, 4);
}
static inline int64_t tx_blocks(int64_t count, int64_t min_size)
{
    int64_t size = tx_block_size(count, min_size);
    return tx_ceil_div(count, size);
}
#define TX_ROW_BLOCK 16      /* minimum rows per block of a sum over rows */
#define TX_REDUCE_BLOCK 4096 /* minimum elements per block of a sum over a whole tensor */
static inline int64_t tx_row_blocks(int64_t rows)
{
    return tx_blocks(rows, TX_ROW_BLOCK);
}
/* Elements of REDUCE's work output. */
static inline int64_t tx_reduce_work(tx_axis axis, const tx_shape *x)
{
    if (axis == TX_AXIS_ALL)
        return tx_blocks(tx_shape_count(x), TX_REDUCE_BLOCK);
    return axis == TX_AXIS_ROWS ? tx_row_blocks(tx_shape_rows(x)) * tx_shape_last(x) : 1;
}

/* ---- Run-time scalars ------------------------------------------------------------------------- */

typedef union tx_word {
    float f32;
    uint32_t u32;
} tx_word;

/* The host's view of arena CONTROL, for library calls that take a scalar from the host. */
typedef struct tx_controls {
    tx_word word[TX_CONTROL_COUNT];
} tx_controls;

/* Returns the factor of the old value in this run, 0 or 1. */
static inline float tx_beta(tx_accumulate accumulate, const tx_controls *controls)
{
    if (accumulate == TX_ADD_CONTROL)
        return controls->word[TX_CONTROL_ACCUMULATE].f32 != 0.0f ? 1.0f : 0.0f;
    return accumulate == TX_ADD ? 1.0f : 0.0f;
}

#define TX_FACT_KERNEL "kernel "

/* ---- The table ---------------------------------------------------------------------------------- */

typedef struct tx_context tx_context;       /* an opened device */
typedef struct tx_buffer tx_buffer;         /* one allocation */
typedef struct tx_executable tx_executable; /* a prepared program */

typedef enum tx_queue_id { TX_QUEUE_COMPUTE, TX_QUEUE_TRANSFER } tx_queue_id;

/* A point in a queue: reached when all work enqueued before it is done. The caller owns the event until `wait` or
 * `forget` frees it. NULL is an event that has already been reached. */
typedef struct tx_event tx_event;

/* The location of a buffer's memory. */
typedef enum tx_memory_space {
    TX_SPACE_DEVICE, /* device memory; programs use only this */
    TX_SPACE_PINNED, /* pinned host memory, for DMA that overlaps with other work */
    TX_SPACE_WINDOW, /* memory shared by the ranks of a host: the communicator allocates it, a backend adopts it */
    TX_SPACE_FILE    /* the engine's offload file: not memory, and unknown to backends */
} tx_memory_space;

/* The allocations of an arena. */
typedef struct tx_extent {
    int32_t chunks;
    tx_buffer *const *chunk;
} tx_extent;

/* The allocations of all arenas. An arena that the program does not use may have 0 chunks. */
typedef struct tx_bindings {
    tx_extent arena[TX_ARENA_COUNT];
} tx_bindings;

typedef struct tx_open_options {
    int32_t threads; /* 0 = all that this process may use */
    bool profile;
    bool tf32;                   /* allow tf32 operands in fp32 matrix products if the device has tf32 units */
    const tx_tune_options *tune; /* as in tx_engine_options; must outlive the context */
    const tx_reporter *report;   /* as in tx_engine_options; must outlive the context */
} tx_open_options;

typedef struct tx_command_info {
    const char *variant; /* the kernel, provider or library that executes this command */
    int32_t launches;    /* number of kernel launches or library calls */
} tx_command_info;

typedef struct tx_backend {
    uint32_t version; /* TX_BACKEND_VERSION */
    const char *name; /* "cpu", "opencl" */
    /* True if the device uses host memory. Then map() always returns an address, allocate() returns zeros, and work for
     * the compute queue is done when the call returns. */
    bool host_memory;
    bool blocks; /* products and tables may be of blocks (api/base/blocks.h) */

    /* Devices. `index` counts this backend's devices from 0. */
    tx_status (*device_count)(int32_t *count);
    tx_status (*device_info)(int32_t index, tx_device_info *info);
    /* Opens a device and runs a known-answer test. A device that fails the test is refused, with a message that
     * names the failure. */
    tx_status (*open)(int32_t index, const tx_open_options *options, tx_context **context);
    void (*close)(tx_context *context); /* call it after all buffers and executables are freed */
    /* Optional: tx_engine_workers. */
    void (*workers)(int argc, char *const *argv);

    /* Memory, in any space except TX_SPACE_WINDOW and TX_SPACE_FILE. The context counts the bytes held per kind and
     * the number of calls. */
    tx_status (*allocate)(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                          tx_buffer **buffer);
    /* Makes a buffer over the caller's host memory. The memory must be aligned to TX_ALIGNMENT and outlive the
     * buffer. If the device uses host memory, the buffer is like any other; otherwise it is pinned. It counts as
     * allocated. */
    tx_status (*adopt)(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer);
    /* Waits for both queues, then frees the buffer. */
    void (*release)(tx_context *context, tx_buffer *buffer);
    /* Returns the host address of the memory, or NULL if the host cannot access it. Only buffers in TX_SPACE_DEVICE
     * return NULL. The cpu backend never returns NULL. */
    void *(*map)(tx_buffer *buffer);
    void (*account)(const tx_context *context, tx_memory *held, tx_traffic *traffic);

    /* Copies between host and device. Until the copy is done the host memory must not change (write), and its
     * content is undefined (read_begin). A copy is done once `finish` or an event after it was waited for.
     * read_begin returns such an event.
     * A copy on the transfer queue is not ordered with programs before or after it: see tx_order. `read` waits for
     * its data. `read` and `fill` use the compute queue. */
    tx_status (*write)(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                       int64_t bytes);
    tx_status (*read_begin)(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                            int64_t bytes, tx_event **event);
    tx_status (*read)(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes);
    tx_status (*fill)(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes);
    /* Copies between two buffers in any spaces. */
    tx_status (*copy)(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                      int64_t to_offset, int64_t bytes);

    /* Events. `mark` creates an event after all work enqueued so far. Work enqueued in `queue` after await starts
     * when the event has been reached; the event stays valid. `wait` blocks the host and frees the event; it returns
     * the failure of earlier work, if any. `forget` frees the event without waiting. */
    tx_status (*mark)(tx_context *context, tx_queue_id queue, tx_event **event);
    tx_status (*await)(tx_context *context, tx_queue_id queue, tx_event *event);
    tx_status (*wait)(tx_context *context, tx_event *event);
    void (*forget)(tx_context *context, tx_event *event);
    /* Waits for both queues. */
    tx_status (*finish)(tx_context *context);

    /* Programs. prepare compiles kernels, creates primitives and selects variants. It allocates no device memory,
     * and returns how many bytes of arena SCRATCH a run needs. The programs of a model run one after another and
     * share SCRATCH. */
    tx_status (*prepare)(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes);
    /* Sets the addresses of the arenas. Call it again after an arena was moved. */
    tx_status (*bind)(tx_executable *executable, const tx_bindings *bindings);
    /* Runs commands first..first+count-1. If `seconds` is not NULL, it has one element for each command of the
     * program. The call then waits for the device and adds the time of each command to its element. */
    tx_status (*run)(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds);
    tx_command_info (*command_info)(const tx_executable *executable, int32_t index);
    void (*destroy)(tx_executable *executable);

    /* Optional: choices made by measurement, see tx_engine_choices and tx_engine_choose. The caller frees the text. */
    tx_status (*choices)(const tx_context *context, char **text);
    tx_status (*choose)(tx_context *context, const char *text);
    /* Optional: results of the autotuner for this device from this and earlier runs, see tx_engine_tuned. */
    tx_status (*tuned)(tx_context *context, char **text);
    /* Optional: facts for people about the device, how TX classifies it, and how its compiler built the kernels so
     * far. One fact a line, KEY<TAB>VALUE; the key of a kernel is TX_FACT_KERNEL and its name. The caller frees the
     * text. */
    tx_status (*facts)(const tx_context *context, char **text);
} tx_backend;

/* Orders the queues: work enqueued in `then` from now on starts after all work enqueued in `first` so far. */
static inline tx_status tx_order(const tx_backend *backend, tx_context *context, tx_queue_id first, tx_queue_id then)
{
    tx_event *event = NULL;
    tx_status status = backend->mark(context, first, &event);
    if (status != TX_OK)
        return status;
    status = backend->await(context, then, event);
    backend->forget(context, event);
    return status;
}

/* All backends of this build; the cpu backend is first. Only registry.c names them. */
const tx_backend *const *tx_backends(int32_t *count);

#endif
