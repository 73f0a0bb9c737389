/* SPDX-License-Identifier: Apache-2.0
 * --deepspeed FILE: a configuration of DeepSpeed as options of TX's own. What the file sets counts as given; where the
 * command line gives an option too, both must say the same, as transformers wants it. */
#include "api/base/message.h"
#include "models/job/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (1 << 24)
#define PATH_ROOM 160

typedef enum key_kind { SET, WORD, POWER, SAME, TOLD } key_kind;

typedef struct known_key {
    const char *path;
    key_kind kind;
    const char *to;   /* the option; of SAME the values */
    const char *text; /* the words, the advice, or what the user is told */
} known_key;

#define SET(path, option) {path, SET, option, NULL},
#define WORD(path, option, words) {path, WORD, option, words},
#define POWER(path, option) {path, POWER, option, NULL},
#define SAME(path, values, advice) {path, SAME, values, advice},
#define TOLD(path, text) {path, TOLD, NULL, text},
static const known_key rows[] = {
#include "models/job/deepspeed.def"
};
#undef SET
#undef WORD
#undef POWER
#undef SAME
#undef TOLD
enum { ROWS = sizeof rows / sizeof rows[0] };

typedef struct reading {
    tx_job *job;
    const char *file;
    bool warms_up, linearly; /* there is a schedule of DeepSpeed's, and it says how it warms up */
    char told[1024], refused[3072];
} reading;

static const known_key *find(const char *path, size_t length)
{
    for (int i = 0; i < ROWS; i++)
        if (strncmp(rows[i].path, path, length) == 0 && !rows[i].path[length])
            return &rows[i];
    return NULL;
}

/* The row of a path, or of the innermost object around it that has one. */
static const known_key *find_around(const char *path)
{
    const known_key *found = NULL;
    for (size_t length = strlen(path); length && !found; length--)
        if (!path[length] || path[length] == '.')
            found = find(path, length);
    return found;
}

/* Whether there are rows of what is in an object. */
static bool looks_into(const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; i < ROWS; i++)
        if (strncmp(rows[i].path, path, length) == 0 && rows[i].path[length] == '.')
            return true;
    return false;
}

static void refuse(reading *r, const char *path, const char *why)
{
    tx_list_add(r->refused, sizeof r->refused, "; ", "%s: %s", path, why);
}

/* ---- Values ------------------------------------------------------------------------------------------------- */

/* The value of an option as text, which the caller frees. */
static char *value_of(const tx_job *j, const char *option)
{
    tx_json *json = tx_job_arguments(&j->set, (const char *const[]){option, NULL});
    void *member = json ? tx_json_first(json) : NULL;
    char *text = member ? tx_json_text(tx_json_value(member), TX_JSON_LINE) : NULL;
    tx_json_free(json);
    return text;
}

static void set(reading *r, const char *path, const char *option, const tx_json *value)
{
    tx_job *j = r->job;
    char place[PATH_ROOM], why[256];
    const bool given = tx_option_given(&j->options, tx_option_find(&tx_job_table, option)->offset);
    char *before = value_of(j, option);
    snprintf(place, sizeof place, "%s", path);
    if (tx_option_read_member(&j->options, place, option, value)) {
        tx_list_add(r->refused, sizeof r->refused, "; ", "%s", tx_error());
        free(before);
        return;
    }
    char *after = value_of(j, option);
    if (given && before && after && strcmp(before, after) != 0) {
        snprintf(why, sizeof why, "%.100s, but --%s has given %.100s", after, option, before);
        refuse(r, path, why);
    }
    free(before);
    free(after);
}

/* A value that is made here, as a member of an object that holds it alone. */
static void set_made(reading *r, const char *path, const char *option, tx_json *holder)
{
    void *member = holder ? tx_json_first(holder) : NULL;
    if (member)
        set(r, path, option, tx_json_value(member));
    else
        refuse(r, path, "no memory");
    tx_json_free(holder);
}

static void translate(reading *r, const char *path, const known_key *row, const char *word)
{
    const size_t length = strlen(word);
    char ours[64], why[256];
    for (const char *at = row->text; at; at = at[tx_choice_length(at)] ? at + tx_choice_length(at) + 1 : NULL) {
        if (strncmp(at, word, length) != 0 || at[length] != '=')
            continue;
        snprintf(ours, sizeof ours, "%.*s", (int)(tx_choice_length(at) - length - 1), at + length + 1);
        tx_json *holder = tx_json_object();
        tx_json_set_string(holder, row->to, ours);
        set_made(r, path, row->to, holder);
        return;
    }
    snprintf(why, sizeof why, "%.60s is none of", word);
    for (const char *at = row->text; at; at = at[tx_choice_length(at)] ? at + tx_choice_length(at) + 1 : NULL)
        tx_list_add(why, sizeof why, at == row->text ? " " : ", ", "%.*s", (int)strcspn(at, "="), at);
    tx_list_add(why, sizeof why, ": ", "leave it out, and give --%s", row->to);
    refuse(r, path, why);
}

static void raise(reading *r, const char *path, const known_key *row, const tx_json *value)
{
    double power;
    if (tx_json_as_number(value, path, 0, 127, &power)) {
        tx_list_add(r->refused, sizeof r->refused, "; ", "%s", tx_error());
        return;
    }
    tx_json *holder = tx_json_object();
    tx_json_set_number(holder, row->to, exp2(power));
    set_made(r, path, row->to, holder);
}

static void apply(reading *r, const char *path, const tx_json *value)
{
    const known_key *row = find_around(path);
    const char *string = NULL;
    const bool is_string = tx_json_type_of(value) == TX_JSON_STRING && !tx_json_as_string(value, path, &string);
    if (!row) {
        refuse(r, path, "no key that TX knows");
        return;
    }
    if (tx_json_type_of(value) == TX_JSON_NULL || (is_string && strcmp(string, "auto") == 0))
        return;
    r->linearly = r->linearly || strcmp(path, "scheduler.params.warmup_type") == 0;
    r->warms_up = r->warms_up || strcmp(path, "scheduler.type") == 0;
    char *text = is_string ? strdup(string) : tx_json_text(value, TX_JSON_LINE);
    if (!text)
        refuse(r, path, "no memory");
    else if (row->kind == SET)
        set(r, path, row->to, value);
    else if (row->kind == WORD)
        translate(r, path, row, text);
    else if (row->kind == POWER)
        raise(r, path, row, value);
    else if (row->kind == TOLD)
        tx_list_add(r->told, sizeof r->told, "; ", "%s: %s", path, row->text);
    else if (!tx_option_asks_for(row->to, text))
        refuse(r, path, row->text);
    free(text);
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
    const known_key *enabled = find(inner, strlen(inner));
    if (enabled && !is_on(r, inner, object, enabled))
        return;
    for (void *i = tx_json_first(object); i; i = tx_json_next(object, i)) {
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", tx_json_key(i));
        if (!enabled || strcmp(tx_json_key(i), "enabled") != 0)
            walk(r, inner, tx_json_value(i));
    }
}

static void walk(reading *r, const char *path, const tx_json *value)
{
    const tx_json_type type = tx_json_type_of(value);
    char inner[PATH_ROOM];
    snprintf(inner, sizeof inner, "%s[0]", path);
    if (type == TX_JSON_OBJECT && looks_into(path))
        walk_object(r, path, value);
    else if (type != TX_JSON_ARRAY || !find(inner, strlen(inner)))
        apply(r, path, value);
    else
        for (size_t i = 0; i < tx_json_size(value); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", path, i);
            apply(r, inner, tx_json_at(value, i));
        }
}

tx_status tx_job_read_deepspeed(tx_job *j)
{
    reading r = {.job = j, .file = j->set.deepspeed};
    tx_json *json = NULL;
    if (!r.file)
        return TX_OK;
    TX_TRY(tx_json_read(r.file, FILE_LIMIT, &json));
    if (tx_json_type_of(json) == TX_JSON_OBJECT)
        walk_object(&r, "", json);
    else
        refuse(&r, "it", "must hold one object, {\"zero_optimization\": {...}, ...}");
    tx_json_free(json);
    if (r.warms_up && !r.linearly)
        tx_list_add(r.told, sizeof r.told, "; ", "scheduler: the rate rises linearly, in DeepSpeed by the logarithm");
    free(j->told);
    j->told = *r.told ? strdup(r.told) : NULL;
    return *r.refused ? tx_fail(TX_UNSUPPORTED, "%s: %s", r.file, r.refused) : TX_OK;
}
