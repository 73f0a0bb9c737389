/* SPDX-License-Identifier: Apache-2.0
 * Configurations of others as options of TX's own: --deepspeed, --fsdp with --fsdp_config. What they set counts as
 * given; where the command line gives an option too, both must say the same, as transformers wants it.
 *
 * A format is a table of keys by their path. null and "auto" leave an option as it is. The path of an object stands for
 * all in it that is not in the table by itself. Of an object that has "enabled" nothing else counts while that is
 * false, or where it must be. A path may have several rows. What has none is refused.
 *
 *   SET(path, option)
 *       is that option of TX's
 *   WORD(path, option, words)
 *       the same, the words translated: "Theirs=ours|Theirs=ours"; "theirs=!text": refused with the text; "*": others
 *       are taken as they are
 *   POWER(path, option)
 *       the option is two to the power of it
 *   SAME(path, values, advice)
 *       the values ask for what TX does anyway; "*": all do. Others are refused with the advice
 *   TOLD(path, values, text)
 *       any value is accepted, and where it is none of these the user is told what TX does
 *   ABSENT(path, other, text)
 *       the user is told where the configuration has the other path and not this one
 *   DEFAULT(option, value)
 *       what the option is where nobody gives it */
#include "models/job/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_LIMIT (1 << 24)
#define PATH_ROOM 160

typedef enum key_kind { SET, WORD, POWER, SAME, TOLD, ABSENT, DEFAULT } key_kind;

typedef struct known_key {
    const char *path;
    key_kind kind;
    const char *to;   /* the option; of SAME and TOLD the values; of ABSENT the other path */
    const char *text; /* the words, the advice, what the user is told, or the value */
} known_key;

#define SET(path, option) {path, SET, TX_JOB_SPELL(option), NULL},
#define WORD(path, option, words) {path, WORD, TX_JOB_SPELL(option), words},
#define POWER(path, option) {path, POWER, TX_JOB_SPELL(option), NULL},
#define SAME(path, values, advice) {path, SAME, values, advice},
#define TOLD(path, values, text) {path, TOLD, values, text},
#define ABSENT(path, other, text) {path, ABSENT, other, text},
#define DEFAULT(option, value) {"", DEFAULT, TX_JOB_SPELL(option), value},
static const known_key deepspeed_rows[] = {
#include "models/job/deepspeed.def"
};
static const known_key fsdp_rows[] = {
#include "models/job/fsdp.def"
};
#undef SET
#undef WORD
#undef POWER
#undef SAME
#undef TOLD
#undef ABSENT
#undef DEFAULT
#define ROWS(list) (int)(sizeof(list) / sizeof(list)[0])
enum { MOST_ROWS = ROWS(deepspeed_rows) > ROWS(fsdp_rows) ? ROWS(deepspeed_rows) : ROWS(fsdp_rows) };

typedef struct reading {
    tx_job *job;
    const known_key *rows;
    int count;
    const char *prefix; /* that keys may begin with */
    bool seen[MOST_ROWS];
    char told[1024], refused[3072];
} reading;

/* The first row of a path. */
static const known_key *find(const reading *r, const char *path, size_t length)
{
    for (int i = 0; i < r->count; i++)
        if (length && strncmp(r->rows[i].path, path, length) == 0 && !r->rows[i].path[length])
            return &r->rows[i];
    return NULL;
}

/* The row of a path, or of the innermost object around it that has one. */
static const known_key *find_around(const reading *r, const char *path)
{
    const known_key *found = NULL;
    for (size_t length = strlen(path); length && !found; length--)
        if (!path[length] || path[length] == '.')
            found = find(r, path, length);
    return found;
}

/* Whether there are rows of what is in an object. */
static bool looks_into(const reading *r, const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < r->count; i++)
        if (strncmp(r->rows[i].path, path, length) == 0 && r->rows[i].path[length] == '.')
            return true;
    return false;
}

static void refuse(reading *r, const char *path, const char *why)
{
    tx_list_add(r->refused, sizeof r->refused, "; ", "%s: %s", path, why);
}

static void tell(reading *r, const char *path, const char *what)
{
    tx_list_add(r->told, sizeof r->told, "; ", "%s: %s", path, what);
}

/* ---- Values ------------------------------------------------------------------------------------------------- */

/* The value of an option as text, which the caller frees. */
static char *value_of(const tx_job *j, const char *option)
{
    return tx_option_text(&j->options, tx_option_find(&tx_job_table, option));
}

static void set(reading *r, const char *path, const char *name, const char *value)
{
    tx_job *j = r->job;
    char why[256];
    const tx_option *option = tx_option_find(&tx_job_table, name);
    const bool given = tx_option_asked(&j->options, option->offset);
    const int truth = option->kind == TX_OPTION_OPTIONAL ? tx_option_truth(value) : -1;
    char *before = value_of(j, name);
    if (truth != 0 && tx_option_store(&j->options, path, option, truth == 1 ? "" : value)) {
        tx_list_add(r->refused, sizeof r->refused, "; ", "%s", tx_error());
        free(before);
        return;
    }
    char *after = value_of(j, name);
    if (given && before && after && strcmp(before, after) != 0) {
        snprintf(why, sizeof why, "%.100s, but --%s has given %.100s", after, name, before);
        refuse(r, path, why);
    }
    free(before);
    free(after);
}

static void set_word(reading *r, const char *path, const known_key *row, const char *ours)
{
    if (*ours == '!')
        refuse(r, path, ours + 1);
    else
        set(r, path, row->to, ours);
}

static void translate(reading *r, const char *path, const known_key *row, const char *word)
{
    const size_t length = strlen(word);
    char ours[96], why[320];
    for (const char *at = row->text; at; at = tx_choice_next(at)) {
        const bool named = strncasecmp(at, word, length) == 0 && at[length] == '=';
        if (named)
            snprintf(ours, sizeof ours, "%.*s", (int)(tx_choice_length(at) - length - 1), at + length + 1);
        if (named || *at == '*') {
            set_word(r, path, row, named ? ours : word);
            return;
        }
    }
    snprintf(why, sizeof why, "%.60s is none of", word);
    for (const char *at = row->text; at; at = tx_choice_next(at))
        if (at[strcspn(at, "=") + 1] != '!')
            tx_list_add(why, sizeof why, at == row->text ? " " : ", ", "%.*s", (int)strcspn(at, "="), at);
    tx_list_add(why, sizeof why, ": ", "leave it out, and give --%s", row->to);
    refuse(r, path, why);
}

static void raise(reading *r, const char *path, const known_key *row, const tx_json *value)
{
    double power;
    char text[32];
    if (tx_json_as_number(value, path, 0, 127, &power)) {
        tx_list_add(r->refused, sizeof r->refused, "; ", "%s", tx_error());
        return;
    }
    snprintf(text, sizeof text, "%.17g", exp2(power));
    set(r, path, row->to, text);
}

static void apply_row(reading *r, const char *path, const known_key *row, const tx_json *value, const char *text)
{
    r->seen[row - r->rows] = true;
    switch (row->kind) {
    case SET:
        set(r, path, row->to, text);
        break;
    case WORD:
        translate(r, path, row, text);
        break;
    case POWER:
        raise(r, path, row, value);
        break;
    case SAME:
        if (!tx_option_list_has(row->to, text))
            refuse(r, path, row->text);
        break;
    case TOLD:
        if (!tx_option_list_has(row->to, text))
            tell(r, path, row->text);
        break;
    case ABSENT:
    case DEFAULT:
        break;
    }
}

static void apply(reading *r, const char *path, const tx_json *value)
{
    const known_key *first = find_around(r, path);
    const char *string = NULL;
    const bool is_string = tx_json_type_of(value) == TX_JSON_STRING && !tx_json_as_string(value, path, &string);
    if (!first) {
        refuse(r, path, "no key that TX knows");
        return;
    }
    if (tx_json_type_of(value) == TX_JSON_NULL || (is_string && strcmp(string, "auto") == 0))
        return;
    char *text = is_string ? strdup(string) : tx_json_text(value, TX_JSON_LINE);
    if (!text)
        refuse(r, path, "no memory");
    for (const known_key *row = first; text && row < r->rows + r->count; row++)
        if (strcmp(row->path, first->path) == 0)
            apply_row(r, path, row, value, text);
    free(text);
}

/* What follows from all that was there. */
static void conclude(reading *r)
{
    for (const known_key *row = r->rows; row < r->rows + r->count; row++) {
        const known_key *other = row->kind == ABSENT ? find(r, row->to, strlen(row->to)) : NULL;
        if (other && r->seen[other - r->rows] && !r->seen[row - r->rows])
            tell(r, row->path, row->text);
        if (row->kind == DEFAULT && !tx_option_asked(&r->job->options, tx_option_find(&tx_job_table, row->to)->offset))
            set_word(r, row->to, row, row->text);
    }
}

/* ---- The file ------------------------------------------------------------------------------------------------- */

static void walk(reading *r, const char *path, const tx_json *value);

/* Whether what else an object has counts, after its "enabled" was applied. */
static bool is_on(reading *r, const char *path, const tx_json *object, const known_key *enabled)
{
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i))
        if (strcmp(tx_json_key(i), "enabled") == 0)
            apply(r, path, tx_json_value(i));
    char *now = enabled->kind == SET ? value_of(r->job, enabled->to) : NULL;
    const bool on = now && strcmp(now, "false") != 0;
    free(now);
    return on;
}

static void walk_object(reading *r, const char *path, const tx_json *object)
{
    char inner[PATH_ROOM];
    snprintf(inner, sizeof inner, "%s.enabled", path);
    const known_key *enabled = find(r, inner, strlen(inner));
    if (enabled && !is_on(r, inner, object, enabled))
        return;
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        const char *key = tx_json_key(i);
        key += r->prefix && strncmp(key, r->prefix, strlen(r->prefix)) == 0 ? strlen(r->prefix) : 0;
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
        if (!enabled || strcmp(tx_json_key(i), "enabled") != 0)
            walk(r, inner, tx_json_value(i));
    }
}

static void walk(reading *r, const char *path, const tx_json *value)
{
    const tx_json_type type = tx_json_type_of(value);
    char inner[PATH_ROOM];
    snprintf(inner, sizeof inner, "%s[0]", path);
    if (type == TX_JSON_OBJECT && looks_into(r, path))
        walk_object(r, path, value);
    else if (type != TX_JSON_ARRAY || !find(r, inner, strlen(inner)))
        apply(r, path, value);
    else
        for (size_t i = 0; i < tx_json_size(value); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", path, i);
            apply(r, inner, tx_json_at(value, i));
        }
}

/* The object that an option gives, by itself or in a file. */
static tx_status open_object(const char *name, const char *value, tx_json **json)
{
    TX_TRY(*value == '{' ? tx_json_parse(value, strlen(value), name, json) : tx_json_read(value, FILE_LIMIT, json));
    if (tx_json_type_of(*json) == TX_JSON_OBJECT)
        return TX_OK;
    tx_json_free(*json);
    *json = NULL;
    return tx_fail(TX_INVALID, "%s: must hold one object, {\"key\": value, ...}", value);
}

/* Keeps for the run's beginning what is told of a configuration. */
static void keep_told(tx_job *j, const char *name, const char *told)
{
    char text[2200];
    snprintf(text, sizeof text, "%.1000s%s%s: %s", j->told ? j->told : "", j->told ? "; " : "", name, told);
    free(j->told);
    j->told = strdup(text);
}

static tx_status end(reading *r, const char *name)
{
    conclude(r);
    if (*r->told)
        keep_told(r->job, name, r->told);
    return *r->refused ? tx_fail(TX_UNSUPPORTED, "%s: %s", name, r->refused) : TX_OK;
}

static tx_status read_deepspeed(tx_job *j)
{
    const char *value = j->set.deepspeed;
    const char *name = value && *value == '{' ? "--deepspeed" : value;
    reading r = {.job = j, .rows = deepspeed_rows, .count = ROWS(deepspeed_rows)};
    tx_json *json = NULL;
    if (!value)
        return TX_OK;
    TX_TRY(open_object(name, value, &json));
    walk_object(&r, "", json);
    tx_json_free(json);
    return end(&r, name);
}

/* The words of --fsdp, "full_shard offload", as members of "fsdp". */
static void read_words(reading *r, const char *words)
{
    static const char between[] = " ,";
    tx_json *yes = tx_json_object();
    const tx_status status = tx_json_set_bool(yes, "true", true);
    for (const char *at = words + strspn(words, between); *at && !status; at += strspn(at, between)) {
        char path[PATH_ROOM];
        const size_t length = strcspn(at, between);
        snprintf(path, sizeof path, "fsdp.%.*s", (int)length, at);
        walk(r, path, tx_json_value(tx_json_first(yes)));
        at += length;
    }
    if (status)
        refuse(r, "fsdp", "no memory");
    tx_json_free(yes);
}

static tx_status read_fsdp(tx_job *j)
{
    const char *words = j->set.fsdp, *value = j->set.fsdp_config;
    const char *name = value && *value != '{' ? value : value ? "--fsdp_config" : "--fsdp";
    reading r = {.job = j, .rows = fsdp_rows, .count = ROWS(fsdp_rows), .prefix = "fsdp_"};
    tx_json *json = NULL;
    if (!words || tx_option_truth(words) == 0) {
        if (value)
            keep_told(j, "--fsdp_config", "counts with --fsdp alone");
        return TX_OK;
    }
    if (tx_option_truth(words) < 0)
        read_words(&r, words);
    if (value) {
        TX_TRY(open_object(name, value, &json));
        walk_object(&r, "", json);
        tx_json_free(json);
    }
    return end(&r, name);
}

tx_status tx_job_read_configurations(tx_job *j)
{
    free(j->told);
    j->told = NULL;
    TX_TRY(read_deepspeed(j));
    return read_fsdp(j);
}
