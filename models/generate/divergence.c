/* SPDX-License-Identifier: Apache-2.0
 * Compares the predictions of two models. */
#include "models/generate/lm.h"

#include "api/base/arithmetic.h"
#include "api/base/needs.h"
#include "models/generate/generate.h"
#include "models/generate/sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Default length of a window, as in llama-perplexity. */
#define WINDOW 512

/* Both models, and the logits of a window. */
typedef struct comparison {
    tx_forward *pass[2]; /* of the model and the reference */
    float *logits[2];
    int32_t *ids; /* of a window */
    int64_t length, vocab;
} comparison;

static tx_status create_pass(tx_lm *lm, comparison *c, int i)
{
    TX_TRY(tx_lm_create_model(lm, &(tx_lm_sizes){.tokens = c->length}));
    TX_TRY(tx_forward_create(lm->model, lm->config, c->length, &c->pass[i]));
    c->logits[i] = malloc((size_t)(c->length * c->vocab) * sizeof *c->logits[i]);
    return c->logits[i] ? tx_lm_load(lm) : tx_fail(TX_MEMORY, "no memory for logits");
}

static int64_t largest(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Adds the divergence at position `t`, whose next token is `next`. */
static void add_position(const comparison *c, int64_t t, int32_t next, tx_divergence *result)
{
    const float *own = c->logits[0] + t * c->vocab, *reference = c->logits[1] + t * c->vocab;
    const double own_sum = tx_log_sum(own, c->vocab), sum = tx_log_sum(reference, c->vocab);
    double divergence = 0;
    for (int64_t i = 0; i < c->vocab; i++) {
        const double log_p = (double)reference[i] - sum, log_q = (double)own[i] - own_sum;
        divergence += exp(log_p) * (log_p - log_q);
    }
    result->divergence += divergence;
    result->same += largest(own, c->vocab) == largest(reference, c->vocab);
    result->loss += own_sum - (double)own[next];
    result->reference_loss += sum - (double)reference[next];
    result->tokens++;
}

/* Windows follow each other. The first token of each is not scored. */
static tx_status run_windows(const comparison *c, const int32_t *ids, int64_t count, tx_divergence *result)
{
    for (int64_t begin = 0; begin + 1 < count; begin += c->length) {
        const int64_t here = tx_min(count - begin, c->length);
        memset(c->ids, 0, (size_t)c->length * sizeof *c->ids);
        memcpy(c->ids, ids + begin, (size_t)here * sizeof *ids);
        for (int i = 0; i < 2; i++)
            TX_TRY(tx_forward_run(c->pass[i], c->ids, c->logits[i]));
        for (int64_t t = 0; t + 1 < here; t++)
            add_position(c, t, c->ids[t + 1], result);
        result->windows++;
    }
    const double tokens = (double)result->tokens;
    result->divergence /= tokens;
    result->same /= tokens;
    result->loss /= tokens;
    result->reference_loss /= tokens;
    return TX_OK;
}

static tx_status check(const tx_lm *lm, const tx_lm *reference, int64_t count, int64_t length)
{
    const tx_lm *const both[] = {lm, reference};
    if (count < 2)
        return tx_fail(TX_INVALID, "divergence: %" PRId64 " tokens: at least 2 are needed", count);
    for (int i = 0; i < 2; i++)
        if (both[i]->config->architecture->head != TX_HEAD_CAUSAL_LM)
            return tx_fail(TX_UNSUPPORTED, "divergence: %s cannot generate text",
                           both[i]->config->architecture->class_name);
        else if (length < 2 || length > both[i]->config->positions)
            return tx_fail(TX_INVALID, "divergence: windows of %" PRId64 " tokens: the models support 2 to %" PRId64,
                           length, both[i]->config->positions);
    if (tx_arch_columns(lm->config) != tx_arch_columns(reference->config))
        return tx_fail(TX_INVALID, "divergence: the vocabularies have %" PRId64 " and %" PRId64 " tokens",
                       tx_arch_columns(lm->config), tx_arch_columns(reference->config));
    return TX_OK;
}

tx_status tx_lm_divergence(tx_lm *lm, tx_lm *reference, const int32_t *ids, int64_t count, int64_t max_length,
                           tx_divergence *result)
{
    TX_NEEDS(lm && reference && lm != reference && ids && result, TX_INVALID);
    const int64_t usual = tx_min(WINDOW, tx_min(lm->config->positions, reference->config->positions));
    comparison c = {.length = max_length ? max_length : usual, .vocab = tx_arch_columns(lm->config)};
    tx_divergence sums = {.max_length = c.length};
    TX_TRY(check(lm, reference, count, c.length));
    c.ids = malloc((size_t)c.length * sizeof *c.ids);
    tx_status status = c.ids ? create_pass(lm, &c, 0) : tx_fail(TX_MEMORY, "no memory for a window");
    TX_THEN(status, create_pass(reference, &c, 1));
    TX_THEN(status, run_windows(&c, ids, count, &sums));
    for (int i = 0; i < 2; i++) {
        tx_forward_free(c.pass[i]);
        free(c.logits[i]);
    }
    free(c.ids);
    if (!status)
        *result = sums;
    return status;
}
