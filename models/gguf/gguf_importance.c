/* SPDX-License-Identifier: Apache-2.0
 * Reads importance matrices, and makes them of sums. */
#include "models/gguf/gguf_importance.h"

#include "api/base/file.h"
#include "models/names.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((int64_t)2 << 30)
#define MOST_ENTRIES (1 << 20)
/* The least importance, relative to the mean: columns that were never active must not become 0. */
#define LEAST 1e-6f

typedef struct entry {
    char *name;
    int64_t count;
    float *value;
} entry;

struct tx_importance {
    char *path, *dataset;
    int64_t chunks;
    int32_t count;
    entry *entry;
};

void tx_importance_close(tx_importance *importance)
{
    if (!importance)
        return;
    for (int32_t i = 0; i < importance->count; i++) {
        free(importance->entry[i].name);
        free(importance->entry[i].value);
    }
    free(importance->entry);
    free(importance->path);
    free(importance->dataset);
    free(importance);
}

/* Adds an entry with room for `count` values. */
static tx_status add_entry(tx_importance *m, const char *name, size_t size, int64_t count)
{
    entry *larger = realloc(m->entry, ((size_t)m->count + 1) * sizeof *larger);
    m->entry = larger ? larger : m->entry;
    if (!larger)
        return tx_fail(TX_MEMORY, "no memory for its entries");
    entry *e = &m->entry[m->count++];
    *e = (entry){strndup(name, size), count, malloc((size_t)count * sizeof *e->value)};
    return e->name && e->value ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " numbers", count);
}

/* Divides sums by a count, and checks them. Experts that got no token have 1 everywhere. */
static tx_status finish(const entry *e, int64_t first, int64_t count, float tokens)
{
    double sum = 0;
    for (int64_t i = first; i < first + count; i++) {
        e->value[i] = tokens > 0.0f ? e->value[i] / tokens : 1.0f;
        if (!(e->value[i] >= 0.0f && isfinite(e->value[i])))
            return tx_fail(TX_FORMAT, "%.64s: the importance of column %" PRId64 " is %f", e->name, i - first,
                           (double)e->value[i]);
        sum += (double)e->value[i];
    }
    const float mean = (float)(sum / (double)count), least = mean > 0.0f ? LEAST * mean : 1.0f;
    for (int64_t i = first; i < first + count; i++)
        e->value[i] = e->value[i] > least ? e->value[i] : least;
    return TX_OK;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------------ */

static tx_status read_entry(tx_importance *m, const tx_gguf_file *file, int32_t index)
{
    const tx_gguf_tensor *sums = tx_gguf_tensor_at(file, index);
    const size_t size = strlen(sums->name) - strlen(TX_IMPORTANCE_SUMS);
    const int64_t width = sums->dim[sums->rank - 1], matrices = tx_gguf_elements(sums) / width;
    char name[128];
    snprintf(name, sizeof name, "%.*s" TX_IMPORTANCE_COUNTS, (int)size, sums->name);
    const int32_t counts = tx_gguf_find(file, name);
    if (counts < 0 || tx_gguf_elements(tx_gguf_tensor_at(file, counts)) != matrices)
        return tx_fail(TX_FORMAT, "%s is missing, or does not have %" PRId64 " numbers", name, matrices);
    TX_TRY(add_entry(m, sums->name, size, width * matrices));
    const entry *e = &m->entry[m->count - 1];
    TX_TRY(tx_gguf_read_f32(file, index, 0, e->count, e->value));
    for (int64_t i = 0; i < matrices; i++) {
        float tokens;
        TX_TRY(tx_gguf_read_f32(file, counts, i, 1, &tokens));
        TX_TRY(finish(e, i * width, width, tokens));
    }
    return TX_OK;
}

static tx_status read_gguf(tx_importance *m, const tx_gguf_file *file)
{
    tx_gguf_array sets = {0};
    TX_TRY(TX_GGUF_OPTIONAL(int, file, TX_IMPORTANCE_CHUNKS, 0, UINT32_MAX, &m->chunks));
    TX_TRY(TX_GGUF_OPTIONAL(array, file, TX_IMPORTANCE_DATASETS, true, &sets));
    m->dataset = sets.count > 0 ? strndup(sets.text[0], sets.size[0]) : NULL;
    tx_gguf_array_free(&sets);
    for (int32_t i = 0; i < tx_gguf_count(file); i++)
        if (tx_ends_with(tx_gguf_tensor_at(file, i)->name, TX_IMPORTANCE_SUMS))
            TX_TRY(read_entry(m, file, i));
    return m->count > 0 ? TX_OK
                        : tx_fail(TX_FORMAT, "has no tensor *" TX_IMPORTANCE_SUMS ": not a file of llama-imatrix");
}

/* ---- The older form ---------------------------------------------------------------------------------------------- */

/* A number of entries, the entries, the number of chunks, and the name of the data set. An entry has a name, a number
 * of calls and of values, and for each column the mean of squares times the calls. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static tx_status read_int(cursor *c, int64_t least, int64_t most, int64_t *value)
{
    int32_t number;
    if (c->end - c->at < (ptrdiff_t)sizeof number)
        return tx_fail(TX_FORMAT, "cut off, or not a file of llama-imatrix");
    memcpy(&number, c->at, sizeof number);
    c->at += sizeof number;
    *value = number;
    return number >= least && number <= most
               ? TX_OK
               : tx_fail(TX_FORMAT, "not a file of llama-imatrix: found %" PRId32, number);
}

static tx_status read_old_entry(tx_importance *m, cursor *c)
{
    int64_t size = 0, calls = 0, values = 0;
    TX_TRY(read_int(c, 1, 256, &size));
    const char *name = c->at;
    if (c->end - c->at < size)
        return tx_fail(TX_FORMAT, "cut off in a name");
    c->at += size;
    TX_TRY(read_int(c, 0, INT32_MAX, &calls));
    TX_TRY(read_int(c, 1, INT32_MAX, &values));
    if ((c->end - c->at) / (ptrdiff_t)sizeof(float) < values)
        return tx_fail(TX_FORMAT, "%.*s: cut off", (int)size, name);
    TX_TRY(add_entry(m, name, (size_t)size, values));
    const entry *e = &m->entry[m->count - 1];
    memcpy(e->value, c->at, (size_t)values * sizeof *e->value);
    c->at += values * (int64_t)sizeof *e->value;
    return finish(e, 0, values, (float)calls);
}

static tx_status read_old(tx_importance *m, cursor c)
{
    int64_t entries = 0, size = 0;
    TX_TRY(read_int(&c, 1, MOST_ENTRIES, &entries));
    for (int64_t i = 0; i < entries; i++)
        TX_TRY(read_old_entry(m, &c));
    if (c.at == c.end) /* the first files end here */
        return TX_OK;
    TX_TRY(read_int(&c, 0, INT32_MAX, &m->chunks));
    TX_TRY(read_int(&c, 0, c.end - c.at - (ptrdiff_t)sizeof(int32_t), &size));
    m->dataset = strndup(c.at, (size_t)size);
    return TX_OK;
}

/* ---- Use --------------------------------------------------------------------------------------------------------- */

static tx_status read_file(const char *path, tx_importance *m)
{
    tx_gguf_file *file = NULL;
    char *data = NULL;
    size_t size = 0;
    if (tx_gguf_is_name(path)) {
        TX_TRY(tx_gguf_open(path, &file));
        const tx_status status = read_gguf(m, file);
        tx_gguf_close(file);
        return tx_fail_in(status, "%s", path);
    }
    TX_TRY(tx_file_read(path, FILE_LIMIT, &data, &size));
    const tx_status status = read_old(m, (cursor){data, data + size});
    free(data);
    return tx_fail_in(status, "%s", path);
}

tx_status tx_importance_create(const char *path, const char *dataset, int64_t chunks, tx_importance **importance)
{
    tx_importance *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    created->path = strdup(path);
    created->dataset = dataset ? strdup(dataset) : NULL;
    created->chunks = chunks;
    const tx_status status =
        created->path && (created->dataset || !dataset) ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    return TX_RETURN(status, created, importance, tx_importance_close);
}

tx_status tx_importance_add(tx_importance *importance, const char *tensor, int64_t width, int64_t matrices,
                            const float *sums, const float *counts)
{
    TX_TRY(add_entry(importance, tensor, strlen(tensor), width * matrices));
    const entry *e = &importance->entry[importance->count - 1];
    memcpy(e->value, sums, (size_t)e->count * sizeof *sums);
    for (int64_t i = 0; i < matrices; i++)
        TX_TRY(finish(e, i * width, width, counts[i]));
    return TX_OK;
}

tx_status tx_importance_open(const char *path, tx_importance **importance)
{
    tx_importance *created = NULL;
    TX_TRY(tx_importance_create(path, NULL, 0, &created));
    const tx_status status = read_file(path, created);
    return TX_RETURN(status, created, importance, tx_importance_close);
}

int32_t tx_importance_count(const tx_importance *importance)
{
    return importance->count;
}

tx_status tx_importance_of(const tx_importance *importance, const char *tensor, int64_t width, int64_t experts,
                           const float **columns)
{
    *columns = NULL;
    for (int32_t i = 0; i < importance->count; i++) {
        const entry *e = &importance->entry[i];
        if (strcmp(e->name, tensor) != 0)
            continue;
        if (e->count != width * experts)
            return tx_fail(TX_FORMAT, "%s: %s has %" PRId64 " columns, not %" PRId64 ": it is of another model",
                           importance->path, tensor, e->count, width * experts);
        *columns = e->value;
    }
    return TX_OK;
}

void tx_importance_put(const tx_importance *m, tx_gguf_writer *writer)
{
    tx_gguf_put_string(writer, "quantize.imatrix.file", m->path, strlen(m->path));
    if (m->dataset)
        tx_gguf_put_string(writer, "quantize.imatrix.dataset", m->dataset, strlen(m->dataset));
    tx_gguf_put_int(writer, "quantize.imatrix.entries_count", m->count);
    tx_gguf_put_int(writer, "quantize.imatrix.chunks_count", m->chunks);
}
