/* SPDX-License-Identifier: Apache-2.0
 * Finds the folders of a model and its adapter, and combines their configurations. */
#include "models/arch/find.h"
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/files/hub.h"
#include "models/generate/lm.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"

#include "api/base/file.h"
#include "api/base/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If an output_dir has no model of its own, replaces `*folder` by its newest checkpoint: the newest intact one, or of
 * another program the one with the largest step. */
static tx_status take_checkpoint(const tx_lm_options *o, char **folder)
{
    const tx_reporter report = {.warn = o->warn, .context = o->context};
    char message[2 * TX_PATH_ROOM], newest[TX_PATH_ROOM + 64];
    char *found = NULL;
    int64_t step = -1;
    if (!tx_is_folder(*folder) || tx_file_exists(TX_PATH(*folder, "config.json")) || tx_lora_is_folder(*folder))
        return TX_OK;
    TX_TRY(tx_checkpoint_latest(*folder, &step));
    if (step < 0)
        return TX_OK;
    snprintf(newest, sizeof newest, "%s/" TX_CHECKPOINT_PREFIX "%" PRId64, *folder, step);
    if (!tx_file_exists(TX_PATH(newest, TX_CHECKPOINT_MANIFEST)))
        found = strdup(newest);
    else
        TX_TRY(tx_checkpoint_newest(*folder, &report, &found));
    if (!found)
        return tx_fail(TX_MEMORY, "%s: out of memory", *folder);
    snprintf(message, sizeof message, "%s: holds no model, only checkpoints: using the newest, %s", *folder, found);
    if (o->warn)
        o->warn(o->context, message);
    free(*folder);
    *folder = found;
    return TX_OK;
}

/* Finds the adapter: the named one, or the one that the model's folder holds. In the second case the model is the
 * adapter's base model. */
static tx_status find_adapter(tx_lm *lm, const tx_lm_options *o)
{
    char *model = NULL;
    if (o->adapter)
        TX_TRY(tx_lora_check_folder(o->adapter));
    if (o->adapter && !(lm->adapter = strdup(o->adapter)))
        return tx_fail(TX_MEMORY, "%s: out of memory", o->adapter);
    if (o->model)
        TX_TRY(tx_hub_model(o->model, &model));
    lm->folder = model;
    if (model)
        TX_TRY(take_checkpoint(o, &lm->folder));
    if (model && !lm->adapter && tx_lora_is_folder(lm->folder)) {
        lm->adapter = lm->folder;
        lm->folder = NULL;
    }
    if (!lm->adapter)
        return TX_OK;
    TX_TRY(tx_lora_read(lm->adapter, &lm->lora));
    return lm->folder ? TX_OK : tx_lora_find_base(lm->lora, lm->adapter, &lm->folder);
}

tx_status tx_lm_find(tx_lm *lm, const tx_lm_options *o)
{
    TX_TRY(find_adapter(lm, o));
    TX_TRY(tx_config_of_folder(lm->folder, &lm->config));
    if (o->load_in_4bit && lm->adapter)
        return tx_fail(TX_UNSUPPORTED,
                       "%s: an adapter cannot be merged into 4-bit weights: save the merged model with --save_merged, "
                       "and load that in 4 bits",
                       lm->adapter);
    const bool typed = o->dtype && strcmp(o->dtype, "auto") != 0;
    int32_t device = -1;
    if (tx_gguf_is_name(lm->folder) && !typed && !o->device_map && !o->ranks && !lm->adapter && !o->load_in_4bit)
        TX_TRY(tx_device_find(o->device, &device));
    if (device == 0) /* the cpu */
        TX_TRY(tx_gguf_keep_blocks(lm->folder, lm->config));
    if (o->load_in_4bit)
        tx_config_pack(lm->config, o->double_quant ? TX_NF4_DOUBLE : TX_NF4);
    if (!lm->adapter)
        return TX_OK;
    TX_TRY(tx_lora_adapted_config(lm->adapter, &lm->config));
    return tx_fail_in(tx_lora_untie(lm->lora, lm->config), "%s", lm->adapter);
}

bool tx_lm_has_generation(const tx_lm *lm)
{
    TX_NEEDS(lm, false);
    return lm->has_generation;
}

const char *tx_lm_generation_folder(const tx_lm *lm)
{
    return lm->adapter && tx_file_exists(TX_PATH(lm->adapter, TX_LM_GENERATION)) ? lm->adapter : lm->folder;
}
