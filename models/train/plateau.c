/* SPDX-License-Identifier: Apache-2.0
 * Schedules that follow the evaluations: torch's ReduceLROnPlateau and transformers' GreedyLR. */
#include "models/train/schedule.h"

#include <math.h>

static bool is_better(const tx_schedule *s, double metric, double best)
{
    const bool least = s->mode == TX_MODE_MIN;
    if (s->threshold_mode == TX_THRESHOLD_REL)
        return least ? metric < best * (1.0 - s->threshold) : metric > best * (1.0 + s->threshold);
    return least ? metric < best - s->threshold : metric > best + s->threshold;
}

static void begin(const tx_schedule *s, tx_schedule_state *state)
{
    *state = (tx_schedule_state){
        .rate = s->peak, .best = s->mode == TX_MODE_MIN ? HUGE_VAL : -HUGE_VAL, .resets = s->reset_start};
}

/* Changes of at most eps are ignored. */
static void set_rate(const tx_schedule *s, tx_schedule_state *state, double rate)
{
    if (fabs(state->rate - rate) > s->eps)
        state->rate = rate;
}

static void reduce(const tx_schedule *s, tx_schedule_state *state)
{
    const double rate = fmax(state->rate * s->factor, s->min_lr);
    if (rate < state->rate)
        set_rate(s, state, rate);
    state->bad = 0;
    state->cooldown = s->cooldown;
}

/* Evaluations during the cooldown after a reduction do not count as bad. */
static void follow_plateau(const tx_schedule *s, tx_schedule_state *state, bool better)
{
    state->bad = better ? 0 : state->bad + 1;
    if (state->cooldown > 0) {
        state->cooldown--;
        state->bad = 0;
    }
    if (state->bad > s->patience)
        reduce(s, state);
}

/* After reset_start reductions at the minimum rate, the schedule starts again. */
static void follow_greedily(const tx_schedule *s, tx_schedule_state *state, bool better)
{
    state->good = better ? state->good + 1 : 0;
    state->bad = better ? 0 : state->bad + 1;
    if (state->good > s->patience) {
        const double rate = fmin(state->rate / s->factor, s->max_lr);
        if (rate > state->rate)
            set_rate(s, state, rate);
        state->resets = s->reset_start;
        state->good = 0;
        state->warmup = s->warmup;
    } else if (state->bad > s->patience) {
        reduce(s, state);
        if (state->rate <= s->min_lr && --state->resets <= 0) {
            begin(s, state);
            state->cooldown = s->cooldown;
        }
    }
}

void tx_schedule_judge(const tx_schedule *s, tx_schedule_state *state, double metric)
{
    if (state->rate == 0.0)
        begin(s, state);
    const bool greedy = s->kind == TX_SCHEDULE_GREEDY, waits = greedy && (state->cooldown > 0 || state->warmup > 0);
    if (waits) {
        *(state->cooldown > 0 ? &state->cooldown : &state->warmup) -= 1;
        state->good = state->bad = 0;
        return;
    }
    const bool better = is_better(s, metric, state->best);
    if (better)
        state->best = metric;
    (greedy ? follow_greedily : follow_plateau)(s, state, better);
}
