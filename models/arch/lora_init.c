/* SPDX-License-Identifier: Apache-2.0
 * Initializes an adapter. */
#include "models/arch/lora.h"

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

/* Initializes the magnitudes of a module with the norms of its weight. B A is still zero. */
static tx_status init_magnitudes(tx_model *model, const char *module, const tx_weights_piece *piece, bool inputs_first)
{
    const int64_t out = piece->shape.dim[inputs_first ? 1 : 0];
    char name[TX_WEIGHTS_NAME];
    int32_t index;
    snprintf(name, sizeof name, "%.230s." TX_LORA_MAGNITUDE, module);
    TX_TRY(tx_model_find(model, name, &index));
    double *sums = calloc((size_t)out, sizeof *sums);
    float *norms = malloc((size_t)out * sizeof *norms);
    tx_status status = sums && norms ? add_squares(model, piece, inputs_first, sums)
                                     : tx_fail(TX_MEMORY, "%s: no memory for its magnitudes", module);
    for (int64_t o = 0; o < out && !status; o++)
        norms[o] = (float)sqrt(sums[o]);
    TX_THEN(status, tx_model_write(model, TX_PARAM_WEIGHT, index, norms));
    free(sums);
    free(norms);
    return status;
}

static tx_status init_param(tx_model *model, const tx_config *config, int32_t index)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules modules;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    int32_t param;
    TX_TRY(tx_arch_param(config, index, name, &spec));
    TX_TRY(tx_lora_modules_of(config->lora, config, index, &modules));
    TX_TRY(tx_model_find(model, name, &param));
    tx_weights_pieces(name, &spec, param, TX_MAX_SECTIONS, piece);
    for (int32_t i = 0; i < modules.count; i++)
        TX_TRY(init_magnitudes(model, modules.name[i], &piece[modules.section[i]], config->architecture->inputs_first));
    return TX_OK;
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
    for (int32_t i = 0; i < tx_arch_params(config) && config->lora->dora; i++)
        TX_TRY(init_param(model, config, i));
    return TX_OK;
}
