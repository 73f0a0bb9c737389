/* SPDX-License-Identifier: Apache-2.0
 * What exports to GGUF files and imports from them share: the tables, names, and the order of rows. */
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

char *tx_gguf_key_of(char key[TX_GGUF_KEY_ROOM], const char *architecture, const char *rest)
{
    snprintf(key, TX_GGUF_KEY_ROOM, "%s.%s", architecture, rest);
    return key;
}

/* ---- Names and forms --------------------------------------------------------------------------------- */

/* Whether `name` is `pattern`, whose "%d" stands for the number of a block, which `*block` then has. */
static bool matches(const char *pattern, const char *name, int32_t *block)
{
    const char *number = strstr(pattern, "%d");
    *block = -1;
    if (!number)
        return strcmp(pattern, name) == 0;
    const size_t before = (size_t)(number - pattern);
    if (strncmp(pattern, name, before) != 0)
        return false;
    char *rest;
    const long value = strtol(name + before, &rest, 10);
    *block = (int32_t)value;
    return rest != name + before && strcmp(rest, number + 2) == 0;
}

/* "blk.%d.attn_norm.weight" with the number of a block; -1: there is none. */
static void fill_name(const char *pattern, int32_t block, char name[TX_GGUF_NAME_ROOM])
{
    const char *number = strstr(pattern, "%d");
    if (block < 0 || !number)
        snprintf(name, TX_GGUF_NAME_ROOM, "%s", pattern);
    else
        snprintf(name, TX_GGUF_NAME_ROOM, "%.*s%" PRId32 "%s", (int)(number - pattern), pattern, block, number + 2);
}

tx_status tx_gguf_layout_of(const tx_gguf_type *type, const char *param, const tx_shape *shape, bool to_gguf,
                            int64_t heads, int64_t of_kv, tx_gguf_layout *layout)
{
    int32_t block;
    size_t i = 0;
    while (i < sizeof tensors / sizeof tensors[0] &&
           !(tensors[i].family == type->family && matches(tensors[i].param, param, &block)))
        i++;
    if (i == sizeof tensors / sizeof tensors[0])
        return tx_fail(TX_UNSUPPORTED, "%s has no name in GGUF files", param);
    const tx_gguf_form form = tensors[i].form;
    const bool turned = form == TX_GGUF_TURNED && to_gguf;
    layout->form = form == TX_GGUF_TURNED || type->pairs ? form : TX_GGUF_PLAIN;
    layout->heads = form == TX_GGUF_QUERIES ? heads : of_kv;
    layout->rows = shape->dim[turned ? 1 : 0];
    layout->width = shape->rank == 1 ? 1 : shape->dim[turned ? 0 : 1];
    fill_name(tensors[i].gguf, block, layout->name);
    return TX_OK;
}

/* ---- The order of rows ------------------------------------------------------------------------------- */

/* Hugging Face's rotary positions turn rows i and i + size / 2 of a head together, llama.cpp's of Llama rows 2 i and
 * 2 i + 1. */
static int64_t source_row(const tx_gguf_layout *layout, bool to_gguf, int64_t row)
{
    const int64_t size = layout->rows / layout->heads, half = size / 2, head = row / size, at = row % size;
    return head * size + (to_gguf ? at % 2 * half + at / 2 : at % half * 2 + at / half);
}

static tx_status copy_rows(const tx_gguf_copy *copy, const tx_gguf_layout *layout, int32_t index)
{
    const int64_t most = TX_WEIGHTS_CHUNK / layout->width;
    for (int64_t row = 0; row < layout->rows; row += most) {
        const int64_t now = layout->rows - row < most ? layout->rows - row : most;
        for (int64_t i = 0; i < now; i++)
            TX_TRY(copy->read(copy->from, index, source_row(layout, copy->to_gguf, row + i) * layout->width,
                              layout->width, copy->buffer + i * layout->width));
        TX_TRY(copy->take(copy->to, copy->buffer, now * layout->width));
    }
    return TX_OK;
}

static tx_status copy_plain(const tx_gguf_copy *copy, const tx_gguf_layout *layout, int32_t index)
{
    const int64_t elements = layout->rows * layout->width;
    for (int64_t at = 0; at < elements; at += TX_WEIGHTS_CHUNK) {
        const int64_t now = elements - at < TX_WEIGHTS_CHUNK ? elements - at : TX_WEIGHTS_CHUNK;
        TX_TRY(copy->read(copy->from, index, at, now, copy->buffer));
        TX_TRY(copy->take(copy->to, copy->buffer, now));
    }
    return TX_OK;
}

/* Columns become rows: all of the matrix is in memory. */
static tx_status copy_turned(const tx_gguf_copy *copy, const tx_gguf_layout *layout, int32_t index)
{
    const int64_t rows = layout->rows, width = layout->width;
    float *whole = malloc((size_t)(rows * width) * sizeof *whole);
    if (!whole)
        return tx_fail(TX_MEMORY, "no memory to turn %s", layout->name);
    tx_status status = copy->read(copy->from, index, 0, rows * width, whole);
    for (int64_t row = 0; row < rows && !status; row++) {
        for (int64_t i = 0; i < width; i++)
            copy->buffer[i] = whole[i * rows + row];
        status = copy->take(copy->to, copy->buffer, width);
    }
    free(whole);
    return status;
}

tx_status tx_gguf_copy_tensor(const tx_gguf_copy *copy, const tx_gguf_layout *layout, int32_t index)
{
    return layout->form == TX_GGUF_TURNED  ? copy_turned(copy, layout, index)
           : layout->form == TX_GGUF_PLAIN ? copy_plain(copy, layout, index)
                                           : copy_rows(copy, layout, index);
}
