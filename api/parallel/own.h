/* SPDX-License-Identifier: Apache-2.0
 * This rank's part of each parameter. */
#ifndef TX_API_PARALLEL_OWN_H
#define TX_API_PARALLEL_OWN_H

#include "api/model/model.h"

/* Whether this rank has a part of a parameter alone. */
static inline bool tx_model_splits(const tx_model *model, int32_t index)
{
    return index >= 0 && index < model->params &&
           (model->param[index].division.parts > 1 || model->param[index].experts.parts > 1);
}

/* How many of `size` rows rank `part` of `parts` has, and *first, where they begin: all as many, but for the last ones
 * of a size that is no multiple. */
static inline int64_t tx_own_rows(int64_t size, int32_t part, int32_t parts, int64_t *first)
{
    const int64_t each = (size + parts - 1) / parts;
    *first = part * each < size ? part * each : size;
    return size - *first < each ? size - *first : each;
}

/* Whether the first stage and the last have a parameter, and this is one of them. */
static inline bool tx_model_ties(const tx_model *model, int32_t index)
{
    return model->mesh.stages > 1 && model->param[index].spec.tied && !model->param[index].absent;
}

/* Whether a parameter is this stage's: of a tied one the first stage's. */
static inline bool tx_model_owns(const tx_model *model, int32_t index)
{
    return tx_model_has_stage(model, tx_model_stage_of(model, model->param[index].spec.block));
}

/* Refuses a parameter that the ranks cannot divide by `record->experts` and `record->division`. */
tx_status tx_own_check(const tx_param_record *record);
/* Finds this rank's runs and its own spec of the whole, by the same divisions. */
void tx_own_divide(tx_param_record *record);

/* The number of elements of the own array that come before element `end` of the whole. */
int64_t tx_own_before(const tx_param_record *record, int64_t end);
/* This rank's elements among first .. first + count - 1 of the whole, side by side: `take` copies them from `whole`,
 * `put` copies them to it, of replicas only the first one's. */
void tx_own_take(const tx_param_record *record, int64_t first, int64_t count, const float *whole, float *own);
void tx_own_put(const tx_param_record *record, int64_t first, int64_t count, const float *own, float *whole);
/* The own array in stretches of runs that equally many ranks have: `stretch->own` and `stretch->count` say its
 * elements. *run is the first run, 0 for the first stretch, and becomes that of the next. False: there is none. */
bool tx_own_stretch(const tx_param_record *record, int32_t *run, tx_param_run *stretch);

/* Divides the blocks among `stages` pipeline stages, which have so many blocks each; `axis` says which are this rank's.
 */
tx_status tx_model_set_stage(tx_model *model, tx_mesh_axis axis, int32_t stages, const int32_t *blocks);

#endif
