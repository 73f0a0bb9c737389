/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of keys and values, and the table of a device: the results of measurements on it with its driver. The table
 * is stored in the cache folder. txtune fills it, and every run reads it and adds to it.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_KEY "tuned 1"

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Returns the line of a key, or the end if there is none. */
static const char *find(const char *lines, const char *key)
{
    const size_t length = strlen(key);
    while (*lines && (strncmp(lines, key, length) != 0 || lines[length] != '\t'))
        lines = next_line(lines);
    return lines;
}

bool tx_cl_line_get(const char *lines, const char *key, char *value, size_t size)
{
    const char *line = find(lines ? lines : "", key);
    if (!*line)
        return false;
    line += strlen(key) + 1;
    snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

tx_status tx_cl_lines_copy(const char *lines, char **copy)
{
    char *made = strdup(lines ? lines : "");
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    *copy = made;
    return TX_OK;
}

tx_status tx_cl_line_set(char **lines, const char *key, const char *value)
{
    const char *all = *lines ? *lines : "", *line = find(all, key);
    const size_t size = strlen(all) + strlen(key) + strlen(value) + 3;
    char *made = malloc(size);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    snprintf(made, size, "%.*s%s\t%s\n%s", (int)(line - all), all, key, value, next_line(line));
    free(*lines);
    *lines = made;
    return TX_OK;
}

/* Replaces the table in memory by that of the file, if there is one. */
static void read_file(tx_context *context)
{
    void *text;
    size_t size;
    context->tuner->table_read = true;
    if (!tx_cl_cache_load(context, FILE_KEY, &text, &size))
        return;
    free(context->tuner->table);
    context->tuner->table = text;
}

bool tx_cl_table_get(tx_context *context, const char *key, char *value, size_t size)
{
    if (!context->tuner->table_read)
        read_file(context);
    return tx_cl_line_get(context->tuner->table, key, value, size);
}

/* Reads the file again first, because other runs may have added to it. */
void tx_cl_table_put(tx_context *context, const char *key, const char *value)
{
    const int lock = tx_cl_cache_lock(context, FILE_KEY);
    read_file(context);
    if (tx_cl_line_set(&context->tuner->table, key, value) == TX_OK)
        tx_cl_cache_store(context, FILE_KEY, context->tuner->table, strlen(context->tuner->table));
    tx_cl_cache_unlock(lock);
}

tx_status tx_cl_tuned(tx_context *context, char **text)
{
    if (!context->tuner->table_read)
        read_file(context);
    return tx_cl_lines_copy(context->tuner->table, text);
}
