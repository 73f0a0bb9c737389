/* SPDX-License-Identifier: Apache-2.0
 * Reads MXFP4 weights. */
#include "models/files/mxfp4.h"

#include "models/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS "_blocks"
#define SCALES "_scales"

/* Where a shown tensor is stored. */
typedef struct stored {
    int32_t index, scales; /* scales: -1 if the tensor is not MXFP4 */
    char *name;
} stored;

typedef struct mxfp4 {
    tx_weights *inner;
    int32_t count;
    tx_st_tensor *tensor;
    stored *stored;
    /* The matrix [in, out] of one expert, and which it is. */
    int32_t loaded;
    int64_t expert;
    float *matrix, *bytes, *scale;
} mxfp4;

static void close_all(void *context)
{
    mxfp4 *m = context;
    for (int32_t i = 0; i < m->count && m->stored; i++)
        free(m->stored[i].name);
    tx_weights_close(m->inner);
    free(m->matrix);
    free(m->bytes);
    free(m->scale);
    free(m->tensor);
    free(m->stored);
    free(m);
}

/* Writes the 32 elements of a block to a column of a matrix with rows of `stride` elements. */
static void put_block(const float *bytes, float scale, int64_t stride, float *to)
{
    for (int i = 0; i < TX_MXFP4_BLOCK / 2; i++) {
        const unsigned byte = (unsigned)bytes[i];
        to[2 * i * stride] = tx_mxfp4_value(byte & 15u, (int)scale);
        to[(2 * i + 1) * stride] = tx_mxfp4_value(byte >> 4, (int)scale);
    }
}

static tx_status load_expert(mxfp4 *m, int32_t index, int64_t expert)
{
    const tx_st_tensor *t = &m->tensor[index];
    const int64_t in = t->dim[1], out = t->dim[2], groups = in / TX_MXFP4_BLOCK, count = in * out;
    if (m->loaded == index && m->expert == expert)
        return TX_OK;
    m->loaded = -1;
    free(m->matrix);
    free(m->bytes);
    free(m->scale);
    m->matrix = malloc((size_t)count * sizeof *m->matrix);
    m->bytes = malloc((size_t)count / 2 * sizeof *m->bytes);
    m->scale = malloc((size_t)(out * groups) * sizeof *m->scale);
    if (!m->matrix || !m->bytes || !m->scale)
        return tx_fail(TX_MEMORY, "%s: no memory for a matrix", t->name);
    TX_TRY(tx_weights_read_f32(m->inner, m->stored[index].index, expert * count / 2, count / 2, m->bytes));
    TX_TRY(tx_weights_read_f32(m->inner, m->stored[index].scales, expert * out * groups, out * groups, m->scale));
    for (int64_t i = 0; i < out * groups; i++)
        put_block(m->bytes + i * TX_MXFP4_BLOCK / 2, m->scale[i], out,
                  m->matrix + i % groups * TX_MXFP4_BLOCK * out + i / groups);
    m->loaded = index;
    m->expert = expert;
    return TX_OK;
}

static tx_status read_f32(void *context, int32_t index, int64_t first, int64_t count, float *data)
{
    mxfp4 *m = context;
    if (m->stored[index].scales < 0)
        return tx_weights_read_f32(m->inner, m->stored[index].index, first, count, data);
    const int64_t size = m->tensor[index].dim[1] * m->tensor[index].dim[2];
    for (int64_t end = first + count, part; first < end; first += part, data += part) {
        const int64_t at = first % size;
        part = end - first < size - at ? end - first : size - at;
        TX_TRY(load_expert(m, index, first / size));
        memcpy(data, m->matrix + at, (size_t)part * sizeof *data);
    }
    return TX_OK;
}

/* Shows blocks and scales as one matrix. */
static tx_status show(mxfp4 *m, int32_t index, const tx_st_tensor *blocks)
{
    stored *s = &m->stored[m->count];
    const size_t length = strlen(blocks->name) - strlen(BLOCKS);
    char scales[TX_WEIGHTS_NAME];
    snprintf(scales, sizeof scales, "%.*s" SCALES, (int)length, blocks->name);
    *s = (stored){.index = index, .scales = tx_weights_find(m->inner, NULL, scales)};
    const tx_st_tensor *other = s->scales < 0 ? NULL : tx_weights_tensor_at(m->inner, s->scales);
    if (!other || blocks->dtype != TX_ST_U8 || blocks->rank != 4 || blocks->dim[3] != TX_MXFP4_BLOCK / 2 ||
        other->dtype != TX_ST_U8 || other->rank != 3 || memcmp(other->dim, blocks->dim, 3 * sizeof other->dim[0]) != 0)
        return tx_fail(TX_FORMAT, "%s: expected U8 [E, out, in / 32, 16], and %s, U8 [E, out, in / 32]", blocks->name,
                       scales);
    s->name = strndup(blocks->name, length);
    if (!s->name)
        return tx_fail(TX_MEMORY, "%s: out of memory", blocks->name);
    m->tensor[m->count++] = (tx_st_tensor){.name = s->name,
                                           .dtype = TX_ST_BF16,
                                           .rank = 3,
                                           .dim = {blocks->dim[0], blocks->dim[2] * TX_MXFP4_BLOCK, blocks->dim[1]}};
    return TX_OK;
}

static tx_status show_all(mxfp4 *m)
{
    const int32_t count = tx_weights_count(m->inner);
    m->tensor = calloc((size_t)count + 1, sizeof *m->tensor);
    m->stored = calloc((size_t)count + 1, sizeof *m->stored);
    if (!m->tensor || !m->stored)
        return tx_fail(TX_MEMORY, "no memory for a list of tensors");
    for (int32_t i = 0; i < count; i++) {
        const tx_st_tensor *t = tx_weights_tensor_at(m->inner, i);
        if (tx_ends_with(t->name, BLOCKS)) {
            TX_TRY(show(m, i, t));
        } else if (!tx_ends_with(t->name, SCALES)) {
            m->stored[m->count] = (stored){.index = i, .scales = -1};
            m->tensor[m->count++] = *t;
        }
    }
    return TX_OK;
}

static bool has_blocks(const tx_weights *weights)
{
    for (int32_t i = 0; i < tx_weights_count(weights); i++)
        if (tx_ends_with(tx_weights_tensor_at(weights, i)->name, BLOCKS))
            return true;
    return false;
}

tx_status tx_mxfp4_open(tx_weights **weights)
{
    if (!has_blocks(*weights))
        return TX_OK;
    char path[4096];
    snprintf(path, sizeof path, "%s", tx_weights_path(*weights));
    mxfp4 *created = calloc(1, sizeof *created);
    if (!created) {
        tx_weights_close(*weights);
        *weights = NULL;
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    }
    created->inner = *weights;
    created->loaded = -1;
    *weights = NULL;
    const tx_status status = tx_fail_in(show_all(created), "%s", path);
    if (status) {
        close_all(created);
        return status;
    }
    const tx_weights_source source = {
        .count = created->count, .tensor = created->tensor, .read = read_f32, .close = close_all, .context = created};
    return tx_weights_of_source(path, &source, weights);
}
