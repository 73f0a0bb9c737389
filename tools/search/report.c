/* SPDX-License-Identifier: Apache-2.0
 * Results of a search: the best trial and the report. */
#include "tools/search/txsearch.h"

#include "tools/cli/output.h"
#include "tx_file.h"
#include "tx_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- The best trial -------------------------------------------------------------------------------------------- */

void tx_search_command(const tx_search *s, char *text, size_t size)
{
    char ranks[48] = "", folder[4096] = "";
    const bool plain =
        !s->folder[strspn(s->folder, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-")];
    size_t used = 0;
    for (const char *at = s->folder; *at && used + 8 < sizeof folder; at++)
        used += (size_t)snprintf(folder + used, sizeof folder - used, *at == '\'' ? "'\\''" : "%c", *at);
    if (s->set->ranks > 1)
        snprintf(ranks, sizeof ranks, "txlaunch -n %" PRId64 " -- ", s->set->ranks);
    snprintf(text, size, "%stxtrain %s%s/" TX_SEARCH_BEST ".json%s --output_dir %s%s-" TX_SEARCH_BEST "%s", ranks,
             plain ? "" : "'", folder, plain ? "" : "'", plain ? "" : "'", folder, plain ? "" : "'");
}

/* Points the link OUT/best to the trial. The link is replaced atomically. */
static tx_status link_best(const tx_search *s, int32_t best)
{
    char name[TX_TRIAL_NAME], now[TX_TRIAL_NAME] = "";
    const char *path = TX_PATH(s->folder, TX_SEARCH_BEST), *temporary = TX_PATH(s->folder, "." TX_SEARCH_BEST);
    errno = 0;
    const ssize_t length = readlink(path, now, sizeof now - 1);
    const bool other = errno == EINVAL;
    tx_trial_name(name, best, "");
    if (length > 0 && strcmp(now, name) == 0)
        return TX_OK;
    if (other)
        return tx_fail(TX_IO, "%s: not a link; move it away: the link to the best trial needs this name", path);
    errno = 0;
    if ((unlink(temporary) != 0 && errno != ENOENT) || symlink(name, temporary) != 0 || rename(temporary, path) != 0)
        return tx_file_fail(path, "create the link");
    return TX_OK;
}

static tx_status write_best(const tx_search *s, int32_t best)
{
    tx_json *options = tx_trial_options(s, best, true);
    tx_status status = options ? link_best(s, best) : TX_MEMORY;
    TX_THEN(status, tx_json_write(TX_PATH(s->folder, TX_SEARCH_BEST ".json"), options, TX_JSON_PRETTY));
    tx_json_free(options);
    return status;
}

/* Removes the models of all finished trials except the best one. */
static tx_status remove_others(const tx_search *s, int32_t best)
{
    char name[TX_TRIAL_NAME];
    for (int32_t i = 0; i < s->study.count; i++)
        if (i != best && s->study.trial[i].state != TX_TRIAL_RUNNING &&
            tx_is_folder(TX_PATH(s->folder, tx_trial_name(name, i, ""))))
            TX_TRY(tx_folder_remove(s->folder, name));
    return TX_OK;
}

/* ---- The page -------------------------------------------------------------------------------------------------- */

static void set_finite(tx_json *json, const char *key, double value)
{
    if (isfinite(value))
        tx_json_set_number(json, key, value);
}

static tx_json *trials_json(const tx_search *s)
{
    tx_json *trials = tx_json_array();
    for (int32_t i = 0; i < s->study.count; i++) {
        const tx_trial *t = &s->study.trial[i];
        tx_json *one = tx_json_object(), *point = tx_json_array();
        tx_json_set_int(one, "number", i);
        tx_json_set_string(one, "state", tx_trial_state_word(t->state));
        for (int32_t d = 0; d < s->study.space.count; d++)
            tx_json_append_number(point, t->point[d]);
        tx_json_set(one, "point", point);
        set_finite(one, "value", t->value);
        tx_json_set_int(one, "steps", t->steps);
        tx_json_set_number(one, "seconds", t->seconds);
        if (t->message && tx_json_set_string(one, "message", t->message))
            tx_json_set_string(one, "message", "its message is not UTF-8");
        tx_json_append(trials, one);
    }
    return trials;
}

/* Adds the options of the space, in its order, with their importance. */
static tx_status add_space(const tx_search *s, tx_json *data)
{
    tx_importance importance[TX_SPACE_MOST];
    TX_TRY(tx_study_importance(&s->study, importance));
    tx_json *described = tx_space_json(&s->study.space), *space = tx_json_array();
    for (int32_t i = 0; i < s->study.space.count && described; i++) {
        const tx_dimension *d = &s->study.space.dimension[i];
        tx_json *one = tx_json_copy(tx_json_find(described, d->name));
        tx_json_set_string(one, "name", d->name);
        tx_json_set_bool(one, "log", tx_dimension_is_log(d));
        set_finite(one, "share", importance[i].share);
        set_finite(one, "correlation", importance[i].correlation);
        tx_json_append(space, one);
    }
    tx_json_free(described);
    return tx_json_set(data, "space", space);
}

static tx_status write_page(const tx_search *s, int32_t best)
{
    const tx_study *study = &s->study;
    char command[4200];
    tx_json *data = tx_json_object();
    tx_json_set_string(data, "version", TX_VERSION);
    tx_json_set_string(data, "metric", s->metric);
    tx_json_set_bool(data, "greater", study->greater);
    tx_json_set_string(data, "method", tx_method_word(study->method));
    tx_json_set_int(data, "seed", (int64_t)study->seed);
    tx_json_set_int(data, "wanted", s->trials);
    tx_json_set_int(data, "halving", study->rung);
    tx_json_set_int(data, "reduction_factor", study->factor);
    if (best >= 0)
        tx_json_set_int(data, "best", best);
    tx_search_command(s, command, sizeof command);
    if (tx_json_set_string(data, "command", command)) /* a path in it is not UTF-8 */
        tx_json_set_string(data, "command", "(not UTF-8)");
    tx_json_set(data, "trials", trials_json(s));
    tx_status status = add_space(s, data);
    TX_THEN(status, tx_page_write(TX_PATH(s->folder, TX_SEARCH_PAGE), tx_search_page, data));
    tx_json_free(data);
    return status;
}

tx_status tx_search_report(const tx_search *s)
{
    const int32_t best = tx_study_best(&s->study);
    if (best >= 0)
        TX_TRY(write_best(s, best));
    if (s->set->keep == 0)
        TX_TRY(remove_others(s, best));
    return write_page(s, best);
}
