/* SPDX-License-Identifier: Apache-2.0
 *
 * A model: its parameters in arena order, the arenas that all its plans share, and the run-time scalars. A ring of host
 * memory passes scalars and inputs to the device. */
#ifndef TX_API_MODEL_H
#define TX_API_MODEL_H

#include "api/model/arena.h"
#include "api/model/engine.h"
#include "api/model/mesh.h"
#include "api/model/optimizer.h"
#include "api/model/own.h"

struct tx_param_record {
    char *name;
    tx_param_spec spec;   /* of this rank's local array */
    tx_param_spec whole;  /* as declared */
    tx_division experts;  /* in an expert group: the first dimension, or the last one if experts alternate there */
    tx_division division; /* in a tensor group; another dimension than `experts` */
    tx_param_run run[TX_MAX_SECTIONS];
    int32_t runs;
    int64_t own_step;  /* elements of the local array between repetitions of a run */
    tx_arena_id arena; /* WEIGHTS, or FROZEN */
    int64_t offset;    /* address in that arena; for WEIGHTS also in GRADIENTS */
    bool absent;       /* only other pipeline stages have it; it has no memory here */
    bool is_kept;      /* has a copy in arena KEPT */
    int64_t kept;      /* address of that copy */
};

typedef struct tx_state_record {
    char *name; /* NULL for the group bytes of a chunk of the parameters */
    tx_dtype dtype;
    tx_shape shape;
    tx_arena_id arena; /* STATE, or SHARED_STATE */
    int64_t offset;
    bool absent; /* only another stage has it; it has no memory here */
} tx_state_record;

/* Host memory that the device copies from, used as a ring. Positions count the bytes taken since the start. Bytes
 * before `freed` have been copied to the device, because results requested later have arrived. */
typedef struct tx_ring {
    tx_buffer *buffer;
    int64_t bytes, taken, freed;
    int64_t mark[TX_RESULTS_PENDING]; /* `taken` when each outstanding copy of the results was requested */
} tx_ring;

#define TX_RESULT_BYTES ((int64_t)(TX_RESULT_COUNT * sizeof(float))) /* of arena RESULT */
#define TX_CONTROL_BYTES ((int64_t)sizeof(tx_controls))              /* of arena CONTROL */

/* A range of weights that one command casts. */
typedef struct tx_copy_range {
    int64_t address, count; /* elements of arena WEIGHTS */
    bool stale;             /* these weights have changed, perhaps no others */
} tx_copy_range;

/* Copies of the weights on the device (plan/copies.c): 16-bit copies in arena HALF, copies in the stored type in arena
 * KEPT. */
typedef struct tx_weight_copies {
    tx_dtype dtype;              /* type of arena HALF; F32 if no graph reads 16-bit copies */
    bool half_stale, kept_stale; /* weights have changed since HALF or KEPT was written */
    tx_plan *plan;               /* updates HALF; NULL before the first use */
    int64_t casting[2];          /* two buffers in KEPT for offloaded weights to cast */
    int64_t casting_bytes;       /* bytes of each buffer */
    int64_t casted[2];           /* two buffers for the results if HALF is offloaded too */
    tx_copy_range *range;        /* ranges that ranks gather after an update and that are cast separately */
    int32_t ranges;              /* 0 if whole chunks are cast */
} tx_weight_copies;

/* Copies of the results that are in progress. */
typedef struct tx_result_queue {
    tx_buffer *buffer; /* TX_RESULTS_PENDING copies of arena RESULT */
    tx_event *reading[TX_RESULTS_PENDING];
    int32_t first, pending;
    tx_results begin; /* initial values */
    bool written;     /* `begin` has been written to the device */
} tx_result_queue;

typedef struct tx_parallel tx_parallel;

/* A copy of elements first .. first + count - 1 of a part of a parameter from or to the host. */
typedef struct tx_value_copy {
    tx_param_role part;
    int32_t index;
    int64_t first, count;
    const float *from; /* one of the two is NULL */
    float *to;
    const uint8_t *blocks; /* the values of `from` in blocks of Q8_0, for parameters of type Q8; may be NULL */
} tx_value_copy;

/* Functions that the core calls if several ranks or devices share a model (extension parallel). */
typedef struct tx_parallel_hooks {
    void (*free)(tx_model *model);
    /* Called when a parameter is declared: determines this rank's part of it. */
    tx_status (*divide)(const tx_model *model, tx_param_record *record);
    /* Called before the sizes of arenas are final. */
    tx_status (*prepare)(tx_model *model);
    /* Called after a plan's commands were submitted to the device: starts transfers that depend on them. */
    tx_status (*flush)(tx_model *model);
    tx_status (*settle)(tx_model *model); /* tx_model_wait */
    /* Functions for graph builders. places returns the positions of the tokens of x [B, T, ..], or NULL if they start
     * at 0. All layers share the tensor. */
    tx_tensor *(*places)(const tx_tensor *x);
    /* Op ATTENTION, for ranks that may divide positions. */
    tx_tensor *(*attention)(tx_tensor *qkv, tx_tensor *lengths, tx_tensor *starts, tx_tensor *sinks,
                            const tx_attrs *attrs);
    /* Whether ranks divide the rows of table x, or the columns of logits x. If so, builders call `embed`,
     * `loss` or, for losses that read all columns, `gather`. */
    bool (*divides)(const tx_tensor *x);
    tx_tensor *(*embed)(tx_tensor *tokens, tx_tensor *table, int64_t padding, tx_tensor *position_table,
                        tx_tensor *positions);
    tx_tensor *(*loss)(tx_tensor *logits, tx_tensor *labels, int64_t vocab, float smoothing);
    tx_tensor *(*gather)(tx_tensor *logits);
    /* Reads or writes a parameter that ranks or devices divide. */
    tx_status (*copy)(tx_model *model, const tx_value_copy *copy);
    /* Completes a part of which this rank has read its shard. `words` has 0 for values of other ranks. */
    tx_status (*complete)(const tx_model *model, tx_param_role part, int32_t index, int32_t *words, int64_t count,
                          tx_status status);
    tx_status (*check_optimizer)(const tx_model *model, const tx_optimizer *optimizer);
    /* Add nodes to the update plan: those before the norm, the squares of all gradients, and the updates. */
    void (*add_waits)(tx_graph *graph);
    void (*add_squares)(tx_graph *graph);
    void (*add_updates)(tx_graph *graph);
} tx_parallel_hooks;

/* Functions that the core calls if arenas are in host memory or in a file (extension residency). */
typedef struct tx_residency_hooks {
    void (*free)(tx_model *model);
    /* Called before the sizes of arenas are final: allocates buffers for weights to cast. */
    tx_status (*prepare)(tx_model *model);
    /* Reserves space in the file for arenas. */
    tx_status (*reserve)(tx_model *model);
    /* Copies bytes to an address of an arena in the file (`out`), or from it, and waits. */
    tx_status (*move)(const tx_model *model, const tx_arena *arena, bool out, int64_t address, void *data,
                      int64_t bytes);
    /* Waits for transfers between the file and this memory. */
    tx_status (*wait)(const tx_model *model, const void *memory, int64_t bytes);
    /* Adds the cast of a range of weights to the plan that updates the copies. */
    void (*cast)(tx_graph *graph, int32_t number, const tx_copy_range *range);
    /* Updates the copies that a plan reads of offloaded weights. */
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
    bool shares_states, shared; /* tx_model_share_states; a plan reads such states, so that there can be no more */
    bool only_plans;            /* tx_model_only_plan */
    tx_dtype stored;            /* storage type of parameters declared in F32 (tx_model_store) */
    tx_weight_copies copies;
    tx_optimizer *optimizer; /* NULL until it is created */
    tx_arena arena[TX_ARENA_COUNT];
    const tx_residency_hooks *residency; /* NULL if all arenas are in device memory */
    struct {
        const char *folder;   /* NULL if no arena is in a file */
        struct tx_swap *swap; /* NULL until it is created */
    } file;
    int64_t saved;  /* largest size of saved activations in arena PLANNED over all plans */
    tx_plan *plans; /* linked list */
    tx_controls controls;
    struct {
        bool changed;          /* `controls` must be sent to the device */
        tx_controls *controls; /* by micro-batch (tx_model_keep_controls) */
        int32_t count;
    } later;
    tx_ring ring;
    int64_t input_bytes; /* of the plan with the most */
    tx_result_queue results;
    const tx_parallel_hooks *hooks; /* NULL if one device trains the model */
    tx_parallel *parallel;          /* NULL with one rank */
    struct {
        tx_arena_id weights;      /* arena of this rank's weights: WEIGHTS or SHARDS */
        tx_arena_id gradients_as; /* arena with the size of this rank's gradients */
        bool keeps_gradients;     /* gradients stay on the device: the step has another micro-batch */
        int64_t exchanged;        /* first address in EXCHANGE that the planner may use */
    } exchange;
    tx_mesh mesh;
    tx_model *following; /* model of the next pipeline stage, if this process has all stages (tx_model_divide) */
};

/* Finds or declares a parameter. With spec NULL it only finds. */
tx_status tx_model_declare(tx_model *model, const char *name, const tx_param_spec *spec, int32_t *index);
/* Finds or declares a state. The stage of `block` has it. */
tx_status tx_model_declare_state(tx_model *model, const char *name, tx_dtype dtype, const tx_shape *shape,
                                 int32_t block, int64_t *offset);
/* Returns the state of this name, or NULL. */
const tx_state_record *tx_model_find_state(const tx_model *model, const char *name);
/* Declares the optimizer's group bytes. `offset[c]` receives the address for chunk c of the parameters. Afterwards no
 * parameter can be declared. */
tx_status tx_model_declare_groups(tx_model *model, int64_t offset[TX_MAX_CHUNKS]);

/* Returns the address in arena HALF of the copy of the weights at a block's address. HALF has as many chunks as the
 * weights. */
int64_t tx_model_half_address(const tx_model *model, int64_t weights);

/* Whether arena HALF has copies of this rank's weights. */
static inline bool tx_model_keeps_copies(const tx_model *model)
{
    return model->copies.dtype != TX_F32;
}

/* Whether the weights are offloaded. */
static inline bool tx_model_weights_offloaded(const tx_model *model)
{
    return tx_arena_is_offloaded(&model->arena[TX_ARENA_WEIGHTS]) ||
           tx_arena_is_offloaded(&model->arena[TX_ARENA_SHARDS]);
}

/* Returns the arena of this rank's frozen parameters: its shards, or all. */
static inline tx_arena_id tx_model_frozen(const tx_model *model)
{
    return model->arena[TX_ARENA_FROZEN].addresses ? TX_ARENA_FROZEN_SHARDS : TX_ARENA_FROZEN;
}

/* Whether graphs fetch parameters before use (tx_model_offload_params). */
static inline bool tx_model_fetches(const tx_model *model)
{
    return tx_arena_is_offloaded(&model->arena[tx_model_frozen(model)]);
}

/* Returns the bytes of an element of arenas WEIGHTS and GRADIENTS. */
static inline int64_t tx_model_element(const tx_model *model)
{
    return (int64_t)tx_dtype_size(model->stored);
}

/* Returns the blocks of a parameter with `count` elements; the last block may be partial. */
static inline int64_t tx_param_blocks(int64_t count)
{
    return tx_ceil_div(count, TX_PARAM_BLOCK);
}

static inline bool tx_model_has_stage(const tx_model *model, int32_t stage)
{
    return stage % model->mesh.pipeline.size == model->mesh.pipeline.rank;
}

/* Returns the stage of a block. Block 0 (parameters before the blocks) is in the first stage, block -1 (parameters
 * after them) in the last. */
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

/* Writes to an address of an arena, in order with runs. `data` must stay valid until the device has finished. */
tx_status tx_model_write_at(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes);
/* Reads from an address of an arena and waits. */
tx_status tx_model_read_at(tx_model *model, tx_arena_id arena, int64_t address, void *data, int64_t bytes);
/* Copies `bytes` from the host to an address of an arena, in order with runs. The caller may reuse `data` at once. */
tx_status tx_model_send(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes);
/* Sends changed controls to the device. */
tx_status tx_model_send_controls(tx_model *model);
/* Restores the controls of a micro-batch (tx_model_keep_controls) for the next work. */
tx_status tx_model_begin_micro_batch(tx_model *model, int32_t micro_batch);

#endif
