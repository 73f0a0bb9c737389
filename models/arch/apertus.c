/* SPDX-License-Identifier: Apache-2.0
 *
 * Apertus (Swiss AI, 2025): a Llama with norms of the heads of q and k, and an MLP without a gate whose activation has
 * learned slopes: xIELU (Huang and Schlag, Deriving activation functions using integration, 2024). */
#include "models/arch/llama_family.h"

#define ACT LAYER "mlp.act_fn."
#define CONSTANT(value_) .init = TX_STACK_CONSTANT, .value = (value_)

static const tx_stack_row rows[] = {
    EMBED_ROW,
    {INPUT_NORM, LAYER "attention_layernorm.weight", {WIDTH}, ONES},
    SEPARATE_QKV_ROWS,
    HEAD_NORM_ROW("q_norm|k_norm.weight", QK_HEAD, ONES),
    O_ROWS,
    {POST_NORM, LAYER "feedforward_layernorm.weight", {WIDTH}, ONES},
    {GATE_UP_PROJ, LAYER "mlp.up_proj.weight", {INNER, WIDTH}, .split = 1},
    {XIELU_POSITIVE, ACT "alpha_p", {ONE}, CONSTANT(0.203718), .other_decay = true},   /* softplus gives 0.8 */
    {XIELU_NEGATIVE, ACT "alpha_n", {ONE}, CONSTANT(-1.0502256), .other_decay = true}, /* 0.3 */
    {XIELU_BETA, ACT "beta", {ONE}, CONSTANT(0.5), .frozen = true, .scalar = true},
    {XIELU_EPS, ACT "eps", {ONE}, CONSTANT(-1e-6), .frozen = true, .scalar = true},
    {DOWN_PROJ, LAYER "mlp.down_proj.weight", {WIDTH, INNER}, .split = 2},
    LAST_ROWS,
};

static const tx_config_key keys[] = {NUMBER(hidden_dropout, residual.hidden_dropout, 0),
                                     SIZE_KEYS,
                                     KV_HEADS_KEY,
                                     EPS_KEY(rms_norm_eps),
                                     ONE_ACT_KEY(hidden_act, TX_LLAMA_XIELU),
                                     BIAS_KEY,
                                     {.name = NULL}};

static const tx_fixed_key fixed[] = {
    {"qk_norm", "true", "attention without norms of q and k is not implemented, nor in transformers"},
    {"post_norm", "false", "norms after the sums are not implemented, nor in transformers"},
    {"mlp_bias", "false", "biases of MLPs are not implemented, nor in transformers"},
    {.name = NULL}};

/* Files without rope_parameters have those of the published models. */
static const llama_config defaults = {SIZES(tx_apertus, rows, 131072, 65536, 4096, 32, 32, 1, 2),
                                      REST_OF(14336, 0, 1e-5, 0.02,
                                              {.theta = 12e6,
                                               .type = TX_ROPE_LLAMA3,
                                               .factor = 8,
                                               .original = 8192,
                                               .low = 1,
                                               .high = 4,
                                               .attention = 1,
                                               .rotated = 1}),
                                      PLAIN_MLP(TX_LLAMA_XIELU, TX_LLAMA_XIELU), .padding = 4};

const tx_architecture tx_apertus = {USUAL_FAMILY("apertus", "Apertus"), .fixed = fixed};
