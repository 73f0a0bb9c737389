/* SPDX-License-Identifier: Apache-2.0
 * Labels in the cells of a file: those of a row, and the different ones of all rows. */
#include "api/base/number.h"
#include "models/arch/labels.h"
#include "models/task/sequence.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a list of numbers, those that are no integers keep a point: 2.0. Other lists have only whole numbers. */
static tx_status write_number(const tx_label_list *list, const tx_json *item, char text[32])
{
    enum { MOST = TX_LABELS_MOST };
    int64_t whole;
    double value;
    bool flag;
    if (list->numbers && tx_json_as_bool(item, "label", &flag) == TX_OK) {
        snprintf(text, 32, "%d", flag);
    } else if (tx_json_as_int(item, "label", -MOST, MOST, &whole) == TX_OK) {
        snprintf(text, 32, "%" PRId64, whole);
    } else {
        TX_TRY(tx_json_as_number(item, "label", -FLT_MAX, FLT_MAX, &value));
        if (!list->numbers && floor(value) < value)
            return tx_json_as_int(item, "label", -MOST, MOST, &whole);
        tx_format(text, 32, "%.17g", value);
        strcat(text, !list->numbers || strpbrk(text, ".e") ? "" : ".0");
    }
    return TX_OK;
}

static tx_status add_item(tx_label_list *list, const tx_json *item)
{
    char number[32];
    const char *text = number;
    if (tx_json_type_of(item) == TX_JSON_STRING) {
        TX_TRY(tx_json_as_string(item, "label", &text));
        TX_TRY(tx_label_check(text, strlen(text)));
    } else {
        TX_TRY(write_number(list, item, number));
    }
    tx_buffer_add(&list->text, text, strlen(text) + 1);
    return list->text.status;
}

tx_status tx_label_list_read(tx_label_list *list, const tx_json *json, const char *text)
{
    if (!json)
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is not a list", text);
    list->count = tx_json_size(json);
    tx_buffer_clear(&list->text);
    tx_status status = tx_array_reserve(&list->label, &list->room, list->count, sizeof *list->label, "labels");
    for (size_t i = 0; i < list->count && !status; i++)
        status = add_item(list, tx_json_at(json, i));
    for (size_t i = 0, at = 0; i < list->count && !status; i++, at += strlen(list->text.data + at) + 1)
        list->label[i] = list->text.data + at;
    return status == TX_INVALID ? TX_FORMAT : status;
}

tx_status tx_label_list_of(tx_label_list *list, const char *text, size_t size)
{
    TX_TRY(tx_array_reserve(&list->label, &list->room, 1, sizeof *list->label, "labels"));
    list->count = 1;
    list->label[0] = text;
    return tx_label_check(text, size);
}

void tx_label_list_free(tx_label_list *list)
{
    free(list->text.data);
    free(list->label);
}

static bool is_label(const void *set, uint32_t number, const void *text)
{
    return strcmp(((const tx_label_set *)set)->label[number], text) == 0;
}

tx_status tx_label_set_add(tx_label_set *set, const tx_label_list *list)
{
    const int64_t size = (int64_t)list->count;
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->label[i];
        const uint64_t hash = tx_hash_bytes(text, strlen(text));
        if (tx_index_find(&set->index, hash, is_label, set, text) != TX_INDEX_NONE)
            continue;
        TX_TRY(tx_array_reserve(&set->label, &set->room, set->count + 1, sizeof *set->label, "labels"));
        TX_TRY(tx_copy_text(text, &set->label[set->count]));
        set->count++;
        TX_TRY(tx_index_add(&set->index, hash, set->count - 1));
    }
    set->size = set->rows == 0 || set->size == size ? size : 0;
    set->rows++;
    return TX_OK;
}

void tx_label_set_free(tx_label_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->label[i]);
    free(set->label);
    free(set->index.slot);
}
