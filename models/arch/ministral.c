/* SPDX-License-Identifier: Apache-2.0
 *
 * Ministral 8B (Mistral AI, 2024), a Mistral whose layers may have a window, and Ministral 3 (2025), whose queries grow
 * with the logarithm of their position beyond the original length. */
#include "models/arch/llama_family.h"

static const tx_config_key keys[] = {COMMON_KEYS, HEAD_DIM_KEY, WINDOW_KEY, {.name = NULL}};

static const llama_config ministral_defaults = {SIZES(tx_ministral, tx_llama_rows, 32000, 131072, 4096, 32, 32, 1, 2),
                                                REST(14336, 8, 1e-6, 1e4), .attention.windowed = true,
                                                .attention.window = 4096};

/* Files without rope_parameters have those of the published models. */
static const llama_config ministral3_defaults = {
    SIZES(tx_ministral3, tx_llama_rows, 131072, 262144, 4096, 34, 32, 1, 2),
    REST_OF(14336, 8, 1e-5, 0.02, YARN_ROPE(1e6, 16, 16384)),
    .padding = 12,
    .attention.head_dim = 128,
    .attention.windowed = true,
    .attention.scale_growth = 0.1};

static tx_status read(const tx_json *json, tx_config *config)
{
    TX_TRY(tx_llama_read(json, config));
    return tx_llama_read_growth(json, (llama_config *)config);
}

const tx_architecture tx_ministral = {
    FAMILY("ministral", "Ministral", ministral_defaults, keys, "q_proj,v_proj", tx_llama_read_windows, tx_llama_write)};
const tx_architecture tx_ministral3 = {
    FAMILY("ministral3", "Ministral3", ministral3_defaults, keys, "q_proj,v_proj", read, tx_llama_write)};
