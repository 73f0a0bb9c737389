/* SPDX-License-Identifier: Apache-2.0
 * Which elements of a parameter a rank of a tensor group or an expert group has. */
#include "api/plan/split.h"

#include "api/model/model.h"

#include <string.h>

tx_param_split tx_param_split_of(const tx_param_spec *whole, int32_t dimension, int32_t part, int32_t parts)
{
    const tx_param_sections *s = &whole->sections;
    const bool parted = s->count > 0 && s->dimension == dimension;
    int64_t inner = 1, before = 0;
    for (int32_t i = dimension + 1; i < whole->logical.rank; i++)
        inner *= whole->logical.dim[i];
    tx_param_split split = {.row = whole->logical.dim[dimension] * inner, .runs = parted ? s->count : 1};
    for (int32_t i = 0; i < split.runs; i++) {
        const int64_t size = parted ? s->size[i] : whole->logical.dim[dimension];
        int64_t first;
        split.count[i] = tx_part_of(size, part, parts, &first) * inner;
        split.first[i] = before + first * inner;
        before += size * inner;
    }
    return split;
}

int64_t tx_param_split_before(const tx_param_split *split, int64_t end)
{
    const int64_t rows = end / split->row, rest = end % split->row;
    int64_t own = 0;
    for (int32_t i = 0; i < split->runs; i++) {
        const int64_t past = rest - split->first[i];
        own += rows * split->count[i] + (past < 0 ? 0 : past < split->count[i] ? past : split->count[i]);
    }
    return own;
}

/* The rank's next run among elements at .. end - 1 of the whole: where it begins, and how many these are; 0: there is
 * none. */
static int64_t next_run(const tx_param_split *split, int64_t at, int64_t end, int64_t *begin)
{
    int64_t row = at / split->row * split->row;
    int32_t i = 0;
    while (i < split->runs && at >= row + split->first[i] + split->count[i])
        i++;
    if (i == split->runs) {
        row += split->row;
        i = 0;
    }
    const int64_t first = row + split->first[i], last = first + split->count[i];
    *begin = at > first ? at : first;
    return end <= *begin ? 0 : (last < end ? last : end) - *begin;
}

void tx_param_split_take(const tx_param_split *split, int64_t first, int64_t count, const float *whole, float *own)
{
    int64_t begin, length;
    for (int64_t at = first; (length = next_run(split, at, first + count, &begin)) > 0; at = begin + length) {
        memcpy(own, whole + (begin - first), (size_t)length * sizeof *own);
        own += length;
    }
}

void tx_param_split_put(const tx_param_split *split, int64_t first, int64_t count, const float *own, float *whole)
{
    int64_t begin, length;
    for (int64_t at = first; (length = next_run(split, at, first + count, &begin)) > 0; at = begin + length) {
        memcpy(whole + (begin - first), own, (size_t)length * sizeof *own);
        own += length;
    }
}
