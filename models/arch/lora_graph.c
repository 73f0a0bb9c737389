/* SPDX-License-Identifier: Apache-2.0
 * Builds the graph of adapted linear layers. */
#include "models/arch/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Dropout sites of adapters; the model's own are smaller. */
#define FIRST_SITE (1 << 24)

/* An adapted linear layer. */
typedef struct layer {
    tx_graph *graph;
    const tx_lora *lora;
    tx_lora_modules modules;
    tx_param_sections sections;         /* of the weight, if it is divided */
    int64_t first[TX_MAX_SECTIONS + 1]; /* first output of each section */
    int64_t in, out;
    bool inputs_first;
    tx_tensor *weight, *bias; /* bias may be NULL */
} layer;

static tx_tensor *declare(const layer *l, const char *module, const char *part, const tx_param_spec *spec)
{
    char name[TX_WEIGHTS_NAME];
    snprintf(name, sizeof name, "%.230s.%s", module, part);
    return tx_param(l->graph, name, spec);
}

static tx_tensor *declare_a(const layer *l)
{
    const tx_lora_modules *m = &l->modules;
    tx_param_spec spec = {.shape = TX_SHAPE(m->count * l->lora->rank, l->in),
                          .init = TX_INIT_UNIFORM,
                          .scale = (float)(1.0 / sqrt((double)l->in)),
                          .decay = true,
                          .apart = m->count > 1};
    for (int32_t i = 0; i < m->count && m->count > 1; i++)
        spec.sections.size[spec.sections.count++] = l->lora->rank;
    return declare(l, m->joint, "lora_A.weight", &spec);
}

/* Scatters the rows of `part`, which belong to the module in `section`, into a tensor with `step` rows for each output.
 * The other rows are zero. */
static tx_tensor *scatter_rows(const layer *l, tx_tensor *part, int32_t section, int32_t step, int32_t offset)
{
    const int64_t count = l->sections.size[section];
    tx_tensor *places = tx_range(l->graph, TX_SHAPE(count), (int32_t)(l->first[section] * step + offset), step);
    return tx_scatter_add(places, part, l->out * step);
}

static tx_tensor *add(tx_tensor *sum, tx_tensor *part)
{
    return sum ? tx_add(sum, part) : part;
}

/* One B for all modules, [out, modules * rank]. The rows of a module are nonzero only in its own columns. */
static tx_tensor *declare_b(const layer *l)
{
    const tx_lora_modules *m = &l->modules;
    tx_tensor *all = NULL;
    for (int32_t i = 0; i < m->count; i++) {
        const int64_t rows = m->divided ? l->sections.size[m->section[i]] : l->out;
        const tx_param_spec spec = {.shape = TX_SHAPE(rows, l->lora->rank), .decay = true};
        tx_tensor *b = declare(l, m->name[i], "lora_B.weight", &spec);
        all = m->divided ? add(all, scatter_rows(l, b, m->section[i], m->count, i)) : b;
    }
    return m->divided && all ? tx_reshape(all, TX_SHAPE(l->out, m->count * l->lora->rank)) : all;
}

/* ---- DoRA ------------------------------------------------------------------------------------------------ */

static bool is_adapted(const tx_lora_modules *m, int32_t section)
{
    for (int32_t i = 0; i < m->count; i++)
        if (m->section[i] == section)
            return true;
    return false;
}

/* The factor of each output, [out]: magnitudes divided by the row norms of W + B A, which get no gradient (Liu et al.,
 * DoRA, 2024, section 4.3). It is 1 for modules that are not adapted. */
static tx_tensor *output_factors(const layer *l, tx_tensor *a, tx_tensor *b)
{
    const tx_lora_modules *m = &l->modules;
    tx_tensor *product = l->inputs_first ? tx_matmul(a, b, true, true) : tx_matmul(b, a, false, false);
    tx_tensor *norms =
        tx_reduce(tx_add(l->weight, product), TX_REDUCE_SUMSQ, l->inputs_first ? TX_AXIS_ROWS : TX_AXIS_LAST);
    tx_tensor *magnitudes = NULL, *others = NULL;
    for (int32_t i = 0; i < m->count; i++) {
        const int64_t rows = m->divided ? l->sections.size[m->section[i]] : l->out;
        const tx_param_spec spec = {.shape = TX_SHAPE(rows), .init = TX_INIT_ONE, .decay = true};
        tx_tensor *own = declare(l, m->name[i], TX_LORA_MAGNITUDE, &spec);
        magnitudes = m->divided && own
                         ? add(magnitudes, scatter_rows(l, tx_reshape(own, TX_SHAPE(rows, 1)), m->section[i], 1, 0))
                         : own;
    }
    for (int32_t s = 0; m->divided && s < l->sections.count; s++)
        if (!is_adapted(m, s))
            others = add(others, scatter_rows(l, tx_fill(l->graph, TX_SHAPE(l->sections.size[s], 1), 1.0f), s, 1, 0));
    if (!magnitudes || !norms)
        return NULL;
    tx_tensor *scales = tx_mul(tx_reshape(magnitudes, TX_SHAPE(l->out)), tx_rsqrt(tx_detach(norms)));
    return others ? tx_add(scales, tx_reshape(others, TX_SHAPE(l->out))) : scales;
}

static tx_tensor *by_columns(tx_tensor *x, tx_tensor *columns)
{
    return x && columns ? tx_broadcast(columns, *tx_tensor_shape(x), TX_AXIS_ROWS) : NULL;
}

/* Computes as peft does: y = f (x W^T + u) + bias. If the adapter reads inputs x' after dropout, it is
 * y = x W^T + bias + f (x' W^T + u) - x' W^T. */
static tx_tensor *with_magnitudes(const layer *l, tx_tensor *x, tx_tensor *dropped, tx_tensor *u, tx_tensor *f)
{
    tx_tensor *z = tx_linear(dropped, l->weight, NULL, !l->inputs_first), *sum = tx_add(z, u);
    tx_tensor *scaled = sum ? tx_mul(sum, by_columns(sum, f)) : NULL;
    if (x != dropped)
        return tx_add(tx_linear(x, l->weight, l->bias, !l->inputs_first), tx_add(scaled, tx_scale(z, -1.0f)));
    return l->bias ? tx_add(scaled, by_columns(scaled, l->bias)) : scaled;
}

/* ---- The layer ------------------------------------------------------------------------------------------- */

static tx_tensor *adapt(const layer *l, tx_tensor *x, tx_tensor *dropped)
{
    const float scale = (float)tx_lora_scale(l->lora);
    tx_tensor *a = declare_a(l), *b = declare_b(l);
    b = scale == 1.0f ? b : tx_scale(b, scale);
    tx_tensor *u = tx_linear(tx_linear(dropped, a, NULL, true), b, NULL, true);
    if (l->lora->dora)
        return with_magnitudes(l, x, dropped, u, output_factors(l, a, b));
    return tx_add(tx_linear(x, l->weight, l->bias, !l->inputs_first), u);
}

tx_tensor *tx_lora_linear(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                          tx_tensor *x, tx_tensor *weight, tx_tensor *bias)
{
    const bool inputs_first = config->architecture->inputs_first;
    layer l = {.graph = graph, .lora = config->lora, .inputs_first = inputs_first, .weight = weight, .bias = bias};
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    if (!x || !weight)
        return NULL;
    if (!l.lora || options->base)
        return tx_linear(x, weight, bias, !inputs_first);
    tx_status status = tx_arch_param(config, index, name, &spec);
    TX_THEN(status, tx_lora_modules_of(l.lora, config, index, &l.modules));
    if (status) {
        tx_graph_fail(graph, status);
        return NULL;
    }
    if (l.modules.count == 0)
        return tx_linear(x, weight, bias, !inputs_first);
    l.in = spec.shape.dim[inputs_first ? 0 : 1];
    l.out = spec.shape.dim[inputs_first ? 1 : 0];
    l.sections = spec.sections;
    for (int32_t i = 0; i < l.sections.count; i++)
        l.first[i + 1] = l.first[i] + l.sections.size[i];
    const float dropout = options->train && !options->no_dropout ? (float)l.lora->dropout : 0.0f;
    return adapt(&l, x, tx_dropout(x, dropout, FIRST_SITE + index));
}
