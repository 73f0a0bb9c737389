/* SPDX-License-Identifier: Apache-2.0
 * Trials and their order. */
#include "tools/search/study.h"

#include <math.h>
#include <stdlib.h>

const char *tx_trial_state_word(tx_trial_state state)
{
    static const char *const words[] = {
#define X(name, word) word,
        TX_TRIAL_MAP(X)
#undef X
    };
    return words[state];
}

const char *tx_method_word(tx_method method)
{
    static const char *const words[] = {
#define X(name, word) word,
        TX_METHOD_MAP(X)
#undef X
    };
    return words[method];
}

void tx_study_free(tx_study *study)
{
    for (int32_t i = 0; i < study->count; i++) {
        free(study->trial[i].message);
        tx_json_free(study->trial[i].metrics);
    }
    free(study->trial);
    tx_space_free(&study->space);
    *study = (tx_study){0};
}

tx_status tx_study_add(tx_study *study, tx_trial **trial)
{
    TX_TRY(tx_array_reserve(&study->trial, &study->room, (size_t)study->count + 1, sizeof *study->trial, "trials"));
    *trial = &study->trial[study->count++];
    **trial = (tx_trial){.state = TX_TRIAL_RUNNING, .value = (double)NAN};
    return TX_OK;
}

/* ---- Order ------------------------------------------------------------------------------------------------- */

bool tx_trial_has_value(const tx_trial *t)
{
    return t->state == TX_TRIAL_COMPLETE || t->state == TX_TRIAL_STOPPED;
}

int tx_trial_compare(const tx_study *study, const tx_trial *a, const tx_trial *b)
{
    if (tx_trial_has_value(a) != tx_trial_has_value(b))
        return tx_trial_has_value(a) ? -1 : 1;
    if (!tx_trial_has_value(a))
        return 0;
    if (a->state != b->state)
        return a->state == TX_TRIAL_COMPLETE ? -1 : 1;
    if (a->state == TX_TRIAL_STOPPED && a->rungs != b->rungs)
        return a->rungs > b->rungs ? -1 : 1;
    const int less = (a->value > b->value) - (a->value < b->value);
    return study->greater ? -less : less;
}

int32_t tx_study_best(const tx_study *study)
{
    int32_t best = -1;
    for (int32_t i = 0; i < study->count; i++)
        if (study->trial[i].state == TX_TRIAL_COMPLETE &&
            (best < 0 || tx_trial_compare(study, &study->trial[i], &study->trial[best]) < 0))
            best = i;
    return best;
}

/* Insertion sort: it is stable, so equal trials keep the order of their numbers. */
int32_t tx_study_order(const tx_study *study, int32_t *order)
{
    int32_t count = 0;
    for (int32_t i = 0; i < study->count; i++) {
        if (study->trial[i].state == TX_TRIAL_RUNNING)
            continue;
        int32_t at = count++;
        for (; at > 0 && tx_trial_compare(study, &study->trial[i], &study->trial[order[at - 1]]) < 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return count;
}

/* ---- Suggestions ------------------------------------------------------------------------------------------- */

/* A step of splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

double tx_study_draw(const tx_study *study, int32_t number, int32_t dimension, int32_t draw)
{
    uint64_t x = mix(study->seed);
    x = mix(x ^ (uint64_t)number);
    x = mix(x ^ (uint64_t)dimension);
    x = mix(x ^ (uint64_t)draw);
    return (double)(x >> 11) * 0x1p-53;
}

int64_t tx_study_grid_size(const tx_study *study)
{
    int64_t size = 1;
    for (int32_t i = 0; i < study->space.count && size < INT32_MAX; i++)
        size *= tx_dimension_points(&study->space.dimension[i], study->grid_points);
    return size < INT32_MAX ? size : INT32_MAX;
}
