/* SPDX-License-Identifier: Apache-2.0
 *
 * Options: the named values of a struct, described by one table. A command line, a JSON file and a program that links
 * the library set them by the same rules. Names are spelled with underscores, as transformers spells them; - is taken
 * for _. */
#ifndef TX_MODELS_OPTION_H
#define TX_MODELS_OPTION_H

#include "api/base/json.h"
#include "tx.h"

typedef enum tx_option_kind {
    TX_OPTION_HEADING,  /* a line of the help */
    TX_OPTION_FLAG,     /* bool */
    TX_OPTION_INTEGER,  /* int64_t */
    TX_OPTION_REAL,     /* double */
    TX_OPTION_TEXT,     /* const char *, NULL when not given */
    TX_OPTION_OPTIONAL, /* const char *, NULL when not given, "" when given without a value */
    TX_OPTION_CHOICE,   /* int32_t, place in `choices` */
    TX_OPTION_LIST,     /* uint32_t, a bit for each place in `choices`; values separated by commas */
    TX_OPTION_WORDS,    /* tx_words: may be given several times */
    TX_OPTION_FOREIGN   /* none: an option of others that TX does not have */
} tx_option_kind;

/* Texts in the order given. */
typedef struct tx_words {
    const char *const *word;
    int32_t count;
} tx_words;

typedef struct tx_option {
    tx_option_kind kind;
    const char *name;
    size_t offset; /* of the value in the struct that holds all of them */
    /* Of an INTEGER or REAL, both included. `most` of WORDS: how many a command line may give at once; 0: one. */
    double least, most;
    /* "linear|cosine|constant"; for the others the word for the value. Of a FOREIGN one the values that ask for what TX
     * does anyway, which are accepted: "false|0"; "*": any; "{}": an object, each member of which is taken for an
     * option; NULL: none. The shell completes files where that holds FILE, folders where it holds DIR, and the words of
     * it that are in lower case: "cpu|opencl|opencl:N". In a file of options a value that may be JSON can
     * be an object, and an OPTIONAL one an array of words; an empty one is none. */
    const char *choices;
    const char *help; /* of a FOREIGN one what to use, or what TX does */
} tx_option;

/* Another way to spell an option. A name with two dashes, "--lr", also holds in a file of options; "-n" does not. */
typedef struct tx_option_spelling {
    const char *spelled, *name;
} tx_option_spelling;

typedef struct tx_option_table {
    const tx_option *option;
    int32_t count; /* at most TX_OPTIONS_MOST */
    const tx_option_spelling *spelling;
    int32_t spelling_count;
    const uint32_t *traits; /* of each option: bits of the table's own, lists that it belongs to; may be NULL */
} tx_option_table;

static inline uint32_t tx_option_traits(const tx_option_table *table, const tx_option *option)
{
    return table->traits ? table->traits[option - table->option] : 0;
}

#define TX_OPTIONS_MOST 320
#define TX_OPTION_LIST_TEXT 4096 /* room for a list */

/* How an option came by its value. A file of options repeats many defaults, which nobody asked for. */
typedef enum tx_option_source {
    TX_OPTION_UNSET,
    TX_OPTION_REPEATED, /* a file gave the default */
    TX_OPTION_FROM_FILE,
    TX_OPTION_SET
} tx_option_source;

/* A table's struct, which begins with its defaults, and what is known of its values. */
typedef struct tx_option_values {
    tx_option_table table;
    void *values;
    uint8_t source[TX_OPTIONS_MOST]; /* a tx_option_source for each option */
    struct tx_option_kept *kept;     /* memory of the values */
} tx_option_values;

/* A mark for each option of a table. */
typedef struct tx_option_marks {
    bool mark[TX_OPTIONS_MOST];
} tx_option_marks;

/* Whether it is one of TX's, with a value in the struct. */
static inline bool tx_option_has_value(const tx_option *option)
{
    return option->kind != TX_OPTION_HEADING && option->kind != TX_OPTION_FOREIGN;
}

/* Whether it takes several values, with commas between them: a LIST, or a TEXT of "NAME,...". A command line and a file
 * may also give them one by one, as transformers' HfArgumentParser takes a list. */
bool tx_option_is_list(const tx_option *option);

/* The option whose value is at an offset in the struct; never NULL for the offset of a member that an option sets. */
const tx_option *tx_option_at(const tx_option_table *table, size_t offset);
/* Frees what the values point to. */
void tx_option_values_free(tx_option_values *values);
/* Whether the option with its value at that offset was set. */
bool tx_option_given(const tx_option_values *values, size_t offset);
/* Where its value is from. */
tx_option_source tx_option_from(const tx_option_values *values, size_t offset);
/* Whether it was set, except if a file only repeats the default. */
bool tx_option_asked(const tx_option_values *values, size_t offset);

/* Sets an option by its name to what the text says; the text is copied. TX_INVALID: there
 * is none of that name (the nearest is told), or the value is none of its values; TX_UNSUPPORTED: an option of others,
 * with a value that TX has nothing for. */
tx_status tx_option_set(tx_option_values *to, const char *name, const char *value);
/* The same for the option whose value is at an offset. */
tx_status tx_option_set_at(tx_option_values *to, size_t offset, const char *value);
/* Sets all options of a JSON file, {"learning_rate": 5e-5, ...}, as transformers' HfArgumentParser reads it; null
 * leaves an option as it is. */
tx_status tx_option_read(tx_option_values *to, const char *path);
/* The same for options that were not given, and are not given by this. Those marked in `left_out` stay as they are. */
tx_status tx_option_inherit(tx_option_values *to, const char *path, const tx_option_marks *left_out);
/* Options with their values, as a file of options holds them: those that have one of the traits `with` (0: all of them)
 * and none of the traits `without`. NULL if out of memory. */
tx_json *tx_option_json(const tx_option_values *from, uint32_t with, uint32_t without);
/* The same of all that have been set, other than by defaults. */
tx_json *tx_option_json_given(const tx_option_values *from);
/* One value as JSON, which the caller frees; NULL when out of memory. */
char *tx_option_text(const tx_option_values *from, const tx_option *option);

/* ---- Parts, for who reads a command line or a file ----------------------------------------------------- */

/* The option of that name or spelling, which a value after = may follow. NULL if there is none. */
const tx_option *tx_option_find(const tx_option_table *table, const char *name);
/* `file`: where the value stands, for messages; NULL: nowhere but on a command line. The value is copied. */
tx_status tx_option_store(tx_option_values *to, const char *file, const tx_option *option, const char *value);
/* Fails, naming the nearest option. */
tx_status tx_option_unknown(const tx_option_table *table, const char *file, const char *name);
/* Appends a word to those at `at` in the values. */
tx_status tx_option_add_word(tx_option_values *to, const char *word, size_t at);
/* 1 and 0 for the words that transformers takes for true and false, -1 for others. */
int tx_option_truth(const char *word);
/* Whether a value asks for the same as one of "false|0"; "*": any does; NULL: none. */
bool tx_option_asks_for(const char *choices, const char *value);
/* Length of the first of "linear|cosine"; the others after it, or NULL; the place of a word among them in upper or
 * lower case, or -1. */
size_t tx_choice_length(const char *choices);
const char *tx_choice_next(const char *choices);
int tx_choice_find(const char *choices, const char *word, size_t length);
/* Makes `candidate` the nearest to `name` where it is nearer than `least`. */
void tx_name_compare(const char *name, const char *candidate, size_t *least, const char **nearest);

#endif
