/* SPDX-License-Identifier: Apache-2.0
 * Plans: compiled graphs, and the update of an optimizer. */
#ifndef TX_PLAN_H
#define TX_PLAN_H

#include "tx_graph.h"

TX_API_BEGIN

typedef struct tx_plan tx_plan;

/* Compiles the graph. Nothing can be added to the graph afterwards. Nothing is allocated on the device yet. */
tx_status tx_plan_create(tx_graph *graph, const char *name, tx_plan **plan);
void tx_plan_free(tx_plan *plan);

typedef enum tx_optimizer_kind {
    TX_SGD,
    TX_ADAMW,
    TX_LION,
    TX_ADAFACTOR,
    TX_ADAMW_8BIT,          /* 8-bit moments, except for tables and parameters of less than 4096 elements */
    TX_ADAMW_ANYPRECISION,  /* moments in types that the options choose */
    TX_MUON,                /* Muon for matrices that are not tables, AdamW for all else */
    TX_LION_8BIT,           /* Lion with an 8-bit moment, for the same parameters as TX_ADAMW_8BIT */
    TX_ADEMAMIX,            /* AdamW with a second, slow first moment */
    TX_STABLE_ADAMW,        /* AdamW whose rate is divided by the root mean square of g / sqrt(v), by tensor */
    TX_SCHEDULE_FREE_ADAMW, /* AdamW without a schedule: evaluate and save the average (tx_optimizer_average) */
    TX_SCHEDULE_FREE_SGD,   /* SGD likewise; `momentum` is the share of the average in the weights of training */
    TX_APOLLO,              /* scaled gradients for matrices that are not tables, AdamW for all else */
    TX_OPTIMIZER_KINDS
} tx_optimizer_kind;

typedef struct tx_optimizer_options {
    size_t size; /* sizeof(tx_optimizer_options) */
    tx_optimizer_kind kind;
    float beta1, beta2; /* AdamW, Lion */
    float eps;          /* AdamW */
    float momentum;     /* SGD and Muon; with 0, SGD keeps no state */
    float weight_decay; /* for parameters whose spec has `decay` */
    bool nesterov;      /* SGD and Muon, with momentum */
    /* Adafactor. relative_step: the learning rate is min(1e-2, 1 / sqrt(t)) instead of the control's. scale_parameter:
     * the rate is multiplied by the root mean square of each parameter. warmup_init: a relative rate starts at 1e-6 t.
     */
    bool relative_step, scale_parameter, warmup_init;
    /* AdamW with moments of any type: F32 or BF16 for each moment. `kahan` adds a compensation term (Kahan summation)
     * of type compensation_dtype to each weight. */
    tx_dtype momentum_dtype, variance_dtype, compensation_dtype;
    bool kahan;
    /* Keeps pruned weights pruned: in matrices that are not tables a weight of 0 stays 0 and its gradient counts as 0.
     */
    bool keep_zeros;
    /* Muon: scales steps to the size of AdamW's, by 0.2 sqrt(max(rows, columns)) instead of sqrt(max(1, rows /
     * columns)). */
    bool match_rms;
    /* AdEMAMix: decay rate and weight of the slow moment, and the steps in which both rise from beta1 and 0. 0 steps
     * means that they do not rise. */
    float beta3, slow_weight, beta3_steps, slow_weight_steps;
    /* Schedule-free: steps in which the rate rises linearly to its constant value. The average weighs each step by the
     * square of its rate. */
    float warmup_steps;
    /* APOLLO: AdamW's moments of the gradient's projection to `rank` columns give the scale of the gradient's rows, or
     * columns if there are more; with scale_by_tensor one scale for all. A projection is random and serves
     * update_proj_gap updates. Steps are multiplied by sqrt(scale), with scale_front before the growth of their norm is
     * limited to 1 percent an update. disable_nl: no such limit. */
    int32_t rank, update_proj_gap;
    float scale;
    bool scale_by_tensor, scale_front, disable_nl;
    tx_offload_place offload;
    const char *offload_folder; /* folder of the offload file; outlives the model */
    /* Elements of an offloaded state that move at a time; 0 means 4 Mi. Optimizers on whole parameters ignore it. */
    int64_t offload_elements;
} tx_optimizer_options;
/* Creates the update plan: global gradient norm, clipping, then the optimizer over the flat arenas. */
tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan);
/* Creates the plan of a schedule-free optimizer that exchanges the weights of training with their average, which is to
 * be evaluated and saved. A second run restores the weights of training bit by bit. Before the first update a run does
 * nothing. `*plan` is NULL for other optimizers. Call it after tx_optimizer_create; the caller frees the plan. */
tx_status tx_optimizer_average(tx_model *model, tx_plan **plan);
/* Returns the number of optimizer states of parameter `index`: parts TX_PARAM_STATE and following. It is 0 for frozen
 * parameters and before the optimizer is created. */
int32_t tx_model_states(const tx_model *model, int32_t index);
/* State `k` of a parameter. The name lives as long as the library. */
typedef struct tx_state_info {
    const char *name; /* name in files, as in PARAM.exp_avg */
    tx_dtype dtype;   /* as stored; tx_model_read and tx_model_write convert without loss */
    tx_shape shape;
    bool never_negative;
} tx_state_info;
tx_status tx_model_state(const tx_model *model, int32_t index, int32_t k, tx_state_info *info);
/* Returns the bytes of all states of all parameters in all places. Files store that many. */
int64_t tx_model_state_bytes(const tx_model *model);
/* Whether an optimizer works on whole parameters. Ranks then divide updates by tx_parallel_options.whole. */
bool tx_optimizer_is_whole(tx_optimizer_kind kind);
/* Whether keep_zeros needs an epsilon above 0: weights that stay 0 have moments of 0, and 0 / 0 is NaN. */
bool tx_optimizer_needs_epsilon(tx_optimizer_kind kind);

/* Copies `bytes` from `data` into an input; the caller may reuse the data at once. Indices that are out of range for
 * the graph are refused here and never reach a kernel. */
tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes);
/* Returns the input of micro-batch `micro_batch` that corresponds to the graph's `input`, in a plan that runs several
 * micro-batches (tx_parallel_options.pipeline). Returns NULL if the plan has no such input. */
tx_tensor *tx_plan_input(const tx_plan *plan, tx_tensor *input, int32_t micro_batch);
/* Submits the plan to the device; does not wait. */
tx_status tx_plan_run(tx_plan *plan);
/* Waits for the device and copies an output (see tx_output) to `data`. */
tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes);

/* Checks values in every later run of the plan: records the least and greatest magnitude of each node's operands and
 * results. The first node with a NaN or an infinity ends the run with a failure that names it. Before that, `report`
 * receives the ranges of the last nodes, and of the node's operands now and in the last finite run. With an adaptive
 * loss scale (control GROWTH_INTERVAL) gradients may be infinite. Runs are many times slower. Pass NULL to stop
 * checking. */
tx_status tx_plan_watch(tx_plan *plan, const tx_reporter *report);

typedef enum tx_op_class {
    TX_CONTRACTION,
    TX_NORMALIZATION,
    TX_ELEMENTWISE,
    TX_MOVEMENT,
    TX_COLLECTIVE,
    TX_CLASS_COUNT
} tx_op_class;
/* RECOMPUTE: forward nodes that run again for the backward pass (tx_graph_checkpointing). */
typedef enum tx_direction { TX_FORWARD, TX_RECOMPUTE, TX_BACKWARD, TX_UPDATE, TX_DIRECTION_COUNT } tx_direction;
const char *tx_class_name(tx_op_class op_class);
const char *tx_direction_name(tx_direction direction);

/* Returns the floating-point operations of a run in nodes of this direction. A multiply-add counts as two; ops other
 * than products and attention count one per result element. */
double tx_plan_flops(const tx_plan *plan, tx_direction direction);

/* Returns the operations of a run's products and attention, and the least bytes that its other ops read and write. */
void tx_plan_work(const tx_plan *plan, double *product_flops, double *other_bytes);

/* A node of a plan. Nodes are in execution order and include those without a kernel. */
typedef struct tx_plan_node {
    const char *op; /* name in the op set */
    tx_direction direction;
    int32_t block; /* block of the architecture, from 1; 0 if none */
} tx_plan_node;
int32_t tx_plan_node_count(const tx_plan *plan);
tx_status tx_plan_node_at(const tx_plan *plan, int32_t index, tx_plan_node *node);

/* A tensor that a plan allocates by its lifetime, from node `first` to node `last`. `last` may equal the number of
 * nodes. Activations in host memory are not included. */
typedef struct tx_plan_tensor {
    const char *name;    /* of an input, or of the op that computes it */
    int32_t node;        /* that computes it; -1 if none */
    tx_memory_kind kind; /* ACTIVATIONS: kept for the backward pass; TEMPORARY; EXCHANGE */
    tx_dtype dtype;
    tx_shape shape;
    int64_t bytes;
    int32_t first, last;
} tx_plan_tensor;
int32_t tx_plan_tensor_count(const tx_plan *plan);
tx_status tx_plan_tensor_at(const tx_plan *plan, int32_t index, tx_plan_tensor *tensor);

typedef struct tx_profile_entry {
    const char *op;      /* name in the op set */
    const char *variant; /* the kernel or library that ran it */
    tx_op_class op_class;
    tx_direction direction;
    double seconds; /* summed over the profiled runs */
    double flops;   /* of one run */
    double bytes;   /* read and written in one run */
} tx_profile_entry;
/* Times every operation from now on. The engine must have been opened with `profile`. */
tx_status tx_plan_profile(tx_plan *plan, bool on);
int32_t tx_plan_length(const tx_plan *plan); /* operations in the plan */
tx_status tx_plan_profile_entry(const tx_plan *plan, int32_t index, tx_profile_entry *entry);

TX_API_END
#endif
