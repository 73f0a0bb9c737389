/* SPDX-License-Identifier: Apache-2.0
 * The figures of generation batches, by the names of TRL, and the scores of their completions. */
#include "models/train/rolling.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The figure of this name, a new one if there is none. */
static tx_rollout_figure *figure_of(tx_rollout *r, const char *name)
{
    int32_t i = 0;
    while (i < r->figures && strcmp(r->figure[i].name, name) != 0)
        i++;
    tx_rollout_figure *f = &r->figure[i];
    if (i == r->figures) {
        *f = (tx_rollout_figure){.sum = 0.0};
        snprintf(f->name, sizeof f->name, "%s", name);
        r->figures++;
    }
    return f;
}

void tx_rollout_note(tx_rollout *r, double value, const char *format, ...)
{
    char name[sizeof r->figure[0].name];
    va_list args;
    va_start(args, format);
    tx_format_list(name, sizeof name, format, args);
    va_end(args);
    tx_rollout_figure *f = figure_of(r, name);
    f->value = value;
    f->sum += isnan(value) ? 0.0 : value;
    f->count += !isnan(value);
}

void tx_rollout_note_time(tx_rollout *r, double value, const char *name)
{
    tx_rollout_figure *f = figure_of(r, name);
    f->value = value;
    f->timed = true;
}

int32_t tx_rollout_figures(tx_rollout *r, bool mean, bool clear, tx_figure figures[TX_ROLLOUT_FIGURES])
{
    int32_t count = 0;
    for (int32_t i = 0; i < r->figures; i++) {
        tx_rollout_figure *f = &r->figure[i];
        const double value = !mean ? f->value : f->timed ? (double)NAN : f->sum / (double)f->count;
        if (!isnan(value))
            figures[count++] = (tx_figure){f->name, value, -1};
        if (clear) {
            f->sum = 0.0;
            f->count = 0;
        }
    }
    return count;
}

/* Lengths: of all completions, and of those with an end token. */
static void note_lengths(tx_rollout *r)
{
    const tx_policy_batch *b = &r->data->batch;
    double sum[2] = {0.0}, least[2] = {HUGE_VAL, HUGE_VAL}, most[2] = {0.0};
    int64_t count[2] = {0};
    for (int64_t i = 0; i < b->count; i++)
        for (int which = 0; which < (b->truncated[i] ? 1 : 2); which++) {
            const double length = (double)b->length[i];
            sum[which] += length;
            least[which] = fmin(least[which], length);
            most[which] = fmax(most[which], length);
            count[which]++;
        }
    tx_rollout_note(r, sum[0] / (double)count[0], "completions/mean_length");
    tx_rollout_note(r, least[0], "completions/min_length");
    tx_rollout_note(r, most[0], "completions/max_length");
    tx_rollout_note(r, 1.0 - (double)count[1] / (double)count[0], "completions/clipped_ratio");
    tx_rollout_note(r, count[1] ? sum[1] / (double)count[1] : 0.0, "completions/mean_terminated_length");
    tx_rollout_note(r, count[1] ? least[1] : 0.0, "completions/min_terminated_length");
    tx_rollout_note(r, most[1], "completions/max_terminated_length");
}

static void note_rewards(tx_rollout *r)
{
    const double tiny = 1e-8;
    const tx_policy_batch *b = &r->data->batch;
    int64_t equal = 0;
    double tokens = 0.0, kl = 0.0;
    for (int32_t k = 0; k < b->functions; k++) {
        for (int64_t i = 0; i < b->count; i++)
            b->scratch[i] = b->rewards[i * b->functions + k];
        tx_rollout_note(r, tx_policy_mean(b->scratch, b->count), "rewards/%s/mean", r->names.name[k]);
        tx_rollout_note(r, tx_policy_deviation(b->scratch, b->count), "rewards/%s/std", r->names.name[k]);
    }
    for (int64_t i = 0; i < b->count; i++) {
        equal += r->deviation[i] < tiny;
        kl += b->kl[i];
        tokens += (double)b->length[i];
    }
    tx_rollout_note(r, tx_policy_mean(r->total, b->count), "reward");
    tx_rollout_note(r, tx_policy_deviation(r->total, b->count), "reward_std");
    tx_rollout_note(r, (double)equal / (double)b->count, "frac_reward_zero_std");
    if (r->task->one_out && r->set->beta > 0.0)
        tx_rollout_note(r, kl / tokens, "kl");
}

static void count_tokens(tx_rollout *r)
{
    const tx_policy_data *d = r->data;
    for (int64_t i = 0; i < d->batch.count; i++) {
        const int64_t sample = d->batch.sample[i];
        r->tokens += d->end[sample] - tx_sample_begin(d->end, sample) + d->batch.length[i];
    }
    tx_rollout_figure *f = figure_of(r, "num_tokens"); /* so far, so that its mean is the last value */
    f->sum = f->value = (double)r->tokens;
    f->count = 1;
}

/* Warns once if nearly all completions are truncated, since their rewards then say little. */
static void warn(tx_rollout *r)
{
    const double many = 0.9, share = figure_of(r, "completions/clipped_ratio")->value;
    if (share > many && !r->warned)
        tx_reporter_print(&r->report,
                          "step %" PRId64 ": %.0f %% of the completions have no end token within "
                          "--max_completion_length %" PRId64,
                          r->step + 1, 100.0 * share, r->data->batch.most);
    r->warned = r->warned || share > many;
}

void tx_rollout_measure(tx_rollout *r)
{
    count_tokens(r);
    note_lengths(r);
    note_rewards(r);
    warn(r);
}

/* ---- Scores ----------------------------------------------------------------------------------------------- */

void tx_rollout_score(tx_rollout *r)
{
    const tx_generation *how = tx_trainer_options_of(r->trainer)->write;
    const tx_policy_batch *b = &r->data->batch;
    for (int64_t i = 0; i < b->count; i++)
        b->truncated[i] = !tx_generation_ends(how, b->ids[i * b->most + b->length[i] - 1]);
    tx_policy_score(r->task, r->set, r->type, r->names.weight, &r->data->batch, r->total, r->deviation);
}
