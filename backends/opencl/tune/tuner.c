/* SPDX-License-Identifier: Apache-2.0
 * Selection of a candidate: the earlier choice, the table, a measurement, or the best suited one. */
#include "backends/opencl/tune/tuner.h"

#include "backends/opencl/runtime/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Outside of tuning runs measuring stops for good after this many seconds of the device a context; compilers have
 * theirs. */
#define MEASURE_SECONDS 4.0
/* Rounds of a tuning run: other work on the machine shows less in the least of a few. */
#define ROUNDS 3
#define CLOSE 1.5   /* times the best: what takes longer is left out of further rounds */
#define GIVE_UP 4.0 /* times the best: what is found to take longer need not be measured exactly */
#define GAIN 0.03   /* the better suited stays unless another takes so much less time */

void tx_cl_add_candidate(tx_cl_selection *q, int id, const char *name, double share, const char *why)
{
    if (*why && !*q->rejected)
        snprintf(q->rejected, sizeof q->rejected, "%s", why);
    if (!(share > 0.0) || q->count == TX_CL_CANDIDATES)
        return;
    int at = q->count++;
    for (; at > 0 && q->candidate[at - 1].share < share; at--)
        q->candidate[at] = q->candidate[at - 1];
    q->candidate[at] = (tx_cl_candidate){.id = id, .name = name, .share = share};
}

void tx_cl_tell(const tx_context *context, const char *what)
{
    if (context->tune && context->tune->progress)
        context->tune->progress(context->tune->user, what, context->tune_spent);
}

void tx_cl_tuner_close(tx_context *context)
{
    free(context->choices);
    free(context->proofs);
    free(context->table);
    tx_proof_close(context->reference);
}

/* The candidate of this name, or NULL if it does not suit. */
static const tx_cl_candidate *find(const tx_cl_selection *q, const char *name)
{
    for (int i = 0; i < q->count; i++)
        if (strcmp(q->candidate[i].name, name) == 0)
            return &q->candidate[i];
    return NULL;
}

/* In a survey a trial is run once, to learn what it builds; it ends before it finds out anything. */
static tx_status survey_trial(tx_context *context, const tx_cl_selection *q, const tx_cl_candidate *candidate,
                              const char *key)
{
    char seen[8];
    if (tx_cl_line_get(context->survey->trials, key, seen, sizeof seen))
        return TX_OK;
    tx_status status = tx_cl_line_set(&context->survey->trials, key, "");
    if (!status)
        q->prove(context, q, candidate->id);
    return status;
}

#define PROOF_KEY (TX_CL_CHOICE_KEY + 2 * TX_CL_CHOICE_NAME + 8)

static void proof_key(const tx_cl_selection *q, const tx_cl_candidate *candidate, const char *of, char key[PROOF_KEY])
{
    snprintf(key, PROOF_KEY, "%s%.*s%s %s", of, q->proven, q->key, q->form ? q->form : "", candidate->name);
}

static int64_t spills_of(const tx_context *context, const tx_cl_selection *q, const tx_cl_candidate *candidate)
{
    char key[PROOF_KEY], bytes[24];
    proof_key(q, candidate, "spills ", key);
    return tx_cl_line_get(context->proofs, key, bytes, sizeof bytes) ? strtoll(bytes, NULL, 10) : 0;
}

/* The proof, and what was found to spill in it. */
static tx_status try_out(tx_context *context, const tx_cl_selection *q, const tx_cl_candidate *candidate,
                         char why[TX_CL_WHY])
{
    char key[PROOF_KEY], bytes[24];
    context->driver.spilled = 0;
    tx_status status = q->prove(context, q, candidate->id);
    if (status == TX_MEMORY)
        return status;
    snprintf(why, TX_CL_WHY, "%s", status ? tx_error() : "");
    proof_key(q, candidate, "spills ", key);
    snprintf(bytes, sizeof bytes, "%lld", (long long)context->driver.spilled);
    status = context->driver.spilled > 0 ? tx_cl_line_set(&context->proofs, key, bytes) : TX_OK;
    proof_key(q, candidate, "", key);
    return status ? status : tx_cl_line_set(&context->proofs, key, why);
}

tx_status tx_cl_prove(tx_context *context, tx_cl_selection *q, const tx_cl_candidate *candidate, bool *right)
{
    char key[PROOF_KEY], why[TX_CL_WHY] = "";
    proof_key(q, candidate, "", key);
    const bool known = !q->prove || tx_cl_line_get(context->proofs, key, why, sizeof why);
    *right = true;
    if (!known && context->survey)
        return survey_trial(context, q, candidate, key);
    if (!known)
        TX_TRY(try_out(context, q, candidate, why));
    if (*why)
        snprintf(q->rejected, sizeof q->rejected, "%s is switched off: %s", candidate->name, why);
    *right = !*why;
    return TX_OK;
}

/* Whether their names differ in numbers alone. */
static bool alike(const tx_cl_candidate *a, const tx_cl_candidate *b)
{
    const size_t length = strcspn(a->name, "0123456789");
    return strcspn(b->name, "0123456789") == length && strncmp(a->name, b->name, length) == 0;
}

/* How many of the first `kept` are alike; `whole`: and do not spill. */
static int count_alike(const tx_cl_selection *q, int kept, const tx_cl_candidate *candidate, bool whole)
{
    int found = 0;
    for (int i = 0; i < kept; i++)
        found += alike(&q->candidate[i], candidate) && !(whole && q->candidate[i].spills);
    return found;
}

/* Whether the first `kept`, which are right, do without this one. */
static bool enough(const tx_cl_selection *q, int kept, int most, const tx_cl_candidate *candidate)
{
    if (most > 0)
        return count_alike(q, kept, candidate, true) >= most;
    return kept > 0 && (!q->candidate[0].spills || !alike(&q->candidate[0], candidate));
}

/* Leaves those that are right: the first, or `most` of those that are alike. What spills makes room for the next one
 * that is alike and does not; a tuning run measures both. */
static tx_status keep_proven(tx_context *context, tx_cl_selection *q, int most)
{
    const int wanted = most > 0 ? most : 1;
    int kept = 0;
    for (int i = 0; i < q->count; i++) {
        tx_cl_candidate candidate = q->candidate[i];
        bool right;
        if (enough(q, kept, most, &candidate))
            continue;
        TX_TRY(tx_cl_prove(context, q, &candidate, &right));
        if (!right)
            continue;
        candidate.spills = spills_of(context, q, &candidate);
        if (candidate.spills && !*q->rejected)
            snprintf(q->rejected, sizeof q->rejected, "%s spills %lld bytes an item", candidate.name,
                     (long long)candidate.spills);
        int at = kept++;
        for (; at > 0 && !candidate.spills && q->candidate[at - 1].spills && alike(&q->candidate[at - 1], &candidate);
             at--)
            q->candidate[at] = q->candidate[at - 1];
        q->candidate[at] = candidate;
    }
    q->count = 0;
    for (int i = 0; i < kept; i++) {
        const tx_cl_candidate *candidate = &q->candidate[i];
        if (!candidate->spills || most == TX_CL_CANDIDATES ||
            (count_alike(q, q->count, candidate, true) == 0 && count_alike(q, q->count, candidate, false) < wanted))
            q->candidate[q->count++] = *candidate;
    }
    return kept > 0 ? TX_OK : tx_fail(TX_DEVICE, "no %s is right on this device: %s", q->what, q->rejected);
}

static double budget(const tx_context *context)
{
    return context->tune ? context->tune->seconds : MEASURE_SECONDS;
}

/* Measures all candidates once and those close to the fastest in further rounds, and puts the fastest first. *seconds
 * is INFINITY if the table should not keep the result: no candidate could be measured, or there was too little memory.
 */
static void measure(tx_context *context, tx_cl_selection *q, double *seconds)
{
    double best = INFINITY;
    bool whole = true;
    for (int round = 0; round < (context->tune ? ROUNDS : 1) && (round == 0 || q->count > 1); round++) {
        int kept = 0;
        for (int i = 0; i < q->count; i++) {
            double now = INFINITY;
            if (round == 0)
                q->candidate[i].seconds = INFINITY;
            else if (context->tune_spent > budget(context))
                continue;
            whole = q->seconds(context, q, q->candidate[i].id, GIVE_UP * best, &now) != TX_MEMORY && whole;
            q->candidate[i].seconds = fmin(q->candidate[i].seconds, now);
            best = fmin(best, now);
        }
        for (int i = 0; i < q->count; i++)
            if (q->candidate[i].seconds <= CLOSE * best)
                q->candidate[kept++] = q->candidate[i];
        q->count = kept;
    }
    for (int i = 1; i < q->count; i++)
        if (q->candidate[i].seconds < (1.0 - GAIN) * q->candidate[0].seconds)
            q->candidate[0] = q->candidate[i];
    *seconds = whole ? q->candidate[0].seconds : INFINITY;
}

/* The name, and behind it what people read. */
static void store(tx_context *context, const tx_cl_selection *q, double seconds)
{
    char value[128];
    snprintf(value, sizeof value, "%s %.*f %s %s", q->candidate[0].name, q->work > 0.0 ? 1 : 3,
             q->work > 0.0 ? 1e-9 * q->work / seconds : 1e3 * seconds, q->work > 0.0 ? "GFLOP/s" : "ms", q->sample);
    tx_cl_table_put(context, q->key, value);
}

/* Whether the table has a candidate that still suits and is right. */
static tx_status look_up(tx_context *context, tx_cl_selection *q, bool *found)
{
    char value[TX_CL_CHOICE_NAME];
    *found = false;
    if (!tx_cl_table_get(context, q->key, value, sizeof value))
        return TX_OK;
    value[strcspn(value, " ")] = '\0';
    const tx_cl_candidate *candidate = find(q, value);
    tx_status status = candidate ? tx_cl_prove(context, q, candidate, found) : TX_OK;
    if (*found)
        q->candidate[0] = *candidate;
    return status;
}

/* The answer for a class that was given none yet. */
static tx_status decide(tx_context *context, tx_cl_selection *q)
{
    const bool time = !q->fixed && q->candidate[0].share < TX_CL_SURE && context->tune_spent <= budget(context);
    bool found = false;
    double seconds = INFINITY;
    if (!q->fixed && !(context->tune && time)) {
        tx_status status = look_up(context, q, &found);
        if (status || found)
            return status;
    }
    tx_status status = keep_proven(context, q, !time ? 0 : context->tune ? TX_CL_CANDIDATES : q->usual);
    if (status || !time || (q->count == 1 && !context->tune) || context->survey)
        return status;
    measure(context, q, &seconds);
    if (seconds < INFINITY)
        store(context, q, seconds);
    tx_cl_tell(context, q->key);
    return TX_OK;
}

/* The class's candidate from before, which must still suit and be right. */
static tx_status choose_again(tx_context *context, tx_cl_selection *q, const char *name)
{
    bool right;
    const tx_cl_candidate *candidate = find(q, name);
    if (!candidate)
        return tx_fail(TX_UNSUPPORTED, "%s, chosen for %s, does not suit it on this device", name, q->key);
    tx_status status = tx_cl_prove(context, q, candidate, &right);
    if (!status && !right)
        status = tx_fail(TX_DEVICE, "%s was chosen for %s: %s", name, q->key, q->rejected);
    q->candidate[0] = *candidate;
    return status;
}

tx_status tx_cl_select(tx_context *context, tx_cl_selection *q)
{
    const tx_cl_forced *forced = q->forced;
    char name[TX_CL_CHOICE_NAME];
    if (forced && strncmp(q->key, forced->begins, strlen(forced->begins)) == 0) {
        const tx_cl_candidate *candidate = find(q, forced->name);
        if (!candidate)
            return tx_fail(TX_UNSUPPORTED, "%s declines", forced->name);
        q->candidate[0] = *candidate;
        return TX_OK;
    }
    const bool kept = !forced && *q->key;
    if (kept && !context->limits.narrowed && tx_cl_line_get(context->choices, q->key + q->omitted, name, sizeof name))
        return choose_again(context, q, name);
    if (q->count == 0)
        return tx_fail(TX_UNSUPPORTED, "no %s accepts this one%s%s", q->what, *q->rejected ? ": " : "", q->rejected);
    if (!kept)
        return TX_OK;
    if (context->limits.narrowed)
        return keep_proven(context, q, 0);
    tx_status status = decide(context, q);
    return status ? status : tx_cl_line_set(&context->choices, q->key + q->omitted, q->candidate[0].name);
}
