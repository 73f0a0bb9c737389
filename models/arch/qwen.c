/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2 (Yang et al., Qwen2 technical report, 2024), whose q, k and v have biases, and Qwen3 (2025), which normalises
 * the heads of q and k. Their layers from one on may have a window. */
#include "models/arch/llama_family.h"

#define QWEN_KEYS                                                                  \
    COMMON_KEYS, WINDOW_KEY, FLAG(use_sliding_window, attention.windowed),         \
    {                                                                              \
        KEY(max_window_layers, attention.first_window), TX_KEY_INT, .max = 1 << 12 \
    }
#define DEFAULTS(row)                                                                           \
    SIZES(row, tx_llama_rows, 151936, 32768, 4096, 32, 32, -1, -1), REST(22016, 32, 1e-6, 1e4), \
        .attention.window = 4096, .attention.first_window = 28

static const tx_config_key qwen2_keys[] = {QWEN_KEYS, {.name = NULL}};
static const tx_config_key qwen3_keys[] = {QWEN_KEYS, HEAD_DIM_KEY, BIAS_KEY, {.name = NULL}};

static const llama_config qwen2_defaults = {DEFAULTS(tx_qwen2), .attention.qkv_bias = true};
static const llama_config qwen3_defaults = {DEFAULTS(tx_qwen3), .attention.head_dim = 128, .norms.heads = true};

ALL_HEADS(tx_qwen2, "qwen2", "Qwen2", qwen2_defaults, qwen2_keys, tx_llama_read_windows,
          GGUF("qwen2", TX_GGUF_FIXED({"use_sliding_window", false})));
ALL_HEADS(tx_qwen3, "qwen3", "Qwen3", qwen3_defaults, qwen3_keys, tx_llama_read_windows,
          GGUF("qwen3", TX_GGUF_FIXED({"use_sliding_window", false}, {"attention_bias", false})));
