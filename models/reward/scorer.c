/* SPDX-License-Identifier: Apache-2.0
 * The plans of a reward model, which share engine and memory with the plans of the model in training: their activations
 * lie in the same arena, and never live at the same time. */
#include "models/reward/reward.h"

#include "api/base/arithmetic.h"
#include "models/arch/labels.h"

#include <stdlib.h>
#include <string.h>

/* Lengths of texts that have plans: the greatest, and its halves. */
enum { LENGTHS = 4, LEAST = 16 };

typedef struct pass {
    int64_t length;
    tx_graph *graph;
    tx_tensor *ids, *types, *lengths, *last, *output;
    tx_plan *plan;
} pass;

struct tx_scorer {
    const tx_reward_model *model;
    int64_t rows;
    pass pass[LENGTHS]; /* from the greatest length to the least */
    int32_t passes;
    int64_t pad, columns; /* columns: of a row of outputs */
    /* A batch: ids and types [rows, length], numbers of tokens [rows], last tokens [rows, length], outputs [rows,
     * columns], and the probabilities of one row [labels]. */
    int32_t *ids, *types, *count;
    float *last, *output, *scores;
};

static tx_status build(tx_model *in, tx_scorer *s, tx_dtype products, pass *p)
{
    const tx_config *config = s->model->config;
    TX_TRY(tx_graph_create(in, &p->graph));
    TX_TRY(tx_graph_autocast(p->graph, products));
    p->ids = tx_input(p->graph, "input_ids", TX_I32, TX_SHAPE(s->rows, p->length));
    p->types = tx_input(p->graph, "token_type_ids", TX_I32, TX_SHAPE(s->rows, p->length));
    p->lengths = tx_input(p->graph, "attention_lengths", TX_I32, TX_SHAPE(s->rows));
    if (config->architecture->reads_last)
        p->last = tx_input(p->graph, "last_token", TX_F32, TX_SHAPE(s->rows, p->length));
    tx_tensor *y = tx_arch_logits(p->graph, config, NULL);
    p->output = tx_output(y && tx_tensor_dtype(y) != TX_F32 ? tx_cast(y, TX_F32) : y);
    s->columns = p->output ? tx_shape_count(tx_tensor_shape(p->output)) / s->rows : config->labels;
    return tx_plan_create(p->graph, "reward", &p->plan);
}

static tx_status prepare(tx_model *in, tx_dtype products, tx_scorer *s)
{
    const tx_reward_model *m = s->model;
    const size_t places = (size_t)(s->rows * m->most), labels = (size_t)m->config->labels;
    s->pad = tx_tokenizer_pad(m->tokenizer);
    s->ids = malloc(places * sizeof *s->ids);
    s->types = calloc(places, sizeof *s->types);
    s->last = malloc(places * sizeof *s->last);
    s->count = malloc((size_t)s->rows * sizeof *s->count);
    s->scores = malloc(labels * sizeof *s->scores);
    for (int64_t length = m->most; s->passes < LENGTHS && (s->passes == 0 || length >= LEAST); length /= 2) {
        s->pass[s->passes].length = length;
        TX_TRY(build(in, s, products, &s->pass[s->passes++]));
    }
    s->output = malloc((size_t)(s->rows * s->columns) * sizeof *s->output);
    return s->ids && s->types && s->last && s->count && s->output && s->scores
               ? TX_OK
               : tx_fail(TX_MEMORY, "no memory for a batch of a reward model");
}

tx_status tx_scorers_create(tx_model *in, tx_reward_model *const *models, int32_t count, int64_t rows,
                            tx_dtype products, tx_scorer *scorers[TX_REWARDS_MAX])
{
    for (int32_t i = 0; i < count; i++) {
        tx_scorer *s = scorers[i] = calloc(1, sizeof *s);
        if (!s)
            return tx_fail(TX_MEMORY, "no memory for a reward model");
        s->model = models[i];
        s->rows = rows;
        TX_TRY(tx_fail_in(prepare(in, products, s), "%s", models[i]->folder));
    }
    return TX_OK;
}

static void release(tx_scorer *s)
{
    for (int32_t i = 0; i < s->passes; i++) {
        tx_plan_free(s->pass[i].plan);
        tx_graph_free(s->pass[i].graph);
    }
    free(s->ids);
    free(s->types);
    free(s->last);
    free(s->count);
    free(s->output);
    free(s->scores);
    free(s);
}

void tx_scorers_free(tx_scorer *scorers[TX_REWARDS_MAX])
{
    for (int32_t i = 0; i < TX_REWARDS_MAX; i++)
        if (scorers[i])
            release(scorers[i]);
}

/* The plan of the least length that fits. */
static const pass *pass_for(const tx_scorer *s, int64_t longest)
{
    int32_t found = 0;
    while (found + 1 < s->passes && s->pass[found + 1].length >= longest)
        found++;
    return &s->pass[found];
}

/* Fills a batch with `count` texts from `first` on. Rows without a text have one token. */
static void fill(tx_scorer *s, const pass *p, const int32_t *ids, const int64_t *end, int64_t first, int64_t count)
{
    memset(s->ids, 0, (size_t)(s->rows * p->length) * sizeof *s->ids);
    for (int64_t r = 0; r < s->rows; r++) {
        const int64_t begin = r < count && first + r ? end[first + r - 1] : 0;
        int32_t *row = s->ids + r * p->length;
        s->count[r] = r < count ? (int32_t)(end[first + r] - begin) : 1;
        if (r < count)
            memcpy(row, ids + begin, (size_t)s->count[r] * sizeof *row);
        tx_mark_last_token(row, s->count[r], s->pad, p->length, s->last + r * p->length);
    }
}

static tx_status run(const tx_scorer *s, const pass *p)
{
    const size_t places = (size_t)(s->rows * p->length);
    TX_TRY(tx_plan_write(p->plan, p->ids, s->ids, places * sizeof *s->ids));
    TX_TRY(tx_plan_write(p->plan, p->types, s->types, places * sizeof *s->types));
    TX_TRY(tx_plan_write(p->plan, p->lengths, s->count, (size_t)s->rows * sizeof *s->count));
    if (p->last)
        TX_TRY(tx_plan_write(p->plan, p->last, s->last, places * sizeof *s->last));
    TX_TRY(tx_plan_run(p->plan));
    return tx_plan_read(p->plan, p->output, s->output, (size_t)(s->rows * s->columns) * sizeof *s->output);
}

/* The reward of a row of outputs. */
static double reward_of(const tx_scorer *s, const float *output)
{
    const tx_reward_model *m = s->model;
    if (m->label < 0)
        return (double)output[0];
    tx_label_scores(output, m->config->labels, m->config->problem == TX_PROBLEM_MULTI_LABEL, s->scores);
    return (double)s->scores[m->label];
}

tx_status tx_scorer_run(tx_scorer *s, const int32_t *ids, const int64_t *end, int64_t count, double *to, int64_t stride)
{
    for (int64_t first = 0; first < count; first += s->rows) {
        const int64_t rows = tx_min(count - first, s->rows);
        int64_t longest = 0;
        for (int64_t i = first; i < first + rows; i++)
            longest = tx_max(longest, end[i] - (i ? end[i - 1] : 0));
        const pass *p = pass_for(s, longest);
        fill(s, p, ids, end, first, rows);
        TX_TRY(run(s, p));
        for (int64_t r = 0; r < rows; r++)
            to[(first + r) * stride] = reward_of(s, s->output + r * s->columns);
    }
    return TX_OK;
}
