/* SPDX-License-Identifier: Apache-2.0
 * Shared by the export to and the import from GGUF files: tables, names, and the order of rows. */
#include "models/arch/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tables ------------------------------------------------------------------------------------------ */

#define TX_GGUF_TYPE(type, architecture, family, pairs) {#type, architecture, TX_GGUF_##family, pairs},
#define TX_GGUF_KEY(family, key, name, kind, otherwise)
#define TX_GGUF_FIXED(type, name, value)
#define TX_GGUF_TENSOR(family, gguf, name, form)
const tx_gguf_type tx_gguf_types[] = {
#include "models/arch/gguf.def"
    {.type = NULL},
};

#define TX_GGUF_TYPE(type, architecture, family, pairs)
#define TX_GGUF_KEY(family, key, name, kind, otherwise) \
    {TX_GGUF_##family, key, name, TX_GGUF_##kind, TX_GGUF_##otherwise},
#define TX_GGUF_FIXED(type, name, value)
#define TX_GGUF_TENSOR(family, gguf, name, form)
const tx_gguf_key tx_gguf_keys[] = {
#include "models/arch/gguf.def"
    {.key = NULL},
};

#define TX_GGUF_TYPE(type, architecture, family, pairs)
#define TX_GGUF_KEY(family, key, name, kind, otherwise)
#define TX_GGUF_FIXED(type, name, value) {#type, name, value},
#define TX_GGUF_TENSOR(family, gguf, name, form)
const tx_gguf_fixed tx_gguf_fixed_keys[] = {
#include "models/arch/gguf.def"
    {.type = NULL},
};

static const struct {
    tx_gguf_family family;
    const char *gguf, *param;
    tx_gguf_form form;
} tensors[] = {
#define TX_GGUF_TYPE(type, architecture, family, pairs)
#define TX_GGUF_KEY(family, key, name, kind, otherwise)
#define TX_GGUF_FIXED(type, name, value)
#define TX_GGUF_TENSOR(family, gguf, name, form) {TX_GGUF_##family, gguf, name, TX_GGUF_##form},
#include "models/arch/gguf.def"
};

/* A family and another whose rows it has, too. */
static const tx_gguf_family shared[][2] = {
    {TX_GGUF_GPT_BIGCODE, TX_GGUF_GPT2},    {TX_GGUF_DISTILBERT, TX_GGUF_BERT},
    {TX_GGUF_MODERNBERT, TX_GGUF_BERT},     {TX_GGUF_GRANITE_MOE, TX_GGUF_GRANITE},
    {TX_GGUF_GRANITE_MOE, TX_GGUF_MIXTRAL}, {TX_GGUF_OLMO3, TX_GGUF_OLMO2},
    {TX_GGUF_EXAONE4, TX_GGUF_OLMO2},       {TX_GGUF_GLM4, TX_GGUF_GLM},
    {TX_GGUF_QWEN2_MOE, TX_GGUF_QWEN3_MOE}, {TX_GGUF_OLMOE, TX_GGUF_QWEN3_MOE},
};

bool tx_gguf_has_rows(const tx_gguf_type *type, tx_gguf_family family)
{
    bool has = family == type->family || (family == TX_GGUF_LLAMA && type->family > TX_GGUF_LLAMA);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        has = has || (shared[i][0] == type->family && shared[i][1] == family);
    return has;
}

bool tx_gguf_has_key(const tx_gguf_type *type, const tx_gguf_key *row)
{
    for (const tx_gguf_key *own = tx_gguf_keys; own != row; own++)
        if (tx_gguf_has_rows(type, own->family) && strcmp(own->key, row->key) == 0)
            return false;
    return tx_gguf_has_rows(type, row->family);
}

double tx_gguf_other_value(const tx_gguf_key *row, const tx_config *config)
{
    const double values[] = {[TX_GGUF_FOUR_WIDTHS] = 4 * (double)config->width,
                             [TX_GGUF_HEADS] = (double)config->heads,
                             [TX_GGUF_ONE] = 1,
                             [TX_GGUF_EIGHT] = 8,
                             [TX_GGUF_TINY] = 1e-12,
                             [TX_GGUF_FALSE] = 0,
                             [TX_GGUF_CONTEXT] = 512};
    return values[row->otherwise];
}

char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest)
{
    snprintf(key, TX_GGUF_KEY_ROOM, "%s.%s", architecture, rest);
    return key;
}

/* ---- Names and forms --------------------------------------------------------------------------------- */

/* Compares `name` with `pattern`, in which "%d" stands for the index of a block and then of an expert. `number`
 * receives them, or -1. */
static bool matches(const char *pattern, const char *name, int64_t number[2])
{
    number[0] = number[1] = -1;
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(pattern, "%d");
        const size_t before = at ? (size_t)(at - pattern) : 0;
        if (!at || strncmp(pattern, name, before) != 0)
            break;
        char *rest;
        number[i] = strtol(name + before, &rest, 10);
        if (rest == name + before)
            return false;
        name = rest;
        pattern = at + 2;
    }
    return strcmp(pattern, name) == 0;
}

/* Replaces "%d" in "blk.%d.attn_norm.weight" by the index of a block. -1 means that there is none. */
static void fill_name(const char *pattern, int64_t block, char name[TX_GGUF_NAME_ROOM])
{
    const char *number = strstr(pattern, "%d");
    if (block < 0 || !number)
        snprintf(name, TX_GGUF_NAME_ROOM, "%s", pattern);
    else
        snprintf(name, TX_GGUF_NAME_ROOM, "%.*s%" PRId64 "%s", (int)(number - pattern), pattern, block, number + 2);
}

/* Sets the shape in GGUF files, and the size of a matrix. A vector is a matrix of one column. The biases of gates and
 * ups of an expert are a matrix of one row in Hugging Face's files. */
static void fill_shape(tx_gguf_layout *layout, const tx_shape *shape, bool to_gguf)
{
    const bool gates = layout->form == TX_GGUF_GATES;
    tx_shape from = shape->rank == 1            ? TX_SHAPE(shape->dim[0], 1)
                    : gates && shape->rank == 2 ? TX_SHAPE(shape->dim[0], 1, shape->dim[1])
                                                : *shape;
    const int32_t last = from.rank - 1;
    tx_shape to = from;
    if (layout->form == TX_GGUF_HALVES)
        to.dim[last - 1] = from.dim[last - 1] / 2;
    if (gates || layout->form == TX_GGUF_TURNED) {
        to.dim[last - 1] = from.dim[last] / (gates ? 2 : 1);
        to.dim[last] = from.dim[last - 1];
    }
    layout->rows = (to_gguf ? &to : &from)->dim[last - 1];
    layout->width = (to_gguf ? &to : &from)->dim[last];
    layout->shape = to;
    layout->shape.rank = shape->rank;
}

tx_status tx_gguf_layout_of(const tx_gguf_type *type, const char *param, const tx_shape *shape, bool to_gguf,
                            int64_t heads, int64_t of_kv, tx_gguf_layout *layout)
{
    int64_t number[2];
    size_t i = 0;
    while (i < sizeof tensors / sizeof tensors[0] &&
           !(tx_gguf_has_rows(type, tensors[i].family) && matches(tensors[i].param, param, number)))
        i++;
    if (i == sizeof tensors / sizeof tensors[0])
        return tx_fail(TX_UNSUPPORTED, "%s has no equivalent in GGUF files", param);
    const tx_gguf_form form = tensors[i].form;
    const bool in_pairs = form == TX_GGUF_QUERIES || form == TX_GGUF_KEYS;
    layout->form = in_pairs && !type->pairs ? TX_GGUF_PLAIN : form;
    layout->heads = form == TX_GGUF_KEYS ? of_kv : heads;
    layout->expert = number[1];
    fill_shape(layout, shape, to_gguf);
    fill_name(tensors[i].gguf, number[0], layout->name);
    return TX_OK;
}

#define GATE "gate"
void tx_gguf_ups_name(const char *gates, char ups[TX_GGUF_NAME_ROOM])
{
    const char *at = strstr(gates, GATE);
    snprintf(ups, TX_GGUF_NAME_ROOM, "%.*sup%s", (int)(at - gates), gates, at + strlen(GATE));
}

/* ---- The order of rows ------------------------------------------------------------------------------- */

/* Rotary embeddings of Hugging Face rotate rows i and i + size / 2 of a head together. llama.cpp's Llama rotates rows 2
 * i and 2 i + 1. BY_HEAD swaps the order of heads and of query, key and value. HALVES takes the gates or the ups of an
 * expert. */
int64_t tx_gguf_source_row(const tx_gguf_layout *layout, bool to_gguf, int64_t row)
{
    if (layout->form == TX_GGUF_BY_HEAD) {
        const int64_t outer = to_gguf ? layout->heads : 3, inner = to_gguf ? 3 : layout->heads;
        const int64_t each = layout->rows / (outer * inner), group = row / each;
        return (group % outer * inner + group / outer) * each + row % each;
    }
    if (layout->form == TX_GGUF_HALVES) {
        const int64_t expert = row / layout->rows, at = row % layout->rows;
        return to_gguf ? (2 * expert + layout->is_ups) * layout->rows + at
                       : (expert * (layout->rows / 2)) + at % (layout->rows / 2);
    }
    const int64_t size = layout->rows / layout->heads, half = size / 2, head = row / size, at = row % size;
    return head * size + (to_gguf ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}

static tx_status read_rows(const tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t first,
                           int64_t count, float *data)
{
    const int64_t width = layout->width;
    for (int64_t done = 0, now; done < count; done += now) {
        const int64_t row = (first + done) / width, at = (first + done) % width;
        now = width - at < count - done ? width - at : count - done;
        const bool ups = layout->form == TX_GGUF_HALVES && !r->to_gguf && row % layout->rows >= layout->rows / 2;
        TX_TRY(r->read(r->from, ups ? layout->ups : index, tx_gguf_source_row(layout, r->to_gguf, row) * width + at,
                       now, data + done));
    }
    return TX_OK;
}

/* Reads the matrix of an expert, or the only one, into r->whole. GATES selects columns of it in an export, and merges
 * the rows of two tensors in an import. */
static tx_status hold(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t matrix)
{
    const int64_t rows = layout->rows, width = layout->width, step = layout->form == TX_GGUF_GATES ? 2 : 1;
    const int64_t size = rows * width * (r->to_gguf ? step : 1);
    if (r->held == layout && r->matrix == matrix)
        return TX_OK;
    tx_gguf_reader_free(r);
    r->whole = malloc((size_t)size * sizeof *r->whole);
    if (!r->whole)
        return tx_fail(TX_MEMORY, "no memory to transpose %s", layout->name);
    if (r->to_gguf || step == 1)
        TX_TRY(r->read(r->from, index, matrix * size, size, r->whole));
    else
        for (int64_t at = 0; at < width; at++)
            TX_TRY(r->read(r->from, at % 2 ? layout->ups : index, (matrix * (width / 2) + at / 2) * rows, rows,
                           r->whole + at * rows));
    for (int64_t i = 0; i < rows * width && size > rows * width; i++)
        r->whole[i] = r->whole[2 * i + layout->is_ups];
    r->held = layout;
    r->matrix = matrix;
    return TX_OK;
}

/* Reads transposed matrices. One whole matrix is held in memory. */
static tx_status read_transposed(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t first,
                                 int64_t count, float *data)
{
    const int64_t rows = layout->rows, width = layout->width, each = rows * width;
    for (int64_t i = 0, row = first % each / width, at = first % width; i < count; i++) {
        if (i == 0 || (row == 0 && at == 0))
            TX_TRY(hold(r, layout, index, (first + i) / each));
        data[i] = r->whole[at * rows + row];
        row += at + 1 == width;
        at = at + 1 == width ? 0 : at + 1;
        row = row == rows ? 0 : row;
    }
    return TX_OK;
}

static tx_status read_shifted(const tx_gguf_reader *r, int32_t index, int64_t first, int64_t count, float *data)
{
    TX_TRY(r->read(r->from, index, first, count, data));
    for (int64_t i = 0; i < count; i++)
        data[i] += r->to_gguf ? 1.0f : -1.0f;
    return TX_OK;
}

tx_status tx_gguf_read_as(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                          int64_t count, float *data)
{
    switch (layout->form) {
    case TX_GGUF_PLAIN:
        return reader->read(reader->from, index, first, count, data);
    case TX_GGUF_SHIFTED:
        return read_shifted(reader, index, first, count, data);
    case TX_GGUF_TURNED:
    case TX_GGUF_GATES:
        return read_transposed(reader, layout, index, first, count, data);
    default:
        return read_rows(reader, layout, index, first, count, data);
    }
}

void tx_gguf_reader_free(tx_gguf_reader *reader)
{
    free(reader->whole);
    reader->whole = NULL;
    reader->held = NULL;
}
