/* SPDX-License-Identifier: Apache-2.0
 * A compiled graph. */
#ifndef TX_API_PLAN_H
#define TX_API_PLAN_H

#include "api/graph/graph.h"
#include "api/model/model.h"

/* A place where the program is cut for what the executor does (tx_op_cuts). */
typedef struct tx_cut {
    int32_t at; /* commands before it */
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
    bool settles; /* begins when nothing moves between the ranks: none of its cuts waits for that */
    tx_executable *executable;
    double *seconds; /* one a command, while profiling */
    bool profiling;
    bool bound;
    bool leaves_copies; /* changes weights without their copies in arena HALF */
    bool reads_copies;
    bool reads_kept, changes_weights; /* those that lie outside the device's memory */
    int32_t *placed;                  /* the tensors that the planner placed, by id */
    int32_t placed_count;
    tx_watch *watch;    /* NULL: the plan is not watched */
    tx_plan *following; /* of the model's next stage, where this process has all: it goes with this one */
    void *crossing;     /* host memory for any one tensor that goes there */
    tx_plan *next;
};

/* Fills `placed`, once the graph is laid out. */
tx_status tx_plan_find_placed(tx_plan *plan);

/* Like tx_plan_create; the plan frees the graph, also when it cannot be made. */
tx_status tx_plan_create_owned(tx_graph *graph, const char *name, tx_plan **plan);
/* Where a tensor of the plan's graph lies; NULL: an absent operand. */
tx_operand tx_plan_place(const tx_model *model, tx_tensor *tensor);
/* Runs the plan's commands, and between them the cuts (execute.c). The model is ready, and its copies of weights
 * outside the device's memory are true. */
tx_status tx_plan_execute(tx_plan *plan);
/* Tells the backend where the model's arenas lie. */
tx_status tx_plan_bind(tx_plan *plan);

/* copies.c. Elements of a chunk that are cast at a time: weights outside the device's memory come in pieces. */
int64_t tx_copies_elements(const tx_model *model);
/* Range number `number` of the weights that are cast: a range that ranks gather, or part of a chunk. False if there are
 * fewer. */
bool tx_copies_range(const tx_model *model, int32_t number, tx_copy_range *r);
/* Makes the plan that casts weights to arena HALF, where there is one. */
tx_status tx_copies_make(tx_model *model);

/* pieces.c. Cuts the weights that this rank updates into pieces, places their states in arena OPTIMIZER, and adds
 * holdings of the states; groups[c] is the address of the group bytes of chunk c of the weights. */
tx_status tx_optimizer_cut(tx_model *model, const int64_t *groups, tx_optimizer *optimizer);

/* stored.c: bytes of this rank's own array of a parameter, or of a state of it, between the host and the holdings
 * (own.h). Writes the bytes that this rank holds, as tx_model_write_at. */
tx_status tx_stored_write(tx_model *model, tx_param_role part, int32_t index, int64_t at, const void *data,
                          int64_t bytes);
/* Reads bytes; all ranks that have shards of the part do it together. `data` has room for whole words of 4 bytes. */
tx_status tx_stored_read(tx_model *model, tx_param_role part, int32_t index, int64_t at, void *data, int64_t bytes);

/* values.c. Checks a copy and makes the model ready for it; copies elements of the own array. */
tx_status tx_values_prepare(tx_model *model, const tx_value_copy *copy);
tx_status tx_values_copy_own(tx_model *model, const tx_value_copy *copy);

/* optimizer.c: nodes of the update plan. Result GRAD_SUMSQ gains the sum over gradients. */
void tx_update_add_squares(tx_graph *graph, int64_t gradients, int64_t count);
void tx_update_add_piece(tx_graph *graph, const tx_optimizer_piece *piece);

/* memory.c. Allocates what is missing and binds all plans again where something moved. */
tx_status tx_model_ready(tx_model *model);

#endif
