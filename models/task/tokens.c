/* SPDX-License-Identifier: Apache-2.0
 * The task of token classification: rows, loss, predictions. */
#include "models/task/tokens.h"

#include "models/arch/labels.h"
#include "models/task/sequence.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const tx_field fields[] = {
    [TX_TOKENS_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},
    [TX_TOKENS_TOKEN_TYPE_IDS] = {"token_type_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},
    [TX_TOKENS_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1},
    [TX_TOKENS_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},
    {.name = NULL},
};

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    const tx_token_data *d = samples->data;
    return d->end[number] - tx_sample_begin(d->end, number);
}

static tx_status row(const tx_samples *samples, int64_t number, uint64_t epoch, const tx_batch *to)
{
    const tx_token_data *d = samples->data;
    const int64_t begin = tx_sample_begin(d->end, number), length = row_length(samples, number);
    const tx_ids *const from[] = {
        [TX_TOKENS_INPUT_IDS] = &d->ids, [TX_TOKENS_TOKEN_TYPE_IDS] = &d->types, [TX_TOKENS_LABELS] = &d->label};
    (void)epoch;
    for (int f = TX_TOKENS_INPUT_IDS; f <= TX_TOKENS_LABELS; f++) {
        int32_t *values = to->field[f];
        if (f == TX_TOKENS_LENGTHS)
            continue;
        memcpy(values, from[f]->id + begin, (size_t)length * sizeof *values);
        tx_field_pad(&fields[f], values + length, samples->block - length);
    }
    *(int32_t *)to->field[TX_TOKENS_LENGTHS] = (int32_t)length;
    return TX_OK;
}

/* The label with the largest logit. Labels are exact in float. */
static void keep(const float *logits, int64_t labels, float *to)
{
    int64_t best = 0;
    for (int64_t i = 1; i < labels; i++)
        best = logits[i] > logits[best] ? i : best;
    *to = (float)best;
}

/* Writes the labels of a text's words, separated by spaces. */
static tx_status tell(const tx_samples *samples, int64_t number, const tx_config *config, const float *output,
                      tx_file *file)
{
    const tx_token_data *d = samples->data;
    const int64_t begin = tx_sample_begin(d->end, number);
    const char *space = "";
    for (int64_t i = begin; i < d->end[number]; i++) {
        char text[TX_PREDICTION];
        if (!d->first.id[i])
            continue;
        const int64_t label = (int64_t)output[i - begin];
        const char *name = tx_label_name(config, label);
        snprintf(text, sizeof text, "%" PRId64, label);
        name = name ? name : text;
        TX_TRY(tx_file_append(file, space, strlen(space)));
        TX_TRY(tx_file_append(file, name, strlen(name)));
        space = " ";
    }
    return TX_OK;
}

const tx_task tx_token_classification = {
    .name = "token classification",
    .head = TX_HEAD_TOKEN_CLASSIFICATION,
    .of_texts = true,
    .open = tx_tokens_open,
    .close = tx_tokens_close,
    .fields = fields,
    .row = row,
    .length = row_length,
    .loss = tx_sequence_loss,
    .distill = tx_task_distill,
    .keep = keep,
    .kept = 1,
    .measure = tx_tokens_measure,
    .tell = tell,
    .metrics = tx_token_metrics,
};
