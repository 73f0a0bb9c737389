/* SPDX-License-Identifier: Apache-2.0
 * From the logits of a batch of preferences to its loss and its metrics; and the same of reward models, by the formulas
 * and names of TRL's RewardTrainer. */
#include "models/task/preference.h"

#include "models/arch/labels.h"

#include <math.h>

/* ---- The numbers of a batch ------------------------------------------------------------------------------- */

/* The losses of the tokens of all sequences [2 n, T]. */
static tx_tensor *token_losses(tx_graph *graph, int64_t vocab, tx_tensor *logits)
{
    return logits ? tx_cross_entropy(logits, tx_find_input(graph, "completion_labels"), vocab) : NULL;
}

/* The log-probabilities of the completions, given the losses of the tokens [n, 2]. */
static tx_tensor *logps_of(tx_graph *graph, tx_tensor *tokens)
{
    return tx_scale(tx_preference_sums(tx_mul(tokens, tx_find_input(graph, "completion_weights"))), -1.0f);
}

/* The derivative of the f-divergence at exp(ratio), which replaces the log-ratio (Wang et al., f-DPO, 2024). */
static tx_tensor *scores_of(tx_graph *graph, const tx_job_settings *set, tx_tensor *ratio)
{
    const float power = (float)set->f_alpha - 1.0f, most = 80.0f; /* e^80 is finite */
    if (!ratio)
        return NULL;
    tx_tensor *x = NULL;
    switch (set->f_divergence) {
    case TX_DIVERGENCE_FORWARD_KL: /* 1 - e^-r */
        return tx_preference_plus(graph, tx_scale(tx_exponential(tx_scale(ratio, -1.0f)), -1.0f), 1.0f);
    case TX_DIVERGENCE_JS_DIVERGENCE: /* log 2 + log sigmoid(r) */
        x = tx_preference_nls(graph, tx_reshape(ratio, TX_SHAPE(tx_shape_count(tx_tensor_shape(ratio)))));
        return tx_preference_plus(graph, tx_reshape(tx_scale(x, -1.0f), *tx_tensor_shape(ratio)), 0.693147181f);
    case TX_DIVERGENCE_ALPHA_DIVERGENCE: /* (e^((a - 1) r) - 1) / (a - 1), of r at a = 1 */
        if (fabsf(power) < 1e-6f)
            return ratio;
        x = tx_relu(tx_preference_plus(graph, tx_scale(ratio, -power), most));
        x = tx_exponential(tx_preference_plus(graph, tx_scale(x, -1.0f), most));
        return tx_scale(tx_preference_plus(graph, x, -1.0f), 1.0f / power);
    default:
        return ratio;
    }
}

/* Sets the log-probabilities and the statistics from the losses of the tokens of the model. As in TRL, CPO's are those
 * of all tokens, ORPO's those of all labels. */
static void sum_up(tx_preference_batch *b, tx_tensor *tokens, int64_t vocab, bool averages)
{
    const char *measured = b->method == TX_PREFERENCE_CPO ? "input_ids" : "completion_labels";
    b->counts = tx_preference_counts(b->graph, "completion_labels", vocab);
    b->measured = tx_preference_counts(b->graph, measured, vocab);
    b->labels = tx_scale(tx_preference_sums(tokens), -1.0f);
    b->logps = logps_of(b->graph, tokens);
    tx_token_statistics(tokens, tx_find_input(b->graph, measured), b->statistics);
    for (int32_t i = 0; i < TX_TOKEN_STATISTICS; i++)
        b->statistics[i] = tx_preference_sums(b->statistics[i]);
    if (averages)
        b->logps = tx_mul(b->logps, tx_find_input(b->graph, "completion_shares"));
}

/* The rewards of CPO divided by beta: log-probabilities, or (1 - p^-alpha) / alpha (Gupta et al., AlphaPO, 2025). */
static tx_tensor *cpo_rewards(const tx_preference_batch *b)
{
    const float alpha = (float)b->set->alphapo;
    if (b->method != TX_PREFERENCE_CPO || !(fabsf(alpha) > 0.0f))
        return b->logps;
    tx_tensor *power = tx_exponential(tx_scale(b->logps, -alpha));
    return tx_scale(tx_preference_plus(b->graph, tx_scale(power, -1.0f), 1.0f), 1.0f / alpha);
}

/* The log-odds of the completions [n, 2]: x - ln(1 - e^x) of a probability e^x. A completion without tokens has x = 0,
 * a pole, so x is -1 instead. */
static tx_tensor *log_odds(const tx_preference_batch *b)
{
    tx_graph *graph = b->graph;
    tx_tensor *tokens = tx_preference_sums(tx_find_input(graph, "completion_weights")),
              *x = tx_add(b->logps, tx_preference_plus(graph, tx_preference_is_positive(tokens), -1.0f)),
              *rest = tx_preference_plus(graph, tx_scale(tx_exponential(x), -1.0f), 1.0f);
    return tx_add(x, tx_scale(tx_logarithm(rest), -1.0f));
}

/* Sets the numbers of KTO. Its divergence is the mean log-ratio of completions for the prompts of other rows, if that
 * is positive, over a micro-batch of a rank. It has no gradient. */
static void estimate_kl(tx_preference_batch *b)
{
    b->desirable = tx_find_input(b->graph, "desirable");
    tx_tensor *sum = tx_mul(tx_preference_mix(b->graph, tx_detach(b->ratio), 0, 1), b->weight);
    tx_tensor *mean = b->weight ? tx_preference_quotient(b->graph, sum, b->weight) : NULL;
    b->kl = mean ? tx_detach(tx_broadcast(tx_relu(mean), *tx_tensor_shape(b->weight), TX_AXIS_ALL)) : NULL;
}

/* Sets the numbers that compare the two sequences of a row. */
static void compare(tx_preference_batch *b)
{
    tx_graph *graph = b->graph;
    tx_tensor *ratio = b->ratio       ? b->ratio
                       : b->reference ? tx_add(b->logps, tx_scale(b->reference, -1.0f))
                                      : cpo_rewards(b);
    b->ratio = ratio;
    b->chosen = tx_preference_mix(graph, ratio, 1, 0);
    if (b->method == TX_PREFERENCE_KTO) {
        estimate_kl(b);
        return;
    }
    tx_tensor *scores = scores_of(graph, b->set, ratio);
    b->reject = tx_preference_mix(graph, ratio, 0, 1);
    b->delta = tx_preference_mix(graph, scores, 1, -1);
    if (b->method == TX_PREFERENCE_DPO)
        b->average = tx_preference_mix(graph, tx_mul(scores, tx_find_input(graph, "completion_shares")), 1, -1);
    if (b->method == TX_PREFERENCE_ORPO)
        b->odds = tx_preference_mix(graph, log_odds(b), 1, -1);
    if (b->method == TX_PREFERENCE_ORPO || (b->method == TX_PREFERENCE_CPO && b->set->cpo_alpha > 0.0))
        b->nll = tx_preference_nll(b);
}

/* ---- The loss --------------------------------------------------------------------------------------------- */

/* The columns of the metrics, in the order of preference.c. Returns their number. KTO's chosen completions are those
 * of desirable rows, its rejected ones those of the other rows. */
static int32_t columns_of(const tx_preference_batch *b, tx_tensor *columns[TX_SUMS_MAX])
{
    tx_graph *graph = b->graph;
    const bool kto = b->method == TX_PREFERENCE_KTO;
    const float own = kto ? 1 : 0, other = 1 - own; /* the column of rejected completions */
    tx_tensor *rewards = tx_scale(b->ratio, b->beta), *margin = tx_preference_mix(graph, rewards, 1, -1),
              *logits = b->statistics[TX_TOKEN_MEAN_LOGIT], *entropy = b->statistics[TX_TOKEN_ENTROPY],
              *chosen = kto ? b->desirable : b->weight,
              *rejected = kto ? tx_add(b->weight, tx_scale(b->desirable, -1.0f)) : b->weight;
    int32_t count = 0;
    columns[count++] = tx_preference_mix(graph, b->logps, 1, 0);
    columns[count++] = tx_preference_mix(graph, b->logps, 0, 1);
    columns[count++] = tx_mul(tx_preference_mix(graph, rewards, 1, 0), chosen);
    columns[count++] = tx_mul(tx_preference_mix(graph, rewards, own, other), rejected);
    columns[count++] = tx_preference_token_mean(graph, logits, b->measured, 1, 0, chosen);
    columns[count++] = tx_preference_token_mean(graph, logits, b->measured, own, other, rejected);
    columns[count++] = kto ? b->kl : tx_preference_is_positive(margin);
    if (b->method & (TX_PREFERENCE_DPO | TX_PREFERENCE_KTO))
        columns[count++] = tx_preference_token_mean(graph, entropy, b->measured, 1, other, b->weight);
    if (b->method == TX_PREFERENCE_DPO)
        columns[count++] =
            tx_preference_token_mean(graph, b->statistics[TX_TOKEN_IS_TOP], b->measured, 1, 0, b->weight);
    if (kto) {
        columns[count++] = b->desirable;
        columns[count++] = tx_mul(columns[0], b->desirable);
    }
    if (b->method & (TX_PREFERENCE_CPO | TX_PREFERENCE_ORPO))
        columns[count++] = b->nll ? b->nll : tx_scale(margin, 0.0f);
    if (b->method == TX_PREFERENCE_ORPO) {
        columns[count++] = tx_scale(tx_preference_nls(graph, b->odds), -1.0f);
        columns[count++] = b->odds;
    }
    return count;
}

tx_tensor *tx_preference_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    tx_graph *graph = of->graph;
    const int64_t vocab = of->config->vocab_size;
    tx_preference_losses losses;
    tx_preference_batch b = {.graph = graph,
                             .set = of->set,
                             .method = tx_preference_of(of->task)->method,
                             .beta = (float)of->set->beta,
                             .weight = tx_task_row_weights(graph)};
    if (tx_graph_fail(graph, tx_preference_read(of->task, of->set, &losses)))
        return NULL;
    tx_tensor *tokens = token_losses(graph, vocab, of->output), *columns[TX_SUMS_MAX];
    sum_up(&b, tokens, vocab, losses.type[0]->traits & TX_PREFERENCE_AVERAGES);
    if (!b.logps)
        return NULL;
    if (of->second) {
        tx_tensor *others = tx_detach(token_losses(graph, vocab, of->second));
        b.reference = logps_of(graph, others);
        b.ratio = logps_of(graph, tx_add(tokens, tx_scale(others, -1.0f)));
    } else if (tx_preference_has_reference(of->task, of->set))
        b.reference = tx_find_input(graph, "reference_logps");
    compare(&b);
    tx_tensor *loss = tx_preference_sum(&b, &losses);
    if (b.nll)
        loss = tx_add(loss, b.method == TX_PREFERENCE_CPO ? tx_scale(b.nll, (float)of->set->cpo_alpha) : b.nll);
    *rows = tx_preference_join(graph, columns, columns_of(&b, columns), b.weight);
    return tx_mean_loss(tx_mul(loss, b.weight));
}

bool tx_preference_has_reference(const tx_task *task, const tx_job_settings *set)
{
    return tx_preference_compares(task) && !set->reference_free;
}

const tx_field tx_reward_fields[] = {
    [TX_REWARD_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN, .sequences = 2},
    [TX_REWARD_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1, .sequences = 2},
    [TX_REWARD_LAST] = {"last_token", TX_F32, TX_FIELD_BLOCK, .padding = 0, .sequences = 2},
    [TX_REWARD_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_REWARD_MARGIN] = {"margin", TX_F32, .padding = 0},
    {.name = NULL},
};

tx_status tx_reward_row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_preference_data *d = samples->data;
    const int64_t block = samples->block;
    for (int64_t i = 0; i < 2; i++) {
        const int64_t begin = tx_sample_begin(d->end, 2 * number + i), length = d->end[2 * number + i] - begin;
        int32_t *ids = (int32_t *)to->field[TX_REWARD_INPUT_IDS] + i * block;
        TX_TRY(tx_store_read(&d->from.ids, begin, length, ids));
        tx_field_pad(&tx_reward_fields[TX_REWARD_INPUT_IDS], ids + length, block - length);
        ((int32_t *)to->field[TX_REWARD_LENGTHS])[i] = (int32_t)length;
        tx_mark_last_token(ids, length, d->pad, block, (float *)to->field[TX_REWARD_LAST] + i * block);
    }
    *(int32_t *)to->field[TX_REWARD_LABELS] = 0;
    *(float *)to->field[TX_REWARD_MARGIN] = d->value[number];
    return TX_OK;
}

/* ---- The loss --------------------------------------------------------------------------------------------- */

/* The columns of the metrics. As in TRL, the least and the greatest reward are those of a micro-batch. */
enum { LEAST, REWARD, GREATEST, ACCURACY, MARGIN, COLUMNS };

/* The greatest element of x [n, 2] in rows of weight 1, for each row [n]. */
static tx_tensor *greatest(tx_graph *graph, tx_tensor *x, tx_tensor *weight)
{
    const float far = 1e30f;
    if (!x || !weight)
        return NULL;
    tx_tensor *penalty = tx_scale(tx_preference_plus(graph, weight, -1.0f), far);
    tx_tensor *most =
        tx_reduce(tx_add(x, tx_broadcast(penalty, *tx_tensor_shape(x), TX_AXIS_LAST)), TX_REDUCE_MAX, TX_AXIS_ALL);
    return tx_broadcast(most, *tx_tensor_shape(weight), TX_AXIS_ALL);
}

/* -log sigmoid(chosen - rejected - margin), plus the coefficient times the square of the rewards' sum. */
tx_tensor *tx_reward_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    tx_graph *graph = of->graph;
    const float coefficient = (float)of->set->center_rewards;
    if (!of->output)
        return NULL;
    const int64_t n = tx_shape_count(tx_tensor_shape(of->output)) / 2;
    tx_tensor *rewards = tx_reshape(of->output, TX_SHAPE(n, 2)), *weight = tx_task_row_weights(graph);
    tx_tensor *delta = tx_preference_mix(graph, rewards, 1, -1), *sum = tx_preference_mix(graph, rewards, 1, 1);
    tx_tensor *loss = tx_preference_nls(graph, tx_add(delta, tx_scale(tx_find_input(graph, "margin"), -1.0f)));
    if (coefficient > 0.0f)
        loss = tx_add(loss, tx_scale(tx_mul(sum, sum), coefficient));
    tx_tensor *fixed = tx_detach(rewards);
    tx_tensor *const columns[COLUMNS] = {
        [LEAST] = tx_scale(greatest(graph, tx_scale(fixed, -1.0f), weight), -1.0f),
        [REWARD] = tx_scale(tx_detach(sum), 0.5f),
        [GREATEST] = greatest(graph, fixed, weight),
        [ACCURACY] = tx_preference_is_positive(delta),
        [MARGIN] = delta,
    };
    *rows = tx_preference_join(graph, columns, COLUMNS, weight);
    return tx_mean_loss(tx_mul(loss, weight));
}

/* ---- The task --------------------------------------------------------------------------------------------- */

const tx_metric tx_reward_metrics[] = {TX_METRIC_LOSS,
                                       {"eval_min_reward", true, .column = LEAST},
                                       {"eval_mean_reward", true, .column = REWARD},
                                       {"eval_max_reward", true, .column = GREATEST},
                                       {"eval_accuracy", true, .column = ACCURACY},
                                       {"eval_margin", true, .column = MARGIN},
                                       {.name = NULL}};
