/* SPDX-License-Identifier: Apache-2.0
 * The text by which another run gives each class of matrix products and of attention to the same (table.c has the
 * list). Sums round differently from one to the other, so the same choices are part of the same bits. */
#include "backends/opencl/attention.h"
#include "backends/opencl/gemm.h"
#include "backends/opencl/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEY<TAB>NAME, one a line; clblast<TAB>PARAMETERS where they are not its own. */
tx_status tx_cl_choices(const tx_context *context, char **text)
{
    const char *clblast = context->clblast ? context->clblast : "";
    char *list = tx_cl_lines(context->choices);
    const size_t size = sizeof TX_CL_CLBLAST + strlen(clblast) + 3 + (list ? strlen(list) : 0);
    char *made = list ? malloc(size) : NULL;
    if (made)
        snprintf(made, size, *clblast ? TX_CL_CLBLAST "\t%s\n%s" : "%s%s", clblast, list);
    free(list);
    if (!made)
        return tx_fail(TX_MEMORY, "out of host memory");
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

/* One line of `length` characters, in two parts. */
static tx_status read_line(const tx_context *context, const char *line, size_t length, char key[TX_CL_CHOICE_KEY],
                           char name[TX_CL_CHOICE_NAME])
{
    const char *tab = memchr(line, '\t', length);
    const int shown = length < 100 ? (int)length : 100;
    if (!tab || tab == line || tab - line >= TX_CL_CHOICE_KEY)
        return tx_fail(TX_FORMAT, "a choice should be KEY, a tab, NAME: \"%.*s\"", shown, line);
    const size_t rest = length - (size_t)(tab + 1 - line);
    snprintf(key, TX_CL_CHOICE_KEY, "%.*s", (int)(tab - line), line);
    snprintf(name, TX_CL_CHOICE_NAME, "%.*s", (int)tx_cl_least((int64_t)rest, TX_CL_CHOICE_NAME - 1), tab + 1);
    const bool attention = strncmp(key, TX_CL_ATTENTION, sizeof TX_CL_ATTENTION - 1) == 0;
    if (strcmp(key, TX_CL_CLBLAST) == 0 ||
        (attention ? tx_cl_attention_knows(context, name) : tx_cl_gemm_knows(context, name, strlen(name))))
        return TX_OK;
    return tx_fail(
        TX_UNSUPPORTED, "%s (%s) has no %s \"%.60s\", which the earlier run used: results may differ in the last bits",
        context->info.id, context->info.name, attention ? "form of attention" : "provider of matrix products", name);
}

/* Reads all lines; keeps what they say if `keep`. */
static tx_status read_lines(tx_context *context, const char *text, bool keep)
{
    tx_status status = TX_OK;
    while (*text && status == TX_OK) {
        const size_t length = strcspn(text, "\n");
        char key[TX_CL_CHOICE_KEY], name[TX_CL_CHOICE_NAME];
        status = read_line(context, text, length, key, name);
        if (status == TX_OK && keep)
            status = strcmp(key, TX_CL_CLBLAST) == 0 ? use_clblast(context, text, length)
                                                     : tx_cl_choice_keep(context, key, name);
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
