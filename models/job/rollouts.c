/* SPDX-License-Identifier: Apache-2.0
 * The generation batches of a run that learns from rewards: their sizes, and how completions are sampled. */
#include "models/job/inputs.h"
#include "models/job/ranks.h"

#include "models/generate/generate.h"
#include "models/reward/reward.h"
#include "models/task/policy.h"

#include <inttypes.h>
#include <string.h>

/* More completions at once are hardly faster, and need more memory for their caches. */
#define SLOTS 64

int64_t tx_job_slots(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const int64_t steps = set->steps_per_generation ? set->steps_per_generation : j->step_rows / j->all_rows,
                  rows = set->generation_batch ? set->generation_batch / j->data->size : set->batch * steps;
    return !j->inputs.task->generates || set->rollout_file ? 0 : rows < SLOTS ? rows : SLOTS;
}

/* Sets the number of micro-batches of a rank in a generation batch. */
static tx_status choose_steps(const tx_job *j, int64_t *steps)
{
    const tx_job_settings *set = &j->set;
    const int64_t accumulation = j->step_rows / j->all_rows;
    *steps = set->steps_per_generation ? set->steps_per_generation : accumulation;
    if (set->generation_batch && set->generation_batch % j->all_rows)
        return tx_fail(TX_INVALID,
                       "--generation_batch_size %" PRId64 ": must be a multiple of the %" PRId64
                       " rows of a micro-batch of all ranks",
                       set->generation_batch, j->all_rows);
    if (set->generation_batch)
        *steps = set->generation_batch / j->all_rows;
    if (j->step_rows % j->all_rows)
        return tx_fail(TX_INVALID,
                       "--global_batch_size %" PRId64 ": --task_name %s needs a multiple of the %" PRId64
                       " rows of a micro-batch of all ranks",
                       j->step_rows, j->inputs.task->name, j->all_rows);
    if (*steps % accumulation)
        return tx_fail(TX_INVALID,
                       "a generation batch of %" PRId64 " micro-batches: give a multiple of the %" PRId64
                       " micro-batches of an optimizer step (--steps_per_generation, --generation_batch_size)",
                       *steps, accumulation);
    return TX_OK;
}

/* The settings of sampling: TRL's, with the end tokens of the model and of its chat template. */
static tx_status choose_sampling(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    tx_generation how, model;
    TX_TRY(tx_generation_read(in->config, in->model_folder, &j->report, &model, NULL));
    how = tx_generation_defaults(-1);
    memcpy(how.eos_token_id, model.eos_token_id, sizeof how.eos_token_id);
    how.eos_count = model.eos_count;
    const int32_t end = in->task->end(&in->train).id;
    if (end >= 0 && !tx_generation_ends(&how, end) && how.eos_count < TX_GENERATION_EOS)
        how.eos_token_id[how.eos_count++] = end;
    how.do_sample = true;
    how.top_k = set->top_k;
    how.top_p = set->top_p;
    how.min_p = set->min_p;
    how.repetition_penalty = set->repetition_penalty;
    how.temperature = set->policy_temperature;
    how.max_new_tokens = set->max_completion_length;
    how.seed = (uint64_t)set->seed;
    TX_TRY(tx_generation_check(&how));
    in->write = how;
    return TX_OK;
}

/* The greatest common divisor. */
static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* How many consecutive completions of a prompt share its tokens in a step: as many in each micro-batch as divide its
 * rows. 1 if a token's place in its row matters (recurrent layers, noise by a row's length), if routers count tokens,
 * or if ranks have different rows. Also 1 if less than an eighth of the positions is saved. */
static int64_t choose_sharing(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const tx_config *config = j->inputs.config;
    const int64_t block = j->inputs.train.block, prompt = block - set->max_completion_length;
    const int64_t count = common(common(set->num_generations, set->batch), set->eval_batch);
    const bool can = !tx_arch_recurs(config) && !tx_job_has_experts(config) && set->noise == 0.0 && !set->batch_weights;
    return can && (count - 1) * prompt * 8 >= count * block ? count : 1;
}

static void alive(void *watch)
{
    tx_watchdog_alive(watch, NULL);
}

/* Opens the rewards before anything is compiled. Weights of reward models are stored as those of a reference. */
static tx_status open_rewards(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const tx_reward_caller caller = {j->data->rank, j->inputs.block, &j->report, alive, j->watch};
    int32_t count = 0;
    if (!set->reward_funcs)
        return TX_OK;
    TX_TRY(tx_rewards_open(set, &caller, &j->inputs.rewards));
    tx_reward_model *const *models = tx_rewards_models(j->inputs.rewards, &count);
    for (int32_t i = 0; i < count; i++) {
        models[i]->config->teacher_dtype = set->dtype ? TX_BF16 : TX_F32;
        tx_job_note(j, "reward  %s: %" PRId64 " parameters, texts of at most %" PRId64 " tokens", models[i]->folder,
                    tx_arch_param_count(models[i]->config), models[i]->most);
    }
    return TX_OK;
}

tx_status tx_job_plan_rollouts(tx_job *j)
{
    tx_job_settings *set = &j->set;
    tx_job_inputs *in = &j->inputs;
    int64_t steps;
    if (!in->task->generates || !in->train.count)
        return TX_OK;
    TX_TRY(open_rewards(j));
    TX_TRY(choose_steps(j, &steps));
    TX_TRY(choose_sampling(j));
    const int64_t count = steps * j->all_rows, group = set->num_generations;
    if (count % group)
        return tx_fail(TX_INVALID,
                       "a generation batch of %" PRId64 " completions is not a multiple of --num_generations %" PRId64
                       ": change it, --per_device_train_batch_size or --steps_per_generation",
                       count, group);
    TX_TRY(tx_policy_plan(&in->train, set, count, set->batch, j->all_rows, j->step_rows));
    set->generation_batch = 0;
    set->steps_per_generation = steps == j->step_rows / j->all_rows ? 0 : steps; /* see tx_policy_is_current */
    const int64_t sharing = choose_sharing(j);
    if (sharing > 1)
        tx_policy_share(&in->sized, sharing);
    tx_job_note(j, "rollout %" PRId64 " prompts with %" PRId64 " completions each, for %" PRId64 " step%s",
                count / group, group, count / j->step_rows * set->num_iterations,
                tx_s(count / j->step_rows * set->num_iterations));
    if (sharing > 1)
        tx_job_note(j, "rollout steps compute a prompt once for %" PRId64 " completions", sharing);
    return TX_OK;
}
