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

/* Published sizes. */
#define QWEN(width, inner, layers, heads, kv_heads, rest)                                                           \
    "hidden_size=" #width ",intermediate_size=" #inner ",num_hidden_layers=" #layers ",num_attention_heads=" #heads \
    ",num_key_value_heads=" #kv_heads ",rope_theta=1e6,bos_token_id=151643," rest
#define QWEN25(width, inner, layers, heads, kv_heads, positions, rest) \
    QWEN(width, inner, layers, heads, kv_heads, "eos_token_id=151643,max_position_embeddings=" #positions rest)
#define QWEN3(width, inner, layers, heads, rest) \
    QWEN(width, inner, layers, heads, 8, "eos_token_id=151645,max_position_embeddings=40960" rest)
#define TIED ",tie_word_embeddings=true"
static const tx_preset qwen2_presets[] = {
    {"qwen2.5-0.5b", QWEN25(896, 4864, 24, 14, 2, 32768, TIED)},
    {"qwen2.5-1.5b", QWEN25(1536, 8960, 28, 12, 2, 131072, TIED)},
    {"qwen2.5-7b", QWEN25(3584, 18944, 28, 28, 4, 131072, ",vocab_size=152064")},
    {.name = NULL},
};
static const tx_preset qwen3_presets[] = {
    {"qwen3-0.6b", QWEN3(1024, 3072, 28, 16, TIED)},
    {"qwen3-1.7b", QWEN3(2048, 6144, 28, 16, TIED)},
    {"qwen3-4b", QWEN3(2560, 9728, 36, 32, TIED)},
    {"qwen3-8b", QWEN3(4096, 12288, 36, 32, "")},
    {.name = NULL},
};

ALL_HEADS(tx_qwen2, "qwen2", "Qwen2", qwen2_defaults, qwen2_keys, tx_llama_read_windows,
          GGUF("qwen2", TX_GGUF_FIXED({"use_sliding_window", false})), .presets = qwen2_presets);
ALL_HEADS(tx_qwen3, "qwen3", "Qwen3", qwen3_defaults, qwen3_keys, tx_llama_read_windows,
          GGUF("qwen3", TX_GGUF_FIXED({"use_sliding_window", false}, {"attention_bias", false})),
          .presets = qwen3_presets);
