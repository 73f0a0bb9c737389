/* SPDX-License-Identifier: Apache-2.0
 * A model: parameters, gradients, optimizer states, run-time scalars. */
#ifndef TX_MODEL_H
#define TX_MODEL_H

#include "tx_engine.h"

TX_API_BEGIN

typedef struct tx_model tx_model;

/* Scalars that the host sets between runs; they are stored in one small device buffer. X(NAME, type)
 *   LEARNING_RATE: the learning rate.
 *   HELD_RATE: replaces LEARNING_RATE once result SKIPPED reaches HOLD_FROM, unless HOLD_FROM is 0.
 *   HOLD_FROM: see HELD_RATE. The schedule pauses for skipped updates before the host knows of them.
 *   ACCUMULATE: 0 for the first micro-batch of an optimizer step, 1 for the others.
 *   INVERSE_LABELS: 1 / number of labels in the global batch.
 *   LABEL_SHARE: the micro-batch's labels / labels of the global batch.
 *   POSITIONS_PER_TOKEN: positions of the micro-batch / those that are not padding.
 *   NOISE: multiplies the noise of tx_noise. Default: 1.
 *   FAKE_QUANTIZE: 0 to read parameters with a tx_rounding as they are. Default: 1.
 *   GROWTH_INTERVAL: consecutive updates after which the loss scale doubles. A skipped one halves it. 0 keeps it.
 *   MAX_GRAD_NORM: gradients are clipped to this global norm. With 0 they are not clipped.
 *   SEED_LO, SEED_HI: the seed of the random numbers.
 *   STEP: the optimizer step; random numbers depend on it.
 *   SAMPLE: global number of the micro-batch's first sample; random numbers depend on it. */
#define TX_CONTROL_MAP(X)       \
    X(LEARNING_RATE, f32)       \
    X(HELD_RATE, f32)           \
    X(HOLD_FROM, u32)           \
    X(ACCUMULATE, f32)          \
    X(INVERSE_LABELS, f32)      \
    X(LABEL_SHARE, f32)         \
    X(POSITIONS_PER_TOKEN, f32) \
    X(NOISE, f32)               \
    X(FAKE_QUANTIZE, f32)       \
    X(GROWTH_INTERVAL, f32)     \
    X(MAX_GRAD_NORM, f32)       \
    X(SEED_LO, u32)             \
    X(SEED_HI, u32)             \
    X(STEP, u32)                \
    X(SAMPLE, u32)

typedef enum tx_control {
#define X(name, type) TX_CONTROL_##name,
    TX_CONTROL_MAP(X)
#undef X
        TX_CONTROL_COUNT
} tx_control;

/* Scalars that the device writes. X(NAME) */
#define TX_RESULT_MAP(X)                                                                   \
    X(LOSS)       /* sum over micro-batches of the loss given to tx_backward */            \
    X(GRAD_SUMSQ) /* sum of squares of all gradients, loss scale included */               \
    X(DROPPED)    /* sum over micro-batches of the values from tx_add_to_result */         \
    X(TASK_0)     /* this one and the next: sums of tx_add_means_to_results */             \
    X(TASK_1)                                                                              \
    X(TASK_2)                                                                              \
    X(TASK_3)                                                                              \
    X(TASK_4)                                                                              \
    X(TASK_5)                                                                              \
    X(TASK_6)                                                                              \
    X(TASK_7)                                                                              \
    X(TASK_8)                                                                              \
    X(TASK_9)                                                                              \
    X(GRAD_NORM)   /* global norm before clipping, without the loss scale */               \
    X(GRAD_FACTOR) /* gradients' factor in the update: clipping and 1 / loss scale */      \
    X(FINITE)      /* 1, or 0 if the norm is not finite; such an update changes nothing */ \
    X(UPDATES)     /* number of updates so far: Adam's t */                                \
    X(SKIPPED)     /* updates skipped because a gradient was not finite */                 \
    X(LOSS_SCALE)  /* factor of the next gradients; the update divides by it */            \
    X(SCALE_STEPS) /* consecutive updates since the loss scale changed */

typedef enum tx_result {
#define X(name) TX_RESULT_##name,
    TX_RESULT_MAP(X)
#undef X
        TX_RESULT_COUNT
} tx_result;

typedef struct tx_results {
    float value[TX_RESULT_COUNT];
} tx_results;

typedef enum tx_init {
    TX_INIT_ZERO,
    TX_INIT_ONE,
    TX_INIT_NORMAL,
    TX_INIT_UNIFORM,
    TX_INIT_LOG_UNIFORM, /* ln of uniform numbers in [0.01, scale) */
    TX_INIT_LOG_RANGE,   /* ln 1, ln 2, .. */
    TX_INIT_CONSTANT,    /* scale */
    TX_INIT_LOG_STEPS    /* numbers whose softplus is uniform in logarithm between 0.001 and 0.1 */
} tx_init;

/* Sections of a parameter along one dimension: q | k | v, or gate | up. Files may store them as separate tensors and
 * ranks may divide each of them. */
#define TX_MAX_SECTIONS 5
typedef struct tx_param_sections {
    int32_t count;     /* 0 if the parameter has no sections */
    int32_t dimension; /* of a parameter of rank 1 to 3 */
    int64_t size[TX_MAX_SECTIONS];
    /* Ranks divide section i into multiples of unit[i] elements (the head size); 0 allows any division. See
     * tx_param_spec.split. */
    int64_t unit[TX_MAX_SECTIONS];
} tx_param_sections;

/* How graphs round a matrix before they read it, so that training sees the values that an export to blocks will store.
 * Gradients pass unchanged to the fp32 weights (straight-through). Control FAKE_QUANTIZE can turn it off. */
typedef struct tx_rounding {
    int32_t parts; /* the matrix is not rounded if there are none */
    bool columns;  /* blocks run down the columns, not along the rows */
    struct {
        int64_t end;  /* its last row + 1; with `columns` there is one part */
        int32_t type; /* ggml's number; the length of a row is a multiple of its block */
    } part[TX_MAX_SECTIONS];
} tx_rounding;

typedef struct tx_param_spec {
    tx_shape shape; /* as stored, padding included */
    /* Shape without padding; only the first dimension may differ. Rank 0 means the same as `shape`. */
    tx_shape logical;
    tx_init init;
    float scale; /* standard deviation of NORMAL, half width of UNIFORM, limit of LOG_UNIFORM, CONSTANT's value */
    bool decay;  /* weight decay applies */
    float rate;  /* factor of the learning rate in updates; 0 means 1 */
    /* An embedding or an output projection to the vocabulary: optimizers may treat it differently from other matrices.
     */
    bool table;
    bool frozen; /* never changes: has no gradient and no optimizer states */
    /* The stored type. It must be F32 unless the parameter is frozen; tx_model_store can change F32. Graphs read a
     * frozen parameter of BF16 or F16 as such. A graph with the same autocast type (tx_graph_autocast, called first)
     * reads it as if it were F32. */
    tx_dtype dtype; /* packed types: matrices (of experts, too) whose rows are whole blocks (tx_base.h) */
    tx_param_sections sections;
    /* 1 + the dimension that tensor-parallel ranks divide (tx_parallel_options), or 0 to replicate the parameter. Each
     * section along that dimension is divided separately. The dimension is a multiple of the number of ranks. If the
     * first dimension is padded, the last rank has fewer rows and more padding. A section of the first dimension, or of
     * a frozen parameter, may have fewer units than there are ranks, if the ranks are a multiple of the units.
     * Neighbouring ranks then share a unit, and training plans sum its gradient over them. */
    int32_t split;
    /* Whether the first dimension counts experts, or rows of equally many for each. Expert-parallel ranks have equally
     * many experts each. */
    bool experts;
    /* The number of experts if they alternate along the last dimension instead: column i is of expert i % alternating.
     * 0 otherwise. */
    int64_t alternating;
    /* Files store each section of the rows, and each expert, as a separate tensor. Optimizers on whole parameters then
     * update each of these tensors separately. */
    bool apart;
    bool scalar; /* files store its one element as a tensor without dimensions */
    /* Files have the transpose of the matrix, or of each expert's: blocks of values run along the inputs. */
    bool turned;
    /* The block of the parameter (tx_graph_block), which determines its pipeline stage. Pass 0 if the parameter comes
     * before all blocks, -1 if it comes after them. */
    int32_t block;
    bool tied; /* comes before the blocks and is also read after them */
    tx_rounding rounding;
} tx_param_spec;

/* State k of the optimizer is part TX_PARAM_STATE + k. */
typedef enum tx_param_role { TX_PARAM_WEIGHT, TX_PARAM_GRADIENT, TX_PARAM_STATE } tx_param_role;

tx_status tx_model_create(tx_engine *engine, tx_model **model);
void tx_model_free(tx_model *model);

/* Stores parameters and states declared in F32 as `dtype`: BF16 or F16, or F32 for no change. Call this before the
 * first parameter is declared. Graphs then compute in that type and must pass it to tx_graph_autocast. With BF16,
 * gradients are BF16 too and only AdamW can update the parameters. ADAMW has BF16 moments and rounds weights and
 * moments stochastically (by seed, step and element). ADAMW_ANYPRECISION keeps a compensation term for each weight if
 * `kahan` is set. F16 parameters cannot be trained. */
tx_status tx_model_store(tx_model *model, tx_dtype dtype);
/* Offloads the fp32 parameters to host memory; updates stream them to the device and back. The device keeps 16-bit
 * copies, and fp32 copies of parameters that plans read in fp32. It is for models whose graphs compute in 16 bits. Call
 * this after tx_model_parallel and before the first parameter is declared; it needs zero_stage 0. Results have the same
 * bits. */
tx_status tx_model_offload_weights(tx_model *model);
/* The memory for data that a step needs. NONE: device memory. HOST: host memory; pieces are streamed to the device and
 * back, with the same bits. It saves nothing if the device shares the host's memory. FILE: the same from an unnamed
 * file, which is deleted with the model. */
typedef enum tx_offload_place { TX_OFFLOAD_NONE, TX_OFFLOAD_HOST, TX_OFFLOAD_FILE } tx_offload_place;
/* Offloads all parameters, or only the frozen ones (`frozen_alone`), to host memory or to an unnamed file in `folder`.
 * `folder` must outlive the model. Each pass of a graph fetches the parameters of a block while the block before it is
 * computed, so that two blocks are on the device at a time. With a file two blocks are in host memory too, unless the
 * device shares that memory. Updates stream the weights. Results have the same bits. Call this after tx_model_parallel
 * and before the first parameter is declared. Without `frozen_alone` it needs zero_stage 0, or 3 (the rank's shards are
 * offloaded). A model has one file, so optimizer states must use the same folder. */
tx_status tx_model_offload_params(tx_model *model, tx_offload_place place, const char *folder, bool frozen_alone);
/* Divides the blocks of a model's graphs (tx_graph_block) among `count` devices of this process. Device d has blocks[d]
 * blocks, at least 1. engines[0] is the model's own engine; all engines must outlive the model. Each device has the
 * parameters and states of its blocks. The first also has those before the blocks, the last those after them and the
 * tied ones (tx_param_spec). Plans run on one device after the other and pass activations through the host. On equal
 * devices the results have the bits of one device. Only graphs without gradients are supported. Call this before the
 * first parameter is declared, without tx_model_parallel. */
tx_status tx_model_divide(tx_model *model, tx_engine *const *engines, const int32_t *blocks, int32_t count);
int32_t tx_model_param_count(const tx_model *model);
/* Returns name and spec of parameter `index`, in arena order. They live as long as the model. `logical` is always set,
 * even if the declaration left it out. */
tx_status tx_model_param(const tx_model *model, int32_t index, const char **name, const tx_param_spec **spec);
tx_status tx_model_find(const tx_model *model, const char *name, int32_t *index);
/* Initialises every parameter by its spec. The values depend only on the seed, the name and the logical element. */
tx_status tx_model_init(tx_model *model, uint64_t seed);
/* Initialises one parameter as tx_model_init does. */
tx_status tx_model_init_param(tx_model *model, int32_t index, uint64_t seed);
/* Copy one part of a parameter from or to `data`: fp32 in any storage type, in its logical shape, row-major. They wait
 * for the device. If ranks divide the parameter, `data` is the whole: every rank writes its local shard, and a read is
 * a collective call. */
tx_status tx_model_write(tx_model *model, tx_param_role part, int32_t index, const float *data);
tx_status tx_model_read(tx_model *model, tx_param_role part, int32_t index, float *data);
/* The same for elements first .. first + count - 1. A write to NF4 covers whole blocks of 64 elements, to Q8 and MXFP4
 * of 32, to NF4_DOUBLE groups of 16,384, or ends with the parameter. It quantises the data, and a read returns the
 * dequantised values. */
tx_status tx_model_write_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                               const float *data);
tx_status tx_model_read_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                              float *data);
/* Returns the host memory that holds all elements of a parameter in its storage type, or NULL if they are in device
 * memory, in a file, or divided. The caller may write it before the next call that runs a plan. Waits for the device.
 */
tx_status tx_model_map(tx_model *model, int32_t index, void **memory);
/* Writes the same elements of a parameter of blocks (TX_BLOCK_MAP), as files hold them: whole blocks of one section of
 * the rows. `dtype` is the type of the whole section; its blocks have as many values as those of the parameter's type
 * and at most as many bytes. Reads return the values. Other writes to such parameters fail. A parameter of type Q8
 * takes blocks of Q8_0. */
tx_status tx_model_write_blocks(tx_model *model, int32_t index, int64_t first, int64_t count, tx_dtype dtype,
                                const void *blocks);

/* Sets a scalar for later runs. Values of u32 controls are whole numbers. */
tx_status tx_model_set(tx_model *model, tx_control control, double value);
tx_status tx_model_set_seed(tx_model *model, uint64_t seed);
/* Stores the current controls for micro-batch `micro_batch` of a plan that runs several (tx_parallel_options.pipeline).
 */
tx_status tx_model_keep_controls(tx_model *model, int32_t micro_batch);
/* Starts a copy of the results after all runs submitted so far; does not wait. At most TX_RESULTS_PENDING copies may be
 * outstanding. */
#define TX_RESULTS_PENDING 4
tx_status tx_model_fetch(tx_model *model);
/* Returns the oldest outstanding copy and waits for it if necessary. */
tx_status tx_model_results(tx_model *model, tx_results *results);

/* Sets the results that persist between updates (UPDATES, SKIPPED, LOSS_SCALE, SCALE_STEPS) to those of an earlier run,
 * and the others to 0. LOSS_SCALE 0 means 1. All later runs use them. It allocates nothing. */
tx_status tx_model_restore(tx_model *model, const tx_results *results);

/* Places the states that graphs declare from now on in the memory of gradients, as far as it reaches, and then in that
 * of activations. They keep their contents until a plan without them runs or is made. All of them must be declared
 * before the first plan that reads one is made. */
tx_status tx_model_share_states(tx_model *model);
/* Sets these states to 0. Call it before plans read them for the first time, and again after other plans have run. */
tx_status tx_model_clear_states(tx_model *model);
/* Gives the memory of gradients back: they are 0 then. Call it after the last plan that reads the states, before other
 * plans run. */
tx_status tx_model_return_states(tx_model *model);

/* Makes the model's plans a dry run: they are compiled for inspection without the device, and nothing can run or be
 * written. tx_model_memory then leaves out the workspaces of kernels, which are unknown. Call this first. */
void tx_model_only_plan(tx_model *model);
/* Returns the memory that the plans compiled so far will need. Nothing has to be allocated for it. */
tx_status tx_model_memory(const tx_model *model, tx_memory *planned);
/* The same for one of the devices that the model is divided among, counted from 0. */
tx_status tx_model_memory_on(const tx_model *model, int32_t device, tx_memory *planned);
/* Returns the bytes of the offload file for parameters or optimizer states, or 0 if there is none. */
int64_t tx_model_file_bytes(const tx_model *model);
/* Allocates all memory now. Otherwise the first run, read or write does. */
tx_status tx_model_allocate(tx_model *model);

TX_API_END
#endif
