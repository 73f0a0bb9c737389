/* SPDX-License-Identifier: Apache-2.0
 * Functions of rows of optimizers.def: conditions that choose a parameter's form, and the nodes of schedule-free forms.
 */
#include "api/optimizers/optimizers.h"

#include "api/plan/plan.h"

bool tx_optimizer_with_kahan(const tx_optimizer_options *options)
{
    return options->kahan;
}

bool tx_optimizer_is_matrix(const tx_param_spec *spec)
{
    return tx_param_tensor_of(spec, 0).shape.rank == 2;
}

bool tx_optimizer_is_hidden_matrix(const tx_param_spec *spec)
{
    return tx_optimizer_is_matrix(spec) && !spec->table;
}

bool tx_optimizer_is_large(const tx_param_spec *spec)
{
    bool large = !spec->table;
    for (int32_t i = 0; i < tx_param_tensors(spec) && large; i++) {
        const tx_param_tensor t = tx_param_tensor_of(spec, i);
        large = tx_shape_count(&t.shape) >= 4096;
    }
    return large;
}

void tx_emit_schedule_free(tx_graph *graph, const tx_emit_args *args, const tx_optimizer_options *options)
{
    (void)options;
    tx_tensor *p = args->in[TX_IN(schedule_free_sgd, p)], *x = args->in[TX_IN(schedule_free_sgd, x)];
    tx_emit_args update = *args;
    tx_emit_args exchange = {.op = TX_OP_EXCHANGE, .attrs = TX_PLAIN, .in = {p, x}, .out = {p, x}};
    tx_emit(graph, graph->exchanges ? &exchange : &update);
}
