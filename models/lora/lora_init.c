/* SPDX-License-Identifier: Apache-2.0
 * Initializes an adapter, and the base of one that takes over a part of it. */
#include "models/lora/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Adds the squares of the weights of each output of a module to `sums` [out], in chunks of rows. `piece` is the
 * module's part of a parameter. */
static tx_status add_rows(const tx_model *model, const tx_weights_piece *piece, bool inputs_first, float *buffer,
                          double *sums)
{
    const int64_t rows = piece->shape.dim[0], columns = piece->shape.dim[1], most = TX_WEIGHTS_CHUNK / columns;
    if (most < 1)
        return tx_fail(TX_UNSUPPORTED, "%s: rows of %lld weights are too long", piece->name, (long long)columns);
    for (int64_t row = 0; row < rows; row += most) {
        const int64_t now = rows - row < most ? rows - row : most;
        TX_TRY(tx_model_read_range((tx_model *)(uintptr_t)model, TX_PARAM_WEIGHT, piece->param,
                                   piece->first + row * columns, now * columns, buffer));
        for (int64_t i = 0; i < now * columns; i++)
            sums[inputs_first ? i % columns : row + i / columns] += (double)buffer[i] * (double)buffer[i];
    }
    return TX_OK;
}

static tx_status add_squares(const tx_model *model, const tx_weights_piece *piece, bool inputs_first, double *sums)
{
    float *buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *buffer);
    tx_status status = buffer ? add_rows(model, piece, inputs_first, buffer, sums)
                              : tx_fail(TX_MEMORY, "%s: no memory for a part of it", piece->name);
    free(buffer);
    return status;
}

/* A module of parameter number `param` of the model. */
typedef struct adapted {
    const tx_lora_modules *modules;
    int32_t number;
    tx_weights_piece piece;
    bool inputs_first;
} adapted;

static tx_status write_factor(tx_model *model, const adapted *m, const char *suffix, int64_t count, const float *data)
{
    char name[TX_WEIGHTS_NAME];
    int32_t index;
    snprintf(name, sizeof name, "%.230s.%s", m->modules->name[m->number], suffix);
    TX_TRY(tx_model_find(model, name, &index));
    return tx_model_write_range(model, TX_PARAM_WEIGHT, index, 0, count, data);
}

/* Initializes the magnitudes of a module with the norms of its weight. B A is still zero. */
static tx_status init_magnitudes(tx_model *model, const tx_lora *lora, const adapted *m)
{
    const int64_t out = m->piece.shape.dim[m->inputs_first ? 1 : 0];
    double *sums = calloc((size_t)out, sizeof *sums);
    float *norms = malloc((size_t)out * sizeof *norms);
    (void)lora;
    tx_status status = sums && norms ? add_squares(model, &m->piece, m->inputs_first, sums)
                                     : tx_fail(TX_MEMORY, "%s: no memory for its magnitudes", m->piece.name);
    for (int64_t o = 0; o < out && !status; o++)
        norms[o] = (float)sqrt(sums[o]);
    TX_THEN(status, write_factor(model, m, TX_LORA_MAGNITUDE, out, norms));
    free(sums);
    free(norms);
    return status;
}

/* Subtracts scale B A from a weight. */
static void subtract(float *weight, const adapted *m, int64_t in, int64_t out, const float *a, const float *b)
{
    const int64_t rank = m->modules->rank[m->number];
    const float scale = (float)m->modules->scale[m->number];
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < rank; k++)
                sum += b[o * rank + k] * a[k * in + i];
            weight[m->inputs_first ? i * out + o : o * in + i] -= scale * sum;
        }
}

/* Writes A, which several modules may share, B, and the rest of the weight. */
static tx_status write_principal(tx_model *model, const adapted *m, int64_t in, int64_t out, const float *a,
                                 const float *b, const float *weight)
{
    char name[TX_WEIGHTS_NAME];
    const int64_t rank = m->modules->rank[m->number];
    int32_t index;
    const int32_t place = tx_lora_name_of_a(m->modules, m->number, name);
    TX_TRY(tx_model_find(model, name, &index));
    TX_TRY(tx_model_write_range(model, TX_PARAM_WEIGHT, index, place * rank * in, rank * in, a));
    TX_TRY(write_factor(model, m, "lora_B.weight", out * rank, b));
    return tx_model_write_range(model, TX_PARAM_WEIGHT, m->piece.param, m->piece.first, in * out, weight);
}

static tx_status take_principal(tx_model *model, const tx_lora *lora, const adapted *m)
{
    const int64_t in = m->piece.shape.dim[m->inputs_first ? 0 : 1], out = m->piece.shape.dim[m->inputs_first ? 1 : 0],
                  rank = m->modules->rank[m->number];
    float *weight = malloc((size_t)(in * out) * sizeof *weight), *a = malloc((size_t)(rank * in) * sizeof *a),
          *b = malloc((size_t)(rank * out) * sizeof *b);
    tx_status status =
        weight && a && b ? tx_model_read_range(model, TX_PARAM_WEIGHT, m->piece.param, m->piece.first, in * out, weight)
                         : tx_fail(TX_MEMORY, "no memory for a weight");
    TX_THEN(status, tx_lora_principal(lora, &(tx_lora_weight){weight, out, in, m->inputs_first}, rank,
                                      m->modules->scale[m->number], a, b));
    if (!status && tx_lora_rounds(lora))
        tx_lora_round(weight, in * out);
    else if (!status)
        subtract(weight, m, in, out, a, b);
    TX_THEN(status, write_principal(model, m, in, out, a, b, weight));
    free(weight);
    free(a);
    free(b);
    return tx_fail_in(status, "%s", m->modules->name[m->number]);
}

/* Calls a function for each module of parameter `index`. */
typedef tx_status use_module(tx_model *model, const tx_lora *lora, const adapted *m);

static tx_status for_each_module(tx_model *model, const tx_config *config, use_module *use)
{
    for (int32_t index = 0; index < tx_arch_params(config); index++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        tx_lora_modules modules;
        tx_weights_piece piece[TX_MAX_SECTIONS];
        int32_t param;
        TX_TRY(tx_arch_param(config, index, name, &spec));
        TX_TRY(tx_lora_modules_of(config->lora, config, index, &modules));
        TX_TRY(tx_model_find(model, name, &param));
        tx_weights_pieces(name, &spec, param, TX_MAX_SECTIONS, piece);
        const bool inputs_first = tx_arch_inputs_first(config, &spec);
        for (int32_t i = 0; i < modules.count && !modules.embedding; i++) {
            const adapted m = {&modules, i, piece[modules.section[i]], inputs_first};
            TX_TRY(use(model, config->lora, &m));
        }
    }
    return TX_OK;
}

tx_status tx_lora_take_principal(tx_model *model, const tx_config *config)
{
    return tx_lora_takes_principal(config->lora) ? for_each_module(model, config, take_principal) : TX_OK;
}

tx_status tx_lora_init(tx_model *model, const tx_config *config, uint64_t seed)
{
    for (int32_t i = 0; i < tx_model_param_count(model); i++) {
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(tx_model_param(model, i, &name, &spec));
        if (tx_lora_adds(name))
            TX_TRY(tx_model_init_param(model, i, seed));
    }
    if (config->lora->dora)
        TX_TRY(for_each_module(model, config, init_magnitudes));
    TX_TRY(tx_lora_init_tokens(model, config));
    return tx_lora_take_principal(model, config);
}
