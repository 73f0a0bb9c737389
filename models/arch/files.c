/* SPDX-License-Identifier: Apache-2.0
 * Loading, checking and saving the weights of a Hugging Face model folder. */
#include "models/arch/wrapper.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"

#include "api/base/file.h"
#include "models/files/quantized.h"
#include "models/files/scaled.h"
#include "models/files/stacked.h"
#include "models/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements per comparison. */
#define CHUNK 4096

tx_status tx_arch_check_tied(const tx_weights *weights, const char *head, const char *embedding)
{
    float one[CHUNK], other[CHUNK];
    const int32_t h = tx_weights_find(weights, NULL, head), e = tx_weights_find(weights, NULL, embedding);
    if (h < 0 || e < 0)
        return TX_OK;
    const int64_t count = tx_st_elements(tx_weights_tensor_at(weights, h));
    bool same = count == tx_st_elements(tx_weights_tensor_at(weights, e));
    for (int64_t at = 0; at < count && same; at += CHUNK) {
        const int64_t now = count - at < CHUNK ? count - at : CHUNK;
        TX_TRY(tx_weights_read_f32(weights, h, at, now, one));
        TX_TRY(tx_weights_read_f32(weights, e, at, now, other));
        same = memcmp(one, other, (size_t)now * sizeof one[0]) == 0;
    }
    if (!same)
        return tx_fail(TX_UNSUPPORTED, "%s: %s differs from %s, but the configuration ties them",
                       tx_weights_path(weights), head, embedding);
    return TX_OK;
}

/* Older folders of modelopt describe the weights in a file of their own. Closes `*weights` on failure. */
static tx_status open_modelopt(const char *folder, tx_weights **weights)
{
    const char *path = TX_PATH(folder, "hf_quant_config.json");
    tx_json *json = NULL, *settings;
    if (!tx_file_exists(path))
        return TX_OK;
    tx_status status = tx_json_read(path, (int64_t)16 << 20, &json);
    TX_THEN(status, tx_json_get(json, "quantization", TX_JSON_OBJECT, &settings));
    if (status)
        tx_weights_close(*weights);
    else
        status = tx_scaled_open(settings, weights);
    tx_json_free(json);
    return status;
}

/* The settings of quantized weights, which those of a wrapper's text may hold; or NULL. */
static const tx_json *quantization_of(const tx_json *config)
{
    static const char key[] = "quantization_config";
    const tx_json *text = tx_json_find(config, "text_config");
    const bool inner = text && tx_json_type_of(text) == TX_JSON_OBJECT && tx_json_has(text, key);
    return tx_json_has(config, key) ? tx_json_find(config, key) : inner ? tx_json_find(text, key) : NULL;
}

tx_status tx_arch_open_weights(const char *folder, tx_weights **weights)
{
    const int64_t limit = (int64_t)16 << 20;
    tx_json *config = NULL;
    if (tx_gguf_is_name(folder))
        return tx_gguf_weights(folder, weights);
    TX_TRY(tx_weights_open(folder, weights));
    const char *path = TX_PATH(folder, "config.json");
    if (!tx_file_exists(path))
        return TX_OK;
    tx_status status = tx_json_read(path, limit, &config);
    if (status)
        tx_weights_close(*weights);
    else if (quantization_of(config))
        status = tx_quantized_open(quantization_of(config), weights);
    else
        status = open_modelopt(folder, weights);
    if (!status && tx_wrapper_stacks(config))
        status = tx_stacked_open(weights);
    tx_json_free(config);
    return status;
}

static tx_status check_values(const tx_config *config, const tx_weights *weights)
{
    const tx_architecture *row = config->architecture;
    return row->check_weights ? row->check_weights(config, weights) : TX_OK;
}

static void rename_tensor(const void *context, const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const tx_config *config = context;
    char own[TX_WEIGHTS_NAME] = "", text[TX_WEIGHTS_NAME];
    if (!config->wrapped)
        config->architecture->rename(config, tensor, own);
    else if (tx_wrapper_rename(config->wrapped, tensor, text))
        config->architecture->rename(config, text, own);
    const bool named = config->teacher && own[0];
    snprintf(param, TX_WEIGHTS_NAME, "%s%.*s", named ? config->teacher : "", TX_WEIGHTS_NAME / 2, own);
}

static bool may_lack(const void *context, const char *piece)
{
    const tx_config *config = context;
    /* A frozen new parameter would be saved in no file. */
    return config->new_head && config->architecture->is_of_head && config->architecture->is_of_head(piece) &&
           (!config->lora || tx_lora_saves(config->lora, piece));
}

/* True for parameters that other files hold: those that an adapter adds, and those of other models. */
static bool is_elsewhere(const void *context, const char *param)
{
    const tx_config *config = context;
    const bool own = config->teacher ? tx_begins_with(param, config->teacher) : !tx_weights_of_teacher(param);
    return !own || tx_lora_adds(param);
}

/* An output head that the file lacks is a copy of the embedding. */
static bool stand_in(const void *context, const char *piece, char other[TX_WEIGHTS_NAME])
{
    const tx_config *config = context;
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    bool is_head = false, found = false;
    for (int32_t p = 0; p < tx_arch_params(config) && config->stand_in; p++) {
        if (tx_arch_param(config, p, name, &spec))
            return false;
        if (spec.logical.rank == 2 && spec.block == 0) {
            snprintf(other, TX_WEIGHTS_NAME, "%s", name);
            found = true;
        }
        is_head = is_head || (spec.logical.rank == 2 && spec.block == -1 && strcmp(name, piece) == 0);
    }
    return found && is_head;
}

tx_weights_names tx_arch_names(const tx_config *config)
{
    return (tx_weights_names){.rename = rename_tensor,
                              .context = config,
                              .may_lack = may_lack,
                              .is_elsewhere = is_elsewhere,
                              .stand_in = config->stand_in ? stand_in : NULL,
                              .grown_from = config->grown_from,
                              .grown_to = config->vocab_size,
                              .other_shape_is_missing = config->other_head_shape};
}

/* The model's graph must match the configuration. */
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
    return tx_fail_in(status, "the model was not built from this configuration");
}

/* Warns of tensors that are not read. */
static void report_left_out(const tx_config *config, const tx_weights *weights, const tx_reporter *report)
{
    const tx_architecture *row = config->architecture;
    const char *first = NULL;
    int32_t count = 0;
    for (int32_t i = 0; row->leaves_out && i < tx_weights_count(weights); i++) {
        const char *name = tx_weights_tensor_at(weights, i)->name;
        if (!row->leaves_out(config, name))
            continue;
        first = first ? first : name;
        count++;
    }
    if (count > 0)
        tx_reporter_print(report,
                          "%s: %" PRId32 " tensors of multi-token prediction (%.80s, ..) are neither read nor saved",
                          tx_weights_path(weights), count, first);
}

tx_status tx_arch_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options)
{
    const tx_weights_names names = tx_arch_names(config);
    tx_weights *weights;
    TX_TRY(check_model(model, config));
    TX_TRY(tx_arch_open_weights(folder, &weights));
    tx_status status = check_values(config, weights);
    TX_THEN(status, tx_weights_load(weights, model, &names, options));
    if (!status && options)
        report_left_out(config, weights, options->report);
    tx_weights_close(weights);
    return status;
}

tx_status tx_arch_check(const tx_config *config, const char *folder)
{
    const tx_weights_names names = tx_arch_names(config);
    tx_weights *weights = NULL;
    tx_weights_piece *pieces = NULL;
    int32_t count = 0;
    TX_TRY(tx_config_check(config));
    TX_TRY(tx_arch_open_weights(folder, &weights));
    tx_status status = tx_arch_pieces(config, &pieces, &count);
    TX_THEN(status, check_values(config, weights));
    TX_THEN(status, tx_weights_check(weights, pieces, count, &names));
    free(pieces);
    tx_weights_close(weights);
    return status;
}

tx_status tx_arch_save(tx_model *model, const tx_config *config, const char *folder)
{
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(check_model(model, config));
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_model_param(model, 0, &name, &spec));
    TX_TRY(tx_wrapper_check(config));
    TX_TRY(tx_wrapper_keeps(config) ? tx_wrapper_save(model, config->wrapped, folder)
                                    : tx_weights_save(model, folder, TX_WEIGHTS_SHARD));
    return tx_config_write(config, tx_dtype_packed(spec->dtype) ? TX_F32 : spec->dtype, TX_PATH(folder, "config.json"));
}
