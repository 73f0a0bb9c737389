/* SPDX-License-Identifier: Apache-2.0
 *
 * Options: the named values of a struct, described by one table. A command line, a JSON file and a program that links
 * the library set them by the same rules. Names are spelled with underscores, as in transformers; "-" is accepted for
 * "_". tx_job_options returns the table of a training run. A program may define its own table for its command line. */
#ifndef TX_OPTIONS_H
#define TX_OPTIONS_H

#include "tx.h"
#include "tx_json.h"

TX_API_BEGIN

/* ---- The table ---------------------------------------------------------------------------------------- */

typedef enum tx_option_kind {
    TX_OPTION_HEADING,  /* a heading in the help */
    TX_OPTION_FLAG,     /* bool */
    TX_OPTION_INTEGER,  /* int64_t */
    TX_OPTION_REAL,     /* double */
    TX_OPTION_TEXT,     /* const char *, NULL if not given */
    TX_OPTION_OPTIONAL, /* const char *, NULL if not given, "" if given without a value */
    TX_OPTION_CHOICE,   /* int32_t, index in `choices` */
    TX_OPTION_LIST,     /* uint32_t, a bit for each index in `choices`; values separated by commas */
    TX_OPTION_WORDS,    /* tx_words: may be given several times */
    TX_OPTION_FOREIGN   /* no value: an option of other programs that TX does not have */
} tx_option_kind;

/* Texts in the order given. */
typedef struct tx_words {
    const char *const *word;
    int32_t count;
} tx_words;

typedef struct tx_option {
    tx_option_kind kind;
    const char *name;
    size_t offset; /* of the value in the struct */
    /* Bounds of an INTEGER or REAL, both included. For WORDS, `most` is the largest number of values after one mention
     * of the option, at least one. */
    double least, most;
    /* For a CHOICE or LIST its values, "linear|cosine|constant"; words for false also mean "no" or "none". For a
     * FLAG one more word for true, or NULL. For a FOREIGN option the values that are accepted because TX does that
     * anyway, "false|0": "*" accepts any, but counts as given after other words, "{}" accepts an object whose
     * members are options, NULL accepts none. For other kinds the name of the value in the help. Shell completion
     * offers files if this text has FILE, folders if it has DIR, and its words in lower case
     * ("cpu|opencl|opencl:N"). If it has JSON, a file of options may hold an object. An OPTIONAL option may be an
     * array of words there; an empty array unsets it. */
    const char *choices;
    const char *help; /* for a FOREIGN option, the advice in its error message */
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
    const uint32_t *traits; /* bits for each option whose meaning the owner of the table defines; may be NULL */
} tx_option_table;

/* Returns true if the struct has a value for the option, which HEADING and FOREIGN options do not have. */
bool tx_option_has_value(const tx_option *option);
/* Returns true if the option takes several values, separated by commas: a LIST, or a TEXT of "NAME,...". A command line
 * and a file may also list them one by one, as transformers' HfArgumentParser accepts a list. */
bool tx_option_is_list(const tx_option *option);
/* Finds an option by its name or spelling. A "=value" after the name is ignored. NULL if there is none. */
const tx_option *tx_option_find(const tx_option_table *table, const char *name);
/* Finds a FOREIGN option of a program other than txtrain, whose table has its own. NULL if there is none. */
const tx_option *tx_option_foreign(const char *program, const char *name);

/* ---- Values ------------------------------------------------------------------------------------------- */

#define TX_OPTIONS_MOST 640
#define TX_OPTION_LIST_TEXT 4096 /* buffer size for the text of a list */

/* The origin of an option's value. A file of options repeats many defaults, which the user did not choose. */
typedef enum tx_option_source {
    TX_OPTION_UNSET,
    TX_OPTION_REPEATED, /* a file gave the default */
    TX_OPTION_FROM_FILE,
    TX_OPTION_SET
} tx_option_source;

/* The struct of a table, which starts with its defaults, and the origin of its values. Programs may read `table`. The
 * other members are internal. */
typedef struct tx_option_values {
    tx_option_table table;
    void *values;
    uint8_t source[TX_OPTIONS_MOST]; /* a tx_option_source for each option */
    struct tx_option_kept *kept;     /* memory of the values */
} tx_option_values;

/* Frees the memory that the values point to. */
void tx_option_values_free(tx_option_values *values); /* NULL is fine */

/* Returns true if the option whose value is at that offset was set. */
bool tx_option_given(const tx_option_values *values, size_t offset);
/* The same, except that a default repeated by a file does not count. */
bool tx_option_asked(const tx_option_values *values, size_t offset);

/* Sets an option by name. The text of the value is copied. TX_INVALID if no option has that name (the message suggests
 * the nearest one), or if the option does not accept the value. TX_UNSUPPORTED for a value that a FOREIGN option does
 * not accept. */
tx_status tx_option_set(tx_option_values *to, const char *name, const char *value);
/* The same for an option of the table. Messages start with `file`; pass NULL for a command line. */
tx_status tx_option_store(tx_option_values *to, const char *file, const tx_option *option, const char *value);
/* Whether a path has the ending of a file of options: .json, .yaml or .yml. */
bool tx_option_is_file(const char *path);
/* Reads a file of options as it is, without setting any. ${NAME} in a YAML value becomes the value of that environment
 * variable. The caller frees `*json`. */
tx_status tx_option_file(const char *path, tx_json **json);
/* Sets all options of a JSON or YAML file, {"learning_rate": 5e-5, ...}, as transformers' HfArgumentParser reads it;
 * null leaves an option as it is. */
tx_status tx_option_read(tx_option_values *to, const char *path);
/* Appends a word to the tx_words at offset `at` of the struct. */
tx_status tx_option_add_word(tx_option_values *to, const char *word, size_t at);

/* All options that were set, without defaults, in the format of a file of options. The caller frees it. NULL if out of
 * memory. */
tx_json *tx_option_json_given(const tx_option_values *from);
/* One value as JSON, which the caller frees; NULL when out of memory. */
char *tx_option_text(const tx_option_values *from, const tx_option *option);

/* Values by name: of a FLAG, and of an INTEGER or REAL. For an option of another kind, or an unknown name, they return
 * false and NaN. */
bool tx_option_flag(const tx_option_values *from, const char *name);
double tx_option_number(const tx_option_values *from, const char *name);

/* ---- Words -------------------------------------------------------------------------------------------- */

/* Fails with TX_INVALID and the name of the nearest option. `file` as in tx_option_store. */
tx_status tx_option_unknown(const tx_option_table *table, const char *file, const char *name);
/* Sets `*nearest` to `candidate` if its edit distance to `name` is less than `*least`. */
void tx_name_compare(const char *name, const char *candidate, size_t *least, const char **nearest);
/* Returns 1 or 0 for the words that transformers accepts as true or false, -1 for others. */
int tx_option_truth(const char *word);
/* Length of the first word of "linear|cosine". */
size_t tx_choice_length(const char *choices);
/* The words after the first one, or NULL. */
const char *tx_choice_next(const char *choices);
/* Reads a positive number of bytes: "8GiB", "1.5 GB" or "65536". Units are KiB to TiB in steps of 1024 and KB to TB in
 * steps of 1000, in any case. TX_INVALID for any other text, which the message quotes. */
tx_status tx_read_bytes(const char *text, int64_t *bytes);

TX_API_END

#endif
