/* SPDX-License-Identifier: Apache-2.0
 * Labels of texts: checks them, sets the labels of the model, and maps texts to labels. */
#include "models/task/sequence.h"

#include "models/arch/labels.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Texts ------------------------------------------------------------------------------------------------ */

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static bool read_whole(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && !errno;
}

tx_status tx_label_check(const char *text, size_t size)
{
    while (size && isspace((unsigned char)*text)) {
        text++;
        size--;
    }
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    const char last = size ? text[size - 1] : '\0';
    if (size == 0)
        return tx_fail(TX_FORMAT, "label is empty");
    if (memchr(text, '\0', size))
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is followed by a NUL", text);
    if (size == 3 && strncasecmp(text, "nan", 3) == 0)
        return tx_fail(TX_FORMAT, "label: \"%.3s\" means a missing value", text);
    if ((*text == '[' && last == ']') || (*text == '{' && last == '}'))
        return tx_fail(TX_FORMAT, "label: %.40s is %s: a label must be a name or a number", text,
                       *text == '[' ? "a list" : "an object");
    return TX_OK;
}

/* Sorts integers by value, before all other labels by their bytes. */
static int by_label(const void *left, const void *right)
{
    const char *a = *(const char *const *)left, *b = *(const char *const *)right;
    int64_t x, y;
    const bool whole_a = read_whole(a, &x), whole_b = read_whole(b, &y);
    if (whole_a && whole_b && x != y)
        return x < y ? -1 : 1;
    return whole_a != whole_b ? whole_b - whole_a : strcmp(a, b);
}

/* Whether some label is a number with a fraction or an exponent. */
static bool has_fraction(const tx_label_set *set)
{
    bool has = false;
    for (size_t i = 0; i < set->count && !has; i++) {
        double number;
        int64_t whole;
        has = read_number(set->label[i], &number) && !read_whole(set->label[i], &whole);
    }
    return has;
}

bool tx_label_are_numbers(const tx_label_set *set)
{
    double number;
    for (size_t i = 0; i < set->count; i++)
        if (!read_number(set->label[i], &number))
            return false;
    return has_fraction(set);
}

/* ---- Labels of the model ---------------------------------------------------------------------------------- */

/* Indexes the model's labels by name. */
static tx_status index_labels(const tx_config *config, tx_label_index *index)
{
    tx_label_index made = {.labels = config->labels};
    made.at = calloc((size_t)config->labels, sizeof *made.at);
    if (!made.at)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", config->labels);
    for (int64_t i = 0; i < config->labels; i++) {
        const char *name = tx_label_name(config, i);
        int64_t number;
        made.only_names = made.only_names || (name && read_whole(name, &number));
        if (name)
            made.at[made.count++] = (tx_named){name, (int32_t)i};
    }
    tx_named_sort(made.at, (size_t)made.count);
    tx_label_index_free(index);
    *index = made;
    return TX_OK;
}

void tx_label_index_free(tx_label_index *index)
{
    free(index->at);
    *index = (tx_label_index){0};
}

static int32_t find_name(const tx_label_index *index, const char *text)
{
    return tx_named_find(index->at, (size_t)index->count, text);
}

/* The label of a name or a number, or -1. */
static int32_t find_label(const tx_label_index *index, const char *text)
{
    const int32_t label = find_name(index, text);
    int64_t number;
    if (label >= 0 || index->only_names || !read_whole(text, &number))
        return label;
    return number >= 0 && number < index->labels ? (int32_t)number : -1;
}

/* Whether some labels of the data are names of the model's. */
static bool has_names(const tx_label_index *index, const tx_label_set *set)
{
    bool has = false;
    for (size_t i = 0; i < set->count && !has; i++)
        has = find_name(index, set->label[i]) >= 0;
    return has;
}

/* Whether the model has named labels, and all labels of the data are among the model's. */
static bool knows_labels(const tx_label_index *index, const tx_label_set *set)
{
    bool knows = index->count > 0;
    for (size_t i = 0; i < set->count && knows; i++)
        knows = find_label(index, set->label[i]) >= 0;
    return knows;
}

static bool has_labels(const tx_config *config, const char *const *names, int64_t count)
{
    bool same = config->labels == count;
    for (int64_t i = 0; i < count && same; i++) {
        const char *name = tx_label_name(config, i);
        same = name && strcmp(name, names[i]) == 0;
    }
    return same;
}

/* Sets the model's labels to the sorted labels of the data. */
static tx_status set_data_labels(tx_config *config, const tx_label_set *set)
{
    const size_t count = set->count;
    if (count < 2 || count > TX_LABELS_MOST)
        return tx_fail(TX_FORMAT, "the data have %zu different labels, must be 2 to %d", count, TX_LABELS_MOST);
    const char **names = malloc(count * sizeof *names);
    if (!names)
        return tx_fail(TX_MEMORY, "no memory for %zu labels", count);
    memcpy(names, set->label, count * sizeof *names);
    qsort(names, count, sizeof *names, by_label);
    const bool same = has_labels(config, names, (int64_t)count);
    const tx_status status = same ? TX_OK : tx_labels_set(config, names, (int64_t)count);
    free(names);
    return status;
}

/* Sets labels without a GLUE task. Names and numbers do not mix: after training data with names, later data cannot use
 * numbers. */
static tx_status set_any_labels(const tx_data_options *o, const tx_label_set *set, tx_label_index *index)
{
    tx_config *config = o->config;
    const bool trains = o->split == TX_DATA_TRAIN;
    const bool named = has_names(index, set);
    if (trains && !config->new_head && knows_labels(index, set))
        config->named_labels = named;
    else if (trains && !config->several_labels && has_fraction(set))
        return config->labels == 1 ? TX_OK : tx_labels_set(config, NULL, 1);
    else if (trains) {
        TX_TRY(set_data_labels(config, set));
        config->named_labels = true;
    }
    if (trains)
        TX_TRY(index_labels(config, index));
    index->only_names = index->only_names || config->named_labels || named;
    return TX_OK;
}

tx_status tx_labels_resolve(const tx_sequence_task *t, const tx_data_options *o, const tx_label_set *set,
                            tx_label_index *index)
{
    tx_config *config = o->config;
    const bool trains = o->split == TX_DATA_TRAIN;
    if (t->labels && !trains && config->labels != t->label_count)
        return tx_fail(TX_INVALID, "%s has %" PRId64 " labels, the model %" PRId64, t->task.name, t->label_count,
                       config->labels);
    if (t->labels && !t->labels[0])
        TX_TRY(config->labels == 1 ? TX_OK : tx_labels_set(config, NULL, 1));
    else if (t->labels && !has_labels(config, t->labels, t->label_count))
        TX_TRY(tx_labels_set(config, t->labels, t->label_count));
    TX_TRY(index_labels(config, index));
    return t->labels ? TX_OK : set_any_labels(o, set, index);
}

tx_status tx_label_read(const tx_config *config, const tx_label_index *index, const char *text, int32_t *label,
                        float *target)
{
    double number = 0.0;
    const bool numbers = config->labels == 1 || config->several_numbers;
    if (numbers && !read_number(text, &number))
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is not a number, but the labels of a regression are", text);
    *label = numbers ? 0 : find_label(index, text);
    *target = (float)number;
    return *label >= 0 ? TX_OK
                       : tx_fail(TX_FORMAT, "label: \"%.40s\" is not one of the model's %" PRId64 " labels", text,
                                 config->labels);
}
