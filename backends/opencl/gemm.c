/* SPDX-License-Identifier: Apache-2.0
 * Op MATMUL: which provider computes a product. */
#include "backends/opencl/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVIDERS 4
/* Measuring stops for good after this many seconds a context; what is then unmeasured takes the default order. */
#define MEASURE_SECONDS 4.0
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
    const tx_cl_provider *order[PROVIDERS]; /* NULL from the end of the device's list on */
    bool tried[PROVIDERS];                  /* those of the order that have been run */
    const tx_cl_provider *trial;            /* taken unasked, while a trial runs */
    bool measure, failed;                   /* failed: a measurement did */
    double spent;
    record *records;
};

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

/* The device's order, with the provider that TX_GEMM names in front. */
static tx_status fill_order(const tx_context *context, tx_cl_gemm *s)
{
    const tx_cl_provider *portable = context->limits.cpu ? &tx_cl_gemm_vector : &tx_cl_gemm_tile;
    const tx_cl_provider *first = NULL;
    const char *wanted = getenv("TX_GEMM"), *measure = getenv("TX_GEMM_TUNE");
    s->measure = !measure || strcmp(measure, "0") != 0;
    if (wanted && wanted[0]) {
        first = strcmp(wanted, "portable") == 0 ? portable : tx_cl_gemm_named(wanted, strlen(wanted));
        if (!first)
            return tx_fail(TX_INVALID,
                           "TX_GEMM=%s: it takes portable, portable-vector, portable-tile, portable-few or clblast",
                           wanted);
        s->measure = false;
    }
    /* Few rows have a kernel of their own, unless another is asked for by its name. Then CLBlast goes first on GPUs
     * until measured: its kernels have been tuned there. On CPUs it is far behind. */
    const bool by_name = first && strcmp(wanted, "portable") != 0;
    const tx_cl_provider *list[] = {by_name ? first : &tx_cl_gemm_few, by_name ? &tx_cl_gemm_few : first,
                                    context->limits.cpu ? portable : &tx_cl_gemm_clblast,
                                    context->limits.cpu ? &tx_cl_gemm_clblast : portable};
    int count = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        bool there = !list[i];
        for (int k = 0; k < count; k++)
            there = there || s->order[k] == list[i];
        if (!there)
            s->order[count++] = list[i];
    }
    return TX_OK;
}

static tx_status state_of(tx_context *context, tx_cl_gemm **state)
{
    if (!context->gemm) {
        tx_cl_gemm *s = calloc(1, sizeof *s);
        if (!s)
            return tx_fail(TX_MEMORY, "out of host memory");
        tx_status status = fill_order(context, s);
        if (status != TX_OK) {
            free(s);
            return status;
        }
        context->gemm = s;
    }
    *state = context->gemm;
    return TX_OK;
}

tx_status tx_cl_gemm_offers(tx_context *context, const tx_cl_provider *provider, bool *offered)
{
    tx_cl_gemm *s = NULL;
    tx_status status = state_of(context, &s);
    if (status != TX_OK)
        return status;
    *offered = false;
    for (int i = 0; i < PROVIDERS && s->order[i]; i++)
        *offered = *offered || s->order[i] == provider;
    return TX_OK;
}

void tx_cl_gemm_close(tx_context *context)
{
    tx_cl_gemm *s = context->gemm;
    if (!s)
        return;
    for (int i = 0; i < PROVIDERS; i++)
        if (s->tried[i] && s->order[i]->close)
            s->order[i]->close();
    for (record *r = s->records, *next; r; r = next) {
        next = r->next;
        free(r->reason);
        free(r);
    }
    free(s);
    context->gemm = NULL;
}

/* ---- Trust ------------------------------------------------------------------------------------------------ */

static tx_status try(tx_context *context, const tx_cl_provider *provider, const tx_cl_trial *trial, double *seconds)
{
    tx_cl_gemm *s = context->gemm;
    for (int i = 0; i < PROVIDERS; i++)
        s->tried[i] = s->tried[i] || s->order[i] == provider;
    s->trial = provider;
    tx_status status = tx_cl_gemm_trial(context, trial, seconds);
    s->trial = NULL;
    return status;
}

/* A provider that cannot be run or is wrong is switched off; want of memory says nothing about it. */
static tx_status judge(tx_context *context, const tx_cl_provider *provider, const char *key,
                       const tx_cl_trial trials[2], const record **out)
{
    tx_status status = TX_OK;
    for (int i = 0; status == TX_OK && i < 2; i++)
        status = try(context, provider, &trials[i], NULL);
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

/* The verdict on a provider for this combination of types and transposes: two small odd products with known answers,
 * once a context. (It also is the first call of CLBlast, which compiles then: that must not happen in two threads at
 * once.) */
static tx_status trust(tx_context *context, const tx_cl_provider *provider, const tx_cl_product *p, const record **out)
{
    char key[96];
    snprintf(key, sizeof key, "test %s %d%d %d %d", provider->name, p->trans_a, p->trans_b, p->from, p->to);
    const record *r = find(context->gemm, key);
    if (!r) {
        const int64_t rows = provider->rows;
        const tx_cl_trial trials[2] = {
            {2, rows ? rows - 1 : 21, 61, 1237, p->trans_a, p->trans_b, true, p->from, p->to, TX_ADD},
            {1, rows ? rows : 67, 35, 41, p->trans_a, p->trans_b, false, p->from, p->to, TX_STORE},
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

static int class_of(int64_t dimension)
{
    int bits = 0;
    for (dimension--; dimension > 0; dimension >>= 1)
        bits++;
    return bits;
}

/* Seconds of a provider on a trial; infinity where it fails. */
static double measure(tx_context *context, const tx_cl_provider *provider, const tx_cl_trial *trial)
{
    double seconds;
    if (try(context, provider, trial, &seconds) == TX_OK)
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

static const tx_cl_provider *fastest(tx_context *context, const tx_cl_provider *const *from, int count,
                                     const tx_cl_trial *trial)
{
    double pace[PROVIDERS], best = 1e30;
    const tx_cl_provider *winner = from[0];
    for (int i = 0; i < count; i++) {
        pace[i] = calibrate(context, from[i]);
        best = pace[i] < best ? pace[i] : best;
    }
    const double limit = HOPELESS * best;
    best = 1e30;
    int left = 0;
    for (int i = 0; i < count; i++) {
        if (pace[i] <= limit) {
            winner = from[i];
            left++;
        }
    }
    for (int i = 0; left > 1 && i < count; i++) {
        double seconds = pace[i] <= limit ? measure(context, from[i], trial) : 1e30;
        if (seconds < best) {
            best = seconds;
            winner = from[i];
        }
    }
    return winner;
}

static const tx_cl_provider *load_choice(const tx_context *context, const char *key, const tx_cl_provider *const *order)
{
    void *data;
    size_t size;
    const tx_cl_provider *found = NULL;
    if (!tx_cl_cache_load(context, key, &data, &size))
        return NULL;
    for (int i = 0; i < PROVIDERS && order[i]; i++)
        if (order[i] == tx_cl_gemm_named(data, size))
            found = order[i];
    free(data);
    return found;
}

/* ---- Choice -------------------------------------------------------------------------------------------------- */

/* Providers of the order that accept the product and passed; `off` keeps the record of one that did not. */
static tx_status candidates(tx_context *context, const tx_cl_product *p, int wanted, const tx_cl_provider **found,
                            int *count, const record **off)
{
    const tx_cl_gemm *s = context->gemm;
    *count = 0;
    for (int i = 0; i < PROVIDERS && s->order[i] && *count < wanted; i++) {
        if (!s->order[i]->accepts(context, p))
            continue;
        const record *verdict;
        tx_status status = trust(context, s->order[i], p, &verdict);
        if (status != TX_OK)
            return status;
        if (verdict->reason)
            *off = verdict;
        else
            found[(*count)++] = s->order[i];
    }
    if (*count > 0)
        return TX_OK;
    return *off ? tx_fail(TX_DEVICE, "no provider of matrix products is right on this device: %s", (*off)->reason)
                : tx_fail(TX_UNSUPPORTED, "no provider of matrix products accepts this one");
}

/* The fastest of the candidates, by the cache on disk or by measuring. */
static tx_status choose_measured(tx_context *context, const tx_cl_product *p, const char *class,
                                 const tx_cl_provider **out, const record **off)
{
    tx_cl_gemm *s = context->gemm;
    const tx_gemm *g = &p->g;
    const tx_cl_provider *found[PROVIDERS];
    char key[TX_CL_CHOICE_KEY + 16];
    int count;
    snprintf(key, sizeof key, "gemm choice 1 %s", class);
    const tx_cl_provider *cached = load_choice(context, key, s->order);
    if (cached && cached->accepts(context, p)) {
        const record *verdict;
        tx_status status = trust(context, cached, p, &verdict);
        if (status != TX_OK)
            return status;
        if (!verdict->reason) {
            *out = cached;
            return TX_OK;
        }
    }
    const double start = tx_cl_now();
    tx_status status = candidates(context, p, PROVIDERS, found, &count, off);
    if (status != TX_OK)
        return status;
    *out = found[0];
    if (count == 1 || found[0]->rows > 0 || s->spent > MEASURE_SECONDS)
        return TX_OK;
    const tx_cl_trial trial = {1,          cut(g->m), cut(g->n), cut(g->k), p->trans_a,
                               p->trans_b, false,     p->from,   p->to,     TX_STORE};
    *out = fastest(context, found, count, &trial);
    s->spent += tx_cl_now() - start;
    if (!s->failed) /* nothing for other runs to go by */
        tx_cl_cache_store(context, key, (*out)->name, strlen((*out)->name));
    return TX_OK;
}

/* The provider that was chosen for this class before, which must be as good as it was then. */
static tx_status choose_again(tx_context *context, const tx_cl_product *p, const char *class,
                              const tx_cl_provider *provider)
{
    const record *verdict;
    if (!provider->accepts(context, p))
        return tx_fail(TX_UNSUPPORTED, "%s, chosen for matrix products %s, does not take them", provider->name, class);
    tx_status status = trust(context, provider, p, &verdict);
    if (status == TX_OK && verdict->reason)
        status = tx_fail(TX_DEVICE, "%s, chosen for matrix products %s, fails its test: %s", provider->name, class,
                         verdict->reason);
    return status;
}

static tx_status choose(tx_context *context, const tx_cl_product *p, const tx_cl_provider **out, const record **off)
{
    const tx_cl_gemm *s = context->gemm;
    const tx_gemm *g = &p->g;
    if (s->trial) {
        *out = s->trial;
        return s->trial->accepts(context, p) ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s declines", s->trial->name);
    }
    char class[TX_CL_CHOICE_KEY];
    int count;
    snprintf(class, sizeof class, "%d%d %d %d %d %d %d %d", p->trans_a, p->trans_b, p->from, p->to, g->batch > 1,
             class_of(g->m), class_of(g->n), class_of(g->k));
    *out = tx_cl_choice_find(context, class);
    if (*out)
        return choose_again(context, p, class, *out);
    tx_status status =
        s->measure ? choose_measured(context, p, class, out, off) : candidates(context, p, 1, out, &count, off);
    return status == TX_OK ? tx_cl_choice_keep(context, class, *out) : status;
}

tx_status tx_cl_matmul(tx_cl_builder *b, const tx_command *c)
{
    const tx_cl_product p = {
        .g = tx_gemm_of(&c->attrs, &c->in[0].shape, &c->in[1].shape),
        .trans_a = c->attrs.trans_a,
        .trans_b = c->attrs.trans_b,
        .from = c->in[0].dtype,
        .to = c->out[0].dtype,
        .accumulate = c->attrs.accumulate,
        .a = &c->in[0],
        .b = &c->in[1],
        .bias = &c->in[2],
        .y = &c->out[0],
    };
    tx_cl_gemm *s;
    const tx_cl_provider *provider;
    const record *off = NULL;
    tx_status status = state_of(b->context, &s);
    if (status == TX_OK)
        status = choose(b->context, &p, &provider, &off);
    if (status != TX_OK)
        return status;
    char variant[256];
    if (off)
        snprintf(variant, sizeof variant, "%s (%s is switched off: %s)", provider->name, off->provider->name,
                 off->reason);
    else
        snprintf(variant, sizeof variant, "%s", provider->name);
    tx_cl_variant(b, variant);
    provider->emit(b, &p);
    return b->status;
}
