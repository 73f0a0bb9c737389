/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on many ranks beside the same one on each rank alone: what tests of ranks that divide a model share. Every
 * rank makes both and compares them. */
#ifndef TX_TESTS_PARALLEL_BESIDE_H
#define TX_TESTS_PARALLEL_BESIDE_H

#include "comm/comm.h"
#include "models/arch/arch.h"

/* A model, on the ranks together or on this one alone. */
typedef struct side {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan, *update;
    tx_tensor *tokens, *labels;
    int32_t first, rows, all; /* of the batch: the first that the rank has, how many, and those of all ranks */
    tx_results results;
} side;

/* Tests one case on the ranks of a communicator. `group` is the case's first number, `rest` holds its other words. */
typedef tx_status beside_test(const char *device, tx_comm *comm, int32_t group, int rests, char **rest);
/* The main function of a test, with the arguments DEVICE CASE...; a case is GROUP[:WORD...]. One start of the ranks
 * runs all cases in turn. Returns 77 if the device is missing; `mixed` needs OpenCL. */
int beside_main(int argc, char **argv, beside_test *test);
/* The configuration that a text has; the caller frees it. */
tx_status beside_config(const char *text, tx_config **config);

/* The training plan, of rows of `block` tokens, in the graph that there is. With `routers` those of experts have losses
 * of their own and drop choices, which goes by the rows of a micro-batch that a rank has. */
tx_status beside_train(side *s, const tx_config *config, int64_t block, bool routers, float smoothing);
/* The optimizer, AdamW, once the training plan is there; weights, seeds and controls. */
tx_status beside_begin(side *s);
void beside_free(side *s);
tx_status beside_update(side *s);

/* The parameter that is furthest off, relative; that of number `wrong` (-1: none) counts as `factor` times what it is.
 */
tx_status beside_furthest(const side *together, const side *alone, tx_param_role part, int32_t wrong, double factor,
                          double *most);
/* INTERNAL unless the results of step `number` are those of one rank. */
tx_status beside_results(const side *together, const side *alone, int32_t number);
/* The gradients of step `number` of a side, `way` being what the caller says of it. */
typedef tx_status beside_backward(side *s, int32_t number, int32_t way);
/* BESIDE_STEPS of them with their updates, of which everything is compared, but for gradients where no rank has all. */
enum { BESIDE_STEPS = 12 };
tx_status beside_steps(side *together, int32_t together_way, side *alone, int32_t alone_way, beside_backward *backward,
                       bool gradients);
/* Weights and moments go from the ranks to one and back. */
tx_status beside_carry(const side *together, const side *alone);
/* How many of a parameter's elements a rank has, `part` of `parts`. */
typedef int64_t beside_share(const tx_param_spec *spec, int32_t part, int32_t parts);
/* INTERNAL unless what is planned was taken, and of weights those bytes, or where they are spread fewer. */
tx_status beside_memory(const side *s, beside_share *share, int32_t part, int32_t parts, bool spread);

#endif
