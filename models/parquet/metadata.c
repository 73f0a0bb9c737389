/* SPDX-License-Identifier: Apache-2.0
 * The footer of a Parquet file. */
#include "models/parquet/metadata.h"

#include "models/names.h"
#include "models/parquet/decode.h"
#include "models/parquet/thrift.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The length of the footer and the magic bytes end the file. */
#define TAIL 8
#define LEAVES_MOST 100000
/* Digits after the point of a decimal. */
#define SCALE_MOST 100

/* The field numbers of each struct are those of parquet.thrift. */

/* ---- Schema ------------------------------------------------------------------------------------------- */

static int32_t read_unit(tx_thrift *t, tx_thrift_field field)
{
    int32_t digits = 0;
    tx_thrift_struct(t, field);
    for (tx_thrift_field unit = {0}; tx_thrift_next(t, &unit); tx_thrift_skip(t, unit))
        digits = 3 * unit.id; /* MILLIS 1, MICROS 2, NANOS 3 */
    return digits;
}

/* Numbers within a logical type: DECIMAL {scale, precision}, TIME and TIMESTAMP {utc, unit}, INTEGER {bits, signed}. */
static void read_logical_fields(tx_thrift *t, int16_t kind, tx_pq_node *node)
{
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);)
        if (kind == 5 && f.id == 1)
            node->scale = (int32_t)tx_thrift_int(t, f);
        else if ((kind == 7 || kind == 8) && f.id == 1)
            node->utc = tx_thrift_bool(t, f);
        else if ((kind == 7 || kind == 8) && f.id == 2)
            node->second = read_unit(t, f);
        else if (kind == 10 && f.id == 2)
            node->meaning = tx_thrift_bool(t, f) ? TX_PQ_PLAIN : TX_PQ_UNSIGNED;
        else
            tx_thrift_skip(t, f);
}

static void read_logical(tx_thrift *t, tx_thrift_field field, tx_pq_node *node)
{
    static const uint8_t meanings[] = {
        [1] = TX_PQ_STRING,  [2] = TX_PQ_MAP,   [3] = TX_PQ_LIST,  [4] = TX_PQ_STRING,
        [5] = TX_PQ_DECIMAL, [6] = TX_PQ_DATE,  [7] = TX_PQ_TIME,  [8] = TX_PQ_TIMESTAMP,
        [12] = TX_PQ_STRING, [14] = TX_PQ_UUID, [15] = TX_PQ_HALF,
    };
    tx_thrift_struct(t, field);
    for (tx_thrift_field kind = {0}; tx_thrift_next(t, &kind);) {
        const size_t id = (size_t)kind.id;
        node->meaning = id < sizeof meanings ? (tx_pq_meaning)meanings[id] : TX_PQ_PLAIN;
        tx_thrift_struct(t, kind);
        read_logical_fields(t, kind.id, node);
    }
}

/* The older form of logical types: a number. */
static void read_converted(int64_t kind, tx_pq_node *node)
{
    static const uint8_t meanings[22] = {
        [0] = TX_PQ_STRING,    [1] = TX_PQ_MAP,       [2] = TX_PQ_MAP,        [3] = TX_PQ_LIST,
        [4] = TX_PQ_STRING,    [5] = TX_PQ_DECIMAL,   [6] = TX_PQ_DATE,       [7] = TX_PQ_TIME,
        [8] = TX_PQ_TIME,      [9] = TX_PQ_TIMESTAMP, [10] = TX_PQ_TIMESTAMP, [11] = TX_PQ_UNSIGNED,
        [12] = TX_PQ_UNSIGNED, [13] = TX_PQ_UNSIGNED, [14] = TX_PQ_UNSIGNED,  [19] = TX_PQ_STRING,
        [21] = TX_PQ_INTERVAL,
    };
    if (kind < 0 || kind >= 22)
        return;
    node->meaning = (tx_pq_meaning)meanings[kind];
    node->second = kind == 7 || kind == 9 ? 3 : 6;
    node->utc = kind == 9 || kind == 10;
}

static tx_status read_element(tx_thrift *t, const char *path, tx_pq_node *node)
{
    size_t size = 0;
    const uint8_t *name = NULL;
    int64_t type = -1, width = 0, repetition = 0, converted = -1, children = 0, scale = 0;
    int64_t *const numbers[] = {
        [1] = &type, [2] = &width, [3] = &repetition, [5] = &children, [6] = &converted, [7] = &scale};
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);)
        if (f.id == 4)
            name = tx_thrift_binary(t, f, &size);
        else if (f.id == 10)
            read_logical(t, f, node);
        else
            tx_thrift_take(t, f, numbers, sizeof numbers / sizeof numbers[0]);
    if (t->bad || !name || children < 0 || (!children && (type < 0 || type >= TX_PQ_TYPES)) || repetition < 0 ||
        repetition > TX_PQ_REPEATED || width < 0 || width > INT32_MAX || scale < 0 || scale > SCALE_MOST ||
        node->scale < 0 || node->scale > SCALE_MOST)
        return tx_fail(TX_FORMAT, "%s: the schema of this Parquet file is damaged", path);
    if (node->meaning == TX_PQ_PLAIN)
        read_converted(converted, node);
    node->type = children ? TX_PQ_BYTES : (tx_pq_type)type;
    node->width = (int32_t)width;
    node->scale = node->scale ? node->scale : (int32_t)scale;
    node->repetition = (tx_pq_repetition)repetition;
    node->count = (int32_t)children;
    node->name = malloc(size + 1);
    if (!node->name)
        return tx_fail(TX_MEMORY, "%s: no memory for its schema", path);
    memcpy(node->name, name, size);
    node->name[size] = '\0';
    return TX_OK;
}

/* Links the elements, which are stored depth first: `at` and everything below it. Returns the node after it, or -1 if
 * the schema ends too early or is too deep. */
static int32_t link_node(tx_pq_metadata *m, int32_t at, int32_t def, int32_t rep, int depth)
{
    if (at >= m->nodes || depth == TX_PQ_DEPTH)
        return -1;
    tx_pq_node *node = &m->node[at];
    const bool root = at == 0;
    node->def = def + (!root && node->repetition != TX_PQ_REQUIRED);
    node->rep = rep + (!root && node->repetition == TX_PQ_REPEATED);
    node->child = at + 1;
    node->leaf = m->leaves;
    if (node->count == 0)
        m->leaf[m->leaves++] = at;
    int32_t next = at + 1;
    for (int32_t i = 0; i < node->count && next > 0; i++)
        next = link_node(m, next, node->def, node->rep, depth + 1);
    node->leaves = m->leaves - node->leaf;
    node->next = next;
    return next;
}

/* Refuses two members of one name: JSON could not tell them apart. */
static tx_status check_names(const tx_pq_metadata *m, const tx_pq_node *node, const char *path)
{
    tx_named *names = malloc(((size_t)node->count + 1) * sizeof *names);
    if (!names)
        return tx_fail(TX_MEMORY, "%s: no memory for its schema", path);
    for (int32_t i = 0, child = node->child; i < node->count; i++, child = m->node[child].next)
        names[i] = (tx_named){m->node[child].name, i};
    const char *twice = tx_named_sort(names, (size_t)node->count);
    const tx_status status = twice ? tx_fail(TX_UNSUPPORTED, "%s: two columns are named %s", path, twice) : TX_OK;
    free(names);
    return status;
}

static tx_status read_schema(tx_thrift *t, tx_thrift_field field, const char *path, tx_pq_metadata *m)
{
    tx_thrift_field element;
    const size_t count = tx_thrift_list(t, field, &element);
    if (m->node || count == 0 || count > LEAVES_MOST)
        return tx_fail(TX_FORMAT, "%s: the schema of this Parquet file is damaged", path);
    m->node = calloc(count, sizeof *m->node);
    m->leaf = calloc(count, sizeof *m->leaf);
    if (!m->node || !m->leaf)
        return tx_fail(TX_MEMORY, "%s: no memory for its schema", path);
    for (size_t i = 0; i < count; i++) {
        tx_thrift_struct(t, element);
        m->nodes++;
        TX_TRY(read_element(t, path, &m->node[i]));
    }
    if (link_node(m, 0, 0, 0, 0) != m->nodes || m->node[0].count == 0)
        return tx_fail(TX_FORMAT, "%s: the schema of this Parquet file is damaged", path);
    tx_status status = TX_OK;
    for (int32_t i = 0; i < m->nodes && !status; i++)
        status = check_names(m, &m->node[i], path);
    return status;
}

/* ---- Row groups ------------------------------------------------------------------------------------- */

static void read_chunk(tx_thrift *t, tx_thrift_field field, tx_pq_chunk *chunk, bool *elsewhere)
{
    int64_t codec = chunk->codec, data = -1, dictionary = -1, bytes = 0;
    int64_t *const numbers[] = {[4] = &codec, [5] = &chunk->values, [7] = &bytes, [9] = &data, [11] = &dictionary};
    tx_thrift_struct(t, field);
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);) {
        if (f.id != 3) {
            *elsewhere |= f.id == 1 || f.id == 8; /* another file, encryption */
            tx_thrift_skip(t, f);
            continue;
        }
        tx_thrift_struct(t, f);
        for (tx_thrift_field m = {0}; tx_thrift_next(t, &m);)
            tx_thrift_take(t, m, numbers, sizeof numbers / sizeof numbers[0]);
    }
    chunk->codec = (int32_t)codec;
    chunk->begin = dictionary > 0 && dictionary < data ? dictionary : data;
    t->bad |= chunk->begin < 0 || bytes < 0 || chunk->values < 0 || bytes > INT64_MAX - chunk->begin;
    chunk->end = t->bad ? chunk->begin : chunk->begin + bytes;
}

static tx_status read_group(tx_thrift *t, const tx_data_file *file, tx_pq_metadata *m, int32_t group)
{
    bool elsewhere = false;
    tx_pq_chunk *chunks = m->chunk + (size_t)group * (size_t)m->leaves;
    size_t count = 0;
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);)
        if (f.id == 1) {
            tx_thrift_field element;
            count = tx_thrift_list(t, f, &element);
            for (size_t i = 0; i < count && i < (size_t)m->leaves && !t->bad; i++) {
                read_chunk(t, element, &chunks[i], &elsewhere);
                t->bad |= chunks[i].end > file->size;
            }
            t->bad |= count != (size_t)m->leaves;
        } else if (f.id == 3)
            m->group_rows[group] = tx_thrift_int(t, f);
        else
            tx_thrift_skip(t, f);
    if (elsewhere)
        return tx_fail(TX_UNSUPPORTED, "%s: a column of this Parquet file is encrypted or in another file", file->path);
    if (t->bad || count == 0 || m->group_rows[group] < 0 || m->group_rows[group] > INT64_MAX - m->rows)
        return tx_fail(TX_FORMAT, "%s: row group %" PRId32 " of this Parquet file is damaged", file->path, group);
    m->rows += m->group_rows[group];
    return TX_OK;
}

static tx_status read_groups(tx_thrift *t, tx_thrift_field field, const tx_data_file *file, tx_pq_metadata *m)
{
    tx_thrift_field element;
    const size_t count = tx_thrift_list(t, field, &element);
    if (!m->node || m->chunk || (count && (uint64_t)m->leaves > (uint64_t)(t->end - t->at) / count))
        return tx_fail(TX_FORMAT, "%s: the row groups of this Parquet file are damaged", file->path);
    m->groups = (int32_t)count;
    m->group_rows = calloc(count + 1, sizeof *m->group_rows);
    m->chunk = calloc(count * (size_t)m->leaves + 1, sizeof *m->chunk);
    tx_status status =
        m->group_rows && m->chunk ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for its row groups", file->path);
    for (int32_t i = 0; i < m->groups && !status; i++) {
        tx_thrift_struct(t, element);
        status = read_group(t, file, m, i);
    }
    return status;
}

/* ---- Footer --------------------------------------------------------------------------------------------- */

static tx_status read_footer(tx_thrift *t, const tx_data_file *file, tx_pq_metadata *m)
{
    for (tx_thrift_field f = {0}; tx_thrift_next(t, &f);)
        switch (f.id) {
        case 2:
            TX_TRY(read_schema(t, f, file->path, m));
            break;
        case 4:
            TX_TRY(read_groups(t, f, file, m));
            break;
        default:
            tx_thrift_skip(t, f);
            break;
        }
    return t->bad || !m->chunk ? tx_fail(TX_FORMAT, "%s: the footer of this Parquet file is damaged", file->path)
                               : TX_OK;
}

tx_status tx_pq_metadata_read(const tx_data_file *file, tx_pq_metadata *metadata)
{
    uint8_t tail[TAIL];
    if (file->size < TAIL + 4)
        return tx_fail(TX_FORMAT, "%s: not a Parquet file: it has only %" PRId64 " bytes", file->path, file->size);
    TX_TRY(tx_data_file_read(file, file->size - TAIL, tail, TAIL));
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return tx_fail(TX_UNSUPPORTED, "%s: this Parquet file is encrypted", file->path);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return tx_fail(TX_FORMAT, "%s: not a Parquet file, or cut off: it does not end with PAR1", file->path);
    const int64_t size = (int64_t)tx_fixed_read(tail, 4);
    if (size > file->size - TAIL - 4)
        return tx_fail(TX_FORMAT, "%s: the footer of this Parquet file is damaged", file->path);
    uint8_t *footer = malloc((size_t)size + 1);
    if (!footer)
        return tx_fail(TX_MEMORY, "%s: no memory for its footer of %" PRId64 " bytes", file->path, size);
    tx_pq_metadata result = {0};
    tx_status status = tx_data_file_read(file, file->size - TAIL - size, footer, (size_t)size);
    tx_thrift t = {.at = footer, .end = footer + size};
    TX_THEN(status, read_footer(&t, file, &result));
    free(footer);
    if (status)
        tx_pq_metadata_free(&result);
    else
        *metadata = result;
    return status;
}

void tx_pq_metadata_free(tx_pq_metadata *metadata)
{
    for (int32_t i = 0; i < metadata->nodes; i++)
        free(metadata->node[i].name);
    free(metadata->node);
    free(metadata->leaf);
    free(metadata->group_rows);
    free(metadata->chunk);
    *metadata = (tx_pq_metadata){0};
}
