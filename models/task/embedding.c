/* SPDX-License-Identifier: Apache-2.0
 * The task of embeddings: rows and metrics. */
#include "models/task/embedding.h"

#include "models/task/sequence.h"

#include <string.h>

static const tx_field fields[] = {
    TX_SEVERAL_FIELDS,
    [TX_EMBEDDING_POOLING] = {"pooling", TX_F32, TX_FIELD_BLOCK, .padding = 0},
    [TX_EMBEDDING_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_EMBEDDING_TARGETS] = {"targets", TX_F32, .padding = 0},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_embedding_data *d = samples->data;
    const int64_t block = samples->block;
    (void)epoch;
    TX_TRY(tx_several_row(&d->several, number, block, to));
    for (int64_t i = 0; i < d->several.texts; i++)
        tx_pooling_fill(&d->pooling, block, tx_several_length(&d->several, number, i), 0,
                        (float *)to->field[TX_EMBEDDING_POOLING] + i * block);
    *(int32_t *)to->field[TX_EMBEDDING_LABELS] = 0;
    *(float *)to->field[TX_EMBEDDING_TARGETS] = d->target[number];
    return TX_OK;
}

/* ---- Metrics -------------------------------------------------------------------------------------------- */

/* Pearson's and Spearman's correlation of cosines and scores, as EmbeddingSimilarityEvaluator computes them. */
static tx_status measure_scores(const tx_samples *samples, const float *outputs, int64_t columns,
                                double sums[TX_SUMS_MAX])
{
    const tx_embedding_data *d = samples->data;
    (void)columns; /* 1 */
    return tx_sequence_correlate(outputs, d->target, NULL, samples->count, sums);
}

/* The share of samples whose anchor is nearer to the positive than to every negative, as TripletEvaluator computes it
 * for one negative. */
static tx_status measure_negatives(const tx_samples *samples, const float *outputs, int64_t columns,
                                   double sums[TX_SUMS_MAX])
{
    int64_t right = 0;
    for (int64_t r = 0; r < samples->count; r++) {
        const float *cosine = outputs + r * columns;
        bool nearer = true;
        for (int64_t i = 1; i < columns; i++)
            nearer = nearer && cosine[0] > cosine[i];
        right += nearer;
    }
    sums[TX_SUM_OWN + TX_ACCURACY] = (double)right / (double)samples->count;
    return TX_OK;
}

/* The only pair of a micro-batch has no negative. */
static bool compares(const tx_task *task, const tx_job_settings *set)
{
    (void)set;
    return tx_task_sequences(task) == 2;
}

static tx_status save(const tx_samples *samples, const char *folder)
{
    const tx_embedding_data *d = samples->data;
    return tx_pooling_write(&d->pooling, d->width, d->most, folder);
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options);

#define TASK(list, hook, checks)                                                                                \
    {                                                                                                           \
        .name = "embeddings", .head = TX_HEAD_STATES, .of_texts = true, .data_size = sizeof(tx_embedding_data), \
        .read = read, .release = tx_embedding_data_release, .save = save, .fields = fields, .row = row,         \
        .length = tx_several_longest, .loss = tx_embedding_##hook##_loss, .compares = checks,                   \
        .metrics = tx_metrics_##list,                                                                           \
    }
const tx_task tx_embeddings = TASK(LOSS, ranking, compares);

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    static const tx_task tasks[] = {
        [TX_EMBEDDING_LOSS_RANKING] = TASK(LOSS, ranking, compares),
        [TX_EMBEDDING_LOSS_COSINE] = TASK(SIMILARITY, cosine, NULL),
        [TX_EMBEDDING_LOSS_TRIPLET] = TASK(NEARER, triplet, NULL),
    };
    tx_embedding_data *d = samples->own;
    TX_TRY(tx_embedding_data_read(path, options, d));
    samples->task = &tasks[d->loss];
    tx_several_finish(&d->several, samples);
    tx_several_task(&d->several, samples, TX_EMBEDDING_POOLING + 1, &d->own);
    if (d->loss == TX_EMBEDDING_LOSS_RANKING && d->several.texts > 2)
        d->own.task.metrics = tx_metrics_NEARER;
    d->own.task.measure = d->loss == TX_EMBEDDING_LOSS_COSINE ? measure_scores
                          : d->several.texts > 2              ? measure_negatives
                                                              : NULL;
    return TX_OK;
}
