/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a model that many ranks divide with the same model on each single rank. Tests of divided models share it.
 * Every rank builds both models. */
#ifndef TX_TESTS_PARALLEL_BESIDE_H
#define TX_TESTS_PARALLEL_BESIDE_H

#include "comm/comm.h"
#include "models/arch/arch.h"

/* A model, either divided over the ranks or whole on this rank. */
typedef struct side {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan, *update;
    tx_tensor *tokens, *labels;
    bool packed, padded; /* rows have several samples, padding: set it before beside_train, which adds these inputs */
    tx_tensor *starts, *places, *lengths;
    int32_t first, rows, all; /* of the batch: this rank's first row and number of rows, and the rows of all ranks */
    tx_results results;
} side;

/* Tests one case on the ranks of a communicator. `group` is the case's first number, `rest` holds its other words. */
typedef tx_status beside_test(const char *device, tx_comm *comm, int32_t group, int rests, char **rest);
/* The main function of a test, with the arguments DEVICE CASE...; a case is GROUP[:WORD...]. One start of the ranks
 * runs all cases in turn. Returns 77 if the device is missing; `mixed` needs OpenCL. */
int beside_main(int argc, char **argv, beside_test *test);
/* Parses a configuration. The caller frees it. */
tx_status beside_config(const char *text, tx_config **config);

/* Builds the training plan, for rows of `block` tokens, in the existing graph. With `routers` the routers of experts
 * have losses of their own and drop choices. Both depend on the rows of a micro-batch that a rank has. */
tx_status beside_train(side *s, const tx_config *config, int64_t block, bool routers, float smoothing);
/* Builds the AdamW optimizer after the training plan, and sets weights, seeds and controls. */
tx_status beside_begin(side *s);
void beside_free(side *s);
tx_status beside_update(side *s);

/* Finds the largest relative difference of a parameter. Parameter number `wrong` is scaled by `factor`, to plant an
 * error; pass -1 for no error. */
tx_status beside_furthest(const side *together, const side *alone, tx_param_role part, int32_t wrong, double factor,
                          double *most);
/* Fails with TX_INTERNAL unless the results of step `number` are those of one rank. */
tx_status beside_results(const side *together, const side *alone, int32_t number);
/* Computes the gradients of step `number` of a side. The caller defines the meaning of `way`. */
typedef tx_status beside_backward(side *s, int32_t number, int32_t way);
/* Runs BESIDE_STEPS steps with updates on both sides and compares everything. Pass `gradients` false if no rank has
 * complete gradients. */
enum { BESIDE_STEPS = 12 };
tx_status beside_steps(side *together, int32_t together_way, side *alone, int32_t alone_way, beside_backward *backward,
                       bool gradients);
/* Copies weights and moments from the ranks to one rank and back. */
tx_status beside_carry(const side *together, const side *alone);
/* Returns the number of a parameter's elements that rank `part` of `parts` has. */
typedef int64_t beside_share(const tx_param_spec *spec, int32_t part, int32_t parts);
/* Fails with TX_INTERNAL unless the allocated bytes are those of the plan. The weights have the bytes that `share`
 * computes, or fewer if they are `spread`. */
tx_status beside_memory(const side *s, beside_share *share, int32_t part, int32_t parts, bool spread);

#endif
