/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds configurations for the programs. The caller frees them with tx_config_free. */
#ifndef TX_ARCH_FIND_H
#define TX_ARCH_FIND_H

#include "models/arch/arch.h"

/* Reads config.json of a model folder, or the configuration of a GGUF file. */
tx_status tx_config_of_folder(const char *folder, tx_config **config);
/* `name` is a config.json, a folder with one, a GGUF file, or the name of a published model. */
tx_status tx_config_find(const char *name, tx_config **config);
/* A small GPT-2 over the byte vocabulary: 0.86 million parameters, trained in minutes on a CPU. */
tx_status tx_config_small(tx_config **config);

#endif
