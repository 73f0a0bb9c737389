/* SPDX-License-Identifier: Apache-2.0
 * Weights from and to a Hugging Face model folder. */
#include "models/arch/arch.h"

#include "api/base/file.h"

#include <stdlib.h>

static tx_status check_values(const tx_config *config, const tx_weights *weights)
{
    return config->architecture->check_weights ? config->architecture->check_weights(weights) : TX_OK;
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
        if (!status)
            status = tx_model_find(model, name, &index);
    }
    return status ? tx_fail_in(status, "the model has not been built from this configuration") : TX_OK;
}

tx_status tx_arch_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options)
{
    tx_status status = check_model(model, config);
    if (status)
        return status;
    tx_weights *weights;
    status = tx_weights_open(folder, &weights);
    if (status)
        return status;
    status = check_values(config, weights);
    if (!status)
        status = tx_weights_load(weights, model, config->architecture->rename, options);
    tx_weights_close(weights);
    return status;
}

/* The parameters that the configuration asks for; `names` holds their names. */
static tx_status list_params(const tx_config *config, tx_weights_param *params, char (*names)[TX_ARCH_NAME],
                             int32_t count)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < count && !status; i++) {
        tx_param_spec spec;
        status = tx_arch_param(config, i, names[i], &spec);
        params[i] = (tx_weights_param){names[i], spec.logical.rank ? spec.logical : spec.shape};
    }
    return status;
}

tx_status tx_arch_check(const tx_config *config, const char *folder)
{
    tx_status status = tx_config_check(config);
    tx_weights *weights = NULL;
    if (!status)
        status = tx_weights_open(folder, &weights);
    if (status)
        return status;
    int32_t count = tx_arch_params(config);
    tx_weights_param *params = malloc((size_t)count * sizeof *params);
    char(*names)[TX_ARCH_NAME] = malloc((size_t)count * sizeof *names);
    status = params && names ? list_params(config, params, names, count)
                             : tx_fail(TX_MEMORY, "%s: no memory for the list of parameters", folder);
    if (!status)
        status = check_values(config, weights);
    if (!status)
        status = tx_weights_check(weights, params, count, config->architecture->rename);
    free(params);
    free(names);
    tx_weights_close(weights);
    return status;
}

tx_status tx_arch_save(tx_model *model, const tx_config *config, const char *folder)
{
    tx_status status = check_model(model, config);
    if (!status)
        status = tx_folder_create(folder);
    if (status)
        return status;
    char *json = tx_path_join(folder, "config.json");
    status = json ? tx_weights_save(model, folder, TX_WEIGHTS_SHARD) : TX_MEMORY;
    if (!status)
        status = tx_config_write(config, json);
    free(json);
    return status;
}
