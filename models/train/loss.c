/* SPDX-License-Identifier: Apache-2.0
 * Builds the model and the loss of a training or evaluation graph. The trainer calls it. */
#include "models/train/trainer.h"

/* The logits of the reference model: the second model, or the base of the adapter. NULL if there is none, or if its
 * log-probabilities are computed before the step. */
static tx_tensor *reference_of(const tx_trainer_options *o, const tx_config *config, tx_graph *graph, bool train)
{
    const tx_arch_options plain = {.size = sizeof plain, .base = !o->teacher};
    const bool known = o->task->generates ? train : o->set->precompute_ref;
    if (!o->task->refers || !o->task->refers(o->task, o->set) || known)
        return NULL;
    return tx_arch_logits(graph, o->teacher ? o->teacher : config, &plain);
}

tx_tensor *tx_trainer_loss(const tx_trainer_options *o, const tx_config *config, tx_graph *graph, bool train,
                           tx_tensor **output)
{
    tx_tensor *own = NULL, *rows = NULL, *loss;
    const tx_arch_options options = {.size = sizeof options,
                                     .train = train,
                                     .no_dropout = o->task->refers && o->set->disable_dropout,
                                     .noise = (float)o->set->noise,
                                     .capacity = train ? (float)o->set->capacity : 0.0f,
                                     .z_loss = train ? (float)o->set->z_loss : 0.0f,
                                     .own_loss = &own},
                          plain = {.size = sizeof plain};
    /* Evaluations do not use the teacher: their loss is only the task's. */
    const bool distills = train && o->teacher && !o->task->refers;
    tx_loss_operands of = {.graph = graph,
                           .config = config,
                           .task = o->task,
                           .set = o->set,
                           .second = distills ? tx_arch_logits(graph, o->teacher, &plain)
                                              : reference_of(o, config, graph, train),
                           .train = train};
    of.output = tx_arch_logits(graph, config, &options);
    loss = distills ? tx_task_distill(&of) : o->task->loss(&of, &rows);
    *output = rows ? rows : of.output;
    if (o->task->refers && train && rows)
        tx_add_means_to_results(rows, TX_RESULT_TASK_0);
    return own ? tx_add(loss, own) : loss;
}
