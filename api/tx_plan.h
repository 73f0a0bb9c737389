/* SPDX-License-Identifier: Apache-2.0
 * Plans: compiled graphs, and the update of an optimizer. */
#ifndef TX_PLAN_H
#define TX_PLAN_H

#include "tx_graph.h"

TX_API_BEGIN

typedef struct tx_plan tx_plan;

/* Compiles the graph, to which nothing can be added afterwards; nothing is allocated on the device yet. */
tx_status tx_plan_create(tx_graph *graph, const char *name, tx_plan **plan);
void tx_plan_free(tx_plan *plan);

typedef enum tx_optimizer_kind {
    TX_SGD,
    TX_ADAMW,
    TX_LION,
    TX_ADAFACTOR,
    TX_ADAMW_8BIT,         /* moments in 8 bits, but of tables and what has less than 4096 elements */
    TX_ADAMW_ANYPRECISION, /* moments in types of their own */
    TX_MUON,               /* of matrices but tables; AdamW of the rest */
    TX_OPTIMIZER_KINDS
} tx_optimizer_kind;

typedef struct tx_optimizer_options {
    size_t size; /* sizeof(tx_optimizer_options) */
    tx_optimizer_kind kind;
    float beta1, beta2; /* AdamW, Lion */
    float eps;          /* AdamW */
    float momentum;     /* SGD; 0: it keeps no state. Muon */
    float weight_decay; /* of parameters whose spec says decay */
    bool nesterov;      /* SGD and Muon, with momentum */
    /* Adafactor: the learning rate is min(1e-2, 1 / sqrt(t)) in place of the control's; the rate is times the root mean
     * square of each parameter; a relative rate begins at 1e-6 t. */
    bool relative_step, scale_parameter, warmup_init;
    /* AdamW of any precision: types of its moments, F32 or BF16; whether each weight has a remainder (Kahan's sum), and
     * its type. */
    tx_dtype momentum_dtype, variance_dtype, compensation_dtype;
    bool kahan;
    /* What is pruned stays so: of matrices but tables a weight that is 0 stays 0, and its gradient counts as 0. */
    bool keep_zeros;
    bool match_rms; /* Muon: its steps are as large as AdamW's, 0.2 sqrt(max(rows, columns)) in place of
                       sqrt(max(1, rows / columns)) */
    tx_offload_place offload;
    const char *offload_folder; /* of the file; outlives the model */
    int64_t offload_elements;   /* of a state that move at a time, but for what works on whole parameters; 0: 4 Mi */
} tx_optimizer_options;
/* The update plan: global gradient norm, clip, optimizer over the flat arenas. */
tx_status tx_optimizer_create(tx_model *model, const tx_optimizer_options *options, tx_plan **plan);
/* How many states the model's optimizer keeps of parameter `index`, parts TX_PARAM_STATE and those that follow; before
 * it is made, and of what is frozen, none. */
int32_t tx_model_states(const tx_model *model, int32_t index);
/* State `k` of it. The name lives as long as the library. */
typedef struct tx_state_info {
    const char *name; /* what files call it, as in PARAM.exp_avg */
    tx_dtype dtype;   /* as stored; tx_model_read and tx_model_write convert, without loss */
    tx_shape shape;
    bool never_negative;
} tx_state_info;
tx_status tx_model_state(const tx_model *model, int32_t index, int32_t k, tx_state_info *info);
/* Bytes of all states of all parameters, wherever they lie: what files hold. */
int64_t tx_model_state_bytes(const tx_model *model);
/* Whether an optimizer works on whole parameters: then ranks divide updates by tx_parallel_options.whole. */
bool tx_optimizer_is_whole(tx_optimizer_kind kind);

/* Copies `bytes` from `data` into an input; the data may be reused at once. Indices outside what
 * the graph can take are refused here, so that they never reach a kernel. */
tx_status tx_plan_write(tx_plan *plan, tx_tensor *input, const void *data, size_t bytes);
/* The input of micro-batch `micro_batch` that one of the graph is of the first, in a plan that does many
 * (tx_parallel_options.pipeline); NULL: the plan has no such. */
tx_tensor *tx_plan_input(const tx_plan *plan, tx_tensor *input, int32_t micro_batch);
/* Gives the plan to the device; does not wait. */
tx_status tx_plan_run(tx_plan *plan);
/* Waits for the device and copies an output (see tx_output) to `data`. */
tx_status tx_plan_read(tx_plan *plan, tx_tensor *output, void *data, size_t bytes);

/* From now on every run of the plan is measured: what each node reads and gives, as least and greatest magnitude. The
 * first node with a NaN or an infinity ends the run with a failure that names it, after `report` was told the ranges of
 * the last nodes, that one's operands, and what these were in the last run that was finite. Gradients are let pass
 * where the loss scale adapts to them (control GROWTH_INTERVAL). Many times slower. NULL: the plan runs as it is. */
tx_status tx_plan_watch(tx_plan *plan, const tx_reporter *report);

typedef enum tx_op_class {
    TX_CONTRACTION,
    TX_NORMALIZATION,
    TX_ELEMENTWISE,
    TX_MOVEMENT,
    TX_COLLECTIVE,
    TX_CLASS_COUNT
} tx_op_class;
/* RECOMPUTE: of the forward pass, once more for the backward pass (tx_graph_checkpointing). */
typedef enum tx_direction { TX_FORWARD, TX_RECOMPUTE, TX_BACKWARD, TX_UPDATE, TX_DIRECTION_COUNT } tx_direction;
const char *tx_class_name(tx_op_class op_class);
const char *tx_direction_name(tx_direction direction);

/* Operations that a run takes in nodes of this direction: a multiply-add is two, other ops count one a result element.
 */
double tx_plan_flops(const tx_plan *plan, tx_direction direction);

/* Operations of a run's products and attention, and the bytes that its other ops have to read and write. */
void tx_plan_work(const tx_plan *plan, double *product_flops, double *other_bytes);

/* The nodes of a plan in the order in which they run, those included that have no kernel. */
typedef struct tx_plan_node {
    const char *op; /* name in the op set */
    tx_direction direction;
    int32_t block; /* of the architecture, from 1; 0: none */
} tx_plan_node;
int32_t tx_plan_node_count(const tx_plan *plan);
tx_status tx_plan_node_at(const tx_plan *plan, int32_t index, tx_plan_node *node);

/* What a plan places by its lifetime, but for activations in the host's memory: it is there from node `first` to node
 * `last`, which may be the number of nodes. */
typedef struct tx_plan_tensor {
    const char *name;    /* of an input, else the op that makes it */
    int32_t node;        /* which makes it; -1: none */
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

TX_API_END
#endif
