/* SPDX-License-Identifier: Apache-2.0
 * From the logits of completions to the loss of a policy and its metrics, by the formulas of TRL 1.16
 * (GRPOTrainer._compute_loss): DeepSeekMath's GRPO (Shao et al., 2024), DAPO (Yu et al., 2025), Dr. GRPO (Liu et al.,
 * 2025), GSPO (Zheng et al., 2025), CISPO (MiniMax-M1, 2025), SAPO (Gao et al., 2025), VESPO (Shen et al., 2026).
 * The quantile of entropies is that of Wang et al., Beyond the 80/20 Rule, 2025. */
#include "models/task/policy.h"
#include "models/task/preference.h"

#include <math.h>
#include <string.h>

static const tx_policy_type types[] = {
    {"dapo", TX_POLICY_ALL_TOKENS, TX_POLICY_CLIPPED},     {"grpo", TX_POLICY_SEQUENCES, TX_POLICY_CLIPPED},
    {"bnpo", TX_POLICY_MICRO_BATCH, TX_POLICY_CLIPPED},    {"dr_grpo", TX_POLICY_CONSTANT, TX_POLICY_CLIPPED},
    {"cispo", TX_POLICY_ALL_TOKENS, TX_POLICY_CISPO},      {"sapo", TX_POLICY_SEQUENCES, TX_POLICY_SAPO},
    {"luspo", TX_POLICY_SEQUENCE_SUMS, TX_POLICY_CLIPPED}, {"vespo", TX_POLICY_ALL_TOKENS, TX_POLICY_VESPO},
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
            return types[i].form == TX_POLICY_VESPO && set->importance_sampling == TX_IMPORTANCE_SEQUENCE
                       ? tx_fail(TX_INVALID, "--loss_type vespo: its weights are those of sequences anyway: leave "
                                             "--importance_sampling_level out")
                       : TX_OK;
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
    tx_tensor *chosen;    /* [n, T]: 1 for tokens of the mask with a high entropy, else 0; the mask if all count */
    tx_tensor *phi;       /* [n, T]: the weights of VESPO, or NULL */
    tx_tensor *policy;    /* [n]: the losses without the entropy bonus */
    tx_tensor *log_ratio; /* [n, T]: of each token, 0 outside the mask */
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
    tx_tensor *log = b->log_ratio = minus(b->logps, old);
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

/* The weight of the entropy. */
static double bonus(const tx_task *task, const tx_job_settings *set)
{
    return task->one_out ? 0.0 : set->entropy_coef;
}

/* The tokens whose entropy is not below the quantile of those of all ranks' micro-batches. */
static tx_tensor *choose_tokens(const batch *b)
{
    const double share = b->set->top_entropy_quantile;
    if (!(share < 1.0) || b->task->one_out)
        return b->mask;
    tx_tensor *entropy = tx_detach(b->entropy);
    tx_tensor *bound = tx_quantile(tx_dp_all_gather(entropy), tx_dp_all_gather(b->mask), 1.0 - share);
    tx_tensor *below = tx_preference_is_positive(minus(tx_broadcast(bound, b->shape, TX_AXIS_ALL), entropy));
    return tx_mul(b->mask, plus(b, tx_scale(below, -1.0f), 1.0));
}

/* The first number if the advantage is not below 0, else the second one. */
static tx_tensor *by_sign(const batch *b, double better, double worse)
{
    tx_tensor *below = tx_preference_is_positive(tx_scale(b->advantage, -1.0f));
    return plus(b, tx_scale(below, (float)(worse - better)), better);
}

/* The weights of VESPO, exp(L + k ln w - L w) of the ratio w of a sequence's probabilities. */
static tx_tensor *weigh_sequences(const batch *b)
{
    const tx_job_settings *set = b->set;
    const double most = 20.0, least = log(1e-8);
    tx_tensor *log = at_least(b, at_most(b, b->log_ratio, most), -most);
    log = spread(b, tx_reduce(tx_mul(log, b->mask), TX_REDUCE_SUM, TX_AXIS_LAST));
    log = at_least(b, at_most(b, log, most), least);
    tx_tensor *k = by_sign(b, set->vespo_k_pos, set->vespo_k_neg),
              *scale = by_sign(b, fmax(set->vespo_lambda_pos, 1e-4), fmax(set->vespo_lambda_neg, 1e-4));
    tx_tensor *excess = plus(b, tx_scale(tx_exponential(log), -1.0f), 1.0);
    return tx_detach(tx_exponential(tx_add(tx_mul(scale, excess), tx_mul(k, log))));
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
    case TX_POLICY_VESPO:
        x = tx_mul(tx_mul(b->phi, a), b->logps);
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

/* The columns of the metrics. Each is the mean over micro-batches. HIGH is that of the form: the share of clipped
 * tokens, or the weight of VESPO. HAS_KL, FORM (a tx_policy_form) and COEFFICIENT say which metrics the run has. */
enum { KL, HAS_KL, ENTROPY, LOW, HIGH, LOW_MIN, HIGH_MAX, FORM, POLICY, COEFFICIENT, COLUMNS };

static void measure(const batch *b, tx_tensor *columns[COLUMNS])
{
    tx_tensor *below = tx_mul(tx_preference_is_positive(plus(b, tx_scale(b->clipped, -1.0f), 1.0 - b->set->clip_low)),
                              tx_preference_is_positive(tx_scale(b->advantage, -1.0f)));
    const bool cispo = b->type->form == TX_POLICY_CISPO;
    tx_tensor *excess = cispo ? plus(b, b->ratio, -upper(b->set)) : plus(b, b->clipped, -1.0 - upper(b->set));
    tx_tensor *above = tx_mul(tx_preference_is_positive(excess), tx_preference_is_positive(b->advantage));
    const tx_shape rows = TX_SHAPE(b->shape.dim[0]);
    tx_tensor *none = tx_fill(b->graph, rows, 0.0f), *one = tx_fill(b->graph, rows, 1.0f);
    tx_tensor *low_share = sum_rows(b, below, TX_POLICY_SEQUENCE_SHARE);
    columns[KL] = b->kl ? sum_rows(b, tx_detach(b->kl), TX_POLICY_TOKEN_SHARE) : none;
    columns[HAS_KL] = b->kl ? one : none;
    columns[ENTROPY] = sum_rows(b, b->entropy, TX_POLICY_TOKEN_SHARE);
    columns[LOW] = sum_rows(b, below, TX_POLICY_CLIP_SHARE);
    columns[HIGH] = b->phi ? tx_reduce(b->phi, TX_REDUCE_MEAN, TX_AXIS_LAST) : sum_rows(b, above, TX_POLICY_CLIP_SHARE);
    columns[LOW_MIN] = tx_scale(greatest(tx_scale(low_share, -1.0f)), -1.0f);
    columns[HIGH_MAX] = greatest(sum_rows(b, above, TX_POLICY_SEQUENCE_SHARE));
    columns[FORM] = tx_fill(b->graph, rows, (float)b->type->form);
    columns[POLICY] = tx_mul(b->policy, number(b, TX_POLICY_LOSS_SHARE));
    columns[COEFFICIENT] = tx_fill(b->graph, rows, (float)bonus(b->task, b->set));
}

/* The mean entropy of the chosen tokens of this rank's micro-batch, as numbers [n] with this mean. */
static tx_tensor *mean_entropy(const batch *b)
{
    tx_tensor *count = tx_reshape(tx_reduce(b->chosen, TX_REDUCE_SUM, TX_AXIS_LAST), TX_SHAPE(b->shape.dim[0]));
    count = tx_broadcast(tx_reduce(count, TX_REDUCE_SUM, TX_AXIS_ALL), *tx_tensor_shape(count), TX_AXIS_ALL);
    tx_tensor *root = tx_rsqrt(at_least(b, count, 1.0));
    tx_tensor *sums = tx_reduce(tx_mul(b->entropy, b->chosen), TX_REDUCE_SUM, TX_AXIS_LAST);
    return tx_scale(tx_mul(sums, tx_mul(root, root)), (float)b->shape.dim[0]);
}

/* The log-probabilities of the labels [n, T], at --temperature, and the entropies. */
static tx_tensor *logps_of(const tx_loss_operands *of, tx_tensor *logits, tx_tensor **entropy)
{
    tx_tensor *labels = tx_find_input(of->graph, "completion_labels");
    if (!logits || !labels)
        return NULL;
    if (!(of->set->policy_temperature == 1.0))
        logits = tx_scale(logits, (float)(1.0 / of->set->policy_temperature));
    tx_tensor *losses = tx_cross_entropy(logits, labels, of->config->vocab_size);
    if (entropy && losses)
        *entropy = bonus(of->task, of->set) > 0.0 ? tx_token_entropy(losses, labels)
                                                  : tx_detach(tx_token_entropy(losses, labels));
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
    b.chosen = choose_tokens(&b);
    compare(&b);
    b.phi = b.type->form == TX_POLICY_VESPO ? weigh_sequences(&b) : NULL;
    tx_tensor *losses = token_losses(&b), *columns[COLUMNS];
    if (b.chosen != b.mask)
        losses = tx_mul(losses, b.chosen);
    if (b.kl)
        losses = tx_add(losses, tx_scale(b.kl, (float)of->set->beta));
    b.policy = losses = sum_rows(&b, losses, TX_POLICY_WEIGHT);
    measure(&b, columns);
    *rows = tx_preference_join(of->graph, columns, COLUMNS, tx_task_row_weights(of->graph));
    if (bonus(of->task, of->set) > 0.0)
        losses = tx_add(losses, tx_scale(mean_entropy(&b), -(float)bonus(of->task, of->set)));
    return tx_mean_loss(losses);
}

/* ---- Metrics ---------------------------------------------------------------------------------------------- */

static double has_kl(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_OWN + HAS_KL];
}

static bool is_form(const double sums[TX_SUMS_MAX], tx_policy_form form)
{
    return fabs(sums[TX_SUM_OWN + FORM] / sums[TX_SUM_LABELS] - (double)form) < 0.5;
}

static double has_clip(const double sums[TX_SUMS_MAX])
{
    return is_form(sums, TX_POLICY_CLIPPED);
}

static double has_cispo(const double sums[TX_SUMS_MAX])
{
    return is_form(sums, TX_POLICY_CISPO);
}

static double has_phi(const double sums[TX_SUMS_MAX])
{
    return is_form(sums, TX_POLICY_VESPO);
}

static double has_bonus(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_OWN + COEFFICIENT];
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
                                       {"eval_cispo_clip_ratio", .column = HIGH, .share = has_cispo},
                                       {"eval_vespo/phi_seq_mean", .column = HIGH, .share = has_phi},
                                       {"eval_policy_loss", .column = POLICY, .share = has_bonus},
                                       {"eval_entropy_coef", .column = COEFFICIENT, .share = has_bonus},
                                       {.name = NULL}};
