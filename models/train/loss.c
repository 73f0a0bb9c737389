/* SPDX-License-Identifier: Apache-2.0
 * Builds the model and the loss of a training or evaluation graph. The trainer calls it. */
#include "models/train/trainer.h"

#include "comm/comm.h"
#include "models/task/preference.h"

/* The logits of the reference model of preferences: the second model, or the base of the adapter. NULL if there is
 * none, or if its log-probabilities are precomputed. */
static tx_tensor *reference_of(const tx_trainer_options *o, const tx_config *config, tx_graph *graph)
{
    const tx_arch_options plain = {.size = sizeof plain, .base = !o->teacher};
    if (!o->task->prefer || !tx_preference_has_reference(o->task, o->set) || o->set->precompute_ref)
        return NULL;
    return tx_arch_logits(graph, o->teacher ? o->teacher : config, &plain);
}

tx_tensor *tx_trainer_loss(const tx_trainer_options *o, const tx_config *config, tx_graph *graph, bool train,
                           tx_tensor **output)
{
    tx_tensor *own = NULL, *loss;
    const tx_arch_options options = {.size = sizeof options,
                                     .train = train,
                                     .no_dropout = o->task->prefer && o->set->disable_dropout,
                                     .noise = (float)o->set->noise,
                                     .capacity = train ? (float)o->set->capacity : 0.0f,
                                     .z_loss = train ? (float)o->set->z_loss : 0.0f,
                                     .own_loss = &own},
                          plain = {.size = sizeof plain};
    tx_teaching teaching = {.temperature = (float)o->set->temperature, .alpha = (float)o->set->alpha};
    tx_preferring how = {.task = o->task, .set = o->set, .train = train, .reference = reference_of(o, config, graph)};
    /* Evaluations do not use the teacher: their loss is only the task's. */
    const bool distills = train && o->teacher && !o->task->prefer;
    if (distills)
        teaching.output = tx_arch_logits(graph, o->teacher, &plain);
    how.output = *output = tx_arch_logits(graph, config, &options);
    if (o->task->prefer)
        loss = o->task->prefer(graph, config, &how, output);
    else if (o->task->contrast)
        loss = o->task->contrast(graph, config, &how, output);
    else
        loss = distills ? o->task->distill(graph, config, *output, &teaching)
                        : o->task->loss(graph, config, *output, (float)o->set->smoothing);
    if (own && o->parallel.context && o->parallel.context->size > 1)
        tx_graph_fail(graph, tx_fail(TX_UNSUPPORTED, "router losses need whole rows, which --context_parallel divides: "
                                                     "set router_aux_loss_coef to 0"));
    return own ? tx_add(loss, own) : loss;
}
