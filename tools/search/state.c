/* SPDX-License-Identifier: Apache-2.0
 * The state of a search. OUT/search.json has its settings, OUT/trial-N.result.json the point and the results of a
 * trial. Each file is replaced atomically, so a killed search can resume. */
#include "tools/search/txsearch.h"

#include "tx_file.h"
#include "tx_folder.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS "search.json"
#define RESULT ".result.json"
#define FILE_LIMIT (INT64_C(1) << 24)

/* ---- A trial --------------------------------------------------------------------------------------------------- */

tx_status tx_state_keep(const tx_search *s, int32_t trial)
{
    char name[TX_TRIAL_NAME];
    const tx_trial *t = &s->study.trial[trial];
    tx_json *all = tx_json_object(), *point = tx_json_array(), *rungs = tx_json_array();
    for (int32_t i = 0; i < s->study.space.count; i++)
        tx_json_append_number(point, t->point[i]);
    for (int32_t i = 0; i < t->rungs; i++)
        tx_json_append_number(rungs, t->rung[i]);
    tx_json_set(all, "point", point);
    tx_json_set_string(all, "state", tx_trial_state_word(t->state));
    if (isfinite(t->value))
        tx_json_set_number(all, "value", t->value);
    tx_json_set_int(all, "steps", t->steps);
    tx_json_set_number(all, "seconds", t->seconds);
    tx_json_set(all, "rungs", rungs);
    tx_json_set_bool(all, "stops", t->stops);
    if (t->message && tx_json_set_string(all, "message", t->message)) /* a driver's text may not be UTF-8 */
        tx_json_set_string(all, "message", "its message is not UTF-8");
    if (t->metrics)
        tx_json_set(all, "metrics", tx_json_copy(t->metrics));
    const tx_status status = tx_json_write(TX_PATH(s->folder, tx_trial_name(name, trial, RESULT)), all, TX_JSON_LINE);
    tx_json_free(all);
    return status;
}

/* Reads an array of at most `most` numbers, and their count. */
static tx_status read_numbers(const tx_json *from, const char *key, int32_t most, double *to, int32_t *count)
{
    tx_json *array;
    TX_TRY(tx_json_get(from, key, TX_JSON_ARRAY, &array));
    if (tx_json_size(array) > (size_t)most)
        return tx_fail(TX_FORMAT, "%s: has %zu values", key, tx_json_size(array));
    *count = (int32_t)tx_json_size(array);
    for (int32_t i = 0; i < *count; i++)
        TX_TRY(tx_json_as_number(tx_json_at(array, (size_t)i), key, -DBL_MAX, DBL_MAX, &to[i]));
    return TX_OK;
}

static tx_status read_point(const tx_search *s, const tx_json *from, tx_trial *t)
{
    const tx_space *space = &s->study.space;
    int32_t count;
    TX_TRY(read_numbers(from, "point", space->count, t->point, &count));
    if (count != space->count)
        return tx_fail(TX_FORMAT, "point: has %d values", count);
    for (int32_t i = 0; i < count; i++)
        if (!(t->point[i] >= space->dimension[i].low && t->point[i] <= space->dimension[i].high))
            return tx_fail(TX_FORMAT, "point: %s is out of its range", space->dimension[i].name);
    return TX_OK;
}

static tx_status read_result(const tx_json *from, tx_trial *t)
{
    const char *state, *message = NULL;
    int32_t known = 0;
    TX_TRY(tx_json_get_string(from, "state", &state));
    while (known < TX_TRIAL_COUNT && strcmp(tx_trial_state_word((tx_trial_state)known), state) != 0)
        known++;
    t->state = (tx_trial_state)known;
    if (tx_json_has(from, "value"))
        TX_TRY(tx_json_get_number(from, "value", -DBL_MAX, DBL_MAX, &t->value));
    TX_TRY(read_numbers(from, "rungs", TX_RUNGS_MOST, t->rung, &t->rungs));
    TX_TRY(tx_json_get_bool(from, "stops", &t->stops));
    const bool valued = t->state == TX_TRIAL_COMPLETE || t->state == TX_TRIAL_STOPPED;
    if (known == TX_TRIAL_COUNT || (valued && isnan(t->value)) || (t->stops && t->rungs == 0))
        return tx_fail(TX_FORMAT, "state: \"%s\" is unknown, or its value is missing", state);
    TX_TRY(tx_json_get_int(from, "steps", 0, INT64_MAX, &t->steps));
    TX_TRY(tx_json_get_number(from, "seconds", 0.0, DBL_MAX, &t->seconds));
    if (tx_json_has(from, "message"))
        TX_TRY(tx_json_get_string(from, "message", &message));
    if (message && !(t->message = strdup(message)))
        return tx_fail(TX_MEMORY, "no memory for the trials");
    if (tx_json_has(from, "metrics"))
        t->metrics = tx_json_copy(tx_json_find(from, "metrics"));
    return TX_OK;
}

static tx_status read_trial(tx_search *s, const char *path)
{
    tx_json *from = NULL;
    tx_trial *t;
    TX_TRY(tx_study_add(&s->study, &t));
    TX_TRY(tx_json_read(path, FILE_LIMIT, &from));
    tx_status status = read_point(s, from, t);
    TX_THEN(status, read_result(from, t));
    tx_json_free(from);
    return status ? tx_fail_in(status, "%s", path) : TX_OK;
}

/* ---- The settings ---------------------------------------------------------------------------------------------- */

/* Returns the settings on which the suggestions depend. They must not change when a search resumes. */
static tx_json *settings_of(const tx_search *s)
{
    const tx_study *study = &s->study;
    tx_json *all = tx_json_object();
    tx_json_set_string(all, "version", TX_VERSION);
    tx_json_set_string(all, "method", tx_method_word(study->method));
    tx_json_set_int(all, "seed", (int64_t)study->seed);
    tx_json_set_string(all, "metric", s->metric);
    tx_json_set_string(all, "direction", study->greater ? "maximize" : "minimize");
    tx_json_set_int(all, "halving", study->rung);
    tx_json_set_int(all, "reduction_factor", study->factor);
    tx_json_set_int(all, "n_startup_trials", study->start_trials);
    tx_json_set_int(all, "n_ei_candidates", study->candidates);
    tx_json_set_int(all, "grid_points", study->grid_points);
    tx_json_set(all, "search", tx_space_json(&study->space));
    tx_json_set(all, "options", tx_trial_options(s, -1, false));
    return all;
}

/* Fails if a member differs. The message names the innermost member that does. */
static tx_status compare(const char *key, const tx_json *then, const tx_json *now)
{
    char *before = then ? tx_json_text(then, TX_JSON_LINE) : strdup("missing");
    char *after = now ? tx_json_text(now, TX_JSON_LINE) : strdup("missing");
    tx_status status = before && after ? TX_OK : tx_fail(TX_MEMORY, "no memory for the settings");
    const bool differs = !status && strcmp(before, after) != 0;
    if (differs && then && now && tx_json_type_of(now) == TX_JSON_OBJECT) {
        for (void *i = tx_json_first(now); i && !status; i = tx_json_next(now, i))
            status = compare(tx_json_key(i), tx_json_find(then, tx_json_key(i)), tx_json_value(i));
        for (void *i = tx_json_first(then); i && !status; i = tx_json_next(then, i))
            status = compare(tx_json_key(i), tx_json_value(i), tx_json_find(now, tx_json_key(i)));
    }
    if (differs && !status) /* of two objects here, only the order of members differs */
        status =
            tx_fail(TX_INVALID,
                    "the folder has a search with other settings: \"%s\" was %.300s and is %.300s now; use the earlier "
                    "value, or choose another --output_dir",
                    key, before, after);
    free(before);
    free(after);
    return status;
}

static tx_status check_settings(const tx_search *s, const tx_json *then)
{
    tx_json *now = settings_of(s);
    tx_status status = TX_OK;
    for (void *i = tx_json_first(now); i && !status; i = tx_json_next(now, i))
        if (strcmp(tx_json_key(i), "version") != 0)
            status = compare(tx_json_key(i), tx_json_find(then, tx_json_key(i)), tx_json_value(i));
    tx_json_free(now);
    return status;
}

/* Fails if the folder of a new search has other files. */
static tx_status check_new(const tx_search *s)
{
    tx_names names;
    TX_TRY(tx_folder_list(s->folder, &names));
    bool other = false;
    for (size_t i = 0; i < names.count; i++)
        other = other || (names.name[i][0] != '.' && strcmp(names.name[i], SETTINGS) != 0);
    tx_names_free(&names);
    return other ? tx_fail(TX_INVALID,
                           "--output_dir %s: not empty, and has no search to resume (" SETTINGS
                           "); choose another folder",
                           s->folder)
                 : TX_OK;
}

tx_status tx_state_open(tx_search *s)
{
    char name[TX_TRIAL_NAME];
    const char *path = TX_PATH(s->folder, SETTINGS);
    tx_json *settings = NULL;
    tx_status status;
    if (tx_file_exists(path)) {
        TX_TRY(tx_json_read(path, FILE_LIMIT, &settings));
        status = check_settings(s, settings);
        if (status)
            tx_fail_in(status, "%s", path);
    } else {
        TX_TRY(check_new(s));
        settings = settings_of(s);
        status = tx_json_write(path, settings, TX_JSON_PRETTY);
    }
    tx_json_free(settings);
    for (int32_t i = 0; !status && tx_file_exists(TX_PATH(s->folder, tx_trial_name(name, i, RESULT))); i++)
        status = read_trial(s, TX_PATH(s->folder, name));
    return status;
}
