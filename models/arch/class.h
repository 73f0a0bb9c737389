/* SPDX-License-Identifier: Apache-2.0
 * The architecture that a configuration file names. Called by config.c. */
#ifndef TX_ARCH_CLASS_H
#define TX_ARCH_CLASS_H

#include "models/arch/arch.h"

/* Selects the architecture of a configuration: that of its model_type, or without one that of its class, with the head
 * of the class. */
tx_status tx_class_choose(const tx_json *json, const tx_architecture **architecture);
/* Returns true for a base encoder, such as BertModel: the head of its type is new. */
bool tx_class_has_no_head(const tx_json *json, const tx_architecture *architecture);

#endif
