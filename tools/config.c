/* SPDX-License-Identifier: Apache-2.0
 * Finding a configuration. */
#include "tools/config.h"

#include "api/base/file.h"
#include "models/text/tokenizer.h"
#include "tools/output.h"

#include <stdlib.h>

tx_status tx_config_of_folder(const char *folder, tx_gpt2_config *config)
{
    char *path = tx_path_join(folder, "config.json");
    tx_status status = path ? tx_gpt2_config_read(path, config) : TX_MEMORY;
    free(path);
    return status;
}

tx_status tx_config_find(const char *name, tx_gpt2_config *config)
{
    if (!tx_file_exists(name))
        return tx_gpt2_config_preset(name, config);
    return tx_is_folder(name) ? tx_config_of_folder(name, config) : tx_gpt2_config_read(name, config);
}

tx_status tx_config_small(tx_gpt2_config *config)
{
    tx_status status = tx_gpt2_config_preset("gpt2", config);
    if (status)
        return status;
    config->vocab_size = TX_BYTES_VOCAB;
    config->bos_token_id = config->eos_token_id = TX_BYTES_END;
    config->n_positions = 256;
    config->n_embd = 128;
    config->n_layer = 4;
    config->n_head = 4;
    config->resid_pdrop = config->embd_pdrop = config->attn_pdrop = 0.0;
    return TX_OK;
}
