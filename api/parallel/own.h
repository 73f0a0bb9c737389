/* SPDX-License-Identifier: Apache-2.0
 * This rank's shard of each parameter. */
#ifndef TX_API_PARALLEL_OWN_H
#define TX_API_PARALLEL_OWN_H

#include "api/model/model.h"

/* Whether this rank has only a shard of a parameter, in a tensor or expert group. */
static inline bool tx_model_splits(const tx_model *model, int32_t index)
{
    return index >= 0 && index < model->params &&
           (model->param[index].division.parts > 1 || model->param[index].experts.parts > 1);
}

/* Returns how many of `size` rows rank `part` of `parts` has, and the first one. All ranks have equally many, except
 * the last ones if `size` is not a multiple. */
static inline int64_t tx_own_rows(int64_t size, int32_t part, int32_t parts, int64_t *first)
{
    const int64_t each = tx_ceil_div(size, parts);
    *first = part * each < size ? part * each : size;
    return size - *first < each ? size - *first : each;
}

/* Whether the first and the last stage share a parameter, and this is one of them. */
static inline bool tx_model_ties(const tx_model *model, int32_t index)
{
    return model->mesh.stages > 1 && model->param[index].spec.tied && !model->param[index].absent;
}

/* Whether a parameter belongs to this stage. A tied one belongs to the first stage. */
static inline bool tx_model_owns(const tx_model *model, int32_t index)
{
    return tx_model_has_stage(model, tx_model_stage_of(model, model->param[index].spec.block));
}

/* Fails if the ranks cannot divide a parameter by `record->experts` and `record->division`. */
tx_status tx_own_check(const tx_param_record *record);
/* Computes this rank's runs and its own spec from the whole, by the same divisions. */
void tx_own_divide(tx_param_record *record);

/* Returns the number of elements of the local array before element `end` of the whole. */
int64_t tx_own_before(const tx_param_record *record, int64_t end);
/* Copy this rank's elements among first .. first + count - 1 of the whole, contiguously. `take` copies them from
 * `whole`, `put` to it. Only the first of several replicas puts its elements. */
void tx_own_take(const tx_param_record *record, int64_t first, int64_t count, const float *whole, float *own);
void tx_own_put(const tx_param_record *record, int64_t first, int64_t count, const float *own, float *whole);
/* Iterates over stretches of runs with equally many replicas: `stretch->own` and `stretch->count` are its elements.
 * *run is the first run (initially 0) and becomes that of the next stretch. Returns false at the end. */
bool tx_own_stretch(const tx_param_record *record, int32_t *run, tx_param_run *stretch);

/* Divides the blocks among `stages` pipeline stages with blocks[s] blocks each. `axis` determines this rank's stages.
 */
tx_status tx_model_set_stage(tx_model *model, tx_mesh_axis axis, int32_t stages, const int32_t *blocks);

#endif
