/* SPDX-License-Identifier: Apache-2.0
 * From the rewards of a generation batch to the numbers of its rows. All sums are in order and in double precision. */
#include "models/task/policy.h"

#include <math.h>

/* Added to standard deviations, as TRL does. */
#define TINY 1e-4

double tx_policy_mean(const double *x, int64_t count)
{
    double sum = 0.0;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(x[i])) {
            sum += x[i];
            used++;
        }
    return used ? sum / (double)used : (double)NAN;
}

double tx_policy_deviation(const double *x, int64_t count)
{
    const double mean = tx_policy_mean(x, count);
    double sum = 0.0;
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++)
        if (!isnan(x[i])) {
            sum += (x[i] - mean) * (x[i] - mean);
            used++;
        }
    return used > 1 ? sqrt(sum / (double)(used - 1)) : (double)NAN;
}

/* The weighted sum of the rewards that are not NaN. NaN if all are. */
static double sum_of(const double *rewards, const double *weights, int32_t functions)
{
    double sum = (double)NAN;
    for (int32_t k = 0; k < functions; k++)
        if (!isnan(rewards[k]))
            sum = (isnan(sum) ? 0.0 : sum) + weights[k] * rewards[k];
    return sum;
}

/* GDPO: the z-scores of each function in its group, whose weighted sums get a z-score in the batch. */
static void normalize_functions(const double *weights, tx_policy_batch *b, double *deviation)
{
    for (int64_t i = 0; i < b->count; i++)
        b->advantage[i] = (double)NAN;
    for (int64_t first = 0; first < b->count; first += b->group)
        for (int32_t k = 0; k < b->functions; k++) {
            double *scratch = b->scratch + first;
            for (int64_t g = 0; g < b->group; g++)
                scratch[g] = b->rewards[(first + g) * b->functions + k];
            const double mean = tx_policy_mean(scratch, b->group),
                         spread = tx_policy_deviation(scratch, b->group) + TINY;
            for (int64_t g = 0; g < b->group; g++)
                if (!isnan(scratch[g])) {
                    double *sum = &b->advantage[first + g];
                    *sum = (isnan(*sum) ? 0.0 : *sum) + weights[k] * (scratch[g] - mean) / spread;
                }
        }
    const double mean = tx_policy_mean(b->advantage, b->count), spread = tx_policy_deviation(b->advantage, b->count);
    for (int64_t i = 0; i < b->count; i++) {
        b->advantage[i] = (b->advantage[i] - mean) / (spread + TINY);
        deviation[i] = spread;
    }
}

/* GRPO: the distance from the mean of the group (Shao et al., DeepSeekMath, 2024). */
static void compare_groups(const tx_job_settings *set, const double *total, tx_policy_batch *b, double *deviation)
{
    const bool whole = set->scale_rewards == TX_SCALE_REWARDS_BATCH;
    const double all = tx_policy_deviation(total, b->count);
    for (int64_t i = 0; i < b->count; i++) {
        const double *group = total + i - i % b->group;
        deviation[i] = whole ? all : tx_policy_deviation(group, b->group);
        b->advantage[i] = (total[i] - tx_policy_mean(group, b->group)) /
                          (set->scale_rewards == TX_SCALE_REWARDS_NONE ? 1.0 : deviation[i] + TINY);
    }
}

/* RLOO: the distance from the mean of the others (Ahmadian et al., 2024), of rewards with a penalty for the divergence
 * from the reference model. */
static void leave_one_out(const tx_job_settings *set, const double *total, tx_policy_batch *b, double *deviation)
{
    for (int64_t first = 0; first < b->count; first += b->group) {
        double sum = 0.0;
        int64_t used = 0;
        for (int64_t i = first; i < first + b->group; i++) {
            b->advantage[i] = total[i] - set->beta * b->kl[i];
            sum += isnan(b->advantage[i]) ? 0.0 : b->advantage[i];
            used += !isnan(b->advantage[i]);
        }
        const double spread = tx_policy_deviation(b->advantage + first, b->group);
        for (int64_t i = first; i < first + b->group; i++) {
            deviation[i] = spread;
            b->advantage[i] = used > 1 ? b->advantage[i] - (sum - b->advantage[i]) / (double)(used - 1) : (double)NAN;
        }
    }
    if (!set->normalize_advantages)
        return;
    const double mean = tx_policy_mean(b->advantage, b->count), spread = tx_policy_deviation(b->advantage, b->count);
    for (int64_t i = 0; i < b->count; i++)
        b->advantage[i] = (b->advantage[i] - mean) / (spread + TINY);
}

/* The tokens of a completion that are in the loss. */
static double learnt(const tx_job_settings *set, const tx_policy_batch *b, int64_t i)
{
    return set->mask_truncated && b->truncated[i] ? 0.0 : (double)b->length[i];
}

static double over(double count)
{
    return 1.0 / (count > 1.0 ? count : 1.0);
}

/* The reciprocal of the mean number of tokens in the loss, of the `rows` rows that row i is among. */
static double share_of(const tx_job_settings *set, const tx_policy_batch *b, int64_t i, int64_t rows)
{
    double tokens = 0.0;
    for (int64_t k = i - i % rows; k < i - i % rows + rows && k < b->count; k++)
        tokens += learnt(set, b, k);
    return (double)rows * over(tokens);
}

/* The numbers of a row, given the tokens in the loss of all rows. */
static void set_numbers(const tx_task *task, const tx_job_settings *set, const tx_policy_type *type, int64_t i,
                        double all, tx_policy_batch *b)
{
    const double length = learnt(set, b, i), token = share_of(set, b, i, b->all_rows);
    const double weights[] = {[TX_POLICY_ALL_TOKENS] = (double)b->count * over(all),
                              [TX_POLICY_SEQUENCES] = over(length),
                              [TX_POLICY_MICRO_BATCH] = share_of(set, b, i, b->rows),
                              [TX_POLICY_CONSTANT] = 1.0 / (double)b->most,
                              [TX_POLICY_SEQUENCE_SUMS] = 1.0};
    float *to = b->numbers + i * TX_POLICY_NUMBERS;
    const bool sequence = tx_policy_by_sequence(task, set);
    to[TX_POLICY_ADVANTAGE] = (float)b->advantage[i];
    to[TX_POLICY_WEIGHT] = (float)weights[type->sum];
    to[TX_POLICY_RATIO_SHARE] = (float)(task->one_out ? 1.0 : over(length));
    to[TX_POLICY_TOKEN_SHARE] = (float)token;
    to[TX_POLICY_CLIP_SHARE] = (float)(sequence ? over(length) : token);
    to[TX_POLICY_SEQUENCE_SHARE] = length > 0.0 ? (float)over(length) : 0.0f;
    to[TX_POLICY_LOSS_SHARE] = type->sum == TX_POLICY_ALL_TOKENS ? 1.0f / (float)b->accumulation : 1.0f;
}

void tx_policy_score(const tx_task *task, const tx_job_settings *set, const tx_policy_type *type, const double *weights,
                     tx_policy_batch *b, double *total, double *deviation)
{
    double all = 0.0;
    for (int64_t i = 0; i < b->count; i++) {
        total[i] = sum_of(b->rewards + i * b->functions, weights, b->functions);
        all += learnt(set, b, i);
    }
    if (task->one_out)
        leave_one_out(set, total, b, deviation);
    else if (set->multi_objective)
        normalize_functions(weights, b, deviation);
    else
        compare_groups(set, total, b, deviation);
    for (int64_t i = 0; i < b->count; i++) {
        b->advantage[i] = isnan(b->advantage[i]) ? 0.0 : b->advantage[i];
        set_numbers(task, set, type, i, all, b);
    }
}
