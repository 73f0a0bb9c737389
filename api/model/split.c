/* SPDX-License-Identifier: Apache-2.0
 * Which elements of a parameter a rank of a tensor group or an expert group has. */
#include "api/model/split.h"

#include <string.h>

tx_param_split tx_param_split_of(const tx_param_spec *whole, int32_t dimension, int32_t part, int32_t parts)
{
    const tx_param_sections *s = &whole->sections;
    const bool parted = s->count > 0 && s->dimension == dimension;
    int64_t inner = 1, before = 0;
    for (int32_t i = dimension + 1; i < whole->logical.rank; i++)
        inner *= whole->logical.dim[i];
    tx_param_split split = {.row = whole->logical.dim[dimension] * inner,
                            .runs = parted ? s->count : 1,
                            .end = tx_shape_count(&whole->logical)};
    for (int32_t i = 0; i < split.runs; i++) {
        const int64_t size = parted ? s->size[i] : whole->logical.dim[dimension];
        const int32_t replicas = parted ? tx_part_replicas(s, i, parts) : 1;
        int64_t first;
        split.replicas[i] = replicas;
        split.replica[i] = part % replicas;
        split.count[i] = tx_part_of(size, part / replicas, parts / replicas, &first) * inner;
        split.first[i] = before + first * inner;
        before += size * inner;
    }
    return split;
}

tx_param_split tx_param_own(const tx_param_record *param)
{
    const tx_division *d = &param->division, *e = &param->experts;
    tx_param_split split = tx_param_split_of(&param->whole, d->dimension, d->part, d->parts);
    const int64_t share = split.end / e->parts;
    split.begin = e->part * share;
    split.end = split.begin + share;
    return split;
}

/* How many of those before number `end` are in the rank's runs, of whichever expert. */
static int64_t in_runs(const tx_param_split *split, int64_t end)
{
    const int64_t rows = end / split->row, rest = end % split->row;
    int64_t own = 0;
    for (int32_t i = 0; i < split->runs; i++) {
        const int64_t past = rest - split->first[i];
        own += rows * split->count[i] + (past < 0 ? 0 : past < split->count[i] ? past : split->count[i]);
    }
    return own;
}

int64_t tx_param_split_before(const tx_param_split *split, int64_t end)
{
    const int64_t last = end < split->end ? end : split->end;
    return last <= split->begin ? 0 : in_runs(split, last) - in_runs(split, split->begin);
}

/* The rank's next run among elements at .. end - 1 of the whole: which, where it begins, and how many these are; 0:
 * there is none. */
static int64_t next_run(const tx_param_split *split, int64_t at, int64_t end, int32_t *run, int64_t *begin)
{
    at = at > split->begin ? at : split->begin;
    end = end < split->end ? end : split->end;
    int64_t row = at / split->row * split->row;
    *run = 0;
    while (*run < split->runs && at >= row + split->first[*run] + split->count[*run])
        ++*run;
    if (*run == split->runs) {
        row += split->row;
        *run = 0;
    }
    const int64_t first = row + split->first[*run], last = first + split->count[*run];
    *begin = at > first ? at : first;
    return end <= *begin ? 0 : (last < end ? last : end) - *begin;
}

void tx_param_split_take(const tx_param_split *split, int64_t first, int64_t count, const float *whole, float *own)
{
    int64_t begin, length;
    int32_t run;
    for (int64_t at = first; (length = next_run(split, at, first + count, &run, &begin)) > 0; at = begin + length) {
        memcpy(own, whole + (begin - first), (size_t)length * sizeof *own);
        own += length;
    }
}

void tx_param_split_put(const tx_param_split *split, int64_t first, int64_t count, const float *own, float *whole)
{
    int64_t begin, length;
    int32_t run;
    for (int64_t at = first; (length = next_run(split, at, first + count, &run, &begin)) > 0; at = begin + length) {
        if (split->replica[run] == 0)
            memcpy(whole + (begin - first), own, (size_t)length * sizeof *own);
        own += length;
    }
}

/* Replicas are of sections of the first dimension, each of which is one run. */
bool tx_param_stretch_at(const tx_param_record *param, int32_t *run, tx_param_stretch *stretch)
{
    const tx_param_split split = tx_param_own(param);
    bool replicated = false;
    for (int32_t i = 0; i < split.runs; i++)
        replicated = replicated || split.replicas[i] > 1;
    if (*run >= split.runs)
        return false;
    *stretch = (tx_param_stretch){0, tx_shape_count(&param->spec.shape), 1, 0};
    if (!replicated) {
        *run = split.runs;
        return true;
    }
    *stretch = (tx_param_stretch){.replicas = split.replicas[*run], .replica = split.replica[*run]};
    for (int32_t i = 0; i < *run; i++)
        stretch->first += split.count[i];
    while (*run < split.runs && split.replicas[*run] == stretch->replicas)
        stretch->count += split.count[(*run)++];
    return true;
}
