/* SPDX-License-Identifier: Apache-2.0
 * What measuring has found out about this device and driver: a table of keys and values in the cache folder, which
 * txtune fills and every run reads and adds to. */
#include "backends/opencl/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_KEY "tuned 1"

struct tx_cl_entry {
    struct tx_cl_entry *next;
    char *value;
    char key[];
};

static tx_cl_entry *find(tx_cl_entry *e, const char *key)
{
    while (e && strcmp(e->key, key) != 0)
        e = e->next;
    return e;
}

/* Sets an entry, at the end where it is new; false for want of memory. */
static bool set(tx_cl_entry **table, const char *key, const char *value)
{
    char *copy = strdup(value);
    tx_cl_entry *e = find(*table, key);
    if (copy && !e && (e = calloc(1, sizeof *e + strlen(key) + 1)) != NULL) {
        strcpy(e->key, key);
        while (*table)
            table = &(*table)->next;
        *table = e;
    }
    if (!e || !copy) {
        free(copy);
        return false;
    }
    free(e->value);
    e->value = copy;
    return true;
}

/* Lines KEY<TAB>VALUE; those that are not are passed over. */
static void read_text(tx_cl_entry **table, char *text)
{
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        if (!tab)
            continue;
        *tab = '\0';
        set(table, line, tab + 1);
    }
}

static char *write_text(const tx_cl_entry *table)
{
    size_t size = 1, used = 0;
    for (const tx_cl_entry *e = table; e; e = e->next)
        size += strlen(e->key) + strlen(e->value) + 2;
    char *text = calloc(1, size);
    for (const tx_cl_entry *e = table; text && e; e = e->next)
        used += (size_t)snprintf(text + used, size - used, "%s\t%s\n", e->key, e->value);
    return text;
}

/* The file's content as a text; NULL: none. */
static char *load(const tx_context *context)
{
    void *data;
    size_t size;
    if (!tx_cl_cache_load(context, FILE_KEY, &data, &size))
        return NULL;
    char *text = realloc(data, size + 1);
    if (!text) {
        free(data);
        return NULL;
    }
    text[size] = '\0';
    return text;
}

static void read_file(tx_context *context)
{
    char *text = load(context);
    if (text)
        read_text(&context->table, text);
    free(text);
    context->table_read = true;
}

const char *tx_cl_table_get(tx_context *context, const char *key)
{
    if (!context->table_read)
        read_file(context);
    const tx_cl_entry *e = find(context->table, key);
    return e ? e->value : NULL;
}

/* The file is read again first: other runs may have added to it. */
void tx_cl_table_put(tx_context *context, const char *key, const char *value)
{
    read_file(context);
    if (!set(&context->table, key, value))
        return;
    char *text = write_text(context->table);
    if (text)
        tx_cl_cache_store(context, FILE_KEY, text, strlen(text));
    free(text);
}

void tx_cl_tell(const tx_context *context, const char *what)
{
    if (context->tune && context->tune->progress)
        context->tune->progress(context->tune->user, what, context->tune_spent);
}

tx_status tx_cl_tuned(tx_context *context, char **text)
{
    tx_cl_table_get(context, "");
    char *made = write_text(context->table);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    *text = made;
    return TX_OK;
}

void tx_cl_table_free(tx_context *context)
{
    for (tx_cl_entry *e = context->table, *next; e; e = next) {
        next = e->next;
        free(e->value);
        free(e);
    }
    context->table = NULL;
}
