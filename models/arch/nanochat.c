/* SPDX-License-Identifier: Apache-2.0
 *
 * nanochat (Karpathy, 2025): a Llama whose RMS norms have no weights, also after the embedding and on the heads of q
 * and k, which rotate the other way; relu^2 without a gate; capped logits. */
#include "models/arch/llama_family.h"

static const tx_stack_row rows[] = {EMBED_ROW, SEPARATE_QKV_ROWS, O_ROWS,
                                    PLAIN_MLP_ROWS(LAYER "mlp.fc1", LAYER "mlp.fc2"), HEAD_ROWS};

static const tx_config_key keys[] = {
    SIZE_KEYS, KV_HEADS_KEY, EPS_KEY(rms_norm_eps), ONE_ACT_KEY(hidden_act, TX_LLAMA_RELU2), BIAS_KEY, {.name = NULL}};

static const llama_config defaults = {SIZES(tx_nanochat, rows, 50304, 2048, 768, 12, 6, 0, 1),
                                      REST(8192, 6, 1e-6, 1e4),
                                      PLAIN_MLP(TX_LLAMA_RELU2, TX_LLAMA_RELU2),
                                      .padding = 2,
                                      .norms.bare = true,
                                      .norms.bare_heads = true,
                                      .norms.after_rope = true,
                                      .positions.reversed = true,
                                      .logits.cap = 15};

/* null means no cap. */
static tx_status read(const tx_json *json, tx_config *config)
{
    llama_config *c = (llama_config *)config;
    if (tx_json_find(json, "final_logit_softcapping") && !tx_json_has(json, "final_logit_softcapping"))
        c->logits.cap = 0;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "final_logit_softcapping", 0, 1e9, &c->logits.cap));
    return tx_llama_read(json, config);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    const double cap = llama_of(config)->logits.cap;
    TX_TRY(cap > 0 ? tx_json_set_number(json, "final_logit_softcapping", cap)
                   : tx_json_set_null(json, "final_logit_softcapping"));
    return tx_llama_write(config, json);
}

const tx_architecture tx_nanochat = {FAMILY("nanochat", "NanoChat", defaults, keys, "q_proj,v_proj", read, write)};
