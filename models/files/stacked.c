/* SPDX-License-Identifier: Apache-2.0
 * Divides tensors with the matrices of all experts for reading, and joins the pieces of experts for saving. */
#include "models/files/stacked.h"

#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST ".mlp.experts.0."
#define GATE_UP ".mlp.experts.gate_up_proj"
#define DOWN ".mlp.experts.down_proj"
enum {
    BLOCK = 32,         /* rows and columns that are transposed at once */
    EXPERTS_MOST = 4096 /* as in configurations */
};

void tx_stacked_transpose(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; i += BLOCK)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = i; r < rows && r < i + BLOCK; r++)
                to[c * rows + r] = from[r * columns + c];
}

/* Whether the files have transposes: [E, C, 2 F] and [E, F, C] instead of [E, 2 F, C] and [E, C, F]. NULL is a tensor
 * that they lack. */
static bool are_turned(const tx_st_tensor *gate_up, const tx_st_tensor *down)
{
    return gate_up && down && gate_up->rank == 3 && down->rank == 3 && gate_up->dim[2] == 2 * down->dim[1] &&
           gate_up->dim[1] == down->dim[2];
}

/* The number of adjacent pieces of the parameter of the first one. */
static int32_t run_of(const tx_weights_piece *pieces, int32_t count)
{
    int32_t run = 1;
    while (run < count && pieces[run].param == pieces[0].param)
        run++;
    return run;
}

/* Joins a run of pieces of experts, all of which have as many: gate and up, or down. Returns false for other pieces. */
static bool join(const tx_weights_piece *pieces, int32_t run, tx_weights_piece *joined)
{
    const char *number = strstr(pieces[0].name, FIRST);
    if (!number || pieces[0].shape.rank != 2)
        return false;
    const bool down = strncmp(number + strlen(FIRST), "down_proj", 9) == 0;
    const int64_t columns = pieces[0].shape.dim[1], experts = down ? run : run / 2;
    *joined = pieces[0];
    joined->shape = TX_SHAPE(experts, (down ? 1 : 2) * pieces[0].shape.dim[0], columns);
    snprintf(joined->name + (number - pieces[0].name), sizeof joined->name - (size_t)(number - pieces[0].name), "%s",
             down ? DOWN : GATE_UP);
    return true;
}

/* Gives a joined piece the shape of its tensor if the matrices are transposed, which tensors of both kinds tell. */
static void turn(tx_weights_piece *piece, tx_stacked_find *find, const void *context)
{
    char name[TX_WEIGHTS_NAME];
    const int layer = (int)(strstr(piece->name, ".mlp.experts.") - piece->name);
    snprintf(name, sizeof name, "%.*s" GATE_UP, layer, piece->name);
    const tx_st_tensor *gate_up = find(context, name);
    snprintf(name, sizeof name, "%.*s" DOWN, layer, piece->name);
    piece->turned = are_turned(gate_up, find(context, name));
    if (piece->turned)
        piece->shape = TX_SHAPE(piece->shape.dim[0], piece->shape.dim[2], piece->shape.dim[1]);
}

void tx_stacked_join(tx_weights_piece *pieces, int32_t *count, tx_stacked_find *find, const void *context)
{
    int32_t kept = 0;
    bool stacked = true;
    for (int32_t i = 0, run; i < *count; i += run) {
        tx_weights_piece joined;
        run = run_of(pieces + i, *count - i);
        const bool experts = stacked && join(pieces + i, run, &joined);
        const tx_st_tensor *t = experts ? find(context, joined.name) : NULL;
        stacked = stacked && (!experts || t); /* a file without the first such tensor has none */
        if (t) {
            turn(&joined, find, context);
            pieces[kept++] = joined;
            continue;
        }
        memmove(pieces + kept, pieces + i, (size_t)run * sizeof *pieces);
        kept += run;
    }
    *count = kept;
}

/* ---- Reading ------------------------------------------------------------------------------------------- */

/* A tensor of the view: elements of a tensor of the files from `first` on, as if that were not transposed. */
typedef struct part {
    int32_t index;
    int64_t first;
    bool turned;
} part;

typedef struct view {
    tx_weights *weights;
    int32_t count;
    tx_st_tensor *tensor;
    char (*name)[TX_WEIGHTS_NAME];
    tx_dtype *stored;
    part *part;
    /* A transposed matrix of a tensor, and the files' order of its elements. */
    float *matrix, *raw;
    int32_t index; /* of that tensor, or -1 */
    int64_t expert;
} view;

static void close_view(void *context)
{
    view *v = context;
    tx_weights_close(v->weights);
    free(v->tensor);
    free(v->name);
    free(v->stored);
    free(v->part);
    free(v->matrix);
    free(v->raw);
    free(v);
}

/* Reads the matrix of an expert, and transposes it. */
static tx_status read_matrix(view *v, int32_t index, int64_t expert)
{
    const tx_st_tensor *t = tx_weights_tensor_at(v->weights, index);
    const int64_t count = t->dim[1] * t->dim[2];
    if (v->index == index && v->expert == expert)
        return TX_OK;
    float *matrix = realloc(v->matrix, (size_t)count * sizeof *matrix);
    v->matrix = matrix ? matrix : v->matrix;
    float *raw = realloc(v->raw, (size_t)count * sizeof *raw);
    v->raw = raw ? raw : v->raw;
    v->index = -1;
    if (!matrix || !raw)
        return tx_fail(TX_MEMORY, "%s: no memory for a matrix", tx_weights_path(v->weights));
    TX_TRY(tx_weights_read_f32(v->weights, index, expert * count, count, raw));
    tx_stacked_transpose(raw, t->dim[1], t->dim[2], matrix);
    v->index = index;
    v->expert = expert;
    return TX_OK;
}

static tx_status read_view(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    view *v = context;
    const part *p = &v->part[index];
    const tx_st_tensor *t = tx_weights_tensor_at(v->weights, p->index);
    if (!p->turned)
        return tx_weights_read_f32(v->weights, p->index, p->first + first, count, data);
    const int64_t each = t->dim[1] * t->dim[2];
    TX_TRY(read_matrix(v, p->index, p->first / each));
    memcpy(data, v->matrix + p->first % each + first, (size_t)count * sizeof *data);
    return TX_OK;
}

static tx_status read_stored(void *context, int32_t index, int64_t first, int64_t count, void *data)
{
    const view *v = context;
    const part *p = &v->part[index];
    return tx_weights_read_stored(v->weights, p->index, p->first + first, count, data);
}

/* Adds a tensor of the files, or its part from element `first` on, whose shape the caller sets. */
static tx_st_tensor *add_tensor(view *v, int32_t index, int64_t first, bool turned)
{
    const int32_t i = v->count++;
    v->part[i] = (part){index, first, turned};
    v->stored[i] = turned ? TX_DTYPE_COUNT : tx_weights_stored(v->weights, index, false);
    v->tensor[i] = *tx_weights_tensor_at(v->weights, index);
    return &v->tensor[i];
}

/* Adds the matrices of all experts of a tensor. */
static void add_experts(view *v, int32_t index, const char *suffix, bool turned)
{
    static const char *const words[] = {"gate_proj", "up_proj", "down_proj"};
    const tx_st_tensor *t = tx_weights_tensor_at(v->weights, index);
    const bool down = strcmp(suffix, DOWN) == 0;
    const int64_t parts = down ? 1 : 2, rows = t->dim[turned ? 2 : 1] / parts, columns = t->dim[turned ? 1 : 2];
    for (int64_t i = 0; i < t->dim[0] * parts; i++) {
        char *name = v->name[v->count];
        tx_st_tensor *one = add_tensor(v, index, i * rows * columns, turned);
        snprintf(name, TX_WEIGHTS_NAME, "%.*s.mlp.experts.%" PRId64 ".%s.weight",
                 (int)(strlen(t->name) - strlen(suffix)), t->name, i / parts, words[down ? 2 : i % 2]);
        one->name = name;
        one->rank = 2;
        one->dim[0] = rows;
        one->dim[1] = columns;
    }
}

/* The end of the name of a tensor of experts, or NULL for another tensor. */
static const char *suffix_of(const tx_st_tensor *t)
{
    const char *suffix = tx_ends_with(t->name, GATE_UP) ? GATE_UP : tx_ends_with(t->name, DOWN) ? DOWN : NULL;
    return t->rank == 3 && t->dim[0] <= EXPERTS_MOST ? suffix : NULL;
}

static bool has_turned(const tx_weights *w, const tx_st_tensor *gate_up)
{
    char name[TX_WEIGHTS_NAME];
    snprintf(name, sizeof name, "%.*s" DOWN, (int)(strlen(gate_up->name) - strlen(GATE_UP)), gate_up->name);
    const int32_t down = tx_weights_find(w, NULL, name);
    return are_turned(gate_up, down < 0 ? NULL : tx_weights_tensor_at(w, down));
}

static void fill_view(view *v)
{
    bool turned = false;
    for (int32_t i = 0; i < tx_weights_count(v->weights); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(v->weights, i);
        const char *suffix = suffix_of(t);
        if (suffix && strcmp(suffix, GATE_UP) == 0 && has_turned(v->weights, t))
            turned = true;
    }
    for (int32_t i = 0; i < tx_weights_count(v->weights); i++) {
        const char *suffix = suffix_of(tx_weights_tensor_at(v->weights, i));
        if (suffix)
            add_experts(v, i, suffix, turned);
        else
            add_tensor(v, i, 0, false);
    }
}

tx_status tx_stacked_open(tx_weights **weights)
{
    int64_t count = 0, matrices = 0;
    for (int32_t i = 0; i < tx_weights_count(*weights); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(*weights, i);
        const int64_t of_experts = suffix_of(t) ? 2 * t->dim[0] : 0;
        matrices += of_experts;
        count += of_experts ? of_experts : 1;
    }
    if (!matrices)
        return TX_OK;
    view *v = calloc(1, sizeof *v);
    if (v) {
        *v = (view){.weights = *weights, .index = -1};
        v->tensor = calloc((size_t)count, sizeof *v->tensor);
        v->name = calloc((size_t)count, sizeof *v->name);
        v->stored = calloc((size_t)count, sizeof *v->stored);
        v->part = calloc((size_t)count, sizeof *v->part);
    }
    if (!v || !v->tensor || !v->name || !v->stored || !v->part) {
        if (v)
            close_view(v);
        else
            tx_weights_close(*weights);
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    }
    fill_view(v);
    const tx_weights_source source = {v->count, v->tensor, read_view, v->stored, NULL, read_stored, close_view, v};
    return tx_weights_of_source(tx_weights_path(v->weights), &source, weights);
}
