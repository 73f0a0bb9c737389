/* SPDX-License-Identifier: Apache-2.0
 * The reward functions of a run: reads their names and settings, and computes all rewards. */
#include "models/reward/reward.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "command:"
#define MODEL "model:"

typedef struct row {
    const char *word, *settings;
    tx_reward_function *compute;
} row;

static const row rows[] = {
#define TX_REWARD(word, settings, help) {#word, settings, tx_reward_##word},
#include "models/reward/functions.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };
static const row model_row = {"model", "label max_length prompt special_tokens", NULL};

/* The settings, by their members. */
typedef enum kind { TEXT, FLAG, REAL, OBJECT } kind;
static const struct {
    const char *name;
    kind kind;
    size_t at;
} members[] = {
#define TX_REWARD_SETTING(name, kind, initial) {#name, kind, offsetof(tx_reward_settings, name)},
#include "models/reward/functions.def"
};
enum { MEMBERS = sizeof members / sizeof members[0] };

/* A function of the run: a row of the table, a model, or a command. */
typedef struct function {
    const row *row;
    tx_reward_settings settings;
    tx_reward_state *state;
    tx_reward_command *command;
    tx_reward_model *model;
} function;

struct tx_rewards {
    tx_reward_names names;
    function function[TX_REWARDS_MAX];
    tx_reward_model *model[TX_REWARDS_MAX];
    int32_t models;
    tx_json *config;
};

/* ---- Settings --------------------------------------------------------------------------------------------- */

/* Whether a function reads the setting of this name. */
static bool reads(const row *r, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = r->settings; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, size) == 0 && (at[size] == ' ' || !at[size]))
            return true;
    return false;
}

static tx_status set_member(function *f, const char *key, const tx_json *value)
{
    char *settings = (char *)&f->settings;
    for (int32_t i = 0; i < MEMBERS; i++) {
        void *to = settings + members[i].at;
        if (strcmp(members[i].name, key) != 0 || !reads(f->row, key))
            continue;
        if (members[i].kind == TEXT)
            return tx_json_as_string(value, key, to);
        if (members[i].kind == FLAG)
            return tx_json_as_bool(value, key, to);
        if (members[i].kind == REAL)
            return tx_json_as_number(value, key, -1e12, 1e12, to);
        if (tx_json_type_of(value) != TX_JSON_OBJECT)
            return tx_fail(TX_INVALID, "%s: expected an object", key);
        *(const tx_json **)to = value;
        return TX_OK;
    }
    return tx_fail(TX_INVALID, "%s: the function has no such setting; it has: %s", key,
                   *f->row->settings ? f->row->settings : "none");
}

static tx_status check(const function *f)
{
    const tx_reward_settings *o = &f->settings;
    static const char *const places[] = {"auto", "boxed", "hash", "tag", "last"};
    bool known = false;
    for (int i = 0; i < 5; i++)
        known = known || strcmp(o->from, places[i]) == 0;
    if (!known)
        return tx_fail(TX_INVALID, "from: \"%s\" is not auto, boxed, hash, tag or last", o->from);
    if (!(o->max_length >= 0.0))
        return tx_fail(TX_INVALID, "max_length: must not be below 0");
    if (!(o->target > 0.0) || !(o->cache > 0.0) || !(o->max >= o->cache) || !(o->ngram >= 1.0) ||
        !(o->tolerance >= 0.0))
        return tx_fail(TX_INVALID, "target, cache and ngram must be above 0, tolerance not below, max not below cache");
    return reads(f->row, "pattern") && !*o->pattern ? tx_fail(TX_INVALID, "pattern: is missing in --reward_config")
                                                    : TX_OK;
}

/* Sets the settings from the member `name` of --reward_config. */
static tx_status configure(function *f, const char *name, const tx_json *config)
{
    f->settings = (tx_reward_settings){
#define TX_REWARD_SETTING(name, kind, initial) .name = initial,
#include "models/reward/functions.def"
    };
    const tx_json *own = tx_json_find(config, name);
    if (own && tx_json_type_of(own) != TX_JSON_OBJECT)
        return tx_fail(TX_INVALID, "expected an object of settings in --reward_config");
    for (void *i = own ? tx_json_first(own) : NULL; i; i = tx_json_next(own, i))
        TX_TRY(set_member(f, tx_json_key(i), tx_json_value(i)));
    TX_TRY(check(f));
    return reads(f->row, "pattern") ? tx_reward_state_open(f->settings.pattern, &f->state) : TX_OK;
}

/* ---- Opening ---------------------------------------------------------------------------------------------- */

static tx_status fail_unknown(const char *name)
{
    char list[256] = "";
    for (int32_t i = 0; i < ROWS; i++)
        tx_list_add(list, sizeof list, ", ", "%s", rows[i].word);
    return tx_fail(TX_INVALID, "--reward_funcs %s: must be %s, " MODEL "FOLDER or " COMMAND "PROGRAM", name, list);
}

/* Names a command by its program, or a model by its folder, without the folders above. */
static tx_status name_path(const char *path, size_t size, tx_reward_names *names)
{
    while (size > 1 && path[size - 1] == '/')
        size--;
    size_t first = size;
    while (first > 0 && path[first - 1] != '/')
        first--;
    return tx_reward_add_name(path + first, size - first, names);
}

static tx_status add_model(tx_rewards *r, const char *folder, int64_t block)
{
    enum { MORE = 2 };
    function *f = &r->function[r->names.count];
    TX_TRY(tx_fail_in(name_path(folder, strlen(folder), &r->names), "--reward_funcs"));
    f->row = &model_row;
    tx_status status = configure(f, r->names.name[r->names.count - 1], r->config);
    TX_THEN(status, tx_reward_model_open(folder, &f->settings, r->models, MORE * block, &f->model));
    if (!status)
        r->model[r->models++] = f->model;
    return tx_fail_in(status, "--reward_funcs " MODEL "%s", folder);
}

static tx_status add(tx_rewards *r, const char *name, const tx_job_settings *set, const tx_reward_caller *caller)
{
    const size_t prefix = strlen(COMMAND);
    function *f = &r->function[r->names.count];
    if (strncmp(name, MODEL, strlen(MODEL)) == 0)
        return add_model(r, name + strlen(MODEL), caller->block);
    if (strncmp(name, COMMAND, prefix) == 0) {
        TX_TRY(tx_fail_in(name_path(name + prefix, strcspn(name + prefix, " "), &r->names), "--reward_funcs"));
        return tx_reward_command_open(name + prefix, set->reward_timeout, set->seed, caller, &f->command);
    }
    TX_TRY(tx_fail_in(tx_reward_add_name(name, strlen(name), &r->names), "--reward_funcs"));
    for (int32_t i = 0; i < ROWS; i++)
        f->row = strcmp(rows[i].word, name) == 0 ? &rows[i] : f->row;
    return f->row ? tx_fail_in(configure(f, name, r->config), "--reward_funcs %s", name) : fail_unknown(name);
}

static tx_status open_all(tx_rewards *r, const tx_job_settings *set, const tx_reward_caller *caller)
{
    char *list = strdup(set->reward_funcs), *rest = NULL;
    tx_status status = list ? TX_OK : tx_fail(TX_MEMORY, "no memory for rewards");
    if (set->reward_config)
        TX_THEN(status, tx_json_parse(set->reward_config, strlen(set->reward_config), "--reward_config", &r->config));
    for (char *name = status ? NULL : strtok_r(list, ",", &rest); name && !status; name = strtok_r(NULL, ",", &rest))
        status = add(r, name, set, caller);
    free(list);
    for (void *i = status || !r->config ? NULL : tx_json_first(r->config); i; i = tx_json_next(r->config, i)) {
        bool used = false;
        for (int32_t k = 0; k < r->names.count; k++)
            used = used || strcmp(r->names.name[k], tx_json_key(i)) == 0;
        if (!used)
            return tx_fail(TX_INVALID, "--reward_config: \"%s\" is not one of --reward_funcs", tx_json_key(i));
    }
    return status ? status : tx_reward_weigh(set->reward_weights, &r->names);
}

tx_status tx_rewards_open(const tx_job_settings *set, const tx_reward_caller *caller, tx_rewards **rewards)
{
    tx_rewards *r = calloc(1, sizeof *r);
    const tx_status status = r ? open_all(r, set, caller) : tx_fail(TX_MEMORY, "no memory for rewards");
    return TX_RETURN(status, r, rewards, tx_rewards_free);
}

void tx_rewards_free(tx_rewards *r)
{
    if (!r)
        return;
    for (int32_t k = 0; k < r->names.count; k++) {
        tx_reward_state_free(r->function[k].state);
        tx_reward_command_free(r->function[k].command);
        tx_reward_model_free(r->function[k].model);
    }
    tx_json_free(r->config);
    free(r);
}

const tx_reward_names *tx_rewards_names(const tx_rewards *r)
{
    return &r->names;
}

tx_reward_model *const *tx_rewards_models(const tx_rewards *r, int32_t *count)
{
    *count = r ? r->models : 0;
    return r ? r->model : NULL;
}

tx_status tx_rewards_compute(tx_rewards *r, tx_scorer *const *scorers, int64_t step, const tx_reward_sample *samples,
                             int64_t count, double *to)
{
    const int64_t functions = r->names.count;
    int32_t models = 0;
    for (int64_t i = 0; i < count * functions; i++)
        to[i] = (double)NAN;
    for (int64_t k = 0; k < functions; k++) {
        function *f = &r->function[k];
        tx_status status = TX_OK;
        if (f->command)
            status = tx_reward_command_ask(f->command, step, samples, count, to + k, functions);
        else if (f->model)
            status = tx_reward_model_ask(f->model, scorers[models++], samples, count, to + k, functions);
        for (int64_t i = 0; f->row && f->row->compute && i < count && !status; i++)
            status = f->row->compute(&f->settings, f->state, &samples[i], &to[i * functions + k]);
        TX_TRY(tx_fail_in(status, "reward %s", r->names.name[k]));
    }
    return TX_OK;
}
