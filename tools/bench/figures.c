/* SPDX-License-Identifier: Apache-2.0
 * Prints figures, and computes medians of measurements. */
#include "tools/bench/figures.h"

#include "models/options/option.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making --------------------------------------------------------------------------------------------- */

tx_json *tx_bench_figures(const tx_cli *program, const void *values)
{
    const tx_option_values all = tx_options_values(program, (void *)values); /* only read */
    return tx_option_json(&all, 0, 0);
}

void tx_bench_set_series(tx_json *object, const char *key, const double *value, int64_t count)
{
    tx_json *series = tx_json_array();
    for (int64_t i = 0; i < count; i++)
        tx_json_append_number(series, value[i]);
    tx_json_set(object, key, series);
}

/* ---- Printing ------------------------------------------------------------------------------------------- */

enum { TEXT = 512, NAME = 34 };

/* Formats a value: strings unchanged, numbers with six digits, other values as JSON. */
static void value_text(const tx_json *value, char text[TEXT])
{
    const char *string;
    double number;
    char *json = NULL;
    if (tx_json_type_of(value) == TX_JSON_STRING && !tx_json_as_string(value, "", &string))
        snprintf(text, TEXT, "%s", string);
    else if (tx_json_type_of(value) == TX_JSON_NUMBER && !tx_json_as_number(value, "", -HUGE_VAL, HUGE_VAL, &number))
        snprintf(text, TEXT, "%.6g", number);
    else
        snprintf(text, TEXT, "%s", (json = tx_json_text(value, TX_JSON_LINE)) ? json : "");
    free(json);
}

/* Formats the cell of row 1, 2, .., or the heading for row 0. */
static void cell_text(const tx_json *rows, size_t row, const char *key, char text[TEXT])
{
    const tx_json *object = row > 0 ? tx_json_at(rows, row - 1) : NULL;
    snprintf(text, TEXT, "%s", row > 0 ? "-" : key);
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i))
        if (strcmp(tx_json_key(i), key) == 0)
            value_text(tx_json_value(i), text);
}

static void print_column(const tx_json *rows, size_t row, const char *key, bool left)
{
    char text[TEXT];
    int width = 0;
    for (size_t r = 0; r <= tx_json_size(rows); r++) {
        cell_text(rows, r, key, text);
        const int length = (int)strlen(text);
        width = length > width ? length : width;
    }
    cell_text(rows, row, key, text);
    printf(left ? "%-*s  " : "%*s  ", width, text);
}

/* True if "a|b|c" contains the key. NULL contains all keys. */
static bool is_named(const char *names, const char *key)
{
    for (; names && *names; names += tx_choice_length(names), names += *names == '|')
        if (tx_choice_length(names) == strlen(key) && strncmp(names, key, strlen(key)) == 0)
            return true;
    return !names;
}

static void print_table(const tx_json *rows, const char *columns)
{
    const tx_json *first = tx_json_at(rows, 0);
    putchar('\n');
    for (size_t row = 0; row <= tx_json_size(rows); row++) {
        for (void *i = tx_json_first(first); i; i = tx_json_next(first, i)) {
            const tx_json_type type = tx_json_type_of(tx_json_value(i));
            if (type != TX_JSON_ARRAY && is_named(columns, tx_json_key(i)))
                print_column(rows, row, tx_json_key(i), type == TX_JSON_STRING);
        }
        putchar('\n');
    }
}

static bool is_table(const tx_json *value)
{
    return tx_json_type_of(value) == TX_JSON_ARRAY && tx_json_size(value) > 0 &&
           tx_json_type_of(tx_json_at(value, 0)) == TX_JSON_OBJECT;
}

/* Prints the members of an object that are not lists. `of` is printed before their names. */
static void print_members(const tx_json *object, const char *of)
{
    char name[TEXT], text[TEXT];
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const tx_json *value = tx_json_value(i);
        if (tx_json_type_of(value) == TX_JSON_OBJECT)
            print_members(value, tx_json_key(i));
        else if (tx_json_type_of(value) != TX_JSON_ARRAY) {
            value_text(value, text);
            snprintf(name, sizeof name, "%s%s%s", of, *of ? " " : "", tx_json_key(i));
            printf("%-*s  %s\n", NAME, name, text);
        }
    }
}

tx_status tx_bench_print(tx_json *figures, bool json, const char *columns)
{
    char *text = tx_json_text(figures, TX_JSON_LINE);
    if (text && json)
        puts(text);
    else if (text)
        print_members(figures, "");
    for (void *i = json ? NULL : tx_json_first(figures); text && i; i = tx_json_next(figures, i))
        if (is_table(tx_json_value(i)))
            print_table(tx_json_value(i), columns);
    tx_json_free(figures);
    free(text);
    return text ? TX_OK : TX_MEMORY;
}

/* ---- Many measurements ------------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tx_bench_median(const double *value, int64_t count)
{
    double sorted[TX_BENCH_PAIRS];
    memcpy(sorted, value, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}

double tx_bench_median_ratio(const double *theirs, const double *ours, int64_t count)
{
    double ratio[TX_BENCH_PAIRS];
    for (int64_t i = 0; i < count; i++)
        ratio[i] = theirs[i] / ours[i];
    return tx_bench_median(ratio, count);
}
