/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent mixers: the layers of hybrid models that have a state instead of attention. */
#ifndef TX_MODELS_MIXER_H
#define TX_MODELS_MIXER_H

#include "models/arch/llama_config.h"
#include "models/gguf/gguf_family.h"

#include <stddef.h>

static inline bool is_recurrent(const tx_config *config, int64_t layer)
{
    return has_layer(&llama_of(config)->mixer.layers, layer);
}

static inline bool is_attending(const tx_config *config, int64_t layer)
{
    return !is_recurrent(config, layer) || llama_of(config)->mixer.parallel;
}

/* The parameters of Mamba-2: the beginning of their names, and how the convolution with the output projection, and the
 * biases of steps, begin. */
#define MAMBA_ROWS(name_, matrices, steps)                                                                            \
    {MIXER_IN, name_ "in_proj.weight", {MIXER_INPUTS, WIDTH}, .in = is_recurrent, .split = 1},                        \
        {MIXER_CONV,         name_ "conv1d.weight", {MIXER_CHANNELS, ONE, MIXER_TAPS},                                \
         .init = (matrices), .in = is_recurrent,    .split = 1},                                                      \
        {MIXER_CONV_BIAS,     name_ "conv1d.bias", {MIXER_CHANNELS}, ZEROS,                                           \
         IF(mixer.conv_bias), .in = is_recurrent,  .split = 1},                                                       \
        {MIXER_A_LOG, name_ "A_log", {MIXER_HEADS}, .init = TX_STACK_LOG_RANGE, .in = is_recurrent, .split = 1},      \
        {MIXER_SKIP, name_ "D", {MIXER_HEADS}, ONES, .in = is_recurrent, .split = 1},                                 \
        {MIXER_DT_BIAS, name_ "dt_bias", {MIXER_HEADS}, .init = (steps), .in = is_recurrent, .split = 1},             \
        {MIXER_NORM, name_ "norm.weight", {MIXER_VALUES}, ONES, IF(mixer.norm), .in = is_recurrent, .split = 1},      \
    {                                                                                                                 \
        MIXER_OUT, name_ "out_proj.weight", {WIDTH, MIXER_VALUES}, .init = (matrices), .in = is_recurrent, .split = 2 \
    }

/* The defaults of types whose blocks have one part. */
#define ALONE_MAMBA_DEFAULTS                                                                                       \
    .mixer.alone = true, .mixer.kind = TX_MIXER_MAMBA2, .mixer.taps = 4, .mixer.k_heads = 8, .mixer.v_heads = 128, \
    .mixer.k_size = 128, .mixer.v_size = 64, .mixer.norm = true, .mixer.conv_bias = true

/* The columns that the convolution of a mixer reads. */
int64_t tx_mixer_channels(const llama_config *c);
/* The outputs of its input projection. */
int64_t tx_mixer_inputs(const llama_config *c);
/* Sets the sections of these outputs or else of these columns along `dimension`, which tensor-parallel ranks divide by
 * heads and groups. They have none if whole heads of keys are adjacent. */
void tx_mixer_sections(const llama_config *c, bool inputs, int32_t dimension, tx_param_sections *sections);
/* The columns of its output projection. */
int64_t tx_mixer_values(const llama_config *c);
/* The function recurs of tx_architecture. */
bool tx_mixer_recurs(const tx_config *config);
/* The mixer of a layer: x [B, T, C] -> [B, T, C]. With caches it has states TX_ARCH_STATES "<layer>.tail" and
 * ".state". */
tx_tensor *tx_mixer(tx_stack *b, tx_tensor *x);

/* Reads the recurrent layers from the list "layer_types": "linear_attention", "mamba" or "conv" among "full_attention"
 * and "attention". Without a list, every layer is recurrent except each `period`-th, if that is not 0. */
tx_status tx_mixer_read(const tx_json *json, llama_config *c, int64_t period);
/* Reads a list of the layers that have attention. */
tx_status tx_mixer_read_attending(const tx_json *json, const char *key, llama_config *c);
/* Reads the limits of Mamba-2's step from a list of two numbers, whose second one may be infinite. */
tx_status tx_mixer_read_limits(const tx_json *json, const char *key, llama_config *c);
/* The function check of tx_architecture, and that of types without attention. */
tx_status tx_mixer_check(const tx_config *config);
tx_status tx_mixer_check_alone(const tx_config *config);

/* ---- GGUF files (mixer_gguf.c) --------------------------------------------------------------------------- */

/* The function lay of tx_gguf_family: layouts of the parameters of mixers. */
void tx_mixer_gguf_lay(const tx_config *config, const tx_stack_row *row, int32_t section, tx_gguf_layout *layout);
/* Multiplies all rows of a tensor by a number in GGUF files; 0 means 1. */
void tx_mixer_gguf_scale(tx_gguf_layout *layout, double factor);
/* The keys of mixers, and those of types with attention in some layers only. */
#define MIXER_GGUF_MEMBER(key_, member_) TX_GGUF_MEMBER(key_, offsetof(llama_config, member_), INT, NOTHING)
#define MIXER_GGUF_VALUE(key_, name_, value_)                                  \
    {                                                                          \
        .key = (key_), .name = (name_), .kind = TX_GGUF_INT, .value = (value_) \
    }
#define MIXER_GGUF_KEYS                                                                                              \
    MIXER_GGUF_MEMBER("ssm.conv_kernel", mixer.taps), MIXER_GGUF_MEMBER("ssm.state_size", mixer.k_size),             \
        MIXER_GGUF_MEMBER("ssm.group_count", mixer.k_heads), MIXER_GGUF_MEMBER("ssm.time_step_rank", mixer.v_heads), \
        MIXER_GGUF_VALUE("ssm.inner_size", NULL, tx_mixer_gguf_inner)
#define MIXER_GGUF_KV_HEADS(layers)                                                                                 \
    {                                                                                                               \
        .key = TX_GGUF_HEAD_COUNT "_kv", .member = offsetof(llama_config, attention.kv_heads), .kind = TX_GGUF_INT, \
        .otherwise = TX_GGUF_HEADS, .in = (layers)                                                                  \
    }
int64_t tx_mixer_gguf_inner(const tx_config *config);
/* A value that files do not have. */
int64_t tx_mixer_gguf_none(const tx_config *config);
/* Refuses Mamba-2 that llama.cpp computes differently: the key of limits of steps, and biases of convolutions. */
tx_status tx_mixer_gguf_check(const tx_gguf_exported *model);
/* Refuses files with layers of multi-token prediction. */
tx_status tx_mixer_gguf_check_mtp(const tx_gguf_file *file, const char *architecture);
/* The numbers of a list of a file for each layer. A single number is that of all layers. The caller frees `numbers`. */
tx_status tx_mixer_gguf_list(const tx_gguf_file *file, const char *key, int64_t layers, double **numbers);
/* Makes the list layer_types: `recurrent` for layers without heads of keys, else `attending`. */
tx_status tx_mixer_gguf_layers(const tx_gguf_file *file, const char *architecture, tx_json *json, const char *recurrent,
                               const char *attending);

#endif
