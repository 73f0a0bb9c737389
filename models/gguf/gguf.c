/* SPDX-License-Identifier: Apache-2.0
 * Shared by the export to and the import from GGUF files: keys, names, and the order of rows. */
#include "models/gguf/gguf.h"

#include "api/base/arithmetic.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Keys -------------------------------------------------------------------------------------------- */

const char *tx_gguf_name_of(const tx_architecture *type, const tx_gguf_key *row)
{
    const tx_config_key *key = row->member ? tx_config_key_at(type, row->member) : NULL;
    return key ? key->name : row->name;
}

const tx_gguf_family *tx_gguf_family_of(const tx_config *config)
{
    const tx_gguf_family *family = config->architecture->gguf;
    return family && family->is_other && family->is_other(config) ? family->other : family;
}

double tx_gguf_other_value(const tx_config *config, const tx_gguf_key *row)
{
    if (row->value)
        return (double)row->value(config);
    const tx_config_value at = {.at = (const char *)config + row->member};
    const double value = !row->member || row->kind == TX_GGUF_WORD ? 0
                         : row->kind == TX_GGUF_NUMBER             ? *at.number
                         : row->kind == TX_GGUF_BOOL               ? *at.flag
                                                                   : (double)*at.whole;
    const double values[] = {[TX_GGUF_NOTHING] = 0,
                             [TX_GGUF_FOUR_WIDTHS] = 4 * (double)config->width,
                             [TX_GGUF_HEADS] = (double)config->heads,
                             [TX_GGUF_CONSTANT] = row->constant};
    return value > 0 ? value : values[row->otherwise];
}

static bool has_key(const tx_gguf_key *rows, const char *key)
{
    while (rows && rows->key && strcmp(rows->key, key) != 0)
        rows++;
    return rows && rows->key;
}

tx_status tx_gguf_each_key(const tx_gguf_family *family, tx_gguf_visit *visit, void *context)
{
    for (const tx_gguf_key *row = family->keys; row && row->key; row++)
        TX_TRY(visit(context, row));
    for (const tx_gguf_key *row = family->scheme->keys; row->key; row++)
        if (!has_key(family->keys, row->key))
            TX_TRY(visit(context, row));
    return TX_OK;
}

char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest)
{
    snprintf(key, TX_GGUF_KEY_ROOM, "%s.%s", architecture, rest);
    return key;
}

tx_status tx_gguf_own_key(const tx_gguf_file *file, const char *rest, char key[TX_GGUF_KEY_ROOM])
{
    char *architecture;
    TX_TRY(tx_gguf_get_string(file, TX_GGUF_ARCHITECTURE, &architecture, NULL));
    tx_gguf_key_of(key, architecture, rest);
    free(architecture);
    return TX_OK;
}

/* ---- Names and forms --------------------------------------------------------------------------------- */

static int32_t count_bars(const char *name)
{
    int32_t bars = 0;
    for (; *name; name++)
        bars += *name == '|';
    return bars;
}

static const char *find_name(const tx_gguf_name *names, const tx_stack_row *row)
{
    while (
        names && names->name &&
        !(names->slot == row->slot && names->first == row->first && count_bars(names->name) == count_bars(row->name)))
        names++;
    return names ? names->name : NULL;
}

/* Selects a section's name, and replaces "%d" in "blk.%d.attn_norm.weight" by the index of a block. */
static void fill_name(const char *pattern, int32_t section, int64_t block, char name[TX_GGUF_NAME_ROOM])
{
    char of_section[TX_WEIGHTS_NAME];
    tx_weights_piece_name(pattern, 0, section, of_section);
    const char *number = strstr(of_section, "%d");
    const int before = number ? (int)(number - of_section) : (int)strlen(of_section);
    int used = snprintf(name, TX_GGUF_NAME_ROOM, "%.*s", before, of_section);
    if (number)
        snprintf(name + used, TX_GGUF_NAME_ROOM - (size_t)used, "%" PRId64 "%s", block, number + 2);
}

/* Sets the shape in GGUF files, and the size of a matrix. A vector is a matrix of one column. The biases of gates and
 * ups of an expert are a matrix of one row in Hugging Face's files. */
static void fill_shape(tx_gguf_layout *layout, const tx_shape *shape, bool to_gguf)
{
    const bool gates = layout->form == TX_GGUF_GATES || layout->form == TX_GGUF_COLUMNS;
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

tx_status tx_gguf_layout_of(const tx_config *config, const tx_weights_piece *pieces, int32_t index, bool to_gguf,
                            tx_gguf_layout *layout)
{
    const tx_gguf_family *family = tx_gguf_family_of(config);
    const tx_weights_piece *piece = &pieces[index];
    int64_t block;
    const tx_stack_row *row = tx_stack_row_of(config, family->scheme->rows(config), piece->param, &block);
    const int32_t sections = count_bars(row->name) + 1;
    const bool starred = strchr(row->name, '*');
    int64_t before = starred ? piece->first / tx_shape_count(&piece->shape) : 0; /* pieces of the same parameter */
    while (!starred && before < index && pieces[index - before - 1].param == piece->param)
        before++;
    const char *name = find_name(family->names, row);
    name = name ? name : find_name(family->scheme->names, row);
    if (!name)
        return tx_fail(TX_UNSUPPORTED, "%s has no equivalent in GGUF files", piece->name);
    layout->heads = config->heads;
    layout->form = family->scheme->form
                       ? family->scheme->form(config, row, (int32_t)(before % sections), &layout->heads)
                       : TX_GGUF_PLAIN;
    layout->expert = starred ? before / sections : -1;
    fill_shape(layout, &piece->shape, to_gguf);
    fill_name(name, (int32_t)(before % sections), block, layout->name);
    if (family->lay)
        family->lay(config, row, (int32_t)(before % sections), layout);
    return TX_OK;
}

void tx_gguf_to_second(tx_gguf_layout *layout)
{
    const bool nets = layout->form == TX_GGUF_NETS, latents = layout->form == TX_GGUF_LATENTS;
    const char *const from = latents ? "k_b"
                             : nets  ? "qkv"
                                     : "gate",
                      *const to = latents ? "v_b"
                                  : nets  ? "gate"
                                          : "up";
    char name[TX_GGUF_NAME_ROOM];
    const char *at = strstr(layout->name, from);
    snprintf(name, sizeof name, "%.*s%s%s", (int)(at - layout->name), layout->name, to, at + strlen(from));
    memcpy(layout->name, name, sizeof name);
    layout->is_ups = true;
    if (nets)
        layout->rows = layout->shape.dim[0] = layout->heads * layout->values;
    if (latents)
        layout->shape = TX_SHAPE(layout->heads, layout->values, layout->width);
}

/* ---- The order of rows ------------------------------------------------------------------------------- */

/* The index in the source of element `at` of heads in tiled order, each of which has several elements. */
static int64_t tiled(const tx_gguf_layout *layout, bool to_gguf, int64_t count, int64_t at)
{
    const int64_t size = (count - layout->keys) / (layout->heads * layout->values), head = (at - layout->keys) / size;
    const int64_t outer = to_gguf ? layout->heads : layout->values, inner = to_gguf ? layout->values : layout->heads;
    return at < layout->keys ? at
                             : layout->keys + (head % outer * inner + head / outer) * size + (at - layout->keys) % size;
}

/* Hugging Face's files have q, k, v and gates of one head of keys after the other. */
static int64_t row_of_nets(const tx_gguf_layout *l, bool to_gguf, int64_t row, bool *second)
{
    const int64_t each = 2 * (l->keys + l->values), head = row / each, at = row % each;
    const int64_t begin = 2 * l->keys, q = l->heads * l->keys;
    if (to_gguf && l->is_ups)
        return row / l->values * each + begin + l->values + row % l->values;
    if (to_gguf && row < 2 * q)
        return row % q / l->keys * each + row / q * l->keys + row % l->keys;
    if (to_gguf)
        return (row - 2 * q) / l->values * each + begin + (row - 2 * q) % l->values;
    *second = at >= begin + l->values;
    if (*second)
        return head * l->values + at - begin - l->values;
    return at < begin ? at / l->keys * q + head * l->keys + at % l->keys : 2 * q + head * l->values + at - begin;
}

/* Hugging Face's files have the queries of a head of keys, this head and that of values, and then the next ones. */
static int64_t row_by_head(const tx_gguf_layout *l, bool to_gguf, int64_t row)
{
    const int64_t queries = tx_max(l->values, 1), group = queries + 2, all = l->heads * queries;
    const int64_t size = l->rows / (l->heads * group), unit = row / size, other = unit - all;
    const int64_t of = to_gguf                  ? unit < all ? unit / queries * group + unit % queries
                                                             : other % l->heads * group + queries + other / l->heads
                       : unit % group < queries ? unit / group * queries + unit % group
                                                : all + (unit % group - queries) * l->heads + unit / group;
    return of * size + row % size;
}

/* Rotary embeddings of Hugging Face rotate rows i and i + size / 2 of a head together. llama.cpp's Llama rotates rows 2
 * i and 2 i + 1. BY_HEAD swaps the order of heads and of query, key and value. HALVES takes the gates or the ups of an
 * expert. */
int64_t tx_gguf_source_row(const tx_gguf_layout *layout, bool to_gguf, int64_t row, bool *second)
{
    *second = false;
    if (layout->form == TX_GGUF_BY_HEAD)
        return row_by_head(layout, to_gguf, row);
    if (layout->form == TX_GGUF_HALVES) {
        const int64_t expert = row / layout->rows, at = row % layout->rows;
        *second = !to_gguf && at >= layout->rows / 2;
        return to_gguf ? (2 * expert + layout->is_ups) * layout->rows + at
                       : (expert * (layout->rows / 2)) + at % (layout->rows / 2);
    }
    if (layout->form == TX_GGUF_NETS)
        return row_of_nets(layout, to_gguf, row, second);
    if (layout->form == TX_GGUF_LATENTS) /* only values have whole rows */
        return row / layout->values * (layout->keys + layout->values) + layout->keys + row % layout->values;
    if (layout->form == TX_GGUF_TILED)
        return tiled(layout, to_gguf, layout->rows, row);
    if (layout->form != TX_GGUF_PAIRS)
        return row;
    const int64_t size = layout->rows / layout->heads, half = (layout->rotated ? layout->rotated : size) / 2;
    const int64_t head = row / size, at = row % size;
    return at >= 2 * half ? row : head * size + (to_gguf ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}

static tx_status read_rows(const tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t first,
                           int64_t count, float *data)
{
    const int64_t width = layout->width;
    for (int64_t done = 0, now; done < count; done += now) {
        const int64_t row = (first + done) / width, at = (first + done) % width;
        bool second;
        const int64_t source = tx_gguf_source_row(layout, r->to_gguf, row, &second);
        now = width - at < count - done ? width - at : count - done;
        TX_TRY(r->read(r->from, second ? layout->ups : index, source * width + at, now, data + done));
    }
    return TX_OK;
}

/* Makes room in r->whole for another matrix. */
static tx_status make_room(tx_gguf_reader *r, const tx_gguf_layout *layout, int64_t elements)
{
    tx_gguf_reader_free(r);
    r->whole = malloc((size_t)elements * sizeof *r->whole);
    return r->whole ? TX_OK : tx_fail(TX_MEMORY, "no memory to transpose %s", layout->name);
}

/* Reads the matrix of an expert, or the only one, into r->whole. GATES and COLUMNS select columns of it in an export,
 * and merge the rows of two tensors in an import. */
static tx_status hold(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t matrix)
{
    const bool apart = layout->form == TX_GGUF_COLUMNS;
    const int64_t rows = layout->rows, width = layout->width, half = width / 2;
    const int64_t step = apart || layout->form == TX_GGUF_GATES ? 2 : 1, size = rows * width * (r->to_gguf ? step : 1);
    if (r->held == layout && r->matrix == matrix)
        return TX_OK;
    TX_TRY(make_room(r, layout, size));
    if (r->to_gguf || step == 1)
        TX_TRY(r->read(r->from, index, matrix * size, size, r->whole));
    else
        for (int64_t at = 0; at < width; at++) {
            const bool up = apart ? at >= half : at % 2;
            TX_TRY(r->read(r->from, up ? layout->ups : index, (matrix * half + (apart ? at % half : at / 2)) * rows,
                           rows, r->whole + at * rows));
        }
    for (int64_t i = 0; i < rows * width && size > rows * width; i++)
        r->whole[i] = r->whole[apart ? i / rows * 2 * rows + layout->is_ups * rows + i % rows : 2 * i + layout->is_ups];
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

/* Reads rows whose columns have another order. One row is held in memory. */
static tx_status read_tiled_columns(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t first,
                                    int64_t count, float *data)
{
    const int64_t width = layout->width;
    if (r->held != layout) {
        tx_gguf_reader_free(r);
        r->whole = malloc((size_t)width * sizeof *r->whole);
        r->matrix = -1;
    }
    if (!r->whole)
        return tx_fail(TX_MEMORY, "no memory for a row of %s", layout->name);
    r->held = layout;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = (first + i) / width;
        if (row != r->matrix)
            TX_TRY(r->read(r->from, index, row * width, width, r->whole));
        r->matrix = row;
        data[i] = r->whole[tiled(layout, r->to_gguf, width, (first + i) % width)];
    }
    return TX_OK;
}

/* Reads the matrix of a head that expands keys into r->whole. */
static tx_status hold_keys(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t head)
{
    const int64_t size = layout->keys * layout->width,
                  each = r->to_gguf ? (layout->keys + layout->values) * layout->width : size;
    if (r->held == layout && r->matrix == head)
        return TX_OK;
    TX_TRY(make_room(r, layout, size));
    TX_TRY(r->read(r->from, index, head * each, size, r->whole));
    r->held = layout;
    r->matrix = head;
    return TX_OK;
}

/* The keys of an export, and keys and values of an import. */
static tx_status read_latents(tx_gguf_reader *r, const tx_gguf_layout *layout, int32_t index, int64_t first,
                              int64_t count, float *data)
{
    const int64_t keys = layout->keys, values = layout->values, width = layout->width;
    if (r->to_gguf && layout->is_ups)
        return read_rows(r, layout, index, first, count, data);
    for (int64_t i = 0, now; i < count; i += now) {
        const int64_t at = first + i, row = at / width, of_head = row % (keys + values);
        now = tx_min(width - at % width, count - i);
        if (!r->to_gguf && of_head >= keys) {
            const int64_t source = row / (keys + values) * values + of_head - keys;
            TX_TRY(r->read(r->from, layout->ups, source * width + at % width, now, data + i));
            continue;
        }
        now = 1;
        TX_TRY(hold_keys(r, layout, index, r->to_gguf ? at / (keys * width) : row / (keys + values)));
        data[i] = r->to_gguf ? r->whole[at % keys * width + at / keys % width] : r->whole[at % width * keys + of_head];
    }
    return TX_OK;
}

static double factor_of(const tx_gguf_layout *layout, int64_t row)
{
    int part = 0;
    while (row >= layout->factors[part].end)
        part++;
    return layout->factors[part].factor;
}

static void change_values(const tx_gguf_layout *layout, bool to_gguf, int64_t first, int64_t count, float *data)
{
    for (int64_t i = 0; i < count && layout->change == TX_GGUF_DECAY; i++)
        data[i] = (float)(to_gguf ? -exp((double)data[i]) : log(-(double)data[i]));
    for (int64_t i = 0; i < count && layout->change == TX_GGUF_SCALED && to_gguf; i++)
        data[i] = (float)(data[i] * factor_of(layout, (first + i) / layout->width));
    for (int64_t i = 0; i < count && layout->form == TX_GGUF_SHIFTED; i++)
        data[i] += to_gguf ? 1.0f : -1.0f;
}

static tx_status read_order(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                            int64_t count, float *data)
{
    switch (layout->form) {
    case TX_GGUF_PLAIN:
    case TX_GGUF_SHIFTED:
        return reader->read(reader->from, index, first, count, data);
    case TX_GGUF_TURNED:
    case TX_GGUF_GATES:
    case TX_GGUF_COLUMNS:
        return read_transposed(reader, layout, index, first, count, data);
    case TX_GGUF_TILED_COLUMNS:
        return read_tiled_columns(reader, layout, index, first, count, data);
    case TX_GGUF_LATENTS:
        return read_latents(reader, layout, index, first, count, data);
    default:
        return read_rows(reader, layout, index, first, count, data);
    }
}

tx_status tx_gguf_read_as(tx_gguf_reader *reader, const tx_gguf_layout *layout, int32_t index, int64_t first,
                          int64_t count, float *data)
{
    TX_TRY(read_order(reader, layout, index, first, count, data));
    change_values(layout, reader->to_gguf, first, count, data);
    return TX_OK;
}

void tx_gguf_reader_free(tx_gguf_reader *reader)
{
    free(reader->whole);
    reader->whole = NULL;
    reader->held = NULL;
}
