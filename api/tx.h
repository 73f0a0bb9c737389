/* SPDX-License-Identifier: Apache-2.0
 *
 * TX: a portable transformer-training engine.
 *
 * A program builds a static graph of tensors, asks for its gradients, compiles it to a plan for one
 * device and replays the plan every step:
 *
 *     tx_engine  one device, its queues and its memory accounts
 *     tx_model   named parameters with their gradients, optimizer states and run-time scalars
 *     tx_graph   a static graph of operations over the parameters of one model
 *     tx_plan    a compiled graph: every offset known, replayed without allocation
 *
 * Errors. Functions that can fail return a tx_status (0 is success); outputs are set only on success
 * and tx_error() then holds one line that says what is wrong. Functions that add to a graph return
 * NULL on error instead; they accept NULL operands and pass the failure on, so a whole model can be
 * written down and checked once, at tx_backward or tx_plan_create.
 *
 * Ownership. Who creates frees. Parents outlive children: engine > model > graph > plan. Tensors belong to
 * their graph. Option structs begin with their size, so that they can grow.
 *
 * Threads. An engine and everything made from it belong to one thread at a time; several engines may
 * be used by several threads. The error message is thread-local; there are no other mutable globals.
 */
#ifndef TX_H
#define TX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* The shared library exports what is declared here and nothing else. */
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define TX_VERSION "0.1.0"
#define TX_MAX_RANK 5
/* Every tensor starts on a multiple of this many bytes; a parameter on TX_PARAM_BLOCK elements. */
#define TX_ALIGNMENT 512
#define TX_PARAM_BLOCK 256
/* Label of a position that counts neither in the loss nor in its gradient. */
#define TX_IGNORE_LABEL (-100)

/* ---- Status ------------------------------------------------------------------------------- */

/* X(NAME, value, "sentence") */
#define TX_STATUS_MAP(X)                             \
    X(OK, 0, "success")                              \
    X(INVALID, -1, "invalid argument")               \
    X(UNSUPPORTED, -2, "not supported")              \
    X(MEMORY, -3, "out of memory")                   \
    X(IO, -4, "input or output failed")              \
    X(FORMAT, -5, "malformed file")                  \
    X(DEVICE, -6, "the device or its driver failed") \
    X(NOT_FOUND, -7, "not found")                    \
    X(INTERNAL, -8, "internal error")

typedef enum tx_status {
#define X(name, value, text) TX_##name = value,
    TX_STATUS_MAP(X)
#undef X
} tx_status;

/* The sentence that belongs to a status code. */
const char *tx_status_text(tx_status status);
/* The message of the last failure on this thread; "" when there was none. */
const char *tx_error(void);

#if defined(__GNUC__)
#define TX_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define TX_PRINTF(f, a)
#endif
/* Records a failure: sets this thread's message and returns `status`. For code that extends TX. */
tx_status tx_fail(tx_status status, const char *format, ...) TX_PRINTF(2, 3);
/* Puts "context: " before this thread's message and returns `status`. */
tx_status tx_fail_in(tx_status status, const char *format, ...) TX_PRINTF(2, 3);

/* ---- Types and shapes ---------------------------------------------------------------------- */

/* X(NAME, bytes, "name in safetensors files") */
#define TX_DTYPE_MAP(X) \
    X(F32, 4, "F32")    \
    X(BF16, 2, "BF16")  \
    X(F16, 2, "F16")    \
    X(I32, 4, "I32")    \
    X(U8, 1, "U8")

typedef enum tx_dtype {
#define X(name, bytes, text) TX_##name,
    TX_DTYPE_MAP(X)
#undef X
        TX_DTYPE_COUNT
} tx_dtype;

size_t tx_dtype_size(tx_dtype dtype);
const char *tx_dtype_name(tx_dtype dtype);

typedef struct tx_shape {
    int32_t rank;
    int64_t dim[TX_MAX_RANK]; /* outermost first; row-major, no gaps */
} tx_shape;

/* TX_SHAPE(4, 128, 768) */
#define TX_SHAPE(...) ((tx_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

int64_t tx_shape_count(const tx_shape *shape); /* number of elements */
int64_t tx_shape_rows(const tx_shape *shape);  /* product of all dimensions but the last */
int64_t tx_shape_last(const tx_shape *shape);  /* the last dimension; 1 for rank 0 */
bool tx_shape_equal(const tx_shape *a, const tx_shape *b);
/* Writes "[4, 128, 768]"; returns `text`. */
const char *tx_shape_text(const tx_shape *shape, char *text, size_t size);

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
} tx_device_info;

/* Number of devices over all backends; the cpu comes first. A platform without devices is not an error. */
tx_status tx_device_count(int32_t *count);
tx_status tx_device_get(int32_t index, tx_device_info *info);
/* Finds "cpu", "opencl", "opencl:N", "gpu", or "opencl:TEXT" with TEXT part of a name (any case). */
tx_status tx_device_find(const char *name, int32_t *index);

/* ---- Memory accounts ----------------------------------------------------------------------- */

/* The categories of the Hugging Face memory anatomy. X(NAME, "name") */
#define TX_MEMORY_MAP(X)                                                                   \
    X(WEIGHTS, "weights")                                                                  \
    X(OPTIMIZER, "optimizer states")                                                       \
    X(GRADIENTS, "gradients")                                                              \
    X(ACTIVATIONS, "activations")     /* kept by the forward pass for the backward pass */ \
    X(TEMPORARY, "temporary")         /* everything else in the planned arena */           \
    X(FUNCTIONALITY, "functionality") /* scalars, caches, library scratch, packed weights, staging */

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
/* Makes it choose the same again; call it before the first plan is compiled. A choice that this build or device
 * does not have is TX_UNSUPPORTED, and nothing is changed. */
tx_status tx_engine_choose(tx_engine *engine, const char *text);
/* What this and earlier runs found out about the device by measuring, one line each: KEY, a tab, VALUE; "" where
 * nothing is measured. The caller frees `*text`. */
tx_status tx_engine_tuned(const tx_engine *engine, char **text);

/* ---- Model: parameters, gradients, optimizer states, run-time scalars ----------------------- */

typedef struct tx_model tx_model;

/* Scalars that the host sets between runs; they live in one small device buffer. X(NAME, type) */
#define TX_CONTROL_MAP(X)                                                                           \
    X(LEARNING_RATE, f32)                                                                           \
    X(ACCUMULATE, f32)     /* 0 for the first micro-batch of an optimizer step, 1 for the others */ \
    X(INVERSE_LABELS, f32) /* 1 / counted labels of the whole global batch */                       \
    X(LOSS_SCALE, f32)     /* the gradients carry this factor; the update divides by it */          \
    X(MAX_GRAD_NORM, f32)  /* gradients are scaled down to this global norm; 0: never */            \
    X(SEED_LO, u32)                                                                                 \
    X(SEED_HI, u32)                                                                                 \
    X(STEP, u32)   /* of the optimizer; keys the random numbers */                                  \
    X(SAMPLE, u32) /* global number of the micro-batch's first sample; keys random numbers */

typedef enum tx_control {
#define X(name, type) TX_CONTROL_##name,
    TX_CONTROL_MAP(X)
#undef X
        TX_CONTROL_COUNT
} tx_control;

/* Scalars that the device writes. X(NAME) */
#define TX_RESULT_MAP(X)                                                                     \
    X(LOSS)        /* sum over micro-batches of the loss given to tx_backward */             \
    X(GRAD_SUMSQ)  /* sum of squares of all gradients, loss scale included */                \
    X(GRAD_NORM)   /* global norm before clipping, loss scale removed */                     \
    X(GRAD_FACTOR) /* what the update multiplies gradients with (clip and 1 / loss scale) */ \
    X(FINITE)      /* 1, or 0 when the norm is not finite: that update changes nothing */    \
    X(UPDATES)     /* updates made so far: Adam's t */                                       \
    X(SKIPPED)     /* updates left out because a gradient was not finite */

typedef enum tx_result {
#define X(name) TX_RESULT_##name,
    TX_RESULT_MAP(X)
#undef X
        TX_RESULT_COUNT
} tx_result;

typedef struct tx_results {
    float value[TX_RESULT_COUNT];
} tx_results;

typedef enum tx_init { TX_INIT_ZERO, TX_INIT_ONE, TX_INIT_NORMAL, TX_INIT_UNIFORM } tx_init;

/* Parts of a parameter side by side along a dimension, which files may hold apart and ranks may divide: q | k | v, or
 * gate | up. */
#define TX_MAX_SECTIONS 4
typedef struct tx_param_sections {
    int32_t count;     /* 0: it has none */
    int32_t dimension; /* of a parameter of rank 1 or 2 */
    int64_t size[TX_MAX_SECTIONS];
} tx_param_sections;

typedef struct tx_param_spec {
    tx_shape shape;   /* as stored, padding included */
    tx_shape logical; /* without padding; rank 0: the same as shape. Only the first dimension may differ */
    tx_init init;
    float scale;    /* standard deviation of NORMAL, half width of UNIFORM */
    bool decay;     /* weight decay applies */
    bool frozen;    /* never changes: it has no gradient and no optimizer states */
    tx_dtype dtype; /* as stored; of what is not frozen F32 */
    tx_param_sections sections;
} tx_param_spec;

/* State k of the optimizer is part TX_PART_STATE + k. */
typedef enum tx_part { TX_PART_WEIGHT, TX_PART_GRADIENT, TX_PART_STATE } tx_part;

tx_status tx_model_create(tx_engine *engine, tx_model **model);
void tx_model_free(tx_model *model);

int32_t tx_model_param_count(const tx_model *model);
/* Name and spec of parameter `index`, in arena order; they live as long as the model. `logical` is given here whether
 * or not the spec that the parameter was declared by gave it. */
tx_status tx_model_param(const tx_model *model, int32_t index, const char **name, const tx_param_spec **spec);
tx_status tx_model_find(const tx_model *model, const char *name, int32_t *index);
/* Draws every parameter by its spec. The draw depends on (seed, name, logical element) alone. */
tx_status tx_model_init(tx_model *model, uint64_t seed);
/* Copy one parameter's part from or to `data`: fp32 whatever is stored, logical shape, row-major. They wait for the
 * device. */
tx_status tx_model_write(tx_model *model, tx_part part, int32_t index, const float *data);
tx_status tx_model_read(tx_model *model, tx_part part, int32_t index, float *data);
/* The same for elements first .. first + count - 1 of it. */
tx_status tx_model_write_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count,
                               const float *data);
tx_status tx_model_read_range(tx_model *model, tx_part part, int32_t index, int64_t first, int64_t count, float *data);
/* The same for a section of it (tx_param_sections), as if it were a parameter by itself. */
tx_status tx_model_write_section(tx_model *model, tx_part part, int32_t index, int32_t section, const float *data);
tx_status tx_model_read_section(tx_model *model, tx_part part, int32_t index, int32_t section, float *data);

/* Sets a scalar for the runs that follow. Values of u32 controls are whole numbers. */
tx_status tx_model_set(tx_model *model, tx_control control, double value);
tx_status tx_model_set_seed(tx_model *model, uint64_t seed);
/* Asks for a copy of the results as they are after the runs given so far; does not wait. At most
 * TX_RESULTS_PENDING copies may be outstanding. */
#define TX_RESULTS_PENDING 4
tx_status tx_model_fetch(tx_model *model);
/* Takes the oldest copy asked for, waiting for it if need be. */
tx_status tx_model_results(tx_model *model, tx_results *results);

/* Sets the results that last from update to update, UPDATES and SKIPPED, to those of an earlier run; the others
 * become 0. Waits for the device. */
tx_status tx_model_restore(tx_model *model, const tx_results *results);

/* What the plans compiled so far will hold, known before a byte is allocated. */
tx_status tx_model_memory(const tx_model *model, tx_memory *planned);
/* Allocates everything now. Otherwise the first run, read or write does. */
tx_status tx_model_allocate(tx_model *model);

/* ---- Many ranks ------------------------------------------------------------------------------ */

/* The ranks that train together: processes that a launcher started (mpiexec), or this one alone. */
typedef struct tx_comm tx_comm;

/* Joins them. Fails when the launcher started more ranks than this build can see, naming the launcher to use. One a
 * process; models that use it go first. */
tx_status tx_comm_open(int *argc, char ***argv, tx_comm **comm);
void tx_comm_close(tx_comm *comm);
int32_t tx_comm_rank_of(const tx_comm *comm);
int32_t tx_comm_size_of(const tx_comm *comm);

typedef struct tx_parallel_options {
    size_t size;          /* sizeof(tx_parallel_options) */
    int64_t bucket_bytes; /* gradients are summed in buckets of about so many bytes; 0: 25 MiB, the first 1 MiB */
    bool half;            /* gradients leave a host in bf16 */
    int32_t zero_stage;   /* 0: every rank keeps all; 1: optimizer states are spread over the ranks; 2: gradients too
                             (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
                             2020) */
} tx_parallel_options;

/* Makes `model` one of many copies, each rank's: from now on gradients and result LOSS are summed over the ranks, and
 * every rank makes the same updates. Every rank calls it, before the first parameter is declared, and builds the same
 * graphs, save for batch sizes. Each rank's loss is to be its part of the sum (control INVERSE_LABELS: of the labels of
 * all ranks). With zero_stage 1 and 2 all ranks make the calls that read optimizer states. */
tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options);
/* Whether runs of a training plan sum the gradients over the ranks: off for all but the last micro-batch of a step. On
 * at first. (With zero_stage 2 every run does.) */
tx_status tx_model_synchronize(tx_model *model, bool on);
/* Waits for what still moves between the ranks: gradients, or weights of the last update. All of them call it before
 * some read those or go. */
tx_status tx_model_settle(tx_model *model);
/* Whether each rank has shards of the optimizer states alone (zero_stage 1 and 2). */
bool tx_model_spreads(const tx_model *model);
/* A number that the ranks sum with every update, so that they decide alike: this rank's for the next one, and the sum
 * of the last. */
void tx_model_vote(tx_model *model, float mine);
float tx_model_votes(const tx_model *model);
/* The buckets in the order in which the backward pass fills them: number, and elements of each. Known after
 * tx_plan_create; none without tx_model_parallel. */
int32_t tx_model_bucket_count(const tx_model *model);
int64_t tx_model_bucket_elements(const tx_model *model, int32_t index);

/* ---- Graph --------------------------------------------------------------------------------- */

typedef struct tx_graph tx_graph;
typedef struct tx_tensor tx_tensor;

tx_status tx_graph_create(tx_model *model, tx_graph **graph);
void tx_graph_free(tx_graph *graph);
/* Keeps a failure with this thread's message, unless there is one already, for tx_backward and tx_plan_create to
 * report; returns `status`. For functions that build parts of models and return NULL on error. */
tx_status tx_graph_fail(tx_graph *graph, tx_status status);
const tx_shape *tx_tensor_shape(const tx_tensor *tensor);
tx_dtype tx_tensor_dtype(const tx_tensor *tensor);

/* A value the host writes before a run. */
tx_tensor *tx_input(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* A parameter of the model; the first use declares it, later ones (in any graph) must agree; with
 * spec NULL it must have been declared. */
tx_tensor *tx_param(tx_graph *graph, const char *name, const tx_param_spec *spec);
/* A tensor that keeps its value between runs and is shared by name among the graphs of a model
 * (a key-value cache). Starts as zero. */
tx_tensor *tx_state(tx_graph *graph, const char *name, tx_dtype dtype, tx_shape shape);
/* Keeps a tensor readable after the runs; of no effect once the graph has a plan. Returns its argument. */
tx_tensor *tx_output(tx_tensor *tensor);

/* y = x W + b. x [..., K]; W [K, N], or [N, K] with transpose; b [N] or NULL. */
tx_tensor *tx_linear(tx_tensor *x, tx_tensor *w, tx_tensor *b, bool transpose);
/* Batched product over equal leading dimensions, or one operand of rank 2 for all. */
tx_tensor *tx_matmul(tx_tensor *a, tx_tensor *b, bool transpose_a, bool transpose_b);
/* Rows of `tokens` from token_table plus rows positions[b].. of position_table (NULL: none). positions I32 [B]: where
 * the first token of each row stands, which is the length of its cache; NULL: 0. tokens [B, T] -> [B, T, C]. */
tx_tensor *tx_embedding(tx_tensor *tokens, tx_tensor *token_table, tx_tensor *position_table, tx_tensor *positions);
tx_tensor *tx_gather(tx_tensor *table, tx_tensor *rows);
/* out [rows, C]: row r is the sum of the src rows whose index is r. */
tx_tensor *tx_scatter_add(tx_tensor *indices, tx_tensor *src, int64_t rows);
tx_tensor *tx_layer_norm(tx_tensor *x, tx_tensor *gamma, tx_tensor *beta, float eps);
tx_tensor *tx_rms_norm(tx_tensor *x, tx_tensor *gamma, float eps);
tx_tensor *tx_softmax(tx_tensor *x); /* over the last dimension */
tx_tensor *tx_gelu(tx_tensor *x, bool exact);
tx_tensor *tx_silu(tx_tensor *x);
tx_tensor *tx_swiglu(tx_tensor *x); /* x [..., 2F] = gate | up -> silu(gate) * up [..., F] */
tx_tensor *tx_add(tx_tensor *a, tx_tensor *b);
tx_tensor *tx_mul(tx_tensor *a, tx_tensor *b);
tx_tensor *tx_scale(tx_tensor *x, float factor);
/* `site` numbers the place in the model: the same (seed, step, sample, site, element) gives the same draw. */
tx_tensor *tx_dropout(tx_tensor *x, float p, int32_t site);

typedef struct tx_attention_options {
    size_t size; /* sizeof(tx_attention_options) */
    int32_t heads, kv_heads;
    bool causal;
    float scale;   /* of the scores; 0 is 1 / sqrt(head size) */
    float dropout; /* of the probabilities */
    int32_t site;  /* as in tx_dropout */
} tx_attention_options;
/* qkv [B, T, (heads + 2 kv_heads) * size] = q | k | v; lengths I32 [B] or NULL -> [B, T, heads * size]. */
tx_tensor *tx_attention(tx_tensor *qkv, tx_tensor *lengths, const tx_attention_options *options);
/* Appends each row's keys and values to its caches [B, S, kv_heads * size] at positions[b] (I32 [B], 0..S-T) and lets
 * query t attend to 0..positions[b]+t. `sources` I32 [B] (or NULL): before that, the row's cache becomes a copy of that
 * of row sources[b], as beams need it. */
tx_tensor *tx_attention_cached(tx_tensor *qkv, tx_tensor *k_cache, tx_tensor *v_cache, tx_tensor *positions,
                               tx_tensor *sources, const tx_attention_options *options);
/* Rotates the first `heads` heads of x [B, T, n * head_size] (rotate-half form); the rest is copied. Token t of row b
 * stands at positions[b] + t; positions I32 [B], NULL: 0. */
tx_tensor *tx_rotary(tx_tensor *x, int32_t heads, int32_t head_size, float theta, tx_tensor *positions);
/* -log softmax(logits)[label] a row: logits [..., V'], labels [...]; columns from `vocab` on are
 * padding. Rows labelled TX_IGNORE_LABEL give 0. */
tx_tensor *tx_cross_entropy(tx_tensor *logits, tx_tensor *labels, int64_t vocab);
/* Sum of `losses` times control INVERSE_LABELS: the mean over the labels of the global batch. */
tx_tensor *tx_mean_loss(tx_tensor *losses);

typedef enum tx_reduction { TX_REDUCE_SUM, TX_REDUCE_MEAN, TX_REDUCE_MAX, TX_REDUCE_SUMSQ } tx_reduction;
/* What is reduced away: everything, the last dimension, or all dimensions but the last. */
typedef enum tx_axis { TX_AXIS_ALL, TX_AXIS_LAST, TX_AXIS_ROWS } tx_axis;
tx_tensor *tx_reduce(tx_tensor *x, tx_reduction reduction, tx_axis axis);
tx_tensor *tx_cast(tx_tensor *x, tx_dtype dtype);
tx_tensor *tx_copy(tx_tensor *x);
tx_tensor *tx_fill(tx_graph *graph, tx_shape shape, float value);
tx_tensor *tx_reshape(tx_tensor *x, tx_shape shape);

/* Asks for the gradient of the scalar `loss` with respect to every parameter it depends on, and for the addition of
 * `loss` to result LOSS. Given several losses, also one twice, the gradients are those of their sum. The gradients are
 * made by tx_plan_create, which is also where an op without a gradient is refused. */
tx_status tx_backward(tx_graph *graph, tx_tensor *loss);

/* ---- Plans --------------------------------------------------------------------------------- */

typedef struct tx_plan tx_plan;

/* Compiles the graph, to which nothing can be added afterwards; nothing is allocated on the device yet. */
tx_status tx_plan_create(tx_graph *graph, const char *name, tx_plan **plan);
void tx_plan_free(tx_plan *plan);

typedef enum tx_optimizer_kind { TX_SGD, TX_ADAMW, TX_LION, TX_OPTIMIZER_KINDS } tx_optimizer_kind;
typedef struct tx_optimizer_options {
    size_t size; /* sizeof(tx_optimizer_options) */
    tx_optimizer_kind kind;
    float beta1, beta2; /* AdamW, Lion */
    float eps;          /* AdamW */
    float momentum;     /* SGD; 0: it keeps no state */
    float weight_decay; /* of parameters whose spec says decay */
} tx_optimizer_options;
/* The update plan: global gradient norm, clip, optimizer over the flat arenas. */
tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan);
/* The states that the model's optimizer keeps of every weight (part TX_PART_STATE + index); before it is made, none.
 * What files call one, as in PARAM.exp_avg, and whether its values are never below 0. */
int32_t tx_model_optimizer_states(const tx_model *model);
tx_status tx_model_optimizer_state(const tx_model *model, int32_t index, const char **name, bool *never_negative);

/* Copies `bytes` from `data` into an input; the data may be reused at once. Indices outside what
 * the graph can take are refused here, so that they never reach a kernel. */
tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes);
/* Gives the plan to the device; does not wait. */
tx_status tx_plan_run(tx_plan *plan);
/* Waits for the device and copies an output (see tx_output) to `data`. */
tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes);

typedef enum tx_op_class {
    TX_CONTRACTION,
    TX_NORMALIZATION,
    TX_ELEMENTWISE,
    TX_MOVEMENT,
    TX_COLLECTIVE,
    TX_CLASS_COUNT
} tx_op_class;
typedef enum tx_direction { TX_FORWARD, TX_BACKWARD, TX_UPDATE, TX_DIRECTION_COUNT } tx_direction;
const char *tx_class_name(tx_op_class op_class);
const char *tx_direction_name(tx_direction direction);

typedef struct tx_profile_entry {
    const char *op;      /* name in the op set */
    const char *variant; /* which kernel or library ran it */
    tx_op_class op_class;
    tx_direction direction;
    double seconds; /* summed over the profiled runs */
    double flops;   /* one run */
    double bytes;   /* read and written, one run */
} tx_profile_entry;
/* From now on times every operation (the engine must have been opened with profile). */
tx_status tx_plan_profile(tx_plan *plan, bool on);
int32_t tx_plan_length(const tx_plan *plan); /* operations in the plan */
tx_status tx_plan_profile_entry(const tx_plan *plan, int32_t index, tx_profile_entry *entry);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
