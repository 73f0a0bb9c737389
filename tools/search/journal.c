/* SPDX-License-Identifier: Apache-2.0
 * The journal of a search: what happened, a line of JSON an event. */
#include "tools/search/txsearch.h"

#include "api/base/file.h"
#include "models/files/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL_LIMIT (INT64_C(1) << 30)

/* ---- Writing --------------------------------------------------------------------------------------------------- */

/* Takes the event over. A line is written by one call, so that at most the last one can be torn. */
static tx_status append(tx_search *s, tx_json *event)
{
    const char *path = TX_PATH(s->folder, TX_SEARCH_JOURNAL);
    char *text = tx_json_text(event, TX_JSON_LINE);
    tx_status status = text ? TX_OK : TX_MEMORY;
    tx_json_free(event);
    if (!status) {
        const size_t length = strlen(text);
        text[length] = '\n'; /* in place of the NUL: the length is known */
        errno = 0;
        if (write(s->journal, text, length + 1) != (ssize_t)(length + 1) || fdatasync(s->journal) != 0)
            status = tx_file_fail(path, "write");
    }
    free(text);
    return status;
}

static tx_json *event_of(const char *what, int32_t trial)
{
    tx_json *event = tx_json_object();
    tx_json_set_string(event, "event", what);
    tx_json_set_int(event, "trial", trial);
    return event;
}

tx_status tx_journal_start(tx_search *s, int32_t trial, bool resumes)
{
    const tx_trial *t = &s->study.trial[trial];
    tx_json *event = event_of("start", trial), *point = tx_json_array();
    tx_json_set_int(event, "attempt", t->attempts);
    tx_json_set_bool(event, "resumes", resumes);
    for (int32_t i = 0; i < s->study.space.count; i++)
        tx_json_append_number(point, t->point[i]);
    tx_json_set(event, "point", point);
    tx_json_set(event, "options", tx_trial_options(s, trial, false));
    return append(s, event);
}

tx_status tx_journal_rung(tx_search *s, int32_t trial, int64_t step, bool goes_on)
{
    const tx_trial *t = &s->study.trial[trial];
    tx_json *event = event_of("rung", trial);
    tx_json_set_int(event, "rung", t->rungs - 1);
    tx_json_set_int(event, "step", step);
    tx_json_set_number(event, "value", t->rung[t->rungs - 1]);
    tx_json_set_bool(event, "goes_on", goes_on);
    return append(s, event);
}

tx_status tx_journal_end(tx_search *s, int32_t trial)
{
    const tx_trial *t = &s->study.trial[trial];
    tx_json *event = event_of("end", trial);
    tx_json_set_string(event, "state", tx_trial_state_word(t->state));
    if (isfinite(t->value))
        tx_json_set_number(event, "value", t->value);
    tx_json_set_int(event, "steps", t->steps);
    tx_json_set_number(event, "seconds", t->seconds);
    if (t->message && tx_json_set_string(event, "message", t->message)) /* a driver's text need not be UTF-8 */
        tx_json_set_string(event, "message", "its message is no UTF-8");
    if (t->metrics)
        tx_json_set(event, "metrics", tx_json_copy(t->metrics));
    return append(s, event);
}

/* What the suggestions follow from: it cannot change on the way. */
static tx_json *head_of(const tx_search *s)
{
    const tx_study *study = &s->study;
    tx_json *head = tx_json_object();
    tx_json_set_string(head, "event", "search");
    tx_json_set_string(head, "version", TX_VERSION);
    tx_json_set_string(head, "method", tx_method_word(study->method));
    tx_json_set_int(head, "seed", (int64_t)study->seed);
    tx_json_set_string(head, "metric", s->metric);
    tx_json_set_string(head, "direction", study->greater ? "maximize" : "minimize");
    tx_json_set_int(head, "halving", study->rung);
    tx_json_set_int(head, "reduction_factor", study->factor);
    tx_json_set_int(head, "n_startup_trials", study->start_trials);
    tx_json_set_int(head, "n_ei_candidates", study->candidates);
    tx_json_set_int(head, "grid_points", study->grid_points);
    tx_json_set(head, "search", tx_space_json(&study->space));
    tx_json_set(head, "options", tx_trial_options(s, -1, false));
    return head;
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

/* Refuses a member that differs; of objects the first member of theirs that does. */
static tx_status compare(const char *key, const tx_json *then, const tx_json *now)
{
    char *before = then ? tx_json_text(then, TX_JSON_LINE) : strdup("missing");
    char *after = now ? tx_json_text(now, TX_JSON_LINE) : strdup("missing");
    tx_status status = before && after ? TX_OK : tx_fail(TX_MEMORY, "no memory for the journal");
    const bool differs = !status && strcmp(before, after) != 0;
    if (differs && then && now && tx_json_type_of(now) == TX_JSON_OBJECT) {
        for (void *i = tx_json_first(now); i && !status; i = tx_json_next(now, i))
            status = compare(tx_json_key(i), tx_json_find(then, tx_json_key(i)), tx_json_value(i));
        for (void *i = tx_json_first(then); i && !status; i = tx_json_next(then, i))
            status = compare(tx_json_key(i), tx_json_value(i), tx_json_find(now, tx_json_key(i)));
    }
    if (differs && !status) /* of objects the order alone */
        status =
            tx_fail(TX_INVALID,
                    "it is of another search: \"%s\" was %.300s and is %.300s now; give what it was begun with, or "
                    "choose another --output_dir",
                    key, before, after);
    free(before);
    free(after);
    return status;
}

static tx_status agree(const tx_search *s, const tx_json *then)
{
    tx_json *now = head_of(s);
    tx_status status = TX_OK;
    for (void *i = tx_json_first(now); i && !status; i = tx_json_next(now, i))
        if (strcmp(tx_json_key(i), "version") != 0)
            status = compare(tx_json_key(i), tx_json_find(then, tx_json_key(i)), tx_json_value(i));
    tx_json_free(now);
    return status;
}

static tx_status read_start(tx_search *s, const tx_json *event, int32_t number)
{
    tx_study *study = &s->study;
    tx_json *point;
    tx_trial *t;
    TX_TRY(tx_json_get(event, "point", TX_JSON_ARRAY, &point));
    if (number == study->count)
        TX_TRY(tx_study_add(study, &t));
    t = &study->trial[number];
    t->attempts++;
    if (tx_json_size(point) != (size_t)study->space.count)
        return tx_fail(TX_FORMAT, "point: has %zu values", tx_json_size(point));
    for (int32_t i = 0; i < study->space.count; i++) {
        const tx_dimension *d = &study->space.dimension[i];
        TX_TRY(tx_json_as_number(tx_json_at(point, (size_t)i), d->name, d->low, d->high, &t->point[i]));
    }
    return TX_OK;
}

static tx_status read_rung(const tx_json *event, tx_trial *t)
{
    bool goes_on;
    if (t->rungs == TX_RUNGS_MOST)
        return tx_fail(TX_FORMAT, "too many rungs");
    TX_TRY(tx_json_get_number(event, "value", -DBL_MAX, DBL_MAX, &t->rung[t->rungs]));
    TX_TRY(tx_json_get_bool(event, "goes_on", &goes_on));
    t->rungs++;
    t->stops = !goes_on;
    return TX_OK;
}

static tx_status read_end(const tx_json *event, tx_trial *t)
{
    const char *state, *message = NULL;
    TX_TRY(tx_json_get_string(event, "state", &state));
    for (int32_t i = 0; i < TX_TRIAL_COUNT; i++)
        if (strcmp(tx_trial_state_word((tx_trial_state)i), state) == 0)
            t->state = (tx_trial_state)i;
    t->value = (double)NAN;
    if (tx_json_has(event, "value"))
        TX_TRY(tx_json_get_number(event, "value", -DBL_MAX, DBL_MAX, &t->value));
    if (t->state == TX_TRIAL_RUNNING || (t->state != TX_TRIAL_FAILED && isnan(t->value)))
        return tx_fail(TX_FORMAT, "state: \"%s\" is none, or lacks its value", state);
    TX_TRY(tx_json_get_int(event, "steps", 0, INT64_MAX, &t->steps));
    TX_TRY(tx_json_get_number(event, "seconds", 0.0, DBL_MAX, &t->seconds));
    if (tx_json_has(event, "message"))
        TX_TRY(tx_json_get_string(event, "message", &message));
    if (message && t->state == TX_TRIAL_FAILED && tx_trial_lacks_disk(message)) {
        t->state = TX_TRIAL_RUNNING; /* the trial is run again */
        return TX_OK;
    }
    if (message && !(t->message = strdup(message)))
        return tx_fail(TX_MEMORY, "no memory for the journal");
    if (tx_json_has(event, "metrics"))
        t->metrics = tx_json_copy(tx_json_find(event, "metrics"));
    return TX_OK;
}

static tx_status read_event(tx_search *s, const tx_json *event, bool first)
{
    const char *what = "";
    int64_t number;
    TX_TRY(tx_json_get_string(event, "event", &what));
    if (first)
        return strcmp(what, "search") == 0 ? agree(s, event)
                                           : tx_fail(TX_FORMAT, "does not begin as the journal of a search");
    const bool start = strcmp(what, "start") == 0;
    TX_TRY(tx_json_get_int(event, "trial", 0, s->study.count - (start ? 0 : 1), &number));
    if (number < s->study.count && s->study.trial[number].state != TX_TRIAL_RUNNING)
        return tx_fail(TX_FORMAT, "trial %" PRId64 " was at an end already", number);
    if (start)
        return read_start(s, event, (int32_t)number);
    tx_trial *t = &s->study.trial[number];
    if (strcmp(what, "rung") == 0)
        return read_rung(event, t);
    return strcmp(what, "end") == 0 ? read_end(event, t) : tx_fail(TX_FORMAT, "\"%s\" is no event", what);
}

/* Reads the whole lines; `*whole` bytes. */
static tx_status read_events(tx_search *s, const char *path, const char *text, size_t size, int64_t *whole)
{
    const char *at = text, *end = text + size;
    char where[TX_PATH_ROOM + 32];
    for (int64_t line = 1; at < end; line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next) /* it was being written */
            break;
        tx_json *event = NULL;
        snprintf(where, sizeof where, "%s: line %" PRId64, path, line);
        TX_TRY(tx_json_parse_line(at, (size_t)(next - at), where, &event));
        const tx_status status = read_event(s, event, line == 1);
        tx_json_free(event);
        if (status)
            return tx_fail_in(status, "%s", where);
        at = next + 1;
    }
    *whole = at - text;
    return TX_OK;
}

/* A folder that holds other things is not taken for a search's. */
static tx_status check_new(const tx_search *s)
{
    tx_names names;
    TX_TRY(tx_folder_list(s->folder, &names));
    bool other = false;
    for (size_t i = 0; i < names.count; i++)
        other = other || (names.name[i][0] != '.' && strcmp(names.name[i], TX_SEARCH_JOURNAL) != 0);
    tx_names_free(&names);
    return other ? tx_fail(TX_INVALID,
                           "--output_dir %s: is not empty, and holds no search to go on with (" TX_SEARCH_JOURNAL
                           "); choose another one",
                           s->folder)
                 : TX_OK;
}

tx_status tx_journal_open(tx_search *s)
{
    const char *path = TX_PATH(s->folder, TX_SEARCH_JOURNAL);
    char *text = NULL;
    size_t size = 0;
    int64_t whole = 0;
    tx_status status = TX_OK;
    if (tx_file_exists(path)) {
        TX_TRY(tx_file_read(path, JOURNAL_LIMIT, &text, &size));
        status = read_events(s, path, text, size, &whole);
        free(text);
    }
    if (!status && whole == 0)
        status = check_new(s);
    TX_THEN(status, tx_file_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, &s->journal, NULL));
    if (!status && ftruncate(s->journal, whole) != 0)
        status = tx_file_fail(path, "shorten");
    return status || whole > 0 ? status : append(s, head_of(s));
}

void tx_journal_close(tx_search *s)
{
    if (s->journal >= 0)
        close(s->journal);
    s->journal = -1;
}
