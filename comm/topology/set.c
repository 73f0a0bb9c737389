/* SPDX-License-Identifier: Apache-2.0
 * Sets of CPUs and NUMA nodes as lists, "0-7,64-71". */
#include "comm/topology/tx_topology.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads one number and advances `*at`; -1 if there is none. */
static int32_t read_number(const char **at)
{
    int64_t value = -1;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        value = (value < 0 ? 0 : value * 10) + (**at - '0');
        if (value > TX_TOPO_SET_MAX)
            return -1;
    }
    return (int32_t)value;
}

/* Writes the numbers to `numbers` if it is not NULL. Returns their count, or -1 if the text is not an ascending
 * list. */
static int32_t walk(const char *set, int32_t *numbers)
{
    int32_t count = 0, last = -1;
    for (const char *at = set; *at;) {
        int32_t first = read_number(&at), end = first;
        if (*at == '-') {
            at++;
            end = read_number(&at);
        }
        if (first <= last || end < first || (*at && *at != ',') || (*at == ',' && !at[1]))
            return -1;
        for (int32_t i = first; numbers && i <= end; i++)
            numbers[count + i - first] = i;
        count += end - first + 1;
        last = end;
        at += *at == ',';
    }
    return count;
}

tx_status tx_topo_set_parse(const char *set, int32_t **numbers, int32_t *count)
{
    TX_NEEDS(set && numbers && count, TX_INVALID);
    int32_t size = walk(set, NULL);
    if (size < 0)
        return tx_fail(TX_FORMAT, "\"%.100s\" is not a set of numbers such as 0-7,64-71", set);
    int32_t *out = malloc(((size_t)size + 1) * sizeof *out);
    if (!out)
        return tx_fail(TX_MEMORY, "a set of %" PRId32 " numbers: out of memory", size);
    walk(set, out);
    *numbers = out;
    *count = size;
    return TX_OK;
}

bool tx_topo_sets_meet(const char *a, const char *b)
{
    int32_t *first = NULL, *second = NULL, count = 0, other = 0;
    bool found = false;
    if (!tx_topo_set_parse(a, &first, &count) && !tx_topo_set_parse(b, &second, &other))
        for (int32_t i = 0, k = 0; i < count && k < other && !found; second[k] < first[i] ? k++ : i++)
            found = first[i] == second[k];
    free(first);
    free(second);
    return found;
}

char *tx_topo_set_text(const int32_t *numbers, int32_t count)
{
    size_t size = (size_t)count * 12 + 1, used = 0;
    char *text = malloc(size);
    if (!text) {
        tx_fail(TX_MEMORY, "a set of %" PRId32 " numbers: out of memory", count);
        return NULL;
    }
    text[0] = '\0';
    for (int32_t i = 0, end; i < count; i = end + 1) {
        for (end = i; end + 1 < count && numbers[end + 1] == numbers[end] + 1;)
            end++;
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId32, i ? "," : "", numbers[i]);
        if (end > i)
            used += (size_t)snprintf(text + used, size - used, "-%" PRId32, numbers[end]);
    }
    return text;
}
