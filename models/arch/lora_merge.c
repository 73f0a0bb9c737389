/* SPDX-License-Identifier: Apache-2.0
 * Merges an adapter into the weights of its base model. */
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
    tx_weights *weights, *base; /* files of the adapter and of the model */
    float *buffer;              /* TX_WEIGHTS_CHUNK */
} merge;

/* ---- Files ------------------------------------------------------------------------------------------------- */

/* Appends the adapter's tensors for parameter `index`. With NULL as `piece` it only counts them. */
static tx_status list_param(const tx_lora *lora, const tx_config *config, int32_t index, tx_weights_piece *piece,
                            int32_t *count)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules modules;
    tx_weights_piece own[TX_MAX_SECTIONS];
    TX_TRY(tx_arch_param(config, index, name, &spec));
    TX_TRY(tx_lora_modules_of(lora, config, index, &modules));
    const int32_t pieces = tx_weights_pieces(name, &spec, index, TX_MAX_SECTIONS, own);
    const bool inputs_first = config->architecture->inputs_first;
    for (int32_t i = 0; i < modules.count; i++) {
        const tx_shape *weight = &own[modules.section[i]].shape;
        const int64_t in = weight->dim[inputs_first ? 0 : 1], out = weight->dim[inputs_first ? 1 : 0];
        const struct {
            const char *name;
            tx_shape shape;
        } parts[] = {{"lora_A.weight", TX_SHAPE(lora->rank, in)},
                     {"lora_B.weight", TX_SHAPE(out, lora->rank)},
                     {TX_LORA_MAGNITUDE, TX_SHAPE(out)}};
        for (int p = 0; p < (lora->dora ? 3 : 2); p++, ++*count)
            if (piece) {
                piece[*count] = (tx_weights_piece){.shape = parts[p].shape, .param = index};
                snprintf(piece[*count].name, TX_WEIGHTS_NAME, "%.230s.%s", modules.name[i], parts[p].name);
            }
    }
    for (int32_t i = 0; i < pieces && tx_lora_saves(lora, name); i++, ++*count)
        if (piece)
            piece[*count] = own[i];
    return TX_OK;
}

static tx_status list_all(const tx_lora *lora, const tx_config *config, tx_weights_piece *piece, int32_t *count)
{
    *count = 0;
    for (int32_t i = 0; i < tx_arch_params(config); i++)
        TX_TRY(list_param(lora, config, i, piece, count));
    return TX_OK;
}

tx_status tx_lora_check_files(const tx_lora *lora, const tx_config *config, const char *folder)
{
    const tx_weights_names names = {.rename = tx_lora_rename, .context = lora};
    tx_weights *weights = NULL;
    tx_weights_piece *piece = NULL;
    int32_t count;
    TX_TRY(tx_fail_in(tx_lora_check(lora, config), "%s", folder));
    TX_TRY(list_all(lora, config, NULL, &count));
    TX_TRY(tx_weights_open(TX_PATH(folder, TX_LORA_WEIGHTS), &weights));
    tx_status status = (piece = malloc(((size_t)count + 1) * sizeof *piece))
                           ? list_all(lora, config, piece, &count)
                           : tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", folder);
    TX_THEN(status, tx_weights_check(weights, piece, count, &names));
    free(piece);
    tx_weights_close(weights);
    return status;
}

/* Finds a tensor of this shape in a file of the adapter or of the model. */
static tx_status find(const tx_weights *weights, const tx_weights_names *names, const char *name, const tx_shape *shape,
                      int32_t *index)
{
    *index = tx_weights_find(weights, names, name);
    const tx_st_tensor *t = *index < 0 ? NULL : tx_weights_tensor_at(weights, *index);
    const tx_shape found = t ? tx_st_shape(t) : (tx_shape){0};
    return t && t->rank <= TX_MAX_RANK && tx_shape_equal(&found, shape)
               ? TX_OK
               : tx_fail(TX_FORMAT, "%s: has no tensor %s of the model's shape", tx_weights_path(weights), name);
}

static tx_status find_own(const merge *m, const char *name, const tx_shape *shape, int32_t *index)
{
    return find(m->weights, &(tx_weights_names){.rename = tx_lora_rename}, name, shape, index);
}

/* Reads a tensor; the caller frees. */
static tx_status read_whole(merge *m, const char *module, const char *part, tx_shape shape, float **data)
{
    char name[TX_WEIGHTS_NAME];
    int32_t index;
    snprintf(name, sizeof name, "%.230s.%s", module, part);
    TX_TRY(find_own(m, name, &shape, &index));
    const int64_t count = tx_shape_count(&shape);
    *data = malloc((size_t)count * sizeof **data);
    return *data ? tx_weights_read_f32(m->weights, index, 0, count, *data)
                 : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(m->weights));
}

/* ---- W + scale B A ------------------------------------------------------------------------------------------ */

/* The operands of weight += scale * left^T right. Element k of row i is left[i * row_step + k * left_step], element k
 * of column c is right[c * column_step + k * right_step]. */
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

/* A consumer of `rows` rows of W + scale B A, from row `first` on; they are in m->buffer. */
typedef tx_status use_rows(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows);

/* Computes W + scale B A in fp32, in chunks of rows, and passes each chunk to `use`. */
static tx_status for_each_chunk(merge *m, const factors *f, const tx_weights_piece *piece, double *outputs,
                                use_rows *use)
{
    const tx_weights_names names = tx_arch_names(m->config);
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1], most = TX_WEIGHTS_CHUNK / columns;
    int32_t index;
    if (most < 1)
        return tx_fail(TX_UNSUPPORTED, "rows of %" PRId64 " weights are too long to be merged", columns);
    TX_TRY(find(m->base, &names, piece->name, &piece->shape, &index));
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most;
        TX_TRY(tx_weights_read_f32(m->base, index, row * columns, now * columns, m->buffer));
        add_rows(f, m->buffer, row, now, columns);
        TX_TRY(use(m, piece, outputs, row, now));
    }
    return TX_OK;
}

/* Adds the squares of the weights of output o to outputs[o]. */
static tx_status add_squares(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows)
{
    const int64_t columns = piece->shape.dim[1];
    for (int64_t i = 0; i < rows * columns; i++)
        outputs[m->config->architecture->inputs_first ? i % columns : first + i / columns] +=
            (double)m->buffer[i] * (double)m->buffer[i];
    return TX_OK;
}

/* Writes the rows. With `outputs`, it scales the weights of output o by outputs[o]. */
static tx_status write_rows(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows)
{
    const int64_t columns = piece->shape.dim[1];
    const float limit = tx_weights_limit(m->model, piece->param);
    for (int64_t i = 0; i < rows * columns; i++) {
        if (outputs)
            m->buffer[i] = (float)((double)m->buffer[i] *
                                   outputs[m->config->architecture->inputs_first ? i % columns : first + i / columns]);
        if (!(fabsf(m->buffer[i]) < limit))
            return tx_fail(TX_FORMAT, "%s: with the adapter, %s holds %g%s", tx_weights_path(m->weights), piece->name,
                           (double)m->buffer[i],
                           isfinite(m->buffer[i]) ? ", too large for float16: use bfloat16 or float32" : "");
    }
    return tx_model_write_range(m->model, TX_PARAM_WEIGHT, piece->param, piece->first + first * columns, rows * columns,
                                m->buffer);
}

/* DoRA: scales each output of W + scale B A to the norm given by its magnitude. */
static tx_status merge_magnitudes(merge *m, const factors *f, const char *module, const tx_weights_piece *piece,
                                  int64_t out)
{
    float *magnitude = NULL;
    double *factor = calloc((size_t)out, sizeof *factor);
    tx_status status = factor ? read_whole(m, module, TX_LORA_MAGNITUDE, TX_SHAPE(out), &magnitude)
                              : tx_fail(TX_MEMORY, "%s: no memory for its magnitudes", module);
    TX_THEN(status, for_each_chunk(m, f, piece, factor, add_squares));
    for (int64_t o = 0; o < out && !status; o++)
        factor[o] = (double)magnitude[o] / sqrt(factor[o]);
    TX_THEN(status, for_each_chunk(m, f, piece, factor, write_rows));
    free(magnitude);
    free(factor);
    return status;
}

/* Merges one module, whose weight is `piece` of a parameter. */
static tx_status merge_module(merge *m, const char *module, const tx_weights_piece *piece)
{
    const bool inputs_first = m->config->architecture->inputs_first;
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1], rank = m->lora->rank;
    const int64_t in = inputs_first ? rows : columns, out = inputs_first ? columns : rows;
    float *a = NULL, *b = NULL;
    tx_status status = read_whole(m, module, "lora_A.weight", TX_SHAPE(rank, in), &a);
    TX_THEN(status, read_whole(m, module, "lora_B.weight", TX_SHAPE(out, rank), &b));
    /* Choose strides so that W is [out, in] or [in, out]. */
    const factors of_outputs = {b, a, rank, 1, 1, in, rank, (float)tx_lora_scale(m->lora)};
    const factors of_inputs = {a, b, 1, in, rank, 1, rank, (float)tx_lora_scale(m->lora)};
    const factors *f = inputs_first ? &of_inputs : &of_outputs;
    TX_THEN(status,
            m->lora->dora ? merge_magnitudes(m, f, module, piece, out) : for_each_chunk(m, f, piece, NULL, write_rows));
    free(a);
    free(b);
    return status;
}

/* Copies a piece of a module to save. */
static tx_status replace(merge *m, const tx_weights_piece *piece, int32_t param)
{
    int32_t index;
    TX_TRY(find_own(m, piece->name, &piece->shape, &index));
    const int64_t count = tx_shape_count(&piece->shape);
    for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_f32(m->weights, index, at, now, m->buffer));
        TX_TRY(tx_model_write_range(m->model, TX_PARAM_WEIGHT, param, piece->first + at, now, m->buffer));
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
        TX_TRY(merge_module(m, modules.name[i], &piece[modules.section[i]]));
    for (int32_t i = 0; i < pieces && tx_lora_saves(m->lora, name); i++)
        TX_TRY(replace(m, &piece[i], param));
    return TX_OK;
}

static tx_status merge_all(merge *m)
{
    for (int32_t i = 0; i < tx_arch_params(m->config); i++)
        TX_TRY(merge_param(m, i));
    return TX_OK;
}

tx_status tx_lora_merge(tx_model *model, const tx_config *config, const tx_lora *lora, const char *folder,
                        const char *base)
{
    merge m = {.model = model, .config = config, .lora = lora};
    TX_TRY(tx_weights_open(TX_PATH(folder, TX_LORA_WEIGHTS), &m.weights));
    tx_status status = tx_arch_open_weights(base, &m.base);
    TX_THEN(status, (m.buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *m.buffer))
                        ? merge_all(&m)
                        : tx_fail(TX_MEMORY, "%s: no memory to merge it", folder));
    free(m.buffer);
    tx_weights_close(m.base);
    tx_weights_close(m.weights);
    return status;
}
