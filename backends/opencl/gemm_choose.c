/* SPDX-License-Identifier: Apache-2.0
 * Which provider computes a product: by order, by trust, by measuring. */
#include "backends/opencl/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Measuring stops for good after this many seconds a context, or those that a tuning run gives; what is then unmeasured
 * takes the default order. */
#define MEASURE_SECONDS 4.0
/* Of the forms of one kernel, so many of those that suit a product best are measured where nobody asked for more. */
#define MEASURE_FORMS 2
/* The share of a tuning run's seconds that CLBlast's own tuner gets. */
#define CLBLAST_SHARE 0.2
/* A provider this many times slower than another on a mid-size product is not measured further. */
#define HOPELESS 4.0
/* Products are measured with their dimensions cut to this, which bounds time and memory. */
#define MEASURE_DIMENSION 4096

/* Something found out once about a provider: its test, or its pace. */
typedef struct record {
    struct record *next;
    const tx_cl_provider *provider;
    double seconds; /* of a measurement */
    char *reason;   /* why a test failed; NULL: passed */
    char key[96];
} record;

struct tx_cl_gemm {
    const char *wanted;          /* how the names of the providers begin that go first; "": of none */
    const tx_cl_provider *trial; /* taken unasked, while a trial runs */
    bool measure, failed;        /* failed: a measurement did */
    bool tuned_clblast;
    bool tried[TX_CL_PROVIDERS]; /* by their number: has been run */
    record *records;
};

/* Providers for a product, the one to be preferred first, and what stood aside. */
typedef struct candidates {
    const tx_cl_provider *provider[TX_CL_PROVIDERS];
    double suits[TX_CL_PROVIDERS];
    int count;
    char aside[TX_CL_ASIDE]; /* one that is switched off or asks for more than the device has; "": none */
} candidates;

static record *find(const tx_cl_gemm *s, const char *key)
{
    for (record *r = s->records; r; r = r->next)
        if (strcmp(r->key, key) == 0)
            return r;
    return NULL;
}

static record *add(tx_cl_gemm *s, const char *key, const tx_cl_provider *provider)
{
    record *r = calloc(1, sizeof *r);
    if (!r) {
        tx_fail(TX_MEMORY, "out of host memory");
        return NULL;
    }
    *r = (record){.next = s->records, .provider = provider};
    snprintf(r->key, sizeof r->key, "%s", key);
    return s->records = r;
}

/* ---- Order ---------------------------------------------------------------------------------------------- */

static bool begins(const char *name, const char *with)
{
    return *with && strncmp(name, with, strlen(with)) == 0;
}

static tx_status read_wishes(tx_cl_gemm *s)
{
    const char *wanted = getenv("TX_GEMM"), *measure = getenv("TX_GEMM_TUNE");
    const tx_cl_provider *provider;
    bool found = false;
    s->wanted = wanted ? wanted : "";
    s->measure = !*s->wanted && (!measure || strcmp(measure, "0") != 0);
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++)
        found = found || begins(provider->name, s->wanted);
    if (*s->wanted && !found)
        return tx_fail(
            TX_INVALID,
            "TX_GEMM=%s: it takes portable, portable-vector, portable-tile, portable-few, nvidia-mma or clblast",
            wanted);
    return TX_OK;
}

static tx_status state_of(tx_context *context, tx_cl_gemm **state)
{
    if (!context->gemm) {
        tx_cl_gemm *s = calloc(1, sizeof *s);
        if (!s)
            return tx_fail(TX_MEMORY, "out of host memory");
        tx_status status = read_wishes(s);
        if (status != TX_OK) {
            free(s);
            return status;
        }
        context->gemm = s;
    }
    *state = context->gemm;
    return TX_OK;
}

void tx_cl_gemm_close(tx_context *context)
{
    tx_cl_gemm *s = context->gemm;
    if (!s)
        return;
    for (int i = 0; i < TX_CL_PROVIDERS; i++)
        if (s->tried[i] && tx_cl_gemm_provider(i)->close)
            tx_cl_gemm_provider(i)->close();
    for (record *r = s->records, *next; r; r = next) {
        next = r->next;
        free(r->reason);
        free(r);
    }
    free(s);
    context->gemm = NULL;
}

static void insert(candidates *c, const tx_cl_provider *provider, double suits)
{
    int at = c->count++;
    for (; at > 0 && c->suits[at - 1] < suits; at--) {
        c->provider[at] = c->provider[at - 1];
        c->suits[at] = c->suits[at - 1];
    }
    c->provider[at] = provider;
    c->suits[at] = suits;
}

/* The device's providers that take the product, in order: those asked for by name, those made for so few rows, then by
 * how it suits them. */
static void put_in_order(const tx_context *context, const tx_cl_product *p, candidates *c)
{
    const tx_cl_provider *provider;
    *c = (candidates){.count = 0};
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++) {
        char why[TX_CL_WHY] = "";
        if (!tx_cl_gemm_offers(context, provider))
            continue;
        const double suits = provider->suits(context, provider, p, why);
        if (suits > 0.0)
            insert(c, provider, suits + (provider->rows > 0) + 2.0 * begins(provider->name, context->gemm->wanted));
        else if (*why && !*c->aside)
            snprintf(c->aside, sizeof c->aside, "%s", why);
    }
}

/* ---- Trust ------------------------------------------------------------------------------------------------ */

tx_status tx_cl_gemm_try(tx_context *context, const tx_cl_provider *provider, const tx_cl_trial *trial, double *seconds)
{
    tx_cl_gemm *s = NULL;
    tx_status status = state_of(context, &s);
    if (!s)
        return status;
    for (int i = 0; tx_cl_gemm_provider(i); i++)
        s->tried[i] = s->tried[i] || tx_cl_gemm_provider(i) == provider;
    s->trial = provider;
    status = tx_cl_gemm_trial(context, trial, seconds);
    s->trial = NULL;
    return status;
}

/* A provider that cannot be run or is wrong is switched off; want of memory says nothing about it. */
static tx_status judge(tx_context *context, const tx_cl_provider *provider, const char *key,
                       const tx_cl_trial trials[2], const record **out)
{
    tx_status status = TX_OK;
    for (int i = 0; status == TX_OK && i < 2; i++)
        status = tx_cl_gemm_try(context, provider, &trials[i], NULL);
    if (status == TX_MEMORY)
        return status;
    char *reason = status == TX_OK ? NULL : strdup(tx_error());
    if (status != TX_OK && !reason)
        return tx_fail(TX_MEMORY, "out of host memory");
    record *r = add(context->gemm, key, provider);
    if (!r) {
        free(reason);
        return TX_MEMORY;
    }
    r->reason = reason;
    *out = r;
    return TX_OK;
}

/* The verdict on a provider for this combination of types and transposes: two small products with known answers, one of
 * odd dimensions and one of whole quads, once a context. */
static tx_status trust(tx_context *context, const tx_cl_provider *provider, const tx_cl_product *p, const record **out)
{
    char key[96];
    snprintf(key, sizeof key, "test %s %d%d %d %d", provider->name, p->trans_a, p->trans_b, p->from, p->to);
    const record *r = find(context->gemm, key);
    if (!r) {
        const int64_t rows = provider->rows;
        const tx_cl_trial trials[2] = {
            {2, rows ? rows - 1 : 21, 61, 1237, p->trans_a, p->trans_b, true, p->from, p->to, TX_ADD},
            {1, rows ? rows : 68, 132, 44, p->trans_a, p->trans_b, false, p->from, p->to, TX_STORE},
        };
        tx_status status = judge(context, provider, key, trials, &r);
        if (status != TX_OK)
            return status;
    }
    *out = r;
    return TX_OK;
}

/* ---- Measuring ---------------------------------------------------------------------------------------------- */

static int64_t cut(int64_t dimension)
{
    return dimension < MEASURE_DIMENSION ? dimension : MEASURE_DIMENSION;
}

/* Seconds of a provider on a trial; infinity where it fails. */
static double measure(tx_context *context, const tx_cl_provider *provider, const tx_cl_trial *trial)
{
    double seconds;
    if (tx_cl_gemm_try(context, provider, trial, &seconds) == TX_OK)
        return seconds;
    context->gemm->failed = true;
    return 1e30;
}

/* Seconds on a mid-size product, once a context. */
static double calibrate(tx_context *context, const tx_cl_provider *provider)
{
    char key[96];
    snprintf(key, sizeof key, "pace %s", provider->name);
    record *r = find(context->gemm, key);
    if (!r) {
        const tx_cl_trial trial = {.batch = 1, .m = 512, .n = 512, .k = 512, .from = TX_F32, .to = TX_F32};
        double seconds = measure(context, provider, &trial);
        r = add(context->gemm, key, provider);
        if (!r)
            return seconds;
        r->seconds = seconds;
    }
    return r->seconds;
}

/* The fastest of the candidates. Where only one is not hopeless it is timed in tuning runs alone: their table says
 * rates; else *seconds is 0. */
static const tx_cl_provider *fastest(tx_context *context, const candidates *c, const tx_cl_trial *trial,
                                     double *seconds)
{
    double pace[TX_CL_PROVIDERS], best = 1e30;
    const tx_cl_provider *winner = c->provider[0];
    int left = context->tune != NULL;
    for (int i = 0; i < c->count; i++) {
        pace[i] = calibrate(context, c->provider[i]);
        best = pace[i] < best ? pace[i] : best;
    }
    const double limit = HOPELESS * best;
    for (int i = 0; i < c->count; i++) {
        if (pace[i] <= limit) {
            winner = c->provider[i];
            left++;
        }
    }
    *seconds = 0.0;
    for (int i = 0; left > 1 && i < c->count; i++) {
        const double now = pace[i] <= limit ? measure(context, c->provider[i], trial) : 1e30;
        if (now < 1e30 && (*seconds == 0.0 || now < *seconds)) {
            *seconds = now;
            winner = c->provider[i];
        }
    }
    return winner;
}

/* What the table says of a class: the provider, and its rate for people to read. */
static const tx_cl_provider *load_choice(tx_context *context, const char *key)
{
    const char *value = tx_cl_table_get(context, key);
    const tx_cl_provider *found = value ? tx_cl_gemm_named(value, strcspn(value, " ")) : NULL;
    return found && tx_cl_gemm_offers(context, found) ? found : NULL;
}

static void store_choice(tx_context *context, const char *key, const tx_cl_provider *provider, const tx_cl_trial *t,
                         double seconds)
{
    char value[128];
    const double work = 2e-9 * (double)t->m * (double)t->n * (double)t->k;
    const int used = snprintf(value, sizeof value, "%s", provider->name);
    if (seconds > 0.0)
        snprintf(value + used, sizeof value - (size_t)used, " %.1f GFLOP/s at %lld x %lld x %lld", work / seconds,
                 (long long)t->m, (long long)t->n, (long long)t->k);
    tx_cl_table_put(context, key, value);
}

static bool accepts(const tx_context *context, const tx_cl_provider *provider, const tx_cl_product *p)
{
    char why[TX_CL_WHY];
    return provider->suits(context, provider, p, why) > 0.0;
}

/* ---- Choice -------------------------------------------------------------------------------------------------- */

/* Leaves of the candidates those that pass their test: the first, or where they are to be measured all but the forms
 * that suit the product least. */
static tx_status trusted(tx_context *context, const tx_cl_product *p, bool measured, candidates *c)
{
    int kept = 0, forms = 0;
    for (int i = 0; i < c->count && (measured || kept == 0); i++) {
        const tx_cl_provider *provider = c->provider[i];
        const record *verdict;
        if (measured && !context->tune && provider->tile && ++forms > MEASURE_FORMS)
            continue;
        tx_status status = trust(context, provider, p, &verdict);
        if (status != TX_OK)
            return status;
        if (verdict->reason)
            snprintf(c->aside, sizeof c->aside, "%s is switched off: %s", provider->name, verdict->reason);
        else
            c->provider[kept++] = provider;
    }
    c->count = kept;
    if (kept > 0)
        return TX_OK;
    return *c->aside ? tx_fail(TX_DEVICE, "no provider of matrix products is right on this device: %s", c->aside)
                     : tx_fail(TX_UNSUPPORTED, "no provider of matrix products accepts this one");
}

/* At the beginning of a tuning run; that CLBlast's tuner gives up is no reason to go without the rest. On a CPU device
 * it would take nearly all of the run's time, and portable-vector stays faster than what it finds. */
static void tune_clblast(tx_context *context)
{
    tx_cl_gemm *s = context->gemm;
    if (!context->tune || s->tuned_clblast || context->info.type == TX_DEVICE_CPU)
        return;
    const double start = tx_cl_now();
    s->tuned_clblast = true;
    tx_cl_tell(context, "CLBlast's own parameters");
    const tx_status status = tx_cl_clblast_tune(context, CLBLAST_SHARE * context->tune->seconds);
    context->tune_spent += tx_cl_now() - start;
    tx_cl_tell(context, status ? tx_error() : "CLBlast's own parameters are found");
}

/* The fastest of the candidates, by the table or by measuring. */
static tx_status choose_measured(tx_context *context, const tx_cl_product *p, const char *class, candidates *c)
{
    tx_cl_gemm *s = context->gemm;
    const tx_gemm *g = &p->g;
    char key[TX_CL_CHOICE_KEY + 16];
    snprintf(key, sizeof key, "product %s", class);
    const tx_cl_provider *known = context->tune ? NULL : load_choice(context, key);
    if (known && accepts(context, known, p)) {
        const record *verdict;
        tx_status status = trust(context, known, p, &verdict);
        if (status != TX_OK)
            return status;
        if (!verdict->reason) {
            c->provider[0] = known;
            return TX_OK;
        }
    }
    tune_clblast(context);
    const double start = tx_cl_now(), budget = context->tune ? context->tune->seconds : MEASURE_SECONDS;
    const bool measured = c->provider[0]->rows == 0 && context->tune_spent <= budget;
    tx_status status = trusted(context, p, measured, c);
    if (status != TX_OK || !measured || (c->count == 1 && !context->tune))
        return status;
    const tx_cl_trial trial = {1,          cut(g->m), cut(g->n), cut(g->k), p->trans_a,
                               p->trans_b, false,     p->from,   p->to,     TX_STORE};
    double seconds;
    c->provider[0] = fastest(context, c, &trial, &seconds);
    context->tune_spent += tx_cl_now() - start;
    if (!s->failed) /* nothing for other runs to go by */
        store_choice(context, key, c->provider[0], &trial, seconds);
    tx_cl_tell(context, key);
    return TX_OK;
}

/* The provider that was chosen for this class before, which must be as good as it was then. */
static tx_status choose_again(tx_context *context, const tx_cl_product *p, const char *class,
                              const tx_cl_provider *provider)
{
    const record *verdict;
    if (!accepts(context, provider, p))
        return tx_fail(TX_UNSUPPORTED, "%s, chosen for matrix products %s, does not take them", provider->name, class);
    tx_status status = trust(context, provider, p, &verdict);
    if (status == TX_OK && verdict->reason)
        status = tx_fail(TX_DEVICE, "%s, chosen for matrix products %s, fails its test: %s", provider->name, class,
                         verdict->reason);
    return status;
}

static tx_status choose(tx_context *context, const tx_cl_product *p, candidates *c)
{
    const tx_cl_gemm *s = context->gemm;
    const tx_gemm *g = &p->g;
    *c = (candidates){.provider = {s->trial}};
    if (s->trial)
        return accepts(context, s->trial, p) ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s declines", s->trial->name);
    char class[TX_CL_CHOICE_KEY];
    snprintf(class, sizeof class, "%d%d %d %d %d %d %d %d%s", p->trans_a, p->trans_b, p->from, p->to, g->batch > 1,
             tx_cl_class_of(g->m), tx_cl_class_of(g->n), tx_cl_class_of(g->k),
             context->tf32 && p->from == TX_F32 ? " tf32" : "");
    put_in_order(context, p, c);
    const char *chosen = tx_cl_choice_find(context, class);
    if (chosen) {
        c->provider[0] = tx_cl_gemm_named(chosen, strlen(chosen));
        return choose_again(context, p, class, c->provider[0]);
    }
    if (c->count == 0)
        return tx_fail(TX_UNSUPPORTED, "no provider of matrix products accepts this one%s%s", *c->aside ? ": " : "",
                       c->aside);
    tx_status status = s->measure ? choose_measured(context, p, class, c) : trusted(context, p, false, c);
    return status == TX_OK ? tx_cl_choice_keep(context, class, c->provider[0]->name) : status;
}

tx_status tx_cl_gemm_choose(tx_context *context, const tx_cl_product *p, tx_cl_gemm_choice *choice)
{
    tx_cl_gemm *s;
    candidates list;
    tx_status status = state_of(context, &s);
    if (status == TX_OK)
        status = choose(context, p, &list);
    if (status != TX_OK)
        return status;
    choice->provider = list.provider[0];
    snprintf(choice->aside, sizeof choice->aside, "%s", list.aside);
    return TX_OK;
}
