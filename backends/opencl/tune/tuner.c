/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects a candidate: the earlier choice, the one in the table, the fastest in a measurement, or the one with the
 * highest expected share.
 */
#include "backends/opencl/tune/tuner.h"

#include "api/base/number.h"
#include "backends/opencl/runtime/internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Outside tuning runs a context measures for at most this many seconds of device time. Compile time does not count. */
#define MEASURE_SECONDS 4.0
/* Rounds of a tuning run. The minimum of several rounds reduces the effect of other work on the machine. */
#define ROUNDS 3
#define CLOSE 1.5    /* times the best: slower candidates skip further rounds */
#define GIVE_UP 4.0  /* times the best: slower candidates need no exact measurement */
#define GAIN 0.03    /* another candidate must be faster by this share to replace the preferred one */
#define CLEARLY 0.8  /* times the best expected share: slower candidates are not measured (is_far_behind) */
#define BY_TILE 0.92 /* the same for candidates that differ only in their tiles (has_better_tile) */

/* Reports progress to a tuning run. */
static void report_progress(const tx_cl_tuner *tuner, const char *what)
{
    if (tuner->options && tuner->options->progress)
        tuner->options->progress(tuner->options->user, what, tuner->spent);
}

#define PROOF_KEY (TX_CL_CHOICE_KEY + TX_CL_FORM + TX_CL_CHOICE_NAME + 8)

static void proof_key(const tx_cl_class *c, const tx_cl_candidate *candidate, const char *of, char key[PROOF_KEY])
{
    char form[TX_CL_FORM] = "";
    if (c->form)
        c->form(c, candidate->id, form);
    snprintf(key, PROOF_KEY, "%s%.*s%s %s", of, c->proven, c->key, form, candidate->name);
}

static int64_t spills_of(const tx_cl_class *c, const tx_cl_candidate *candidate)
{
    char key[PROOF_KEY], bytes[24];
    proof_key(c, candidate, "spills ", key);
    return tx_cl_line_get(c->b->context->tuner->proofs, key, bytes, sizeof bytes) ? strtoll(bytes, NULL, 10) : 0;
}

/* Runs the known-answer test and stores its result and the spilled bytes. */
static tx_status try_out(const tx_cl_class *c, const tx_cl_candidate *candidate, char why[TX_CL_WHY])
{
    char key[PROOF_KEY], bytes[24];
    tx_cl_tuner *tuner = c->b->context->tuner;
    tuner->spilled = 0;
    tx_status status = c->prove(c, candidate->id);
    if (status == TX_MEMORY)
        return status;
    snprintf(why, TX_CL_WHY, "%s", status ? tx_error() : "");
    proof_key(c, candidate, "spills ", key);
    snprintf(bytes, sizeof bytes, "%lld", (long long)tuner->spilled);
    status = tuner->spilled > 0 ? tx_cl_line_set(&tuner->proofs, key, bytes) : TX_OK;
    proof_key(c, candidate, "", key);
    return status ? status : tx_cl_line_set(&tuner->proofs, key, why);
}

tx_status tx_cl_verify(const tx_cl_class *c, const tx_cl_candidate *candidate, bool *right)
{
    char key[PROOF_KEY], why[TX_CL_WHY] = "";
    proof_key(c, candidate, "", key);
    const bool known = !c->prove || tx_cl_line_get(c->b->context->tuner->proofs, key, why, sizeof why);
    *right = true;
    if (!known && c->b->ahead) {
        c->b->open = true;
        (void)c->prove(c, candidate->id); /* collects its programs */
        return TX_OK;
    }
    if (!known)
        TX_TRY(try_out(c, candidate, why));
    if (*why)
        snprintf(c->q->rejected, sizeof c->q->rejected, "%s is switched off: %s", candidate->name, why);
    *right = !*why;
    return TX_OK;
}

/* Returns true if their names differ only in numbers. */
static bool alike(const tx_cl_candidate *a, const tx_cl_candidate *b)
{
    const size_t length = strcspn(a->name, "0123456789");
    return strcspn(b->name, "0123456789") == length && strncmp(a->name, b->name, length) == 0;
}

/* Counts the candidates among the first `kept` whose names differ from this one only in numbers. With `whole` those
 * that spill registers do not count. */
static int count_alike(const tx_cl_class *c, int kept, const tx_cl_candidate *candidate, bool whole)
{
    int found = 0;
    for (int i = 0; i < kept; i++)
        found += alike(&c->q->candidate[i], candidate) && !(whole && c->q->candidate[i].spills);
    return found;
}

/* Returns true if this one is expected to be clearly slower than a correct candidate that uses matrix units, or, on
 * CPUs, vectors, or whose estimates are comparable. Only tuning runs measure it, because each candidate costs the first
 * start a second or more for each of its programs; CLBlast's take as long as all others of GPT-2. */
static bool is_far_behind(const tx_cl_class *c, int kept, const tx_cl_candidate *candidate)
{
    const tx_cl_candidate *best = &c->q->candidate[0];
    return kept > 0 && !best->spills && (best->share > 1.0 || c->b->limits->cpu || c->comparable) &&
           candidate->share < CLEARLY * best->share;
}

/* Returns true if a candidate that differs only in numbers is expected to be faster, and the estimates are comparable:
 * the tiles decide, and the estimates know them. */
static bool has_better_tile(const tx_cl_class *c, int kept, const tx_cl_candidate *candidate)
{
    bool better = false;
    for (int i = 0; i < kept && c->comparable; i++)
        better = better || (alike(&c->q->candidate[i], candidate) && !c->q->candidate[i].spills &&
                            candidate->share < BY_TILE * c->q->candidate[i].share);
    return better;
}

/* Returns true if the first `kept` candidates, which are correct, make this one unnecessary. */
static bool is_unnecessary(const tx_cl_class *c, int kept, int limit, const tx_cl_candidate *candidate)
{
    if (limit > 0)
        return count_alike(c, kept, candidate, true) >= limit ||
               (limit < TX_CL_CANDIDATES && (is_far_behind(c, kept, candidate) || has_better_tile(c, kept, candidate)));
    return kept > 0 && (!c->q->candidate[0].spills || !alike(&c->q->candidate[0], candidate));
}

/* Keeps correct candidates: the first, or `limit` of those whose names differ only in numbers. A candidate that
 * spills registers yields to the next similar one that does not; a tuning run measures both. */
static tx_status keep_proven(tx_cl_class *c, int limit)
{
    const int wanted = limit > 0 ? limit : 1;
    int kept = 0;
    for (int i = 0; i < c->q->count; i++) {
        tx_cl_candidate candidate = c->q->candidate[i];
        bool right;
        if (is_unnecessary(c, kept, limit, &candidate))
            continue;
        TX_TRY(tx_cl_verify(c, &candidate, &right));
        if (!right)
            continue;
        candidate.spills = spills_of(c, &candidate);
        if (candidate.spills && !*c->q->rejected)
            snprintf(c->q->rejected, sizeof c->q->rejected, "%s spills %lld bytes for each work-item", candidate.name,
                     (long long)candidate.spills);
        int at = kept++;
        for (; at > 0 && !candidate.spills && c->q->candidate[at - 1].spills &&
               alike(&c->q->candidate[at - 1], &candidate);
             at--)
            c->q->candidate[at] = c->q->candidate[at - 1];
        c->q->candidate[at] = candidate;
    }
    c->q->count = 0;
    for (int i = 0; i < kept; i++) {
        const tx_cl_candidate *candidate = &c->q->candidate[i];
        if (!candidate->spills || limit == TX_CL_CANDIDATES ||
            (count_alike(c, c->q->count, candidate, true) == 0 &&
             count_alike(c, c->q->count, candidate, false) < wanted))
            c->q->candidate[c->q->count++] = *candidate;
    }
    return kept > 0 ? TX_OK : tx_fail(TX_DEVICE, "no %s is correct on this device: %s", c->q->what, c->q->rejected);
}

static double budget(const tx_cl_tuner *tuner)
{
    return tuner->options ? tuner->options->seconds : MEASURE_SECONDS;
}

/* Measures all candidates once and those close to the fastest in further rounds, and moves the fastest to the
 * front. The result *seconds is INFINITY if the table should not keep the result: no candidate could be measured, or
 * memory was short. */
static void measure(tx_cl_class *c, double *seconds)
{
    const tx_cl_tuner *tuner = c->b->context->tuner;
    double best = INFINITY;
    bool whole = true;
    for (int round = 0; round < (tuner->options ? ROUNDS : 1) && (round == 0 || c->q->count > 1); round++) {
        int kept = 0;
        for (int i = 0; i < c->q->count; i++) {
            double now = INFINITY;
            if (round == 0)
                c->q->candidate[i].seconds = INFINITY;
            else if (tuner->spent > budget(tuner))
                continue;
            whole = c->seconds(c, c->q->candidate[i].id, GIVE_UP * best, &now) != TX_MEMORY && whole;
            c->q->candidate[i].seconds = fmin(c->q->candidate[i].seconds, now);
            best = fmin(best, now);
        }
        for (int i = 0; i < c->q->count; i++)
            if (c->q->candidate[i].seconds <= CLOSE * best)
                c->q->candidate[kept++] = c->q->candidate[i];
        c->q->count = kept;
    }
    for (int i = 1; i < c->q->count; i++)
        if (c->q->candidate[i].seconds < (1.0 - GAIN) * c->q->candidate[0].seconds)
            c->q->candidate[0] = c->q->candidate[i];
    *seconds = whole ? c->q->candidate[0].seconds : INFINITY;
}

/* Collects the programs of the measurements. */
static void want_measurements(const tx_cl_class *c)
{
    double seconds = 0.0;
    for (int i = 0; i < c->q->count; i++)
        (void)c->seconds(c, c->q->candidate[i].id, i > 0 ? DBL_MAX : INFINITY, &seconds);
}

/* Stores the name, followed by a description for people. */
static void store(const tx_cl_class *c, double seconds)
{
    char value[128];
    tx_format(value, sizeof value, "%s %.*f %s %s", c->q->candidate[0].name, c->work > 0.0 ? 1 : 3,
              c->work > 0.0 ? 1e-9 * c->work / seconds : 1e3 * seconds, c->work > 0.0 ? "GFLOP/s" : "ms", c->sample);
    tx_cl_table_put(c->b->context, c->key, value);
}

/* Looks up a candidate in the table. *found is true if it is still a candidate and correct. */
static tx_status look_up(tx_cl_class *c, bool *found)
{
    char value[TX_CL_CHOICE_NAME];
    *found = false;
    if (!tx_cl_table_get(c->b->context, c->key, value, sizeof value))
        return TX_OK;
    value[strcspn(value, " ")] = '\0';
    const tx_cl_candidate *candidate = tx_cl_find_candidate(c->q, value);
    tx_status status = candidate ? tx_cl_verify(c, candidate, found) : TX_OK;
    if (*found)
        c->q->candidate[0] = *candidate;
    return status;
}

/* Tests the candidates, measures them if there is time, and stores the fastest. */
static tx_status find_out(tx_cl_class *c, bool time)
{
    const tx_cl_tuner *tuner = c->b->context->tuner;
    double seconds = INFINITY;
    TX_TRY(keep_proven(c, !time ? 0 : tuner->options ? TX_CL_CANDIDATES : c->usual));
    if (!time || (c->q->count == 1 && !tuner->options))
        return TX_OK;
    if (c->b->ahead) {
        want_measurements(c);
        return TX_OK;
    }
    measure(c, &seconds);
    if (seconds < INFINITY)
        store(c, seconds);
    report_progress(tuner, c->key);
    return TX_OK;
}

/* Selects a candidate for a class without an earlier choice. If another process measures them, waits for its result:
 * measurements at the same time would disturb each other, and libraries compile kernels that the cache cannot hold. */
static tx_status decide(tx_cl_class *c)
{
    tx_context *context = c->b->context;
    tx_cl_tuner *tuner = context->tuner;
    const bool time = !c->fixed && c->q->candidate[0].share < TX_CL_SURE && tuner->spent <= budget(tuner);
    const bool looks = !c->fixed && !(tuner->options && time);
    bool found = false;
    tx_status status = looks ? look_up(c, &found) : TX_OK;
    if (status || found)
        return status;
    const bool waits = looks && time && c->q->count > 1 && !c->b->ahead;
    const int lock = waits ? tx_cl_cache_lock(context, c->key) : -1;
    if (lock >= 0) {
        tuner->table_read = false;
        status = look_up(c, &found);
    }
    if (!status && !found)
        status = find_out(c, time);
    tx_cl_cache_unlock(lock);
    return status;
}

/* Selects the earlier choice of the class, which must still be a candidate and correct. */
static tx_status choose_again(tx_cl_class *c, const char *name)
{
    bool right;
    const tx_cl_candidate *candidate = tx_cl_find_candidate(c->q, name);
    if (!candidate)
        return tx_fail(TX_UNSUPPORTED, "%s was chosen for %s, but this device does not support it", name, c->key);
    tx_status status = tx_cl_verify(c, candidate, &right);
    if (!status && !right)
        status = tx_fail(TX_DEVICE, "%s was chosen for %s: %s", name, c->key, c->q->rejected);
    c->q->candidate[0] = *candidate;
    return status;
}

tx_status tx_cl_tune(tx_cl_class *c)
{
    char **choices = &c->b->context->tuner->choices, name[TX_CL_CHOICE_NAME];
    if (*c->key && !c->b->limits->narrowed && tx_cl_line_get(*choices, c->key + c->omitted, name, sizeof name))
        return choose_again(c, name);
    if (c->q->count == 0 || !*c->key)
        return TX_OK;
    if (c->b->limits->narrowed)
        return keep_proven(c, 0);
    tx_status status = decide(c);
    c->b->open = c->b->open || c->b->ahead;
    return status || c->b->ahead ? status : tx_cl_line_set(choices, c->key + c->omitted, c->q->candidate[0].name);
}
