/* SPDX-License-Identifier: Apache-2.0
 * Makes the options of the training loop and the description of a run. */
#include "models/job/plans.h"
#include "models/job/results.h"

#include "api/base/arithmetic.h"
#include "models/reward/reward.h"

#include <math.h>

tx_status tx_job_dump_order(const tx_job *j)
{
    const tx_loader_options loader = {
        .size = sizeof loader, .set = &j->set, .step_rows = j->step_rows, .batch = j->all_rows};
    return tx_loader_dump_order(&j->inputs.train, &loader, j->steps, j->set.dump_order);
}

/* The digests of the reward models, in order. */
static tx_status describe_rewards(const tx_job *j, tx_json *json)
{
    char text[TX_REWARDS_MAX * (TX_DIGEST_TEXT + 2)] = "";
    int32_t count = 0;
    tx_reward_model *const *models = tx_rewards_models(j->inputs.rewards, &count);
    for (int32_t i = 0; i < count; i++)
        tx_list_add(text, sizeof text, ", ", "%s", models[i]->digest);
    return tx_json_set_string(json, "reward_models", text);
}

tx_status tx_job_describe(const tx_job *j, tx_json **description)
{
    tx_json *json = tx_job_arguments(&j->set, TX_RECIPE, 0);
    tx_status status = tx_json_set_string(json, "data", j->inputs.train.digest);
    TX_THEN(status, tx_json_set_string(json, "tokenizer",
                                       j->inputs.tokenizer ? tx_tokenizer_digest(j->inputs.tokenizer) : "none"));
    TX_THEN(status, tx_json_set_string(json, TX_JOB_NAME(metric), j->inputs.metric->name));
    TX_THEN(status, tx_json_set_string(json, "base_model", j->inputs.base_digest));
    TX_THEN(status, tx_json_set_string(json, "teacher_model", j->inputs.teacher_digest));
    TX_THEN(status, describe_rewards(j, json));
    TX_THEN(status, tx_json_set_string(json, "device", tx_engine_device(j->engine)->name));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(block), j->inputs.block));
    TX_THEN(status, tx_json_set_int(json, "global_batch", j->step_rows));
    TX_THEN(status, tx_json_set_int(json, "world_size", j->data->size));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(zero_stage), j->zero_stage));
    TX_THEN(status, tx_json_set_string(json, TX_RUN_ROWS, j->rows_text));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(data_seed), (int64_t)tx_job_data_seed(&j->set)));
    TX_THEN(status, tx_json_set_int(json, "steps", j->steps));
    return TX_RETURN(status, json, description, tx_json_free);
}

/* Steps from an option: a number of steps, or below 1 a share of the run. */
static int64_t resolve(const tx_job *j, double steps)
{
    return steps >= 1 || steps == 0 ? (int64_t)steps : (int64_t)ceil(steps * (double)j->steps);
}

tx_status tx_job_make_schedule(const tx_job_settings *set, double peak, int64_t warmup, int64_t steps,
                               tx_schedule *schedule)
{
    const bool wsd = set->schedule == TX_SCHEDULE_COUNT; /* the second name, warmup_stable_decay */
    const tx_schedule_kind kind = wsd ? TX_SCHEDULE_WSD : (tx_schedule_kind)set->schedule;
    *schedule = tx_schedule_default(kind, peak, warmup, steps);
    return tx_schedule_adjust(schedule, set->schedule_settings);
}

int64_t tx_job_warmup(const tx_job *j)
{
    const int64_t steps = resolve(j, j->set.warmup_steps);
    return steps ? steps : (int64_t)ceil(j->set.warmup_ratio * (double)j->steps);
}

static tx_status make_schedule(const tx_job *j, tx_schedule *schedule)
{
    TX_TRY(tx_job_make_schedule(&j->set, j->set.rate, tx_job_warmup(j), j->steps, schedule));
    if (tx_job_schedule_free(&j->set)) /* other optimizers with constant rates do not warm up */
        schedule->warmup_steps = tx_job_warmup(j);
    return TX_OK;
}

/* The approximate size of the other files: tokenizer, log and history. */
static int64_t small_bytes(const tx_job *j)
{
    const int64_t id = 64, step = 512, others = 64 << 10;
    const int64_t ids = j->inputs.tokenizer ? tx_tokenizer_size(j->inputs.tokenizer) : 0;
    return id * ids + step * j->steps + others;
}

static int64_t weight_bytes(const tx_job *j)
{
    return tx_job_trained_count(j) * (int64_t)tx_dtype_size(tx_trainer_options_of(j->trainer)->stored);
}

/* The optimizer states, and with local steps those of all ranks and the outer momentum. */
static int64_t state_bytes(const tx_job *j)
{
    const int64_t states = tx_model_state_bytes(j->model);
    return tx_trainer_options_of(j->trainer)->across
               ? j->data->size * states + tx_job_trained_count(j) * (int64_t)sizeof(float)
               : states;
}

int64_t tx_job_checkpoint_bytes(const tx_job *j)
{
    return weight_bytes(j) + (j->set.only_model ? 0 : state_bytes(j)) + small_bytes(j);
}

tx_status tx_job_check_room(const tx_job *j, const tx_run_options *run)
{
    return tx_run_check_room(run, j->inputs.state.step, j->epoch_steps, weight_bytes(j) + small_bytes(j));
}

tx_status tx_job_make_run(tx_job *j, tx_run_options *run)
{
    const tx_job_settings *set = &j->set;
    int64_t logging = resolve(j, set->logging_steps), eval = resolve(j, set->eval_steps);
    int64_t epochs = set->max_steps > 0 ? tx_ceil_div(j->steps, j->epoch_steps) : (int64_t)ceil(set->epochs);
    *run = (tx_run_options){
        .size = sizeof *run,
        .set = set,
        .facts = {j->steps, epochs, logging, eval ? eval : logging, resolve(j, set->save_steps), set->batch},
        .train = j->inputs.train,
        .validation = j->inputs.validation,
        .step_rows = j->step_rows,
        .balance = j->balance,
        .comm = j->comm,
        .watch = j->watch,
        .best_metric = j->inputs.metric->name,
        .flops_per_token = tx_arch_flops(j->inputs.config),
        .checkpoint_bytes = tx_job_checkpoint_bytes(j),
        .checkpoint = j->inputs.checkpoint,
        .write = tx_job_write_files,
        .reopen = tx_job_reopen_output,
        .write_context = j,
        .events = &j->events,
        .report = j->report,
        .listener = j->listener,
    };
    return make_schedule(j, &run->schedule);
}
