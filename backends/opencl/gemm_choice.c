/* SPDX-License-Identifier: Apache-2.0
 * Which provider each class of matrix products has been given, and the text by which another run gives them the same.
 * Sums round differently from provider to provider, so the same choices are part of the same bits. */
#include "backends/opencl/gemm.h"
#include "backends/opencl/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tx_cl_provider *const all[] = {&tx_cl_gemm_vector, &tx_cl_gemm_tile, &tx_cl_gemm_few, &tx_cl_gemm_clblast};

const tx_cl_provider *tx_cl_gemm_named(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (length == strlen(all[i]->name) && memcmp(name, all[i]->name, length) == 0)
            return all[i];
    return NULL;
}

/* ---- The list -------------------------------------------------------------------------------------------- */

static tx_cl_choice *find(const tx_context *context, const char *key)
{
    tx_cl_choice *c = context->choices;
    while (c && strcmp(c->key, key) != 0)
        c = c->next;
    return c;
}

const tx_cl_provider *tx_cl_choice_find(const tx_context *context, const char *key)
{
    const tx_cl_choice *c = find(context, key);
    return c ? c->provider : NULL;
}

tx_status tx_cl_choice_keep(tx_context *context, const char *key, const tx_cl_provider *provider)
{
    tx_cl_choice *c = find(context, key), **end = &context->choices;
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c)
            return tx_fail(TX_MEMORY, "out of host memory");
        snprintf(c->key, sizeof c->key, "%s", key);
        while (*end) /* in the order of the first use */
            end = &(*end)->next;
        *end = c;
    }
    c->provider = provider;
    return TX_OK;
}

void tx_cl_choices_free(tx_context *context)
{
    for (tx_cl_choice *c = context->choices, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    context->choices = NULL;
}

/* ---- Text: KEY<TAB>PROVIDER, one a line --------------------------------------------------------------------- */

tx_status tx_cl_choices(const tx_context *context, char **text)
{
    size_t size = 1, used = 0;
    for (const tx_cl_choice *c = context->choices; c; c = c->next)
        size += strlen(c->key) + strlen(c->provider->name) + 2;
    char *made = calloc(1, size);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    for (const tx_cl_choice *c = context->choices; c; c = c->next)
        used += (size_t)snprintf(made + used, size - used, "%s\t%s\n", c->key, c->provider->name);
    *text = made;
    return TX_OK;
}

/* One line of `length` characters. */
static tx_status read_line(tx_context *context, const char *line, size_t length, char key[TX_CL_CHOICE_KEY],
                           const tx_cl_provider **provider)
{
    const char *tab = memchr(line, '\t', length);
    const int shown = length < 100 ? (int)length : 100;
    if (!tab || tab == line || tab - line >= TX_CL_CHOICE_KEY)
        return tx_fail(TX_FORMAT, "a chosen matrix product should be KEY, a tab, PROVIDER: \"%.*s\"", shown, line);
    bool offered = false;
    const char *name = tab + 1;
    const size_t name_length = length - (size_t)(name - line);
    const tx_cl_provider *found = tx_cl_gemm_named(name, name_length);
    tx_status status = found ? tx_cl_gemm_offers(context, found, &offered) : TX_OK;
    if (status != TX_OK)
        return status;
    if (!offered)
        return tx_fail(TX_UNSUPPORTED,
                       "%s (%s) has no provider of matrix products \"%.*s\", which the earlier run used: results may "
                       "differ in the last bits",
                       context->info.id, context->info.name, name_length < 60 ? (int)name_length : 60, name);
    memcpy(key, line, (size_t)(tab - line));
    key[tab - line] = '\0';
    *provider = found;
    return TX_OK;
}

/* Reads all lines; keeps what they say if `keep`. */
static tx_status read_lines(tx_context *context, const char *text, bool keep)
{
    tx_status status = TX_OK;
    while (*text && status == TX_OK) {
        const size_t length = strcspn(text, "\n");
        char key[TX_CL_CHOICE_KEY];
        const tx_cl_provider *provider = NULL;
        status = read_line(context, text, length, key, &provider);
        if (status == TX_OK && keep)
            status = tx_cl_choice_keep(context, key, provider);
        text += length + (text[length] == '\n');
    }
    return status;
}

tx_status tx_cl_choose(tx_context *context, const char *text)
{
    tx_status status = read_lines(context, text, false);
    return status == TX_OK ? read_lines(context, text, true) : status;
}
