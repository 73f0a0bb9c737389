/* SPDX-License-Identifier: Apache-2.0
 * The importance of options. */
#include "tools/search/study.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_TRIALS 4

/* The trials with a value, and arrays over them. */
typedef struct sample {
    int32_t count;
    const tx_trial **trial;
    double *rank;  /* ranks of the objective */
    double *value; /* values of the current option */
    double *other; /* ranks of these values */
} sample;

/* Computes ranks from 0; ties share their mean rank. `compare(context, i, j)` is below 0 if i is before j. */
static void rank(const sample *s, double *ranks, int (*compare)(const void *context, int32_t i, int32_t j),
                 const void *context)
{
    for (int32_t i = 0; i < s->count; i++) {
        int32_t before = 0, same = 0;
        for (int32_t j = 0; j < s->count; j++) {
            const int order = compare(context, j, i);
            before += order < 0;
            same += order == 0;
        }
        ranks[i] = before + 0.5 * (same - 1);
    }
}

typedef struct objective {
    const tx_study *study;
    const sample *s;
} objective;

static int by_objective(const void *context, int32_t i, int32_t j)
{
    const objective *o = context;
    return tx_trial_compare(o->study, o->s->trial[i], o->s->trial[j]);
}

static int by_value(const void *context, int32_t i, int32_t j)
{
    const sample *s = context;
    return (s->value[i] > s->value[j]) - (s->value[i] < s->value[j]);
}

/* Returns Pearson's correlation of the two lists of ranks, or NaN if one is constant. */
static double correlation(const sample *s)
{
    const double mean = 0.5 * (s->count - 1);
    double xy = 0.0, xx = 0.0, yy = 0.0;
    for (int32_t i = 0; i < s->count; i++) {
        const double x = s->other[i] - mean, y = s->rank[i] - mean;
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    return xx > 0.0 && yy > 0.0 ? xy / sqrt(xx * yy) : (double)NAN;
}

/* Returns the bin of a value: a choice has one bin per value, other options `bins` bins of about equal counts. */
static int32_t bin_of(const sample *s, const tx_dimension *d, int32_t bins, int32_t i)
{
    if (d->spread == TX_SPREAD_CHOICE)
        return (int32_t)s->value[i];
    const int32_t bin = (int32_t)((s->other[i] + 0.5) * bins / s->count);
    return bin < bins ? bin : bins - 1;
}

/* Returns epsilon squared, or NaN if there are fewer than two bins or no more trials than bins. */
static double explained(const sample *s, const tx_dimension *d)
{
    double sum[TX_CHOICES_MOST] = {0}, total = 0.0, between = 0.0;
    int32_t counts[TX_CHOICES_MOST] = {0}, bins = d->count, used = 0;
    if (d->spread != TX_SPREAD_CHOICE) {
        bins = (int32_t)sqrt((double)s->count);
        bins = bins < TX_CHOICES_MOST ? bins : TX_CHOICES_MOST;
    }
    const double mean = 0.5 * (s->count - 1);
    for (int32_t i = 0; i < s->count; i++) {
        const int32_t bin = bin_of(s, d, bins, i);
        sum[bin] += s->rank[i] - mean;
        counts[bin]++;
        total += (s->rank[i] - mean) * (s->rank[i] - mean);
    }
    for (int32_t bin = 0; bin < bins; bin++) {
        used += counts[bin] > 0;
        between += counts[bin] ? sum[bin] * sum[bin] / counts[bin] : 0.0;
    }
    if (used < 2 || s->count <= used || !(total > 0.0))
        return (double)NAN;
    const double within = (total - between) / (s->count - used);
    return fmax((between - (used - 1) * within) / total, 0.0);
}

tx_status tx_study_importance(const tx_study *study, tx_importance importance[TX_SPACE_MOST])
{
    const size_t room = (size_t)study->count + 1;
    sample s = {.trial = malloc(room * sizeof *s.trial), .rank = malloc(3 * room * sizeof *s.rank)};
    if (!s.trial || !s.rank) {
        free(s.trial);
        free(s.rank);
        return tx_fail(TX_MEMORY, "no memory to analyse %d trials", study->count);
    }
    s.value = s.rank + room;
    s.other = s.value + room;
    for (int32_t i = 0; i < study->count; i++)
        if (study->trial[i].state == TX_TRIAL_COMPLETE || study->trial[i].state == TX_TRIAL_STOPPED)
            s.trial[s.count++] = &study->trial[i];
    rank(&s, s.rank, by_objective, &(objective){study, &s});
    for (int32_t d = 0; d < study->space.count; d++) {
        const tx_dimension *dimension = &study->space.dimension[d];
        importance[d] = (tx_importance){(double)NAN, (double)NAN};
        if (s.count < LEAST_TRIALS)
            continue;
        for (int32_t i = 0; i < s.count; i++)
            s.value[i] = s.trial[i]->point[d];
        rank(&s, s.other, by_value, &s);
        importance[d].share = explained(&s, dimension);
        if (dimension->spread != TX_SPREAD_CHOICE)
            importance[d].correlation = correlation(&s);
    }
    free(s.trial);
    free(s.rank);
    return TX_OK;
}
