/* SPDX-License-Identifier: Apache-2.0
 * Translates configurations of DeepSpeed (--deepspeed) and FSDP (--fsdp, --fsdp_config) to options of TX. The options
 * count as given. If the command line gives an option too, both values must be the same, as with transformers.
 *
 * A format is a table of keys by their path. null and "auto" leave an option unchanged. The row of an object applies to
 * all keys in it that have no row of their own. If an object has "enabled": false, its other keys are ignored. A path
 * may have several rows. A key without a row is refused.
 *
 *   SET(path, option)
 *       The value is the value of the option.
 *
 *   WORD(path, option, words)
 *       The value is translated by "Theirs=ours|Theirs=ours". "theirs=!text" is refused with the text, "theirs=" leaves
 *       the option unchanged. "*" keeps all other values, "*=" ignores them.
 *
 *   POWER(path, option)
 *       The option is two to the power of the value.
 *
 *   SAME(path, values, advice)
 *       The values mean what TX always does; "*" is any value. Other values are refused with the advice.
 *
 *   NOTED(path, values, text)
 *       Any value is accepted. If it is none of the values, a note says what TX does.
 *
 *   ABSENT(path, other, text)
 *       A note is printed if the configuration has the path `other` but not `path`.
 *
 *   DEFAULT(option, value)
 *       The value of the option if it is not given. */
#include "api/base/number.h"
#include "models/job/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_LIMIT (1 << 24)
#define PATH_ROOM 160

typedef enum key_kind { SET, WORD, POWER, SAME, NOTED, ABSENT, DEFAULT } key_kind;

typedef struct known_key {
    const char *path;
    key_kind kind;
    const char *to;   /* the option; for SAME and NOTED the values; for ABSENT the other path */
    const char *text; /* the words, the advice, the text of the note, or the value */
} known_key;

#define SET(path, option) {path, SET, TX_JOB_SPELL(option), NULL},
#define WORD(path, option, words) {path, WORD, TX_JOB_SPELL(option), words},
#define POWER(path, option) {path, POWER, TX_JOB_SPELL(option), NULL},
#define SAME(path, values, advice) {path, SAME, values, advice},
#define NOTED(path, values, text) {path, NOTED, values, text},
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
#undef NOTED
#undef ABSENT
#undef DEFAULT
#define ROWS(list) (int)(sizeof(list) / sizeof(list)[0])
enum { MOST_ROWS = ROWS(deepspeed_rows) > ROWS(fsdp_rows) ? ROWS(deepspeed_rows) : ROWS(fsdp_rows) };

typedef struct reading {
    tx_job *job;
    const known_key *rows;
    int count;
    const char *prefix; /* optional prefix of the keys */
    bool seen[MOST_ROWS];
    char notes[1024], refused[3072];
} reading;

/* The first row of a path. */
static const known_key *find(const reading *r, const char *path, size_t length)
{
    for (int i = 0; i < r->count; i++)
        if (length && strncmp(r->rows[i].path, path, length) == 0 && !r->rows[i].path[length])
            return &r->rows[i];
    return NULL;
}

/* The row of a path, or of the innermost enclosing object that has one. */
static const known_key *find_around(const reading *r, const char *path)
{
    const known_key *found = NULL;
    for (size_t length = strlen(path); length && !found; length--)
        if (!path[length] || path[length] == '.')
            found = find(r, path, length);
    return found;
}

/* Whether the table has rows for keys of an object. */
static bool has_inner_rows(const reading *r, const char *path)
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

static void add_note(reading *r, const char *path, const char *what)
{
    tx_list_add(r->notes, sizeof r->notes, "; ", "%s: %s", path, what);
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
        snprintf(why, sizeof why, "%.100s, but --%s is %.100s", after, name, before);
        refuse(r, path, why);
    }
    free(before);
    free(after);
}

static void set_word(reading *r, const char *path, const known_key *row, const char *ours)
{
    if (*ours == '!')
        refuse(r, path, ours + 1);
    else if (*ours)
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
            set_word(r, path, row, named ? ours : at[1] == '=' ? "" : word);
            return;
        }
    }
    snprintf(why, sizeof why, "%.60s is not one of", word);
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
    tx_format(text, sizeof text, "%.17g", exp2(power));
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
    case NOTED:
        if (!tx_option_list_has(row->to, text))
            add_note(r, path, row->text);
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
        refuse(r, path, "unknown key");
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

/* Applies the ABSENT and DEFAULT rows after all keys were read. */
static void conclude(reading *r)
{
    for (const known_key *row = r->rows; row < r->rows + r->count; row++) {
        const known_key *other = row->kind == ABSENT ? find(r, row->to, strlen(row->to)) : NULL;
        if (other && r->seen[other - r->rows] && !r->seen[row - r->rows])
            add_note(r, row->path, row->text);
        if (row->kind == DEFAULT && !tx_option_asked(&r->job->options, tx_option_find(&tx_job_table, row->to)->offset))
            set_word(r, row->to, row, row->text);
    }
}

/* ---- The file ------------------------------------------------------------------------------------------------- */

static void walk(reading *r, const char *path, const tx_json *value);

/* Applies the key "enabled" of an object. Returns whether its other keys count. */
static bool is_on(reading *r, const char *path, const tx_json *object, const known_key *enabled)
{
    bool on = false;
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i))
        if (strcmp(tx_json_key(i), "enabled") == 0) {
            apply(r, path, tx_json_value(i));
            on = enabled->kind == WORD && !tx_json_as_bool(tx_json_value(i), path, &on) && on;
        }
    if (enabled->kind != SET)
        return on;
    char *now = value_of(r->job, enabled->to);
    on = now && strcmp(now, "false") != 0;
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
    if (type == TX_JSON_OBJECT && has_inner_rows(r, path))
        walk_object(r, path, value);
    else if (type != TX_JSON_ARRAY || !find(r, inner, strlen(inner)))
        apply(r, path, value);
    else
        for (size_t i = 0; i < tx_json_size(value); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", path, i);
            apply(r, inner, tx_json_at(value, i));
        }
}

/* Reads the object in an option's value, or in the file that the value names. */
static tx_status open_object(const char *name, const char *value, tx_json **json)
{
    TX_TRY(*value == '{' ? tx_json_parse(value, strlen(value), name, json) : tx_json_read(value, FILE_LIMIT, json));
    if (tx_json_type_of(*json) == TX_JSON_OBJECT)
        return TX_OK;
    tx_json_free(*json);
    *json = NULL;
    return tx_fail(TX_INVALID, "%s: must hold one object, {\"key\": value, ...}", value);
}

/* Keeps notes on a configuration for the start of the run. */
static void keep_notes(tx_job *j, const char *name, const char *notes)
{
    char text[2200];
    snprintf(text, sizeof text, "%.1000s%s%s: %s", j->notes ? j->notes : "", j->notes ? "; " : "", name, notes);
    free(j->notes);
    j->notes = strdup(text);
}

static tx_status end(reading *r, const char *name)
{
    conclude(r);
    if (*r->notes)
        keep_notes(r->job, name, r->notes);
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

/* Reads the words of --fsdp, for example "full_shard offload", as members of "fsdp". */
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
            keep_notes(j, "--fsdp_config", "has no effect without --fsdp");
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

/* Translates the options of accelerate's files. */
static tx_status read_accelerate(tx_job *j)
{
    reading r = {.job = j};
    const tx_job_settings *s = &j->set;
    if (s->mixed_precision)
        set(&r, TX_JOB_SPELL(mixed_precision),
            s->mixed_precision == TX_JOB_MIXED_BF16 ? TX_JOB_SPELL(bf16) : TX_JOB_SPELL(fp16), "true");
    if (s->distributed_type == TX_JOB_DISTRIBUTED_FSDP && !s->fsdp)
        set(&r, TX_JOB_SPELL(distributed_type), TX_JOB_SPELL(fsdp), "true");
    if (s->distributed_type == TX_JOB_DISTRIBUTED_DEEPSPEED && !s->deepspeed)
        refuse(&r, TX_JOB_SPELL(distributed_type), "give DeepSpeed's file as --deepspeed, or use --zero_stage");
    return *r.refused ? tx_fail(TX_UNSUPPORTED, "%s", r.refused) : TX_OK;
}

tx_status tx_job_read_configurations(tx_job *j)
{
    free(j->notes);
    j->notes = NULL;
    TX_TRY(read_accelerate(j));
    TX_TRY(read_deepspeed(j));
    return read_fsdp(j);
}
