/* SPDX-License-Identifier: Apache-2.0
 * Which provider each class of matrix products has been given, and the text by which another run gives them the same.
 * Sums round differently from provider to provider, so the same choices are part of the same bits. */
#include "backends/opencl/gemm.h"
#include "backends/opencl/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tx_cl_provider *tx_cl_gemm_provider(int i)
{
    static const tx_cl_provider *const others[] = {&tx_cl_gemm_few, &tx_cl_gemm_vector, &tx_cl_gemm_mma,
                                                   &tx_cl_gemm_clblast};
    const int count = (int)(sizeof others / sizeof others[0]);
    if (i < count)
        return others[i];
    return i - count < TX_CL_TILES ? &tx_cl_gemm_tiles[i - count] : NULL;
}

const tx_cl_provider *tx_cl_gemm_named(const char *name, size_t length)
{
    const tx_cl_provider *found;
    for (int i = 0; (found = tx_cl_gemm_provider(i)) != NULL; i++)
        if (length == strlen(found->name) && memcmp(name, found->name, length) == 0)
            return found;
    return NULL;
}

bool tx_cl_gemm_offers(const tx_context *context, const tx_cl_provider *provider)
{
    return provider->device == TX_CL_ALL || (provider->device == TX_CL_CPUS) == context->limits.cpu;
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

/* ---- Text: KEY<TAB>PROVIDER, one a line; clblast<TAB>PARAMETERS where they are not its own -------------------- */

tx_status tx_cl_choices(const tx_context *context, char **text)
{
    const char *clblast = context->clblast ? context->clblast : "";
    size_t size = 1 + sizeof TX_CL_CLBLAST + strlen(clblast) + 2, used = 0;
    for (const tx_cl_choice *c = context->choices; c; c = c->next)
        size += strlen(c->key) + strlen(c->provider->name) + 2;
    char *made = calloc(1, size);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
    if (*clblast)
        used = (size_t)snprintf(made, size, TX_CL_CLBLAST "\t%s\n", clblast);
    for (const tx_cl_choice *c = context->choices; c; c = c->next)
        used += (size_t)snprintf(made + used, size - used, "%s\t%s\n", c->key, c->provider->name);
    *text = made;
    return TX_OK;
}

/* CLBlast's parameters, as the line `text` says. */
static tx_status use_clblast(tx_context *context, const char *text, size_t length)
{
    char *parameters = strndup(text + sizeof TX_CL_CLBLAST, length - sizeof TX_CL_CLBLAST);
    if (!parameters)
        return tx_fail(TX_MEMORY, "out of host memory");
    tx_status status = tx_cl_clblast_use(context, parameters);
    free(parameters);
    return status;
}

/* One line of `length` characters; provider NULL: CLBlast's parameters. */
static tx_status read_line(tx_context *context, const char *line, size_t length, char key[TX_CL_CHOICE_KEY],
                           const tx_cl_provider **provider)
{
    const char *tab = memchr(line, '\t', length);
    const int shown = length < 100 ? (int)length : 100;
    if (!tab || tab == line || tab - line >= TX_CL_CHOICE_KEY)
        return tx_fail(TX_FORMAT, "a chosen matrix product should be KEY, a tab, PROVIDER: \"%.*s\"", shown, line);
    const char *name = tab + 1;
    const size_t name_length = length - (size_t)(name - line);
    *provider = NULL;
    memcpy(key, line, (size_t)(tab - line));
    key[tab - line] = '\0';
    if (strcmp(key, TX_CL_CLBLAST) == 0)
        return TX_OK;
    const tx_cl_provider *found = tx_cl_gemm_named(name, name_length);
    if (!found || !tx_cl_gemm_offers(context, found))
        return tx_fail(TX_UNSUPPORTED,
                       "%s (%s) has no provider of matrix products \"%.*s\", which the earlier run used: results may "
                       "differ in the last bits",
                       context->info.id, context->info.name, name_length < 60 ? (int)name_length : 60, name);
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
            status = provider ? tx_cl_choice_keep(context, key, provider) : use_clblast(context, text, length);
        text += length + (text[length] == '\n');
    }
    return status;
}

tx_status tx_cl_choose(tx_context *context, const char *text)
{
    tx_status status = read_lines(context, text, false);
    /* An earlier run whose text has no line of CLBlast's had its own parameters, whatever the device's table says now.
     */
    if (status == TX_OK && *text && !context->clblast)
        status = tx_cl_clblast_use(context, "");
    return status == TX_OK ? read_lines(context, text, true) : status;
}
