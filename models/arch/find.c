/* SPDX-License-Identifier: Apache-2.0
 * Finds configurations by path or name. */
#include "models/arch/find.h"
#include "models/arch/wrapper.h"

#include "api/base/file.h"
#include "models/files/checkpoint.h"
#include "models/gguf/gguf.h"
#include "models/tx_text.h"

#include <inttypes.h>
#include <stdio.h>

static tx_status read_folder(const char *path, const char *folder, tx_config **config)
{
    tx_config *created;
    TX_TRY(tx_config_read(path, &created));
    const tx_status status = created->wrapped ? tx_wrapper_open_folder(created, folder) : TX_OK;
    return TX_RETURN(status, created, config, tx_config_free);
}

tx_status tx_config_of_folder(const char *folder, tx_config **config)
{
    if (tx_gguf_is_name(folder))
        return tx_config_of_gguf(folder, config);
    char path[TX_PATH_ROOM];
    int64_t step;
    tx_weights *weights = NULL;
    tx_path_in(path, folder, "config.json");
    if (!tx_file_exists(path) && tx_is_folder(folder) && !tx_checkpoint_latest(folder, &step) && step >= 0)
        return tx_fail(TX_NOT_FOUND, "%s: holds no model, only checkpoints: use the newest, %s/checkpoint-%" PRId64,
                       folder, folder, step);
    TX_TRY(read_folder(path, folder, config));
    /* Without weights, the configuration is that of a new model. */
    if ((*config)->architecture->settle && !tx_arch_open_weights(folder, &weights))
        (*config)->architecture->settle(*config, weights);
    tx_weights_close(weights);
    return TX_OK;
}

tx_status tx_config_find(const char *name, tx_config **config)
{
    if (!tx_file_exists(name))
        return tx_config_preset(name, config);
    return tx_is_folder(name) || tx_gguf_is_name(name) ? tx_config_of_folder(name, config)
                                                       : tx_config_read(name, config);
}

tx_status tx_config_small(tx_config **config)
{
    tx_config *created = NULL;
    char text[256];
    snprintf(text, sizeof text,
             "vocab_size=%d,bos_token_id=%d,eos_token_id=%d,n_positions=256,n_embd=128,n_layer=4,n_head=4,"
             "resid_pdrop=0,embd_pdrop=0,attn_pdrop=0",
             TX_BYTES_VOCAB, TX_BYTES_END, TX_BYTES_END);
    tx_status status = tx_config_preset("gpt2", &created);
    TX_THEN(status, tx_config_override(created, text));
    return TX_RETURN(status, created, config, tx_config_free);
}
