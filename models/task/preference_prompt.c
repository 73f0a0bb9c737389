/* SPDX-License-Identifier: Apache-2.0
 * Finds the prompt of preferences whose two sides both contain it. */
#include "models/task/preference.h"

#include "models/names.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of the prompt of two texts: their common characters, without a space at the end. As in TRL, the last
 * character of a text that is the beginning of the other is not part of the prompt. */
static size_t common_text(const char *a, size_t a_size, const char *b, size_t b_size)
{
    const size_t most = a_size < b_size ? a_size : b_size;
    size_t size = 0;
    while (size < most && a[size] == b[size])
        size++;
    const bool differs = size < most;
    size -= !differs && size > 0;
    while (size > 0 && ((unsigned char)a[size] & 0xC0) == 0x80) /* to the beginning of a character */
        size--;
    return size - (differs && size > 0 && a[size - 1] == ' ');
}

static bool are_equal(const tx_json *a, const tx_json *b)
{
    char *x = tx_json_text(a, TX_JSON_SORTED), *y = tx_json_text(b, TX_JSON_SORTED);
    const bool equal = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return equal;
}

/* The number of messages of the prompt of two conversations. */
static size_t common_messages(const tx_json *a, const tx_json *b)
{
    const size_t most = tx_json_size(a) < tx_json_size(b) ? tx_json_size(a) : tx_json_size(b);
    size_t count = 0;
    while (count < most && are_equal(tx_json_at(a, count), tx_json_at(b, count)))
        count++;
    return count - (count == most && count > 0);
}

/* Moves the first `count` messages of both sides to the prompt. */
static tx_status split_messages(tx_json *object, tx_json *const sides[2], size_t count)
{
    tx_json *prompt = tx_json_array();
    tx_status status = TX_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = tx_json_append(prompt, tx_json_copy(tx_json_at(sides[0], i)));
    for (size_t i = 0; i < 2 * count && !status; i++)
        tx_json_remove(sides[i % 2], 0);
    if (!status)
        return tx_json_set(object, "prompt", prompt);
    tx_json_free(prompt);
    return status;
}

static tx_status split_texts(const tx_json *object, tx_json *result)
{
    const char *chosen, *rejected;
    size_t sizes[2];
    TX_TRY(tx_json_get_text(object, "chosen", &chosen, &sizes[0]));
    TX_TRY(tx_json_get_text(object, "rejected", &rejected, &sizes[1]));
    const size_t size = common_text(chosen, sizes[0], rejected, sizes[1]);
    TX_TRY(tx_json_set_text(result, "prompt", chosen, size));
    TX_TRY(tx_json_set_text(result, "chosen", chosen + size, sizes[0] - size));
    return tx_json_set_text(result, "rejected", rejected + size, sizes[1] - size);
}

/* Renames the keys of OpenAI's files: {"input": {"messages": [...]}, "preferred_output": [...], ...}. */
static tx_status rename_openai(const tx_json *object, tx_json *result)
{
    static const char *const names[][2] = {{"preferred_output", "chosen"}, {"non_preferred_output", "rejected"}};
    tx_json *input = NULL, *list = NULL;
    TX_TRY(tx_json_get(object, "input", TX_JSON_OBJECT, &input));
    TX_TRY(tx_fail_in(tx_json_get(input, "messages", TX_JSON_ARRAY, &list), "input"));
    TX_TRY(tx_json_set(result, "prompt", tx_json_copy(list)));
    if (tx_json_has(input, "tools"))
        TX_TRY(tx_json_set(result, "tools", tx_json_copy(tx_json_find(input, "tools"))));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        TX_TRY(tx_json_get(object, names[i][0], TX_JSON_ARRAY, &list));
        TX_TRY(tx_json_set(result, names[i][1], tx_json_copy(list)));
        TX_TRY(tx_json_set_null(result, names[i][0]));
    }
    return tx_json_set_null(result, "input");
}

/* The object is of no form of preferences. */
static tx_status fail_form(const tx_json *object)
{
    char keys[256];
    tx_list_keys(object, keys, sizeof keys);
    return tx_fail(
        TX_FORMAT,
        "chosen or rejected is missing from the keys %s; TX reads chosen and rejected, with or without prompt, "
        "and OpenAI's input, preferred_output and non_preferred_output",
        *keys ? keys : "no keys");
}

static tx_status split(const tx_json *object, tx_json *result)
{
    if (tx_json_has(object, "preferred_output"))
        return rename_openai(object, result);
    if (!tx_json_has(object, "chosen") || !tx_json_has(object, "rejected"))
        return fail_form(object);
    tx_json *const sides[] = {tx_json_find(result, "chosen"), tx_json_find(result, "rejected")};
    for (int i = 0; i < 2; i++)
        if (!sides[i] || (tx_json_type_of(sides[i]) != TX_JSON_STRING && tx_json_type_of(sides[i]) != TX_JSON_ARRAY))
            return tx_fail(TX_FORMAT, "%s: expected a text or a list of messages", i ? "rejected" : "chosen");
    if (tx_json_type_of(sides[0]) != tx_json_type_of(sides[1]))
        return tx_fail(TX_FORMAT, "rejected: expected %s, because chosen is %s",
                       tx_json_type_of(sides[0]) == TX_JSON_STRING ? "a text" : "a list of messages",
                       tx_json_type_of(sides[0]) == TX_JSON_STRING ? "a text" : "such a list");
    if (tx_json_type_of(sides[0]) == TX_JSON_STRING)
        return split_texts(object, result);
    const size_t count = common_messages(sides[0], sides[1]);
    return count ? split_messages(result, sides, count)
                 : tx_fail(TX_FORMAT, "chosen and rejected have no first message in common: give a prompt");
}

bool tx_preference_is_split(const tx_json *object)
{
    const tx_json *prompt = tx_json_find(object, "prompt"), *chosen = tx_json_find(object, "chosen");
    if (!prompt || tx_json_type_of(prompt) == TX_JSON_NULL)
        return false;
    return !(tx_json_type_of(prompt) == TX_JSON_STRING && chosen && tx_json_type_of(chosen) == TX_JSON_ARRAY);
}

tx_status tx_preference_split(const tx_json *object, tx_json **created)
{
    tx_json *copy = tx_json_copy(object);
    tx_status status = copy ? split(object, copy) : tx_fail(TX_MEMORY, "no memory for a sample");
    return TX_RETURN(status, copy, created, tx_json_free);
}
