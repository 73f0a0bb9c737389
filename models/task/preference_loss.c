/* SPDX-License-Identifier: Apache-2.0
 * The losses of preferences, by the names and formulas of TRL's DPOTrainer. A log-ratio is the model's log-probability
 * of a completion minus the reference's; delta is the chosen log-ratio minus the rejected one. */
#include "models/task/preference.h"

/* ---- Numbers for each pair ------------------------------------------------------------------------------ */

/* The constant [left, right]. */
static tx_tensor *two(tx_graph *graph, float left, float right)
{
    tx_tensor *right_only =
        tx_gather(tx_fill(graph, TX_SHAPE(1, 1), right - left), tx_range(graph, TX_SHAPE(2), -1, 1));
    return tx_add(tx_reshape(right_only, TX_SHAPE(2)), tx_fill(graph, TX_SHAPE(2), left));
}

/* left * column 0 + right * column 1 of x [n, 2]: [n]. */
static tx_tensor *mix(tx_graph *graph, tx_tensor *x, float left, float right)
{
    if (!x)
        return NULL;
    tx_tensor *weights = tx_broadcast(two(graph, left, right), *tx_tensor_shape(x), TX_AXIS_ROWS);
    return tx_reduce(tx_mul(x, weights), TX_REDUCE_SUM, TX_AXIS_LAST);
}

/* The columns a and b [n]: [n, 2]. */
static tx_tensor *join(tx_graph *graph, tx_tensor *a, tx_tensor *b)
{
    if (!a || !b)
        return NULL;
    const tx_shape shape = TX_SHAPE(tx_shape_count(tx_tensor_shape(a)), 2);
    return tx_add(tx_mul(tx_broadcast(a, shape, TX_AXIS_LAST), tx_broadcast(two(graph, 1, 0), shape, TX_AXIS_ROWS)),
                  tx_mul(tx_broadcast(b, shape, TX_AXIS_LAST), tx_broadcast(two(graph, 0, 1), shape, TX_AXIS_ROWS)));
}

static tx_tensor *plus(tx_graph *graph, tx_tensor *x, float number)
{
    return x ? tx_add(x, tx_fill(graph, *tx_tensor_shape(x), number)) : NULL;
}

static tx_tensor *square(tx_tensor *x)
{
    return tx_mul(x, x);
}

/* -log sigmoid(x) = log(1 + exp(-x)), the cross-entropy of the logits x and 0. */
static tx_tensor *nls(tx_graph *graph, tx_tensor *x)
{
    if (!x)
        return NULL;
    const tx_shape shape = TX_SHAPE(tx_shape_count(tx_tensor_shape(x)), 2);
    tx_tensor *logits =
        tx_mul(tx_broadcast(x, shape, TX_AXIS_LAST), tx_broadcast(two(graph, 1, 0), shape, TX_AXIS_ROWS));
    return tx_cross_entropy(logits, tx_range(graph, *tx_tensor_shape(x), 0, 0), 2);
}

static tx_tensor *sigmoid(tx_graph *graph, tx_tensor *x)
{
    return plus(graph, tx_scale(tx_tanh(tx_scale(x, 0.5f)), 0.5f), 0.5f);
}

/* 1 if x > 0, else 0, without a gradient. The tangent of a large number is exactly -1 or 1. */
static tx_tensor *is_positive(tx_tensor *x)
{
    const float large = 1e30f;
    tx_tensor *sign = tx_tanh(tx_scale(tx_detach(x), large));
    return tx_detach(tx_scale(tx_add(square(sign), sign), 0.5f));
}

/* ---- The losses ----------------------------------------------------------------------------------------- */

/* The numbers of a batch, from which a loss is made. */
typedef struct batch {
    tx_graph *graph;
    float beta, smoothing;
    tx_tensor *ratio;           /* log-ratios [n, 2] */
    tx_tensor *chosen, *reject; /* their columns [n] */
    tx_tensor *delta;           /* [n] */
    tx_tensor *average;         /* delta of the log-ratios for each token [n] */
} batch;

static tx_tensor *sigmoid_loss(const batch *b)
{
    return nls(b->graph, tx_scale(b->delta, b->beta));
}

static tx_tensor *hinge_loss(const batch *b)
{
    return tx_relu(plus(b->graph, tx_scale(b->delta, -b->beta), 1.0f));
}

static tx_tensor *ipo_loss(const batch *b)
{
    return square(plus(b->graph, b->average, -1.0f / (2.0f * b->beta)));
}

/* ((1 - s) nls(x) - s nls(-x)) / (1 - 2 s), where x = beta delta and nls(-x) = nls(x) + x. */
static tx_tensor *robust_loss(const batch *b)
{
    return tx_add(sigmoid_loss(b), tx_scale(b->delta, -b->beta * b->smoothing / (1.0f - 2.0f * b->smoothing)));
}

static tx_tensor *bco_pair_loss(const batch *b)
{
    return tx_add(nls(b->graph, tx_scale(b->chosen, b->beta)), nls(b->graph, tx_scale(b->reject, -b->beta)));
}

static tx_tensor *nca_pair_loss(const batch *b)
{
    tx_tensor *both =
        tx_add(nls(b->graph, tx_scale(b->chosen, -b->beta)), nls(b->graph, tx_scale(b->reject, -b->beta)));
    return tx_add(nls(b->graph, tx_scale(b->chosen, b->beta)), tx_scale(both, 0.5f));
}

static tx_tensor *sppo_hard_loss(const batch *b)
{
    return tx_add(square(plus(b->graph, b->chosen, -0.5f / b->beta)),
                  square(plus(b->graph, b->reject, 0.5f / b->beta)));
}

static tx_tensor *apo_zero_loss(const batch *b)
{
    return tx_add(sigmoid(b->graph, tx_scale(b->chosen, -b->beta)), sigmoid(b->graph, tx_scale(b->reject, b->beta)));
}

static tx_tensor *apo_down_loss(const batch *b)
{
    return tx_add(sigmoid(b->graph, tx_scale(b->chosen, b->beta)), sigmoid(b->graph, tx_scale(b->delta, -b->beta)));
}

static tx_tensor *sigmoid_norm_loss(const batch *b)
{
    return nls(b->graph, tx_scale(b->average, b->beta));
}

static tx_tensor *(*const losses[])(const batch *) = {[TX_LOSS_TYPE_NLL] = sigmoid_loss,
#define X(NAME, name) [TX_LOSS_TYPE_##NAME] = name##_loss,
                                                      TX_LOSS_TYPE_MAP(X)
#undef X
};

/* ---- From logits to the loss ---------------------------------------------------------------------------- */

/* The log-probabilities of the completions of each pair [n, 2]. */
static tx_tensor *logps_of(tx_graph *graph, const tx_config *config, tx_tensor *logits)
{
    if (!logits)
        return NULL;
    tx_tensor *labels = tx_find_input(graph, "completion_labels");
    tx_tensor *sums = tx_reduce(tx_cross_entropy(logits, labels, config->vocab_size), TX_REDUCE_SUM, TX_AXIS_LAST);
    return tx_scale(tx_reshape(sums, TX_SHAPE(tx_tensor_shape(labels)->dim[0] / 2, 2)), -1.0f);
}

/* Adds the batch's numbers to the results that tx_preference_logged names. Rows without a pair add 0. */
static void log_means(const batch *b, tx_tensor *rewards, tx_tensor *logps)
{
    if (!rewards || !logps)
        return;
    const tx_shape one = TX_SHAPE(tx_tensor_shape(rewards)->dim[0], 1);
    tx_tensor *margin = tx_detach(tx_scale(b->delta, b->beta));
    const struct {
        tx_tensor *x;
        tx_result first;
    } added[] = {{rewards, TX_RESULT_TASK_0},
                 {tx_reshape(is_positive(margin), one), TX_RESULT_TASK_2},
                 {tx_reshape(margin, one), TX_RESULT_TASK_3},
                 {logps, TX_RESULT_TASK_4}};
    for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)
        if (added[i].x)
            tx_add_means_to_results(added[i].x, added[i].first);
}

tx_tensor *tx_preference_loss(tx_graph *graph, const tx_config *config, const tx_preferring *how, tx_tensor **rows)
{
    batch b = {.graph = graph, .beta = (float)how->set->beta, .smoothing = (float)how->set->label_smoothing};
    tx_tensor *logps = logps_of(graph, config, how->output), *labels = tx_find_input(graph, "labels");
    tx_tensor *reference =
        how->reference ? tx_detach(logps_of(graph, config, how->reference)) : tx_find_input(graph, "reference_logps");
    const bool has = tx_preference_has_reference(how->set);
    b.ratio = has ? tx_add(logps, tx_scale(reference, -1.0f)) : logps;
    b.chosen = mix(graph, b.ratio, 1, 0);
    b.reject = mix(graph, b.ratio, 0, 1);
    b.delta = mix(graph, b.ratio, 1, -1);
    b.average = mix(graph, tx_mul(b.ratio, tx_find_input(graph, "completion_shares")), 1, -1);
    tx_tensor *loss = losses[how->set->loss_type](&b);
    tx_tensor *rewards = tx_detach(tx_scale(b.ratio, b.beta)), *plain = tx_detach(logps);
    if (!loss || !rewards || !plain)
        return NULL;
    if (how->train)
        log_means(&b, rewards, plain);
    const int64_t pairs = tx_tensor_shape(rewards)->dim[0];
    *rows = tx_reshape(join(graph, tx_reshape(rewards, TX_SHAPE(2 * pairs)), tx_reshape(plain, TX_SHAPE(2 * pairs))),
                       TX_SHAPE(pairs, 4));
    /* Rows without a pair have the weight 0, the result of a gather by a negative index. */
    tx_tensor *weight = tx_gather(tx_fill(graph, TX_SHAPE(1, 1), 1.0f), labels);
    return tx_mean_loss(tx_mul(loss, tx_reshape(weight, TX_SHAPE(pairs))));
}

bool tx_preference_has_reference(const tx_job_settings *set)
{
    return !set->reference_free;
}
