/* SPDX-License-Identifier: Apache-2.0
 * Weights from and to a Hugging Face model folder. */
#include "models/arch/gguf.h"
#include "models/arch/lora.h"

#include "api/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements that are compared at a time. */
#define CHUNK 4096

static int32_t find(const tx_weights *w, const char *name)
{
    for (int32_t i = 0; i < tx_weights_count(w); i++)
        if (strcmp(tx_weights_tensor_at(w, i)->name, name) == 0)
            return i;
    return -1;
}

tx_status tx_arch_check_tied(const tx_weights *weights, const char *head, const char *embedding)
{
    float one[CHUNK], other[CHUNK];
    const int32_t h = find(weights, head), e = find(weights, embedding);
    if (h < 0 || e < 0)
        return TX_OK;
    const int64_t count = tx_st_elements(tx_weights_tensor_at(weights, h));
    bool same = count == tx_st_elements(tx_weights_tensor_at(weights, e));
    for (int64_t at = 0; at < count && same; at += CHUNK) {
        const int64_t now = count - at < CHUNK ? count - at : CHUNK;
        tx_status status = tx_weights_read_f32(weights, h, at, now, one);
        TX_THEN(status, tx_weights_read_f32(weights, e, at, now, other));
        if (status)
            return status;
        same = memcmp(one, other, (size_t)now * sizeof one[0]) == 0;
    }
    if (!same)
        return tx_fail(TX_UNSUPPORTED, "%s: %s differs from %s: the configuration says that they are one",
                       tx_weights_path(weights), head, embedding);
    return TX_OK;
}

tx_status tx_arch_open_weights(const char *folder, tx_weights **weights)
{
    return tx_gguf_is_name(folder) ? tx_gguf_weights(folder, weights) : tx_weights_open(folder, weights);
}

static tx_status check_values(const tx_config *config, const tx_weights *weights)
{
    const tx_architecture *row = config->architecture;
    return row->check_weights ? row->check_weights(config, weights) : TX_OK;
}

static void rename_tensor(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const tx_config *config = context;
    char own[TX_WEIGHTS_NAME];
    config->architecture->rename(config, tensor, own);
    const bool named = config->teacher && own[0];
    snprintf(param, TX_WEIGHTS_NAME, "%s%.*s", named ? TX_WEIGHTS_TEACHER : "", TX_WEIGHTS_NAME / 2, own);
}

static bool may_lack(const void *context, const char *piece)
{
    const tx_config *config = context;
    /* What is frozen and new would be in no file. */
    return config->new_head && config->architecture->is_of_head(piece) &&
           (!config->lora || tx_lora_saves(config->lora, piece));
}

/* What an adapter adds to the model; and the teacher's where the model's own are read, and the other way round. */
static bool is_elsewhere(const void *context, const char *param)
{
    const tx_config *config = context;
    return config->teacher != tx_weights_of_teacher(param) || (config->lora && tx_lora_adds(param));
}

static tx_weights_names names_of(const tx_config *config)
{
    return (tx_weights_names){rename_tensor, config, may_lack, is_elsewhere, config->other_head_shape};
}

/* The graph that was built must be the one that the configuration describes. */
static tx_status check_model(const tx_model *model, const tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    int32_t index;
    tx_status status = tx_config_check(config);
    for (int32_t i = 0; i < tx_arch_params(config) && !status; i++) {
        status = tx_arch_param(config, i, name, &spec);
        TX_THEN(status, tx_model_find(model, name, &index));
    }
    return status ? tx_fail_in(status, "the model has not been built from this configuration") : TX_OK;
}

tx_status tx_arch_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options)
{
    tx_status status = check_model(model, config);
    if (status)
        return status;
    tx_weights *weights;
    status = tx_arch_open_weights(folder, &weights);
    if (status)
        return status;
    const tx_weights_names names = names_of(config);
    status = check_values(config, weights);
    TX_THEN(status, tx_weights_load(weights, model, &names, options));
    tx_weights_close(weights);
    return status;
}

/* The tensors that the configuration asks for; with `pieces` NULL how many they are. */
static tx_status list_pieces(const tx_config *config, tx_weights_piece *pieces, int32_t params, int32_t *count)
{
    tx_status status = TX_OK;
    *count = 0;
    for (int32_t i = 0; i < params && !status; i++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        status = tx_arch_param(config, i, name, &spec);
        if (!status)
            *count += pieces ? tx_weights_pieces(name, &spec, i, INT32_MAX, pieces + *count)
                             : tx_weights_piece_count(name, &spec);
    }
    return status;
}

tx_status tx_arch_check(const tx_config *config, const char *folder)
{
    tx_status status = tx_config_check(config);
    tx_weights *weights = NULL;
    TX_THEN(status, tx_arch_open_weights(folder, &weights));
    if (status)
        return status;
    int32_t params = tx_arch_params(config), count = 0;
    tx_weights_piece *pieces = NULL;
    status = list_pieces(config, NULL, params, &count);
    TX_THEN(status, (pieces = malloc((size_t)count * sizeof *pieces))
                        ? list_pieces(config, pieces, params, &count)
                        : tx_fail(TX_MEMORY, "%s: no memory for the list of parameters", folder));
    TX_THEN(status, check_values(config, weights));
    const tx_weights_names names = names_of(config);
    TX_THEN(status, tx_weights_check(weights, pieces, count, &names));
    free(pieces);
    tx_weights_close(weights);
    return status;
}

tx_status tx_arch_save(tx_model *model, const tx_config *config, const char *folder)
{
    const char *name;
    const tx_param_spec *spec;
    tx_status status = check_model(model, config);
    TX_THEN(status, tx_folder_create(folder));
    TX_THEN(status, tx_model_param(model, 0, &name, &spec));
    if (status)
        return status;
    char *json = tx_path_join(folder, "config.json");
    status = json ? tx_weights_save(model, folder, TX_WEIGHTS_SHARD) : TX_MEMORY;
    TX_THEN(status, tx_config_write(config, spec->dtype, json));
    free(json);
    return status;
}
