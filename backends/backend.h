/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the engine and a backend.
 *
 * The engine owns graphs, shapes, validation, lifetimes and offsets. A backend owns a device: it gives
 * memory, copies, and executes programs. A program is a flat list of commands whose operands are
 * (arena, chunk, offset); the backend turns it into something it can replay (`prepare`), is told where the arenas
 * lie (`bind`), and replays it (`run`) without allocating and without waiting for the device.
 *
 * A context has two queues. What is given to one of them runs in the order given; the two run beside each other, and
 * events alone order one after the other. Programs and fills go to the compute queue, copies to the one that they name.
 *
 * A backend is a const table of functions. Slots are required unless marked optional (may be NULL).
 */
#ifndef TX_BACKEND_H
#define TX_BACKEND_H

#include "tx.h"

#include <math.h>

#define TX_BACKEND_VERSION 7

/* ---- Ops ----------------------------------------------------------------------------------- */

typedef enum tx_op {
#define TX_OP(NAME, ...) TX_OP_##NAME,
#define TX_VIRTUAL(NAME, ...)
#include "ops.def"
    TX_OP_KERNELS, /* ops below have kernels, ops above have none */
#define TX_OP(NAME, ...)
#define TX_VIRTUAL(NAME, ...) TX_OP_##NAME,
#include "ops.def"
    TX_OP_COUNT
} tx_op;

/* Where an operand stands among its op's: in[TX_IN(matmul, bias)], out[TX_OUT(layer_norm, rstd)]. */
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

/* What becomes of a product before it is stored, see op MATMUL. */
#define TX_EPILOGUE_MAP(X) X(NONE) X(GELU) X(GELU_GRAD) X(ADD)
typedef enum tx_epilogue {
#define X(name) TX_EPILOGUE_##name,
    TX_EPILOGUE_MAP(X)
#undef X
} tx_epilogue;

/* Attributes of a command; an op reads those that its row in ops.def names, the others are 0. */
typedef struct tx_attrs {
    bool trans_a, trans_b, flat, full;
    bool summed; /* of a reshape */
    bool exact, inverse;
    tx_accumulate accumulate;
    tx_epilogue epilogue;
    bool keeps;
    tx_reduction reduction;
    tx_axis axis;
    struct {
        int32_t heads, kv_heads, head_size;
        int32_t window; /* keys that a query sees at most; 0: any number */
        bool causal;
    } attention;
    struct {
        float p;
        int32_t site;
        int64_t row, column; /* numbers in the model's rows of the first one, and of an attention's first key */
    } draw;
    struct {
        int32_t bucket;            /* of a collective; of a message its number among those of a micro-batch */
        int32_t packing;           /* of a gathering: a number of model->parallel's counted from 1; 0: a whole bucket */
        int32_t peer, micro_batch; /* of a message; the latter of all nodes of many micro-batches */
        bool around;               /* of a message: round a context group, and not from stage to stage */
    } exchange;
    struct {
        float beta1, beta2, momentum, weight_decay;
        bool nesterov, relative_step, scale_parameter, warmup_init;
    } update;
    int32_t control; /* a tx_control, or -1 */
    int64_t vocab, rows;
    /* Of a range, and of the rows of a table that a rank has; of updates the number in its arena of the first weight,
     * of attention that in the model of its first head, both of which key random numbers. */
    int64_t first;
    int32_t step;    /* of a range */
    int64_t gap;     /* rows of the model that lie between the first half of a sample's rows and the second */
    int64_t padding; /* of a table: the row that learns nothing, counted from 1; 0: none */
    float alpha, eps, scale, smoothing;
    tx_rope rope;
} tx_attrs;

/* After how many numbers a range begins again. */
static inline int64_t tx_range_period(const tx_attrs *attrs, int64_t count)
{
    return attrs->rows > 0 ? attrs->rows : count;
}

/* A factor as mantissa / 2^shift, exactly; 0 if it is not above 0. */
static inline int64_t tx_factor_mantissa(float factor, int32_t *shift)
{
    int exponent = 0;
    const float part = factor > 0.0f ? frexpf(factor, &exponent) : 0.0f;
    *shift = 24 - exponent;
    return (int64_t)ldexpf(part, 24);
}

/* ceil(factor choices / experts), exactly, and at most all choices; all of them if the factor is 0. */
static inline int64_t tx_expert_capacity(float factor, int64_t choices, int64_t experts)
{
    int32_t shift;
    const int64_t mantissa = tx_factor_mantissa(factor, &shift);
    const int64_t even = (mantissa * choices + experts - 1) / experts;
    if (mantissa == 0 || shift < 1)
        return choices;
    const int64_t most = shift < 62 ? (even + ((int64_t)1 << shift) - 1) >> shift : even > 0;
    return most < choices ? most : choices;
}

/* Which part of gamma row `row` of an RMS norm takes: 0, or with heads that of q 0, of k 1; -1: v, which stays. */
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

/* Where memory comes from. X(NAME, memory kind) */
#define TX_ARENA_MAP(X)                                                                                            \
    X(WEIGHTS, WEIGHTS)                                                                                            \
    X(FROZEN, WEIGHTS)        /* parameters that never change, in types of their own */                            \
    X(FROZEN_SHARDS, WEIGHTS) /* this rank's shards of FROZEN, where no rank has all of it */                      \
    X(KEPT, WEIGHTS)          /* of WEIGHTS that lie outside the device's memory what plans read as it is */       \
    X(SHARDS, WEIGHTS)        /* this rank's shards of WEIGHTS, where no rank has all of it */                     \
    X(HALF, COPIES)           /* 16-bit copies of WEIGHTS, in its order */                                         \
    X(GRADIENTS, GRADIENTS)                                                                                        \
    X(OPTIMIZER, OPTIMIZER)                                                                                        \
    X(STAGING, OFFLOADED)       /* host memory by which what lies in a file goes to the device and back */         \
    X(PLANNED, ACTIVATIONS)     /* inputs, activations, temporaries: reused by lifetimes */                        \
    X(OFFLOADED, OFFLOADED)     /* activations of blocks, while the passes are elsewhere: likewise */              \
    X(STATE, CACHE)             /* key-value caches, optimizer group bytes */                                      \
    X(WEIGHTS_WINDOW, EXCHANGE) /* where ranks exchange WEIGHTS, and GRADIENTS, of a device with its own memory */ \
    X(GRADIENTS_WINDOW, EXCHANGE)                                                                                  \
    X(EXCHANGE, EXCHANGE)     /* what ranks exchange and lies in no other arena */                                 \
    X(TP, EXCHANGE)           /* what the ranks of a tensor group exchange */                                      \
    X(CONTROL, FUNCTIONALITY) /* TX_CONTROL_COUNT words written by the host */                                     \
    X(RESULT, FUNCTIONALITY)  /* TX_RESULT_COUNT floats written by the device */                                   \
    X(SCRATCH, SCRATCH)       /* what prepare() asked for */

typedef enum tx_arena_id {
#define X(name, kind) TX_ARENA_##name,
    TX_ARENA_MAP(X)
#undef X
        TX_ARENA_COUNT
} tx_arena_id;

#define TX_MAX_IN 6
#define TX_MAX_OUT 4

typedef struct tx_operand {
    tx_dtype dtype; /* TX_DTYPE_COUNT: the operand is absent */
    tx_shape shape;
    tx_arena_id arena;
    int32_t chunk;  /* which allocation of the arena */
    int64_t offset; /* bytes within the chunk, a multiple of TX_ALIGNMENT save for ranges and results */
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
    const tx_command *commands; /* must live as long as the backend's plan */
    const void *trial;          /* the candidate that the backend itself tries, a type of its own; else NULL */
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

/* The product that a MATMUL command asks for (tx_gemm_of): c[i] = op(a[i]) op(b[i]), i < batch; op(a) is m x k, op(b)
 * k x n; strides in elements, 0 where one operand serves the whole batch. */
typedef struct tx_gemm {
    int64_t batch, m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c;
} tx_gemm;

/* Sums over rows and over everything go by blocks of a size that depends on the count alone: enough for GPUs of
 * hundreds of units, and each begins at a multiple of 16 bytes where the first does. */
#define TX_MAX_BLOCKS 1024
static inline int64_t tx_block_size(int64_t count, int64_t least)
{
    int64_t size = (count + TX_MAX_BLOCKS - 1) / TX_MAX_BLOCKS;
    return size < least ? least : (size + 3) / 4 * 4;
}
static inline int64_t tx_blocks(int64_t count, int64_t least)
{
    int64_t size = tx_block_size(count, least);
    return (count + size - 1) / size;
}
#define TX_ROW_BLOCK 16      /* least rows in a block of a sum over rows */
#define TX_REDUCE_BLOCK 4096 /* least elements in a block of a sum over everything */
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

/* Elements of ADAFACTOR's work output: sums over blocks of rows by columns, squares of u and p by row (or, of what is
 * no matrix, by block of TX_REDUCE_BLOCK elements), and a few numbers. */
#define TX_ADAFACTOR_NUMBERS 4
static inline int64_t tx_adafactor_lines(const tx_shape *p)
{
    return p->rank == 2 ? p->dim[0] : tx_blocks(tx_shape_count(p), TX_REDUCE_BLOCK);
}
static inline int64_t tx_adafactor_work(const tx_shape *p)
{
    const int64_t sums = p->rank == 2 ? tx_row_blocks(p->dim[0]) * p->dim[1] : 0;
    return sums + 2 * tx_adafactor_lines(p) + TX_ADAFACTOR_NUMBERS;
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

/* What `accumulate` means in this run: the factor of the old value, 0 or 1. */
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

/* A point in a queue: behind all that it had been given. It is the caller's until `wait` or `forget` ends it. NULL is a
 * point that has been reached. */
typedef struct tx_event tx_event;

/* Where memory lies. */
typedef enum tx_memory_space {
    TX_SPACE_DEVICE, /* the device's own; programs use no other */
    TX_SPACE_PINNED, /* the host's, where a device copies to and from by itself, fast and beside all else */
    TX_SPACE_WINDOW, /* what the ranks of a host share: the communicator gives it, a backend adopts it */
    TX_SPACE_FILE    /* the engine's file: no memory, and nothing that a backend knows */
} tx_memory_space;

/* An arena as it lies. */
typedef struct tx_extent {
    int32_t chunks;
    tx_buffer *const *chunk;
} tx_extent;

/* The arenas as they lie; an arena that the program does not touch may have 0 chunks. */
typedef struct tx_bindings {
    tx_extent arena[TX_ARENA_COUNT];
} tx_bindings;

typedef struct tx_open_options {
    int32_t threads; /* 0: as many as this process may use */
    bool profile;
    bool tf32; /* fp32 matrix products may round their operands to tf32 where the device has units for that */
    const tx_tune_options *tune; /* as in tx_engine_options; outlives the context */
    const tx_reporter *report;   /* likewise */
} tx_open_options;

typedef struct tx_command_info {
    const char *variant; /* the kernel, provider or library that runs this command */
    int32_t launches;    /* how many launches or calls it takes */
} tx_command_info;

typedef struct tx_backend {
    uint32_t version; /* TX_BACKEND_VERSION */
    const char *name; /* "cpu", "opencl" */
    /* The device's memory is the host's: map() always gives an address, and what goes to the compute queue is done when
     * the call returns. */
    bool host_memory;

    /* Devices. `index` counts this backend's devices from 0. */
    tx_status (*device_count)(int32_t *count);
    tx_status (*device_info)(int32_t index, tx_device_info *info);
    /* Opens a device and checks it by a known-answer test; a device that fails it is refused, saying what failed. */
    tx_status (*open)(int32_t index, const tx_open_options *options, tx_context **context);
    void (*close)(tx_context *context); /* after all its buffers and executables are gone */

    /* Memory, in any space but TX_SPACE_WINDOW and TX_SPACE_FILE. The context keeps the account: bytes held per kind,
     * and the number of calls. */
    tx_status (*allocate)(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                          tx_buffer **buffer);
    /* A buffer over host memory of the caller's, aligned to TX_ALIGNMENT, which outlives it: where the device's memory
     * is the host's it serves as any other; else it is pinned. Counts as allocated. */
    tx_status (*adopt)(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer);
    /* Waits for both queues. */
    void (*release)(tx_context *context, tx_buffer *buffer);
    /* Address of the memory for the host; NULL when it is not the host's to touch. It is NULL for buffers in
     * TX_SPACE_DEVICE alone, and for those of the cpu backend never. */
    void *(*map)(tx_buffer *buffer);
    void (*account)(const tx_context *context, tx_memory *held, tx_traffic *traffic);

    /* Copies between host and device. The host's end has to stay as it is (write) or is not there yet (read_begin)
     * until the copy is done: until an event behind it was waited for, or `finish`. read_begin's event is as one of
     * `mark` behind it. A copy of the transfer queue is not ordered after programs that were given before it, nor are
     * later ones after it: see tx_order. `read` waits; like `fill` it belongs to the compute queue. */
    tx_status (*write)(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                       int64_t bytes);
    tx_status (*read_begin)(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                            int64_t bytes, tx_event **event);
    tx_status (*read)(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes);
    tx_status (*fill)(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes);
    /* Between two buffers, of any spaces. */
    tx_status (*copy)(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                      int64_t to_offset, int64_t bytes);

    /* Events. mark makes one behind all that the queue was given so far. What `queue` is given after await runs when
     * that point has been reached; the event lives on. wait: the host waits for it, and ends it, also when it tells of
     * a failure of what was given before that point. forget ends it. */
    tx_status (*mark)(tx_context *context, tx_queue_id queue, tx_event **event);
    tx_status (*await)(tx_context *context, tx_queue_id queue, tx_event *event);
    tx_status (*wait)(tx_context *context, tx_event *event);
    void (*forget)(tx_context *context, tx_event *event);
    /* Waits for both queues. */
    tx_status (*finish)(tx_context *context);

    /* Programs. prepare: compiles kernels, makes primitives, picks variants, and tells how many bytes of arena SCRATCH
     * a run needs (programs of a model run one after another and share it); takes no device memory. */
    tx_status (*prepare)(tx_context *context, const tx_program *program, tx_executable **executable,
                         int64_t *scratch_bytes);
    /* Tells where the arenas lie; again after an arena was moved. */
    tx_status (*bind)(tx_executable *executable, const tx_bindings *bindings);
    /* Runs commands first..first+count-1. `seconds`, when not NULL, has one element a command of the program; the time
     * of each is added to its element, and the call waits for the device. */
    tx_status (*run)(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                     double *seconds);
    tx_command_info (*command_info)(const tx_executable *executable, int32_t index);
    void (*destroy)(tx_executable *executable);

    /* Optional: choices made by measuring, as tx_engine_choices and tx_engine_choose say. The caller frees the text. */
    tx_status (*choices)(const tx_context *context, char **text);
    tx_status (*choose)(tx_context *context, const char *text);
    /* Optional: what measuring found out about this device in this and earlier runs, as tx_engine_tuned says. */
    tx_status (*tuned)(tx_context *context, char **text);
    /* Optional: what the device says of itself, what TX takes it for, and how its compiler built the kernels so far:
     * one fact a line, KEY<TAB>VALUE, for people; a kernel's key is TX_FACT_KERNEL and its name. The caller frees the
     * text. */
    tx_status (*facts)(const tx_context *context, char **text);
} tx_backend;

/* What queue `then` is given from now on runs after all that `first` was given so far. */
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

/* All backends of this build, the cpu first. The registry is the only file that names them. */
const tx_backend *const *tx_backends(int32_t *count);

#endif
