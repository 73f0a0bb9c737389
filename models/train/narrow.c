/* SPDX-License-Identifier: Apache-2.0 */
#include "models/train/narrow.h"

#include <string.h>

/* Turns the places of `rows` rows of values into those in the plan (tx_places). */
static void find_places(const tx_narrowing *n, const tx_field *field, int64_t rows, int64_t width, int32_t *values)
{
    const tx_field *ids = tx_task_ids(n->task);
    const int64_t group = ids->group > 1 ? ids->group : 1;
    const int64_t positions = field->places == TX_PLACES_OF_TOKENS ? tx_field_values(ids, n->positions) : n->positions;
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = i / width, first = row - row % group;
        if (values[i] >= 0)
            values[i] = (int32_t)((first + values[i] % group) * positions + values[i] / group);
    }
}

const void *tx_narrow_rows(const tx_narrowing *n, int32_t field, const tx_shape *shape, const void *values)
{
    const tx_field *f = &n->task->fields[field];
    if (f->width != TX_FIELD_BLOCK && !f->target && !f->of_block)
        return values;
    const int64_t block = tx_field_shape(f, 1, n->block).dim[1], length = shape->dim[1], half = length / 2;
    const int64_t first = n->chunk * half, second = (2 * n->chunks - 1 - n->chunk) * half;
    if (length == block && !f->places)
        return values;
    for (int64_t r = 0; r < shape->dim[0]; r++) {
        const int32_t *row = (const int32_t *)values + r * block;
        memcpy(n->room + r * length, row + first, (size_t)half * sizeof *row);
        memcpy(n->room + r * length + half, row + second, (size_t)(length - half) * sizeof *row);
    }
    if (f->places)
        find_places(n, f, shape->dim[0], length, n->room);
    return n->room;
}
