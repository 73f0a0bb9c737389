/* SPDX-License-Identifier: Apache-2.0
 * From the logits of completions to the loss of a policy and its metrics, by the formulas of TRL 1.16
 * (GRPOTrainer._compute_loss): DeepSeekMath's GRPO (Shao et al., 2024), DAPO (Yu et al., 2025), Dr. GRPO (Liu et al.,
 * 2025), GSPO (Zheng et al., 2025), CISPO (MiniMax-M1, 2025), SAPO (Gao et al., 2025). */
#include "models/task/policy.h"
#include "models/task/preference.h"

#include <string.h>

static const tx_policy_type types[] = {
    {"dapo", TX_POLICY_ALL_TOKENS, TX_POLICY_CLIPPED},     {"grpo", TX_POLICY_SEQUENCES, TX_POLICY_CLIPPED},
    {"bnpo", TX_POLICY_MICRO_BATCH, TX_POLICY_CLIPPED},    {"dr_grpo", TX_POLICY_CONSTANT, TX_POLICY_CLIPPED},
    {"cispo", TX_POLICY_ALL_TOKENS, TX_POLICY_CISPO},      {"sapo", TX_POLICY_SEQUENCES, TX_POLICY_SAPO},
    {"luspo", TX_POLICY_SEQUENCE_SUMS, TX_POLICY_CLIPPED},
};
enum { TYPES = sizeof types / sizeof types[0] };
static const tx_policy_type rloo_type = {"rloo", TX_POLICY_SEQUENCES, TX_POLICY_CLIPPED};

tx_status tx_policy_read(const tx_task *task, const tx_job_settings *set, const tx_policy_type **type)
{
    char list[128] = "";
    const char *name = set->loss_type ? set->loss_type : types[0].name;
    if (task->one_out) {
        *type = &rloo_type;
        return set->loss_type ? tx_fail(TX_INVALID, "--loss_type: rloo has only one loss: leave it out") : TX_OK;
    }
    for (int32_t i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name) == 0) {
            *type = &types[i];
            return TX_OK;
        }
        tx_list_add(list, sizeof list, i + 1 < TYPES ? ", " : " or ", "%s", types[i].name);
    }
    return tx_fail(TX_INVALID, "--loss_type %s: must be %s", name, list);
}

/* ---- Parts ------------------------------------------------------------------------------------------------ */

/* The tensors of a micro-batch of n rows whose completions have at most T tokens. */
typedef struct batch {
    tx_graph *graph;
    const tx_task *task;
    const tx_job_settings *set;
    const tx_policy_type *type;
    tx_shape shape;       /* [n, T] */
    tx_tensor *mask;      /* [n, T] */
    tx_tensor *logps;     /* [n, T]: log-probabilities of the labels, 0 after them */
    tx_tensor *entropy;   /* [n, T] */
    tx_tensor *ratio;     /* [n, T] */
    tx_tensor *clipped;   /* [n, T]: the ratio, at most --delta */
    tx_tensor *kl;        /* [n, T]; NULL without a reference */
    tx_tensor *advantage; /* [n, T] */
} batch;

/* A number of each row [n]. */
static tx_tensor *number(const batch *b, int32_t which)
{
    tx_tensor *all = tx_find_input(b->graph, "row_numbers");
    const int64_t n = b->shape.dim[0];
    tx_tensor *table = tx_reshape(all, TX_SHAPE(n * TX_POLICY_NUMBERS, 1));
    return tx_reshape(tx_gather(table, tx_range(b->graph, TX_SHAPE(n), which, TX_POLICY_NUMBERS)), TX_SHAPE(n));
}

/* A number of each row, or x [n], at each of its positions [n, T]. */
static tx_tensor *spread(const batch *b, tx_tensor *x)
{
    return x ? tx_broadcast(x, b->shape, TX_AXIS_LAST) : NULL;
}

static tx_tensor *plus(const batch *b, tx_tensor *x, double number)
{
    return tx_preference_plus(b->graph, x, (float)number);
}

static tx_tensor *minus(tx_tensor *x, tx_tensor *y)
{
    return tx_add(x, tx_scale(y, -1.0f));
}

/* The lesser of x and a number; the greater one; the lesser of x and y. With equal operands, x gets the gradient. */
static tx_tensor *at_most(const batch *b, tx_tensor *x, double number)
{
    return minus(x, tx_relu(plus(b, x, -number)));
}

static tx_tensor *at_least(const batch *b, tx_tensor *x, double number)
{
    return tx_add(x, tx_relu(plus(b, tx_scale(x, -1.0f), number)));
}

static tx_tensor *lesser(tx_tensor *x, tx_tensor *y)
{
    return minus(x, tx_relu(minus(x, y)));
}

static double upper(const tx_job_settings *set)
{
    return set->clip_high > 0.0 ? set->clip_high : set->clip_low;
}

/* ---- The loss --------------------------------------------------------------------------------------------- */

/* The ratios of the probabilities to those at generation. */
static void compare(batch *b)
{
    tx_tensor *old = tx_policy_is_current(b->set) ? tx_detach(b->logps) : tx_find_input(b->graph, "old_logps");
    tx_tensor *log = minus(b->logps, old);
    if (tx_policy_by_sequence(b->task, b->set)) {
        tx_tensor *sum = tx_reduce(log, TX_REDUCE_SUM, TX_AXIS_LAST); /* both are 0 outside the mask */
        log = spread(b, tx_mul(sum, number(b, TX_POLICY_RATIO_SHARE)));
    }
    b->ratio = tx_exponential(log);
    b->clipped = b->set->delta > 0.0 ? at_most(b, b->ratio, b->set->delta) : b->ratio;
    if (b->task->one_out || !(b->set->beta > 0.0))
        return;
    tx_tensor *d = minus(tx_find_input(b->graph, "reference_logps"), b->logps);
    tx_tensor *k3 = plus(b, minus(tx_exponential(d), d), -1.0);
    b->kl = b->set->bias_correction_kl ? tx_mul(k3, b->ratio) : k3;
}

/* The losses of the tokens, without the divergence. */
static tx_tensor *token_losses(const batch *b)
{
    const tx_job_settings *set = b->set;
    tx_tensor *a = b->advantage, *x = NULL;
    switch (b->type->form) {
    case TX_POLICY_CISPO: /* the bound is epsilon_high itself */
        x = tx_mul(tx_mul(tx_detach(at_most(b, b->ratio, upper(set))), a), b->logps);
        break;
    case TX_POLICY_SAPO: { /* temperature 1 for positive advantages, else 1.05 */
        tx_tensor *better = tx_preference_is_positive(a);
        tx_tensor *t = plus(b, tx_scale(better, -0.05f), 1.05),
                  *inverse = plus(b, tx_scale(better, 4.0f - 4.0f / 1.05f), 4.0 / 1.05);
        x = tx_mul(tx_mul(tx_preference_sigmoid(b->graph, tx_mul(t, plus(b, b->ratio, -1.0))), inverse), a);
        break;
    }
    default: {
        tx_tensor *near = at_least(b, at_most(b, b->ratio, 1.0 + upper(set)), 1.0 - set->clip_low);
        x = lesser(tx_mul(b->clipped, a), tx_mul(near, a));
    }
    }
    return tx_scale(x, -1.0f);
}

/* The sum of numbers of tokens over each row, times a number of the row [n]. */
static tx_tensor *sum_rows(const batch *b, tx_tensor *x, int32_t share)
{
    return tx_mul(tx_reduce(tx_mul(x, b->mask), TX_REDUCE_SUM, TX_AXIS_LAST), number(b, share));
}

/* The greatest element of x [n], for each row. */
static tx_tensor *greatest(tx_tensor *x)
{
    return x ? tx_broadcast(tx_reduce(x, TX_REDUCE_MAX, TX_AXIS_ALL), *tx_tensor_shape(x), TX_AXIS_ALL) : NULL;
}

/* The columns of the metrics. Each is the mean over micro-batches; two say whether the run has the others. */
enum { KL, HAS_KL, ENTROPY, LOW, HIGH, LOW_MIN, HIGH_MAX, HAS_CLIP, CISPO, HAS_CISPO, COLUMNS };

static void measure(const batch *b, tx_tensor *columns[COLUMNS])
{
    tx_tensor *below = tx_mul(tx_preference_is_positive(plus(b, tx_scale(b->clipped, -1.0f), 1.0 - b->set->clip_low)),
                              tx_preference_is_positive(tx_scale(b->advantage, -1.0f)));
    const bool cispo = b->type->form == TX_POLICY_CISPO, clips = b->type->form == TX_POLICY_CLIPPED;
    tx_tensor *excess = cispo ? plus(b, b->ratio, -upper(b->set)) : plus(b, b->clipped, -1.0 - upper(b->set));
    tx_tensor *above = tx_mul(tx_preference_is_positive(excess), tx_preference_is_positive(b->advantage));
    const tx_shape rows = TX_SHAPE(b->shape.dim[0]);
    tx_tensor *none = tx_fill(b->graph, rows, 0.0f), *one = tx_fill(b->graph, rows, 1.0f);
    tx_tensor *low_share = sum_rows(b, below, TX_POLICY_SEQUENCE_SHARE);
    columns[KL] = b->kl ? sum_rows(b, tx_detach(b->kl), TX_POLICY_TOKEN_SHARE) : none;
    columns[HAS_KL] = b->kl ? one : none;
    columns[ENTROPY] = sum_rows(b, b->entropy, TX_POLICY_TOKEN_SHARE);
    columns[LOW] = sum_rows(b, below, TX_POLICY_CLIP_SHARE);
    columns[HIGH] = sum_rows(b, above, TX_POLICY_CLIP_SHARE);
    columns[LOW_MIN] = tx_scale(greatest(tx_scale(low_share, -1.0f)), -1.0f);
    columns[HIGH_MAX] = greatest(sum_rows(b, above, TX_POLICY_SEQUENCE_SHARE));
    columns[HAS_CLIP] = clips ? one : none;
    columns[CISPO] = columns[HIGH];
    columns[HAS_CISPO] = cispo ? one : none;
}

/* The log-probabilities of the labels [n, T], at --temperature, and the entropies. */
static tx_tensor *logps_of(const tx_loss_operands *of, tx_tensor *logits, tx_tensor **entropy)
{
    tx_tensor *statistics[TX_TOKEN_STATISTICS], *labels = tx_find_input(of->graph, "completion_labels");
    if (!logits || !labels)
        return NULL;
    if (!(of->set->policy_temperature == 1.0))
        logits = tx_scale(logits, (float)(1.0 / of->set->policy_temperature));
    tx_tensor *losses = tx_cross_entropy(logits, labels, of->config->vocab_size);
    if (entropy && !tx_token_statistics(losses, labels, statistics))
        *entropy = statistics[TX_TOKEN_ENTROPY];
    return tx_scale(losses, -1.0f);
}

/* An evaluation gives the log-probabilities of both models. */
static tx_tensor *evaluate(const tx_loss_operands *of, tx_tensor *logps, tx_tensor **rows)
{
    tx_tensor *other = of->second ? logps_of(of, of->second, NULL) : tx_scale(logps, 0.0f);
    if (!logps || !other)
        return NULL;
    const tx_shape shape = *tx_tensor_shape(logps);
    const int64_t n = shape.dim[0], positions = shape.dim[1];
    tx_tensor *columns[] = {logps, other}, *weight = tx_fill(of->graph, TX_SHAPE(n * positions), 1.0f);
    tx_tensor *both = tx_preference_join(of->graph, columns, 2, weight);
    *rows = both ? tx_reshape(both, TX_SHAPE(n, positions, 2)) : NULL;
    return tx_mean_loss(tx_scale(logps, -1.0f));
}

tx_tensor *tx_policy_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    batch b = {.graph = of->graph, .task = of->task, .set = of->set};
    if (tx_graph_fail(of->graph, tx_policy_read(of->task, of->set, &b.type)))
        return NULL;
    b.logps = logps_of(of, of->output, of->train ? &b.entropy : NULL);
    if (!of->train)
        return evaluate(of, b.logps, rows);
    if (!b.logps || !b.entropy)
        return NULL;
    b.shape = *tx_tensor_shape(b.logps);
    b.mask = tx_find_input(of->graph, "completion_mask");
    b.advantage = spread(&b, number(&b, TX_POLICY_ADVANTAGE));
    compare(&b);
    tx_tensor *losses = token_losses(&b), *columns[COLUMNS];
    if (b.kl)
        losses = tx_add(losses, tx_scale(b.kl, (float)of->set->beta));
    measure(&b, columns);
    *rows = tx_preference_join(of->graph, columns, COLUMNS, tx_task_row_weights(of->graph));
    return tx_mean_loss(sum_rows(&b, losses, TX_POLICY_WEIGHT));
}

/* ---- Metrics ---------------------------------------------------------------------------------------------- */

static double has_kl(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_OWN + HAS_KL];
}

static double has_clip(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_OWN + HAS_CLIP];
}

static double has_cispo(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_OWN + HAS_CISPO];
}

static double region(const double sums[TX_SUMS_MAX])
{
    return (sums[TX_SUM_OWN + LOW] + sums[TX_SUM_OWN + HIGH]) / sums[TX_SUM_LABELS];
}

const tx_metric tx_policy_metrics[] = {TX_METRIC_LOSS,
                                       {"eval_kl", .column = KL, .share = has_kl},
                                       {"eval_entropy", .column = ENTROPY},
                                       {"eval_clip_ratio/low_mean", .column = LOW, .share = has_clip},
                                       {"eval_clip_ratio/low_min", .column = LOW_MIN, .share = has_clip},
                                       {"eval_clip_ratio/high_mean", .column = HIGH, .share = has_clip},
                                       {"eval_clip_ratio/high_max", .column = HIGH_MAX, .share = has_clip},
                                       {"eval_clip_ratio/region_mean", .value = region, .share = has_clip},
                                       {"eval_cispo_clip_ratio", .column = CISPO, .share = has_cispo},
                                       {.name = NULL}};
