/* SPDX-License-Identifier: Apache-2.0
 * The task of token classification: rows, loss, predictions. */
#include "models/task/tokens.h"

#include "models/arch/labels.h"
#include "models/task/sequence.h"
#include "models/task/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tx_field fields[] = {
    TX_SEVERAL_FIELDS,
    [TX_TOKENS_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_token_data *d = samples->data;
    const int64_t length = tx_several_longest(samples, number);
    int32_t *labels = to->field[TX_TOKENS_LABELS];
    (void)epoch;
    TX_TRY(tx_several_row(&d->several, number, samples->block, to));
    tx_field_pad(&fields[TX_TOKENS_LABELS], labels + length, samples->block - length);
    return tx_store_read(&d->label, tx_sample_begin(d->several.end, number), length, labels);
}

/* The label with the largest logit. Labels are exact in float. */
static void keep(const float *logits, int64_t labels, float *to)
{
    *to = (float)tx_task_best(logits, labels);
}

/* Writes the labels of a text's words, separated by spaces. */
static tx_status tell(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                      tx_file *file)
{
    const tx_token_data *d = samples->data;
    const int64_t length = tx_several_longest(samples, number);
    int32_t *first = malloc((size_t)length * sizeof *first);
    const char *space = "";
    tx_status status = first ? tx_store_read(&d->first, tx_sample_begin(d->several.end, number), length, first)
                             : tx_fail(TX_MEMORY, "no memory for a text of %" PRId64 " tokens", length);
    for (int64_t i = 0; i < length && !status; i++) {
        char text[TX_PREDICTION];
        if (!first[i])
            continue;
        const int64_t label = (int64_t)output[i];
        const char *name = tx_label_name(config, label);
        snprintf(text, sizeof text, "%" PRId64, label);
        name = name ? name : text;
        status = tx_file_append(file, space, strlen(space));
        TX_THEN(status, tx_file_append(file, name, strlen(name)));
        space = " ";
    }
    free(first);
    return status;
}

/* A masked language model gets a new head for data with lists of words. */
tx_status tx_tokens_detect(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    const bool new_head = signs->head == TX_HEAD_MASKED_LM && signs->path && signs->trains;
    *is = signs->head == task->head || (new_head && tx_tokens_find(signs->path));
    return TX_OK;
}

const tx_task tx_token_classification = {
    .name = "token classification",
    .head = TX_HEAD_TOKEN_CLASSIFICATION,
    .of_texts = true,
    .data_size = sizeof(tx_token_data),
    .read = tx_token_data_read,
    .release = tx_token_data_release,
    .fields = fields,
    .row = row,
    .length = tx_several_longest,
    .loss = tx_task_label_loss,
    .distills = true,
    .keep = keep,
    .kept = 1,
    .measure = tx_tokens_measure,
    .tell = tell,
    .metrics = tx_token_metrics,
};
