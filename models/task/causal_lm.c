/* SPDX-License-Identifier: Apache-2.0
 * The task of causal language modelling. */
#include "models/task/causal_lm.h"

#include <math.h>
#include <string.h>

static const tx_field fields[] = {
    [TX_CAUSAL_LM_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN},
    [TX_CAUSAL_LM_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

/* The last position of a block has no label. */
static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const int64_t last = samples->block - 1;
    int32_t *ids = to->field[TX_CAUSAL_LM_INPUT_IDS], *labels = to->field[TX_CAUSAL_LM_LABELS];
    TX_TRY(tx_dataset_read(samples->data, number, ids));
    memcpy(labels, ids + 1, (size_t)last * sizeof *labels);
    tx_field_pad(&fields[TX_CAUSAL_LM_LABELS], labels + last, 1);
    return TX_OK;
}

double tx_causal_lm_perplexity(const double sums[TX_SUMS_MAX])
{
    return exp(tx_task_mean_loss(sums));
}

const tx_metric tx_causal_lm_metrics[] = {
    TX_METRIC_LOSS,
    {"perplexity", .value = tx_causal_lm_perplexity},
    {.name = NULL},
};

tx_dataset_options tx_causal_lm_reading(const tx_data_options *o)
{
    return (tx_dataset_options){.size = sizeof(tx_dataset_options),
                                .tokenizer = o->tokenizer,
                                .vocab = o->config->vocab_size,
                                .block = o->block,
                                .group = o->set->group_texts,
                                .from = o->from,
                                .to = o->to,
                                .most_blocks = o->most,
                                .skip_bad = o->set->skip_bad,
                                .cache = o->cache,
                                .threads = o->threads,
                                .report = o->report};
}

static tx_status read(tx_samples *samples, const char *path, const tx_data_options *o)
{
    const tx_dataset_options options = tx_causal_lm_reading(o);
    tx_dataset *dataset = NULL;
    TX_TRY(tx_dataset_open(path, &options, &dataset));
    *samples = tx_causal_lm_samples(dataset);
    samples->own = dataset;
    return TX_OK;
}

static void release(void *data)
{
    tx_dataset_free(data);
}

const tx_task tx_causal_lm = {
    .name = "causal language modelling",
    .read = read,
    .release = release,
    .fields = fields,
    .row = row,
    .loss = tx_task_label_loss,
    .distills = true,
    .metrics = tx_causal_lm_metrics,
};

tx_samples tx_causal_lm_samples(const tx_dataset *dataset)
{
    if (!dataset)
        return (tx_samples){.task = &tx_causal_lm};
    return (tx_samples){.task = &tx_causal_lm,
                        .data = dataset,
                        .count = tx_dataset_blocks(dataset),
                        .block = tx_dataset_block(dataset),
                        .tokens = tx_dataset_tokens(dataset),
                        .digest = tx_dataset_digest(dataset)};
}
