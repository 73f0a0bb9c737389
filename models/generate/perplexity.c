/* SPDX-License-Identifier: Apache-2.0
 * Computes the logits of a sequence, and perplexity by windows. */
#include "models/generate/generate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tx_perplexity {
    tx_perplexity_options options;
    int64_t vocab;
    tx_graph *graph;
    tx_tensor *tokens, *labels, *losses;
    tx_plan *plan;
    int32_t *token, *label; /* [batch, max_length] */
    float *loss;
};

/* Tokens begin..end-1 of the text; the last `scored` of them are scored. */
typedef struct window {
    int64_t begin, end, scored;
} window;

static tx_status build(tx_model *model, const tx_config *config, tx_perplexity *p)
{
    const tx_shape shape = TX_SHAPE(p->options.batch, p->options.max_length);
    const size_t count = (size_t)tx_shape_count(&shape);
    p->token = malloc(count * sizeof *p->token);
    p->label = malloc(count * sizeof *p->label);
    p->loss = malloc(count * sizeof *p->loss);
    if (!p->token || !p->label || !p->loss)
        return tx_fail(TX_MEMORY, "perplexity: out of memory");
    TX_TRY(tx_graph_create(model, &p->graph));
    p->tokens = tx_input(p->graph, "input_ids", TX_I32, shape);
    p->labels = tx_input(p->graph, "labels", TX_I32, shape);
    tx_tensor *logits = tx_arch_logits(p->graph, config, NULL);
    p->losses = tx_output(tx_cross_entropy(logits, p->labels, config->vocab_size));
    return tx_plan_create(p->graph, "perplexity", &p->plan);
}

tx_status tx_perplexity_create(tx_model *model, const tx_config *config, const tx_perplexity_options *options,
                               tx_perplexity **perplexity)
{
    const tx_perplexity_options *o = options;
    if (config->architecture->head != TX_HEAD_CAUSAL_LM)
        return tx_fail(TX_UNSUPPORTED, "perplexity: %s cannot generate text", config->architecture->class_name);
    if (o->size != sizeof *o || o->batch < 1 || o->max_length < 2 || o->max_length > config->positions)
        return tx_fail(TX_INVALID,
                       "perplexity: %" PRId64 " windows of %" PRId64 " tokens: the model supports 2 to %" PRId64
                       " tokens",
                       o->batch, o->max_length, config->positions);
    if (o->stride < 1 || o->stride > o->max_length)
        return tx_fail(TX_INVALID,
                       "perplexity: a stride of %" PRId64 " is not in 1..%" PRId64 ", the length of a window",
                       o->stride, o->max_length);
    tx_perplexity *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "perplexity: out of memory");
    created->options = *o;
    created->vocab = config->vocab_size;
    tx_status status = build(model, config, created);
    return TX_RETURN(status, created, perplexity, tx_perplexity_free);
}

void tx_perplexity_free(tx_perplexity *perplexity)
{
    if (!perplexity)
        return;
    tx_plan_free(perplexity->plan);
    tx_graph_free(perplexity->graph);
    free(perplexity->token);
    free(perplexity->label);
    free(perplexity->loss);
    free(perplexity);
}

/* Moves to the window after `w`; {0} moves to the first. False after the last. */
static bool next_window(const tx_perplexity *p, int64_t count, int64_t index, window *w)
{
    if (w->end == count)
        return false;
    int64_t begin = index * p->options.stride, end = begin + p->options.max_length;
    end = end < count ? end : count;
    *w = (window){begin, end, end - w->end};
    return true;
}

/* Writes a window to row `row`. The label of a token is the next token if that one is scored. */
static void fill_row(const tx_perplexity *p, const int32_t *ids, const window *w, int64_t row)
{
    const int64_t length = p->options.max_length;
    for (int64_t t = 0; t < length; t++) {
        const int64_t at = w->begin + t;
        const bool follows = at + 1 < w->end && at + 1 >= w->end - w->scored;
        p->token[row * length + t] = at < w->end ? ids[at] : 0;
        p->label[row * length + t] = follows ? ids[at + 1] : TX_IGNORE_LABEL;
    }
}

/* Adds the losses and the number of a row's labels. */
static void add_row(const tx_perplexity *p, int64_t row, tx_perplexity_result *result)
{
    const int64_t length = p->options.max_length;
    for (int64_t i = row * length; i < (row + 1) * length; i++)
        if (p->label[i] != TX_IGNORE_LABEL) {
            result->loss += (double)p->loss[i];
            result->tokens++;
        }
}

static tx_status run_rows(const tx_perplexity *p)
{
    const size_t count = (size_t)(p->options.batch * p->options.max_length);
    TX_TRY(tx_plan_write(p->plan, p->tokens, p->token, count * sizeof *p->token));
    TX_TRY(tx_plan_write(p->plan, p->labels, p->label, count * sizeof *p->label));
    TX_TRY(tx_plan_run(p->plan));
    return tx_plan_read(p->plan, p->losses, p->loss, count * sizeof *p->loss);
}

tx_status tx_perplexity_run(tx_perplexity *perplexity, const int32_t *ids, int64_t count, tx_perplexity_result *result)
{
    const tx_perplexity *p = perplexity;
    if (count < 2)
        return tx_fail(TX_INVALID, "perplexity: %" PRId64 " tokens: at least 2 are needed", count);
    TX_TRY(tx_check_ids(ids, count, p->vocab));
    tx_perplexity_result r = {0};
    window w = {0}, none = {0};
    for (bool more = true; more;) {
        int64_t rows = 0;
        while (rows < p->options.batch && (more = next_window(p, count, r.windows, &w))) {
            fill_row(p, ids, &w, rows++);
            r.windows++;
        }
        for (int64_t row = rows; row < p->options.batch; row++)
            fill_row(p, ids, &none, row);
        if (rows > 0)
            TX_TRY(run_rows(p));
        for (int64_t row = 0; row < rows; row++)
            add_row(p, row, &r);
    }
    r.loss /= (double)r.tokens;
    r.perplexity = exp(r.loss);
    *result = r;
    return TX_OK;
}

/* ---- The forward pass over one sequence ------------------------------------------------------------------ */

struct tx_forward {
    tx_graph *graph;
    tx_tensor *tokens, *logits;
    tx_plan *plan;
    int64_t count, vocab;
    int64_t rows, columns, padded; /* of the logits; `padded` is the length of a row in memory */
    float *read;                   /* [rows, padded] */
};

static tx_status build_forward(tx_model *model, const tx_config *config, tx_forward *f)
{
    TX_TRY(tx_graph_create(model, &f->graph));
    f->tokens = tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(1, f->count));
    f->logits = tx_output(tx_arch_logits(f->graph, config, NULL));
    TX_TRY(tx_plan_create(f->graph, "forward", &f->plan));
    f->rows = tx_shape_rows(tx_tensor_shape(f->logits));
    f->padded = tx_shape_last(tx_tensor_shape(f->logits));
    f->read = malloc((size_t)(f->rows * f->padded) * sizeof *f->read);
    return f->read ? TX_OK : tx_fail(TX_MEMORY, "forward: no memory for the logits");
}

tx_status tx_forward_create(tx_model *model, const tx_config *config, int64_t count, tx_forward **forward)
{
    if (count < 1 || count > config->positions)
        return tx_fail(TX_INVALID, "%" PRId64 " tokens: the model supports 1 to %" PRId64, count, config->positions);
    tx_forward *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "forward: out of memory");
    created->count = count;
    created->vocab = config->vocab_size;
    created->columns = tx_arch_columns(config);
    tx_status status = build_forward(model, config, created);
    return TX_RETURN(status, created, forward, tx_forward_free);
}

void tx_forward_free(tx_forward *forward)
{
    if (!forward)
        return;
    tx_plan_free(forward->plan);
    tx_graph_free(forward->graph);
    free(forward->read);
    free(forward);
}

tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits)
{
    tx_forward *f = forward;
    TX_TRY(tx_check_ids(ids, f->count, f->vocab));
    TX_TRY(tx_plan_write(f->plan, f->tokens, ids, (size_t)f->count * sizeof *ids));
    TX_TRY(tx_plan_run(f->plan));
    TX_TRY(tx_plan_read(f->plan, f->logits, f->read, (size_t)(f->rows * f->padded) * sizeof *f->read));
    for (int64_t r = 0; r < f->rows; r++)
        memcpy(logits + r * f->columns, f->read + r * f->padded, (size_t)f->columns * sizeof *logits);
    return TX_OK;
}
