/* SPDX-License-Identifier: Apache-2.0
 * The task of embeddings: losses, by the names and formulas of sentence-transformers, rows and metrics. */
#include "models/task/embedding.h"

#include "models/task/sequence.h"

/* Embeddings [rows * texts, C] of a batch. */
typedef struct batch {
    tx_graph *graph;
    const tx_job_settings *set;
    tx_tensor *used; /* weights of the rows */
    int64_t rows, texts, width;
    tx_tensor *embedding; /* NULL on error */
    tx_tensor *unit;      /* the same with norm 1 */
} batch;

static batch batch_of(const tx_loss_operands *of)
{
    const tx_pooling pooling = {.mode = {TX_POOL_MEAN}, .modes = 1, .normalize = of->config->unit_embeddings};
    batch b = {.graph = of->graph, .set = of->set, .used = tx_task_row_weights(of->graph)};
    b.embedding = tx_pooling_graph(of->graph, &pooling, of->output);
    b.unit = tx_unit_rows(of->graph, b.embedding);
    if (!b.unit)
        return b;
    b.rows = tx_tensor_shape(b.used)->dim[0];
    b.texts = tx_tensor_shape(b.unit)->dim[0] / b.rows;
    b.width = of->config->width;
    return b;
}

/* Text `text` of each sample: x [rows * texts, C] -> [rows, C]. */
static tx_tensor *text_of(const batch *b, tx_tensor *x, int64_t text)
{
    return tx_gather(x, tx_range(b->graph, TX_SHAPE(b->rows), (int32_t)text, (int32_t)b->texts));
}

/* -x */
static tx_tensor *minus(tx_tensor *x)
{
    return tx_scale(x, -1.0f);
}

static tx_tensor *mean_of(const batch *b, tx_tensor *losses)
{
    return tx_mean_loss(tx_mul(losses, b->used));
}

/* The cosines of the first text with the others, [rows, texts - 1]: products of [rows, 1, C] and [rows, texts, C], of
 * which the first is left out by a gather. */
static tx_tensor *cosines(const batch *b)
{
    const int64_t others = b->texts - 1;
    tx_tensor *first = tx_reshape(text_of(b, b->unit, 0), TX_SHAPE(b->rows, 1, b->width));
    tx_tensor *all = tx_matmul(first, tx_reshape(b->unit, TX_SHAPE(b->rows, b->texts, b->width)), false, true);
    all = tx_transpose(tx_reshape(all, TX_SHAPE(b->rows, b->texts, 1))); /* [texts, rows, 1] */
    all = tx_gather(tx_reshape(all, TX_SHAPE(b->texts, b->rows)), tx_range(b->graph, TX_SHAPE(others), 1, 1));
    return tx_reshape(tx_transpose(tx_reshape(all, TX_SHAPE(others, b->rows, 1))), TX_SHAPE(b->rows, others));
}

/* Henderson et al., Efficient natural language response suggestion for Smart Reply, 2017: the positive of a row must
 * have a higher score than all other positives and negatives of the batch. */
static tx_tensor *ranking_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    const batch b = batch_of(of);
    if (!b.unit)
        return NULL;
    int32_t rank = 0;
    const int64_t all = b.rows * (of->train ? tx_graph_dp_size(of->graph, &rank) : 1), others = (b.texts - 1) * all;
    tx_tensor *unit = b.unit, *used = tx_reshape(b.used, TX_SHAPE(b.rows, 1));
    if (of->train) { /* the ranks' rows, if they are gathered */
        unit = tx_dp_all_gather(unit);
        used = tx_dp_all_gather(used);
    }
    *rows = cosines(&b);
    /* [texts, rows, C]: the candidates are all rows after the anchors, positives first. */
    tx_tensor *by_text = tx_transpose(tx_reshape(unit, TX_SHAPE(all, b.texts, b.width)));
    by_text = tx_reshape(by_text, TX_SHAPE(b.texts * all, b.width));
    tx_tensor *candidates = tx_gather(by_text, tx_range(of->graph, TX_SHAPE(others), (int32_t)all, 1));
    tx_tensor *scores = tx_matmul(text_of(&b, b.unit, 0), candidates, false, true);
    scores = tx_scale(scores, (float)b.set->similarity_scale);
    /* Rows without a sample are no candidates. */
    tx_tensor *unused = tx_add(tx_reshape(used, TX_SHAPE(all)), tx_fill(of->graph, TX_SHAPE(all), -1.0f));
    unused = tx_reshape(tx_broadcast(unused, TX_SHAPE(b.texts - 1, all), TX_AXIS_ROWS), TX_SHAPE(others));
    scores = tx_add(scores, tx_scale(tx_broadcast(unused, TX_SHAPE(b.rows, others), TX_AXIS_ROWS), 1e9f));
    tx_tensor *own = tx_range(of->graph, TX_SHAPE(b.rows), rank * (int32_t)b.rows, 1);
    return mean_of(&b, tx_cross_entropy(scores, own, others));
}

/* The squared error of the cosine of two texts. */
static tx_tensor *cosine_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    const batch b = batch_of(of);
    if (!b.unit)
        return NULL;
    *rows = cosines(&b);
    tx_tensor *error = tx_add(tx_reshape(*rows, TX_SHAPE(b.rows)), minus(tx_find_input(of->graph, "targets")));
    return mean_of(&b, tx_mul(error, error));
}

/* The Euclidean distance of two texts [rows], with the small number that PyTorch's pairwise_distance adds. */
static tx_tensor *distance(const batch *b, int64_t one, int64_t other)
{
    tx_tensor *d = tx_add(text_of(b, b->embedding, one), minus(text_of(b, b->embedding, other)));
    d = tx_add(d, tx_fill(b->graph, TX_SHAPE(b->rows, b->width), 1e-6f));
    tx_tensor *square = tx_reduce(d, TX_REDUCE_SUMSQ, TX_AXIS_LAST);
    return tx_mul(square, tx_rsqrt(square));
}

/* max(0, |anchor - positive| - |anchor - negative| + margin) */
static tx_tensor *triplet_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    const batch b = batch_of(of);
    if (!b.unit)
        return NULL;
    *rows = cosines(&b);
    tx_tensor *margin = tx_fill(of->graph, TX_SHAPE(b.rows), (float)b.set->triplet_margin);
    return mean_of(&b, tx_relu(tx_add(tx_add(distance(&b, 0, 1), minus(distance(&b, 0, 2))), margin)));
}

static const tx_field fields[] = {
    TX_TEXTS_FIELDS,
    [TX_EMBEDDING_POOLING] = {"pooling", TX_F32, TX_FIELD_BLOCK, .padding = 0},
    [TX_EMBEDDING_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_EMBEDDING_TARGETS] = {"targets", TX_F32, .padding = 0},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_embedding_data *d = samples->data;
    const int64_t block = samples->block;
    TX_TRY(tx_text_samples_row(&d->texts, number, block, to));
    for (int64_t i = 0; i < d->texts.per_sample; i++)
        tx_pooling_fill(&d->pooling, block, tx_text_samples_length(&d->texts, number, i), 0,
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

#define TASK(list, hook, checks)                                                                                  \
    {                                                                                                             \
        .name = "embeddings", .head = TX_HEAD_STATES, .of_texts = true, .data_size = sizeof(tx_embedding_data),   \
        .read = read, .release = tx_embedding_data_release, .save = save, .fields = fields, .row = row,           \
        .length = tx_text_samples_longest, .loss = hook##_loss, .compares = checks, .metrics = tx_metrics_##list, \
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
    tx_text_samples_finish(&d->texts, samples);
    tx_text_samples_task(&d->texts, samples, TX_EMBEDDING_POOLING + 1, &d->own);
    if (d->loss == TX_EMBEDDING_LOSS_RANKING && d->texts.per_sample > 2)
        d->own.task.metrics = tx_metrics_NEARER;
    d->own.task.measure = d->loss == TX_EMBEDDING_LOSS_COSINE ? measure_scores
                          : d->texts.per_sample > 2           ? measure_negatives
                                                              : NULL;
    return TX_OK;
}
