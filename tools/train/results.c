/* SPDX-License-Identifier: Apache-2.0
 * Results of a run: files and the closing lines. */
#include "tools/train/results.h"

#include "api/base/file.h"
#include "models/train/card.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_LIMIT ((int64_t)16 << 20)

/* ---- Metrics -------------------------------------------------------------------------------------------------- */

typedef struct metric {
    const char *name;
    double value;
    int digits; /* behind the point, as transformers rounds it; -1: all; 0: a whole number */
} metric;

static tx_status set_metric(tx_json *json, const metric *m)
{
    if (!isfinite(m->value))
        return tx_json_set_null(json, m->name);
    if (m->digits == 0)
        return tx_json_set_int(json, m->name, (int64_t)m->value);
    double scale = m->digits > 0 ? pow(10, m->digits) : 1.0;
    return tx_json_set_number(json, m->name, m->digits > 0 ? round(m->value * scale) / scale : m->value);
}

static tx_json *metrics_of(const metric *list, size_t count)
{
    tx_json *json = tx_json_object();
    for (size_t i = 0; i < count && json; i++)
        if (set_metric(json, &list[i])) {
            tx_json_free(json);
            json = NULL;
        }
    return json;
}

tx_json *tx_train_metrics(const tx_run_summary *summary, const tx_run_state *state, const tx_dataset *data)
{
    double samples = (double)summary->tokens / (double)tx_dataset_block(data), wall = summary->wall;
    const metric list[] = {
        {"epoch", state->epoch, -1},
        {"total_flos", state->flops, -1},
        {"train_loss", summary->mean_loss, -1},
        {"train_runtime", wall, 4},
        {"train_samples", (double)tx_dataset_blocks(data), 0},
        {"train_samples_per_second", samples / wall, 3},
        {"train_steps_per_second", (double)summary->steps / wall, 3},
    };
    return metrics_of(list, sizeof list / sizeof list[0]);
}

tx_json *tx_eval_metrics(const tx_run_evaluation *e)
{
    const metric list[] = {
        {"epoch", e->epoch, -1},
        {"eval_loss", e->loss, -1},
        {"eval_runtime", e->seconds, 4},
        {"eval_samples", (double)e->samples, 0},
        {"eval_samples_per_second", (double)e->samples / e->seconds, 3},
        {"eval_steps_per_second", (double)e->batches / e->seconds, 3},
        {"perplexity", e->perplexity, -1},
    };
    return metrics_of(list, sizeof list / sizeof list[0]);
}

/* ---- Files and lines --------------------------------------------------------------------------------------------- */

/* A value as run_clm prints it. */
static void print_metric(const char *name, const tx_json *value, int width)
{
    double number = 0.0;
    int64_t whole = 0;
    char text[64] = "nan";
    if (tx_json_type_of(value) == TX_JSON_INTEGER && !tx_json_as_int(value, name, INT64_MIN, INT64_MAX, &whole))
        snprintf(text, sizeof text, "%" PRId64, whole);
    else if (tx_json_type_of(value) == TX_JSON_NUMBER &&
             !tx_json_as_number(value, name, -INFINITY, INFINITY, &number)) {
        int64_t seconds = (int64_t)number;
        if (strstr(name, "_runtime"))
            snprintf(text, sizeof text, "%" PRId64 ":%02d:%05.2f", seconds / 3600, (int)(seconds / 60 % 60),
                     number - (double)(seconds / 60 * 60));
        else if (strcmp(name, "total_flos") == 0)
            snprintf(text, sizeof text, "%.0fGF", number / 1e9);
        else
            snprintf(text, sizeof text, "%.4f", number);
    }
    printf("  %-*s = %10s\n", width, name, text);
}

static tx_status write_results(const char *folder, const char *split, const tx_json *metrics)
{
    char name[64];
    snprintf(name, sizeof name, "%s_results.json", split);
    char *path = tx_path_join(folder, name);
    tx_status status = path ? tx_json_write(path, metrics, TX_JSON_SORTED) : TX_MEMORY;
    free(path);
    return status;
}

/* all_results.json: what is there, with these metrics in place of those of the same name. */
static tx_status merge_results(const char *folder, const tx_json *metrics)
{
    char *path = tx_path_join(folder, "all_results.json");
    if (!path)
        return TX_MEMORY;
    tx_json *all = NULL;
    tx_status status = tx_file_exists(path) ? tx_json_read(path, RESULTS_LIMIT, &all) : TX_OK;
    if (!status && (!all || tx_json_type_of(all) != TX_JSON_OBJECT)) {
        tx_json_free(all);
        all = tx_json_object();
        status = all ? TX_OK : TX_MEMORY;
    }
    for (void *i = tx_json_first(metrics); i && !status; i = tx_json_next(metrics, i))
        status = tx_json_set(all, tx_json_key(i), tx_json_copy(tx_json_value(i)));
    if (!status)
        status = tx_json_write(path, all, TX_JSON_SORTED);
    tx_json_free(all);
    free(path);
    return status;
}

tx_status tx_train_report(const char *folder, const char *split, const tx_json *metrics)
{
    int width = 0;
    for (void *i = tx_json_first(metrics); i; i = tx_json_next(metrics, i))
        width = (int)strlen(tx_json_key(i)) > width ? (int)strlen(tx_json_key(i)) : width;
    printf("***** %s metrics *****\n", split);
    for (void *i = tx_json_first(metrics); i; i = tx_json_next(metrics, i))
        print_metric(tx_json_key(i), tx_json_value(i), width);
    tx_status status = write_results(folder, split, metrics);
    return status ? status : merge_results(folder, metrics);
}

/* ---- Card ------------------------------------------------------------------------------------------------------- */

/* Sets a member to a copy. */
static tx_status set_copy(tx_json *json, const char *name, const tx_json *value)
{
    return tx_json_set(json, name, tx_json_copy(value));
}

/* The options that decide what was learned. */
static tx_status set_hyperparameters(tx_json *facts, const tx_train_settings *set)
{
    /* clang-format off */
    static const char *const names[] = {"learning_rate", "per_device_train_batch_size", "per_device_eval_batch_size",
                                        "gradient_accumulation_steps", "seed", "optim", "adam_beta1", "adam_beta2",
                                        "adam_epsilon", "weight_decay", "max_grad_norm", "lr_scheduler_type",
                                        "warmup_steps", "warmup_ratio", "num_train_epochs", "max_steps", NULL};
    /* clang-format on */
    return tx_json_set(facts, "hyperparameters", tx_train_arguments(set, names));
}

static tx_status set_results(tx_json *facts, const tx_json *train, const tx_json *eval)
{
    tx_json *results = tx_json_object();
    tx_status status = results ? TX_OK : TX_MEMORY;
    const tx_json *const from[] = {train, eval};
    for (int k = 0; k < 2; k++)
        for (void *i = from[k] ? tx_json_first(from[k]) : NULL; i && !status; i = tx_json_next(from[k], i))
            status = set_copy(results, tx_json_key(i), tx_json_value(i));
    if (status) {
        tx_json_free(results);
        return status;
    }
    return tx_json_set(facts, "results", results);
}

tx_status tx_train_card(const tx_train_settings *set, const tx_train_inputs *inputs, const tx_device_info *device,
                        const tx_json *train, const tx_json *eval)
{
    tx_json *facts = tx_json_object();
    const char *data = set->dataset ? set->dataset : set->train_file ? set->train_file : set->validation_file;
    tx_status status = facts ? TX_OK : TX_MEMORY;
    if (!status && set->model)
        status = tx_json_set_string(facts, "base_model", set->model);
    if (!status && data)
        status = tx_json_set_string(facts, "dataset", data);
    if (!status)
        status = tx_json_set_string(facts, "device", device->name);
    if (!status)
        status = set_hyperparameters(facts, set);
    if (!status)
        status = set_results(facts, train, eval);
    if (!status)
        status = set_copy(facts, "log", inputs->state.history);
    if (!status)
        status = tx_card_write(set->output_dir, facts);
    tx_json_free(facts);
    return status;
}
