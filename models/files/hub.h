/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds models and datasets by name. A name is a path, or $TX_HOME/models/NAME or $TX_HOME/datasets/NAME[/CONFIG], or a
 * repository in Hugging Face's cache ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). In the cache it is
 * models--OWNER--NAME/snapshots/REV, where refs/main contains REV or there is only one snapshot. The default of TX_HOME
 * is ~/.local/share/tx. $XDG_DATA_HOME and $XDG_CACHE_HOME replace ~/.local/share and ~/.cache if they are set. Old
 * names without an owner, such as gpt2, are also found as OWNER/NAME (openai-community/gpt2), and the other way round.
 * Nothing is ever downloaded. */
#ifndef TX_FILES_HUB_H
#define TX_FILES_HUB_H

#include "models/tx_folder.h"

/* Finds a folder with config.json. A path, also of a GGUF file, is returned unchanged. TX_NOT_FOUND's message contains
 * the command that downloads the model and the places searched. The caller frees `*folder`. */
tx_status tx_hub_model(const char *name, char **folder);
/* Finds a dataset's folder, which holds the files of its splits (splits.h). `config` is a configuration such as
 * wikitext-2-raw-v1; pass NULL for a dataset without configurations or with only one. A path gets /CONFIG appended.
 * TX_INVALID lists several configurations. TX_NOT_FOUND's message contains the command that downloads the dataset. */
tx_status tx_hub_dataset(const char *name, const char *config, char **folder);
/* The folder of TX for files that can be made again: $TX_HOME/cache. */
tx_status tx_hub_cache(char path[TX_PATH_ROOM]);

#endif
