/* SPDX-License-Identifier: Apache-2.0
 *
 * A model: its parameters in arena order, the arenas that all its plans share, the run-time scalars and the
 * ring of memory through which they and the inputs reach the device. */
#ifndef TX_API_MODEL_H
#define TX_API_MODEL_H

#include "api/model/arena.h"
#include "api/model/engine.h"
#include "api/model/mesh.h"
#include "api/model/optimizer.h"
#include "api/model/own.h"

struct tx_param_record {
    char *name;
    tx_param_spec spec;   /* of this rank's own array */
    tx_param_spec whole;  /* as it was declared */
    tx_division experts;  /* of an expert group: the first dimension */
    tx_division division; /* of a tensor group: another one, where both do */
    tx_param_run run[TX_MAX_SECTIONS];
    int32_t runs;
    int64_t own_step;  /* elements of the own array from a run to the next time of it */
    tx_arena_id arena; /* WEIGHTS, or FROZEN */
    int64_t offset;    /* address there, and of what is in WEIGHTS in GRADIENTS too */
    bool absent;       /* other stages of the pipeline have it: it has no place here */
    bool is_kept;      /* has a copy in arena KEPT */
    int64_t kept;      /* its address */
};

typedef struct tx_state_record {
    char *name; /* NULL: group bytes of a chunk of the parameters */
    tx_dtype dtype;
    tx_shape shape;
    int64_t offset;
    bool absent; /* another stage has it: it has no place here */
} tx_state_record;

/* Host memory that a device copies from, as a ring. Positions count bytes taken since the start; what lies before
 * `freed` is known to have been copied, because results asked for later have arrived. */
typedef struct tx_ring {
    tx_buffer *buffer;
    int64_t bytes, taken, freed;
    int64_t mark[TX_RESULTS_PENDING]; /* `taken` when each outstanding copy of the results was asked for */
} tx_ring;

#define TX_RESULT_BYTES ((int64_t)(TX_RESULT_COUNT * sizeof(float))) /* of arena RESULT */
#define TX_CONTROL_BYTES ((int64_t)sizeof(tx_controls))              /* of arena CONTROL */

/* Weights that one command casts. */
typedef struct tx_copy_range {
    int64_t address, count; /* elements of arena WEIGHTS */
    bool stale;             /* these have changed, perhaps alone */
} tx_copy_range;

/* Copies of the weights on the device (plan/copies.c): of 16 bits in arena HALF, and as they are stored in arena KEPT.
 */
typedef struct tx_weight_copies {
    tx_dtype dtype;              /* of arena HALF; F32 if no graph reads copies */
    bool half_stale, kept_stale; /* weights have changed since HALF and KEPT were written */
    tx_plan *plan;               /* makes the copies of HALF; NULL before the first time */
    int64_t casting[2];          /* places in KEPT for offloaded weights that the plan casts, */
    int64_t casting_bytes;       /* bytes of each, */
    int64_t casted[2];           /* and places of the results if HALF is offloaded too */
    tx_copy_range *range;        /* what ranks gather after an update, and what is cast by itself therefore; */
    int32_t ranges;              /* NULL: chunks are cast */
} tx_weight_copies;

/* Results on their way to the host. */
typedef struct tx_result_queue {
    tx_buffer *buffer; /* TX_RESULTS_PENDING copies of arena RESULT */
    tx_event *reading[TX_RESULTS_PENDING];
    int32_t first, pending;
    tx_results begin; /* initial values */
    bool written;     /* `begin` has been written to the device */
} tx_result_queue;

typedef struct tx_parallel tx_parallel;

/* Elements first .. first + count - 1 of a part of a parameter, from the host or to the host. */
typedef struct tx_value_copy {
    tx_param_role part;
    int32_t index;
    int64_t first, count;
    const float *from; /* one of them is NULL */
    float *to;
} tx_value_copy;

/* What the core calls if many ranks or devices have a model (extension parallel). */
typedef struct tx_parallel_hooks {
    void (*free)(tx_model *model);
    /* A parameter is declared: finds this rank's part of it. */
    tx_status (*divide)(const tx_model *model, tx_param_record *record);
    /* Before the sizes of arenas are final. */
    tx_status (*prepare)(tx_model *model);
    /* A plan's commands have been given to the device: begins transfers that waited for that. */
    tx_status (*flush)(tx_model *model);
    tx_status (*settle)(tx_model *model); /* tx_model_wait */
    /* Builders of graphs. The positions of the tokens of x [B, T, ..]; NULL if they begin at 0. All layers read the
     * same. */
    tx_tensor *(*places)(const tx_tensor *x);
    /* True if ranks divide the rows of table x, or the columns of logits x, which the next two are for. */
    bool (*divides)(const tx_tensor *x);
    tx_tensor *(*embed)(tx_tensor *tokens, tx_tensor *table, int64_t padding, tx_tensor *position_table,
                        tx_tensor *positions);
    tx_tensor *(*loss)(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing);
    /* Reads or writes a parameter that ranks or devices divide. */
    tx_status (*copy)(tx_model *model, const tx_value_copy *copy);
    /* Completes bytes of a part of which this rank has read its shard: words, 0 where it has none. */
    tx_status (*complete)(const tx_model *model, tx_param_role part, int32_t index, int32_t *words, int64_t count,
                          tx_status status);
    tx_status (*check_optimizer)(const tx_model *model, const tx_optimizer *optimizer);
    /* Nodes of the update plan: those before the norm, the squares of all gradients, and the updates. */
    void (*add_waits)(tx_graph *graph);
    void (*add_squares)(tx_graph *graph);
    void (*add_updates)(tx_graph *graph);
} tx_parallel_hooks;

/* What the core calls if arenas are outside the device's memory (extension residency). */
typedef struct tx_residency_hooks {
    void (*free)(tx_model *model);
    /* Before the sizes of arenas are final: gives places to weights on their way to be cast. */
    tx_status (*prepare)(tx_model *model);
    /* Gives arenas their room in the file. */
    tx_status (*reserve)(tx_model *model);
    /* Moves bytes to an address of an arena in the file (`out`), or back, and waits. */
    tx_status (*move)(const tx_model *model, const tx_arena *arena, bool out, int64_t address, void *data,
                      int64_t bytes);
    /* Waits for transfers between the file and this memory. */
    tx_status (*wait)(const tx_model *model, const void *memory, int64_t bytes);
    /* Adds the cast of a range of weights to the plan that makes copies. */
    void (*cast)(tx_graph *graph, int32_t number, const tx_copy_range *range);
    /* Updates the copies that a plan reads of weights outside the device's memory. */
    tx_status (*renew)(const tx_plan *plan);
} tx_residency_hooks;

struct tx_model {
    tx_engine *engine;
    tx_param_record *param;
    int32_t params;
    tx_param_slice *holding; /* the table of ownership (own.h) */
    int32_t holdings;
    tx_state_record *state;
    int32_t states;
    bool has_gradients, sealed, groups_written;
    bool only_plans; /* tx_model_only_plan */
    tx_dtype stored; /* of parameters that are declared in F32 (tx_model_store) */
    tx_weight_copies copies;
    tx_optimizer *optimizer; /* once it is made */
    tx_arena arena[TX_ARENA_COUNT];
    const tx_residency_hooks *residency; /* NULL: all arenas are in the device's memory */
    struct {
        const char *folder;   /* NULL: no arena is in a file */
        struct tx_swap *swap; /* NULL: not made yet */
    } file;
    int64_t saved;  /* bytes of arena PLANNED that forward keeps for backward, in the plan that keeps most */
    tx_plan *plans; /* linked list */
    tx_controls controls;
    struct {
        bool changed;          /* `controls` are not on the device yet */
        tx_controls *controls; /* by micro-batch (tx_model_keep_controls) */
        int32_t count;
    } later;
    tx_ring ring;
    int64_t input_bytes; /* of the plan with the most */
    tx_result_queue results;
    const tx_parallel_hooks *hooks; /* NULL if one device trains the model */
    tx_parallel *parallel;          /* NULL: one rank */
    struct {
        tx_arena_id weights;      /* the arena of the weights that this rank has: WEIGHTS or SHARDS */
        tx_arena_id gradients_as; /* the arena whose size its gradients have */
        bool keeps_gradients;     /* gradients stay on the device: another micro-batch of the step follows */
        int64_t exchanged;        /* address in EXCHANGE from which on the planner places tensors */
    } exchange;
    tx_mesh mesh;
    tx_model *following; /* the model of the next pipeline stage, if this process has all stages (tx_model_divide) */
};

/* Finds or declares a parameter (spec NULL: only finds). */
tx_status tx_model_declare(tx_model *model, const char *name, const tx_param_spec *spec, int32_t *index);
/* Finds or declares a state, which the stage of its block has. */
tx_status tx_model_declare_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape,
                                 int32_t block, int64_t *offset);
/* The state of this name, or NULL. */
const tx_state_record *tx_model_find_state(const tx_model *model, const char *name);
/* Declares the optimizer's group bytes; `offset[c]` is the address of those of chunk c of the parameters. From now on
 * no parameter can be declared. */
tx_status tx_model_declare_groups(tx_model *model, int64_t offset[TX_MAX_CHUNKS]);

/* Where in arena HALF, which has as many chunks as the weights, the copy of the weights from a block's address on lies.
 */
int64_t tx_model_half_address(const tx_model *model, int64_t weights);

/* Whether arena HALF holds copies of the weights that this rank has. */
static inline bool tx_model_keeps_copies(const tx_model *model)
{
    return model->copies.dtype != TX_F32;
}

/* Whether the weights lie outside the device's memory. */
static inline bool tx_model_weights_offloaded(const tx_model *model)
{
    return tx_arena_is_offloaded(&model->arena[TX_ARENA_WEIGHTS]) ||
           tx_arena_is_offloaded(&model->arena[TX_ARENA_SHARDS]);
}

/* Where the frozen parameters lie that this rank has: its shards, or all. */
static inline tx_arena_id tx_model_frozen(const tx_model *model)
{
    return model->arena[TX_ARENA_FROZEN].addresses ? TX_ARENA_FROZEN_SHARDS : TX_ARENA_FROZEN;
}

/* Whether graphs fetch parameters before they read them (tx_model_offload_params). */
static inline bool tx_model_fetches(const tx_model *model)
{
    return tx_arena_is_offloaded(&model->arena[tx_model_frozen(model)]);
}

/* Bytes of an element of arenas WEIGHTS and GRADIENTS. */
static inline int64_t tx_model_element(const tx_model *model)
{
    return (int64_t)tx_dtype_size(model->stored);
}

/* Blocks that a parameter of so many elements takes; the last may be short. */
static inline int64_t tx_param_blocks(int64_t count)
{
    return (count + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK;
}

static inline bool tx_model_has_stage(const tx_model *model, int32_t stage)
{
    return stage % model->mesh.pipeline.size == model->mesh.pipeline.rank;
}

/* The stage that a block belongs to; 0: what is in front of the blocks, -1: behind them. */
static inline int32_t tx_model_stage_of(const tx_model *model, int32_t block)
{
    int32_t stage = 0;
    while (stage < model->mesh.stages - 1 && (block < 0 || model->mesh.last_block[stage] < block))
        stage++;
    return stage;
}

/* Whether the stages are ranks of a pipeline. */
static inline bool tx_model_has_pipeline(const tx_model *model)
{
    return model->mesh.stages > 1 && model->parallel;
}

/* Whether the model is divided among devices of this process. */
static inline bool tx_model_is_divided(const tx_model *model)
{
    return model->mesh.stages > 1 && !model->parallel;
}

/* Writes to a place in an arena, in the order of runs; `data` is to stay until the device is finished. */
tx_status tx_model_write_at(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes);
/* Reads from a place in an arena, and waits for it. */
tx_status tx_model_read_at(tx_model *model, tx_arena_id arena, int64_t address, void *data, int64_t bytes);
/* Copies `bytes` from the host to a place in an arena, in the order of runs; `data` may be reused at once. */
tx_status tx_model_send(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes);
/* Brings changed controls to the device. */
tx_status tx_model_send_controls(tx_model *model);
/* The controls are those of a micro-batch (tx_model_keep_controls) for what runs next. */
tx_status tx_model_begin_micro_batch(tx_model *model, int32_t micro_batch);

#endif
