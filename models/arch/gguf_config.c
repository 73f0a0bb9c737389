/* SPDX-License-Identifier: Apache-2.0
 * Reads the configuration in a GGUF file. */
#include "models/arch/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const tx_gguf_file *file;
    tx_gguf_model model;
} reading;

/* Finds the row of the architecture. With experts Llama's is Mixtral's, with a sliding window Mistral's; OLMo 2's is
 * OLMo 3's. Without token types BERT's is DistilBERT's. */
static tx_status find_type(reading *m)
{
    char *name = NULL, key[TX_GGUF_KEY_ROOM], known[512] = "";
    TX_TRY(tx_gguf_get_string(m->file, TX_GGUF_ARCHITECTURE, &name, NULL));
    const tx_gguf_type *row = tx_gguf_types;
    for (; row->type && strcmp(row->architecture, name) != 0; row++)
        if (row == tx_gguf_types || strcmp(row->architecture, row[-1].architecture) != 0)
            tx_list_add(known, sizeof known, ", ", "%s", row->architecture);
    if (row->type)
        m->model.type = row;
    const tx_status status =
        m->model.type ? TX_OK
                      : tx_fail(TX_UNSUPPORTED, TX_GGUF_ARCHITECTURE ": \"%.40s\" is not one of %s", name, known);
    free(name);
    if (!status && row->family == TX_GGUF_BERT && tx_gguf_find(m->file, TX_GGUF_TYPES) < 0)
        while (m->model.type->family != TX_GGUF_DISTILBERT)
            m->model.type++;
    if (status || (strcmp(row->type, "llama") != 0 && row->family != TX_GGUF_OLMO2))
        return status;
    if (row->family == TX_GGUF_LLAMA && tx_gguf_has(m->file, tx_gguf_key_of(key, row->architecture, TX_GGUF_EXPERTS)))
        m->model.type = row + 2;
    else if (tx_gguf_has(m->file, tx_gguf_key_of(key, row->architecture, "attention.sliding_window")))
        m->model.type = row + 1;
    return status;
}

static tx_status read_key(const reading *m, const tx_gguf_key *row, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t whole;
    double number;
    tx_gguf_key_of(key, m->model.type->architecture, row->key);
    if (!row->name || !tx_gguf_has(m->file, key))
        return TX_OK;
    if (row->kind == TX_GGUF_BOOL) {
        bool flag;
        TX_TRY(tx_gguf_get_bool(m->file, key, &flag));
        return tx_json_set_bool(json, row->name, flag);
    }
    if (row->kind == TX_GGUF_WORD) {
        char *word = NULL;
        tx_status status = tx_gguf_get_string(m->file, key, &word, NULL);
        TX_THEN(status, tx_json_set_string(json, row->name, word));
        free(word);
        return status;
    }
    if (row->kind == TX_GGUF_NUMBER) {
        TX_TRY(tx_gguf_get_number(m->file, key, &number));
        return tx_json_set_number(json, row->name, number);
    }
    TX_TRY(tx_gguf_get_int(m->file, key, 0, UINT32_MAX, &whole));
    if (tx_json_has(json, row->name)) { /* two GGUF keys map to one name */
        int64_t other;
        TX_TRY(tx_json_get_int(json, row->name, 0, UINT32_MAX, &other));
        if (other != whole)
            return tx_fail(TX_UNSUPPORTED, "%s is %" PRId64 ", not %" PRId64, key, whole, other);
    }
    return tx_json_set_int(json, row->name, whole);
}

/* Compares a key that config.json does not have with the value that the configuration implies. */
static tx_status check_key(const reading *m, const tx_gguf_key *row)
{
    char key[TX_GGUF_KEY_ROOM];
    const double wanted = tx_gguf_other_value(row, m->model.config);
    double number = wanted;
    bool flag = wanted != 0;
    tx_gguf_key_of(key, m->model.type->architecture, row->key);
    if (row->kind == TX_GGUF_BOOL)
        TX_TRY(TX_GGUF_OPTIONAL(bool, m->file, key, &flag));
    else
        TX_TRY(TX_GGUF_OPTIONAL(number, m->file, key, &number));
    number = row->kind == TX_GGUF_BOOL ? flag : number;
    return number == wanted ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s is %g, not %g", key, number, wanted);
}

static tx_status check_keys(const reading *m)
{
    for (const tx_gguf_key *row = tx_gguf_keys; row->key; row++)
        if (!row->name && tx_gguf_has_key(m->model.type, row))
            TX_TRY(check_key(m, row));
    return TX_OK;
}

static tx_status read_special(const reading *m, const char *key, const char *name, int64_t vocab, tx_json *json)
{
    int64_t id = -1;
    TX_TRY(TX_GGUF_OPTIONAL(int, m->file, key, 0, vocab - 1, &id));
    return id < 0 ? tx_json_set_null(json, name) : tx_json_set_int(json, name, id);
}

/* MPT's limit of q, k and v is in an object. */
static tx_status read_clip(const reading *m, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    double clip;
    if (!tx_gguf_has(m->file, tx_gguf_key_of(key, m->model.type->architecture, TX_GGUF_CLIP)))
        return TX_OK;
    TX_TRY(tx_gguf_get_number(m->file, key, &clip));
    tx_json *attention = tx_json_object();
    TX_TRY(tx_json_set(json, "attn_config", attention));
    return tx_json_set_number(attention, "clip_qkv", clip);
}

/* Only the activation and the period of layers without a window have the same defaults in llama.cpp and config.json. */
static tx_status check_complete(const reading *m)
{
    char key[TX_GGUF_KEY_ROOM];
    for (const tx_gguf_key *row = tx_gguf_keys; row->key; row++)
        if (row->family == TX_GGUF_MODERNBERT && row->kind != TX_GGUF_WORD && strcmp(row->key, TX_GGUF_WINDOWS) != 0 &&
            !tx_gguf_has(m->file, tx_gguf_key_of(key, m->model.type->architecture, row->key)))
            return tx_fail(TX_FORMAT, "has no %s", key);
    return TX_OK;
}

/* Makes the list of layers that transformers needs. llama.cpp gives sliding windows to EXAONE 4 of one size only. Files
 * of OLMo 3 list them. */
static tx_status set_windows(const reading *m, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t layers;
    tx_gguf_array slides = {0};
    tx_json *list;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, 1 << 12, &layers));
    tx_gguf_key_of(key, m->model.type->architecture, TX_GGUF_WINDOWS);
    if (m->model.type->family == TX_GGUF_EXAONE4 ? layers == TX_GGUF_EXAONE4_LAYERS : !tx_gguf_has(m->file, key))
        return TX_OK;
    if (m->model.type->family == TX_GGUF_EXAONE4)
        TX_TRY(tx_json_set_null(json, "sliding_window"));
    else
        TX_TRY(tx_gguf_get_array(m->file, key, false, &slides));
    tx_status status = tx_json_set(json, "layer_types", list = tx_json_array());
    for (int64_t i = 0; i < layers; i++)
        TX_THEN(status, tx_json_append_string(list, i < slides.count && slides.number[i] != 0 ? "sliding_attention"
                                                                                              : "full_attention"));
    if (!status && slides.number && slides.count != layers)
        status = tx_fail(TX_FORMAT, "%s: %" PRId64 " layers instead of %" PRId64, key, slides.count, layers);
    tx_gguf_array_free(&slides);
    return status;
}

/* OLMo 3 has settings for each kind of layers. llama.cpp scales only layers without a window. */
static tx_status set_ropes(tx_json *json)
{
    double theta;
    TX_TRY(tx_json_get_number(json, "rope_theta", 0, 1e12, &theta));
    tx_json *full = tx_json_has(json, "rope_scaling") ? tx_json_copy(tx_json_find(json, "rope_scaling"))
                                                      : tx_json_pack("{s:s}", "rope_type", "default");
    TX_TRY(tx_json_set(json, "rope_parameters",
                       tx_json_pack("{s:o,s:{s:s,s:f}}", "full_attention", full, "sliding_attention", "rope_type",
                                    "default", "rope_theta", theta)));
    TX_TRY(tx_json_set_number(full, "rope_theta", theta));
    return tx_json_set_null(json, "rope_scaling");
}

/* Keys that llama.cpp derives from others. */
static tx_status derive(const reading *m, tx_json *json)
{
    int64_t layers, width, heads, size;
    double number = 1e4, part = 1;
    if (m->model.type->family == TX_GGUF_GPT_NEOX) {
        TX_TRY(tx_json_get_number(json, "rope_theta", 0, 1e12, &number));
        TX_TRY(tx_json_set_number(json, "rotary_emb_base", number));
        TX_TRY(TX_JSON_OPTIONAL(number, json, "partial_rotary_factor", 0, 1, &part));
        return tx_json_set_number(json, "rotary_pct", part);
    }
    if (m->model.type->family == TX_GGUF_MPT)
        return read_clip(m, json);
    if (m->model.type->family == TX_GGUF_MODERNBERT)
        return check_complete(m);
    if (m->model.type->family == TX_GGUF_OLMO3)
        TX_TRY(set_ropes(json));
    if (m->model.type->family == TX_GGUF_EXAONE4 || m->model.type->family == TX_GGUF_OLMO3)
        return set_windows(m, json);
    if (m->model.type->family == TX_GGUF_QWEN3_MOE)
        return tx_json_set_bool(json, "norm_topk_prob", true);
    if (m->model.type->family == TX_GGUF_GPT_OSS && !tx_json_has(json, "rope_scaling")) { /* null means yarn */
        tx_json *rope = tx_json_object();
        TX_TRY(tx_json_set(json, "rope_scaling", rope));
        return tx_json_set_string(rope, "rope_type", "default");
    }
    if (m->model.type->family != TX_GGUF_GEMMA2)
        return TX_OK;
    TX_TRY(tx_json_get_int(json, "num_hidden_layers", 1, 1 << 24, &layers));
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 24, &width));
    TX_TRY(tx_json_get_int(json, "num_attention_heads", 1, 1 << 24, &heads));
    TX_TRY(tx_json_get_int(json, "head_dim", 1, 1 << 24, &size));
    const bool third = strcmp(m->model.type->type, "gemma3_text") == 0;
    TX_TRY(tx_json_set_int(json, "query_pre_attn_scalar", layers == (third ? 62 : 46) ? width / heads : size));
    return third ? tx_json_set_number(json, "rope_local_base_freq", number) : TX_OK;
}

/* Encoders have no tokens that begin and end a text. */
static tx_status read_encoder(const reading *m, int64_t vocab, tx_json *json)
{
    const int32_t types = tx_gguf_find(m->file, TX_GGUF_TYPES);
    if (types >= 0)
        TX_TRY(tx_json_set_int(json, "type_vocab_size", tx_gguf_tensor_at(m->file, types)->dim[0]));
    return read_special(m, "tokenizer.ggml.padding_token_id", "pad_token_id", vocab, json);
}

/* Settings that follow from the tensors: vocabulary size, untied output head, biases. */
static tx_status read_tensors(const reading *m, tx_json *json)
{
    const int32_t embedding = tx_gguf_find(m->file, TX_GGUF_EMBEDDING);
    if (embedding < 0 || tx_gguf_tensor_at(m->file, embedding)->rank != 2)
        return tx_fail(TX_FORMAT, "has no matrix " TX_GGUF_EMBEDDING);
    const int64_t vocab = tx_gguf_tensor_at(m->file, embedding)->dim[0];
    const tx_gguf_dtype dtype = tx_gguf_tensor_at(m->file, embedding)->dtype;
    TX_TRY(tx_json_set_string(json, "dtype",
                              dtype == TX_GGUF_F16    ? "float16"
                              : dtype == TX_GGUF_BF16 ? "bfloat16"
                                                      : "float32"));
    TX_TRY(tx_json_set_int(json, "vocab_size", vocab));
    if (tx_gguf_has_rows(m->model.type, TX_GGUF_BERT))
        return read_encoder(m, vocab, json);
    TX_TRY(read_special(m, "tokenizer.ggml.bos_token_id", "bos_token_id", vocab, json));
    TX_TRY(read_special(m, "tokenizer.ggml.eos_token_id", "eos_token_id", vocab, json));
    if (m->model.type->family == TX_GGUF_GPT2)
        return TX_OK;
    if (m->model.type->family == TX_GGUF_T5) /* T5 with ReLU, or T5 1.1 and later */
        TX_TRY(tx_json_set_string(json, "feed_forward_proj",
                                  tx_gguf_find(m->file, TX_GGUF_T5_GATE) < 0 ? "relu" : "gated-gelu"));
    TX_TRY(read_special(m, "tokenizer.ggml.padding_token_id", "pad_token_id", vocab, json));
    TX_TRY(tx_json_set_bool(json, "tie_word_embeddings", tx_gguf_find(m->file, TX_GGUF_OUTPUT) < 0));
    /* The types whose config.json says whether there are biases. */
    const char *type = m->model.type->type;
    if (strcmp(type, "stablelm") == 0)
        return tx_json_set_bool(json, "use_qkv_bias", tx_gguf_find(m->file, "blk.0.attn_q.bias") >= 0);
    if (strcmp(type, "qwen2_moe") == 0)
        return tx_json_set_bool(json, "qkv_bias", tx_gguf_find(m->file, "blk.0.attn_q.bias") >= 0);
    const bool both = strcmp(type, "llama") == 0 || strcmp(type, "granite") == 0 || strcmp(type, "smollm3") == 0;
    if (!both && strcmp(type, "seed_oss") != 0 && !tx_gguf_has_rows(m->model.type, TX_GGUF_GLM) &&
        strcmp(type, "granitemoe") != 0)
        return TX_OK;
    TX_TRY(tx_json_set_bool(json, "attention_bias", tx_gguf_find(m->file, "blk.0.attn_q.bias") >= 0));
    return !both ? TX_OK : tx_json_set_bool(json, "mlp_bias", tx_gguf_find(m->file, "blk.0.ffn_gate.bias") >= 0);
}

/* Reads the frequency divisors, or NULL if there are none. */
static tx_status read_factors(const reading *m, int64_t *pairs, float **factors)
{
    const int32_t index = tx_gguf_find(m->file, TX_GGUF_ROPE_FACTORS);
    *factors = NULL;
    if (index < 0)
        return TX_OK;
    if (tx_gguf_elements(tx_gguf_tensor_at(m->file, index)) != *pairs)
        return tx_fail(TX_FORMAT, TX_GGUF_ROPE_FACTORS " does not have %" PRId64 " elements", *pairs);
    float *made = malloc((size_t)*pairs * sizeof *made);
    const tx_status status = made ? tx_gguf_read_f32(m->file, index, 0, *pairs, made)
                                  : tx_fail(TX_MEMORY, "no memory for " TX_GGUF_ROPE_FACTORS);
    return TX_RETURN(status, made, factors, free);
}

/* Reads rope settings, which need the head size that other keys define. */
static tx_status read_rope(reading *m, tx_json *json)
{
    int64_t width, heads, size;
    float *factors;
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 24, &width));
    TX_TRY(tx_json_get_int(json, "num_attention_heads", 1, 1 << 24, &heads));
    size = width / heads;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "head_dim", 2, 1 << 24, &size));
    m->model.kv_heads = heads;
    TX_TRY(TX_JSON_OPTIONAL(int, json, "num_key_value_heads", 1, 1 << 24, &m->model.kv_heads));
    if (m->model.type->family != TX_GGUF_FALCON)
        TX_TRY(tx_json_set_int(json, "num_key_value_heads", m->model.kv_heads));
    size /= 2;
    TX_TRY(read_factors(m, &size, &factors));
    const tx_status status = tx_gguf_get_rope(m->file, m->model.type->architecture, factors, size, json);
    free(factors);
    return status;
}

static tx_status fill_json(reading *m, tx_json *json)
{
    TX_TRY(tx_json_set_string(json, "model_type", m->model.type->type));
    for (const tx_gguf_key *row = tx_gguf_keys; row->key; row++)
        if (tx_gguf_has_key(m->model.type, row))
            TX_TRY(read_key(m, row, json));
    TX_TRY(read_tensors(m, json));
    if (tx_gguf_has_rows(m->model.type, TX_GGUF_LLAMA))
        TX_TRY(read_rope(m, json));
    return derive(m, json);
}

tx_status tx_gguf_model_read(const tx_gguf_file *file, tx_gguf_model *model)
{
    reading m = {.file = file};
    TX_TRY(find_type(&m));
    tx_json *json = tx_json_object();
    tx_status status = fill_json(&m, json);
    if (status == TX_NOT_FOUND)
        status = tx_fail_in(TX_FORMAT, "its configuration");
    if (status) {
        tx_json_free(json);
        return status;
    }
    TX_TRY(tx_config_of_json(json, &m.model.config));
    if (tx_gguf_has_rows(m.model.type, TX_GGUF_BERT))
        status = tx_config_set_head(m.model.config, TX_HEAD_STATES);
    m.model.config->new_head = false;
    TX_THEN(status, check_keys(&m));
    if (status)
        tx_config_free(m.model.config);
    else
        *model = m.model;
    return status;
}

tx_status tx_config_of_gguf(const char *path, tx_config **config)
{
    tx_gguf_file *file = NULL;
    tx_gguf_model model;
    TX_TRY(tx_gguf_open(path, &file));
    const tx_status status = tx_fail_in(tx_gguf_model_read(file, &model), "%s", path);
    tx_gguf_close(file);
    if (!status)
        *config = model.config;
    return status;
}
