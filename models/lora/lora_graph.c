/* SPDX-License-Identifier: Apache-2.0
 * Builds the graph of adapted linear layers. */
#include "models/lora/bank.h"

#include "api/base/arithmetic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Dropout sites of adapters; the model's own are smaller. */
#define FIRST_SITE (1 << 24)

tx_status tx_lora_graph(tx_model *model, const tx_config *config, tx_dtype otherwise, tx_graph **graph)
{
    TX_TRY(tx_graph_create(model, graph));
    const tx_dtype type = config->lora ? config->lora->stored : otherwise;
    return config->lora || type != TX_F32 ? tx_graph_autocast(*graph, type) : TX_OK;
}

/* An adapted linear layer. Sizes are this tensor-parallel rank's. */
typedef struct layer {
    tx_graph *graph;
    const tx_lora *lora;
    tx_lora_modules modules;
    tx_param_spec spec;                 /* of the weight */
    int64_t first[TX_MAX_SECTIONS + 1]; /* first output of each section */
    int64_t in, out;                    /* `in` is that of all ranks */
    bool inputs_first;
    bool rounds, trains;        /* training for blocks; the graph has a backward pass */
    bool by_outputs, by_inputs; /* tensor-parallel ranks divide the outputs, or the inputs */
    tx_tensor *weight, *bias;   /* bias may be NULL */
} layer;

/* Declares a parameter of the adapter. If tensor-parallel ranks divide the layer, but not the parameter, each computes
 * a part of its gradient. */
static tx_tensor *declare_in(tx_graph *graph, bool divided, const char *name, const tx_param_spec *spec)
{
    tx_tensor *param = tx_param(graph, name, spec);
    return divided && !spec->split ? tx_tp_input(param) : param;
}

/* Ranks that divide the positions of a whole layer compute parts, too. */
static tx_tensor *declare(const layer *l, const char *name, tx_param_spec *spec)
{
    const bool divided = l->by_inputs || l->by_outputs;
    spec->block = l->spec.block;
    tx_tensor *param = declare_in(l->graph, divided, name, spec);
    return divided ? param : tx_tp_param(param);
}

static bool same_group(const tx_lora_modules *m, int32_t i, int32_t other)
{
    return m->rank[i] == m->rank[other] && m->scale[i] == m->scale[other];
}

int32_t tx_lora_name_of_a(const tx_lora_modules *modules, int32_t number, char name[TX_WEIGHTS_NAME])
{
    int32_t before = 0, count = 0;
    *name = '\0';
    for (int32_t i = 0; i < modules->count; i++) {
        if (!same_group(modules, i, number))
            continue;
        const char *module = modules->name[i];
        tx_list_add(name, TX_WEIGHTS_NAME, "|", "%s", count++ ? strrchr(module, '.') + 1 : module);
        before += i < number;
    }
    tx_list_add(name, TX_WEIGHTS_NAME, ".", "%s", "lora_A.weight");
    return before;
}

/* Declares the part of a module, with its name. */
static tx_tensor *declare_part(const layer *l, const char *module, const char *part, tx_param_spec *spec)
{
    char name[TX_WEIGHTS_NAME];
    snprintf(name, sizeof name, "%.230s.%s", module, part);
    return declare(l, name, spec);
}

/* The modules that have the rank and scale of module `first`, and share one A. Returns false if an earlier module is
 * among them. */
static bool group_of(const tx_lora_modules *all, int32_t first, tx_lora_modules *group)
{
    *group = (tx_lora_modules){.divided = all->divided};
    for (int32_t i = 0; i < all->count; i++) {
        if (!same_group(all, i, first))
            continue;
        if (i < first)
            return false;
        memcpy(group->name[group->count], all->name[i], sizeof all->name[i]);
        group->rank[group->count] = all->rank[i];
        group->scale[group->count] = all->scale[i];
        group->section[group->count++] = all->section[i];
    }
    return true;
}

static tx_tensor *declare_a(const layer *l, const tx_lora_modules *m)
{
    char name[TX_WEIGHTS_NAME];
    tx_param_spec spec = {.shape = TX_SHAPE(m->count * m->rank[0], l->in),
                          .init = TX_INIT_UNIFORM,
                          .scale = (float)(1.0 / sqrt((double)l->in)),
                          .decay = true,
                          .split = l->by_inputs ? 2 : 0,
                          .apart = m->count > 1};
    tx_lora_name_of_a(m, 0, name);
    for (int32_t i = 0; i < m->count && m->count > 1; i++)
        spec.sections.size[spec.sections.count++] = m->rank[0];
    return declare(l, name, &spec);
}

/* The shape of B or of magnitudes of module i: its outputs, and columns if there are any. Tensor-parallel ranks divide
 * the outputs as those of the weight, in whole heads. */
static tx_param_spec spec_of_outputs(const layer *l, const tx_lora_modules *m, int32_t i, int64_t columns)
{
    const tx_param_sections *sections = &l->spec.sections;
    const int32_t dimension = l->inputs_first ? 1 : 0;
    const int64_t all = m->divided ? sections->size[m->section[i]] : l->spec.shape.dim[dimension];
    tx_param_spec spec = {
        .shape = columns ? TX_SHAPE(all, columns) : TX_SHAPE(all), .decay = true, .rate = l->lora->rate_of_b};
    if (l->by_outputs) {
        spec.split = 1;
        if (m->divided)
            spec.sections = (tx_param_sections){1, 0, {all}, {sections->unit[m->section[i]]}};
        else if (sections->dimension == dimension)
            spec.sections = *sections;
        spec.sections.dimension = 0;
    }
    if (!m->divided && l->spec.logical.rank) {
        spec.logical = spec.shape;
        spec.logical.dim[0] = l->spec.logical.dim[0];
    }
    return spec;
}

static tx_tensor *add(tx_tensor *sum, tx_tensor *part)
{
    return sum ? tx_add(sum, part) : part;
}

/* The B of each module, and its first output. */
typedef struct outputs {
    tx_tensor *b[TX_MAX_SECTIONS];
    int64_t first[TX_MAX_SECTIONS];
} outputs;

static void declare_b(const layer *l, const tx_lora_modules *m, outputs *o)
{
    for (int32_t i = 0; i < m->count; i++) {
        tx_param_spec spec = spec_of_outputs(l, m, i, m->rank[0]);
        o->b[i] = declare_part(l, m->name[i], "lora_B.weight", &spec);
        o->first[i] = m->divided ? l->first[m->section[i]] : 0;
    }
}

/* One B for all modules, times their scale, [out, modules * rank]. The rows of a module are nonzero only in its own
 * columns. */
static tx_tensor *place_b(const layer *l, const tx_lora_modules *m, const outputs *o)
{
    const float scale = (float)m->scale[0];
    if (m->divided)
        return tx_place_rows(m->count, o->b, o->first, l->out, m->rank[0], scale);
    return scale == 1.0f ? o->b[0] : tx_scale(o->b[0], scale);
}

/* ---- DoRA ------------------------------------------------------------------------------------------------ */

static bool is_adapted(const tx_lora_modules *m, int32_t section)
{
    for (int32_t i = 0; i < m->count; i++)
        if (m->section[i] == section)
            return true;
    return false;
}

/* Columns [n, 1] as parts of a vector [out], which is 0 elsewhere. NULL without parts. */
static tx_tensor *place(const layer *l, int32_t parts, tx_tensor *const *part, const int64_t *first)
{
    return parts ? tx_reshape(tx_place_rows(parts, part, first, l->out, 0, 1.0f), TX_SHAPE(l->out)) : NULL;
}

/* A vector [out] that is 1 for modules without an adapter. NULL if all have one. */
static tx_tensor *mark_others(const layer *l)
{
    tx_tensor *ones[TX_MAX_SECTIONS];
    int64_t first[TX_MAX_SECTIONS];
    int32_t count = 0;
    for (int32_t s = 0; l->modules.divided && s < l->spec.sections.count; s++)
        if (!is_adapted(&l->modules, s)) {
            ones[count] = tx_fill(l->graph, TX_SHAPE(l->first[s + 1] - l->first[s], 1), 1.0f);
            first[count++] = l->first[s];
        }
    return place(l, count, ones, first);
}

/* The bias, whose gradient is zero for modules without an adapter if only biases of adapted modules are trained. */
static tx_tensor *train_bias(const layer *l, tx_tensor *bias)
{
    tx_tensor *others = bias && strcmp(tx_lora_bias(l->lora), "lora_only") == 0 ? mark_others(l) : NULL;
    return others ? tx_add(bias, tx_mul(others, tx_add(tx_detach(bias), tx_scale(bias, -1.0f)))) : bias;
}

/* The factor of each output, [out]: magnitudes divided by the row norms of W + B A, which get no gradient (Liu et al.,
 * DoRA, 2024, section 4.3). It is 1 for modules that are not adapted. */
static tx_tensor *output_factors(const layer *l, tx_tensor *product)
{
    const tx_lora_modules *m = &l->modules;
    tx_tensor *norms =
        tx_reduce(tx_add(l->weight, product), TX_REDUCE_SUMSQ, l->inputs_first ? TX_AXIS_ROWS : TX_AXIS_LAST);
    tx_tensor *own[TX_MAX_SECTIONS], *others = mark_others(l);
    int64_t first[TX_MAX_SECTIONS];
    for (int32_t i = 0; i < m->count; i++) {
        tx_param_spec spec = spec_of_outputs(l, m, i, 0);
        spec.init = TX_INIT_ONE;
        own[i] = declare_part(l, m->name[i], TX_LORA_MAGNITUDE, &spec);
        first[i] = m->divided ? l->first[m->section[i]] : 0;
        if (own[i] && m->divided)
            own[i] = tx_reshape(own[i], TX_SHAPE(tx_tensor_shape(own[i])->dim[0], 1));
    }
    tx_tensor *magnitudes = m->divided ? place(l, m->count, own, first) : own[0];
    if (!magnitudes || !norms)
        return NULL;
    if (l->by_inputs)
        norms = tx_tp_all_reduce(norms);
    tx_tensor *scales = tx_mul(tx_reshape(magnitudes, TX_SHAPE(l->out)), tx_rsqrt(tx_detach(norms)));
    return others ? tx_add(scales, others) : scales;
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

/* ---- Training for blocks --------------------------------------------------------------------------------- */

/* Adds u - u to y: the forward pass reads merged and rounded weights, A and B get the gradients of u. Its input is
 * constant, since the gradient of y's input is that of the rounded weights. */
static tx_tensor *with_gradient_of(tx_tensor *y, tx_tensor *u)
{
    return tx_add(y, tx_add(u, tx_scale(tx_detach(u), -1.0f)));
}

/* Pass fake_quantize rounds the merged weights. */
static tx_tensor *adapt_rounded(const layer *l, tx_tensor *x)
{
    tx_lora_modules group;
    tx_tensor *u = NULL, *weight = l->weight, *constant = tx_detach(x);
    for (int32_t i = 0; i < l->modules.count; i++) {
        outputs o;
        if (!group_of(&l->modules, i, &group))
            continue;
        tx_tensor *a = declare_a(l, &group);
        declare_b(l, &group, &o);
        weight = tx_add_low_rank(weight, a, group.count, o.b, o.first, (float)group.scale[0], l->inputs_first);
        if (l->trains)
            u = add(u, tx_linear(tx_linear(constant, a, NULL, true), place_b(l, &group, &o), NULL, true));
    }
    tx_tensor *y = tx_linear(x, weight, l->bias, !l->inputs_first);
    return u ? with_gradient_of(y, u) : y;
}

/* ---- The layer ------------------------------------------------------------------------------------------- */

static tx_tensor *adapt(const layer *l, tx_tensor *x, tx_tensor *dropped)
{
    tx_lora_modules group;
    tx_tensor *u = NULL, *product = NULL;
    if (l->rounds)
        return adapt_rounded(l, x);
    for (int32_t i = 0; i < l->modules.count; i++) {
        outputs o;
        if (!group_of(&l->modules, i, &group))
            continue;
        tx_tensor *a = declare_a(l, &group), *b;
        declare_b(l, &group, &o);
        b = place_b(l, &group, &o);
        u = add(u, tx_linear(tx_linear(dropped, a, NULL, true), b, NULL, true));
        if (l->lora->dora)
            product = add(product, l->inputs_first ? tx_matmul(a, b, true, true) : tx_matmul(b, a, false, false));
    }
    if (l->lora->dora)
        return with_magnitudes(l, x, dropped, u, output_factors(l, product));
    return tx_add(tx_linear(x, l->weight, l->bias, !l->inputs_first), u);
}

/* This rank's outputs: those of all sections, or of the weight. */
static void set_sizes(layer *l, int32_t parts)
{
    const tx_param_sections *sections = &l->spec.sections;
    l->in = l->spec.shape.dim[l->inputs_first ? 0 : 1];
    l->out = tx_tensor_shape(l->weight)->dim[l->inputs_first ? 1 : 0];
    for (int32_t i = 0; i < sections->count; i++) {
        const int64_t part = l->by_outputs ? sections->size[i] / parts : sections->size[i];
        l->first[i + 1] = l->first[i] + tx_max(part, sections->unit[i]);
    }
}

tx_tensor *tx_lora_linear(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                          tx_tensor *x, tx_tensor *weight, tx_tensor *bias)
{
    layer l = {.graph = graph,
               .lora = config->lora,
               .weight = weight,
               .bias = bias,
               .rounds = config->rounding != NULL,
               .trains = options->train};
    char name[TX_ARCH_NAME];
    int32_t part;
    const int32_t parts = tx_graph_tp_size(graph, &part);
    if (!x || !weight)
        return NULL;
    tx_status status = tx_arch_param(config, index, name, &l.spec);
    l.inputs_first = !status && tx_arch_inputs_first(config, &l.spec);
    if (!status && (!l.lora || options->base))
        return tx_lora_bank_add(graph, config, index, x, tx_linear(x, weight, bias, !l.inputs_first));
    TX_THEN(status, tx_lora_modules_of(l.lora, config, index, &l.modules));
    if (!status && parts > 1 && l.modules.count && l.spec.logical.rank && !l.modules.embedding)
        status = tx_fail(TX_UNSUPPORTED, "%s: tensor parallelism does not support an adapter of the output head",
                         l.modules.name[0]);
    if (status) {
        tx_graph_fail(graph, status);
        return NULL;
    }
    if (l.modules.count == 0 || l.modules.embedding)
        return tx_linear(x, weight, bias, !l.inputs_first);
    l.by_outputs = parts > 1 && l.spec.split == (l.inputs_first ? 2 : 1);
    l.by_inputs = parts > 1 && l.spec.split && !l.by_outputs;
    set_sizes(&l, parts);
    if (options->train)
        l.bias = train_bias(&l, bias);
    const float dropout = options->train && !options->no_dropout ? (float)l.lora->dropout : 0.0f;
    if (l.by_inputs && dropout > 0.0f) {
        tx_graph_fail(graph, tx_fail(TX_UNSUPPORTED,
                                     "lora_dropout: tensor parallelism divides the inputs of %s: use 0, or leave the "
                                     "module out",
                                     l.modules.name[0]));
        return NULL;
    }
    return adapt(&l, x, tx_dropout(x, dropout, FIRST_SITE + index));
}

/* ---- Experts --------------------------------------------------------------------------------------------- */

/* Column k * count + e of B [out, rank * count] is column k of expert e's: returns these as [count, out, rank]. */
static tx_tensor *by_expert(int64_t count, int64_t rank, tx_tensor *b)
{
    const int64_t out = b ? tx_tensor_shape(b)->dim[0] : 0;
    b = b ? tx_transpose(tx_reshape(b, TX_SHAPE(1, out * rank, count, 1))) : NULL;
    return b ? tx_reshape(b, TX_SHAPE(count, out, rank)) : NULL;
}

/* A grouped product with an adapter. */
typedef struct grouped {
    tx_graph *graph;
    const tx_config *config;
    tx_lora_experts experts;
    tx_param_spec spec; /* of the weight */
    tx_tensor *x, *weight, *offsets;
    bool inputs_first, transpose, trains;
} grouped;

/* Declares A [count, rank, in] and B [count, out, rank] of this rank. Tensor-parallel ranks divide the inputs or the
 * outputs as those of the weight. */
static void declare_experts(const grouped *g, tx_tensor **a, tx_tensor **b)
{
    const tx_lora_experts *e = &g->experts;
    const int32_t dimension = g->inputs_first ? 2 : 1; /* of outputs */
    int32_t part;
    const bool divided = tx_graph_tp_size(g->graph, &part) > 1 && g->spec.split,
               by_outputs = divided && g->spec.split == dimension + 1;
    tx_param_spec of_a = {.shape = TX_SHAPE(e->count * e->rank, e->in),
                          .init = TX_INIT_UNIFORM,
                          .scale = (float)(1.0 / sqrt((double)e->in)),
                          .decay = true,
                          .split = divided && !by_outputs ? 2 : 0,
                          .experts = true,
                          .block = g->spec.block},
                  of_b = {.shape = TX_SHAPE(e->out, e->rank * e->count),
                          .decay = true,
                          .rate = g->config->lora->rate_of_b,
                          .split = by_outputs ? 1 : 0,
                          .experts = true,
                          .alternating = e->count,
                          .block = g->spec.block};
    if (by_outputs && g->spec.sections.dimension == dimension)
        of_b.sections = g->spec.sections;
    of_b.sections.dimension = 0;
    const int64_t count = tx_tensor_shape(g->weight)->dim[0];
    *a = declare_in(g->graph, divided, e->a, &of_a);
    *a = *a ? tx_reshape(*a, TX_SHAPE(count, e->rank, tx_tensor_shape(*a)->dim[1])) : NULL;
    *b = by_expert(count, e->rank, declare_in(g->graph, divided, e->b, &of_b));
}

static tx_tensor *adapt_experts(const grouped *g)
{
    const tx_lora_experts *e = &g->experts;
    const bool rounds = g->config->rounding != NULL;
    tx_tensor *weight = g->weight, *x = g->x, *a, *b;
    declare_experts(g, &a, &b);
    if (rounds) {
        weight = tx_add_low_rank(weight, a, 1, &b, &(int64_t){0}, (float)e->scale, g->inputs_first);
        x = tx_detach(x);
    }
    tx_tensor *y = tx_grouped_linear(g->x, weight, g->offsets, g->transpose);
    if (rounds && !g->trains)
        return y;
    tx_tensor *u = a && b ? tx_grouped_linear(tx_grouped_linear(x, a, g->offsets, true), b, g->offsets, true) : NULL;
    u = u && e->scale != 1.0 ? tx_scale(u, (float)e->scale) : u;
    return rounds ? with_gradient_of(y, u) : tx_add(y, u);
}

tx_tensor *tx_lora_grouped(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                           tx_tensor *x, tx_tensor *weight, tx_tensor *offsets, bool inputs_first)
{
    char name[TX_ARCH_NAME];
    if (!x || !weight)
        return NULL;
    grouped g = {.graph = graph,
                 .config = config,
                 .x = x,
                 .weight = weight,
                 .offsets = offsets,
                 .inputs_first = inputs_first,
                 /* Matrices in MXFP4 are [out, in] in every model (tx_param_spec.turned). */
                 .transpose = !inputs_first || tx_tensor_dtype(weight) == TX_MXFP4,
                 .trains = options->train};
    if (!config->lora || options->base)
        return tx_grouped_linear(x, weight, offsets, g.transpose);
    tx_status status = tx_lora_experts_of(config->lora, config, index, &g.experts);
    TX_THEN(status, tx_arch_param(config, index, name, &g.spec));
    if (status) {
        tx_graph_fail(graph, status);
        return NULL;
    }
    return g.experts.count ? adapt_experts(&g) : tx_grouped_linear(x, weight, offsets, g.transpose);
}

tx_tensor *tx_lora_embedding(tx_graph *graph, const tx_config *config, const tx_arch_options *options, int32_t index,
                             tx_tensor *tokens, tx_tensor *x)
{
    char name[TX_ARCH_NAME], part[TX_WEIGHTS_NAME];
    tx_param_spec spec;
    tx_lora_modules m;
    if (!x || !config->lora || options->base)
        return x;
    tx_status status = tx_arch_param(config, index, name, &spec);
    TX_THEN(status, tx_lora_modules_of(config->lora, config, index, &m));
    if (!status && m.count && config->lora->dora)
        status = tx_fail(TX_UNSUPPORTED, "%s: DoRA of embeddings cannot be trained: leave --use_dora out", m.name[0]);
    if (!status && m.count && config->rounding)
        status =
            tx_fail(TX_UNSUPPORTED, "%s: --qat does not support an adapter of an embedding: leave it out", m.name[0]);
    if (!status && m.count && tx_graph_sequence(graph))
        status =
            tx_fail(TX_UNSUPPORTED, "%s: sequence parallelism does not support an adapter of an embedding", m.name[0]);
    if (!status && m.count && spec.tied)
        status = tx_fail(TX_UNSUPPORTED, "%s: ensure_weight_tying: an adapter of a tied embedding cannot be trained",
                         m.name[0]);
    if (status) {
        tx_graph_fail(graph, status);
        return NULL;
    }
    if (m.count == 0 || !m.embedding)
        return x;
    const int64_t rank = m.rank[0], rows = spec.logical.dim[0], columns = spec.logical.dim[1];
    const float rate = config->lora->rate_of_embeddings;
    const tx_param_spec of_a = {.shape = TX_SHAPE(rank, rows), .decay = true, .rate = rate},
                        of_b = {.shape = TX_SHAPE(columns, rank),
                                .init = TX_INIT_NORMAL,
                                .scale = 1,
                                .decay = true,
                                .rate = rate};
    snprintf(part, sizeof part, "%.230s." TX_LORA_EMBEDDING_A, m.name[0]);
    tx_tensor *a = tx_param(graph, part, &of_a);
    snprintf(part, sizeof part, "%.230s." TX_LORA_EMBEDDING_B, m.name[0]);
    tx_tensor *b = tx_param(graph, part, &of_b);
    tx_tensor *table =
        a ? tx_reshape(tx_transpose(tx_reshape(a, TX_SHAPE(1, rank, rows, 1))), TX_SHAPE(rows, rank)) : NULL;
    tx_tensor *u = tx_linear(tx_embedding_padded(tokens, table, -1, NULL, NULL), b, NULL, true);
    return u ? tx_add(x, tx_scale(u, (float)m.scale[0])) : NULL;
}
