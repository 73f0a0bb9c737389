/* SPDX-License-Identifier: Apache-2.0
 * Operations common to all architectures: look-up by type, parameters, counts and logits. */
#include "models/arch/wrapper.h"

#include "api/base/arithmetic.h"
#include "models/lora/lora.h"
#include "models/names.h"
#include "models/tx_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tx_absent_type tx_absent_types[] = {
#define X(type, lacks) {type, lacks},
#include "models/arch/absent.def"
#undef X
    {.type = NULL}};

/* Appends a type to a list if the name is similar, or begins with it. `last` is the type before. */
static void add_near(const char *type, const char *has, char *near, size_t room, const char **last)
{
    const char *nearest = NULL;
    tx_name_compare(type, has, &(size_t){strlen(type) / 3 + 1}, &nearest);
    if ((nearest || tx_begins_with(type, has)) && strcmp(*last, has) != 0)
        tx_list_add(near, room, " or ", "\"%s\"", *last = has);
}

tx_status tx_architecture_find(const char *type, const tx_architecture **architecture)
{
    char near[256] = "";
    const char *last = "";
    for (const tx_architecture *const *a = tx_architectures; *a; a++) {
        if (strcmp((*a)->type, type) == 0) {
            *architecture = *a;
            return TX_OK;
        }
        add_near(type, (*a)->type, near, sizeof near, &last);
    }
    for (const tx_absent_type *absent = tx_absent_types; absent->type; absent++)
        if (tx_begins_with(type, absent->type) &&
            (!type[strlen(absent->type)] || strcmp(type + strlen(absent->type), "_text") == 0))
            return tx_fail(TX_UNSUPPORTED,
                           "model_type: \"%.40s\": TX has no such type, because it lacks %s; "
                           "docs/reference/features.md lists all",
                           type, absent->lacks);
    for (const tx_wrapper *w = tx_wrappers; w->type; w++)
        add_near(type, w->type, near, sizeof near, &last);
    return tx_fail(TX_UNSUPPORTED,
                   "model_type: \"%.40s\": TX has no such type%s%s; docs/reference/features.md lists all", type,
                   *near ? ", but " : "", near);
}

int64_t tx_arch_padded_vocab(const tx_config *config)
{
    return tx_round_up(config->vocab_size, TX_VOCAB_MULTIPLE);
}

int32_t tx_arch_params(const tx_config *config)
{
    return config->architecture->params(config);
}

bool tx_arch_inputs_first(const tx_config *config, const tx_param_spec *spec)
{
    return config->architecture->inputs_first && spec->logical.rank == 0 && !spec->turned;
}

/* Makes the last dimension of matrices that of inputs, along which blocks of values run. */
static void turn(tx_param_spec *spec)
{
    tx_weights_turn(&spec->shape);
    spec->turned = true;
}

tx_status tx_arch_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec)
{
    const int32_t count = tx_arch_params(config);
    if (index < 0 || index >= count)
        return tx_fail(TX_INVALID, "parameter index %d is out of range: the model has %d parameters", index, count);
    TX_TRY(config->architecture->param(config, index, name, spec));
    if (config->lora)
        tx_lora_freeze(config->lora, name, spec);
    /* Experts' matrices have rank 3, their biases rank 2. */
    const bool linear = spec->shape.rank == (spec->experts ? 3 : 2) && !spec->table;
    const tx_dtype packed = spec->experts ? config->packed_experts : config->packed;
    if (packed != TX_F32 && linear && (spec->experts || !tx_lora_is_router(config, index, name)) &&
        (spec->frozen || !config->lora)) {
        spec->frozen = true;
        spec->dtype = packed;
        if (packed == TX_MXFP4 && !strchr(name, '*')) /* files that hold all experts in one tensor have inputs first */
            turn(spec);
    }
    if (config->blocks && config->blocks[index] != TX_F32) {
        spec->frozen = true;
        spec->dtype = config->blocks[index];
        if (linear && !spec->experts && tx_arch_inputs_first(config, spec)) {
            turn(spec);
            spec->sections.dimension = 1 - spec->sections.dimension;
            spec->split = spec->split ? 3 - spec->split : 0;
        }
    }
    if (config->rounding)
        spec->rounding = config->rounding[index];
    if (config->teacher) {
        char own[TX_ARCH_NAME];
        memcpy(own, name, sizeof own);
        snprintf(name, TX_ARCH_NAME, "%s%.*s", config->teacher, TX_ARCH_NAME - (int)strlen(config->teacher) - 1, own);
        spec->frozen = true;
        spec->dtype = spec->shape.rank > 1 ? config->teacher_dtype : TX_F32;
    }
    return TX_OK;
}

static tx_status fill_pieces(const tx_config *config, tx_weights_piece *pieces, int32_t *count)
{
    *count = 0;
    for (int32_t i = 0; i < tx_arch_params(config); i++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        TX_TRY(tx_arch_param(config, i, name, &spec));
        *count += pieces ? tx_weights_pieces(name, &spec, i, INT32_MAX, pieces + *count)
                         : tx_weights_piece_count(name, &spec);
    }
    return TX_OK;
}

tx_status tx_arch_pieces(const tx_config *config, tx_weights_piece **pieces, int32_t *count)
{
    TX_TRY(fill_pieces(config, NULL, count));
    tx_weights_piece *created = malloc(((size_t)*count + 1) * sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    const tx_status status = fill_pieces(config, created, count);
    return TX_RETURN(status, created, pieces, free);
}

int64_t tx_arch_param_count(const tx_config *config)
{
    int64_t total = 0;
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    for (int32_t i = 0; i < tx_arch_params(config) && !tx_arch_param(config, i, name, &spec); i++)
        total += tx_shape_count(spec.logical.rank ? &spec.logical : &spec.shape);
    return total;
}

const char *tx_config_bound(const tx_config *config, char text[TX_ARCH_NAME])
{
    const bool has = config->bound != NULL;
    snprintf(text, TX_ARCH_NAME, "%s%s%s", has ? " (" : "", has ? config->bound : "", has ? ")" : "");
    return text;
}

int64_t tx_arch_pairs(const tx_config *config)
{
    return config->architecture->rates ? config->architecture->rates(config, 1, NULL) : 0;
}

bool tx_arch_set_rates(const tx_config *config, int64_t length, float *rates)
{
    float now[TX_MAX_ROTARY / 2];
    const int64_t pairs = tx_arch_pairs(config);
    if (!pairs)
        return false;
    config->architecture->rates(config, length, now);
    const size_t bytes = (size_t)pairs * sizeof *now;
    const bool changes = memcmp(rates, now, bytes) != 0;
    memcpy(rates, now, bytes);
    return changes;
}

bool tx_arch_recurs(const tx_config *config)
{
    return config->architecture->recurs && config->architecture->recurs(config);
}

int64_t tx_arch_columns(const tx_config *config)
{
    switch (config->architecture->head) {
    case TX_HEAD_SEQUENCE_CLASSIFICATION:
    case TX_HEAD_TOKEN_CLASSIFICATION:
        return config->labels;
    case TX_HEAD_MULTIPLE_CHOICE:
        return 1;
    case TX_HEAD_QUESTION_ANSWERING:
        return 2;
    case TX_HEAD_STATES:
        return config->width;
    default:
        return config->vocab_size;
    }
}

double tx_arch_flops(const tx_config *config)
{
    const tx_architecture *row = config->architecture;
    const int64_t embeddings = row->embeddings ? row->embeddings(config) : 0;
    const int64_t inactive = row->inactive ? row->inactive(config) : 0;
    return 6.0 * (double)(tx_arch_param_count(config) - embeddings - inactive);
}

tx_tensor *tx_arch_noise(tx_graph *graph, tx_tensor *x, const tx_arch_options *options)
{
    const int32_t site = INT32_MAX; /* no dropout of the model uses this site */
    if (!x || !options->train || options->noise <= 0.0f)
        return x;
    const tx_shape *tokens = tx_tensor_shape(tx_find_input(graph, "input_ids")), *shape = tx_tensor_shape(x);
    int32_t chunk; /* context parallelism: a rank has a slice of the positions of a row */
    const int64_t row = tokens->dim[1] * tx_graph_cp_size(graph, &chunk) * shape->dim[2];
    return tx_noise(x, options->noise / sqrtf((float)row), site);
}

tx_tensor *tx_arch_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options)
{
    static const tx_arch_options evaluation = {.size = sizeof evaluation};
    return config->architecture->logits(graph, config, options ? options : &evaluation);
}
