/* SPDX-License-Identifier: Apache-2.0
 * The losses of preferences (preference_losses.def): formulas, and the options that choose them. */
#include "api/base/number.h"
#include "models/task/preference.h"

#include <math.h>
#include <string.h>

static tx_tensor *nls(const tx_preference_batch *b, tx_tensor *x)
{
    return tx_preference_nls(b->graph, x);
}

static tx_tensor *sigmoid(const tx_preference_batch *b, tx_tensor *x)
{
    return tx_preference_sigmoid(b->graph, x);
}

/* factor x + number. */
static tx_tensor *plus(const tx_preference_batch *b, tx_tensor *x, float factor, float number)
{
    return tx_preference_plus(b->graph, factor == 1.0f ? x : tx_scale(x, factor), number);
}

static tx_tensor *square(tx_tensor *x)
{
    return tx_mul(x, x);
}

static float smoothing(const tx_preference_batch *b)
{
    return (float)b->set->label_smoothing;
}

/* A log-ratio, or a difference of two, as a reward times `sign`. */
static tx_tensor *reward(const tx_preference_batch *b, tx_tensor *ratio, float sign)
{
    return tx_scale(ratio, sign * b->beta);
}

/* (1 - s) nls(x) + s nls(-x), where nls(-x) = nls(x) + x. */
static tx_tensor *smoothed(const tx_preference_batch *b, tx_tensor *x)
{
    return smoothing(b) > 0.0f ? tx_add(nls(b, x), tx_scale(x, smoothing(b))) : nls(b, x);
}

/* KL divergence of the softmax of the rewards from (1 - s, s), where log sigmoid(-x) = -nls(x) - x. */
static tx_tensor *exo_pair(const tx_preference_batch *b)
{
    tx_tensor *x = reward(b, b->delta, 1.0f), *wins = tx_scale(nls(b, x), -1.0f),
              *loses = tx_add(wins, tx_scale(x, -1.0f));
    return tx_add(tx_mul(sigmoid(b, x), plus(b, wins, 1.0f, -log1pf(-smoothing(b)))),
                  tx_mul(sigmoid(b, tx_scale(x, -1.0f)), plus(b, loses, 1.0f, -logf(smoothing(b)))));
}

/* Sorts x [n] in descending order. Rows without a pair come last. */
static tx_tensor *sort(const tx_preference_batch *b, tx_tensor *x)
{
    const float far = 1e30f;
    tx_tensor *indices, *last = tx_add(x, plus(b, b->weight, far, -far));
    if (!last)
        return NULL;
    const int64_t n = tx_shape_count(tx_tensor_shape(x));
    return tx_reshape(tx_top_k(tx_reshape(last, TX_SHAPE(1, n)), n, &indices), TX_SHAPE(n));
}

static tx_tensor *sorted(const tx_preference_batch *b, tx_tensor *one, tx_tensor *other)
{
    return smoothed(b, tx_scale(tx_add(sort(b, one), tx_scale(sort(b, other), -1.0f)), b->beta));
}

static tx_tensor *aot(const tx_preference_batch *b)
{
    tx_tensor *own = tx_preference_mix(b->graph, b->logps, 1, -1);
    return sorted(b, own, b->reference ? tx_preference_mix(b->graph, b->reference, 1, -1) : tx_scale(own, 0.0f));
}

static tx_tensor *discopop(const tx_preference_batch *b)
{
    tx_tensor *x = reward(b, b->delta, 1.0f), *rest = tx_scale(x, (float)(1.0 / b->set->discopop_tau));
    return tx_add(tx_mul(nls(b, x), sigmoid(b, tx_scale(rest, -1.0f))),
                  tx_mul(tx_exponential(tx_scale(x, -1.0f)), sigmoid(b, rest)));
}

/* The weight times 1 - sigmoid(beta (r - kl)) of a desirable completion, and 1 - sigmoid(beta (kl - r)) of another one
 * (Ethayarajh et al., KTO, 2024). Without `kl` it is 0. */
static tx_tensor *unpaired(const tx_preference_batch *b, tx_tensor *kl)
{
    const float desired = (float)b->set->desirable_weight, undesired = (float)b->set->undesirable_weight;
    tx_tensor *sign = plus(b, b->desirable, 2.0f, -1.0f),
              *weight = plus(b, b->desirable, desired - undesired, undesired),
              *ratio = kl ? tx_add(b->chosen, tx_scale(kl, -1.0f)) : b->chosen;
    return tx_mul(weight, sigmoid(b, tx_mul(sign, reward(b, ratio, -1.0f))));
}

#define X(name, METHOD, TRAITS, result)                                \
    static tx_tensor *name##_of_##METHOD(const tx_preference_batch *b) \
    {                                                                  \
        return result;                                                 \
    }
#include "models/task/preference_losses.def"

enum { PLAIN, SMOOTHS = TX_PREFERENCE_SMOOTHS, SCORES = TX_PREFERENCE_SCORES, AVERAGES = TX_PREFERENCE_AVERAGES };
static const tx_preference_type types[] = {
#define X(name, METHOD, TRAITS, result) {#name, TX_PREFERENCE_##METHOD, TRAITS, name##_of_##METHOD},
#include "models/task/preference_losses.def"
};
enum { TYPES = sizeof types / sizeof types[0] };

/* ---- The options ------------------------------------------------------------------------------------------ */

/* Finds a type of the method by the first `size` bytes of a name. */
static tx_status find(tx_preference_method method, const char *name, size_t size, const tx_preference_type **type)
{
    char known[256] = "";
    for (int32_t i = 0; i < TYPES; i++) {
        if (types[i].method != method)
            continue;
        *type = &types[i];
        if (strlen(types[i].name) == size && memcmp(types[i].name, name, size) == 0)
            return TX_OK;
        tx_list_add(known, sizeof known, ", ", "%s", types[i].name);
    }
    return tx_fail(TX_INVALID, "--loss_type %.*s: must be one or more of %s", (int)size, name, known);
}

/* Reads one weight for each loss. */
static tx_status read_weights(const char *text, tx_preference_losses *losses)
{
    int32_t count = 0;
    char *end = NULL;
    for (const char *at = text; at && *at; at = *end ? end + 1 : end, count++) {
        const double weight = tx_number_read(at, &end);
        if (end == at || (*end && *end != ',') || !isfinite(weight))
            return tx_fail(TX_INVALID, "--loss_weights %s: \"%.*s\" is not a number", text, (int)strcspn(at, ","), at);
        if (count < losses->count)
            losses->weight[count] = (float)weight;
    }
    return !text || count == losses->count
               ? TX_OK
               : tx_fail(TX_INVALID, "--loss_weights %s: give one weight for each of the %d losses of --loss_type",
                         text, (int)losses->count);
}

tx_status tx_preference_read(const tx_task *task, const tx_job_settings *set, tx_preference_losses *losses)
{
    const tx_preference_task *of = tx_preference_of(task);
    tx_preference_losses read = {0};
    const char *at = set->loss_type ? set->loss_type : of->loss_type;
    if (!at) {
        *losses = read;
        return TX_OK;
    }
    if ((of->method != TX_PREFERENCE_DPO && (set->loss_weights || strchr(at, ','))) || !of->loss_type)
        return tx_fail(TX_INVALID, "--task_name %s has one loss: give no list, and no --loss_weights", task->name);
    if (of->method != TX_PREFERENCE_DPO && set->f_divergence != TX_DIVERGENCE_REVERSE_KL)
        return tx_fail(TX_INVALID, "--f_divergence_type is for --task_name dpo; this is %s", task->name);
    for (size_t size; *at; at += size + (at[size] == ',')) {
        size = strcspn(at, ",");
        if (read.count == TX_PREFERENCE_PARTS)
            return tx_fail(TX_INVALID, "--loss_type: at most %d losses", TX_PREFERENCE_PARTS);
        TX_TRY(find(of->method, at, size, &read.type[read.count]));
        const tx_preference_type *type = read.type[read.count];
        read.weight[read.count++] = 1.0f;
        if (type->loss == exo_pair_of_DPO && !(set->label_smoothing > 0.0))
            return tx_fail(TX_INVALID, "--loss_type exo_pair needs --label_smoothing above 0, for example 1e-3");
        if (type->loss == sft_of_DPO && set->use_weighting)
            return tx_fail(TX_INVALID, "--use_weighting weights losses of pairs, and --loss_type sft is not one");
        if (!(type->traits & SCORES) && set->f_divergence != TX_DIVERGENCE_REVERSE_KL)
            return tx_fail(TX_INVALID, "--loss_type %s: only reverse_kl is defined as its --f_divergence_type",
                           type->name);
    }
    TX_TRY(read_weights(set->loss_weights, &read));
    *losses = read;
    return TX_OK;
}

/* The weight of each pair (Zhou et al., WPO, 2024). A token's probability is divided by the sum of the squared
 * probabilities of all tokens at its place. The weight is the product of the geometric means of both sequences. */
static tx_tensor *pair_weight(const tx_preference_batch *b)
{
    const float tiny = 1e-30f;
    tx_tensor *root = tx_rsqrt(plus(b, b->counts, 1.0f, tiny)),
              *aligned = tx_add(b->labels, tx_scale(b->statistics[TX_TOKEN_LOG_SQUARES], -1.0f));
    return tx_detach(tx_exponential(tx_preference_mix(b->graph, tx_mul(aligned, square(root)), 1, 1)));
}

tx_tensor *tx_preference_sum(const tx_preference_batch *batch, const tx_preference_losses *losses)
{
    tx_tensor *sum = NULL;
    for (int32_t i = 0; i < losses->count; i++) {
        tx_tensor *loss = losses->type[i]->loss(batch);
        if (!(losses->weight[i] == 1.0f))
            loss = tx_scale(loss, losses->weight[i]);
        sum = i ? tx_add(sum, loss) : loss;
    }
    if (batch->method == TX_PREFERENCE_DPO && batch->set->use_weighting)
        sum = tx_mul(sum, pair_weight(batch));
    return sum;
}

bool tx_preference_uses(const tx_task *task, const tx_job_settings *set, const char *name, int32_t traits)
{
    tx_preference_losses losses;
    bool uses = false;
    if (task->is_preference && tx_preference_read(task, set, &losses) == TX_OK)
        for (int32_t i = 0; i < losses.count; i++)
            uses |= (!name || strcmp(losses.type[i]->name, name) == 0) && (losses.type[i]->traits & traits) == traits;
    return uses;
}
