/* SPDX-License-Identifier: Apache-2.0
 * From a GGUF file to a model folder. */
#include "models/arch/gguf.h"

#include "api/base/file.h"
#include "api/base/half.h"
#include "models/files/folder.h"
#include "models/text/tokenizer_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ARCHITECTURE "general.architecture"
#define OUTPUT "output.weight"
#define EMBEDDING "token_embd.weight"

typedef struct importing {
    const tx_gguf_file *file;
    tx_dtype dtype;
    const tx_reporter *report;
    const tx_gguf_type *type;
    tx_config *config;
    int64_t kv_heads;
    int32_t pieces;
    tx_weights_piece *piece;
    int32_t *source; /* of each piece, the tensor in the file */
    tx_gguf_layout *layout;
    tx_st_tensor *tensor;
    float *buffer;
    tx_st_writer *writer;
} importing;

/* ---- Configuration ------------------------------------------------------------------------------------ */

/* Of the rows of an architecture the one with a sliding window where there is one. */
static tx_status find_type(importing *m)
{
    char *name = NULL, key[TX_GGUF_KEY_ROOM];
    TX_TRY(tx_gguf_get_string(m->file, ARCHITECTURE, &name, NULL));
    const tx_gguf_type *row = tx_gguf_types;
    while (row->type && strcmp(row->architecture, name) != 0)
        row++;
    if (row->type)
        m->type = row;
    const tx_status status =
        m->type ? TX_OK
                : tx_fail(TX_UNSUPPORTED, ARCHITECTURE ": \"%.40s\" is not one of gpt2, llama, qwen2, qwen3", name);
    free(name);
    if (!status && m->type->pairs &&
        tx_gguf_has(m->file, tx_gguf_key_of(key, row->architecture, "attention.sliding_window")))
        m->type = row + 1;
    return status;
}

static tx_status read_key(const importing *m, const tx_gguf_key *row, tx_json *json)
{
    char key[TX_GGUF_KEY_ROOM];
    int64_t whole;
    double number;
    tx_gguf_key_of(key, m->type->architecture, row->key);
    if (!tx_gguf_has(m->file, key))
        return TX_OK;
    if (row->kind == TX_GGUF_NUMBER) {
        TX_TRY(tx_gguf_get_number(m->file, key, &number));
        return tx_json_set_number(json, row->name, number);
    }
    TX_TRY(tx_gguf_get_int(m->file, key, 0, UINT32_MAX, &whole));
    if (tx_json_has(json, row->name)) { /* two keys of one name */
        int64_t other;
        TX_TRY(tx_json_get_int(json, row->name, 0, UINT32_MAX, &other));
        if (other != whole)
            return tx_fail(TX_UNSUPPORTED, "%s is %" PRId64 ", not %" PRId64, key, whole, other);
    }
    return tx_json_set_int(json, row->name, whole);
}

static tx_status read_special(const importing *m, const char *key, const char *name, int64_t vocab, tx_json *json)
{
    int64_t id;
    const tx_status status = tx_gguf_get_int(m->file, key, 0, vocab - 1, &id);
    return status == TX_NOT_FOUND ? tx_json_set_null(json, name) : status ? status : tx_json_set_int(json, name, id);
}

/* What the tensors say: the vocabulary, a head of its own, biases. */
static tx_status read_tensors(const importing *m, tx_json *json)
{
    const int32_t embedding = tx_gguf_find(m->file, EMBEDDING);
    if (embedding < 0 || tx_gguf_tensor_at(m->file, embedding)->rank != 2)
        return tx_fail(TX_FORMAT, "has no matrix " EMBEDDING);
    const int64_t vocab = tx_gguf_tensor_at(m->file, embedding)->dim[0];
    TX_TRY(tx_json_set_int(json, "vocab_size", vocab));
    TX_TRY(read_special(m, "tokenizer.ggml.bos_token_id", "bos_token_id", vocab, json));
    TX_TRY(read_special(m, "tokenizer.ggml.eos_token_id", "eos_token_id", vocab, json));
    if (m->type->family == TX_GGUF_GPT2)
        return TX_OK;
    TX_TRY(tx_json_set_bool(json, "tie_word_embeddings", tx_gguf_find(m->file, OUTPUT) < 0));
    if (strcmp(m->type->type, "llama") != 0)
        return TX_OK;
    TX_TRY(tx_json_set_bool(json, "attention_bias", tx_gguf_find(m->file, "blk.0.attn_q.bias") >= 0));
    return tx_json_set_bool(json, "mlp_bias", tx_gguf_find(m->file, "blk.0.ffn_gate.bias") >= 0);
}

/* The factors of rotary positions, or NULL. */
static tx_status read_factors(const importing *m, int64_t *pairs, float **factors)
{
    const int32_t index = tx_gguf_find(m->file, TX_GGUF_ROPE_FACTORS);
    *factors = NULL;
    if (index < 0)
        return TX_OK;
    if (tx_gguf_elements(tx_gguf_tensor_at(m->file, index)) != *pairs)
        return tx_fail(TX_FORMAT, TX_GGUF_ROPE_FACTORS " has not %" PRId64 " elements", *pairs);
    float *made = malloc((size_t)*pairs * sizeof *made);
    const tx_status status = made ? tx_gguf_read_f32(m->file, index, 0, *pairs, made)
                                  : tx_fail(TX_MEMORY, "no memory for " TX_GGUF_ROPE_FACTORS);
    if (status)
        free(made);
    else
        *factors = made;
    return status;
}

/* Rotary positions depend on the size of heads, which other keys say. */
static tx_status read_rope(importing *m, tx_json *json)
{
    int64_t width, heads, size;
    float *factors;
    TX_TRY(tx_json_get_int(json, "hidden_size", 1, 1 << 24, &width));
    TX_TRY(tx_json_get_int(json, "num_attention_heads", 1, 1 << 24, &heads));
    size = width / heads;
    if (tx_json_has(json, "head_dim"))
        TX_TRY(tx_json_get_int(json, "head_dim", 2, 1 << 24, &size));
    m->kv_heads = heads;
    if (tx_json_has(json, "num_key_value_heads"))
        TX_TRY(tx_json_get_int(json, "num_key_value_heads", 1, 1 << 24, &m->kv_heads));
    else
        TX_TRY(tx_json_set_int(json, "num_key_value_heads", heads));
    size /= 2;
    TX_TRY(read_factors(m, &size, &factors));
    const tx_status status = tx_gguf_get_rope(m->file, m->type->architecture, factors, size, json);
    free(factors);
    return status;
}

static tx_status fill_json(importing *m, tx_json *json)
{
    TX_TRY(tx_json_set_string(json, "model_type", m->type->type));
    for (const tx_gguf_key *row = tx_gguf_keys; row->key; row++)
        if (row->family == m->type->family)
            TX_TRY(read_key(m, row, json));
    TX_TRY(read_tensors(m, json));
    return m->type->family == TX_GGUF_LLAMA ? read_rope(m, json) : TX_OK;
}

static tx_status read_config(importing *m)
{
    TX_TRY(find_type(m));
    tx_json *json = tx_json_object();
    tx_status status = fill_json(m, json);
    if (status == TX_NOT_FOUND)
        status = tx_fail_in(TX_FORMAT, "its configuration");
    if (status) {
        tx_json_free(json);
        return status;
    }
    return tx_config_of_json(json, &m->config);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

static tx_status list_tensor(importing *m, int32_t i)
{
    const tx_weights_piece *piece = &m->piece[i];
    const tx_shape *shape = &piece->shape;
    tx_gguf_layout *layout = &m->layout[i];
    TX_TRY(tx_gguf_layout_of(m->type, piece->name, shape, false, m->config->heads, m->kv_heads, layout));
    m->source[i] = tx_gguf_find(m->file, layout->name);
    m->tensor[i] = tx_weights_part(piece->name, m->dtype, shape);
    if (m->source[i] < 0)
        return tx_fail(TX_FORMAT, "has no tensor %s", layout->name);
    const tx_gguf_tensor *has = tx_gguf_tensor_at(m->file, m->source[i]);
    const bool turned = layout->form == TX_GGUF_TURNED;
    bool fits = has->rank == shape->rank;
    for (int32_t d = 0; d < shape->rank && fits; d++)
        fits = has->dim[d] == shape->dim[turned ? shape->rank - 1 - d : d];
    return fits ? TX_OK : tx_fail(TX_FORMAT, "tensor %s has not the shape that its configuration asks for", has->name);
}

/* A file's output head beside an embedding that is one already must be the same. */
static tx_status check_tied(const importing *m, int32_t output)
{
    const int32_t embedding = tx_gguf_find(m->file, EMBEDDING);
    const int64_t count = tx_gguf_elements(tx_gguf_tensor_at(m->file, embedding)), most = TX_WEIGHTS_CHUNK / 2;
    bool same = count == tx_gguf_elements(tx_gguf_tensor_at(m->file, output));
    for (int64_t at = 0; at < count && same; at += most) {
        const int64_t now = count - at < most ? count - at : most;
        TX_TRY(tx_gguf_read_f32(m->file, embedding, at, now, m->buffer));
        TX_TRY(tx_gguf_read_f32(m->file, output, at, now, m->buffer + most));
        same = memcmp(m->buffer, m->buffer + most, (size_t)now * sizeof *m->buffer) == 0;
    }
    return same ? TX_OK
                : tx_fail(TX_UNSUPPORTED, OUTPUT " differs from " EMBEDDING ": an output head of its own is "
                                                 "not implemented");
}

/* Nothing is left out in silence. */
static tx_status check_others(const importing *m)
{
    for (int32_t t = 0; t < tx_gguf_count(m->file); t++) {
        const char *name = tx_gguf_tensor_at(m->file, t)->name;
        bool used = strcmp(name, TX_GGUF_ROPE_FACTORS) == 0 && m->type->family == TX_GGUF_LLAMA;
        for (int32_t i = 0; i < m->pieces && !used; i++)
            used = m->source[i] == t;
        if (!used && strcmp(name, OUTPUT) == 0)
            TX_TRY(check_tied(m, t));
        else if (!used)
            return tx_fail(TX_UNSUPPORTED, "tensor %s is not one of a %s's", name, m->type->type);
    }
    return TX_OK;
}

static tx_status list_tensors(importing *m)
{
    const int32_t params = tx_arch_params(m->config);
    const size_t room = (size_t)params * TX_MAX_SECTIONS;
    if (params > tx_gguf_count(m->file)) /* before a stranger's number of layers asks for memory */
        return tx_fail(TX_FORMAT, "has %" PRId32 " tensors, its configuration asks for %" PRId32 " at least",
                       tx_gguf_count(m->file), params);
    m->piece = malloc(room * sizeof *m->piece);
    m->source = malloc(room * sizeof *m->source);
    m->layout = calloc(room, sizeof *m->layout);
    m->tensor = calloc(room, sizeof *m->tensor);
    m->buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *m->buffer);
    if (!m->piece || !m->source || !m->layout || !m->tensor || !m->buffer)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (int32_t i = 0; i < params; i++) {
        char name[TX_ARCH_NAME];
        tx_param_spec spec;
        TX_TRY(tx_arch_param(m->config, i, name, &spec));
        m->pieces += tx_weights_pieces(name, &spec, i, m->piece + m->pieces);
    }
    for (int32_t i = 0; i < m->pieces; i++)
        TX_TRY(list_tensor(m, i));
    return check_others(m);
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

static tx_status read_file(const void *from, int32_t index, int64_t first, int64_t count, float *data)
{
    return tx_gguf_read_f32(from, index, first, count, data);
}

/* Numbers as safetensors hold them, in place: GGUF files have the same types. */
static tx_status write_data(void *to, float *data, int64_t count)
{
    const importing *m = to;
    static const tx_gguf_dtype types[TX_DTYPE_COUNT] = {
        [TX_F32] = TX_GGUF_F32, [TX_F16] = TX_GGUF_F16, [TX_BF16] = TX_GGUF_BF16};
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(data[i]))
            return tx_fail(TX_FORMAT, "holds %f: such weights are refused", (double)data[i]);
    const tx_gguf_tensor of = {.dtype = types[m->dtype], .rank = 1, .dim = {count}};
    if (m->dtype != TX_F32)
        tx_gguf_encode(types[m->dtype], data, count, data);
    return tx_st_append(m->writer, data, (size_t)tx_gguf_bytes(&of));
}

static tx_status write_weights(importing *m, const char *path)
{
    const tx_gguf_copy copy = {
        .read = read_file, .take = write_data, .from = m->file, .to = m, .buffer = m->buffer, .to_gguf = false};
    TX_TRY(tx_st_create(path, m->tensor, m->pieces, NULL, &m->writer));
    for (int32_t i = 0; i < m->pieces; i++) {
        TX_TRY(tx_fail_in(tx_gguf_copy_tensor(&copy, &m->layout[i], m->source[i]), "%s: tensor %s",
                          tx_gguf_path(m->file), m->layout[i].name));
        tx_report_progress(m->report, path, i + 1, m->pieces);
    }
    tx_st_writer *writer = m->writer;
    m->writer = NULL;
    return tx_st_commit(writer);
}

static tx_status import(importing *m, const char *path, const char *folder)
{
    const char *const config = TX_PATH(folder, "config.json"), *const weights = TX_PATH(folder, TX_WEIGHTS_SINGLE);
    if (tx_file_exists(config) || tx_file_exists(weights))
        return tx_fail(TX_INVALID, "%s: holds a model already: name another folder", folder);
    TX_TRY(tx_fail_in(read_config(m), "%s", path));
    TX_TRY(tx_fail_in(list_tensors(m), "%s", path));
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_fail_in(tx_tokenizer_of_gguf(m->file, folder), "%s", path));
    TX_TRY(write_weights(m, weights));
    return tx_config_write(m->config, m->dtype, config);
}

tx_status tx_gguf_import(const char *path, const char *folder, tx_dtype dtype, const tx_reporter *report)
{
    importing m = {.dtype = dtype, .report = report};
    tx_gguf_file *file = NULL;
    tx_status status = tx_gguf_open(path, &file);
    m.file = file;
    TX_THEN(status, import(&m, path, folder));
    tx_st_discard(m.writer);
    tx_config_free(m.config);
    free(m.piece);
    free(m.source);
    free(m.layout);
    free(m.tensor);
    free(m.buffer);
    tx_gguf_close(file);
    return status;
}
