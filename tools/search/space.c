/* SPDX-License-Identifier: Apache-2.0
 * Reads the search space. */
#include "tools/search/study.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 20)
#define RANGE_TEXT 4096

static const char *const words[] = {
#define X(name, word) word,
    TX_SPREAD_MAP(X)
#undef X
};

/* The space of Trainer.hyperparameter_search with Optuna (transformers' default_hp_space_optuna). */
static const char default_space[] = "learning_rate=loguniform:1e-6:1e-4,num_train_epochs=int:1:5,seed=int:1:40,"
                                    "per_device_train_batch_size=choice:4,8,16,32,64";

void tx_space_free(tx_space *space)
{
    for (int32_t i = 0; i < space->count; i++) {
        tx_dimension *d = &space->dimension[i];
        for (int32_t c = 0; c < d->count; c++)
            free(d->choice[c]);
        free(d->choice);
        free(d->name);
    }
    *space = (tx_space){0};
}

/* ---- One option ------------------------------------------------------------------------------------------------ */

typedef struct reader {
    const tx_option_values *options;
    tx_space *space;
} reader;

/* Fails with the option's own message if txtrain's option does not accept the value. */
static tx_status check_value(const reader *r, const tx_dimension *d, double value)
{
    char room[TX_VALUE_TEXT], *values = calloc(1, (size_t)1 << 16);
    tx_option_values scratch = *r->options;
    tx_status status = values ? TX_OK : tx_fail(TX_MEMORY, "no memory to check --search");
    scratch.values = values; /* only the option's own bytes are written */
    scratch.kept = NULL;
    TX_THEN(status, tx_option_set(&scratch, d->name, tx_dimension_text(d, value, room)));
    tx_option_values_free(&scratch);
    free(values);
    return status ? tx_fail_in(status, "--search") : TX_OK;
}

static tx_status add_choice(tx_dimension *d, const char *value)
{
    char **more = d->count < TX_CHOICES_MOST ? realloc(d->choice, (size_t)(d->count + 1) * sizeof *more) : NULL;
    if (!more)
        return tx_fail(TX_INVALID, "--search %s: more than %d values", d->name, TX_CHOICES_MOST);
    d->choice = more;
    d->choice[d->count] = strdup(value);
    if (!d->choice[d->count])
        return tx_fail(TX_MEMORY, "no memory for --search");
    d->count++;
    d->high = d->count - 1;
    d->step = 1.0;
    return TX_OK;
}

/* Reads up to three numbers separated by colons. Returns their count, or 0 if the text is something else. */
static int read_numbers(const char *text, double number[3])
{
    int count = 0;
    char *end;
    for (; count < 3; count++, text = end + 1) {
        number[count] = strtod(text, &end);
        if (end == text || !isfinite(number[count]))
            return 0;
        if (*end != ':')
            return *end ? 0 : count + 1;
    }
    return 0;
}

static tx_status check_range(const tx_dimension *d, const char *text)
{
    const bool whole = d->spread == TX_SPREAD_INT || d->spread == TX_SPREAD_LOGINT;
    const char *wrong = !(d->low < d->high)                         ? "LOW must be less than HIGH"
                        : tx_dimension_is_log(d) && !(d->low > 0.0) ? "a logarithmic range must begin above 0"
                        : whole && (floor(d->low) != d->low || floor(d->high) != d->high || floor(d->step) != d->step)
                            ? "bounds and step must be integers"
                        : !(d->step <= d->high - d->low) ? "the step is larger than the range"
                        : whole && !(fabs(d->low) < 0x1p52 && fabs(d->high) < 0x1p52) ? "the numbers are too large"
                                                                                      : NULL;
    return wrong ? tx_fail(TX_INVALID, "--search %s=%s: %s", d->name, text, wrong) : TX_OK;
}

/* Reads LOW:HIGH or LOW:HIGH:STEP. */
static tx_status read_range(tx_dimension *d, const char *text, const char *numbers)
{
    const bool stepped = d->spread == TX_SPREAD_INT || d->spread == TX_SPREAD_UNIFORM;
    double number[3];
    const int count = read_numbers(numbers, number);
    if (count < 2 || (count == 3 && !(stepped && number[2] > 0.0)))
        return tx_fail(TX_INVALID, "--search %s=%s: write %s:LOW:HIGH%s", d->name, text, words[d->spread],
                       stepped ? ", or add :STEP, which must be above 0" : "");
    d->low = number[0];
    d->high = number[1];
    d->step = count == 3 ? number[2] : d->spread == TX_SPREAD_INT || d->spread == TX_SPREAD_LOGINT ? 1.0 : 0.0;
    return check_range(d, text);
}

static tx_status read_choices(tx_dimension *d, const char *text)
{
    char value[RANGE_TEXT];
    tx_status status = TX_OK;
    for (const char *at = text; at && !status; at = strchr(at, ','), at += at ? 1 : 0) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        while (length > 0 && at[length - 1] == ' ')
            length--;
        snprintf(value, sizeof value, "%.*s", (int)length, at);
        status = length ? add_choice(d, value) : tx_fail(TX_INVALID, "--search %s: a value is empty", d->name);
    }
    return status;
}

static tx_status read_spread(tx_dimension *d, const char *text)
{
    const size_t length = strcspn(text, ":");
    char list[128] = "";
    for (int s = 0; s < TX_SPREAD_COUNT; s++) {
        if (text[length] == ':' && strlen(words[s]) == length && strncmp(text, words[s], length) == 0) {
            d->spread = (tx_spread)s;
            return s == TX_SPREAD_CHOICE ? read_choices(d, text + length + 1) : read_range(d, text, text + length + 1);
        }
        tx_list_add(list, sizeof list, ", ", "%s:", words[s]);
    }
    return tx_fail(TX_INVALID, "--search %s=%s: a range must begin with one of %s", d->name, text, list);
}

/* Fails unless the option exists, has values of the right kind, and is in the space only once. */
static tx_status check_option(const reader *r, const tx_dimension *d)
{
    const tx_option *option = tx_option_find(&r->options->table, d->name);
    if (!option)
        return tx_fail_in(tx_option_unknown(&r->options->table, NULL, d->name), "--search");
    if (!tx_option_has_value(option))
        return tx_fail(TX_UNSUPPORTED, "--search %s: an option of transformers that TX does not have: %s", d->name,
                       option->help);
    for (const tx_dimension *other = r->space->dimension; other < d; other++)
        if (strcmp(other->name, d->name) == 0)
            return tx_fail(TX_INVALID, "--search %s: given twice", d->name);
    const bool number = option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL;
    if (d->spread != TX_SPREAD_CHOICE && !number)
        return tx_fail(TX_INVALID, "--search %s: the option is not a number: use choice:A,B", d->name);
    if (option->kind == TX_OPTION_INTEGER && floor(d->step) != d->step)
        return tx_fail(TX_INVALID, "--search %s: the option is an integer: use an integer step", d->name);
    if (option->kind == TX_OPTION_INTEGER && d->spread != TX_SPREAD_CHOICE && !(d->step > 0.0))
        return tx_fail(TX_INVALID, "--search %s: the option is an integer: use int:LOW:HIGH or logint:LOW:HIGH",
                       d->name);
    return TX_OK;
}

static tx_status check_values(const reader *r, const tx_dimension *d)
{
    TX_TRY(check_option(r, d));
    for (int32_t i = 0; i < d->count; i++)
        TX_TRY(check_value(r, d, i));
    if (d->count == 0) {
        TX_TRY(check_value(r, d, d->low));
        TX_TRY(check_value(r, d, d->high));
    }
    return d->count == 1 ? tx_fail(TX_INVALID, "--search %s: a choice needs two values or more", d->name) : TX_OK;
}

/* Adds an option to the space. Replaces - in its name by _. */
static tx_status begin(reader *r, const char *name, size_t length, tx_dimension **dimension)
{
    if (r->space->count == TX_SPACE_MOST)
        return tx_fail(TX_INVALID, "--search: more than %d options", TX_SPACE_MOST);
    tx_dimension *d = &r->space->dimension[r->space->count];
    *d = (tx_dimension){.name = strndup(name, length)};
    if (!d->name)
        return tx_fail(TX_MEMORY, "no memory for --search");
    for (char *c = d->name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    r->space->count++;
    *dimension = d;
    return TX_OK;
}

/* ---- Texts and files ------------------------------------------------------------------------------------------- */

/* Returns the length of the name if the text begins with "name=", or 0. */
static size_t name_length(const char *text)
{
    const size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return text[length] == '=' ? length : 0;
}

/* Reads "NAME=RANGE,NAME=RANGE". A comma before a name ends a range. */
static tx_status read_text(reader *r, const char *text)
{
    while (*(text += strspn(text, " ,"))) {
        const size_t name = name_length(text);
        tx_dimension *d;
        char range[RANGE_TEXT];
        if (!name)
            return tx_fail(
                TX_INVALID,
                "--search \"%s\": write NAME=RANGE such as learning_rate=loguniform:1e-6:1e-4, \"default\", or a "
                "file that ends in .json",
                text);
        const char *from = text + name + 1, *end = from;
        do {
            end += strcspn(end, ",");
            end += *end == ',';
        } while (*end && !name_length(end + strspn(end, " ")));
        size_t length = (size_t)(end - from);
        while (length > 0 && strchr(" ,", from[length - 1]))
            length--;
        if (length >= sizeof range)
            return tx_fail(TX_INVALID, "--search %.*s: the range is too long", (int)name, text);
        snprintf(range, sizeof range, "%.*s", (int)length, from);
        TX_TRY(begin(r, text, name, &d));
        TX_TRY(read_spread(d, range));
        TX_TRY(check_values(r, d));
        text = end;
    }
    return TX_OK;
}

/* Reads an array of values as a choice. */
static tx_status read_array(tx_dimension *d, const tx_json *values)
{
    d->spread = TX_SPREAD_CHOICE;
    for (size_t i = 0; i < tx_json_size(values); i++) {
        const tx_json *value = tx_json_at(values, i);
        const char *text;
        char *written = NULL;
        if (tx_json_type_of(value) != TX_JSON_STRING)
            text = written = tx_json_text(value, TX_JSON_LINE);
        else
            TX_TRY(tx_json_as_string(value, d->name, &text));
        const tx_status status = text ? add_choice(d, text) : TX_MEMORY;
        free(written);
        TX_TRY(status);
    }
    return TX_OK;
}

static tx_status read_members(reader *r, const char *path, const tx_json *file)
{
    if (tx_json_type_of(file) != TX_JSON_OBJECT)
        return tx_fail(TX_INVALID,
                       "--search %s: must contain one object, {\"learning_rate\": \"loguniform:1e-6:1e-4\"}", path);
    for (void *i = tx_json_first(file); i; i = tx_json_next(file, i)) {
        const tx_json *value = tx_json_value(i);
        tx_dimension *d;
        const char *range;
        TX_TRY(begin(r, tx_json_key(i), strlen(tx_json_key(i)), &d));
        if (tx_json_type_of(value) == TX_JSON_ARRAY) {
            TX_TRY(read_array(d, value));
        } else if (tx_json_as_string(value, d->name, &range)) {
            return tx_fail_in(TX_INVALID, "--search %s: a range must be a string or an array of values", path);
        } else {
            TX_TRY(read_spread(d, range));
        }
        TX_TRY(check_values(r, d));
    }
    return TX_OK;
}

static tx_status read_file(reader *r, const char *path)
{
    tx_json *file = NULL;
    TX_TRY(tx_json_read(path, FILE_LIMIT, &file));
    const tx_status status = read_members(r, path, file);
    tx_json_free(file);
    return status;
}

tx_status tx_space_read(const tx_words *texts, const tx_option_values *options, tx_space *space)
{
    reader r = {options, space};
    tx_status status = TX_OK;
    *space = (tx_space){0};
    for (int32_t i = 0; i < texts->count && !status; i++) {
        const char *text = texts->word[i];
        const size_t length = strlen(text);
        if (strcmp(text, "default") == 0)
            status = read_text(&r, default_space);
        else if (length > 5 && strcmp(text + length - 5, ".json") == 0 && !strchr(text, '='))
            status = read_file(&r, text);
        else
            status = read_text(&r, text);
    }
    if (!status && space->count == 0)
        status = tx_fail(TX_INVALID, "--search is missing: give options and ranges (NAME=RANGE), or \"default\" for "
                                     "the space of transformers' Trainer");
    if (status)
        tx_space_free(space);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

tx_json *tx_space_json(const tx_space *space)
{
    tx_json *json = tx_json_object();
    for (int32_t i = 0; i < space->count; i++) {
        const tx_dimension *d = &space->dimension[i];
        tx_json *one = tx_json_object(), *values = tx_json_array();
        tx_json_set_string(one, "spread", words[d->spread]);
        if (d->spread != TX_SPREAD_CHOICE) {
            tx_json_set_number(one, "low", d->low);
            tx_json_set_number(one, "high", d->high);
            tx_json_set_number(one, "step", d->step);
        }
        for (int32_t c = 0; c < d->count; c++)
            tx_json_append_string(values, d->choice[c]);
        tx_json_set(one, "values", values);
        if (tx_json_set(json, d->name, one)) {
            tx_json_free(json);
            return NULL;
        }
    }
    return json;
}
