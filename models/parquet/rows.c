/* SPDX-License-Identifier: Apache-2.0
 * Rows of a Parquet file: puts the values of all columns together by their levels (Melnik et al., Dremel: Interactive
 * Analysis of Web-Scale Datasets, 2010).
 *
 * An entry of a column has two levels. The definition level says how many optional and repeated nodes on the way from
 * the root to the leaf exist; the repetition level says which repeated node has another item; 0 begins a row. */
#include "models/parquet/parquet.h"

#include "models/parquet/pages.h"
#include "models/parquet/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a row's text, and more for each byte of the file: many rows of a dictionary's longest string are a bomb. */
#define ROW_BYTES ((size_t)24 << 20)
#define ROW_RATIO 64

struct tx_parquet {
    tx_data_file file;
    tx_pq_metadata metadata;
    tx_pq_column *column; /* of each leaf */
    int32_t group;        /* the row group that is read */
    int64_t left;         /* its rows that are still to come */
    int64_t row;          /* rows that were returned */
    tx_buffer text;
};

static tx_status write_field(tx_parquet *p, const tx_pq_node *node);

/* ---- Entries ------------------------------------------------------------------------------------------------- */

static tx_status fail(const tx_parquet *p, const tx_pq_node *node, const char *fault)
{
    return tx_fail(TX_FORMAT, "%s: row %" PRId64 ", column %s: %s", p->file.path, p->row + 1, node->name, fault);
}

/* Whether the row's text could be written so far. */
static tx_status check_text(const tx_parquet *p)
{
    return !p->text.status ? TX_OK
                           : tx_fail(p->text.status, "%s: row %" PRId64 ": no memory, or more than %zu bytes of text",
                                     p->file.path, p->row + 1, p->text.limit);
}

/* The definition level of the next entry of a node: that of its first leaf, which all leaves below share. */
static tx_status peek(tx_parquet *p, const tx_pq_node *node, int32_t *def)
{
    tx_pq_column *c = &p->column[node->leaf];
    TX_TRY(tx_pq_column_fill(c));
    *def = c->def[c->entry];
    return TX_OK;
}

/* Moves past one entry of every leaf at or below a node that does not exist in this row. */
static tx_status skip_entries(tx_parquet *p, const tx_pq_node *node)
{
    for (int32_t i = node->leaf; i < node->leaf + node->leaves; i++) {
        tx_pq_column *c = &p->column[i];
        TX_TRY(tx_pq_column_fill(c));
        if (c->def[c->entry] >= node->def)
            return fail(p, node, "its levels are damaged");
        c->entry++;
    }
    return TX_OK;
}

static tx_status write_leaf(tx_parquet *p, const tx_pq_node *node)
{
    tx_pq_column *c = &p->column[node->leaf];
    TX_TRY(tx_pq_column_fill(c));
    if (c->def[c->entry] != node->def)
        return fail(p, node, "its levels are damaged");
    c->entry++;
    const char *fault = tx_pq_write_value(&p->text, node, &c->value[c->next_value++]);
    return fault ? fail(p, node, fault) : check_text(p);
}

/* ---- Lists and maps ------------------------------------------------------------------------------------------ */

/* The element of a list: the only child of the repeated node, or, in files of old writers, the repeated node itself
 * (LogicalTypes.md, "Backward-compatibility rules"). */
static const tx_pq_node *element_of(const tx_parquet *p, const tx_pq_node *list, const tx_pq_node *repeated)
{
    const char *name = repeated->name;
    const size_t size = strlen(list->name);
    const bool itself = repeated->count != 1 || strcmp(name, "array") == 0 ||
                        (strncmp(name, list->name, size) == 0 && strcmp(name + size, "_tuple") == 0);
    return itself ? NULL : &p->metadata.node[repeated->child];
}

static bool is_string(const tx_pq_node *node)
{
    return node->count == 0 && (node->type == TX_PQ_BYTES || node->type == TX_PQ_FIXED_BYTES) &&
           node->meaning == TX_PQ_STRING && node->repetition == TX_PQ_REQUIRED;
}

static tx_status write_members(tx_parquet *p, const tx_pq_node *node)
{
    tx_buffer_add(&p->text, "{", 1);
    int32_t child = node->child;
    for (int32_t i = 0; i < node->count; i++) {
        const tx_pq_node *member = &p->metadata.node[child];
        if (i > 0)
            tx_buffer_add(&p->text, ", ", 2);
        if (!tx_pq_write_string(&p->text, member->name, strlen(member->name)))
            return fail(p, member, "its name is no UTF-8 text");
        tx_buffer_add(&p->text, ": ", 2);
        TX_TRY(write_field(p, member));
        child = member->next;
    }
    tx_buffer_add(&p->text, "}", 1);
    return check_text(p);
}

/* One item of a repeated node: a list's element, `key: value` of a map, or a struct. */
static tx_status write_item(tx_parquet *p, const tx_pq_node *parent, const tx_pq_node *node, bool object)
{
    const tx_pq_node *element = parent && parent->meaning == TX_PQ_LIST ? element_of(p, parent, node) : NULL;
    if (element)
        return write_field(p, element);
    if (!object)
        return node->count ? write_members(p, node) : write_leaf(p, node);
    const tx_pq_node *key = &p->metadata.node[node->child], *value = &p->metadata.node[key->next];
    TX_TRY(write_leaf(p, key));
    const tx_pq_column *keys = &p->column[key->leaf];
    if (!tx_pq_is_key(&keys->value[keys->next_value - 1]))
        return fail(p, key, "a key with a NUL byte");
    tx_buffer_add(&p->text, ": ", 2);
    return write_field(p, value);
}

/* All items of a repeated node. `parent`: the list or map around it; NULL if there is none. */
static tx_status write_items(tx_parquet *p, const tx_pq_node *parent, const tx_pq_node *node)
{
    const bool object =
        parent && parent->meaning == TX_PQ_MAP && node->count == 2 && is_string(&p->metadata.node[node->child]);
    tx_pq_column *first = &p->column[node->leaf];
    int32_t def;
    TX_TRY(peek(p, node, &def));
    tx_buffer_add(&p->text, object ? "{" : "[", 1);
    if (def < node->def)
        TX_TRY(skip_entries(p, node));
    for (bool more = def >= node->def; more;) {
        TX_TRY(write_item(p, parent, node, object));
        more = first->entry < first->count || first->left > 0;
        if (more) {
            TX_TRY(tx_pq_column_fill(first));
            more = first->rep[first->entry] == node->rep;
        }
        if (more)
            tx_buffer_add(&p->text, ", ", 2);
    }
    tx_buffer_add(&p->text, object ? "}" : "]", 1);
    return check_text(p);
}

/* ---- Rows ---------------------------------------------------------------------------------------------------- */

static tx_status write_value(tx_parquet *p, const tx_pq_node *node)
{
    if (node->count == 0)
        return write_leaf(p, node);
    const tx_pq_node *child = &p->metadata.node[node->child];
    if ((node->meaning == TX_PQ_LIST || node->meaning == TX_PQ_MAP) && node->count == 1 &&
        child->repetition == TX_PQ_REPEATED)
        return write_items(p, node, child);
    return write_members(p, node);
}

static tx_status write_field(tx_parquet *p, const tx_pq_node *node)
{
    int32_t def = 0;
    if (node->repetition == TX_PQ_REPEATED)
        return write_items(p, NULL, node);
    if (node->repetition == TX_PQ_OPTIONAL) {
        TX_TRY(peek(p, node, &def));
        if (def < node->def) {
            tx_buffer_add(&p->text, "null", 4);
            return skip_entries(p, node);
        }
    }
    return write_value(p, node);
}

/* Checks that all values of the row group were used. */
static tx_status end_group(const tx_parquet *p)
{
    for (int32_t i = 0; i < p->metadata.leaves && p->group >= 0; i++)
        if (p->column[i].left > 0 || p->column[i].entry < p->column[i].count)
            return fail(p, p->column[i].leaf, "it has more values than the row group has rows");
    return TX_OK;
}

static void begin_group(tx_parquet *p)
{
    const tx_pq_metadata *m = &p->metadata;
    p->group++;
    p->left = m->group_rows[p->group];
    for (int32_t i = 0; i < m->leaves; i++)
        tx_pq_column_begin(&p->column[i], &p->file, &m->node[m->leaf[i]],
                           &m->chunk[(size_t)p->group * (size_t)m->leaves + (size_t)i]);
}

tx_status tx_parquet_next(tx_parquet *file, const char **row, size_t *size)
{
    *size = 0;
    while (file->left == 0) {
        TX_TRY(end_group(file));
        if (file->group + 1 == file->metadata.groups)
            return TX_OK;
        begin_group(file);
    }
    tx_buffer_clear(&file->text);
    TX_TRY(write_members(file, &file->metadata.node[0]));
    file->left--;
    file->row++;
    *row = file->text.data;
    *size = file->text.size;
    return TX_OK;
}

tx_status tx_parquet_open(const char *path, tx_parquet **file)
{
    tx_parquet *p = calloc(1, sizeof *p);
    if (!p)
        return tx_fail(TX_MEMORY, "%s: no memory to open it", path);
    p->group = -1;
    tx_status status = tx_data_file_open(path, &p->file);
    TX_THEN(status, tx_pq_metadata_read(&p->file, &p->metadata));
    if (!status) {
        p->text.limit = ROW_BYTES + ROW_RATIO * (size_t)p->file.size;
        p->column = calloc((size_t)p->metadata.leaves, sizeof *p->column);
        status = p->column ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for its columns", path);
    }
    return TX_RETURN(status, p, file, tx_parquet_close);
}

void tx_parquet_close(tx_parquet *file)
{
    if (!file)
        return;
    for (int32_t i = 0; i < file->metadata.leaves && file->column; i++)
        tx_pq_column_free(&file->column[i]);
    free(file->column);
    free(file->text.data);
    tx_pq_metadata_free(&file->metadata);
    tx_data_file_close(&file->file);
    free(file);
}

int64_t tx_parquet_rows(const tx_parquet *file)
{
    return file->metadata.rows;
}

int32_t tx_parquet_columns(const tx_parquet *file)
{
    return file->metadata.node[0].count;
}
