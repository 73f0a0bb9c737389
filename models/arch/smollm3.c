/* SPDX-License-Identifier: Apache-2.0
 *
 * SmolLM3 (Hugging Face, 2025): a Llama in which every fourth layer has no rotary positions (Yang et al., RoPE to NoPE
 * and back again, 2025). */
#include "models/arch/llama_family.h"

static const tx_config_key keys[] = {COMMON_KEYS,
                                     WINDOW_KEY,
                                     BIAS_KEY,
                                     MLP_BIAS_KEY,
                                     FLAG(use_sliding_window, attention.windowed),
                                     SIZE(no_rope_layer_interval, positions.none_period, TX_LLAMA_LAYERS),
                                     {.name = NULL}};

static const llama_config defaults = {SIZES(tx_smollm3, tx_llama_rows, 128256, 32768, 2048, 36, 16, 128000, 128001),
                                      REST(11008, 4, 1e-6, 2e6), .padding = 128005, .positions.none_period = 4,
                                      .tie_word_embeddings = true};

static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    TX_TRY(tx_llama_read(json, config));
    TX_TRY(tx_llama_read_no_rope(json, c));
    TX_TRY(tx_llama_read_layer_types(json, c));
    return c->attention.windowed && !c->attention.windows.listed
               ? tx_fail(TX_UNSUPPORTED, "use_sliding_window: true needs the list layer_types")
               : TX_OK;
}

/* llama.cpp rotates all layers except every fourth. */
static tx_status check_no_rope(const tx_gguf_exported *e)
{
    for (int64_t i = 0; i < e->config->layers; i++)
        if (has_rope(llama_of(e->config), i) != ((i + 1) % 4 != 0))
            return tx_fail(TX_UNSUPPORTED, "no_rope_layers: llama.cpp computes as if it were every fourth layer");
    return TX_OK;
}

const tx_architecture tx_smollm3 = {
    FAMILY("smollm3", "SmolLM3", defaults, keys, "q_proj,v_proj", read, tx_llama_write),
    GGUF("smollm3", .pairs = true, TX_GGUF_FIXED({"use_sliding_window", false}), .check = check_no_rope)};
