/* SPDX-License-Identifier: Apache-2.0
 * Lists of labels in the cells of a file, for multi-label and token classification. */
#include "models/arch/labels.h"
#include "models/task/sequence.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tx_status add_item(tx_label_lists *lists, const tx_json *item)
{
    char number[32];
    const char *text = number;
    int64_t whole;
    if (tx_json_type_of(item) == TX_JSON_STRING) {
        TX_TRY(tx_json_as_string(item, "label", &text));
        TX_TRY(tx_label_check(text, strlen(text)));
    } else {
        double value;
        if (!lists->numbers || tx_json_as_int(item, "label", 0, TX_LABELS_MOST, &whole) == TX_OK) {
            TX_TRY(tx_json_as_int(item, "label", 0, TX_LABELS_MOST, &whole));
            snprintf(number, sizeof number, "%" PRId64, whole);
        } else {
            TX_TRY(tx_json_as_number(item, "label", -FLT_MAX, FLT_MAX, &value));
            snprintf(number, sizeof number, "%.17g", value);
        }
    }
    tx_buffer_add(&lists->text, text, strlen(text) + 1);
    lists->count++;
    return lists->text.status;
}

tx_status tx_label_lists_add(tx_label_lists *lists, const char *text, size_t size)
{
    const size_t bytes = lists->text.size, count = lists->count;
    tx_json *list = NULL;
    if (*text != '[' || tx_json_parse(text, size, "label", &list) || tx_json_type_of(list) != TX_JSON_ARRAY) {
        tx_json_free(list);
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is not a list", text);
    }
    tx_status status =
        tx_array_reserve(&lists->end, &lists->room, lists->rows + 1, sizeof *lists->end, "lists of labels");
    for (size_t i = 0; i < tx_json_size(list) && !status; i++)
        status = add_item(lists, tx_json_at(list, i));
    tx_json_free(list);
    if (status) {
        lists->text.size = bytes;
        lists->count = count;
        return status == TX_INVALID ? TX_FORMAT : status;
    }
    lists->end[lists->rows++] = lists->count;
    return TX_OK;
}

size_t tx_label_lists_begin(const tx_label_lists *lists, int64_t row)
{
    return row ? lists->end[row - 1] : 0;
}

void tx_label_lists_drop(tx_label_lists *lists)
{
    const size_t count = tx_label_lists_begin(lists, (int64_t)lists->rows - 1);
    for (; lists->count > count; lists->count--) {
        lists->text.size--; /* the NUL */
        while (lists->text.size && lists->text.data[lists->text.size - 1])
            lists->text.size--;
    }
    lists->rows--;
}

tx_status tx_label_lists_index(tx_label_lists *lists)
{
    lists->label = malloc((lists->count + 1) * sizeof *lists->label);
    if (!lists->label)
        return tx_fail(TX_MEMORY, "no memory for %zu labels", lists->count);
    for (size_t i = 0, at = 0; i < lists->count; i++, at += strlen(lists->text.data + at) + 1)
        lists->label[i] = lists->text.data + at;
    return TX_OK;
}

int64_t tx_label_lists_numbers(const tx_label_lists *lists)
{
    const size_t size = lists->rows ? lists->end[0] : 0;
    for (size_t r = 0; r < lists->rows; r++)
        if (lists->end[r] != (r + 1) * size)
            return 0;
    return size > 1 && tx_label_are_numbers(lists->label, (int64_t)lists->count) ? (int64_t)size : 0;
}

void tx_label_lists_free(tx_label_lists *lists)
{
    free(lists->text.data);
    free(lists->label);
    free(lists->end);
    *lists = (tx_label_lists){0};
}
