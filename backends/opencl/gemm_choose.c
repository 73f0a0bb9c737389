/* SPDX-License-Identifier: Apache-2.0
 * Which provider computes a product: the question to the tuner. */
#include "backends/opencl/gemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Products are measured with their dimensions cut to this, which bounds time and memory. */
#define MEASURED 4096

static bool begins(const char *name, const char *with)
{
    return *with && strncmp(name, with, strlen(with)) == 0;
}

/* TX_GEMM, "" where it is not set. */
static tx_status read_wish(const char **wish)
{
    const tx_cl_provider *provider;
    const char *wanted = getenv("TX_GEMM");
    *wish = wanted ? wanted : "";
    if (!**wish)
        return TX_OK;
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++)
        if (begins(provider->name, *wish))
            return TX_OK;
    return tx_fail(TX_INVALID,
                   "TX_GEMM=%s: it takes portable, portable-vector, portable-tile, portable-few, nvidia-mma or clblast",
                   *wish);
}

/* The device's providers: those asked for by name first, then those made for so few rows, which need no measuring. */
static void suggest(const tx_context *context, const tx_cl_product *p, const char *wish, tx_cl_question *q)
{
    const tx_cl_provider *provider;
    for (int i = 0; (provider = tx_cl_gemm_provider(i)) != NULL; i++) {
        char why[TX_CL_WHY] = "";
        if (!tx_cl_gemm_offers(context, provider))
            continue;
        double share = provider->suits(context, provider, p, why);
        if (share > 0.0)
            share += TX_CL_SURE * ((provider->rows > 0) + 2 * begins(provider->name, wish));
        tx_cl_suggest(q, i, provider->name, share, why);
    }
}

/* Two small products with known answers, one of odd dimensions and one of whole quads, in these types and transposes.
 */
static tx_status prove(tx_context *context, const tx_cl_question *q, int id)
{
    const tx_cl_product *p = q->user;
    const tx_cl_provider *provider = tx_cl_gemm_provider(id);
    const int64_t rows = provider->rows;
    const tx_cl_trial trials[2] = {
        {2, rows ? rows - 1 : 21, 61, 1237, p->trans_a, p->trans_b, true, p->from, p->to, TX_ADD},
        {1, rows ? rows : 68, 132, 44, p->trans_a, p->trans_b, false, p->from, p->to, TX_STORE},
    };
    tx_status status = TX_OK;
    for (int i = 0; !status && i < 2; i++)
        status = tx_cl_gemm_trial(context, provider->name, &trials[i], NULL);
    return status;
}

/* The product that is measured in the place of this one. */
static tx_cl_trial cut(const tx_cl_product *p)
{
    return (tx_cl_trial){.batch = 1,
                         .m = tx_cl_least(p->g.m, MEASURED),
                         .n = tx_cl_least(p->g.n, MEASURED),
                         .k = tx_cl_least(p->g.k, MEASURED),
                         .trans_a = p->trans_a,
                         .trans_b = p->trans_b,
                         .from = p->from,
                         .to = p->to};
}

static double work_of(const tx_cl_trial *t)
{
    return 2.0 * (double)t->m * (double)t->n * (double)t->k;
}

/* Seconds for so much work by the rate of a mid-size product, found out once a context. */
static tx_status estimate(tx_context *context, const char *name, double work, double *seconds)
{
    static const tx_cl_trial trial = {.batch = 1, .m = 512, .n = 512, .k = 512, .from = TX_F32, .to = TX_F32};
    char key[96], text[32];
    snprintf(key, sizeof key, "pace %s", name);
    if (!tx_cl_line_get(context->proofs, key, text, sizeof text)) {
        tx_status status = tx_cl_gemm_trial(context, name, &trial, seconds);
        if (status)
            return status;
        snprintf(text, sizeof text, "%.9g", *seconds);
        status = tx_cl_line_set(&context->proofs, key, text);
        if (status)
            return status;
    }
    *seconds = strtod(text, NULL) * work / work_of(&trial);
    return TX_OK;
}

static tx_status measure(tx_context *context, const tx_cl_question *q, int id, double hopeless, double *seconds)
{
    const char *name = tx_cl_gemm_provider(id)->name;
    const tx_cl_trial trial = cut(q->user);
    if (hopeless < INFINITY) {
        tx_status status = estimate(context, name, q->work, seconds);
        if (status || *seconds > hopeless)
            return status;
    }
    return tx_cl_gemm_trial(context, name, &trial, seconds);
}

static void describe(const tx_context *context, const tx_cl_product *p, tx_cl_question *q)
{
    const tx_gemm *g = &p->g;
    const tx_cl_trial t = cut(p);
    q->unsaid = (int)sizeof TX_CL_PRODUCT;
    q->proven = snprintf(q->key, sizeof q->key, TX_CL_PRODUCT " %d%d %d %d", p->trans_a, p->trans_b, p->from, p->to);
    snprintf(q->key + q->proven, sizeof q->key - (size_t)q->proven, " %d %d %d %d%s", g->batch > 1,
             tx_cl_class_of(g->m), tx_cl_class_of(g->n), tx_cl_class_of(g->k),
             context->tf32 && p->from == TX_F32 ? " tf32" : "");
    snprintf(q->sample, sizeof q->sample, "at %lld x %lld x %lld", (long long)t.m, (long long)t.n, (long long)t.k);
    q->work = work_of(&t);
}

tx_status tx_cl_gemm_choose(tx_context *context, const tx_cl_product *p, tx_cl_gemm_choice *choice)
{
    const char *wish, *tune = getenv("TX_GEMM_TUNE");
    tx_status status = read_wish(&wish);
    if (status)
        return status;
    tx_cl_question q = {.what = "provider of matrix products",
                        .fixed = *wish || (tune && strcmp(tune, "0") == 0),
                        .usual = 2,
                        .user = p,
                        .prove = prove,
                        .seconds = measure};
    const tx_cl_provider *provider;
    for (int i = 0; context->tune && !context->forced && !q.fixed && (provider = tx_cl_gemm_provider(i)) != NULL; i++)
        if (provider->tune)
            provider->tune(context);
    describe(context, p, &q);
    suggest(context, p, wish, &q);
    status = tx_cl_ask(context, &q);
    if (status)
        return status;
    choice->provider = tx_cl_gemm_provider(q.way[0].id);
    snprintf(choice->aside, sizeof choice->aside, "%s", q.aside);
    return TX_OK;
}
