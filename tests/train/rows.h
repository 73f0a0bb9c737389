/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and precisions that tests of trainers combine, and the state of a run. */
#ifndef TX_TESTS_ROWS_H
#define TX_TESTS_ROWS_H

#include "models/train/trainer.h"

#include <stdlib.h>

#define ADAM .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f
static const struct {
    const char *name;
    tx_optimizer_options options;
} optimizers[] = {
    {"adamw", {.kind = TX_ADAMW, ADAM, .weight_decay = 0.1f}},
    {"sgd", {.kind = TX_SGD}},
    {"momentum", {.kind = TX_SGD, .momentum = 0.9f, .nesterov = true}},
    {"lion", {.kind = TX_LION, .beta1 = 0.9f, .beta2 = 0.99f}},
    {"adafactor", {.kind = TX_ADAFACTOR}},
    {"adamw_8bit", {.kind = TX_ADAMW_8BIT, ADAM}},
    {"anyprecision", {.kind = TX_ADAMW_ANYPRECISION, ADAM, .momentum_dtype = TX_BF16, .variance_dtype = TX_BF16}},
    {"kahan",
     {.kind = TX_ADAMW_ANYPRECISION, ADAM, .momentum_dtype = TX_BF16, .compensation_dtype = TX_BF16, .kahan = true}},
    {"muon", {.kind = TX_MUON, ADAM, .momentum = 0.95f}},
    {"lion_8bit", {.kind = TX_LION_8BIT, .beta1 = 0.9f, .beta2 = 0.99f}},
    {"ademamix", {.kind = TX_ADEMAMIX, ADAM, .beta3 = 0.9999f, .slow_weight = 5}},
    {"free_adamw", {.kind = TX_SCHEDULE_FREE_ADAMW, ADAM, .warmup_steps = 3}},
    {"free_sgd", {.kind = TX_SCHEDULE_FREE_SGD, .momentum = 0.9f}},
    {"stable_adamw", {.kind = TX_STABLE_ADAMW, ADAM, .weight_decay = 0.1f}},
    {"apollo", {.kind = TX_APOLLO, ADAM, .rank = 4, .update_proj_gap = 3, .scale = 1}},
    {"apollo_mini", {.kind = TX_APOLLO, ADAM, .rank = 1, .update_proj_gap = 200, .scale = 16, .scale_by_tensor = true}},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

static const struct {
    const char *name;
    tx_dtype autocast, stored;
} precisions[] = {
    {"fp32", TX_F32, TX_F32}, {"bf16", TX_BF16, TX_F32}, {"fp16", TX_F16, TX_F32}, {"pure bf16", TX_BF16, TX_BF16}};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

static inline bool goes_with(int precision, int optimizer)
{
    const tx_optimizer_kind kind = optimizers[optimizer].options.kind;
    return precisions[precision].stored == TX_F32 || kind == TX_ADAMW || kind == TX_ADAMW_ANYPRECISION;
}

/* Weights and states of all parameters, one after the other, and the results that persist. */
typedef struct snapshot {
    float *number;
    int64_t count;
    tx_results results;
} snapshot;

static inline tx_status part_count(const tx_model *model, int32_t param, tx_param_role part, int64_t *count)
{
    const char *name;
    const tx_param_spec *spec;
    tx_state_info state;
    TX_TRY(tx_model_param(model, param, &name, &spec));
    if (part >= TX_PARAM_STATE)
        TX_TRY(tx_model_state(model, param, (int32_t)part - TX_PARAM_STATE, &state));
    *count = tx_shape_count(part == TX_PARAM_WEIGHT ? &spec->logical : &state.shape);
    return TX_OK;
}

/* Copies all that there is to the snapshot, or back. */
static inline tx_status copy_all(tx_model *model, snapshot *s, bool back)
{
    int64_t at = 0, count = 0;
    for (int32_t p = 0; p < tx_model_param_count(model); p++)
        for (int32_t k = -1; k < tx_model_states(model, p); k++) {
            const tx_param_role part = k < 0 ? TX_PARAM_WEIGHT : (tx_param_role)(TX_PARAM_STATE + k);
            TX_TRY(part_count(model, p, part, &count));
            if (!back) {
                float *more = realloc(s->number, (size_t)(at + count) * sizeof *more);
                if (!more)
                    return tx_fail(TX_MEMORY, "no memory for a snapshot");
                s->number = more;
            }
            TX_TRY(back ? tx_model_write(model, part, p, s->number + at)
                        : tx_model_read(model, part, p, s->number + at));
            at += count;
        }
    s->count = at;
    return TX_OK;
}

#endif
