/* SPDX-License-Identifier: Apache-2.0
 * Reads the configuration in a GGUF file. */
#include "models/gguf/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const tx_gguf_file *file;
    const tx_architecture *type;
    const tx_gguf_family *family;
    tx_config *config;
    tx_json *json;
} reading;

/* Whether a block has a tensor. */
static bool has_in_block(const tx_gguf_file *file, const char *tensor)
{
    for (int32_t t = 0; t < tx_gguf_count(file); t++) {
        const char *name = tx_gguf_tensor_at(file, t)->name;
        const char *rest = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
        if (rest && strcmp(rest + 1, tensor) == 0)
            return true;
    }
    return false;
}

/* Whether the file has a key of the type's architecture, or a tensor, of a block or not. */
static bool has(const reading *m, const char *name)
{
    char key[TX_GGUF_KEY_ROOM];
    return name && (tx_gguf_has(m->file, tx_gguf_key_of(key, m->family->architecture, name)) ||
                    tx_gguf_find(m->file, name) >= 0 || has_in_block(m->file, name));
}

/* Whether the file is of the family m->family. */
static bool fits(const reading *m, const char *architecture)
{
    const tx_gguf_family *gguf = m->family;
    return !gguf->export_only && !gguf->never && strcmp(gguf->architecture, architecture) == 0 &&
           (!gguf->with || has(m, gguf->with)) && !has(m, gguf->without[0]) && !has(m, gguf->without[1]);
}

/* Selects the family of the type m->type that the file is of, if there is one. */
static bool fits_type(reading *m, const char *architecture)
{
    for (m->family = m->type->gguf; m->family && !fits(m, architecture);)
        m->family = m->family->other;
    return m->family;
}

static tx_status find_type(reading *m)
{
    char *name = NULL, known[512] = "";
    const char *last = "";
    TX_TRY(tx_gguf_get_string(m->file, TX_GGUF_ARCHITECTURE, &name, NULL));
    const tx_architecture *const *type = tx_architectures;
    for (; (m->type = *type) && !fits_type(m, name); type++)
        for (const tx_gguf_family *gguf = m->type->gguf; gguf; gguf = gguf->other)
            if (!gguf->export_only && !gguf->never && !gguf->with && strcmp(last, gguf->architecture) != 0)
                tx_list_add(known, sizeof known, ", ", "%s", last = gguf->architecture);
    const tx_status status =
        m->type ? TX_OK : tx_fail(TX_UNSUPPORTED, TX_GGUF_ARCHITECTURE ": \"%.40s\" is not one of %s", name, known);
    free(name);
    return status;
}

/* Reads an integer. Files may list it for each layer. With `gaps` some layers may have 0. */
static tx_status get_whole(const reading *m, const char *key, int64_t min, int64_t max, bool gaps, int64_t *whole)
{
    tx_gguf_array layers;
    if (tx_gguf_get_array(m->file, key, false, &layers))
        return tx_gguf_get_int(m->file, key, min, max, whole);
    tx_status status = layers.count > 0 ? TX_OK : tx_fail(TX_FORMAT, "%s is empty", key);
    int64_t first = 0;
    while (gaps && first + 1 < layers.count && layers.number[first] == 0)
        first++;
    const double value = status ? 0 : layers.number[first];
    for (int64_t i = first; i < layers.count && !status; i++)
        if (layers.number[i] != value && !(gaps && layers.number[i] == 0))
            status = tx_fail(TX_UNSUPPORTED,
                             "%s: layer %" PRId64 " has %g, layer %" PRId64 " %g: a %s has the same in all layers", key,
                             i, layers.number[i], first, value, m->type->type);
    if (!status && !(value >= (double)min && value <= (double)max))
        status = tx_fail(TX_FORMAT, "%s: %g is out of range", key, value);
    if (!status)
        *whole = (int64_t)value;
    tx_gguf_array_free(&layers);
    return status;
}

static tx_status read_key(void *context, const tx_gguf_key *row)
{
    const reading *m = context;
    const char *name = tx_gguf_name_of(m->type, row);
    char key[TX_GGUF_KEY_ROOM];
    int64_t whole;
    double number;
    tx_gguf_key_of(key, m->family->architecture, row->key);
    if (name && row->otherwise == TX_GGUF_HEADS && !tx_gguf_has(m->file, key))
        tx_gguf_key_of(key, m->family->architecture, TX_GGUF_HEAD_COUNT);
    if (!name || !tx_gguf_has(m->file, key))
        return TX_OK;
    if (row->kind == TX_GGUF_BOOL) {
        bool flag;
        TX_TRY(tx_gguf_get_bool(m->file, key, &flag));
        return tx_json_set_bool(m->json, name, flag);
    }
    if (row->kind == TX_GGUF_WORD) {
        char *word = NULL;
        tx_status status = tx_gguf_get_string(m->file, key, &word, NULL);
        TX_THEN(status, tx_json_set_string(m->json, name, word));
        free(word);
        return status;
    }
    if (row->kind == TX_GGUF_NUMBER) {
        TX_TRY(tx_gguf_get_number(m->file, key, &number));
        return tx_json_set_number(m->json, name, number);
    }
    TX_TRY(get_whole(m, key, 0, UINT32_MAX, row->in != NULL, &whole));
    if (whole == 0 && row->in)
        return TX_OK;
    if (tx_json_has(m->json, name)) { /* two GGUF keys map to one name */
        int64_t other;
        TX_TRY(tx_json_get_int(m->json, name, 0, UINT32_MAX, &other));
        if (other != whole)
            return tx_fail(TX_UNSUPPORTED, "%s is %" PRId64 ", not %" PRId64, key, whole, other);
    }
    return tx_json_set_int(m->json, name, whole);
}

/* Compares a key that config.json does not have with the value that the configuration implies. */
static tx_status check_key(void *context, const tx_gguf_key *row)
{
    const reading *m = context;
    char key[TX_GGUF_KEY_ROOM];
    const double wanted = tx_gguf_other_value(m->config, row);
    double number = wanted;
    bool flag = wanted != 0;
    if (tx_gguf_name_of(m->type, row) || (row->otherwise == TX_GGUF_NOTHING && wanted == 0))
        return TX_OK;
    tx_gguf_key_of(key, m->family->architecture, row->key);
    if (row->kind == TX_GGUF_BOOL)
        TX_TRY(TX_GGUF_OPTIONAL(bool, m->file, key, &flag));
    else
        TX_TRY(TX_GGUF_OPTIONAL(number, m->file, key, &number));
    number = row->kind == TX_GGUF_BOOL ? flag : number;
    return number == wanted ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s is %g, not %g", key, number, wanted);
}

static tx_status read_special(const reading *m, const char *key, const char *name, int64_t vocab)
{
    int64_t id = -1;
    TX_TRY(TX_GGUF_OPTIONAL(int, m->file, key, 0, vocab - 1, &id));
    return id < 0 ? tx_json_set_null(m->json, name) : tx_json_set_int(m->json, name, id);
}

static bool is_fixed(const tx_gguf_family *family, const char *name)
{
    const tx_gguf_fixed *fixed = family->fixed;
    while (fixed && fixed->name && strcmp(fixed->name, name) != 0)
        fixed++;
    return fixed && fixed->name;
}

/* The keys that say whether there are biases, and other tensors that a model may lack. */
static tx_status read_flags(const reading *m)
{
    for (int i = 0; m->family->scheme->flags[i].tensor; i++) {
        const tx_config_key *key = tx_config_key_at(m->type, m->family->scheme->flags[i].member);
        if (key && !is_fixed(m->family, key->name))
            TX_TRY(tx_json_set_bool(m->json, key->name, has_in_block(m->file, m->family->scheme->flags[i].tensor)));
    }
    return TX_OK;
}

/* Encoders have no tokens that begin and end a text. */
static tx_status read_encoder(const reading *m, int64_t vocab)
{
    const int32_t types = tx_gguf_find(m->file, TX_GGUF_TYPES);
    if (types >= 0)
        TX_TRY(tx_json_set_int(m->json, "type_vocab_size", tx_gguf_tensor_at(m->file, types)->dim[0]));
    return read_special(m, "tokenizer.ggml.padding_token_id", "pad_token_id", vocab);
}

/* Settings that follow from the tensors: vocabulary size, untied output head, biases. */
static tx_status read_tensors(const reading *m)
{
    const int32_t embedding = tx_gguf_find(m->file, TX_GGUF_EMBEDDING);
    if (embedding < 0 || tx_gguf_tensor_at(m->file, embedding)->rank != 2)
        return tx_fail(TX_FORMAT, "has no matrix " TX_GGUF_EMBEDDING);
    const int64_t vocab = tx_gguf_tensor_at(m->file, embedding)->dim[0];
    const tx_gguf_dtype dtype = tx_gguf_tensor_at(m->file, embedding)->dtype;
    TX_TRY(tx_json_set_string(m->json, "dtype",
                              dtype == TX_GGUF_F16    ? "float16"
                              : dtype == TX_GGUF_BF16 ? "bfloat16"
                                                      : "float32"));
    TX_TRY(tx_json_set_int(m->json, "vocab_size", vocab));
    if (m->family->scheme->encoder)
        return read_encoder(m, vocab);
    TX_TRY(read_special(m, "tokenizer.ggml.bos_token_id", "bos_token_id", vocab));
    TX_TRY(read_special(m, "tokenizer.ggml.eos_token_id", "eos_token_id", vocab));
    if (!tx_config_key_named(m->type, "tie_word_embeddings"))
        return TX_OK;
    TX_TRY(read_special(m, "tokenizer.ggml.padding_token_id", "pad_token_id", vocab));
    TX_TRY(tx_json_set_bool(m->json, "tie_word_embeddings", tx_gguf_find(m->file, TX_GGUF_OUTPUT) < 0));
    return read_flags(m);
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
    float *created = malloc((size_t)*pairs * sizeof *created);
    const tx_status status = created ? tx_gguf_read_f32(m->file, index, 0, *pairs, created)
                                     : tx_fail(TX_MEMORY, "no memory for " TX_GGUF_ROPE_FACTORS);
    return TX_RETURN(status, created, factors, free);
}

/* Reads rope settings, which need the head size. */
static tx_status read_rope(const reading *m)
{
    const char *architecture = m->family->architecture;
    char key[TX_GGUF_KEY_ROOM];
    int64_t width, heads, size;
    float *factors;
    TX_TRY(tx_gguf_get_int(m->file, tx_gguf_key_of(key, architecture, "embedding_length"), 1, 1 << 24, &width));
    TX_TRY(get_whole(m, tx_gguf_key_of(key, architecture, TX_GGUF_HEAD_COUNT), 1, 1 << 24, false, &heads));
    size = width / heads;
    TX_TRY(
        TX_GGUF_OPTIONAL(int, m->file, tx_gguf_key_of(key, architecture, "attention.key_length"), 2, 1 << 24, &size));
    if (m->family->latent)
        TX_TRY(tx_gguf_get_int(m->file, tx_gguf_key_of(key, architecture, "rope.dimension_count"), 2, 1 << 24, &size));
    size /= 2;
    TX_TRY(read_factors(m, &size, &factors));
    const tx_status status = tx_gguf_get_rope(m->file, m->family, factors, size, m->json);
    free(factors);
    return status;
}

static tx_status fill_json(reading *m)
{
    const tx_gguf_family *gguf = m->family;
    int64_t size;
    TX_TRY(tx_json_set_string(m->json, "model_type", m->type->type));
    TX_TRY(tx_gguf_each_key(gguf, read_key, m));
    TX_TRY(read_tensors(m));
    if (gguf->scheme->rope && gguf->scheme->rope(m->type->defaults, &size))
        TX_TRY(read_rope(m));
    return gguf->read ? gguf->read(m->file, m->json) : TX_OK;
}

tx_status tx_gguf_config(const tx_gguf_file *file, tx_config **config)
{
    reading m = {.file = file};
    TX_TRY(find_type(&m));
    m.json = tx_json_object();
    tx_status status = fill_json(&m);
    if (status == TX_NOT_FOUND)
        status = tx_fail_in(TX_FORMAT, "its configuration");
    if (status) {
        tx_json_free(m.json);
        return status;
    }
    TX_TRY(tx_config_of_json(m.json, &m.config));
    if (m.family->scheme->encoder)
        status = tx_config_set_head(m.config, TX_HEAD_STATES);
    m.config->new_head = false;
    TX_THEN(status, tx_gguf_each_key(m.family, check_key, &m));
    return TX_RETURN(status, m.config, config, tx_config_free);
}

tx_status tx_config_of_gguf(const char *path, tx_config **config)
{
    tx_gguf_file *file = NULL;
    TX_TRY(tx_gguf_open(path, &file));
    const tx_status status = tx_fail_in(tx_gguf_config(file, config), "%s", path);
    tx_gguf_close(file);
    return status;
}
