/* SPDX-License-Identifier: Apache-2.0
 * The places of adapters that share a batch, and their part of the graph. */
#include "models/lora/bank.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Places ------------------------------------------------------------------------------------------------- */

/* Adds the modules of `more` that `to` lacks, by section. */
static void join(tx_lora_modules *to, const tx_lora_modules *more)
{
    to->divided = more->divided;
    for (int32_t i = 0; i < more->count; i++) {
        int32_t at = 0;
        while (at < to->count && to->section[at] != more->section[i])
            at++;
        if (at < to->count)
            continue;
        to->section[at] = more->section[i];
        memcpy(to->name[at], more->name[i], sizeof to->name[at]);
        to->count++;
    }
}

static tx_status find_modules(tx_lora_bank *b, const tx_config *config, const tx_lora *lora, int32_t *found)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_lora_modules own;
    for (int32_t p = 0; p < b->params; p++) {
        TX_TRY(tx_arch_param(config, p, name, &spec));
        TX_TRY(tx_lora_modules_of(lora, config, p, &own));
        if (spec.logical.rank == 2)
            continue; /* an embedding or an output head */
        join(&b->modules[p], &own);
        *found += own.count;
    }
    return TX_OK;
}

tx_status tx_lora_bank_create(const tx_config *config, const tx_lora *const *adapters, int32_t count, int64_t places,
                              int64_t rank, tx_lora_bank **bank)
{
    tx_lora_bank *b = calloc(1, sizeof *b);
    int32_t found = 0;
    if (!b)
        return tx_fail(TX_MEMORY, "no memory for adapters");
    *b = (tx_lora_bank){.places = places, .rank = rank, .params = tx_arch_params(config)};
    b->modules = calloc((size_t)b->params, sizeof *b->modules);
    b->adapter = calloc((size_t)places, sizeof *b->adapter);
    tx_status status = b->modules && b->adapter ? TX_OK : tx_fail(TX_MEMORY, "no memory for adapters");
    for (int32_t i = 0; i < count; i++)
        TX_THEN(status, find_modules(b, config, adapters[i], &found));
    if (!status && !found)
        status = tx_fail(TX_INVALID, "adapters: there is no module that they may have");
    return TX_RETURN(status, b, bank, tx_lora_bank_free);
}

void tx_lora_bank_free(tx_lora_bank *bank)
{
    if (!bank)
        return;
    free(bank->modules);
    free(bank->adapter);
    free(bank);
}

int64_t tx_lora_bank_place(const tx_lora_bank *bank, int64_t adapter)
{
    for (int64_t i = 0; i < bank->places; i++)
        if (bank->adapter[i] == adapter)
            return i;
    return -1;
}

/* ---- Masks -------------------------------------------------------------------------------------------------- */

static int64_t columns_of(const tx_lora_bank *b, int32_t modules)
{
    return b->places * modules * b->rank;
}

static const char *mask_name(int32_t modules, char name[32])
{
    snprintf(name, 32, "adapters of %" PRId32, modules);
    return name;
}

void tx_lora_bank_inputs(const tx_lora_bank *bank, tx_graph *graph, int64_t rows, int64_t length,
                         tx_tensor *mask[TX_MAX_SECTIONS])
{
    char name[32];
    for (int32_t p = 0; p < bank->params; p++) {
        const int32_t n = bank->modules[p].count;
        if (n > 0 && !mask[n - 1])
            mask[n - 1] = tx_input(graph, mask_name(n, name), TX_F32, TX_SHAPE(rows, length, columns_of(bank, n)));
    }
}

int64_t tx_lora_bank_most(const tx_lora_bank *bank)
{
    int32_t most = 0;
    for (int32_t p = 0; p < bank->params; p++)
        most = bank->modules[p].count > most ? bank->modules[p].count : most;
    return columns_of(bank, most);
}

tx_status tx_lora_bank_choose(const tx_lora_bank *bank, tx_plan *plan, tx_tensor *const mask[TX_MAX_SECTIONS],
                              int64_t rows, int64_t length, const int32_t *place, float *values)
{
    for (int32_t n = 1; n <= TX_MAX_SECTIONS; n++) {
        const int64_t own = n * bank->rank, columns = columns_of(bank, n);
        const size_t bytes = (size_t)(rows * length * columns) * sizeof *values;
        if (!mask[n - 1])
            continue;
        memset(values, 0, bytes);
        for (int64_t t = 0; t < rows * length; t++)
            for (int64_t c = 0; c < own && place[t / length] >= 0; c++)
                values[t * columns + place[t / length] * own + c] = 1.0f;
        TX_TRY(tx_plan_write(plan, mask[n - 1], values, bytes));
    }
    return TX_OK;
}

/* ---- The layer ---------------------------------------------------------------------------------------------- */

tx_status tx_lora_bank_params(const tx_config *config, int32_t index, char a[TX_WEIGHTS_NAME], char b[TX_WEIGHTS_NAME],
                              tx_param_spec *spec)
{
    char name[TX_ARCH_NAME];
    TX_TRY(tx_arch_param(config, index, name, spec));
    snprintf(a, TX_WEIGHTS_NAME, "%s.lora_A", name);
    snprintf(b, TX_WEIGHTS_NAME, "%s.lora_B", name);
    return TX_OK;
}

/* The mask in the shape of a product z, or NULL. */
static tx_tensor *mask_for(tx_graph *graph, tx_tensor *mask, const tx_tensor *z, const char *module)
{
    const tx_shape *shape = tx_tensor_shape(z);
    if (tx_shape_count(shape) == tx_shape_count(tx_tensor_shape(mask)))
        return tx_shape_equal(shape, tx_tensor_shape(mask)) ? mask : tx_reshape(mask, *shape);
    tx_graph_fail(
        graph, tx_fail(TX_UNSUPPORTED, "%s: it has other rows than the batch: leave it out of the adapters", module));
    return NULL;
}

tx_tensor *tx_lora_bank_add(tx_graph *graph, const tx_config *config, int32_t index, tx_tensor *x, tx_tensor *y)
{
    const tx_lora_bank *bank = config->bank;
    const tx_lora_modules *m = bank && index >= 0 ? &bank->modules[index] : NULL;
    char text[32], name_a[TX_WEIGHTS_NAME], name_b[TX_WEIGHTS_NAME];
    tx_tensor *mask = m && m->count && y ? tx_find_input(graph, mask_name(m->count, text)) : NULL;
    tx_param_spec spec;
    if (!mask)
        return y;
    const tx_status status = tx_lora_bank_params(config, index, name_a, name_b, &spec);
    if (status) {
        tx_graph_fail(graph, status);
        return NULL;
    }
    /* Ranks divide A as the inputs of the weight, or B as its outputs. The other one is whole: (x A^T) B is a part of
     * the sum over the ranks, or of the outputs. */
    const int32_t outputs = tx_arch_inputs_first(config, &spec) ? 1 : 0;
    const bool by_outputs = spec.split == outputs + 1, by_inputs = spec.split && !by_outputs;
    const int64_t columns = columns_of(bank, m->count), in = spec.shape.dim[1 - outputs];
    const tx_param_spec of_a = {.shape = TX_SHAPE(columns, in),
                                .init = TX_INIT_UNIFORM,
                                .scale = (float)(1.0 / sqrt((double)in)),
                                .frozen = true,
                                .split = by_inputs ? 2 : 0,
                                .block = spec.block};
    tx_param_spec of_b = {.shape = TX_SHAPE(columns, spec.shape.dim[outputs]),
                          .init = TX_INIT_UNIFORM,
                          .scale = 0.1f,
                          .frozen = true,
                          .split = by_outputs ? 2 : 0,
                          .block = spec.block};
    if (by_outputs && spec.sections.dimension == outputs)
        of_b.sections = spec.sections;
    of_b.sections.dimension = 1;
    tx_tensor *z = tx_linear(x, tx_param(graph, name_a, &of_a), NULL, true);
    mask = z ? mask_for(graph, mask, z, m->name[0]) : NULL;
    return mask ? tx_add_to_product(y, tx_linear(tx_mul(z, mask), tx_param(graph, name_b, &of_b), NULL, false)) : NULL;
}
