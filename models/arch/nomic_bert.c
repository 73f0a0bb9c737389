/* SPDX-License-Identifier: Apache-2.0
 *
 * Nomic BERT (Nussbaum et al., Nomic Embed, 2024): BERT with rotary positions, gated feed-forward layers, and no biases
 * in its blocks. Files of Nomic have keys in the style of GPT-2's, transformers' have those of BERT's. */
#include "models/arch/bert_stack.h"
#include "models/arch/labels.h"

#include <string.h>

#define MODEL "nomic_bert."
#define HEAD "cls.predictions."
#define LAYER "encoder.layers.%d."

static const tx_bert_config *of(const tx_config *config)
{
    return (const tx_bert_config *)config;
}

/* ---- Configuration ------------------------------------------------------------------------------------- */

#define SIZE(name, other, field, most)                                                         \
    {                                                                                          \
        TX_BERT_KEY(name, field), TX_KEY_INT, .min = 1, .max = 1 << (most), .second = (other), \
    }
static const tx_config_key keys[] = {
    {TX_BERT_KEY(vocab_size, base.vocab_size), TX_KEY_INT, .min = 1, .max = 1 << 30},
    SIZE(max_position_embeddings, "n_positions", max_position_embeddings, 24),
    SIZE(hidden_size, "n_embd", base.width, 20),
    SIZE(num_hidden_layers, "n_layer", base.layers, 12),
    SIZE(num_attention_heads, "n_head", base.heads, 20),
    SIZE(intermediate_size, "n_inner", intermediate_size, 22),
    TX_BERT_SIZE(type_vocab_size, type_vocab_size, 20),
    {TX_BERT_KEY(bos_token_id, base.bos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {TX_BERT_KEY(eos_token_id, base.eos_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {TX_BERT_KEY(pad_token_id, pad_token_id), TX_KEY_INT_OR_NULL, .max = 1 << 30, .null = -1},
    {TX_BERT_KEY(initializer_range, initializer_range), TX_KEY_NUMBER, .max = 10},
    {TX_BERT_KEY(layer_norm_eps, layer_norm_eps), TX_KEY_NUMBER, .min = 1e-12, .max = 1},
    TX_BERT_ACT_KEY(hidden_act),
    TX_BERT_RATE(hidden_dropout_prob, hidden_dropout_prob),
    TX_BERT_RATE(attention_probs_dropout_prob, attention_probs_dropout_prob),
    {.name = NULL}};

static const tx_fixed_key fixed[] = {{"causal", "false", "causal attention is not implemented"},
                                     {"prenorm", "false", "norms before attention and MLP are not implemented"},
                                     {"parallel_block", "false", "parallel blocks are not implemented"},
                                     {"use_rms_norm", "false", "RMS norms are not implemented"},
                                     {"rotary_emb_interleaved", "false", "adjacent rotary pairs are not implemented"},
                                     {"qkv_proj_bias", "false", "biases in blocks are not implemented"},
                                     {"mlp_fc1_bias", "false", "biases in blocks are not implemented"},
                                     {"mlp_fc2_bias", "false", "biases in blocks are not implemented"},
                                     {.name = NULL}};

/* Keys of Nomic's files with a value that TX implements; null is fine. */
static tx_status check_numbers(const tx_json *json)
{
    static const struct {
        const char *key;
        double value;
    } only[] = {{"rotary_emb_fraction", 1}, {"rotary_scaling_factor", 0}, {"moe_every_n_layers", 0},
                {"num_experts", 0},         {"resid_pdrop", 0},           {"embd_pdrop", 0},
                {"attn_pdrop", 0}};
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++) {
        double value = only[i].value;
        TX_TRY(TX_JSON_OPTIONAL(number, json, only[i].key, 0, 1e9, &value));
        if (value < only[i].value || value > only[i].value)
            return tx_fail(TX_UNSUPPORTED, "%s: %g is not implemented, only %g", only[i].key, value, only[i].value);
    }
    return TX_OK;
}

static tx_status read_theta(const tx_json *json, double *theta)
{
    const char *type = "default";
    tx_json *rope;
    TX_TRY(TX_JSON_OPTIONAL(number, json, "rotary_emb_base", 1, 1e12, theta));
    if (!tx_json_has(json, "rope_parameters"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "rope_parameters", TX_JSON_OBJECT, &rope));
    TX_TRY(TX_JSON_OPTIONAL(string, rope, "rope_type", &type));
    if (strcmp(type, "default") != 0)
        return tx_fail(TX_UNSUPPORTED, "rope_parameters: rope_type: \"%.40s\" is not implemented", type);
    return TX_JSON_OPTIONAL(number, rope, "rope_theta", 1, 1e12, theta);
}

static tx_status read(const tx_json *json, tx_config *config)
{
    tx_bert_config *c = (tx_bert_config *)config;
    const char *gate = "swiglu";
    int64_t size = config->width / config->heads;
    TX_TRY(TX_JSON_OPTIONAL(string, json, "activation_function", &gate));
    if (strcmp(gate, "swiglu") != 0 || (c->hidden_act != TX_BERT_SILU && c->hidden_act != TX_BERT_SWISH))
        return tx_fail(TX_UNSUPPORTED, "activation_function, hidden_act: only swiglu of silu is implemented");
    TX_TRY(TX_JSON_OPTIONAL(int, json, "head_dim", 1, TX_MAX_ROTARY, &size));
    if (size * config->heads != config->width || size % 2 != 0 || size > TX_MAX_ROTARY)
        return tx_fail(TX_UNSUPPORTED,
                       "hidden_size: must be num_attention_heads heads of an even number of elements, "
                       "at most %d",
                       TX_MAX_ROTARY);
    TX_TRY(check_numbers(json));
    TX_TRY(TX_JSON_OPTIONAL(number, json, "layer_norm_epsilon", 1e-12, 1, &c->layer_norm_eps));
    TX_TRY(read_theta(json, &c->global_theta));
    return tx_bert_read(json, config);
}

static tx_status write(const tx_config *config, tx_json *json)
{
    if (!tx_json_has(json, "rotary_emb_base"))
        TX_TRY(tx_json_set(json, "rope_parameters",
                           tx_json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", of(config)->global_theta)));
    return tx_bert_write(config, json);
}

/* ---- Parameters ---------------------------------------------------------------------------------------- */

#define MATRIX(slot, name, out, in_)                                        \
    {                                                                       \
        TX_BERT_##slot, name ".weight", {out, in_}, .init = TX_STACK_NORMAL \
    }
#define ENCODER(prefix)                                                                                        \
    {TX_BERT_WORD_TABLE, prefix TX_BERT_WORDS, {TX_EXTENT_VOCAB, TX_BERT_EMBEDDING}, .init = TX_STACK_NORMAL}, \
        TX_BERT_TABLE(TYPE_TABLE, prefix "embeddings.token_type_embeddings.weight", TX_BERT_TYPES),            \
        TX_BERT_NORM(EMBED_NORM, prefix "emb_ln.", TX_BERT_EMBEDDING),                                         \
        MATRIX(QKV_PROJ, prefix LAYER "attn.Wqkv", TX_BERT_QKV, TX_EXTENT_WIDTH),                              \
        MATRIX(O_PROJ, prefix LAYER "attn.out_proj", TX_EXTENT_WIDTH, TX_EXTENT_WIDTH),                        \
        TX_BERT_NORM(ATTN_NORM, prefix LAYER "norm1.", TX_EXTENT_WIDTH),                                       \
        MATRIX(UP_PROJ, prefix LAYER "mlp.fc12|fc11", TX_BERT_GATED, TX_EXTENT_WIDTH), /* gate, up */          \
        MATRIX(DOWN_PROJ, prefix LAYER "mlp.fc2", TX_EXTENT_WIDTH, TX_BERT_INNER),                             \
        TX_BERT_NORM(MLP_NORM, prefix LAYER "norm2.", TX_EXTENT_WIDTH)

static const tx_stack_row masked[] = {
    ENCODER(MODEL), TX_BERT_MASKED_HEAD(HEAD "transform.dense.", HEAD "transform.layer_norm.", HEAD "bias")};
static const tx_stack_row texts[] = {ENCODER(MODEL), TX_BERT_TEXT_HEAD(MODEL "pooler.dense.", "classifier.")};
static const tx_stack_row tokens[] = {ENCODER(MODEL), TX_BERT_TOKEN_HEAD("classifier.")};
static const tx_stack_row base[] = {ENCODER(""), {.name = NULL}};

/* ---- Graph --------------------------------------------------------------------------------------------- */

/* x + part, normalised. */
static tx_tensor *add_part(tx_stack *s, tx_tensor *x, tx_tensor *part, int32_t norm)
{
    return tx_bert_norm(s, tx_add(x, tx_stack_dropout(s, part, of(s->config)->hidden_dropout_prob)), norm);
}

/* x [B, T, C] -> [B, T, C] */
static tx_tensor *block(tx_stack *s, tx_tensor *x, int64_t layer)
{
    const tx_bert_config *c = of(s->config);
    const int32_t heads = (int32_t)c->base.heads;
    const tx_rope rope = TX_ROPE((float)c->global_theta);
    tx_attention_options options = {.heads = heads, .kv_heads = heads};
    tx_tensor *h = tx_bert_linear(s, x, TX_BERT_QKV_PROJ);
    h = tx_rotary(h, 2 * heads, (int32_t)(c->base.width / heads), &rope, s->positions, NULL);
    h = tx_stack_attention(s, h, layer, &options, c->attention_probs_dropout_prob);
    x = add_part(s, x, tx_bert_linear(s, h, TX_BERT_O_PROJ), TX_BERT_ATTN_NORM);
    h = tx_bert_linear(s, tx_swiglu(tx_bert_linear(s, x, TX_BERT_UP_PROJ)), TX_BERT_DOWN_PROJ);
    return add_part(s, x, h, TX_BERT_MLP_NORM);
}

static tx_tensor *pool(tx_stack *s, tx_tensor *x)
{
    return tx_bert_first_of(s, x);
}

/* ---- GGUF files ---------------------------------------------------------------------------------------- */

#define BASE "rope.freq_base"
static tx_status read_gguf(const tx_gguf_file *file, tx_json *json)
{
    double theta = 10000;
    TX_TRY(TX_GGUF_OPTIONAL(number, file, "nomic-bert." BASE, &theta));
    return tx_json_set(json, "rope_parameters",
                       tx_json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", theta));
}

static const tx_gguf_family gguf = {.architecture = "nomic-bert",
                                    .scheme = &tx_bert_gguf,
                                    .read = read_gguf,
                                    TX_GGUF_OWN_KEYS(TX_BERT_GGUF_KEY(BASE, global_theta, NUMBER)),
                                    TX_GGUF_OWN_NAMES(TX_GGUF_NAME(TX_BERT_QKV_PROJ, "blk.%d.attn_qkv.weight"),
                                                      TX_GGUF_NAME(TX_BERT_UP_PROJ, "blk.%d.ffn_gate|ffn_up.weight"))};

/* ---- The architectures --------------------------------------------------------------------------------- */

static const tx_bert_kind nomic_bert = {
    .block = block,
    .pool = pool,
    .prefix = MODEL,
    .heads = TX_BERT_NAMES("cls.", MODEL "pooler.", "classifier."),
    TX_BERT_HEADS(masked, texts, tokens, NULL, NULL, base),
    .ties = {{HEAD "decoder.weight", MODEL TX_BERT_WORDS}, {HEAD "decoder.bias", HEAD "bias"}}};

static const tx_bert_config defaults = {
    TX_BERT_SIZES(tx_nomic_bert_masked_lm, nomic_bert, 30528, 768, 768, 12, 12, 3072, 2, 1e-12, -1, -1),
    .max_position_embeddings = 2048,
    .hidden_act = TX_BERT_SILU,
    .head_act = TX_BERT_TANH,
    .classifier_dropout = TX_BERT_NO_DROPOUT,
    .global_theta = 1000};

#define ROW(name, CLASS, head, logits, ...)                                                                        \
    TX_BERT_ROW(tx_nomic_bert_##name, CLASS, head, logits, .type = "nomic_bert", .defaults = &defaults.base,       \
                .keys = keys, .fixed = fixed, .read = read, .write = write, .lora_targets = "Wqkv", .gguf = &gguf, \
                __VA_ARGS__)
ROW(masked_lm, "NomicBertForMaskedLM", MASKED_LM, tx_bert_masked_logits, .check_weights = tx_bert_check_ties);
ROW(classifier, "NomicBertForSequenceClassification", SEQUENCE_CLASSIFICATION, tx_bert_label_logits,
    .lora_saved = "classifier");
ROW(token_classifier, "NomicBertForTokenClassification", TOKEN_CLASSIFICATION, tx_bert_label_logits,
    .lora_saved = "classifier");
ROW(base, "NomicBertModel", STATES, tx_bert_states, .reads_last = false);
