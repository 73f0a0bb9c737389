/* SPDX-License-Identifier: Apache-2.0
 * GPT-2's weights from and to a Hugging Face model folder. */
#include "models/gpt2.h"

#include "api/base/file.h"
#include "models/files/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "transformer."
#define HEAD "lm_head.weight"
#define EMBEDDING "wte.weight"
/* Elements that are compared at a time. */
#define CHUNK 4096

static const char *without_prefix(const char *name)
{
    size_t length = strlen(PREFIX);
    return strncmp(name, PREFIX, length) == 0 ? name + length : name;
}

/* The causal masks that old files carry: h.<layer>.attn.bias and h.<layer>.attn.masked_bias. */
static bool is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0)
        return false;
    name += 2;
    name += strspn(name, "0123456789");
    return strcmp(name, ".attn.bias") == 0 || strcmp(name, ".attn.masked_bias") == 0;
}

/* A tx_weights_rename. The published gpt2 has no prefix. */
static void rename_tensor(const char *tensor, char param[TX_WEIGHTS_NAME])
{
    const char *name = without_prefix(tensor);
    if (is_mask(name) || strcmp(name, HEAD) == 0)
        param[0] = '\0';
    else
        snprintf(param, TX_WEIGHTS_NAME, PREFIX "%s", name);
}

static int32_t find(const tx_weights *w, const char *name)
{
    for (int32_t i = 0; i < tx_weights_count(w); i++)
        if (strcmp(without_prefix(tx_weights_tensor_at(w, i)->name), name) == 0)
            return i;
    return -1;
}

/* A head that is stored must be the token embedding, to the bit of its fp32 values: only a tied head is
 * implemented. */
static tx_status check_head(const tx_weights *w)
{
    float head[CHUNK], embedding[CHUNK];
    int32_t h = find(w, HEAD), e = find(w, EMBEDDING);
    if (h < 0 || e < 0)
        return TX_OK;
    int64_t count = tx_st_elements(tx_weights_tensor_at(w, h));
    bool same = count == tx_st_elements(tx_weights_tensor_at(w, e));
    for (int64_t at = 0; at < count && same; at += CHUNK) {
        int64_t now = count - at < CHUNK ? count - at : CHUNK;
        tx_status status = tx_weights_read_f32(w, h, at, now, head);
        if (!status)
            status = tx_weights_read_f32(w, e, at, now, embedding);
        if (status)
            return status;
        same = memcmp(head, embedding, (size_t)now * sizeof head[0]) == 0;
    }
    if (!same)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: " HEAD " differs from " EMBEDDING ": an output head of its own is not implemented",
                       tx_weights_path(w));
    return TX_OK;
}

/* The graph that was built must be the one that the configuration describes. */
static tx_status check_model(const tx_model *model, const tx_gpt2_config *config)
{
    char name[TX_GPT2_NAME];
    tx_param_spec spec;
    int32_t index;
    tx_status status = tx_gpt2_config_check(config);
    for (int32_t i = 0; i < tx_gpt2_params(config) && !status; i++) {
        status = tx_gpt2_param(config, i, name, &spec);
        if (!status)
            status = tx_model_find(model, name, &index);
    }
    return status ? tx_fail_in(status, "the model has not been built from this GPT-2 configuration") : TX_OK;
}

tx_status tx_gpt2_load(tx_model *model, const tx_gpt2_config *config, const char *folder,
                       const tx_load_options *options)
{
    tx_status status = check_model(model, config);
    if (status)
        return status;
    tx_weights *weights;
    status = tx_weights_open(folder, &weights);
    if (status)
        return status;
    status = check_head(weights);
    if (!status)
        status = tx_weights_load(weights, model, rename_tensor, options);
    tx_weights_close(weights);
    return status;
}

/* The parameters that the configuration asks for; `names` holds their names. */
static tx_status list_params(const tx_gpt2_config *config, tx_weights_param *params, char (*names)[TX_GPT2_NAME],
                             int32_t count)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < count && !status; i++) {
        tx_param_spec spec;
        status = tx_gpt2_param(config, i, names[i], &spec);
        params[i] = (tx_weights_param){names[i], spec.logical.rank ? spec.logical : spec.shape};
    }
    return status;
}

tx_status tx_gpt2_check(const tx_gpt2_config *config, const char *folder)
{
    tx_status status = tx_gpt2_config_check(config);
    tx_weights *weights = NULL;
    if (!status)
        status = tx_weights_open(folder, &weights);
    if (status)
        return status;
    int32_t count = tx_gpt2_params(config);
    tx_weights_param *params = malloc((size_t)count * sizeof *params);
    char(*names)[TX_GPT2_NAME] = malloc((size_t)count * sizeof *names);
    status = params && names ? list_params(config, params, names, count)
                             : tx_fail(TX_MEMORY, "%s: no memory for the list of parameters", folder);
    if (!status)
        status = check_head(weights);
    if (!status)
        status = tx_weights_check(weights, params, count, rename_tensor);
    free(params);
    free(names);
    tx_weights_close(weights);
    return status;
}

tx_status tx_gpt2_save(tx_model *model, const tx_gpt2_config *config, const char *folder)
{
    tx_status status = check_model(model, config);
    if (!status)
        status = tx_folder_create(folder);
    if (status)
        return status;
    char *json = tx_path_join(folder, "config.json");
    status = json ? tx_weights_save(model, folder, TX_WEIGHTS_SHARD) : TX_MEMORY;
    if (!status)
        status = tx_gpt2_config_write(config, json);
    free(json);
    return status;
}
