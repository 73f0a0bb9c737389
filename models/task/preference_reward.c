/* SPDX-License-Identifier: Apache-2.0
 * Reward models: rows, loss and metrics, by the formulas and names of TRL's RewardTrainer. */
#include "models/arch/labels.h"
#include "models/task/preference.h"

const tx_field tx_reward_fields[] = {
    [TX_REWARD_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN, .sequences = 2},
    [TX_REWARD_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1, .sequences = 2},
    [TX_REWARD_LAST] = {"last_token", TX_F32, TX_FIELD_BLOCK, .padding = 0, .sequences = 2},
    [TX_REWARD_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_REWARD_MARGIN] = {"margin", TX_F32, .padding = 0},
    {.name = NULL},
};

tx_status tx_reward_row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_preference_data *d = samples->data;
    const int64_t block = samples->block;
    (void)epoch;
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
    tx_tensor *away = tx_scale(tx_preference_plus(graph, weight, -1.0f), far);
    tx_tensor *most =
        tx_reduce(tx_add(x, tx_broadcast(away, *tx_tensor_shape(x), TX_AXIS_LAST)), TX_REDUCE_MAX, TX_AXIS_ALL);
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
