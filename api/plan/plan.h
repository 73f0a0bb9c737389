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

typedef struct tx_ranges tx_ranges;

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
    tx_ranges *ranges;  /* NULL: the plan is not watched */
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

/* copies.c. Places on the device for what is cast next, of weights that lie outside its memory. */
tx_status tx_copies_reserve(tx_model *model);
/* Makes the plan that casts weights to arena HALF, where there is one. */
tx_status tx_copies_make(tx_model *model);
/* Makes the copies true that the plan reads of weights outside the device's memory. */
tx_status tx_copies_renew(const tx_plan *plan);

/* memory.c. Allocates what is missing and binds all plans again where something moved. */
tx_status tx_model_ready(tx_model *model);

#endif
