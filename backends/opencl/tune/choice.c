/* SPDX-License-Identifier: Apache-2.0
 *
 * The autotuner's choices as a text, with which another run makes the same choices. Candidates round sums
 * differently, so equal bits require equal choices.
 */
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns lines KEY<TAB>NAME. */
tx_status tx_cl_choices(const tx_context *context, char **text)
{
    return tx_cl_lines_copy(context->tuner->choices, text);
}

/* Parses one line, which it splits in two, and adds it to `choices`. */
static tx_status read_line(const tx_context *context, char *line, char **choices)
{
    char *tab = strchr(line, '\t');
    if (!tab || tab == line)
        return tx_fail(TX_FORMAT, "expected KEY, a tab and NAME, found \"%.100s\"", line);
    *tab = '\0';
    if (strncmp(line, TX_CL_PARTS " ", sizeof TX_CL_PARTS) == 0) {
        const int parts = atoi(tab + 1);
        return strcmp(tab + 1, TX_CL_EVEN_NAME) == 0 || (parts >= 1 && parts <= TX_CL_MOST_PARTS)
                   ? tx_cl_line_set(choices, line, tab + 1)
                   : tx_fail(TX_FORMAT,
                             "a product is split into 1 to %d parts or \"" TX_CL_EVEN_NAME "\", found \"%.60s\"",
                             TX_CL_MOST_PARTS, tab + 1);
    }
    const bool attention = strncmp(line, TX_CL_ATTENTION, sizeof TX_CL_ATTENTION - 1) == 0;
    if (attention ? tx_cl_attention_has_form(context, tab + 1) : tx_cl_gemm_has_provider(context, tab + 1))
        return tx_cl_line_set(choices, line, tab + 1);
    return tx_fail(
        TX_UNSUPPORTED, "%s (%s) has no %s \"%.60s\", which the earlier run used; results may differ in the last bits",
        context->info.id, context->info.name, attention ? "form of attention" : "provider of matrix products", tab + 1);
}

/* Applies all lines or none. */
tx_status tx_cl_choose(tx_context *context, const char *text)
{
    char *choices = NULL, *copy = NULL, *rest = NULL;
    tx_status status = tx_cl_lines_copy(context->tuner->choices, &choices);
    TX_THEN(status, tx_cl_lines_copy(text, &copy));
    for (char *line = status ? NULL : strtok_r(copy, "\n", &rest); line && !status; line = strtok_r(NULL, "\n", &rest))
        status = read_line(context, line, &choices);
    if (!status) {
        free(context->tuner->choices);
        context->tuner->choices = choices;
    } else {
        free(choices);
    }
    free(copy);
    return status;
}
