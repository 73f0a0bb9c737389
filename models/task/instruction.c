/* SPDX-License-Identifier: Apache-2.0
 * The tasks of instruction data: rows of one sample, and packed rows. */
#include "models/task/instruction.h"

#include "models/task/causal_lm.h"
#include "models/task/tasks.h"

#define FIELDS                                                                                  \
    [TX_INSTRUCTION_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN}, \
    [TX_INSTRUCTION_LABELS] = {"labels", TX_I32, TX_FIELD_BLOCK, .padding = TX_IGNORE_LABEL},   \
    [TX_INSTRUCTION_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1}

static const tx_field fields[] = {FIELDS, {.name = NULL}};
static const tx_field packed_fields[] = {
    FIELDS,
    [TX_INSTRUCTION_POSITION_IDS] = {"position_ids", TX_I32, TX_FIELD_BLOCK, .padding = 0},
    [TX_INSTRUCTION_STARTS] = {"attention_starts", TX_I32, TX_FIELD_BLOCK, .padding = 0},
    {.name = NULL},
};

/* Writes a sample to the row from position `at` on, and adds its length. */
static tx_status put(const tx_instruction_data *d, int64_t sample, int64_t *at, const tx_batch *to)
{
    const int64_t begin = tx_sample_begin(d->end, sample), length = d->end[sample] - begin;
    TX_TRY(tx_store_read(&d->from.ids, begin, length, (int32_t *)to->field[TX_INSTRUCTION_INPUT_IDS] + *at));
    TX_TRY(tx_store_read(&d->labels, begin, length, (int32_t *)to->field[TX_INSTRUCTION_LABELS] + *at));
    *at += length;
    return TX_OK;
}

/* Pads the row after its first `used` positions. */
static void pad(const tx_samples *samples, int64_t used, const tx_batch *to)
{
    const tx_field *list = samples->task->fields;
    for (int f = 0; list[f].name; f++)
        if (list[f].width == TX_FIELD_BLOCK)
            tx_field_pad(&list[f], (int32_t *)to->field[f] + used, samples->block - used);
    *(int32_t *)to->field[TX_INSTRUCTION_LENGTHS] = (int32_t)used;
}

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    int64_t used = 0;
    TX_TRY(put(samples->data, number, &used, to));
    pad(samples, used, to);
    return TX_OK;
}

static int64_t row_length(const tx_samples *samples, int64_t number)
{
    const tx_instruction_data *d = samples->data;
    return d->end[number] - tx_sample_begin(d->end, number);
}

static int64_t packed_row_length(const tx_samples *samples, int64_t number)
{
    const tx_instruction_data *d = samples->data;
    int64_t sum = 0;
    for (int64_t i = tx_sample_begin(d->last, number); i < d->last[number]; i++)
        sum += row_length(samples, d->order[i]);
    return sum;
}

static tx_status packed_row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_instruction_data *d = samples->data;
    int32_t *positions = to->field[TX_INSTRUCTION_POSITION_IDS], *starts = to->field[TX_INSTRUCTION_STARTS];
    int64_t used = 0;
    for (int64_t i = tx_sample_begin(d->last, number); i < d->last[number]; i++) {
        const int64_t begin = used;
        TX_TRY(put(d, d->order[i], &used, to));
        for (int64_t t = begin; t < used; t++) {
            positions[t] = (int32_t)(t - begin);
            starts[t] = (int32_t)begin;
        }
    }
    pad(samples, used, to);
    return TX_OK;
}

tx_status tx_instruction_detect(const tx_task *task, const tx_task_signs *signs, bool *is)
{
    *is = false;
    return signs->head == task->head && signs->path ? tx_instruction_find(signs->path, is) : TX_OK;
}

#define ROW(title, list, function, size, ...)                                                                         \
    {                                                                                                                 \
        .name = title, .head = TX_HEAD_CAUSAL_LM, .of_texts = true, .data_size = sizeof(tx_instruction_data),         \
        .read = tx_instruction_data_read, .release = tx_instruction_data_release, .save = tx_conversation_data_save,  \
        .end = tx_conversation_data_end, .fields = list, .row = function, .length = size, .loss = tx_task_label_loss, \
        .distills = true, .metrics = tx_causal_lm_metrics, __VA_ARGS__                                                \
    }

const tx_task tx_instruction_packed =
    ROW("instruction data, packed", packed_fields, packed_row, packed_row_length, .packed = NULL);
const tx_task tx_instruction = ROW("instruction data", fields, row, row_length, .packed = &tx_instruction_packed);
