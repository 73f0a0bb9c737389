/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the programs find a GPT-2's configuration. Release what they give with tx_config_free. */
#ifndef TX_ARCH_FIND_H
#define TX_ARCH_FIND_H

#include "models/arch/arch.h"

/* config.json of a model folder, or what a GGUF file has in its place. */
tx_status tx_config_of_folder(const char *folder, tx_config **config);
/* `name` is a config.json, a folder with one, a GGUF file, or the name of a published size. */
tx_status tx_config_find(const char *name, tx_config **config);
/* GPT-2 in small over the byte vocabulary: 0.86 million parameters, trained in minutes on a CPU. */
tx_status tx_config_small(tx_config **config);

#endif
