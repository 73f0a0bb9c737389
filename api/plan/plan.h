/* SPDX-License-Identifier: Apache-2.0
 * A compiled graph, and the internal functions of this folder. */
#ifndef TX_API_PLAN_H
#define TX_API_PLAN_H

#include "api/graph/graph.h"
#include "api/model/model.h"

/* A host op at which the program is split (tx_op_cuts). */
typedef struct tx_cut {
    int32_t at; /* number of commands before it */
    tx_command command;
} tx_cut;

/* Runs commands first .. end - 1 of a watched plan one by one (tx_plan_watch, extension watching). */
typedef struct tx_watch tx_watch;
struct tx_watch {
    tx_status (*run)(tx_plan *plan, int32_t first, int32_t end);
    void (*free)(tx_watch *watch);
};

struct tx_plan {
    tx_model *model;
    tx_graph *graph;
    bool owns_graph;
    char *name;
    tx_command *commands;
    tx_program program;
    tx_cut *cut;
    int32_t cuts;
    bool settles; /* starts only after all transfers between ranks have completed, because none of its cuts waits for
                     them */
    tx_executable *executable;
    double *seconds; /* one for each command, while profiling */
    bool profiling;
    bool bound;
    bool leaves_copies; /* changes weights without their copies in arena HALF */
    bool reads_copies;
    bool reads_kept, changes_weights; /* reads arena KEPT of offloaded weights; updates weights */
    int32_t *placed;                  /* ids of the tensors that the planner placed */
    int32_t placed_count;
    tx_watch *watch;    /* NULL if the plan is not watched */
    tx_plan *following; /* plan of the model's next stage, if this process has all stages; belongs to this plan */
    void *crossing;     /* host memory for any one tensor passed to that stage */
    tx_plan *next;
};

/* Fills `placed` after layout. */
tx_status tx_plan_find_placed(tx_plan *plan);

/* Like tx_plan_create, but the plan owns the graph. It frees the graph on failure too. */
tx_status tx_plan_create_owned(tx_graph *graph, const char *name, tx_plan **plan);
/* Returns the operand of a tensor of the plan's graph; NULL gives an absent operand. */
tx_operand tx_plan_place(const tx_model *model, tx_tensor *tensor);
/* Runs the plan's commands, and the cuts between them (execute.c). The model must be ready, and copies of offloaded
 * weights up to date. */
tx_status tx_plan_execute(tx_plan *plan);
/* Passes the addresses of the model's arenas to the backend. */
tx_status tx_plan_bind(tx_plan *plan);

/* copies.c. Returns the elements of a chunk that are cast at a time. Offloaded weights are cast in pieces. */
int64_t tx_copies_elements(const tx_model *model);
/* Returns range `number` of the weights to cast: a range that ranks gather, or part of a chunk. Returns false if there
 * are fewer ranges. */
bool tx_copies_range(const tx_model *model, int32_t number, tx_copy_range *r);
/* Creates the plan that casts weights to arena HALF, if the model has one. */
tx_status tx_copies_make(tx_model *model);

/* pieces.c. Splits the weights that this rank updates into pieces, allocates their states in arena OPTIMIZER and adds
 * holdings of the states. groups[c] is the address of the group bytes of chunk c of the weights. */
tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer);

/* stored.c. These copy bytes of this rank's local array of a parameter, or of a state of it, between the host and the
 * holdings (own.h). tx_stored_write writes the bytes that this rank has, like tx_model_write_at. */
tx_status tx_stored_write(tx_model *model, tx_param_role part, int32_t index, int64_t at, const void *data,
                          int64_t bytes);
/* Reads bytes. It is a collective call of all ranks that have shards of the part. `data` must have room for whole
 * 4-byte words. */
tx_status tx_stored_read(tx_model *model, tx_param_role part, int32_t index, int64_t at, void *data, int64_t bytes);

/* values.c. Checks a copy and prepares the model for it; copies elements of the local array. */
tx_status tx_values_prepare(tx_model *model, const tx_value_copy *copy);
tx_status tx_values_copy(tx_model *model, const tx_value_copy *copy);
tx_status tx_values_copy_own(tx_model *model, const tx_value_copy *copy);

/* optimizer.c. Nodes of the update plan. tx_update_add_squares adds the squares of gradients to result GRAD_SUMSQ. */
void tx_update_add_squares(tx_graph *graph, int64_t gradients, int64_t count);
void tx_update_add_piece(tx_graph *graph, const tx_optimizer_piece *piece);

/* memory.c. Allocates missing memory, and binds all plans again if an address changed. */
tx_status tx_model_ready(tx_model *model);

#endif
