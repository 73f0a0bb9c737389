/* SPDX-License-Identifier: Apache-2.0
 * Creates output_dir and writes the results of a run as run_clm does: train_results.json, eval_results.json,
 * all_results.json, predictions and README.md. */
#include "models/job/results.h"

#include "api/base/file.h"
#include "models/arch/labels.h"
#include "models/files/folder.h"
#include "models/lora/lora.h"
#include "models/train/card.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULTS_LIMIT ((int64_t)16 << 20)

/* ---- The folder --------------------------------------------------------------------------------------------- */

tx_status tx_job_open_output(tx_job *j)
{
    const char *folder = j->set.output_dir;
    if (!tx_job_leads(j))
        return TX_OK;
    tx_status status = tx_output_prepare(folder);
    TX_THEN(status, tx_output_lock_take(folder, &j->lock));
    if (!status && j->set.overwrite)
        status = tx_checkpoint_clear(folder, &j->report);
    if (!status && j->set.overwrite)
        remove(TX_PATH(folder, TX_JOB_TRAIN_RESULTS));
    return status;
}

tx_status tx_job_reopen_output(void *job)
{
    tx_job *j = job;
    tx_reporter_print(&j->report,
                      "%.400s: the output folder was removed during the run: it is made again, without its earlier "
                      "checkpoints and log",
                      j->set.output_dir);
    tx_output_lock_release(j->lock);
    j->lock = NULL;
    return tx_job_open_output(j);
}

/* ---- Metrics -------------------------------------------------------------------------------------------------- */

/* Writes a metric as transformers does: rounded, and null instead of NaN. */
static tx_status set_metric(tx_json *json, const tx_figure *m)
{
    if (!isfinite(m->value))
        return tx_json_set_null(json, m->name);
    if (m->digits == 0)
        return tx_json_set_int(json, m->name, (int64_t)m->value);
    const double scale = m->digits > 0 ? pow(10, m->digits) : 1.0, scaled = m->value * scale;
    /* Greater numbers have no digits to round. */
    return tx_json_set_number(json, m->name, m->digits > 0 && fabs(scaled) < 0x1p53 ? round(scaled) / scale : m->value);
}

static tx_status write_results(const char *folder, const char *split, const tx_json *metrics)
{
    char name[64];
    snprintf(name, sizeof name, "%s_results.json", split);
    return tx_json_write(TX_PATH(folder, name), metrics, TX_JSON_SORTED);
}

/* Adds the metrics to all_results.json. They replace metrics of the same name. */
static tx_status merge_results(const char *folder, const tx_json *metrics)
{
    const char *path = TX_PATH(folder, "all_results.json");
    tx_json *all = NULL;
    tx_status status = tx_file_exists(path) ? tx_json_read(path, RESULTS_LIMIT, &all) : TX_OK;
    if (!status && (!all || tx_json_type_of(all) != TX_JSON_OBJECT)) {
        tx_json_free(all);
        all = tx_json_object();
    }
    for (void *i = tx_json_first(metrics); i && !status; i = tx_json_next(metrics, i))
        status = tx_json_set(all, tx_json_key(i), tx_json_copy(tx_json_value(i)));
    TX_THEN(status, tx_json_write(path, all, TX_JSON_SORTED));
    tx_json_free(all);
    return status;
}

/* The metrics as a JSON object. NULL if out of memory. */
static tx_json *metrics_json(const tx_figure *metrics, int32_t count)
{
    tx_json *json = tx_json_object();
    for (int32_t i = 0; i < count && json; i++)
        if (set_metric(json, &metrics[i])) {
            tx_json_free(json);
            json = NULL;
        }
    return json;
}

static tx_status report(tx_job *j, const char *split, const tx_figure *metrics, int32_t count)
{
    if (count > TX_JOB_RESULTS - j->result_count)
        return tx_fail(TX_INTERNAL, "%s: more than %d results", split, TX_JOB_RESULTS);
    memcpy(&j->results[j->result_count], metrics, (size_t)count * sizeof *metrics);
    j->result_count += count;
    if (!tx_job_leads(j))
        return TX_OK;
    if (j->listener.results)
        j->listener.results(j->listener.context, split, metrics, count);
    tx_json *json = metrics_json(metrics, count);
    tx_status status = json ? write_results(j->set.output_dir, split, json) : TX_MEMORY;
    TX_THEN(status, merge_results(j->set.output_dir, json));
    tx_json_free(json);
    return status;
}

static int by_name(const void *left, const void *right)
{
    const tx_figure *a = left, *b = right;
    return strcmp(a->name, b->name);
}

/* Number of results of training. The first TRAINED ones are also in the log history. */
enum { TRAINED = 5, TRAINING = TRAINED + 6 };

static void training_figures(const tx_job *j, tx_figure figures[TRAINING])
{
    const tx_run_summary *s = &j->summary;
    const tx_figure result[TRAINING] = {
        {"train_runtime", s->wall, 4},
        {"train_samples_per_second", (double)s->samples / s->wall, 3},
        {"train_steps_per_second", (double)s->steps / s->wall, 3},
        {"total_flos", j->inputs.state.flops, -1},
        {"train_loss", s->mean_loss, -1},
        {"epoch", j->inputs.state.epoch, -1},
        {"train_samples", (double)j->inputs.train.count, 0},
        {"train_tokens_per_second", (double)s->tokens / s->wall, 3},
        {"num_input_tokens_seen", (double)j->inputs.state.tokens, 0},
        {"num_padded_tokens_seen", (double)j->inputs.state.padded_tokens, 0},
        {"train_checkpoint_runtime", s->saving, 3},
    };
    memcpy(figures, result, sizeof result);
}

/* Removes the figures that are undefined without steps. Returns the number of the others. */
static int32_t keep_known(const tx_job *j, tx_figure *figures, int32_t count)
{
    int32_t known = 0;
    for (int32_t i = 0; i < count; i++)
        if (j->summary.steps || isfinite(figures[i].value))
            figures[known++] = figures[i];
    return known;
}

tx_status tx_job_log_training(tx_job *j)
{
    tx_figure figures[TRAINING];
    training_figures(j, figures);
    return tx_run_state_log(&j->inputs.state, figures, keep_known(j, figures, TRAINED));
}

tx_status tx_job_report_training(tx_job *j)
{
    tx_figure figures[TRAINING];
    training_figures(j, figures);
    const int32_t count = keep_known(j, figures, TRAINING);
    qsort(figures, (size_t)count, sizeof figures[0], by_name);
    for (int32_t i = 0; i < count; i++)
        tx_events_add(&j->events, figures[i].name, j->inputs.state.step, figures[i].value);
    return report(j, "train", figures, count);
}

tx_status tx_job_report_evaluation(tx_job *j, const tx_run_evaluation *e)
{
    tx_figure metrics[TX_RUN_FIGURES + 2] = {{"epoch", e->epoch, -1}, {"eval_samples", (double)e->samples, 0}};
    const int32_t count = 2 + tx_run_figures(e, false, metrics + 2);
    qsort(metrics, (size_t)count, sizeof metrics[0], by_name);
    return report(j, "eval", metrics, count);
}

/* ---- Predictions ------------------------------------------------------------------------------------------------ */

static tx_status write_predictions(const tx_job *j, const char *path, const float *outputs)
{
    const tx_samples *samples = &j->inputs.test;
    const int64_t columns = tx_run_columns(j->trainer);
    char line[32] = "index\tprediction\n";
    tx_file *file;
    TX_TRY(tx_file_create(path, &file));
    tx_status status = tx_file_append(file, line, strlen(line));
    for (int64_t i = 0; i < samples->count && !status; i++) {
        status = tx_file_append(file, line, (size_t)snprintf(line, sizeof line, "%" PRId64 "\t", i));
        TX_THEN(status, samples->task->predict(samples, i, j->inputs.config, outputs + i * columns, file));
        TX_THEN(status, tx_file_append(file, "\n", 1));
    }
    return tx_file_end(file, status);
}

/* Writes a line with the names of the labels, or with the scores of a sample. */
static tx_status write_scores_line(const tx_config *config, int64_t sample, const float *scores, tx_file *file)
{
    char text[160];
    tx_status status = TX_OK;
    snprintf(text, sizeof text, "%" PRId64, sample);
    status = tx_file_append(file, scores ? text : "index", scores ? strlen(text) : strlen("index"));
    for (int64_t k = 0; k < config->labels && !status; k++) {
        const char *name = tx_label_name(config, k);
        if (scores)
            tx_format(text, sizeof text, "\t%.6g", (double)scores[k]);
        else if (name)
            snprintf(text, sizeof text, "\t%.150s", name);
        else
            snprintf(text, sizeof text, "\tLABEL_%" PRId64, k);
        status = tx_file_append(file, text, strlen(text));
    }
    TX_THEN(status, tx_file_append(file, "\n", 1));
    return status;
}

/* Writes the score of each label for each text: predict_scores.tsv. */
static tx_status write_scores(const tx_job *j, const float *outputs)
{
    const tx_config *config = j->inputs.config;
    float *scores = malloc((size_t)config->labels * sizeof *scores);
    tx_file *file = NULL;
    tx_status status = scores ? TX_OK : tx_fail(TX_MEMORY, "no memory for scores");
    TX_THEN(status, tx_file_create(TX_PATH(j->set.output_dir, "predict_scores.tsv"), &file));
    TX_THEN(status, write_scores_line(config, 0, NULL, file));
    for (int64_t i = 0; i < j->inputs.test.count && !status; i++) {
        tx_label_scores(outputs + i * config->labels, config->labels, config->problem == TX_PROBLEM_MULTI_LABEL,
                        scores);
        status = write_scores_line(config, i, scores, file);
    }
    free(scores);
    return tx_file_end(file, status);
}

/* Whether the outputs of the task are logits of the labels of texts. */
static bool has_scores(const tx_job *j)
{
    const tx_config *config = j->inputs.config;
    return config->architecture->head == TX_HEAD_SEQUENCE_CLASSIFICATION && config->problem != TX_PROBLEM_NUMBERS &&
           config->labels > 1 && tx_run_columns(j->trainer) == config->labels;
}

tx_status tx_job_predict(tx_job *j)
{
    const char *glue = tx_job_glue(&j->set); /* as run_glue */
    double sums[TX_SUMS_MAX] = {0};
    float *outputs = NULL;
    char name[64];
    TX_TRY(tx_run_outputs(j->trainer, &j->inputs.test, j->watch, sums, &outputs));
    snprintf(name, sizeof name, "predict_results%s%s.txt", glue ? "_" : "", glue ? glue : "");
    const char *path = TX_PATH(j->set.output_dir, name);
    tx_status status = tx_job_leads(j) ? write_predictions(j, path, outputs) : TX_OK;
    if (tx_job_leads(j) && has_scores(j))
        TX_THEN(status, write_scores(j, outputs));
    if (!status)
        tx_job_note(j, "predict %s: %" PRId64 " sample%s", path, j->inputs.test.count, tx_s(j->inputs.test.count));
    free(outputs);
    return status;
}

/* ---- The next step ---------------------------------------------------------------------------------------------- */

void tx_job_note_next(const tx_job *j)
{
    const tx_head head = j->inputs.config->architecture->head;
    const uint32_t traits = j->inputs.row->traits;
    const char *folder = j->set.output_dir, *quote = strpbrk(folder, " \"$&;()*?") ? "'" : "";
    const bool labels = head == TX_HEAD_SEQUENCE_CLASSIFICATION || head == TX_HEAD_TOKEN_CLASSIFICATION;
    const bool texts = head == TX_HEAD_CAUSAL_LM || head == TX_HEAD_SEQ2SEQ;
    const char *how = traits & TX_EMBED           ? "--embed --prompt \"TEXT\""
                      : labels                    ? "--classify --prompt \"TEXT\""
                      : texts && traits & TX_TALK ? "--chat"
                      : texts                     ? "--prompt \"TEXT\""
                                                  : NULL;
    if (how && j->summary.steps && tx_job_leads(j))
        tx_job_note(j, "next    txgen --%s %s%s%s %s", j->inputs.config->lora ? "adapter" : "model", quote, folder,
                    quote, how);
}

/* ---- Card ------------------------------------------------------------------------------------------------------- */

tx_status tx_job_write_card(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    /* A run that trains nothing keeps the card of an earlier run that did. */
    if (!tx_job_leads(j) || (!j->summary.steps && tx_file_exists(TX_PATH(set->output_dir, TX_JOB_TRAIN_RESULTS))))
        return TX_OK;
    tx_json *facts = tx_json_object();
    const char *data = set->dataset ? set->dataset : set->train_file ? set->train_file : set->validation_file;
    const tx_lora *lora = j->inputs.config->lora;
    tx_status status = TX_OK;
    if (set->model)
        status = tx_json_set_string(facts, "base_model", lora ? lora->base : set->model);
    if (!status && lora)
        status = tx_json_set_bool(facts, "adapter", true);
    if (!status && data)
        status = tx_json_set_string(facts, "dataset", data);
    TX_THEN(status, tx_json_set_string(facts, "device", tx_engine_device(j->engine)->name));
    TX_THEN(status, tx_json_set(facts, "hyperparameters",
                                tx_job_arguments(set, TX_CARD | (lora ? (uint32_t)TX_ADAPTER : 0u), 0)));
    TX_THEN(status, tx_json_set(facts, "results", metrics_json(j->results, j->result_count)));
    TX_THEN(status, tx_json_set(facts, "log", tx_json_copy(j->inputs.state.history)));
    TX_THEN(status, tx_card_write(set->output_dir, facts));
    tx_json_free(facts);
    return status;
}
