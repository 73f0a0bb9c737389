/* SPDX-License-Identifier: Apache-2.0
 * The table of architectures. It is a separate file so that a program can bring its own table. */
#include "models/arch/families.h"

const tx_architecture *const tx_architectures[] = {
#define ADDRESS(name) &tx_##name,
#define X(file, name, heads) TX_ROWS_##heads(ADDRESS, name)
#include "models/arch/families.def"
    NULL};
