/* SPDX-License-Identifier: Apache-2.0
 * Writes and reads the state of a run: trainer_state.json and run_state.json. */
#include "models/train/state.h"

#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "models/names.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FORMAT 1
#define STATE_LIMIT ((int64_t)1 << 30)
#define MOST ((int64_t)1 << 53)
/* The device counts updates in fp32, which is exact up to 2^24. */
#define EXACT ((int64_t)1 << 24)
/* X(member, least): the counters in run_state.json. */
#define COUNTER_MAP(X) \
    X(step, 0)         \
    X(tokens, 0)       \
    X(padded_tokens, 0) X(logged, 0) X(bad, 0) X(skipped, 0) X(held, 0) X(updates, 0) X(stale, 0) X(best_step, -1)

tx_status tx_run_state_create(tx_run_state *state)
{
    *state = (tx_run_state){.best_step = -1, .history = tx_json_array()};
    return state->history ? TX_OK : tx_fail(TX_MEMORY, "no memory for the state of the run");
}

void tx_run_state_free(tx_run_state *state)
{
    tx_json_free(state->history);
    tx_json_free(state->run);
    free(state->best_checkpoint);
    free(state->kernels);
    *state = (tx_run_state){0};
}

/* ---- History ---------------------------------------------------------------------------------------- */

/* Sets a member to a number, or to null if the number is not finite. */
static tx_status set_number(tx_json *object, const char *name, double value)
{
    return isfinite(value) ? tx_json_set_number(object, name, value) : tx_json_set_null(object, name);
}

tx_status tx_run_state_log(tx_run_state *state, const tx_figure *figures, int32_t count)
{
    tx_json *entry = tx_json_object();
    tx_status status = TX_OK;
    for (int32_t i = 0; i < count && !status; i++)
        status = set_number(entry, figures[i].name, figures[i].value);
    TX_THEN(status, tx_json_set_number(entry, "epoch", state->epoch));
    TX_THEN(status, tx_json_set_int(entry, "step", state->step));
    if (status) {
        tx_json_free(entry);
        return status;
    }
    return tx_json_append(state->history, entry);
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

/* transformers stores the state of its callbacks, and expects TrainerControl when it loads the file. */
static tx_status set_callbacks(tx_json *json)
{
    static const char control[] = "{\"TrainerControl\": {\"args\": {\"should_epoch_stop\": false, \"should_evaluate\": "
                                  "false, \"should_log\": false,"
                                  " \"should_save\": true, \"should_training_stop\": false}, \"attributes\": {}}}";
    tx_json *value;
    TX_TRY(tx_json_parse(control, sizeof control - 1, "callbacks", &value));
    return tx_json_set(json, "stateful_callbacks", value);
}

static tx_status set_best(tx_json *json, const tx_run_state *s, const char *output_dir)
{
    char *path = NULL;
    tx_status status = s->has_best ? set_number(json, "best_metric", s->best) : tx_json_set_null(json, "best_metric");
    TX_THEN(status, s->has_best ? tx_json_set_int(json, "best_global_step", s->best_step)
                                : tx_json_set_null(json, "best_global_step"));
    if (!status && s->best_checkpoint)
        status = tx_run_state_best(s, output_dir, &path);
    TX_THEN(status, path ? tx_json_set_string(json, "best_model_checkpoint", path)
                         : tx_json_set_null(json, "best_model_checkpoint"));
    free(path);
    return status;
}

static tx_status fill_trainer(tx_json *json, const tx_run_state *s, const tx_run_facts *facts, const char *output_dir)
{
    const struct {
        const char *name;
        int64_t value;
    } whole[] = {
        {"global_step", s->step},
        {"max_steps", facts->max_steps},
        {"num_train_epochs", facts->epochs},
        {"logging_steps", facts->logging_steps},
        {"eval_steps", facts->eval_steps},
        {"save_steps", facts->save_steps},
        {"train_batch_size", facts->batch},
        {"num_input_tokens_seen", s->tokens},
    };
    TX_TRY(set_best(json, s, output_dir));
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        TX_TRY(tx_json_set_int(json, whole[i].name, whole[i].value));
    TX_TRY(tx_json_set_number(json, "epoch", s->epoch));
    TX_TRY(tx_json_set_number(json, "total_flos", s->flops));
    TX_TRY(tx_json_set_bool(json, "is_hyper_param_search", false));
    TX_TRY(tx_json_set_bool(json, "is_local_process_zero", true));
    TX_TRY(tx_json_set_bool(json, "is_world_process_zero", true));
    TX_TRY(tx_json_set_null(json, "trial_name"));
    TX_TRY(tx_json_set_null(json, "trial_params"));
    TX_TRY(set_callbacks(json));
    return tx_json_set(json, "log_history", tx_json_copy(s->history));
}

/* X(member): the counters of a schedule that follows the evaluations. */
#define SCHEDULE_MAP(X) X(good) X(bad) X(cooldown) X(warmup) X(resets)

static tx_status set_schedule(tx_json *json, const tx_schedule_state *s)
{
    if (!(s->rate > 0.0))
        return TX_OK;
    tx_json *result = tx_json_object();
    tx_status status = tx_json_set_number(result, "rate", s->rate);
    if (isfinite(s->best))
        TX_THEN(status, tx_json_set_number(result, "best", s->best));
#define X(name) TX_THEN(status, tx_json_set_int(result, #name, s->name));
    SCHEDULE_MAP(X)
#undef X
    if (status) {
        tx_json_free(result);
        return status;
    }
    return tx_json_set(json, "schedule", result);
}

/* The name of the sum of a result of the task. */
#define TASK_SUM 16
static const char *task_sum(char name[TASK_SUM], int i)
{
    snprintf(name, TASK_SUM, "task_sum_%d", i);
    return name;
}

static tx_status set_task_sums(tx_json *json, const tx_run_state *s)
{
    char name[TASK_SUM];
    for (int i = 0; i < TX_TASK_RESULTS; i++)
        if (!(s->task_sum[i] == 0.0))
            TX_TRY(set_number(json, task_sum(name, i), s->task_sum[i]));
    return TX_OK;
}

static tx_status read_task_sums(const tx_json *json, tx_run_state *s)
{
    char name[TASK_SUM];
    for (int i = 0; i < TX_TASK_RESULTS; i++) {
        s->task_sum[i] = tx_json_find(json, task_sum(name, i)) ? (double)NAN : 0.0;
        if (tx_json_has(json, name))
            TX_TRY(tx_json_get_number(json, name, -1e300, 1e300, &s->task_sum[i]));
    }
    return TX_OK;
}

static tx_status fill_run(tx_json *json, const tx_run_state *s)
{
    TX_TRY(tx_json_set_int(json, "format", FORMAT));
#define X(name, least) TX_TRY(tx_json_set_int(json, #name, s->name));
    COUNTER_MAP(X)
#undef X
    TX_TRY(tx_json_set_number(json, "epoch", s->epoch));
    TX_TRY(tx_json_set_number(json, "flops", s->flops));
    TX_TRY(set_number(json, "loss_sum", s->loss_sum));
    TX_TRY(set_task_sums(json, s));
    if (s->loss_scale > 0) {
        TX_TRY(tx_json_set_number(json, "loss_scale", s->loss_scale));
        TX_TRY(tx_json_set_int(json, "scale_steps", s->scale_steps));
    }
    if (s->has_best)
        TX_TRY(set_number(json, "best", s->best));
    TX_TRY(set_schedule(json, &s->schedule));
    TX_TRY(tx_best_write(s, json));
    TX_TRY(tx_json_set_string(json, "kernels", s->kernels ? s->kernels : ""));
    return tx_json_set(json, "run", s->run ? tx_json_copy(s->run) : tx_json_object());
}

/* Writes one of the files and frees `json`. `filled` is the status of filling it. */
static tx_status write_file(tx_json *json, tx_status filled, const char *folder, const char *name)
{
    TX_THEN(filled, tx_json_write(TX_PATH(folder, name), json, TX_JSON_SORTED));
    tx_json_free(json);
    return filled;
}

tx_status tx_run_state_write_trainer(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                                     const char *folder)
{
    tx_json *json = tx_json_object();
    return write_file(json, fill_trainer(json, state, facts, output_dir), folder, TX_TRAINER_STATE);
}

tx_status tx_run_state_write(const tx_run_state *state, const tx_run_facts *facts, const char *output_dir,
                             const char *folder)
{
    TX_TRY(tx_run_state_write_trainer(state, facts, output_dir, folder));
    tx_json *json = tx_json_object();
    return write_file(json, fill_run(json, state), folder, TX_RUN_STATE);
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

/* Refuses counters that contradict each other. */
static tx_status check_counts(const tx_run_state *s)
{
    const int64_t counted = s->updates + s->skipped;
    const struct {
        const char *name;
        int64_t value;
    } last[] = {{"logged", s->logged}, {"bad", s->bad}, {"best_step", s->best_step}};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
        if (last[i].value > s->step)
            return tx_fail(TX_FORMAT, "%s %" PRId64 " is more than step %" PRId64, last[i].name, last[i].value,
                           s->step);
    if (counted > s->step || counted < (s->step < EXACT ? s->step : EXACT))
        return tx_fail(TX_FORMAT, "updates %" PRId64 " and skipped %" PRId64 " do not add up to step %" PRId64,
                       s->updates, s->skipped, s->step);
    if (s->held > s->skipped)
        return tx_fail(TX_FORMAT, "held %" PRId64 " is more than skipped %" PRId64, s->held, s->skipped);
    return s->has_best && s->best_step < 1 ? tx_fail(TX_FORMAT, "best has no best_step") : TX_OK;
}

static tx_status read_schedule(const tx_json *json, tx_schedule_state *s)
{
    tx_json *from;
    if (!tx_json_has(json, "schedule"))
        return TX_OK;
    TX_TRY(tx_json_get(json, "schedule", TX_JSON_OBJECT, &from));
    TX_TRY(tx_json_get_number(from, "rate", (double)FLT_TRUE_MIN, 1e6, &s->rate));
    s->best = HUGE_VAL;
    if (tx_json_has(from, "best"))
        TX_TRY(tx_json_get_number(from, "best", -1e300, 1e300, &s->best));
#define X(name) TX_TRY(tx_json_get_int(from, #name, 0, MOST, &s->name));
    SCHEDULE_MAP(X)
#undef X
    return TX_OK;
}

static tx_status read_run(const tx_json *json, const char *folder, const char *output_dir, tx_run_state *s)
{
    int64_t format = 0;
    const char *kernels = NULL;
    tx_json *run;
    TX_TRY(tx_json_get_int(json, "format", 1, MOST, &format));
    if (format != FORMAT)
        return tx_fail(TX_UNSUPPORTED, "format %" PRId64 ", this version of TX reads %d", format, FORMAT);
#define X(name, least) TX_TRY(tx_json_get_int(json, #name, least, MOST, &s->name));
    COUNTER_MAP(X)
#undef X
    TX_TRY(tx_json_get_number(json, "epoch", 0, 1e18, &s->epoch));
    TX_TRY(tx_json_get_number(json, "flops", 0, 1e300, &s->flops));
    s->loss_sum = (double)NAN;
    if (tx_json_has(json, "loss_sum"))
        TX_TRY(tx_json_get_number(json, "loss_sum", -1e300, 1e300, &s->loss_sum));
    TX_TRY(read_task_sums(json, s));
    if (tx_json_has(json, "loss_scale")) {
        TX_TRY(tx_json_get_number(json, "loss_scale", (double)FLT_TRUE_MIN, (double)FLT_MAX, &s->loss_scale));
        TX_TRY(tx_json_get_int(json, "scale_steps", 0, s->updates, &s->scale_steps));
    }
    s->has_best = tx_json_has(json, "best");
    if (s->has_best)
        TX_TRY(tx_json_get_number(json, "best", -1e300, 1e300, &s->best));
    TX_TRY(check_counts(s));
    TX_TRY(read_schedule(json, &s->schedule));
    TX_TRY(tx_best_read(json, folder, output_dir, s));
    TX_TRY(tx_json_get_string(json, "kernels", &kernels));
    TX_TRY(tx_json_get(json, "run", TX_JSON_OBJECT, &run));
    s->run = tx_json_copy(run);
    return s->run ? tx_copy_text(kernels, &s->kernels) : TX_MEMORY;
}

static tx_status read_history(const tx_json *json, tx_run_state *state)
{
    tx_json *history;
    int64_t step = 0;
    TX_TRY(tx_json_get_int(json, "global_step", 0, MOST, &step));
    if (step != state->step)
        return tx_fail(TX_FORMAT, "is from step %" PRId64 ", but " TX_RUN_STATE " is from step %" PRId64, step,
                       state->step);
    TX_TRY(tx_json_get(json, "log_history", TX_JSON_ARRAY, &history));
    state->history = tx_json_copy(history);
    return state->history ? TX_OK : TX_MEMORY;
}

/* Adds the file to the message of a failure. A missing member is a format error. */
static tx_status name_file(tx_status status, const char *folder, const char *name)
{
    return tx_fail_in(status == TX_NOT_FOUND ? TX_FORMAT : status, "%s/%s", folder, name);
}

static tx_status read_files(const char *folder, const char *output_dir, tx_run_state *result)
{
    tx_json *run = NULL, *trainer = NULL;
    int64_t step = 0;
    tx_status status = tx_json_read(TX_PATH(folder, TX_RUN_STATE), STATE_LIMIT, &run);
    TX_THEN(status, tx_json_read(TX_PATH(folder, TX_TRAINER_STATE), STATE_LIMIT, &trainer));
    TX_THEN(status, tx_checkpoint_saved_step(folder, &step));
    if (!status) {
        status = read_run(run, folder, output_dir, result);
        if (!status && result->step != step)
            status = tx_fail(TX_FORMAT, "is from step %" PRId64 ", but its checkpoint is from step %" PRId64,
                             result->step, step);
        status = name_file(status, folder, TX_RUN_STATE);
    }
    TX_THEN(status, name_file(read_history(trainer, result), folder, TX_TRAINER_STATE));
    tx_json_free(run);
    tx_json_free(trainer);
    return status;
}

tx_status tx_run_state_read(const char *folder, const char *output_dir, tx_run_state *state)
{
    tx_run_state result = {0};
    tx_status status = read_files(folder, output_dir, &result);
    if (status)
        tx_run_state_free(&result);
    else
        *state = result;
    return status;
}
