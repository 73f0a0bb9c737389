/* SPDX-License-Identifier: Apache-2.0
 * Two lists of keys and values: what measuring has found out about this device and driver, kept in the cache folder,
 * which txtune fills and every run reads and adds to; and what each class of commands has been given. */
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

static const char *get(tx_cl_entry *list, const char *key)
{
    const tx_cl_entry *e = find(list, key);
    return e ? e->value : NULL;
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

char *tx_cl_lines(const tx_cl_entry *list)
{
    size_t size = 1, used = 0;
    for (const tx_cl_entry *e = list; e; e = e->next)
        size += strlen(e->key) + strlen(e->value) + 2;
    char *text = calloc(1, size);
    for (const tx_cl_entry *e = list; text && e; e = e->next)
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
    return get(context->table, key);
}

/* The file is read again first: other runs may have added to it. */
void tx_cl_table_put(tx_context *context, const char *key, const char *value)
{
    read_file(context);
    if (!set(&context->table, key, value))
        return;
    char *text = tx_cl_lines(context->table);
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
    char *made = tx_cl_lines(context->table);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    *text = made;
    return TX_OK;
}

void tx_cl_entries_free(tx_cl_entry **list)
{
    for (tx_cl_entry *e = *list, *next; e; e = next) {
        next = e->next;
        free(e->value);
        free(e);
    }
    *list = NULL;
}

const char *tx_cl_choice_find(const tx_context *context, const char *key)
{
    return get(context->choices, key);
}

tx_status tx_cl_choice_keep(tx_context *context, const char *key, const char *name)
{
    return set(&context->choices, key, name) ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
}
