/* SPDX-License-Identifier: Apache-2.0
 *
 * The class of a matrix product for the autotuner: the properties that determine the fastest provider, and the tests
 * and measurements of providers.
 */
#include "backends/opencl/tune/trials.h"

#include "api/base/number.h"
#include "backends/nf4.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum dimensions of measured products, which bound time and memory. */
#define MEASURED 4096
#define MEASURED_GROUPS 8

#define PROOF_GROUPS 5

/* A unit of a GPU computes as many operations in about the time of a launch. Products of so many for each unit are not
 * measured: the choice matters less than the seconds that drivers need for the programs of the candidates. */
#define SMALL 2e6

/* Sets what selects the variant of a kernel, so that tests and measurements build the programs that `p` needs. */
static tx_cl_gemm_case like(const tx_cl_product *p, tx_cl_gemm_case t)
{
    t.op = p->op;
    t.trans_a = p->trans_a;
    t.trans_b = p->trans_b;
    t.from = p->from;
    t.to = p->to;
    t.packed = p->packed;
    t.bias = tx_present(p->bias) && !p->offsets;
    t.accumulate = p->accumulate == TX_STORE ? TX_STORE : TX_ADD;
    return t;
}

/* Tests small products with known answers, in the variant of `p` and with whole pieces of the provider. Tests with
 * n = 0 are skipped. The provider may decline some products, but not all. */
static tx_status try_all(const tx_cl_class *c, const tx_cl_provider *provider, int count, const tx_cl_gemm_case *trials)
{
    const tx_cl_product *p = c->q->user;
    const int64_t piece = tx_cl_blocks(provider->piece, (int64_t)tx_dtype_size(p->from));
    const int64_t unit = p->packed != TX_F32 ? TX_NF4_BLOCK : piece > 0 ? piece : 1;
    tx_status status = TX_UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        tx_cl_gemm_case t = like(p, trials[i]);
        if (t.n == 0)
            continue;
        t.batch = p->packed != TX_F32 || p->offsets ? 1 : t.batch;
        t.groups = p->offsets ? PROOF_GROUPS : 0;
        if (p->offsets && !p->trans_a) { /* some groups have several tiles, and TX_ADD is not supported */
            t.m *= 8;
            t.accumulate = TX_STORE;
        }
        t.m = provider->rows ? t.m : tx_cl_blocks(t.m, unit) * unit;
        t.n = tx_cl_blocks(t.n, unit) * unit;
        t.k = tx_cl_blocks(t.k, unit) * unit;
        const tx_status now = tx_cl_gemm_verify(c->b, provider->name, &t, NULL);
        if (now != TX_UNSUPPORTED)
            status = now;
        if (status != TX_OK && status != TX_UNSUPPORTED)
            return status;
    }
    return status;
}

/* Returns true if all rows are whole quads aligned to 16 bytes, as in most models. Kernels have separate forms for
 * such rows, so the other forms need not be built. */
static bool in_quads(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    return (g->m | g->n | g->k | g->lda | g->ldb | g->ldc | g->stride_a | g->stride_b | g->stride_c) % 4 == 0 &&
           (p->a->offset | p->b->offset | p->y->offset) % 16 == 0;
}

/* Dimensions of tests that are no whole quads: those of the product, or all if only its rows are not. */
typedef struct odd {
    bool m, n, k;
} odd;

static odd odd_of(const tx_cl_product *p)
{
    const odd found = {p->g.m % 4 != 0, p->g.n % 4 != 0, p->g.k % 4 != 0};
    return in_quads(p) || found.m || found.n || found.k ? found : (odd){true, true, true};
}

/* Returns the number of terms of a test: `many` if the provider splits the terms of `p`, or splits them by other rules
 * than those of tiles. */
static int64_t terms_of(const tx_context *context, const tx_cl_product *p, const tx_cl_provider *provider, int64_t few,
                        int64_t many)
{
    return provider->tile && !tx_cl_tile_splits(context, provider, p) ? few : many;
}

/* Adds the properties of the product that select other variants of the kernels. */
static void form_of(const tx_cl_class *c, int id, char text[TX_CL_FORM])
{
    const tx_cl_product *p = c->q->user;
    const odd o = odd_of(p);
    char rows[16] = "";
    if (tx_cl_gemm_provider(id)->rows)
        snprintf(rows, sizeof rows, " rows %d", (int)p->g.m);
    snprintf(text, TX_CL_FORM, "%s%s%s%s%s%s%s%s", rows, in_quads(p) ? " in quads" : " odd ", o.m ? "m" : "",
             o.n ? "n" : "", o.k ? "k" : "", tx_present(p->bias) ? " bias" : "",
             p->accumulate == TX_STORE ? "" : " adds",
             tx_cl_tile_splits(c->b->context, tx_cl_gemm_provider(id), p) ? " split" : "");
}

/* Tests four products. The first is a batch, with enough terms for split-k if `p` is split. The second is one product.
 * Both have the rows of `p` if the provider is for few rows. The third has more tiles than persistent work-groups. The
 * fourth has data that need all bits of fp32, for units of lower precision. Dimensions of the first three are odd if
 * those of `p` are, so that they need no other variants of the kernel. */
static tx_status prove(const tx_cl_class *c, int id)
{
    const tx_context *context = c->b->context;
    const tx_cl_provider *provider = tx_cl_gemm_provider(id);
    const tx_cl_product *p = c->q->user;
    const odd o = odd_of(p);
    const int64_t rows = provider->rows ? p->g.m : 0, many = tx_cl_gemm_columns(context, provider);
    const tx_cl_gemm_case trials[] = {
        {.batch = 2, .m = rows ? rows : 20 + o.m, .n = 60 + o.n, .k = terms_of(context, p, provider, 236, 1236) + o.k},
        {.batch = 1, .m = rows ? rows : 68 + o.m, .n = 132 + o.n, .k = 44 + o.k},
        {.batch = 1, .m = 20 + o.m, .n = many > 0 ? many + o.n : 0, .k = 172 + o.k},
        {.batch = 1, .m = 64, .n = provider->full ? 64 : 0, .k = 4096, .rough = true},
    };
    return try_all(c, provider, 4, trials);
}

/* Tests the epilogue without and with split-k. */
static tx_status prove_epilogue(const tx_cl_class *c, int id)
{
    const tx_cl_product *p = c->q->user;
    const tx_cl_provider *provider = tx_cl_gemm_provider(id);
    const odd o = odd_of(p);
    const tx_cl_gemm_case whole = {.batch = 1,
                                   .m = provider->rows ? p->g.m : 68 + o.m,
                                   .n = 132 + o.n,
                                   .k = 44 + o.k,
                                   .epilogue = p->epilogue,
                                   .exact = p->exact};
    tx_cl_gemm_case trials[] = {whole, whole};
    trials[1].k = terms_of(c->b->context, p, provider, whole.k, 1100 + o.k);
    return try_all(c, provider, 1 + (trials[1].k > whole.k), trials);
}

/* Returns the product that is measured instead of this one. It has a few of its groups, with as many rows or terms
 * each. */
static tx_cl_gemm_case cut(const tx_cl_product *p)
{
    const int64_t groups = p->offsets ? tx_cl_least(p->g.batch, MEASURED_GROUPS) : 0;
    const int64_t of = groups > 0 ? p->g.batch : 1, some = groups > 0 ? groups : 1;
    const tx_cl_gemm_case t = {.batch = 1,
                               .m = tx_cl_least(p->trans_a ? p->g.m : tx_cl_blocks(p->g.m * some, of), MEASURED),
                               .n = tx_cl_least(p->g.n, MEASURED),
                               .k = tx_cl_least(p->trans_a ? tx_cl_blocks(p->g.k * some, of) : p->g.k, MEASURED),
                               .groups = groups};
    return like(p, t);
}

static double work_of(const tx_cl_gemm_case *t)
{
    return 2.0 * (double)t->m * (double)t->n * (double)t->k;
}

/* Estimates the time from the rate of a mid-size product of this variant, which is measured once for each context. */
static tx_status estimate(const tx_cl_class *c, const char *name, double *seconds)
{
    const tx_cl_product *p = c->q->user;
    const odd o = odd_of(p);
    const tx_cl_gemm_case trial =
        like(p, (tx_cl_gemm_case){.batch = 1, .m = 512 + o.m, .n = 512 + o.n, .k = 512 + o.k});
    char key[96], text[32], **proofs = &c->b->context->tuner->proofs;
    snprintf(key, sizeof key, "pace %d%d %d %d %d %d%d %d%d%d %s", p->trans_a, p->trans_b, p->from, p->packed, p->to,
             trial.bias, trial.accumulate != TX_STORE, o.m, o.n, o.k, name);
    if (!tx_cl_line_get(*proofs, key, text, sizeof text)) {
        TX_TRY(tx_cl_gemm_verify(c->b, name, &trial, seconds));
        if (c->b->ahead)
            return TX_OK;
        tx_format(text, sizeof text, "%.9g", *seconds);
        TX_TRY(tx_cl_line_set(proofs, key, text));
    }
    *seconds = tx_number_read(text, NULL) * c->work / work_of(&trial);
    return TX_OK;
}

static tx_status measure(const tx_cl_class *c, int id, double give_up_after, double *seconds)
{
    const char *name = tx_cl_gemm_provider(id)->name;
    const tx_cl_gemm_case trial = cut(c->q->user);
    if (give_up_after < INFINITY) {
        tx_status status = estimate(c, name, seconds);
        if (status || *seconds > give_up_after)
            return status;
    }
    return tx_cl_gemm_verify(c->b, name, &trial, seconds);
}

/* Returns the number of elements of the largest piece, up to 16 bytes, of which all rows of a and b consist. Some
 * providers support only whole pieces. */
static int64_t piece_of(const tx_cl_product *p)
{
    const tx_gemm *g = &p->g;
    const int64_t size = (int64_t)tx_dtype_size(p->from);
    const int64_t all = g->m | g->n | g->k | g->lda | g->ldb | g->stride_a | g->stride_b | p->a->offset / size |
                        p->b->offset / size | 16 / size;
    return all & -all;
}

void tx_cl_gemm_class(tx_cl_class *c)
{
    const tx_context *context = c->b->context;
    const tx_cl_product *p = c->q->user;
    const tx_gemm *g = &p->g;
    const tx_cl_gemm_case t = cut(p);
    const int64_t piece = piece_of(p);
    char pieces[16] = "", groups[16] = "";
    if (piece * (int64_t)tx_dtype_size(p->from) < 16)
        snprintf(pieces, sizeof pieces, " by %d", (int)piece);
    c->omitted = (int)sizeof TX_CL_PRODUCT;
    c->proven = snprintf(c->key, sizeof c->key, TX_CL_PRODUCT " %d%d %d %d", p->trans_a, p->trans_b, p->from, p->to);
    if (p->packed != TX_F32)
        c->proven += snprintf(c->key + c->proven, sizeof c->key - (size_t)c->proven, " %s", tx_dtype_name(p->packed));
    if (p->offsets) {
        c->proven += snprintf(c->key + c->proven, sizeof c->key - (size_t)c->proven, " groups");
        snprintf(groups, sizeof groups, " %d", tx_cl_class_of(g->batch));
    }
    snprintf(c->key + c->proven, sizeof c->key - (size_t)c->proven, "%s %d %d %d %d%s%s", groups, g->batch > 1,
             tx_cl_class_of(g->m), tx_cl_class_of(g->n), tx_cl_class_of(g->k), pieces,
             context->tf32 && p->from == TX_F32 ? " tf32" : "");
    snprintf(c->sample, sizeof c->sample, "at %lld x %lld x %lld", (long long)t.m, (long long)t.n, (long long)t.k);
    c->work = work_of(&t);
    c->fixed = *context->gemm || context->tuner->unmeasured;
    c->usual = !context->limits.cpu && c->work <= SMALL * context->limits.compute_units ? 0 : 2;
    c->comparable = p->from != TX_F32 && !context->limits.cpu; /* no library computes it */
    c->form = form_of;
    c->prove = prove;
    c->seconds = measure;
}

tx_status tx_cl_gemm_fuse(tx_cl_class *c)
{
    const tx_cl_product *p = c->q->user;
    const tx_cl_candidate *candidate = &c->q->candidate[0];
    bool right = true;
    if (p->epilogue == TX_EPILOGUE_NONE || !tx_cl_gemm_provider(candidate->id)->epilogues)
        return TX_OK;
    c->prove = prove_epilogue;
    c->proven += snprintf(c->key + c->proven, sizeof c->key - (size_t)c->proven, " e%d%d", (int)p->epilogue, p->exact);
    tx_status status = tx_cl_verify(c, candidate, &right);
    c->q->unfused = !right;
    return status;
}
