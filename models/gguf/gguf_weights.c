/* SPDX-License-Identifier: Apache-2.0
 * Reads the weights in a GGUF file, under the names and in the layout of Hugging Face's. */
#include "models/gguf/gguf.h"

#include "api/base/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Elements per comparison, a multiple of all block sizes. */
#define CHUNK 4096

typedef struct reading {
    tx_gguf_file *file;
    tx_config *config;
    int32_t pieces;
    tx_weights_piece *piece;
    int32_t *source; /* for each piece, the index of its tensor in the file */
    tx_gguf_layout *layout;
    tx_st_tensor *tensor;
    tx_dtype *stored; /* for each piece, as in tx_weights_source */
    bool *turned;
    tx_gguf_reader reader;
} reading;

/* `count` is the number of experts, or of heads, whose tensors the file has in one. */
static tx_status check_shape(const reading *m, const tx_gguf_layout *layout, int64_t count, int32_t index)
{
    const tx_gguf_tensor *has = tx_gguf_tensor_at(m->file, index);
    const tx_shape *shape = &layout->shape;
    const int32_t outer = layout->expert >= 0; /* the tensor has a dimension of experts */
    const int32_t skip = shape->rank == 2 && shape->dim[0] == 1 && has->rank == 1; /* older files have a vector */
    bool fits = has->rank == shape->rank + outer - skip && (!outer || has->dim[0] == count);
    for (int32_t d = skip; d < shape->rank && fits; d++)
        fits = has->dim[d + outer - skip] == shape->dim[d];
    if (!fits)
        return tx_fail(TX_FORMAT, "tensor %s does not have the shape that the configuration requires", has->name);
    if (layout->form == TX_GGUF_GATES && layout->rows % tx_gguf_block(has->dtype))
        return tx_fail(TX_UNSUPPORTED, "tensor %s: biases must be F32, F16 or BF16", has->name);
    return TX_OK;
}

static tx_status find_tensor(const reading *m, const tx_gguf_layout *layout, int64_t count, int32_t *index)
{
    *index = tx_gguf_find(m->file, layout->name);
    return *index < 0 ? tx_fail(TX_FORMAT, "has no tensor %s", layout->name) : check_shape(m, layout, count, *index);
}

static tx_status list_tensor(reading *m, int32_t i)
{
    const tx_weights_piece *piece = &m->piece[i];
    const tx_shape *shape = &piece->shape;
    tx_gguf_layout *layout = &m->layout[i];
    char param[TX_ARCH_NAME];
    tx_param_spec spec;
    TX_TRY(tx_arch_param(m->config, piece->param, param, &spec));
    TX_TRY(tx_gguf_layout_of(m->config, m->piece, i, false, layout));
    m->tensor[i] = tx_weights_part(piece->name, TX_F32, shape);
    TX_TRY(find_tensor(m, layout, spec.shape.dim[0], &m->source[i]));
    const tx_gguf_tensor *has = tx_gguf_tensor_at(m->file, m->source[i]);
    m->turned[i] = layout->form == TX_GGUF_TURNED && shape->rank == 2;
    m->stored[i] = tx_gguf_is_computed(layout) && !m->turned[i] ? TX_DTYPE_COUNT : tx_gguf_stored(has->dtype);
    if (!tx_gguf_is_double(layout))
        return TX_OK;
    tx_gguf_layout second = *layout;
    tx_gguf_to_second(&second);
    return find_tensor(m, &second, spec.shape.dim[0], &layout->ups);
}

/* If the embedding is the output head and the file also has an output head, the two must be equal. */
static tx_status check_tied(const reading *m, int32_t output)
{
    const int32_t embedding = tx_gguf_find(m->file, TX_GGUF_EMBEDDING);
    const int64_t count = tx_gguf_elements(tx_gguf_tensor_at(m->file, embedding));
    float one[CHUNK], other[CHUNK];
    bool same = count == tx_gguf_elements(tx_gguf_tensor_at(m->file, output));
    for (int64_t at = 0; at < count && same; at += CHUNK) {
        const int64_t now = count - at < CHUNK ? count - at : CHUNK;
        TX_TRY(tx_gguf_read_f32(m->file, embedding, at, now, one));
        TX_TRY(tx_gguf_read_f32(m->file, output, at, now, other));
        same = memcmp(one, other, (size_t)now * sizeof *one) == 0;
    }
    return same ? TX_OK
                : tx_fail(TX_UNSUPPORTED,
                          TX_GGUF_OUTPUT " differs from " TX_GGUF_EMBEDDING ": an untied output head is not "
                                         "implemented");
}

/* Whether a tensor is of a layer of multi-token prediction, which TX does not have. */
static bool is_further(const reading *m, const char *name)
{
    char key[TX_GGUF_KEY_ROOM];
    tx_gguf_key_of(key, tx_gguf_family_of(m->config)->architecture, TX_GGUF_MTP);
    return strncmp(name, "blk.", 4) == 0 && atoll(name + 4) >= m->config->layers && tx_gguf_has(m->file, key);
}

/* Every other tensor of the file must be used, so that none is ignored silently. */
static tx_status check_others(const reading *m)
{
    const tx_architecture *type = m->config->architecture;
    int64_t size;
    const tx_gguf_scheme *scheme = tx_gguf_family_of(m->config)->scheme;
    const bool rotates = scheme->rope && scheme->rope(m->config, &size);
    for (int32_t t = 0; t < tx_gguf_count(m->file); t++) {
        const char *name = tx_gguf_tensor_at(m->file, t)->name;
        bool used = (strcmp(name, TX_GGUF_ROPE_FACTORS) == 0 && rotates) || is_further(m, name);
        for (int32_t i = 0; i < m->pieces && !used; i++)
            used = m->source[i] == t || (tx_gguf_is_double(&m->layout[i]) && m->layout[i].ups == t);
        if (!used && strcmp(name, TX_GGUF_OUTPUT) == 0)
            TX_TRY(check_tied(m, t));
        else if (!used)
            return tx_fail(TX_UNSUPPORTED, "tensor %s is not part of a %s model", name, type->type);
    }
    return TX_OK;
}

static tx_status list_tensors(reading *m)
{
    const int32_t params = tx_arch_params(m->config);
    if (params > tx_gguf_count(m->file)) /* before memory is allocated for an untrusted number of layers */
        return tx_fail(TX_FORMAT, "has %" PRId32 " tensors, but its configuration requires at least %" PRId32 "",
                       tx_gguf_count(m->file), params);
    TX_TRY(tx_arch_pieces(m->config, &m->piece, &m->pieces));
    const size_t room = (size_t)m->pieces + 1;
    m->source = malloc(room * sizeof *m->source);
    m->layout = calloc(room, sizeof *m->layout);
    m->tensor = calloc(room, sizeof *m->tensor);
    m->stored = calloc(room, sizeof *m->stored);
    m->turned = calloc(room, sizeof *m->turned);
    if (!m->source || !m->layout || !m->tensor || !m->stored || !m->turned)
        return tx_fail(TX_MEMORY, "no memory for the list of tensors");
    for (int32_t i = 0; i < m->pieces; i++)
        TX_TRY(list_tensor(m, i));
    return check_others(m);
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

static tx_status read_file(const void *from, int32_t index, int64_t first, int64_t count, float *data)
{
    return tx_gguf_read_f32(from, index, first, count, data);
}

/* The first element of an expert's matrix in the tensor of all experts. */
static int64_t skipped(const tx_gguf_layout *layout)
{
    return layout->expert > 0 ? layout->expert * layout->rows * layout->width : 0;
}

static tx_status read_tensor(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    reading *m = context;
    const tx_gguf_layout *layout = &m->layout[index];
    return tx_fail_in(tx_gguf_read_as(&m->reader, layout, m->source[index], skipped(layout) + first, count, data),
                      "%s: tensor %s", tx_gguf_path(m->file), layout->name);
}

/* Reads row by row if the order of rows differs. */
static tx_status read_stored(void *context, int32_t index, int64_t first, int64_t count, void *data)
{
    const reading *m = context;
    const tx_gguf_layout *layout = &m->layout[index];
    const tx_gguf_dtype dtype = tx_gguf_tensor_at(m->file, m->source[index])->dtype;
    const int64_t width = layout->width;
    uint8_t *to = data;
    if (layout->form == TX_GGUF_PLAIN || layout->form == TX_GGUF_TURNED)
        return tx_gguf_read_bytes(m->file, m->source[index], skipped(layout) + first, count, data);
    for (int64_t done = 0, now; done < count; done += now) {
        const int64_t row = (first + done) / width, at = (first + done) % width;
        bool second;
        const int64_t source = tx_gguf_source_row(layout, false, row, &second);
        now = width - at < count - done ? width - at : count - done;
        TX_TRY(tx_gguf_read_bytes(m->file, m->source[index], source * width + at, now,
                                  to + done / tx_gguf_block(dtype) * tx_gguf_block_bytes(dtype)));
    }
    return TX_OK;
}

static void release(void *context)
{
    reading *m = context;
    tx_gguf_reader_free(&m->reader);
    tx_config_free(m->config);
    free(m->piece);
    free(m->source);
    free(m->layout);
    free(m->tensor);
    free(m->stored);
    free(m->turned);
    tx_gguf_close(m->file);
    free(m);
}

static tx_status open_file(const char *path, reading **opened)
{
    reading *m = calloc(1, sizeof *m);
    if (!m)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    tx_status status = tx_gguf_open(path, &m->file);
    TX_THEN(status, tx_fail_in(tx_gguf_config(m->file, &m->config), "%s", path));
    TX_THEN(status, tx_fail_in(list_tensors(m), "%s", path));
    m->reader = (tx_gguf_reader){.read = read_file, .from = m->file};
    return TX_RETURN(status, m, opened, release);
}

tx_status tx_gguf_weights(const char *path, tx_weights **weights)
{
    reading *m = NULL;
    TX_TRY(open_file(path, &m));
    const tx_weights_source source = {.count = m->pieces,
                                      .tensor = m->tensor,
                                      .read = read_tensor,
                                      .stored = m->stored,
                                      .turned = m->turned,
                                      .read_stored = read_stored,
                                      .close = release,
                                      .context = m};
    return tx_weights_of_source(path, &source, weights);
}

/* ---- Blocks -------------------------------------------------------------------------------------------- */

/* The type of the blocks in which a parameter may hold a piece, or F32. */
static tx_dtype blocks_of(const reading *m, int32_t piece)
{
    const bool is_matrix = tx_gguf_tensor_at(m->file, m->source[piece])->rank == 2 + (m->layout[piece].expert >= 0);
    return is_matrix && tx_block_values(m->stored[piece]) > 0 ? m->stored[piece] : TX_F32;
}

/* The type of a parameter that consists of a piece of type `piece` and others of type `others`: the one with more bytes
 * if their blocks have equally many values. Sections of experts alternate, so they have one type. */
static tx_dtype joint(tx_dtype piece, tx_dtype others, bool experts)
{
    if (tx_block_values(piece) != tx_block_values(others) || (experts && piece != others))
        return TX_F32;
    return tx_block_bytes(piece) > tx_block_bytes(others) ? piece : others;
}

tx_status tx_gguf_keep_blocks(const char *path, tx_config *config)
{
    reading *m = NULL;
    tx_dtype *created = calloc((size_t)tx_arch_params(config) + 1, sizeof *created);
    tx_status status = created ? open_file(path, &m) : tx_fail(TX_MEMORY, "%s: out of memory", path);
    if (status) {
        free(created);
        return status;
    }
    for (int32_t i = 0; i < m->pieces; i++) {
        tx_dtype *type = &created[m->piece[i].param];
        *type = m->piece[i].first == 0 ? blocks_of(m, i) : joint(blocks_of(m, i), *type, m->layout[i].expert >= 0);
    }
    release(m);
    free(config->blocks);
    config->blocks = created;
    return TX_OK;
}
