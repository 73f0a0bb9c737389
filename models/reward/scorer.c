/* SPDX-License-Identifier: Apache-2.0
 * The plans of a reward model, which share engine and memory with the plans of the model in training: their activations
 * lie in the same arena, and never live at the same time. */
#include "models/reward/reward.h"

#include "api/base/arithmetic.h"
#include "models/arch/labels.h"
#include "models/arch/pass.h"

#include <stdlib.h>

/* Lengths of texts that have plans: the greatest, and its halves. */
enum { LENGTHS = 4, LEAST = 16 };

struct tx_scorer {
    const tx_reward_model *model;
    int64_t rows;
    tx_pass *pass[LENGTHS]; /* from the greatest length to the least */
    int64_t length[LENGTHS];
    int32_t passes;
    float *scores; /* the probabilities of one text [labels] */
};

static tx_status prepare(tx_model *in, tx_dtype autocast, tx_scorer *s)
{
    const tx_reward_model *m = s->model;
    const tx_pass_spec spec = {.model = in,
                               .config = m->config,
                               .pad = tx_tokenizer_pad(m->tokenizer), /* as TRL sets it */
                               .autocast = autocast,
                               .name = "reward"};
    for (int64_t length = m->most; s->passes < LENGTHS && (s->passes == 0 || length >= LEAST); length /= 2) {
        TX_TRY(tx_pass_create(&spec, s->rows, length, &s->pass[s->passes]));
        s->length[s->passes++] = length;
    }
    s->scores = malloc((size_t)m->config->labels * sizeof *s->scores);
    return s->scores ? TX_OK : tx_fail(TX_MEMORY, "no memory for the scores of a reward model");
}

tx_status tx_scorers_create(tx_model *in, tx_reward_model *const *models, int32_t count, int64_t rows,
                            tx_dtype autocast, tx_scorer *scorers[TX_REWARDS_MAX])
{
    for (int32_t i = 0; i < count; i++) {
        tx_scorer *s = scorers[i] = calloc(1, sizeof *s);
        if (!s)
            return tx_fail(TX_MEMORY, "no memory for a reward model");
        s->model = models[i];
        s->rows = rows;
        TX_TRY(tx_fail_in(prepare(in, autocast, s), "%s", models[i]->folder));
    }
    return TX_OK;
}

static void release(tx_scorer *s)
{
    for (int32_t i = 0; i < s->passes; i++)
        tx_pass_free(s->pass[i]);
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
static tx_pass *pass_for(const tx_scorer *s, int64_t longest)
{
    int32_t found = 0;
    while (found + 1 < s->passes && s->length[found + 1] >= longest)
        found++;
    return s->pass[found];
}

/* The tokens of text i: see tx_scorer_run. */
static tx_pass_text text_of(const int32_t *ids, const int64_t *end, int64_t i)
{
    const int64_t begin = i ? end[i - 1] : 0;
    return (tx_pass_text){.ids = ids + begin, .count = end[i] - begin};
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
        const float *output;
        int64_t longest = 0, width;
        for (int64_t i = first; i < first + rows; i++)
            longest = tx_max(longest, text_of(ids, end, i).count);
        tx_pass *p = pass_for(s, longest);
        for (int64_t r = 0; r < s->rows; r++)
            tx_pass_set(p, r, r < rows ? text_of(ids, end, first + r) : (tx_pass_text){0});
        TX_TRY(tx_pass_run(p, &output, &width));
        for (int64_t r = 0; r < rows; r++)
            to[(first + r) * stride] = reward_of(s, output + r * width);
    }
    return TX_OK;
}
