/* SPDX-License-Identifier: Apache-2.0
 * Labels of texts: checks them, sets the labels of the model, and maps texts to labels. */
#include "models/task/sequence.h"

#include "api/base/number.h"
#include "models/arch/labels.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Texts ------------------------------------------------------------------------------------------------ */

static bool read_number(const char *text, double *value)
{
    char *end;
    *value = tx_number_read(text, &end);
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

bool tx_label_whole(const char *text, int64_t *value)
{
    double number;
    if (!read_number(text, &number) || fabs(number) > TX_LABELS_MOST || floor(number) < number)
        return false;
    *value = (int64_t)number;
    return true;
}

bool tx_label_is_none(const char *text)
{
    int64_t value;
    return tx_label_whole(text, &value) && (value == -1 || value == TX_IGNORE_LABEL);
}

/* The size of the lists if they are the values of a regression: all have the same size above 1, and only numbers, some
 * with a fraction. Otherwise 0. */
static int64_t values_of(const tx_label_set *set)
{
    double number;
    for (size_t i = 0; i < set->count; i++)
        if (!read_number(set->label[i], &number))
            return 0;
    return set->size > 1 && has_fraction(set) ? set->size : 0;
}

/* Whether all lists are vectors of 0 and 1 of one size, which is at least `least`. Two such ids of labels or more would
 * be the same in each row. */
static bool has_vectors(const tx_label_set *set, int64_t least)
{
    bool has = set->lists && set->size >= least;
    for (size_t i = 0; i < set->count && has; i++) {
        int64_t value;
        has = tx_label_whole(set->label[i], &value) && (value == 0 || value == 1);
    }
    return has;
}

/* ---- Labels of the model ---------------------------------------------------------------------------------- */

/* Makes an index of `count` names: `names`, or without them the names of the model's own labels. */
static tx_status index_names(const tx_config *config, const char *const *names, int64_t count, tx_label_index *index)
{
    tx_label_index result = {.config = config, .at = calloc((size_t)count, sizeof *result.at), .task = names};
    if (!result.at)
        return tx_fail(TX_MEMORY, "no memory for %" PRId64 " labels", count);
    for (int64_t i = 0; i < count; i++) {
        const char *name = names ? names[i] : tx_label_name(config, i);
        int64_t number;
        result.only_names = result.only_names || (name && read_whole(name, &number));
        if (name)
            result.at[result.count++] = (tx_named){name, (int32_t)i};
    }
    tx_named_sort(result.at, (size_t)result.count);
    tx_label_index_free(index);
    *index = result;
    return TX_OK;
}

static tx_status index_labels(const tx_config *config, tx_label_index *index)
{
    return index_names(config, NULL, config->labels, index);
}

void tx_label_index_free(tx_label_index *index)
{
    free(index->at);
    *index = (tx_label_index){0};
}

/* The label of a name, also of LABEL_n if the model has no other for it; or -1. */
static int32_t find_name(const tx_label_index *index, const char *text)
{
    static const char usual[] = "LABEL_";
    const int32_t label = tx_named_find(index->at, (size_t)index->count, text);
    int64_t number;
    if (label >= 0 || strncmp(text, usual, sizeof usual - 1) != 0 || !read_whole(text + sizeof usual - 1, &number))
        return label;
    const bool usual_name = number >= 0 && number < index->config->labels && !tx_label_name(index->config, number);
    return usual_name ? (int32_t)number : -1;
}

/* The label of a name or a number, or -1. */
static int32_t find_label(const tx_label_index *index, const char *text)
{
    char name[32];
    const int32_t label = find_name(index, text);
    int64_t number;
    if (label >= 0 || !tx_label_whole(text, &number))
        return label;
    snprintf(name, sizeof name, "%" PRId64, number); /* of "2.0" */
    if (index->only_names || number < 0 || number >= index->config->labels)
        return find_name(index, name);
    return index->task ? find_name(index, index->task[number]) : (int32_t)number;
}

/* Labels of the data, those that the model lacks, and whether some are names of the model's. */
typedef struct tally {
    size_t labels, unknown;
    bool named;
} tally;

static tally count(const tx_label_index *index, const tx_label_set *set)
{
    const bool numbers = index->config->problem == TX_PROBLEM_NUMBERS;
    tally sum = {0};
    for (size_t i = 0; i < set->count; i++) {
        const char *text = set->label[i];
        const bool none = tx_label_is_none(text);
        double number;
        sum.labels += !none;
        sum.unknown += numbers ? !read_number(text, &number) : find_label(index, text) < 0 && !none;
        sum.named = sum.named || find_name(index, text) >= 0;
    }
    return sum;
}

static bool is_vectors(const tx_config *config, const tx_label_set *set)
{
    return has_vectors(set, config->problem == TX_PROBLEM_MULTI_LABEL && config->labels == 1 ? 1 : 2);
}

/* Whether data without unknown labels are for the problem of the model. They may lack some labels. */
static bool fits(const tx_config *c, const tx_label_set *set)
{
    if (c->problem == TX_PROBLEM_NUMBERS || is_vectors(c, set))
        return set->size == c->labels && c->problem != TX_PROBLEM_CLASSES;
    return set->lists ? c->problem == TX_PROBLEM_MULTI_LABEL : c->problem == TX_PROBLEM_CLASSES && c->labels > 1;
}

/* Sets the model's labels to the sorted labels of the data. */
static tx_status set_names(tx_config *config, tx_problem problem, const tx_label_set *set)
{
    size_t count = 0;
    const char **names = malloc((set->count + 1) * sizeof *names);
    if (!names)
        return tx_fail(TX_MEMORY, "no memory for %zu labels", set->count);
    for (size_t i = 0; i < set->count; i++)
        if (!tx_label_is_none(set->label[i]))
            names[count++] = set->label[i];
    qsort(names, count, sizeof *names, by_label);
    config->label_form = TX_LABELS_NAMES;
    const tx_status status =
        count < 2 || count > TX_LABELS_MOST
            ? tx_fail(TX_FORMAT, "the data have %zu different labels, must be 2 to %d", count, TX_LABELS_MOST)
            : tx_labels_set(config, problem, names, (int64_t)count);
    free(names);
    return status;
}

/* Sets the model's labels and its problem as the data have them. */
static tx_status follow_data(tx_config *config, const tx_label_set *set)
{
    const int64_t values = set->lists ? values_of(set) : has_fraction(set);
    if (has_vectors(set, 2))
        return tx_labels_set(config, TX_PROBLEM_MULTI_LABEL, NULL, set->size);
    return values ? tx_labels_set(config, TX_PROBLEM_NUMBERS, NULL, values)
                  : set_names(config, set->lists ? TX_PROBLEM_MULTI_LABEL : TX_PROBLEM_CLASSES, set);
}

/* Refuses data that cannot be for the problem of the model. Other labels that it lacks are refused by their rows. */
static tx_status refuse_problem(const tx_config *config, const tx_label_set *set, bool open)
{
    const bool multi_label = config->problem == TX_PROBLEM_MULTI_LABEL || config->labels > 1;
    if (open && set->lists && values_of(set) == config->labels)
        return tx_fail(TX_FORMAT,
                       "label is a list of numbers: for a regression of %" PRId64
                       " numbers set problem_type to \"%s\" in the model's config.json",
                       config->labels, tx_problem_name(TX_PROBLEM_NUMBERS));
    if (set->lists ? config->problem == TX_PROBLEM_CLASSES : config->problem != TX_PROBLEM_CLASSES && multi_label)
        return tx_fail(
            TX_FORMAT,
            "label is %sa list, but problem_type of the model is \"%s\" with %" PRId64 " label%s: give labels "
            "of this kind, or correct config.json",
            set->lists ? "" : "not ", tx_problem_name(config->problem), config->labels, tx_s(config->labels));
    return config->problem == TX_PROBLEM_CLASSES && config->labels < 2
               ? tx_fail(TX_FORMAT, "a classifier needs two labels or more, but config.json has one")
               : TX_OK;
}

/* Chooses the labels without a task of GLUE. Those of a trained head come first: only data that they do not fit, and
 * options that allow it, change them. */
static tx_status resolve_any(const tx_data_options *o, const tx_label_set *set, tx_label_index *index)
{
    tx_config *c = o->config;
    const bool trains = o->split == TX_DATA_TRAIN, open = tx_problem_is_open(c);
    if (open)
        c->problem = set->lists ? TX_PROBLEM_MULTI_LABEL : TX_PROBLEM_CLASSES;
    TX_TRY(index_labels(c, index));
    const tally data = count(index, set);
    const bool vectors = is_vectors(c, set), kind = fits(c, set), all = data.unknown == data.labels;
    const bool fit = kind && (!data.unknown || vectors) && !(trains && c->new_head);
    const bool classes = c->problem != TX_PROBLEM_NUMBERS, more = classes && data.labels > (size_t)c->labels;
    if (trains || c->label_form == TX_LABELS_UNREAD)
        c->label_form = vectors ? TX_LABELS_VECTORS : data.named && trains ? TX_LABELS_NAMES : TX_LABELS_IDS;
    if (fit && trains)
        TX_TRY(tx_problem_set(c, c->problem));
    else if (!fit && trains && !o->keeps_labels)
        TX_TRY(follow_data(c, set));
    else if (kind && trains && classes && !index->count && all && data.labels == (size_t)c->labels)
        TX_TRY(set_names(c, c->problem, set)); /* LABEL_0 .. get names, as in run_glue.py */
    else if (!fit)
        TX_TRY(refuse_problem(c, set, open));
    if (trains)
        TX_TRY(index_labels(c, index));
    index->only_names = index->only_names || c->label_form == TX_LABELS_NAMES || data.named;
    index->replaceable = trains && o->keeps_labels && !o->resumes && data.unknown && (all || more);
    return TX_OK;
}

/* Indexes the labels of a task of GLUE, whose data have their names or numbers. As in run_glue.py, the model may have
 * them in another order, and its names may differ in case. Other names are kept, and the numbers are then its own. */
static tx_status index_task(const tx_sequence_task *t, const tx_data_options *o, tx_label_index *index)
{
    tx_config *config = o->config;
    int64_t known = 0, named = 0;
    TX_TRY(index_names(config, t->labels, t->label_count, index));
    for (int64_t k = 0; k < config->labels && config->labels == t->label_count && !config->new_head; k++) {
        const char *name = tx_label_name(config, k);
        named += name != NULL;
        for (int64_t i = 0; i < t->label_count && name; i++)
            if (strcasecmp(index->at[i].name, name) == 0) {
                known++;
                index->at[i].index = (int32_t)k;
            }
    }
    if (known == t->label_count)
        return TX_OK;
    if (named && o->keeps_labels)
        return index_labels(config, index);
    TX_TRY(tx_labels_set(config, TX_PROBLEM_CLASSES, t->labels, t->label_count));
    return index_names(config, t->labels, t->label_count, index);
}

tx_status tx_labels_resolve(const tx_sequence_task *t, const tx_data_options *o, const tx_label_set *set,
                            tx_label_index *index)
{
    tx_config *config = o->config;
    const tx_problem problem = t->labels && !t->labels[0] ? TX_PROBLEM_NUMBERS : TX_PROBLEM_CLASSES;
    const bool same = config->labels == t->label_count;
    if (!t->labels)
        return resolve_any(o, set, index);
    if (!same && o->split != TX_DATA_TRAIN)
        return tx_fail(TX_INVALID, "%s has %" PRId64 " labels, the model %" PRId64, t->task.name, t->label_count,
                       config->labels);
    if (same && o->keeps_labels && config->problem != problem && !tx_problem_is_open(config))
        return tx_fail(TX_INVALID, "%s is a %s, but problem_type of the model is \"%s\": correct one of them",
                       t->task.name, tx_problem_name(problem), tx_problem_name(config->problem));
    TX_TRY(same ? tx_problem_set(config, problem) : TX_OK);
    if (problem == TX_PROBLEM_CLASSES)
        return index_task(t, o, index);
    TX_TRY(same ? TX_OK : tx_labels_set(config, problem, NULL, 1));
    return index_labels(config, index);
}

/* Fails because a label is not the model's. */
static tx_status refuse_label(const tx_label_index *index, const char *text)
{
    const int64_t labels = index->config->labels;
    char list[160] = "";
    for (int64_t i = 0; i < labels && i < 8; i++) {
        char usual[24];
        const char *name = tx_label_name(index->config, i);
        snprintf(usual, sizeof usual, "%" PRId64, i);
        tx_list_add(list, sizeof list, ", ", "%.40s", name ? name : usual);
    }
    return tx_fail(TX_FORMAT, "label: \"%.40s\" is not one of the model's %" PRId64 " labels, %s%s%s", text, labels,
                   list, labels > 8 ? ", ..." : "",
                   index->replaceable ? ": correct it, or start with a new head for the labels of the data "
                                        "(--ignore_mismatched_sizes)"
                                      : "");
}

tx_status tx_label_read(const tx_label_index *index, const char *text, int32_t *label, float *target)
{
    double number = 0.0;
    const bool numbers = index->config->problem == TX_PROBLEM_NUMBERS;
    if (numbers && !read_number(text, &number))
        return tx_fail(TX_FORMAT, "label: \"%.40s\" is not a number, but the labels of a regression are%s", text,
                       index->replaceable ? ": correct it, or start with a new head (--ignore_mismatched_sizes)" : "");
    *label = numbers ? 0 : find_label(index, text);
    *target = (float)number;
    if (*label < 0 && index->config->problem == TX_PROBLEM_CLASSES && tx_label_is_none(text))
        *label = TX_IGNORE_LABEL;
    return *label >= 0 || *label == TX_IGNORE_LABEL ? TX_OK : refuse_label(index, text);
}
