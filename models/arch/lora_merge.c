/* SPDX-License-Identifier: Apache-2.0
 * An adapter added to the weights of the model that it is of. */
#include "models/arch/lora.h"

#include "models/files/folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct merge {
    tx_model *model;
    const tx_config *config;
    const tx_lora *lora;
    tx_weights *weights;
    int32_t used;  /* tensors of the file */
    float *buffer; /* TX_WEIGHTS_CHUNK */
} merge;

/* Finds a tensor by its name behind the prefix, and holds it against its shape. */
static tx_status find(merge *m, const char *name, const tx_shape *shape, int32_t *index)
{
    char wanted[TX_WEIGHTS_NAME + sizeof TX_LORA_PREFIX], here[96], there[96];
    snprintf(wanted, sizeof wanted, TX_LORA_PREFIX "%s", name);
    for (int32_t i = 0; i < tx_weights_count(m->weights); i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(m->weights, i);
        const tx_shape found = tx_st_shape(t);
        if (strcmp(t->name, wanted) != 0)
            continue;
        if (t->rank > TX_MAX_RANK || !tx_shape_equal(&found, shape))
            return tx_fail(TX_FORMAT, "%s: %s is %s, should be %s: is the adapter of another model?",
                           tx_weights_path(m->weights), wanted, tx_shape_text(&found, there, sizeof there),
                           tx_shape_text(shape, here, sizeof here));
        *index = i;
        m->used++;
        return TX_OK;
    }
    return tx_fail(TX_FORMAT, "%s: has no tensor %s", tx_weights_path(m->weights), wanted);
}

/* Reads a whole tensor; the caller frees. */
static tx_status read_whole(merge *m, const char *module, const char *part, tx_shape shape, float **data)
{
    char name[TX_WEIGHTS_NAME];
    int32_t index;
    snprintf(name, sizeof name, "%.230s.%s", module, part);
    TX_TRY(find(m, name, &shape, &index));
    const int64_t count = tx_shape_count(&shape);
    *data = malloc((size_t)count * sizeof **data);
    return *data ? tx_weights_read_f32(m->weights, index, 0, count, *data)
                 : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(m->weights));
}

/* Rows first .. first + rows - 1 of `weight`, `columns` wide, += scale times left^T right, where left [rank, all rows]
 * has its rank elements of row i at left[i * row_step + k * rank_step], and right alike for columns. */
typedef struct factors {
    const float *left, *right;
    int64_t row_step, left_step, column_step, right_step, rank;
    float scale;
} factors;

static void add_rows(const factors *f, float *weight, int64_t first, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < f->rank; k++)
                sum += f->left[(first + i) * f->row_step + k * f->left_step] *
                       f->right[c * f->column_step + k * f->right_step];
            weight[i * columns + c] += f->scale * sum;
        }
}

/* Adds to the rows of a parameter from element `first` on. */
static tx_status add_product(merge *m, const factors *f, int32_t param, int64_t first, int64_t rows, int64_t columns)
{
    const int64_t most = TX_WEIGHTS_CHUNK / columns;
    if (most < 1)
        return tx_fail(TX_UNSUPPORTED, "rows of %" PRId64 " weights are too long to be merged", columns);
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most, at = first + row * columns;
        TX_TRY(tx_model_read_range(m->model, TX_PART_WEIGHT, param, at, now * columns, m->buffer));
        add_rows(f, m->buffer, row, now, columns);
        TX_TRY(tx_model_write_range(m->model, TX_PART_WEIGHT, param, at, now * columns, m->buffer));
    }
    return TX_OK;
}

/* Weights of each output, o, times factor[o]. */
static tx_status scale_outputs(merge *m, const tx_weights_piece *piece, const double *factor)
{
    const bool inputs_first = m->config->architecture->inputs_first;
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1], most = TX_WEIGHTS_CHUNK / columns;
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most, at = piece->first + row * columns;
        TX_TRY(tx_model_read_range(m->model, TX_PART_WEIGHT, piece->param, at, now * columns, m->buffer));
        for (int64_t i = 0; i < now * columns; i++)
            m->buffer[i] = (float)((double)m->buffer[i] * factor[inputs_first ? i % columns : row + i / columns]);
        TX_TRY(tx_model_write_range(m->model, TX_PART_WEIGHT, piece->param, at, now * columns, m->buffer));
    }
    return TX_OK;
}

/* Gives the outputs of a module their magnitudes, of which B A has been added. */
static tx_status set_magnitudes(merge *m, const char *module, const tx_weights_piece *piece, int64_t out)
{
    float *magnitude = NULL;
    double *factor = calloc((size_t)out, sizeof *factor);
    tx_status status = factor ? read_whole(m, module, TX_LORA_MAGNITUDE, TX_SHAPE(out), &magnitude)
                              : tx_fail(TX_MEMORY, "%s: no memory for its magnitudes", module);
    TX_THEN(status, tx_lora_squares(m->model, piece, m->config->architecture->inputs_first, factor));
    for (int64_t o = 0; o < out && !status; o++)
        factor[o] = (double)magnitude[o] / sqrt(factor[o]);
    TX_THEN(status, scale_outputs(m, piece, factor));
    free(magnitude);
    free(factor);
    return status;
}

/* One module, whose weight is `piece` of the parameter. */
static tx_status merge_module(merge *m, const char *module, int32_t param, const tx_weights_piece *piece)
{
    const bool inputs_first = m->config->architecture->inputs_first;
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1], rank = m->lora->rank;
    const int64_t in = inputs_first ? rows : columns, out = inputs_first ? columns : rows;
    float *a = NULL, *b = NULL;
    tx_status status = read_whole(m, module, "lora_A.weight", TX_SHAPE(rank, in), &a);
    TX_THEN(status, read_whole(m, module, "lora_B.weight", TX_SHAPE(out, rank), &b));
    if (!status) {
        /* A is read along its columns, B along its rows. */
        const factors of_outputs = {b, a, rank, 1, 1, in, rank, (float)tx_lora_scale(m->lora)};
        const factors of_inputs = {a, b, 1, in, rank, 1, rank, (float)tx_lora_scale(m->lora)};
        status = add_product(m, inputs_first ? &of_inputs : &of_outputs, param, piece->first, rows, columns);
    }
    free(a);
    free(b);
    return status || !m->lora->dora ? status : set_magnitudes(m, module, piece, out);
}

/* Takes a piece of a module to save over. */
static tx_status replace(merge *m, const tx_weights_piece *piece, int32_t param)
{
    int32_t index;
    TX_TRY(find(m, piece->name, &piece->shape, &index));
    const int64_t count = tx_shape_count(&piece->shape);
    for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_f32(m->weights, index, at, now, m->buffer));
        TX_TRY(tx_model_write_range(m->model, TX_PART_WEIGHT, param, piece->first + at, now, m->buffer));
    }
    return TX_OK;
}

static tx_status merge_param(merge *m, int32_t index)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules modules;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    int32_t param;
    TX_TRY(tx_arch_param(m->config, index, name, &spec));
    TX_TRY(tx_lora_modules_of(m->lora, m->config, index, &modules));
    TX_TRY(tx_model_find(m->model, name, &param));
    const int32_t pieces = tx_weights_pieces(name, &spec, param, TX_MAX_SECTIONS, piece);
    for (int32_t i = 0; i < modules.count; i++)
        TX_TRY(merge_module(m, modules.name[i], param, &piece[modules.section[i]]));
    for (int32_t i = 0; i < pieces && tx_lora_saves(m->lora, name); i++)
        TX_TRY(replace(m, &piece[i], param));
    return TX_OK;
}

static tx_status merge_all(merge *m)
{
    for (int32_t i = 0; i < tx_arch_params(m->config); i++)
        TX_TRY(merge_param(m, i));
    if (m->used != tx_weights_count(m->weights))
        return tx_fail(TX_FORMAT, "%s: holds %" PRId32 " tensors, of which its configuration asks for %" PRId32,
                       tx_weights_path(m->weights), tx_weights_count(m->weights), m->used);
    return TX_OK;
}

tx_status tx_lora_merge(tx_model *model, const tx_config *config, const tx_lora *lora, const char *folder)
{
    merge m = {.model = model, .config = config, .lora = lora};
    TX_TRY(tx_lora_check(lora, config));
    TX_TRY(tx_weights_open(TX_PATH(folder, TX_LORA_WEIGHTS), &m.weights));
    m.buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *m.buffer);
    tx_status status = m.buffer ? merge_all(&m) : tx_fail(TX_MEMORY, "%s: no memory to merge it", folder);
    free(m.buffer);
    tx_weights_close(m.weights);
    return status;
}
