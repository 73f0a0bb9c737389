/* SPDX-License-Identifier: Apache-2.0
 * Forward passes over texts in batches, sorted by length. */
#include "models/generate/passes.h"

#include "api/base/arithmetic.h"
#include "models/arch/labels.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_BATCH 32

/* A compiled forward pass over `rows` texts of up to `length` tokens. */
struct tx_pass {
    int64_t rows, length, used; /* `used` is the number of the last run */
    tx_graph *graph;
    tx_tensor *ids, *types, *lengths, *values, *output;
    tx_plan *plan;
    int64_t columns, of_row; /* columns of the output in memory, and its values for each text */
    int32_t *id, *type, *count;
    float *value;
};

static void free_pass(tx_pass *p)
{
    if (!p)
        return;
    tx_plan_free(p->plan);
    tx_graph_free(p->graph);
    free(p->id);
    free(p->type);
    free(p->count);
    free(p->value);
    free(p);
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

tx_status tx_passes_open(const tx_lm_options *options, tx_passes *passes)
{
    tx_lm_options o = *options;
    o.batch_size = o.batch_size ? o.batch_size : DEFAULT_BATCH;
    return tx_lm_open(&o, &passes->lm);
}

tx_status tx_passes_begin(tx_passes *passes, int64_t most)
{
    const int64_t positions = passes->lm->config->positions;
    TX_TRY(tx_lm_open_tokenizer(passes->lm));
    passes->pad = tx_pad_token(passes->lm->config);
    passes->pad = passes->pad < 0 ? tx_tokenizer_pad(passes->lm->tokenizer) : passes->pad;
    most = most ? most : tx_tokenizer_limit(passes->lm->tokenizer);
    passes->most = most && most < positions ? most : positions;
    TX_TRY(tx_joiner_open(passes->lm->tokenizer, &passes->joiner));
    tx_joiner_follow(&passes->joiner, passes->lm->config->architecture->type);
    return tx_joiner_check(&passes->joiner, true, passes->most);
}

void tx_passes_close(tx_passes *passes)
{
    for (int i = 0; i < TX_PASSES_PLANS; i++)
        free_pass(passes->pass[i]);
    tx_joiner_close(&passes->joiner);
    tx_lm_free(passes->lm);
    free(passes->ids.id);
    free(passes->types.id);
    free(passes->text);
    free(passes->output);
    *passes = (tx_passes){0};
}

/* ---- Plans --------------------------------------------------------------------------------------------- */

/* Rounds a length up, by at most a quarter, so that few plans serve all lengths. */
static int64_t round_length(int64_t count, int64_t most)
{
    int64_t unit = 8;
    while (unit * 8 < count)
        unit *= 2;
    const int64_t rounded = tx_round_up(count, unit);
    return rounded < most ? rounded : most;
}

/* Rounds a number of rows up to a power of two, at most `batch`. */
static int64_t round_rows(int64_t count, int64_t batch)
{
    int64_t rows = 1;
    while (rows < count)
        rows *= 2;
    return rows < batch ? rows : batch;
}

/* The values of a row that select its output: those of the pooling, or last_token of a decoder's classifier. */
static int64_t values_of(const tx_passes *s, int64_t length)
{
    return s->pooling ? tx_pooling_values(s->pooling, length) : s->lm->config->architecture->reads_last ? length : 0;
}

static tx_status build(const tx_passes *s, tx_pass *p)
{
    const tx_config *config = s->lm->config;
    const int64_t values = values_of(s, p->length);
    const size_t places = (size_t)(p->rows * p->length);
    p->id = malloc(places * sizeof *p->id);
    p->type = malloc(places * sizeof *p->type);
    p->count = malloc((size_t)p->rows * sizeof *p->count);
    p->value = malloc((size_t)(p->rows * values + 1) * sizeof *p->value);
    if (!p->id || !p->type || !p->count || !p->value)
        return tx_fail(TX_MEMORY, "no memory for a batch of %zu tokens", places);
    TX_TRY(tx_graph_create(s->lm->model, &p->graph));
    p->ids = tx_input(p->graph, "input_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->types = tx_input(p->graph, "token_type_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->lengths = tx_input(p->graph, "attention_lengths", TX_I32, TX_SHAPE(p->rows));
    p->values =
        values ? tx_input(p->graph, s->pooling ? "pooling" : "last_token", TX_F32, TX_SHAPE(p->rows, values)) : NULL;
    tx_tensor *y = tx_arch_logits(p->graph, config, NULL);
    p->output = tx_output(s->pooling ? tx_pooling_graph(p->graph, s->pooling, y) : y);
    TX_TRY(tx_plan_create(p->graph, "forward", &p->plan));
    p->columns = tx_shape_last(tx_tensor_shape(p->output));
    p->of_row = tx_shape_count(tx_tensor_shape(p->output)) / p->rows;
    return TX_OK;
}

/* Finds the plan of a shape, or compiles it instead of the one that was used least recently. */
static tx_status find_pass(tx_passes *s, int64_t rows, int64_t length, tx_pass **found)
{
    int oldest = 0;
    for (int i = 0; i < TX_PASSES_PLANS; i++) {
        const tx_pass *p = s->pass[i];
        if (p && p->rows == rows && p->length == length) {
            *found = s->pass[i];
            return TX_OK;
        }
        if (!p || (s->pass[oldest] && p->used < s->pass[oldest]->used))
            oldest = i;
    }
    free_pass(s->pass[oldest]);
    s->pass[oldest] = NULL;
    tx_pass *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for a plan");
    created->rows = rows;
    created->length = length;
    const tx_status status = build(s, created);
    TX_TRY(TX_RETURN(status, created, &s->pass[oldest], free_pass));
    *found = s->pass[oldest];
    return TX_OK;
}

/* ---- Texts --------------------------------------------------------------------------------------------- */

void tx_passes_clear(tx_passes *passes)
{
    passes->ids.count = passes->types.count = passes->texts = 0;
}

tx_status tx_passes_add(tx_passes *passes, int64_t prompt)
{
    tx_passes *s = passes;
    const struct tx_pass_text *last = s->texts ? &s->text[s->texts - 1] : NULL;
    const size_t begin = last ? last->begin + (size_t)last->count : 0;
    const int64_t count = (int64_t)(s->ids.count - begin);
    if (count == 0)
        return tx_fail(TX_INVALID, "text %zu has no tokens", s->texts + 1);
    TX_TRY(tx_check_ids(s->ids.id + begin, count, s->lm->config->vocab_size));
    TX_TRY(tx_array_reserve(&s->text, &s->room, s->texts + 1, sizeof *s->text, "texts"));
    s->text[s->texts] = (struct tx_pass_text){begin, count, prompt, (int64_t)s->texts};
    s->texts++;
    return TX_OK;
}

static void fill(const tx_passes *s, const struct tx_pass_text *text, int64_t count, const tx_pass *p)
{
    memset(p->id, 0, (size_t)(p->rows * p->length) * sizeof *p->id);
    memset(p->type, 0, (size_t)(p->rows * p->length) * sizeof *p->type);
    for (int64_t r = 0; r < p->rows; r++) {
        const struct tx_pass_text *t = r < count ? &text[r] : NULL;
        float *value = p->value + r * values_of(s, p->length);
        p->count[r] = t ? (int32_t)t->count : 1;
        if (t) {
            memcpy(p->id + r * p->length, s->ids.id + t->begin, (size_t)t->count * sizeof *p->id);
            memcpy(p->type + r * p->length, s->types.id + t->begin, (size_t)t->count * sizeof *p->type);
        }
        if (s->pooling)
            tx_pooling_fill(s->pooling, p->length, p->count[r], t ? t->prompt : 0, value);
        else if (p->values)
            tx_mark_last_token(p->id + r * p->length, p->count[r], s->pad, p->length, value);
    }
}

static tx_status run_plan(const tx_passes *s, const tx_pass *p)
{
    const size_t places = (size_t)(p->rows * p->length);
    TX_TRY(tx_plan_write(p->plan, p->ids, p->id, places * sizeof *p->id));
    TX_TRY(tx_plan_write(p->plan, p->types, p->type, places * sizeof *p->type));
    TX_TRY(tx_plan_write(p->plan, p->lengths, p->count, (size_t)p->rows * sizeof *p->count));
    if (p->values)
        TX_TRY(tx_plan_write(p->plan, p->values, p->value,
                             (size_t)tx_shape_count(tx_tensor_shape(p->values)) * sizeof *p->value));
    TX_TRY(tx_plan_run(p->plan));
    return tx_plan_read(p->plan, p->output, s->output, (size_t)(p->rows * p->of_row) * sizeof *s->output);
}

/* Computes `count` texts, of which the first is the longest. */
static tx_status run_batch(tx_passes *s, const struct tx_pass_text *text, int64_t count, tx_passes_take *take,
                           void *context)
{
    tx_pass *p = NULL;
    TX_TRY(tx_lm_create_model(s->lm, &(tx_lm_sizes){.tokens = s->most}));
    TX_TRY(find_pass(s, round_rows(count, s->lm->batch), round_length(text->count, s->most), &p));
    p->used = ++s->used;
    TX_TRY(tx_lm_load(s->lm));
    TX_TRY(tx_array_reserve(&s->output, &s->output_room, (size_t)(p->rows * p->of_row), sizeof *s->output,
                            "results of a batch"));
    fill(s, text, count, p);
    TX_TRY(run_plan(s, p));
    for (int64_t r = 0; r < count; r++)
        take(context, text[r].index, s->output + r * p->of_row);
    return TX_OK;
}

/* The longest text first; equal ones in their order. */
static int by_length(const void *a, const void *b)
{
    const struct tx_pass_text *one = a, *other = b;
    const int64_t longer = other->count - one->count, later = one->index - other->index;
    return longer ? (longer > 0) - (longer < 0) : (later > 0) - (later < 0);
}

tx_status tx_passes_run(tx_passes *passes, tx_passes_take *take, void *context)
{
    tx_passes *s = passes;
    const int64_t texts = (int64_t)s->texts, batch = s->lm->batch;
    if (texts)
        qsort(s->text, s->texts, sizeof *s->text, by_length);
    for (int64_t at = 0; at < texts; at += batch)
        TX_TRY(run_batch(s, s->text + at, texts - at < batch ? texts - at : batch, take, context));
    return TX_OK;
}
