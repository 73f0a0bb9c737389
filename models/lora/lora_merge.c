/* SPDX-License-Identifier: Apache-2.0
 * Merges an adapter into the weights of its base model. */
#include "models/lora/lora.h"

#include "api/base/low_rank.h"
#include "api/packed/nf4.h"

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
    bool inputs_first;          /* the weight of the current module is [in, out] */
    float *buffer;              /* TX_WEIGHTS_CHUNK */
} merge;

/* Module i of a parameter. */
typedef struct adapted {
    const char *name;
    const tx_weights_piece *piece; /* its weight */
    bool embedding, inputs_first;
    int64_t rank, in, out;
    double scale;
} adapted;

static adapted module_at(const tx_config *config, const tx_lora_modules *m, int32_t i, const tx_weights_piece *pieces,
                         const tx_param_spec *spec)
{
    const tx_weights_piece *piece = &pieces[m->section[i]];
    /* The weights of embeddings have a row for each token in every architecture. */
    const bool inputs_first = m->embedding || tx_arch_inputs_first(config, spec);
    const int32_t inputs = inputs_first != piece->turned ? 0 : 1; /* pieces have the shapes of files */
    return (adapted){.name = m->name[i],
                     .piece = piece,
                     .embedding = m->embedding,
                     .inputs_first = inputs_first,
                     .rank = m->rank[i],
                     .in = piece->shape.dim[inputs],
                     .out = piece->shape.dim[1 - inputs],
                     .scale = m->scale[i]};
}

static const char *name_of_a(const adapted *m)
{
    return m->embedding ? TX_LORA_EMBEDDING_A : "lora_A.weight";
}

static const char *name_of_b(const adapted *m)
{
    return m->embedding ? TX_LORA_EMBEDDING_B : "lora_B.weight";
}

/* ---- Files ------------------------------------------------------------------------------------------------- */

static bool may_lack(const void *context, const char *piece)
{
    return tx_lora_may_lack(((const tx_config *)context)->lora, piece);
}

static tx_weights_names own_names(const tx_config *config)
{
    return (tx_weights_names){
        .rename = tx_lora_rename, .context = config, .may_lack = may_lack, .quiet_if_missing = true};
}

static void add_piece(tx_weights_piece *piece, int32_t *count, const tx_weights_piece *new)
{
    if (piece)
        piece[*count] = *new;
    ++*count;
}

/* Appends the adapter's tensors for parameter `index`. With NULL as `piece` it only counts them. Adapters of resized
 * embeddings contain these whole. */
static tx_status list_param(const tx_lora *lora, const tx_config *config, const tx_weights *weights, int32_t index,
                            tx_weights_piece *piece, int32_t *count)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules modules;
    tx_weights_piece own[TX_MAX_SECTIONS];
    TX_TRY(tx_arch_param(config, index, name, &spec));
    TX_TRY(tx_lora_modules_of(lora, config, index, &modules));
    const tx_weights_names names = own_names(config);
    const int32_t pieces = tx_weights_pieces(name, &spec, index, TX_MAX_SECTIONS, own);
    for (int32_t i = 0; i < modules.count; i++) {
        const adapted m = module_at(config, &modules, i, own, &spec);
        const struct {
            const char *name;
            tx_shape shape;
        } parts[] = {{name_of_a(&m), TX_SHAPE(m.rank, m.in)},
                     {name_of_b(&m), TX_SHAPE(m.out, m.rank)},
                     {TX_LORA_MAGNITUDE, TX_SHAPE(m.out)}};
        for (int p = 0; p < (lora->dora ? 3 : 2); p++) {
            tx_weights_piece result = {.shape = parts[p].shape, .param = index};
            snprintf(result.name, TX_WEIGHTS_NAME, "%.230s.%s", m.name, parts[p].name);
            add_piece(piece, count, &result);
        }
    }
    tx_lora_experts experts;
    TX_TRY(tx_lora_experts_of(lora, config, index, &experts));
    for (int p = 0; p < 2 && experts.count; p++) {
        tx_weights_piece result = {.shape = p ? TX_SHAPE(experts.out, experts.rank * experts.count)
                                              : TX_SHAPE(experts.count * experts.rank, experts.in),
                                   .param = index};
        memcpy(result.name, p ? experts.b : experts.a, sizeof result.name);
        add_piece(piece, count, &result);
    }
    for (int32_t i = 0; i < pieces; i++)
        if (tx_lora_saves(lora, own[i].name) || (spec.table && tx_weights_find(weights, &names, own[i].name) >= 0))
            add_piece(piece, count, &own[i]);
    tx_lora_tokens tokens;
    TX_TRY(tx_lora_tokens_of(lora, config, index, &tokens));
    tx_weights_piece rows = {.shape = TX_SHAPE(tokens.count, tokens.columns), .param = index};
    tx_lora_name_of_tokens(&tokens, rows.name);
    if (tokens.count)
        add_piece(piece, count, &rows);
    tx_lora_free_tokens(&tokens);
    return TX_OK;
}

static tx_status list_all(const tx_lora *lora, const tx_config *config, const tx_weights *weights,
                          tx_weights_piece *piece, int32_t *count)
{
    *count = 0;
    for (int32_t i = 0; i < tx_arch_params(config); i++)
        TX_TRY(list_param(lora, config, weights, i, piece, count));
    return TX_OK;
}

tx_status tx_lora_check_files(const tx_lora *lora, const tx_config *config, const char *folder)
{
    tx_weights *weights = NULL;
    tx_weights_piece *piece = NULL;
    int32_t count = 0;
    TX_TRY(tx_fail_in(tx_lora_check(lora, config), "%s", folder));
    TX_TRY(tx_lora_open_weights(folder, &weights));
    tx_status status = list_all(lora, config, weights, NULL, &count);
    if (!status && !(piece = malloc(((size_t)count + 1) * sizeof *piece)))
        status = tx_fail(TX_MEMORY, "%s: no memory for its list of tensors", folder);
    TX_THEN(status, list_all(lora, config, weights, piece, &count));
    const tx_weights_names names = own_names(config);
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
    const tx_weights_names names = own_names(m->config);
    return find(m->weights, &names, name, shape, index);
}

/* Finds a weight in the adapter's file if it has the whole one, else in the model's. */
static tx_status find_weight(const merge *m, const tx_weights_piece *piece, const tx_weights **file, int32_t *index)
{
    const tx_weights_names own = own_names(m->config), names = tx_arch_names(m->config);
    const char *name = piece->name;
    char other[TX_WEIGHTS_NAME];
    *file = tx_weights_find(m->weights, &own, name) < 0 ? m->base : m->weights;
    if (*file == m->weights)
        return find(*file, &own, name, &piece->shape, index);
    if (names.stand_in && tx_weights_find(*file, &names, name) < 0 && names.stand_in(names.context, name, other))
        name = other;
    return find(*file, &names, name, &piece->shape, index);
}

/* Reads a tensor; the caller frees. */
static tx_status read_whole(merge *m, const char *module, const char *part, tx_shape shape, float **data)
{
    char name[TX_WEIGHTS_NAME];
    int32_t index;
    snprintf(name, sizeof name, "%.230s.%s", module, part + (*part == '.'));
    TX_TRY(find_own(m, name, &shape, &index));
    const int64_t count = tx_shape_count(&shape);
    *data = malloc((size_t)count * sizeof **data);
    return *data ? tx_weights_read_f32(m->weights, index, 0, count, *data)
                 : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(m->weights));
}

/* ---- W + scale B A ------------------------------------------------------------------------------------------ */

/* A consumer of `rows` rows of W + scale B A, from row `first` on; they are in m->buffer. */
typedef tx_status use_rows(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows);

/* Computes W + scale B A in fp32, in chunks of rows, and passes each chunk to `use`. There are two factors if a part of
 * the weight is subtracted. */
static tx_status for_each_chunk(merge *m, const tx_low_rank f[2], const tx_weights_piece *piece, double *outputs,
                                use_rows *use)
{
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1];
    int64_t most = TX_WEIGHTS_CHUNK / columns;
    const tx_weights *file;
    int32_t index;
    const bool rounds = tx_lora_rounds(m->lora);
    while (rounds && most > 0 && most * columns % TX_NF4_BLOCK != 0)
        most--;
    if (most < 1)
        return tx_fail(TX_UNSUPPORTED, "rows of %" PRId64 " weights are too long to be merged", columns);
    TX_TRY(find_weight(m, piece, &file, &index));
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most;
        TX_TRY(tx_weights_read_f32(file, index, row * columns, now * columns, m->buffer));
        if (rounds)
            tx_lora_round(m->buffer, now * columns);
        for (int32_t i = 0; i < 2 && f[i].left; i++)
            for (int64_t r = 0; r < now; r++)
                tx_low_rank_add(&f[i], row + r, 0, columns, m->buffer + r * columns);
        TX_TRY(use(m, piece, outputs, row, now));
    }
    return TX_OK;
}

/* Adds the squares of the weights of output o to outputs[o]. */
static tx_status add_squares(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows)
{
    const int64_t columns = piece->shape.dim[1];
    for (int64_t i = 0; i < rows * columns; i++)
        outputs[m->inputs_first ? i % columns : first + i / columns] += (double)m->buffer[i] * (double)m->buffer[i];
    return TX_OK;
}

/* Fails if a sum in the buffer is not finite or too large for the parameter's type. */
static tx_status check_values(const merge *m, const tx_weights_piece *piece, int64_t count, float limit)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(m->buffer[i]) < limit))
            return tx_fail(TX_FORMAT, "%s: with the adapter, %s holds %g%s", tx_weights_path(m->weights), piece->name,
                           (double)m->buffer[i],
                           isfinite(m->buffer[i]) ? ", too large for float16: use bfloat16 or float32" : "");
    return TX_OK;
}

/* Writes the rows. With `outputs`, it scales the weights of output o by outputs[o]. */
static tx_status write_rows(merge *m, const tx_weights_piece *piece, double *outputs, int64_t first, int64_t rows)
{
    const int64_t columns = piece->shape.dim[1];
    const float limit = tx_weights_limit(m->model, piece->param);
    for (int64_t i = 0; i < rows * columns && outputs; i++)
        m->buffer[i] = (float)((double)m->buffer[i] * outputs[m->inputs_first ? i % columns : first + i / columns]);
    TX_TRY(check_values(m, piece, rows * columns, limit));
    return tx_model_write_range(m->model, TX_PARAM_WEIGHT, piece->param, piece->first + first * columns, rows * columns,
                                m->buffer);
}

/* DoRA: scales each output of W + scale B A to the norm given by its magnitude. */
static tx_status merge_magnitudes(merge *m, const tx_low_rank f[2], const adapted *module)
{
    float *magnitude = NULL;
    double *factor = calloc((size_t)module->out, sizeof *factor);
    tx_status status = factor ? read_whole(m, module->name, TX_LORA_MAGNITUDE, TX_SHAPE(module->out), &magnitude)
                              : tx_fail(TX_MEMORY, "%s: no memory for its magnitudes", module->name);
    TX_THEN(status, for_each_chunk(m, f, module->piece, factor, add_squares));
    for (int64_t o = 0; o < module->out && !status; o++)
        factor[o] = (double)magnitude[o] / sqrt(factor[o]);
    TX_THEN(status, for_each_chunk(m, f, module->piece, factor, write_rows));
    free(magnitude);
    free(factor);
    return status;
}

static tx_low_rank product_of(const adapted *m, const float *a, const float *b, double scale)
{
    return tx_low_rank_of(a, b, m->in, m->rank, (float)scale, m->inputs_first);
}

/* The part of the weight that the adapter began with (tx_lora_principal), into `principal`: A, then B. */
static tx_status read_principal(merge *m, const adapted *module, float *principal)
{
    const int64_t count = module->in * module->out;
    const tx_weights *file;
    int32_t index;
    float *weight = malloc((size_t)count * sizeof *weight);
    tx_status status = weight ? find_weight(m, module->piece, &file, &index)
                              : tx_fail(TX_MEMORY, "%s: no memory for its weight", module->name);
    TX_THEN(status, tx_weights_read_f32(file, index, 0, count, weight));
    TX_THEN(status, tx_lora_principal(m->lora, &(tx_lora_weight){weight, module->out, module->in, module->inputs_first},
                                      module->rank, module->scale, principal, principal + module->rank * module->in));
    free(weight);
    return tx_fail_in(status, "%s", module->name);
}

static tx_status merge_module(merge *m, const adapted *module)
{
    tx_low_rank f[2] = {{.left = NULL}};
    float *a = NULL, *b = NULL, *principal = NULL;
    m->inputs_first = module->inputs_first;
    tx_status status = read_whole(m, module->name, name_of_a(module), TX_SHAPE(module->rank, module->in), &a);
    TX_THEN(status, read_whole(m, module->name, name_of_b(module), TX_SHAPE(module->out, module->rank), &b));
    f[0] = product_of(module, a, b, module->scale);
    if (!status && tx_lora_takes_principal(m->lora) && !tx_lora_rounds(m->lora) && !module->embedding) {
        principal = malloc((size_t)(module->rank * (module->in + module->out)) * sizeof *principal);
        status = principal ? read_principal(m, module, principal) : tx_fail(TX_MEMORY, "no memory for an adapter");
        f[1] = product_of(module, principal, principal + module->rank * module->in, -module->scale);
    }
    TX_THEN(status,
            m->lora->dora ? merge_magnitudes(m, f, module) : for_each_chunk(m, f, module->piece, NULL, write_rows));
    free(a);
    free(b);
    free(principal);
    return status;
}

/* Copies a piece of a module to save. */
static tx_status replace(merge *m, const tx_weights_piece *piece, int32_t param)
{
    int32_t index;
    const tx_weights_names names = own_names(m->config);
    if (tx_lora_may_lack(m->lora, piece->name) && tx_weights_find(m->weights, &names, piece->name) < 0)
        return TX_OK;
    TX_TRY(find_own(m, piece->name, &piece->shape, &index));
    const int64_t count = tx_shape_count(&piece->shape);
    for (int64_t at = 0; at < count; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = count - at < TX_WEIGHTS_CHUNK ? count - at : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_f32(m->weights, index, at, now, m->buffer));
        TX_TRY(tx_model_write_range(m->model, TX_PARAM_WEIGHT, param, piece->first + at, now, m->buffer));
    }
    return TX_OK;
}

/* Copies the trained rows of tokens. */
static tx_status replace_rows(merge *m, int32_t index, int32_t param)
{
    tx_lora_tokens tokens;
    float *rows = NULL;
    TX_TRY(tx_lora_tokens_of(m->lora, m->config, index, &tokens));
    tx_status status = TX_OK;
    if (tokens.count) {
        status = read_whole(m, tokens.module, TX_LORA_TOKENS_DELTA, TX_SHAPE(tokens.count, tokens.columns), &rows);
        TX_THEN(status, tx_lora_write_rows(m->model, &tokens, param, rows));
    }
    free(rows);
    tx_lora_free_tokens(&tokens);
    return status;
}

/* ---- Experts --------------------------------------------------------------------------------------------- */

/* Reads a tensor of experts' adapters; the caller frees. */
static tx_status read_of_experts(merge *m, const char *name, tx_shape shape, float **data)
{
    int32_t index;
    TX_TRY(find_own(m, name, &shape, &index));
    const int64_t count = tx_shape_count(&shape);
    *data = malloc((size_t)count * sizeof **data);
    return *data ? tx_weights_read_f32(m->weights, index, 0, count, *data)
                 : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(m->weights));
}

/* Merges a piece of the experts' matrices: one of their sections, or all. */
static tx_status merge_experts_piece(merge *m, const tx_lora_experts *e, const float *a, const float *b,
                                     const tx_weights_piece *piece)
{
    const int64_t count = tx_shape_count(&piece->shape), matrix = e->in * e->out;
    const float limit = tx_weights_limit(m->model, piece->param);
    const tx_weights *file;
    int32_t index;
    TX_TRY(find_weight(m, piece, &file, &index));
    for (int64_t at = 0, now; at < count; at += now) {
        const int64_t first = piece->first + at, left = matrix - first % matrix;
        now = left < count - at ? left : count - at;
        now = now < TX_WEIGHTS_CHUNK ? now : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_f32(file, index, at, now, m->buffer));
        tx_lora_add_expert(e, a, b, first / matrix, first % matrix, now, m->buffer);
        TX_TRY(check_values(m, piece, now, limit));
        TX_TRY(tx_model_write_range(m->model, TX_PARAM_WEIGHT, piece->param, first, now, m->buffer));
    }
    return TX_OK;
}

static tx_status merge_experts(merge *m, int32_t index, int32_t param, const char *name, const tx_param_spec *spec)
{
    tx_lora_experts e;
    float *a = NULL, *stored = NULL;
    TX_TRY(tx_lora_experts_of(m->lora, m->config, index, &e));
    if (!e.count)
        return TX_OK;
    const int32_t count = tx_weights_piece_count(name, spec);
    tx_weights_piece *piece = malloc((size_t)count * sizeof *piece);
    float *b = malloc((size_t)(e.out * e.rank * e.count) * sizeof *b);
    tx_status status = piece && b ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to merge it", name);
    TX_THEN(status, read_of_experts(m, e.a, TX_SHAPE(e.count * e.rank, e.in), &a));
    TX_THEN(status, read_of_experts(m, e.b, TX_SHAPE(e.out, e.rank * e.count), &stored));
    if (!status)
        tx_lora_sort_experts(&e, stored, b);
    const int32_t pieces = piece ? tx_weights_pieces(name, spec, param, count, piece) : 0;
    for (int32_t i = 0; i < pieces && !status; i++)
        status = merge_experts_piece(m, &e, a, b, &piece[i]);
    free(piece);
    free(a);
    free(b);
    free(stored);
    return status;
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
    const tx_weights_names names = own_names(m->config);
    for (int32_t i = 0; i < pieces; i++)
        if (tx_weights_find(m->weights, &names, piece[i].name) >= 0)
            TX_TRY(replace(m, &piece[i], param));
    TX_TRY(replace_rows(m, index, param));
    TX_TRY(merge_experts(m, index, param, name, &spec));
    for (int32_t i = 0; i < modules.count; i++) {
        const adapted now = module_at(m->config, &modules, i, piece, &spec);
        TX_TRY(merge_module(m, &now));
    }
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
    TX_TRY(tx_lora_open_weights(folder, &m.weights));
    tx_status status = tx_arch_open_weights(base, &m.base);
    TX_THEN(status, (m.buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *m.buffer))
                        ? merge_all(&m)
                        : tx_fail(TX_MEMORY, "%s: no memory to merge it", folder));
    free(m.buffer);
    tx_weights_close(m.base);
    tx_weights_close(m.weights);
    return status;
}
