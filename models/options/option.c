/* SPDX-License-Identifier: Apache-2.0
 * Finds options by name and stores values from text: the rules of command lines, files and tx_option_set. */
#include "models/options/option.h"

#include "api/base/needs.h"
#include "api/base/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_MOST 63

bool tx_option_has_value(const tx_option *option)
{
    TX_NEEDS(option, false);
    return option->kind != TX_OPTION_HEADING && option->kind != TX_OPTION_FOREIGN;
}

/* A block of memory that option values point to, in a list. */
struct tx_option_kept {
    struct tx_option_kept *next;
    max_align_t block[];
};

/* Allocates a block that tx_option_values_free frees. NULL, with a message, if out of memory. */
static void *keep(tx_option_values *to, size_t size)
{
    struct tx_option_kept *one = malloc(sizeof *one + size);
    if (!one) {
        tx_fail(TX_MEMORY, "options: out of memory");
        return NULL;
    }
    one->next = to->kept;
    to->kept = one;
    return one->block;
}

static const char *keep_text(tx_option_values *to, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = keep(to, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void tx_option_values_free(tx_option_values *values)
{
    if (!values)
        return;
    while (values->kept) {
        struct tx_option_kept *one = values->kept;
        values->kept = one->next;
        free(one);
    }
}

const tx_option *tx_option_at(const tx_option_table *table, size_t offset)
{
    for (int32_t i = 0; i < table->count; i++)
        if (tx_option_has_value(&table->option[i]) && table->option[i].offset == offset)
            return &table->option[i];
    return NULL;
}

tx_option_source tx_option_from(const tx_option_values *values, size_t offset)
{
    const tx_option *option = tx_option_at(&values->table, offset);
    return option ? (tx_option_source)values->source[option - values->table.option] : TX_OPTION_UNSET;
}

bool tx_option_given(const tx_option_values *values, size_t offset)
{
    TX_NEEDS(values, false);
    return tx_option_from(values, offset) != TX_OPTION_UNSET;
}

bool tx_option_asked(const tx_option_values *values, size_t offset)
{
    TX_NEEDS(values, false);
    return tx_option_from(values, offset) > TX_OPTION_REPEATED;
}

/* ---- names ------------------------------------------------------------------------------------ */

/* Copies the name in "some-name" or "some-name=value", with underscores. False if it is too long. */
static bool spell(const char *argument, char name[NAME_MOST + 1])
{
    const size_t length = strcspn(argument, "=");
    if (length > NAME_MOST)
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = argument[i] == '-' ? '_' : argument[i];
    name[length] = '\0';
    return true;
}

/* The Levenshtein distance between two names. The second has at most NAME_MOST characters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_MOST + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[width];
}

void tx_name_compare(const char *name, const char *candidate, size_t *least, const char **nearest)
{
    TX_NEEDS(name && candidate && least && nearest, );
    const bool known = strlen(name) <= NAME_MOST && strlen(candidate) <= NAME_MOST;
    const size_t d = known ? distance(name, candidate) : SIZE_MAX;
    if (d < *least) {
        *least = d;
        *nearest = candidate;
    }
}

/* The dashes before a name on a command line. */
static const char *dashes(const char *name)
{
    return *name && name[1] ? "--" : "-";
}

/* The arguments of "%s%s%s" that name an option of a file or a command line. */
#define PLACE(file, name) (file) ? (file) : "", (file) ? ": " : dashes(name), name

tx_status tx_option_unknown(const tx_option_table *table, const char *file, const char *name)
{
    TX_NEEDS(table && name, TX_INVALID);
    char spelled[NAME_MOST + 1];
    const char *nearest = NULL;
    size_t least = spell(name, spelled) ? strlen(spelled) / 3 + 2 : 0;
    for (int32_t i = 0; i < table->count && least; i++)
        if (table->option[i].name && tx_option_has_value(&table->option[i]))
            tx_name_compare(spelled, table->option[i].name, &least, &nearest);
    if (nearest)
        return tx_fail(TX_INVALID, "%s%s%s: unknown option; did you mean %s%s?", PLACE(file, name),
                       file ? "" : dashes(nearest), nearest);
    return tx_fail(TX_INVALID, "%s%s%s: unknown option; --help all lists all", PLACE(file, name));
}

/* Whether a row for all names that begin as its own, which ends in *, is for this name. */
static bool covers(const tx_option *option, const char *spelled)
{
    const size_t length = strlen(option->name);
    return option->kind == TX_OPTION_FOREIGN && option->name[length - 1] == '*' &&
           strncmp(option->name, spelled, length - 1) == 0;
}

const tx_option *tx_option_find(const tx_option_table *table, const char *name)
{
    TX_NEEDS(table && name, NULL);
    char spelled[NAME_MOST + 1];
    if (!spell(name, spelled))
        return NULL;
    for (int32_t i = 0; i < table->spelling_count; i++)
        if (strncmp(table->spelling[i].spelled, "--", 2) == 0 && strcmp(table->spelling[i].spelled + 2, spelled) == 0)
            return tx_option_find(table, table->spelling[i].name);
    for (int32_t i = 0; i < table->count; i++)
        if (table->option[i].name && strcmp(table->option[i].name, spelled) == 0)
            return &table->option[i];
    for (int32_t i = 0; i < table->count; i++)
        if (table->option[i].name && covers(&table->option[i], spelled))
            return &table->option[i];
    return NULL;
}

/* Options of other programs that a program of TX does not have. txtrain's are in its own table. */
static const struct {
    const char *programs;
    tx_option option;
} rows[] = {
#define OF(programs, name, same, advice) {programs, {TX_OPTION_FOREIGN, name, .choices = same, .help = advice}},
#include "models/options/foreign_programs.def"
};

const tx_option *tx_option_foreign(const char *program, const char *name)
{
    TX_NEEDS(program && name, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tx_option_table one = {.option = &rows[i].option, .count = 1};
        if (strstr(rows[i].programs, program) && tx_option_find(&one, name))
            return &rows[i].option;
    }
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------- */

size_t tx_choice_length(const char *choices)
{
    return choices ? strcspn(choices, "|") : 0;
}

const char *tx_choice_next(const char *choices)
{
    const size_t length = tx_choice_length(choices);
    return choices && choices[length] ? choices + length + 1 : NULL;
}

int tx_choice_find(const char *choices, const char *word, size_t length)
{
    int index = 0;
    for (const char *at = choices; at; at = tx_choice_next(at), index++)
        if (length == tx_choice_length(at) && strncasecmp(at, word, length) == 0)
            return index;
    return -1;
}

int tx_option_truth(const char *word)
{
    TX_NEEDS(word, -1);
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "f", "t", "n", "y", "0", "1"};
    for (int i = 0; i < (int)(sizeof words / sizeof words[0]); i++)
        if (strcasecmp(word, words[i]) == 0)
            return i % 2;
    return -1;
}

bool tx_option_is_list(const tx_option *option)
{
    TX_NEEDS(option, false);
    const bool words = option->kind == TX_OPTION_TEXT && option->choices && strstr(option->choices, ",...");
    return words || option->kind == TX_OPTION_LIST;
}

/* Refuses a number outside the bounds of the option. The message has all digits of the bounds. */
static tx_status refuse_size(const char *file, const tx_option *option, const char *value, double real)
{
    char least[32], most[32];
    tx_format(least, sizeof least, "%.15g", option->least);
    if (option->kind == TX_OPTION_INTEGER && option->most >= 0x1p63)
        snprintf(most, sizeof most, "%" PRId64, INT64_MAX);
    else
        tx_format(most, sizeof most, "%.15g", option->most);
    return tx_fail(TX_INVALID, "%s%s%s %s: too %s: must be between %s and %s", PLACE(file, option->name), value,
                   real > option->most ? "large" : "small", least, most);
}

static tx_status store_number(const char *file, const tx_option *option, const char *value, void *at)
{
    const bool integer = option->kind == TX_OPTION_INTEGER;
    const double exact = 9007199254740992.0; /* a double holds every integer up to 2^53 */
    char *end;
    errno = 0;
    const double real = tx_number_read(value, &end);
    const bool number = end != value && !*end && (isfinite(real) || errno == ERANGE);
    if (!number || (integer && floor(real) != real)) /* 500.0 and 1e3 are integers */
        return tx_fail(TX_INVALID, "%s%s%s %s: not a %snumber", PLACE(file, option->name), value,
                       integer ? "whole " : "");
    if (!(real >= option->least && real <= option->most))
        return refuse_size(file, option, value, real);
    errno = 0;
    if (!integer)
        *(double *)at = real;
    else if (fabs(real) <= exact)
        *(int64_t *)at = (int64_t)real;
    else
        *(int64_t *)at = strtoll(value, &end, 10);
    if (integer && fabs(real) > exact && (*end || errno))
        return tx_fail(TX_INVALID, "%s%s%s %s: write all digits of so large a number", PLACE(file, option->name),
                       value);
    return TX_OK;
}

static tx_status refuse_choice(const char *file, const tx_option *option, const char *value)
{
    char word[NAME_MOST + 1], near[NAME_MOST + 32] = "";
    const char *nearest = NULL;
    size_t least = strlen(value) / 3 + 1;
    for (const char *at = option->choices; at; at = tx_choice_next(at)) {
        snprintf(word, sizeof word, "%.*s", (int)tx_choice_length(at), at);
        tx_name_compare(value, word, &least, &nearest);
        if (nearest == word)
            snprintf(near, sizeof near, "did you mean %s? ", word);
        nearest = NULL;
    }
    return tx_fail(TX_INVALID, "%s%s%s %s: %smust be one of %s", PLACE(file, option->name), value, near,
                   option->choices);
}

/* The index of a word among an option's choices, or -1. Words for false, such as YAML's off, are also "no" or "none".
 */
static int find_choice(const tx_option *option, const char *word, size_t length)
{
    char text[NAME_MOST + 1];
    snprintf(text, sizeof text, "%.*s", (int)length, word);
    int place = tx_choice_find(option->choices, word, length);
    if (place < 0 && tx_option_truth(text) == 0) {
        place = tx_choice_find(option->choices, "no", 2);
        place = place < 0 ? tx_choice_find(option->choices, "none", 4) : place;
    }
    return place;
}

/* Fails if the table has advice for a word of other programs that is none of an option's choices. */
static tx_status refuse_known(const tx_option_table *table, const char *file, const tx_option *option, const char *word,
                              size_t length)
{
    char both[NAME_MOST + 1];
    snprintf(both, sizeof both, "%s %.*s", option->name, (int)length, word);
    const tx_option *refused = tx_option_find(table, both);
    return refused ? tx_fail(TX_INVALID, "%s%s%s %.*s: not supported: %s", PLACE(file, option->name), (int)length, word,
                             refused->help)
                   : TX_OK;
}

static tx_status store_choice(const tx_option_table *table, const char *file, const tx_option *option,
                              const char *value, int32_t *at)
{
    const int place = find_choice(option, value, strlen(value));
    if (place < 0)
        TX_TRY(refuse_known(table, file, option, value, strlen(value)));
    if (place < 0)
        return refuse_choice(file, option, value);
    *at = place;
    return TX_OK;
}

/* Stores a bit for each of the choices in "a,b". The empty text stores none. */
static tx_status store_list(const tx_option_table *table, const char *file, const tx_option *option, const char *value,
                            uint32_t *at)
{
    uint32_t set = 0;
    for (const char *word = value; *value; word++) {
        const size_t length = strcspn(word, ",");
        const int place = find_choice(option, word, length);
        if (place < 0)
            TX_TRY(refuse_known(table, file, option, word, length));
        if (place < 0)
            return tx_fail(TX_INVALID, "%s%s%s %.*s: must be one or more of %s", PLACE(file, option->name), (int)length,
                           word, option->choices);
        set |= UINT32_C(1) << place;
        word += length;
        if (!*word)
            break;
    }
    *at = set;
    return TX_OK;
}

static tx_status store_flag(const char *file, const tx_option *option, const char *value, bool *at)
{
    const bool known = option->choices && tx_option_list_has(option->choices, value);
    const int truth = known ? 1 : tx_option_truth(value);
    if (truth < 0)
        return tx_fail(TX_INVALID, "%s%s%s %s: must be true or false", PLACE(file, option->name), value);
    *at = truth == 1;
    return TX_OK;
}

static tx_status store_text(tx_option_values *to, const char *value, const char **at)
{
    const char *copy = keep_text(to, value);
    *at = copy ? copy : *at;
    return copy ? TX_OK : TX_MEMORY;
}

/* The array grows to powers of two. The smaller blocks are freed only with all values; there are few. */
tx_status tx_option_add_word(tx_option_values *to, const char *word, size_t at)
{
    TX_NEEDS(to && word, TX_INVALID);
    tx_words *words = (tx_words *)(void *)((char *)to->values + at);
    const size_t count = (size_t)words->count;
    const char **list = (const char **)(uintptr_t)words->word;
    if ((count & (count - 1)) == 0) {
        const char **larger = keep(to, (count ? 2 * count : 1) * sizeof *larger);
        if (!larger)
            return TX_MEMORY;
        if (count)
            memcpy(larger, list, count * sizeof *larger);
        words->word = list = larger;
    }
    list[count] = keep_text(to, word);
    words->count += list[count] != NULL;
    return list[count] ? TX_OK : TX_MEMORY;
}

/* The word of a list that means the same as a value, or NULL. */
static const char *find_same(const char *choices, const char *value)
{
    char same[64], *end, *other_end;
    for (const char *at = choices; at; at = tx_choice_next(at)) {
        snprintf(same, sizeof same, "%.*s", (int)tx_choice_length(at), at);
        const double given = tx_number_read(value, &end), wanted = tx_number_read(same, &other_end);
        const bool numbers = end != value && other_end != same && !*end && !*other_end;
        if (strcmp(same, "*") == 0 || strcasecmp(value, same) == 0 ||
            (tx_option_truth(value) >= 0 && tx_option_truth(value) == tx_option_truth(same)) ||
            (numbers && given >= wanted && given <= wanted))
            return at;
    }
    return NULL;
}

bool tx_option_list_has(const char *choices, const char *value)
{
    return find_same(choices, value) != NULL;
}

/* Accepts a value that TX needs no option for. One that has no effect counts as given, so that a run reports it. */
static tx_status store_foreign(tx_option_values *to, const char *file, const tx_option *option, const char *value)
{
    const char *same = find_same(option->choices, value);
    if (!same)
        return tx_fail(TX_UNSUPPORTED, "%s%s%s: TX does not support this option: %s", PLACE(file, option->name),
                       option->help);
    if (*same == '*' && same != option->choices)
        to->source[option - to->table.option] = TX_OPTION_SET;
    return TX_OK;
}

tx_status tx_option_store(tx_option_values *to, const char *file, const tx_option *option, const char *value)
{
    TX_NEEDS(to && option && value, TX_INVALID);
    void *at = (char *)to->values + option->offset;
    tx_status status = TX_INVALID;
    if (option->kind == TX_OPTION_FOREIGN)
        return store_foreign(to, file, option, value);
    if (!*value && option->kind == TX_OPTION_CHOICE && strncmp(option->choices, "none|", 5) == 0)
        value = "none"; /* transformers writes an empty list */
    if (!*value && option->kind != TX_OPTION_OPTIONAL && option->kind != TX_OPTION_LIST)
        return tx_fail(TX_INVALID, "%s%s%s: the value is empty", PLACE(file, option->name));
    if (tx_option_is_list(option) && strlen(value) >= TX_OPTION_LIST_TEXT - 1)
        return tx_fail(TX_INVALID, "%s%s%s: the list is longer than %d bytes", PLACE(file, option->name),
                       TX_OPTION_LIST_TEXT);
    switch (option->kind) {
    case TX_OPTION_INTEGER:
    case TX_OPTION_REAL:
        status = store_number(file, option, value, at);
        break;
    case TX_OPTION_TEXT:
    case TX_OPTION_OPTIONAL:
        status = store_text(to, value, at);
        break;
    case TX_OPTION_CHOICE:
        status = store_choice(&to->table, file, option, value, at);
        break;
    case TX_OPTION_LIST:
        status = store_list(&to->table, file, option, value, at);
        break;
    case TX_OPTION_WORDS:
        status = tx_option_add_word(to, value, option->offset);
        break;
    case TX_OPTION_FLAG:
        status = store_flag(file, option, value, at);
        break;
    case TX_OPTION_HEADING:
    case TX_OPTION_FOREIGN:
        break;
    }
    if (!status)
        to->source[option - to->table.option] = TX_OPTION_SET;
    return status;
}

tx_status tx_option_set_at(tx_option_values *to, size_t offset, const char *value)
{
    return tx_option_store(to, NULL, tx_option_at(&to->table, offset), value);
}
