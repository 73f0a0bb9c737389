/* SPDX-License-Identifier: Apache-2.0
 * Computes this rank's shard of each parameter, and copies elements between shard and whole. */
#include "api/parallel/own.h"

#include "api/base/blocks.h"
#include "backends/nf4.h"

#include <inttypes.h>
#include <string.h>

/* A shard of a padded dimension has a multiple of this number of rows, for the kernels of matrix products. */
#define PADDED_ROWS 16

/* ---- Divisions ------------------------------------------------------------------------------------------ */

/* Whether the ranks divide the first dimension and it is padded (a vocabulary). */
static bool divides_padded(const tx_param_spec *spec, const tx_division *d)
{
    return d->parts > 1 && d->dimension == 0 && spec->sections.count == 0 && spec->logical.dim[0] < spec->shape.dim[0];
}

/* Whether the ranks divide each section separately. */
static bool divides_sections(const tx_param_spec *spec, const tx_division *d)
{
    return d->parts > 1 && spec->sections.count > 0 && spec->sections.dimension == d->dimension;
}

/* Whether the ranks can divide `units`, or with `few` the units can divide the ranks. */
static bool can_divide(int64_t units, int32_t parts, bool few)
{
    return units % parts == 0 || (few && parts % units == 0);
}

static tx_status check_division(const tx_division *d, const char *name, const tx_param_spec *spec)
{
    const tx_param_sections *s = &spec->sections;
    if (d->parts == 1)
        return TX_OK;
    const int64_t size = spec->logical.dim[d->dimension < 0 ? 0 : d->dimension];
    const bool sections = divides_sections(spec, d), padded = divides_padded(spec, d);
    int64_t first;
    if (d->dimension < 0 || d->dimension >= spec->shape.rank ||
        !(padded || tx_shape_equal(&spec->shape, &spec->logical)))
        return tx_fail(TX_INVALID, "parameter %s: spec.split is not a dimension that can be divided", name);
    for (int32_t i = 0; i < (sections ? s->count : 1); i++) {
        const bool units = sections && s->unit[i] > 0;
        const int64_t part = !sections ? size : units ? s->size[i] / s->unit[i] : s->size[i];
        if (padded ? tx_own_rows(part, d->parts - 1, d->parts, &first) == 0
                   : !can_divide(part, d->parts, units && (d->dimension == 0 || spec->frozen)))
            return tx_fail(TX_UNSUPPORTED, "parameter %s: %" PRId64 " cannot be divided among %" PRId32 " ranks", name,
                           part, d->parts);
    }
    return TX_OK;
}

tx_status tx_own_check(const tx_param_record *record)
{
    TX_TRY(check_division(&record->experts, record->name, &record->whole));
    return check_division(&record->division, record->name, &record->whole);
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

/* Returns how many ranks have the same units of a section with fewer units than ranks; 1 if it is divided among all. */
static int32_t replicas_of(const tx_param_sections *sections, int32_t section, int32_t parts)
{
    const int64_t unit = sections->unit[section], units = unit > 0 ? sections->size[section] / unit : parts;
    return units < parts ? (int32_t)(parts / units) : 1;
}

static void find_runs(tx_param_record *record)
{
    const tx_param_spec *whole = &record->whole;
    const tx_division *d = &record->division;
    const tx_division e = whole->alternating ? (tx_division){.parts = 1} : record->experts;
    const bool sections = divides_sections(whole, d);
    const int64_t per_rank = tx_shape_count(&whole->logical) / e.parts;
    int64_t row = per_rank, inner = 1, before = 0, own = 0;
    for (int32_t i = d->dimension + 1; i < whole->logical.rank && d->parts > 1; i++)
        inner *= whole->logical.dim[i];
    if (d->parts > 1)
        row = whole->logical.dim[d->dimension] * inner;
    record->runs = sections ? whole->sections.count : 1;
    for (int32_t i = 0; i < record->runs; i++) {
        const int64_t size = sections ? whole->sections.size[i] : row / inner;
        const int32_t replicas = sections ? replicas_of(&whole->sections, i, d->parts) : 1;
        int64_t first;
        const int64_t count = tx_own_rows(size, d->part / replicas, d->parts / replicas, &first);
        record->run[i] = (tx_param_run){.first = e.part * per_rank + before + first * inner,
                                        .count = count * inner,
                                        .step = row,
                                        .times = per_rank / row,
                                        .own = own,
                                        .replicas = replicas,
                                        .replica = d->part % replicas};
        before += size * inner;
        own += count * inner;
    }
    record->own_step = own;
}

/* If experts alternate along the columns, keeps those of this rank's experts. The runs are whole rows. */
static void keep_columns(tx_param_record *record)
{
    const tx_division *e = &record->experts;
    const int64_t experts = record->whole.alternating, own = experts / e->parts;
    if (e->parts == 1 || !experts)
        return;
    for (int32_t i = 0; i < record->runs; i++) {
        tx_param_run *run = &record->run[i];
        run->first += e->part * own;
        run->own /= e->parts;
        run->times = run->count / experts;
        run->step = experts;
        run->count = own;
    }
    record->own_step = own;
}

void tx_own_divide(tx_param_record *record)
{
    const tx_param_spec *whole = &record->whole;
    const tx_division *d = &record->division;
    tx_param_spec *spec = &record->spec;
    find_runs(record);
    *spec = *whole;
    if (d->parts == 1 && record->experts.parts == 1)
        return;
    spec->logical.dim[record->experts.dimension] /= record->experts.parts;
    if (d->parts > 1) {
        const int64_t inner = record->run[0].step / whole->logical.dim[d->dimension];
        for (int32_t i = 0; i < record->runs && divides_sections(whole, d); i++)
            spec->sections.size[i] = record->run[i].count / inner;
        spec->logical.dim[d->dimension] = record->own_step / inner;
    }
    keep_columns(record);
    spec->shape = spec->logical;
    if (divides_padded(whole, d)) { /* equally many rows on all ranks, so that their graphs are equal */
        const int64_t unit = (int64_t)PADDED_ROWS * d->parts;
        spec->shape.dim[0] = tx_ceil_div(whole->shape.dim[0], unit) * PADDED_ROWS;
    }
}

int64_t tx_own_before(const tx_param_record *record, int64_t end)
{
    int64_t own = 0;
    for (int32_t i = 0; i < record->runs; i++) {
        const tx_param_run *run = &record->run[i];
        const int64_t past = end > run->first ? end - run->first : 0, times = past / run->step,
                      rest = past % run->step < run->count ? past % run->step : run->count;
        own += times < run->times ? times * run->count + rest : run->times * run->count;
    }
    return own;
}

static void copy_runs(const tx_param_record *record, int64_t first, int64_t count, float *own, float *whole, bool put)
{
    const int64_t before = tx_own_before(record, first), end = first + count;
    for (int32_t i = 0; i < record->runs; i++) {
        const tx_param_run *run = &record->run[i];
        if (put && run->replica > 0)
            continue;
        for (int64_t k = first > run->first ? (first - run->first) / run->step : 0; k < run->times; k++) {
            const int64_t at = run->first + k * run->step, begin = tx_max(at, first),
                          stop = at + run->count < end ? at + run->count : end;
            if (at >= end)
                break;
            if (begin >= stop)
                continue;
            float *mine = own + (k * record->own_step + run->own + begin - at - before), *all = whole + (begin - first);
            memcpy(put ? all : mine, put ? mine : all, (size_t)(stop - begin) * sizeof *all);
        }
    }
}

void tx_own_take(const tx_param_record *record, int64_t first, int64_t count, const float *whole, float *own)
{
    copy_runs(record, first, count, own, (float *)(uintptr_t)whole, false);
}

void tx_own_put(const tx_param_record *record, int64_t first, int64_t count, const float *own, float *whole)
{
    copy_runs(record, first, count, (float *)(uintptr_t)own, whole, true);
}

bool tx_own_stretch(const tx_param_record *record, int32_t *run, tx_param_run *stretch)
{
    if (*run >= record->runs)
        return false;
    *stretch = record->run[*run];
    while (*run < record->runs && record->run[*run].replicas == stretch->replicas)
        ++*run;
    const int64_t end = *run < record->runs ? record->run[*run].own : tx_shape_count(&record->spec.shape);
    stretch->count = end - stretch->own;
    return true;
}

static tx_division division_of(const tx_model *model, const tx_param_spec *spec)
{
    return spec->split && model->mesh.tensor.size > 1
               ? (tx_division){spec->split - 1, model->mesh.tensor.rank, model->mesh.tensor.size}
               : (tx_division){.parts = 1};
}

static tx_division experts_of(const tx_model *model, const tx_param_spec *spec)
{
    return spec->experts && model->mesh.expert.size > 1
               ? (tx_division){spec->alternating ? spec->shape.rank - 1 : 0, model->mesh.expert.rank,
                               model->mesh.expert.size}
               : (tx_division){.parts = 1};
}

/* Checks that the shards of a packed parameter are whole units, so that they have the same codes and scales as the
 * whole. */
static tx_status check_units(const tx_param_record *r)
{
    const tx_dtype dtype = r->whole.dtype;
    const int64_t unit = tx_packed_unit(dtype) * (dtype == TX_NF4_DOUBLE ? TX_NF4_GROUP : 1);
    bool units = tx_block_values(dtype) == 0;
    if (!tx_dtype_packed(dtype) || (r->division.parts == 1 && r->experts.parts == 1))
        return TX_OK;
    for (int32_t i = 0; i < r->runs; i++)
        units = units && r->run[i].first % unit == 0 && r->run[i].count % unit == 0 && r->run[i].step % unit == 0;
    return units ? TX_OK
                 : tx_fail(TX_UNSUPPORTED,
                           "parameter %s is stored in %s: %" PRId32 " ranks cannot divide it into units of %" PRId64
                           " elements: use fewer ranks%s",
                           r->name, tx_dtype_name(dtype), r->division.parts * r->experts.parts, unit,
                           dtype == TX_NF4_DOUBLE ? ", or leave out double quantisation" : "");
}

/* Whether shards end within blocks of `unit` elements along a dimension. */
static bool cuts_blocks(const tx_param_record *r, int32_t along, int64_t unit)
{
    bool cuts = false;
    for (int32_t i = 0; i < r->runs; i++)
        cuts = cuts || r->run[i].first % unit != 0 || r->run[i].count % unit != 0;
    return cuts && r->division.parts > 1 && r->division.dimension == along;
}

/* Checks that the shards of a rounded parameter have the blocks of the whole, and finds the ends of its parts in this
 * rank's rows. */
static tx_status divide_rounding(tx_param_record *r)
{
    const tx_rounding *all = &r->whole.rounding;
    const tx_shape *shape = &r->whole.shape;
    const int32_t along = shape->rank - (all->columns ? 2 : 1); /* the dimension of blocks */
    tx_rounding *own = &r->spec.rounding;
    int64_t end = 0;
    *own = (tx_rounding){.columns = all->columns};
    for (int32_t i = 0; i < all->parts; i++) {
        const int64_t values = tx_block_unit(all->part[i].type), before = end;
        if (cuts_blocks(r, along, values * (all->columns ? tx_shape_last(shape) : 1)))
            return tx_fail(TX_UNSUPPORTED,
                           "parameter %s: %" PRId32 " ranks cannot divide its %" PRId64
                           " inputs into blocks of %" PRId64 ": use fewer ranks, or a type with smaller blocks",
                           r->name, r->division.parts, shape->dim[along], values);
        end = tx_own_before(r, all->part[i].end * tx_shape_last(shape)) / tx_shape_last(&r->spec.shape);
        if (end == before)
            continue; /* this rank has no rows of the part */
        own->part[own->parts] = all->part[i];
        own->part[own->parts++].end = end;
    }
    return TX_OK;
}

/* A tied parameter is on the first and the last stage. */
tx_status tx_parallel_divide(const tx_model *model, tx_param_record *record)
{
    const tx_param_spec *whole = &record->whole;
    record->experts = experts_of(model, whole);
    record->division = division_of(model, whole);
    TX_TRY(tx_own_check(record));
    tx_own_divide(record);
    TX_TRY(check_units(record));
    TX_TRY(divide_rounding(record));
    record->absent = !tx_model_has_stage(model, tx_model_stage_of(model, whole->block)) &&
                     !(whole->tied && tx_model_has_stage(model, model->mesh.stages - 1));
    return TX_OK;
}
