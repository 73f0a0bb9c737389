/* SPDX-License-Identifier: Apache-2.0
 * The tasks of learning from preferences: rows and metrics. */
#include "models/task/preference.h"

#include <math.h>

static const tx_field fields[] = {
    [TX_PREFERENCE_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN, .sequences = 2},
    [TX_PREFERENCE_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1, .sequences = 2},
    [TX_PREFERENCE_COMPLETION_LABELS] = {"completion_labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL,
                                         .sequences = 2},
    [TX_PREFERENCE_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_PREFERENCE_SHARES] = {"completion_shares", TX_F32, 2, .padding = 0},
    [TX_PREFERENCE_REFERENCE] = {"reference_logps", TX_F32, 2, .padding = 0},
    [TX_PREFERENCE_WEIGHTS] = {"completion_weights", TX_F32, TX_FIELD_BLOCK, .padding = 0, .sequences = 2},
    [TX_PREFERENCE_DESIRABLE] = {"desirable", TX_F32, .padding = 0},
    {.name = NULL},
};

/* Ids that are stored one after the other, the first at `begin`. */
typedef struct run_of_ids {
    int64_t begin, count;
} run_of_ids;

/* Writes a sequence. The label of a position is the next token, from token `learnt` on. */
static tx_status put(const tx_preference_data *d, const run_of_ids *prompt, const run_of_ids *completion,
                     int64_t learnt, int64_t block, int32_t *ids, int32_t *labels)
{
    const int64_t length = prompt->count + completion->count;
    TX_TRY(tx_store_read(&d->from.ids, prompt->begin, prompt->count, ids));
    TX_TRY(tx_store_read(&d->from.ids, completion->begin, completion->count, ids + prompt->count));
    tx_field_pad(&fields[TX_PREFERENCE_INPUT_IDS], ids + length, block - length);
    for (int64_t t = 0; t < block; t++)
        labels[t] = t + 1 < length && t + 1 >= learnt ? ids[t + 1] : TX_IGNORE_LABEL;
    return TX_OK;
}

/* The completion of sequence `number`. */
static run_of_ids completion_of(const tx_preference_data *d, int64_t number)
{
    const int64_t begin = tx_sample_begin(d->end, number) + d->prompt[number / d->sides];
    return (run_of_ids){begin, d->end[number] - begin};
}

/* Finds the prompt and the completion of sequence 0 or 1 of a row. As in TRL, the second one of KTO has the completion
 * of the sample before it in its group, and the first sample of a group has that of the last. */
static void find(const tx_samples *samples, int64_t number, int64_t i, run_of_ids *prompt, run_of_ids *completion)
{
    const tx_preference_data *d = samples->data;
    int64_t own = d->sides * number, other = own + i;
    if (d->sides == 1 && i) {
        const int64_t first = number - number % d->group, left = d->count - first,
                      last = first + (left < d->group ? left : d->group) - 1;
        other = number == first ? last : number - 1;
    }
    *prompt = (run_of_ids){tx_sample_begin(d->end, own), d->prompt[number]};
    *completion = completion_of(d, other);
    const int64_t room = samples->block - prompt->count;
    completion->count = completion->count < room ? completion->count : room;
}

/* The number of labels of a completion: the first token of a sequence is no label. */
static int64_t labels_of(int64_t length, int64_t prompt)
{
    const int64_t first = prompt ? prompt : 1;
    return length > first ? length - first : 0;
}

/* Writes the weights of `count` labels that follow the prompt: 1 for the first `shared`. */
static void weigh(const tx_preference_data *d, int64_t prompt, int64_t count, int64_t shared, int64_t block, float *to)
{
    const int64_t first = prompt ? prompt - 1 : 0;
    for (int64_t t = 0; t < block; t++)
        to[t] = t < first || t >= first + count ? 0.0f : t < first + shared ? 1.0f : d->ld_alpha;
}

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_preference_data *d = samples->data;
    const tx_preference_method method = tx_preference_of(samples->task)->method;
    const int64_t block = samples->block, prompt = d->prompt[number],
                  learnt = method == TX_PREFERENCE_ORPO ? 0 : prompt; /* ORPO learns the whole chosen sequence */
    run_of_ids asked, answer[2];
    int64_t labels[2];
    for (int64_t i = 0; i < 2; i++) {
        find(samples, number, i, &asked, &answer[i]);
        labels[i] = labels_of(prompt + answer[i].count, prompt);
    }
    for (int64_t i = 0; i < 2; i++) {
        const int64_t length = prompt + answer[i].count,
                      tokens = method & (TX_PREFERENCE_CPO | TX_PREFERENCE_ORPO) ? labels[i] : answer[i].count;
        TX_TRY(put(d, &asked, &answer[i], learnt, block, (int32_t *)to->field[TX_PREFERENCE_INPUT_IDS] + i * block,
                   (int32_t *)to->field[TX_PREFERENCE_COMPLETION_LABELS] + i * block));
        weigh(d, prompt, labels[i], labels[0] < labels[1] ? labels[0] : labels[1], block,
              (float *)to->field[TX_PREFERENCE_WEIGHTS] + i * block);
        ((int32_t *)to->field[TX_PREFERENCE_LENGTHS])[i] = (int32_t)(length ? length : 1);
        ((float *)to->field[TX_PREFERENCE_SHARES])[i] = 1.0f / (float)(tokens > 0 ? tokens : 1);
        ((float *)to->field[TX_PREFERENCE_REFERENCE])[i] = d->reference[2 * number + i];
    }
    *(float *)to->field[TX_PREFERENCE_DESIRABLE] = d->value[number];
    *(int32_t *)to->field[TX_PREFERENCE_LABELS] = 0;
    return TX_OK;
}

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < 2; i++) {
        run_of_ids asked, answer;
        find(samples, number, i, &asked, &answer);
        const int64_t length = asked.count + answer.count;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* ---- Metrics -------------------------------------------------------------------------------------------- */

/* The columns of a row of numbers, and their sums. The sums of KTO are over desirable or over undesirable rows. */
enum {
    LOGP_CHOSEN = TX_PREFERENCE_LOGP_CHOSEN, /* of KTO: of all rows, followed by those of other completions */
    LOGP_REJECTED = TX_PREFERENCE_LOGP_REJECTED,
    REWARD_CHOSEN,
    REWARD_REJECTED,
    LOGIT_CHOSEN,
    LOGIT_REJECTED,
    ACCURACY,
    ENTROPY,
    TOKEN_ACCURACY,
    NLL = ENTROPY, /* of CPO and ORPO */
    ODDS_RATIO,
    ODDS,
    KL = ACCURACY, /* of KTO */
    DESIRED = TOKEN_ACCURACY,
    DESIRED_LOGP
};

static tx_status measure(const tx_samples *samples, const float *outputs, int64_t columns, double sums[TX_SUMS_MAX])
{
    for (int64_t r = 0; r < samples->count; r++)
        for (int64_t c = 0; c < columns; c++)
            sums[TX_SUM_OWN + c] += (double)outputs[r * columns + c];
    return TX_OK;
}

#define OF_SUMS(name, result)                                           \
    static double name(const double sums[TX_SUMS_MAX])                  \
    {                                                                   \
        const double *s = sums + TX_SUM_OWN, all = sums[TX_SUM_LABELS]; \
        (void)s, (void)all;                                             \
        return result;                                                  \
    }
OF_SUMS(margin, (s[REWARD_CHOSEN] - s[REWARD_REJECTED]) / all)
OF_SUMS(desired_share, s[DESIRED] / all)
OF_SUMS(undesired_share, 1.0 - s[DESIRED] / all)
OF_SUMS(smaller_share, fmin(desired_share(sums), undesired_share(sums)))
OF_SUMS(desired_reward, s[REWARD_CHOSEN] / s[DESIRED])
OF_SUMS(undesired_reward, s[REWARD_REJECTED] / (all - s[DESIRED]))
OF_SUMS(kto_margin, desired_reward(sums) - undesired_reward(sums))
OF_SUMS(desired_logp, s[DESIRED_LOGP] / s[DESIRED])
OF_SUMS(undesired_logp, (s[LOGP_CHOSEN] - s[DESIRED_LOGP]) / (all - s[DESIRED]))
OF_SUMS(desired_logit, s[LOGIT_CHOSEN] / s[DESIRED])
OF_SUMS(undesired_logit, s[LOGIT_REJECTED] / (all - s[DESIRED]))

#define PAIR_METRICS                                                                                                 \
    TX_METRIC_LOSS, {"eval_rewards/chosen", true, .column = REWARD_CHOSEN},                                          \
        {"eval_rewards/rejected", .column = REWARD_REJECTED}, {"eval_rewards/accuracies", true, .column = ACCURACY}, \
        {"eval_rewards/margins", true, .value = margin}, {"eval_logps/chosen", true, .column = LOGP_CHOSEN},         \
        {"eval_logps/rejected", .column = LOGP_REJECTED}, {"eval_logits/chosen", .column = LOGIT_CHOSEN},            \
        {"eval_logits/rejected", .column = LOGIT_REJECTED},

static const tx_metric pair_metrics[] = {PAIR_METRICS{"eval_entropy", .column = ENTROPY},
                                         {"eval_mean_token_accuracy", true, .column = TOKEN_ACCURACY},
                                         {.name = NULL}},
                       cpo_metrics[] = {PAIR_METRICS{"eval_nll_loss", .column = NLL}, {.name = NULL}},
                       orpo_metrics[] = {PAIR_METRICS{"eval_nll_loss", .column = NLL},
                                         {"eval_log_odds_ratio", true, .column = ODDS_RATIO},
                                         {"eval_log_odds_chosen", true, .column = ODDS},
                                         {.name = NULL}},
                       kto_metrics[] = {TX_METRIC_LOSS,
                                        {"eval_rewards/chosen", true, .value = desired_reward, .share = desired_share},
                                        {"eval_rewards/rejected", .value = undesired_reward, .share = undesired_share},
                                        {"eval_rewards/margins", true, .value = kto_margin, .share = smaller_share},
                                        {"eval_logps/chosen", true, .value = desired_logp, .share = desired_share},
                                        {"eval_logps/rejected", .value = undesired_logp, .share = undesired_share},
                                        {"eval_logits/chosen", .value = desired_logit, .share = desired_share},
                                        {"eval_logits/rejected", .value = undesired_logit, .share = undesired_share},
                                        {"eval_entropy", .column = ENTROPY},
                                        {"eval_kl", .column = KL},
                                        {.name = NULL}};

void tx_preference_set_reference(const tx_samples *samples, const float *outputs, int64_t columns)
{
    const tx_preference_data *d = samples->data;
    for (int64_t r = 0; r < samples->count; r++) {
        d->reference[2 * r] = outputs[r * columns + LOGP_CHOSEN];
        d->reference[2 * r + 1] = outputs[r * columns + LOGP_REJECTED];
    }
}

/* KTO's divergence would be the reward of the row itself. */
static bool compares(const tx_task *task, const tx_job_settings *set)
{
    return tx_preference_uses(task, set, "kto", 0);
}

#define TASK(word, of_model, list, write, formula, measures) \
    .task = {.name = word,                                   \
             .head = of_model,                               \
             .of_texts = true,                               \
             .data_size = sizeof(tx_preference_data),        \
             .read = tx_preference_data_read,                \
             .release = tx_preference_data_release,          \
             .save = tx_conversation_data_save,              \
             .end = tx_conversation_data_end,                \
             .fields = list,                                 \
             .row = write,                                   \
             .length = row_length,                           \
             .loss = formula,                                \
             .is_preference = true,                          \
             .refers = tx_preference_has_reference,          \
             .compares = compares,                           \
             .measure = measure,                             \
             .metrics = measures}
#define LM(word, METHOD, loss, measures)              \
    const tx_preference_task tx_preference_##word = { \
        TASK(#word, TX_HEAD_CAUSAL_LM, fields, row, tx_preference_loss, measures), TX_PREFERENCE_##METHOD, loss};
LM(dpo, DPO, "sigmoid", pair_metrics)
LM(cpo, CPO, "sigmoid", cpo_metrics)
LM(simpo, CPO, "simpo", cpo_metrics)
LM(orpo, ORPO, "odds_ratio", orpo_metrics)
LM(kto, KTO, "kto", kto_metrics)
const tx_preference_task tx_preference_reward = {
    TASK("reward", TX_HEAD_SEQUENCE_CLASSIFICATION, tx_reward_fields, tx_reward_row, tx_reward_loss, tx_reward_metrics),
    TX_PREFERENCE_REWARD, NULL};
