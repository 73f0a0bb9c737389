/* SPDX-License-Identifier: Apache-2.0
 * Adapters of experts' matrices, as peft's target_parameters: one A and one B for all experts of a layer. */
#include "models/lora/lora.h"

#include "api/base/arithmetic.h"
#include "api/base/low_rank.h"

#include <stdio.h>
#include <string.h>

#define EXPERTS ".experts."
#define GATE_UP "gate_up_proj"
#define DOWN "down_proj"
/* In files Mixtral's layers of experts have another name than its module. */
#define MIXTRAL_LAYER "block_sparse_moe"

/* Writes the module of the experts in a parameter, and its name there. Returns false for other parameters. */
static bool name_of(const char *param, const tx_param_spec *spec, char module[TX_WEIGHTS_NAME], const char **name)
{
    const char *at = strstr(param, EXPERTS);
    if (!at || spec->shape.rank != 3 || !spec->experts)
        return false;
    const char *rest = at + strlen(EXPERTS);
    size_t length = (size_t)(at - param);
    const size_t mixtral = strlen(MIXTRAL_LAYER);
    const bool renamed = length > mixtral && strncmp(at - mixtral, MIXTRAL_LAYER, mixtral) == 0;
    length -= renamed ? mixtral : 0;
    snprintf(module, TX_WEIGHTS_NAME, "%.*s%s.experts", (int)length, param, renamed ? "mlp" : "");
    *name = strchr(rest, '|') || strcmp(rest, GATE_UP) == 0 ? GATE_UP : DOWN;
    return true;
}

/* Whether the list has a parameter of a module. */
static bool is_target(const char *list, const char *module, const char *name)
{
    char key[TX_WEIGHTS_NAME];
    snprintf(key, sizeof key, "%.220s.%s", module, name);
    return tx_lora_is_listed(list, key, tx_lora_ends_with);
}

tx_status tx_lora_experts_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_experts *experts)
{
    char param[TX_ARCH_NAME], module[TX_WEIGHTS_NAME], key[TX_WEIGHTS_NAME];
    const char *name;
    tx_param_spec spec;
    *experts = (tx_lora_experts){0};
    TX_TRY(config->architecture->param(config, index, param, &spec));
    if (!lora->parameters || !name_of(param, &spec, module, &name) || !is_target(lora->parameters, module, name))
        return TX_OK;
    /* Matrices that files hold one by one are [out, in]. */
    experts->inputs_first = !strchr(param, '*');
    experts->count = spec.shape.dim[0];
    experts->in = spec.shape.dim[experts->inputs_first ? 1 : 2];
    experts->out = spec.shape.dim[experts->inputs_first ? 2 : 1];
    snprintf(key, sizeof key, "%.220s.%s", module, name);
    TX_TRY(tx_lora_rank_of(lora, key, &experts->rank, &experts->scale));
    /* peft wraps a module once for each parameter: the first one, gate_up_proj, is inside. */
    const char *inside = strcmp(name, GATE_UP) == 0 && is_target(lora->parameters, module, DOWN) ? TX_LORA_INSIDE : "";
    snprintf(experts->a, TX_WEIGHTS_NAME, "%.200s%s.lora_A.weight", module, inside);
    snprintf(experts->b, TX_WEIGHTS_NAME, "%.200s%s.lora_B.weight", module, inside);
    return TX_OK;
}

/* Fails if a name of the list matches no parameter. */
tx_status tx_lora_check_experts(const tx_lora *lora, const tx_config *config, bool *some)
{
    char param[TX_ARCH_NAME], module[TX_WEIGHTS_NAME];
    const char *word = lora->parameters;
    *some = false;
    for (size_t length; word && (length = tx_lora_first_name(&word)) > 0; word += length) {
        char one[TX_WEIGHTS_NAME];
        snprintf(one, sizeof one, "%.*s", (int)length, word);
        bool found = false;
        for (int32_t p = 0; p < config->architecture->params(config) && !found; p++) {
            const char *name;
            tx_param_spec spec;
            TX_TRY(config->architecture->param(config, p, param, &spec));
            found = name_of(param, &spec, module, &name) && is_target(one, module, name);
        }
        if (!found)
            return tx_fail(TX_UNSUPPORTED,
                           "target parameter %s: the %s has none that TX adapts: those are mlp.experts." GATE_UP
                           " and mlp.experts." DOWN " of mixtures",
                           one, config->architecture->type);
        *some = true;
    }
    if (*some && (lora->dora || lora->dropout > 0.0 || tx_lora_takes_principal(lora)))
        return tx_fail(TX_UNSUPPORTED, "target parameters: peft supports them only without DoRA, lora_dropout and "
                                       "init_lora_weights: leave these out");
    return TX_OK;
}

/* The experts' matrices of the same module follow the router. */
bool tx_lora_is_router(const tx_config *config, int32_t index, const char *name)
{
    static const char experts[] = "experts.";
    const char *module = strrchr(name, '.');
    while (module && module > name && module[-1] != '.')
        module--;
    const size_t length = module ? (size_t)(module - name) : 0;
    for (int32_t i = index + 1; i <= index + 2 && i < config->architecture->params(config) && length; i++) {
        char next[TX_ARCH_NAME];
        tx_param_spec spec;
        if (!config->architecture->param(config, i, next, &spec) && spec.experts && strncmp(next, name, length) == 0 &&
            strncmp(next + length, experts, sizeof experts - 1) == 0)
            return true;
    }
    return false;
}

/* ---- Merging --------------------------------------------------------------------------------------------- */

void tx_lora_sort_experts(const tx_lora_experts *e, const float *b, float *sorted)
{
    for (int64_t o = 0; o < e->out; o++)
        for (int64_t k = 0; k < e->rank; k++)
            for (int64_t x = 0; x < e->count; x++)
                sorted[(x * e->rank + k) * e->out + o] = b[(o * e->rank + k) * e->count + x];
}

void tx_lora_add_expert(const tx_lora_experts *e, const float *a, const float *b, int64_t expert, int64_t first,
                        int64_t count, float *weight)
{
    const int64_t rows = e->inputs_first ? e->in : e->out, columns = e->inputs_first ? e->out : e->in;
    const tx_low_rank product = {.left = (e->inputs_first ? a : b) + expert * e->rank * rows,
                                 .right = (e->inputs_first ? b : a) + expert * e->rank * columns,
                                 .row_step = 1,
                                 .left_step = rows,
                                 .column_step = 1,
                                 .right_step = columns,
                                 .rank = e->rank,
                                 .scale = (float)e->scale};
    for (int64_t at = first, now; at < first + count; at += now, weight += now) {
        now = tx_min(columns - at % columns, first + count - at);
        tx_low_rank_add(&product, at / columns, at % columns, now, weight);
    }
}
