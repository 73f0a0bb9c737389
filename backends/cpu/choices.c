/* SPDX-License-Identifier: Apache-2.0
 *
 * The choices on which the bits of a run depend besides its input: the kernels' instruction set, the matrix-product
 * library and the number of threads that share its sums. None of them is measured, so tx_cpu_choose compares them
 * with the present run instead of setting them. A choice or fact is a line NAME<TAB>VALUE.
 */
#include "backends/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#define TEXT 256

static void describe(const tx_context *context, char text[TEXT])
{
    char products[TX_CPU_GEMM_LIBRARY];
    tx_cpu_gemm_library(products);
    snprintf(text, TEXT, "variant\t%s\nproducts\t%s\nthreads\t%d\n", context->kernels->name, products,
             (int)context->threads);
}

static tx_status copy(const char *text, char **copied)
{
    char *made = strdup(text);
    if (!made)
        return tx_fail(TX_MEMORY, "cpu: out of memory");
    *copied = made;
    return TX_OK;
}

tx_status tx_cpu_facts(const tx_context *context, char **text)
{
    char made[TEXT];
    snprintf(made, TEXT, "TX kernels\tfor %s\nTX threads\t%d\n", context->kernels->name, context->threads);
    return copy(made, text);
}

tx_status tx_cpu_choices(const tx_context *context, char **text)
{
    char made[TEXT];
    describe(context, made);
    return copy(made, text);
}

/* Returns true if the line of `length` bytes is one of `lines`. */
static bool has_line(const char *lines, const char *line, size_t length)
{
    for (; *lines; lines += strcspn(lines, "\n") + 1)
        if (strcspn(lines, "\n") == length && memcmp(lines, line, length) == 0)
            return true;
    return false;
}

tx_status tx_cpu_choose(tx_context *context, const char *text)
{
    char own[TEXT], other[TEXT] = "";
    describe(context, own);
    for (; *text; text += *text == '\n') {
        const size_t length = strcspn(text, "\n");
        if (!has_line(own, text, length))
            tx_list_add(other, TEXT, ", ", "%.*s", length < TEXT ? (int)length : TEXT, text);
        text += length;
    }
    if (!other[0])
        return TX_OK;
    for (char *c = own; *c; c++)
        if (*c == '\n')
            *c = c[1] ? ',' : '\0';
    return tx_fail(TX_UNSUPPORTED,
                   "cpu: the earlier run used %s, this run uses %s; results may differ in the last bits", other, own);
}
