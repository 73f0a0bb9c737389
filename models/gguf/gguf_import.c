/* SPDX-License-Identifier: Apache-2.0
 * Imports a GGUF file as a model folder. */
#include "models/gguf/gguf.h"

#include "api/base/file.h"
#include "models/files/folder.h"
#include "models/tx_text.h"

#include <math.h>
#include <stdlib.h>

typedef struct importing {
    tx_dtype dtype;
    const tx_reporter *report;
    tx_config *config;
    tx_weights *weights;
    tx_st_tensor *tensor; /* of the file that is written */
    float *buffer;
    tx_st_writer *writer;
} importing;

/* Appends numbers, converted in place to the type of the safetensors file. GGUF files use the same types. */
static tx_status append(importing *m, int64_t count)
{
    static const tx_gguf_dtype types[TX_DTYPE_COUNT] = {
        [TX_F32] = TX_GGUF_F32, [TX_F16] = TX_GGUF_F16, [TX_BF16] = TX_GGUF_BF16};
    const tx_gguf_tensor of = {.dtype = types[m->dtype], .rank = 1, .dim = {count}};
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(m->buffer[i]))
            return tx_fail(TX_FORMAT, "holds %f: weights must be finite", (double)m->buffer[i]);
    if (m->dtype != TX_F32)
        tx_gguf_encode(types[m->dtype], m->buffer, NULL, count, m->buffer);
    return tx_st_append(m->writer, m->buffer, (size_t)tx_gguf_bytes(&of));
}

static tx_status write_tensor(importing *m, int32_t index)
{
    const int64_t elements = tx_st_elements(&m->tensor[index]);
    for (int64_t at = 0; at < elements; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = elements - at < TX_WEIGHTS_CHUNK ? elements - at : TX_WEIGHTS_CHUNK;
        TX_TRY(tx_weights_read_f32(m->weights, index, at, now, m->buffer));
        TX_TRY(tx_fail_in(append(m, now), "%s: tensor %s", tx_weights_path(m->weights), m->tensor[index].name));
    }
    return TX_OK;
}

static tx_status write_weights(importing *m, const char *path)
{
    const int32_t count = tx_weights_count(m->weights);
    m->tensor = malloc((size_t)count * sizeof *m->tensor);
    m->buffer = malloc(TX_WEIGHTS_CHUNK * sizeof *m->buffer);
    if (!m->tensor || !m->buffer)
        return tx_fail(TX_MEMORY, "%s: no memory for the list of tensors", path);
    for (int32_t i = 0; i < count; i++) {
        const tx_st_tensor *of = tx_weights_tensor_at(m->weights, i);
        const tx_shape shape = tx_st_shape(of);
        m->tensor[i] = tx_weights_part(of->name, m->dtype, &shape);
    }
    TX_TRY(tx_st_create(path, m->tensor, count, &m->writer));
    for (int32_t i = 0; i < count; i++) {
        TX_TRY(write_tensor(m, i));
        tx_report_progress(m->report, path, i + 1, count);
    }
    tx_st_writer *writer = m->writer;
    m->writer = NULL;
    return tx_st_commit(writer);
}

static tx_status write_tokenizer(const char *path, const char *folder)
{
    tx_tokenizer *tokenizer = NULL;
    tx_status status = tx_tokenizer_open(path, &tokenizer);
    TX_THEN(status, tx_tokenizer_save(tokenizer, folder, 0));
    tx_tokenizer_free(tokenizer);
    return status;
}

/* A file that says how embeddings are made becomes a folder of sentence-transformers. */
static tx_status write_pooling(const tx_config *config, const char *path, const char *folder)
{
    tx_pooling pooling;
    tx_status status = tx_pooling_read(path, &pooling);
    const int64_t most = pooling.max_seq_length ? pooling.max_seq_length : config->positions;
    TX_THEN(status, pooling.given ? tx_pooling_write(&pooling, config->width, most, folder) : TX_OK);
    tx_pooling_free(&pooling);
    return status;
}

static tx_status import(importing *m, const char *path, const char *folder)
{
    const char *const config = TX_PATH(folder, "config.json"), *const weights = TX_PATH(folder, TX_WEIGHTS_SINGLE);
    if (tx_file_exists(config) || tx_file_exists(weights))
        return tx_fail(TX_INVALID, "%s: already holds a model: choose another folder", folder);
    TX_TRY(tx_config_of_gguf(path, &m->config));
    TX_TRY(tx_gguf_weights(path, &m->weights));
    TX_TRY(tx_folder_create(folder));
    TX_TRY(write_tokenizer(path, folder));
    TX_TRY(write_weights(m, weights));
    TX_TRY(write_pooling(m->config, path, folder));
    return tx_config_write(m->config, m->dtype, config);
}

tx_status tx_gguf_import(const char *path, const char *folder, tx_dtype dtype, const tx_reporter *report)
{
    importing m = {.dtype = dtype, .report = report};
    const tx_status status = import(&m, path, folder);
    tx_st_discard(m.writer);
    tx_weights_close(m.weights);
    tx_config_free(m.config);
    free(m.tensor);
    free(m.buffer);
    return status;
}
