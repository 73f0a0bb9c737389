/* SPDX-License-Identifier: Apache-2.0
 * A model: parameters, gradients, optimizer states, run-time scalars. */
#ifndef TX_MODEL_H
#define TX_MODEL_H

#include "tx_engine.h"

TX_API_BEGIN

typedef struct tx_model tx_model;

/* Scalars that the host sets between runs; they live in one small device buffer. X(NAME, type) */
#define TX_CONTROL_MAP(X)                                                                                            \
    X(LEARNING_RATE, f32)                                                                                            \
    X(HELD_RATE, f32)      /* takes its place once result SKIPPED has come to HOLD_FROM, so that a schedule can wait \
                              for updates that are left out before the host knows of them */                         \
    X(HOLD_FROM, u32)      /* 0: never */                                                                            \
    X(ACCUMULATE, f32)     /* 0 for the first micro-batch of an optimizer step, 1 for the others */                  \
    X(INVERSE_LABELS, f32) /* 1 / counted labels of the whole global batch */                                        \
    X(LABEL_SHARE, f32)    /* the micro-batch's labels / those of the whole global batch */                          \
    X(POSITIONS_PER_TOKEN, f32) /* positions of the micro-batch / those that are no padding */                       \
    X(NOISE, f32)               /* what tx_noise adds is multiplied with this: 1 unless set */                       \
    X(GROWTH_INTERVAL, f32) /* of the loss scale: it doubles after so many updates in a row, and halves where one is \
                               left out; 0: it stays */                                                              \
    X(MAX_GRAD_NORM, f32)   /* gradients are scaled down to this global norm; 0: never */                            \
    X(SEED_LO, u32)                                                                                                  \
    X(SEED_HI, u32)                                                                                                  \
    X(STEP, u32)   /* of the optimizer; keys the random numbers */                                                   \
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
    X(DROPPED)     /* sum over micro-batches of what tx_add_to_result was given for it */    \
    X(GRAD_NORM)   /* global norm before clipping, loss scale removed */                     \
    X(GRAD_FACTOR) /* what the update multiplies gradients with (clip and 1 / loss scale) */ \
    X(FINITE)      /* 1, or 0 when the norm is not finite: that update changes nothing */    \
    X(UPDATES)     /* updates made so far: Adam's t */                                       \
    X(SKIPPED)     /* updates left out because a gradient was not finite */                  \
    X(LOSS_SCALE)  /* the next gradients carry this factor; the update divides by it */      \
    X(SCALE_STEPS) /* updates in a row since the loss scale changed */

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
    int32_t dimension; /* of a parameter of rank 1 to 3 */
    int64_t size[TX_MAX_SECTIONS];
    int64_t unit; /* ranks divide sections by whole runs of so many, heads; 0: by any. See tx_param_spec.split */
} tx_param_sections;

typedef struct tx_param_spec {
    tx_shape shape;   /* as stored, padding included */
    tx_shape logical; /* without padding; rank 0: the same as shape. Only the first dimension may differ */
    tx_init init;
    float scale; /* standard deviation of NORMAL, half width of UNIFORM */
    bool decay;  /* weight decay applies */
    bool table;  /* an embedding, or what scores each row of one: optimizers may treat other matrices otherwise */
    bool frozen; /* never changes: it has no gradient and no optimizer states */
    /* As stored; of what is not frozen F32, which tx_model_store can change. A frozen one of BF16 or F16 is read as
     * such, and by graphs of that type (tx_graph_autocast, said before it is asked for) as if it were of F32. */
    tx_dtype dtype; /* of NF4 and NF4_DOUBLE only matrices whose rows are multiples of 64, see tx_base.h */
    tx_param_sections sections;
    /* 1 + the dimension that ranks of a tensor group (tx_parallel_options) divide, of each section by itself, where it
     * is of that dimension; 0: each has all of it. Of what has one or two dimensions, which are to be multiples of the
     * number of ranks; of a padded first one the last rank has the fewer rows and the more padding. A section of the
     * first dimension may have fewer units than there are ranks, which are then a multiple of them: as many neighbours
     * have the same unit, and training plans sum its gradient over them. */
    int32_t split;
    bool experts; /* its first dimension are experts, of which the ranks of an expert group have as many each */
    /* Files hold each section of its rows, and each expert, as a tensor of its own. Optimizers that work on whole
     * parameters then update each of these tensors by itself. */
    bool apart;
    /* The block that it is of (tx_graph_block), by which a pipeline's stages have it; 0: it is in front of them all,
     * -1: behind them. */
    int32_t block;
    bool tied; /* one in front that is read behind them, too */
} tx_param_spec;

/* State k of the optimizer is part TX_PARAM_STATE + k. */
typedef enum tx_param_role { TX_PARAM_WEIGHT, TX_PARAM_GRADIENT, TX_PARAM_STATE } tx_param_role;

tx_status tx_model_create(tx_engine *engine, tx_model **model);
void tx_model_free(tx_model *model);

/* Parameters and states that are declared in F32 are stored in `dtype`, BF16 or F16 (F32: as they are), to be said
 * before the first is declared. Graphs read them as they are stored: they compute in that type as tx_graph_autocast
 * says, and in no other. Of BF16 are then their gradients too, and AdamW alone can update them, in two ways: ADAMW has
 * its moments in BF16 and rounds weights and moments stochastically (by seed, step and element), ADAMW_ANYPRECISION
 * keeps a remainder of each weight where it says `kahan`. What is of F16 cannot be trained. */
tx_status tx_model_store(tx_model *model, tx_dtype dtype);
/* The parameters lie in the host's memory, from where updates bring them to the device and back piece by piece; there
 * are their copies of 16 bits, and of fp32 those that plans read so: of a model whose graphs compute in 16 bits. To be
 * said before the first is declared, and behind tx_model_parallel, for zero_stage 0 alone. The same bits. */
tx_status tx_model_offload_weights(tx_model *model);
/* Where what a step needs lies: in the device's memory; or in the host's, from where it is brought to the device and
 * back piece by piece, with the same bits (where the device's memory is the host's that saves nothing); or so in a file
 * without a name, which goes with the model. */
typedef enum tx_offload_place { TX_OFFLOAD_NONE, TX_OFFLOAD_HOST, TX_OFFLOAD_FILE } tx_offload_place;
/* All parameters lie in the host's memory, or in a file without a name in `folder`, which outlives the model; of models
 * that train few of many those that are frozen alone. Graphs fetch what a block reads while the block before is
 * computed, in each pass once more, so that two blocks' are on the device at a time (by a file two in the host's
 * memory, too, unless the device's is that), and updates bring weights there piece by piece. The same bits. To be said
 * before the first parameter is declared, and behind tx_model_parallel, for zero_stage 0 and 3 (the rank's shards)
 * unless frozen ones alone do. A model has one file: that of its optimizer's states is in the same folder. */
tx_status tx_model_offload_params(tx_model *model, tx_offload_place place, const char *folder, bool frozen_alone);
/* Divides the blocks of a model's graphs (tx_graph_block) among `count` devices of this process: blocks[d] of them, one
 * or more, are the d-th's, engines[0] being the model's own and all outliving it. Each has the parameters and states of
 * its blocks, the first those in front of them, the last those behind and what is tied (tx_param_spec). Plans of the
 * model run on one device after the other, and what crosses goes through the host: the bits of one device, where all
 * are alike. For graphs without gradients. To be said before the first parameter is declared, without
 * tx_model_parallel. */
tx_status tx_model_divide(tx_model *model, tx_engine *const *engines, const int32_t *blocks, int32_t count);
int32_t tx_model_param_count(const tx_model *model);
/* Name and spec of parameter `index`, in arena order; they live as long as the model. `logical` is given here whether
 * or not the spec that the parameter was declared by gave it. */
tx_status tx_model_param(const tx_model *model, int32_t index, const char **name, const tx_param_spec **spec);
tx_status tx_model_find(const tx_model *model, const char *name, int32_t *index);
/* Draws every parameter by its spec. The draw depends on (seed, name, logical element) alone. */
tx_status tx_model_init(tx_model *model, uint64_t seed);
/* Draws one of them, as that does. */
tx_status tx_model_init_param(tx_model *model, int32_t index, uint64_t seed);
/* Copy one parameter's part from or to `data`: fp32 whatever is stored, logical shape, row-major. They wait for the
 * device. Of what ranks divide it is the whole: each takes its part of what is written, and all read together. */
tx_status tx_model_write(tx_model *model, tx_param_role part, int32_t index, const float *data);
tx_status tx_model_read(tx_model *model, tx_param_role part, int32_t index, float *data);
/* The same for elements first .. first + count - 1 of it. What is written of NF4 is whole blocks of 64 elements, of
 * NF4_DOUBLE groups of 16,384, or ends with the parameter: it is quantised, and what is read is what that stands for.
 */
tx_status tx_model_write_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                               const float *data);
tx_status tx_model_read_range(tx_model *model, tx_param_role part, int32_t index, int64_t first, int64_t count,
                              float *data);

/* Sets a scalar for the runs that follow. Values of u32 controls are whole numbers. */
tx_status tx_model_set(tx_model *model, tx_control control, double value);
tx_status tx_model_set_seed(tx_model *model, uint64_t seed);
/* The controls are to be as they are now in what a plan does of micro-batch `micro_batch`, of plans that do many
 * (tx_parallel_options.pipeline). */
tx_status tx_model_keep_controls(tx_model *model, int32_t micro_batch);
/* Asks for a copy of the results as they are after the runs given so far; does not wait. At most
 * TX_RESULTS_PENDING copies may be outstanding. */
#define TX_RESULTS_PENDING 4
tx_status tx_model_fetch(tx_model *model);
/* Takes the oldest copy asked for, waiting for it if need be. */
tx_status tx_model_results(tx_model *model, tx_results *results);

/* Sets the results that last from update to update (UPDATES, SKIPPED, LOSS_SCALE, SCALE_STEPS) to those of an earlier
 * run, LOSS_SCALE 0 standing for 1, and the others to 0. Holds for all runs that follow; allocates nothing. */
tx_status tx_model_restore(tx_model *model, const tx_results *results);

/* Plans of this model are compiled to be looked at: the device is asked for nothing and nothing can run or be written.
 * What kernels need of scratch memory is then not known, and not part of tx_model_memory. To be called first. */
void tx_model_only_plan(tx_model *model);
/* What the plans compiled so far will hold, known before a byte is allocated. */
tx_status tx_model_memory(const tx_model *model, tx_memory *planned);
/* That on one of the devices that the model is divided among, from 0 on. */
tx_status tx_model_memory_on(const tx_model *model, int32_t device, tx_memory *planned);
/* Bytes of the file that parameters, or optimizer states, are to lie in; 0: there is none. */
int64_t tx_model_file_bytes(const tx_model *model);
/* Allocates everything now. Otherwise the first run, read or write does. */
tx_status tx_model_allocate(tx_model *model);

TX_API_END
#endif
