/* SPDX-License-Identifier: Apache-2.0
 * Functions for any task: samples, shapes, rows and labels of its batches. */
#include "models/task/task.h"

#include "api/base/arithmetic.h"
#include "models/arch/labels.h"
#include "models/tokenizer/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A balanced Feistel network: a permutation of 0..2^(2 half)-1 for any round function (Luby, Rackoff, 1988). It has
 * eight rounds because small domains mix slowly. */
static uint64_t feistel(uint64_t x, uint32_t half, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint64_t next = left ^ (tx_hash_draw(tx_hash_draw(key + round) ^ right) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t tx_sample_order_at(const tx_sample_order *order, int64_t count, int64_t place)
{
    if (!order->shuffle || count < 2)
        return place;
    uint32_t half = 1;
    while (half < 31 && (uint64_t)count > (uint64_t)1 << (2 * half))
        half++;
    uint64_t key = tx_hash_draw(tx_hash_draw(order->seed) ^ order->epoch), x = (uint64_t)place;
    /* The network permutes a power of four. Walking its cycle until the value is below `count` restricts it to a
     * permutation of the first `count` values (Black, Rogaway, 2002). */
    do
        x = feistel(x, half, key);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}

tx_status tx_samples_open(const tx_task *task, const char *path, const tx_data_options *options, tx_samples *samples)
{
    tx_samples result = {.task = task, .block = options->block};
    if (task->of_texts)
        TX_TRY(tx_task_need_tokenizer(path, options));
    if (task->data_size && !(result.own = calloc(1, task->data_size)))
        return tx_fail(TX_MEMORY, "%s: out of memory", path);
    const tx_status status = task->read(&result, path, options);
    result.data = result.own;
    if (status)
        tx_samples_close(&result);
    else
        *samples = result;
    return status;
}

void tx_samples_close(tx_samples *samples)
{
    if (samples->own)
        samples->task->release(samples->own);
    *samples = (tx_samples){.task = NULL};
}

tx_status tx_samples_rows(const tx_samples *samples, const tx_sample_order *order, int64_t first, const tx_batch *batch)
{
    const tx_task *task = samples->task;
    const int64_t block = samples->block, left = first < samples->count ? samples->count - first : 0;
    const int64_t real = left < batch->rows ? left : batch->rows, padding = batch->rows - real;
    for (int64_t r = 0; r < real; r++) {
        tx_batch row = tx_batch_rows(task, block, batch, r, 1);
        row.epoch = order->epoch;
        TX_TRY(task->row(samples, tx_sample_order_at(order, samples->count, first + r), &row));
    }
    const tx_batch rest = tx_batch_rows(task, block, batch, real, padding);
    for (int32_t f = 0; task->fields[f].name; f++)
        tx_field_pad(&task->fields[f], rest.field[f], padding * tx_field_values(&task->fields[f], block));
    return TX_OK;
}

static int64_t sequences_of(const tx_field *field)
{
    return field->sequences ? field->sequences : 1;
}

/* The number of values of a sequence. */
static int64_t width_of(const tx_field *field, int64_t block)
{
    enum { UNIT = 8 }; /* kernels load so many values of a row at once */
    const bool whole = field->width == TX_FIELD_BLOCK || (field->of_block && field->width > block);
    const int64_t width = whole ? block : field->width > 0 ? field->width : 1, group = field->group;
    if (group < 2)
        return width;
    const int64_t share = tx_round_up(tx_ceil_div(block + (group - 1) * width, group), UNIT);
    return share < block ? share : block;
}

int64_t tx_field_values(const tx_field *field, int64_t block)
{
    return sequences_of(field) * width_of(field, block);
}

tx_shape tx_field_shape(const tx_field *field, int64_t rows, int64_t block)
{
    const int64_t sequences = rows * sequences_of(field);
    return field->width ? TX_SHAPE(sequences, width_of(field, block)) : TX_SHAPE(sequences);
}

void tx_field_pad(const tx_field *field, void *values, int64_t count)
{
    int32_t *whole = values;
    float *real = values;
    for (int64_t i = 0; i < count; i++)
        if (field->dtype == TX_I32)
            whole[i] = (int32_t)field->padding;
        else
            real[i] = (float)field->padding;
}

static int64_t bytes_of(const tx_field *field, int64_t block)
{
    return tx_field_values(field, block) * (int64_t)tx_dtype_size(field->dtype);
}

int64_t tx_task_row_bytes(const tx_task *task, int64_t block)
{
    int64_t bytes = 0;
    for (const tx_field *f = task->fields; f->name; f++)
        bytes += bytes_of(f, block);
    return bytes;
}

bool tx_task_is_same(const tx_task *one, const tx_task *other, int64_t block)
{
    return strcmp(one->name, other->name) == 0 && tx_task_row_bytes(one, block) == tx_task_row_bytes(other, block);
}

static const char *without_eval(const char *name)
{
    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

int32_t tx_task_metric(const tx_task *task, const char *name)
{
    for (int32_t m = 0; task->metrics[m].name; m++)
        if (strcmp(without_eval(task->metrics[m].name), without_eval(name)) == 0)
            return m;
    return -1;
}

tx_batch tx_batch_of(const tx_task *task, int64_t block, int64_t rows, void *memory)
{
    tx_batch batch = {.rows = rows};
    char *at = memory;
    for (int32_t f = 0; task->fields[f].name; f++) {
        batch.field[f] = at;
        at += rows * bytes_of(&task->fields[f], block);
    }
    return batch;
}

tx_batch tx_batch_rows(const tx_task *task, int64_t block, const tx_batch *batch, int64_t first, int64_t rows)
{
    tx_batch part = {.rows = rows, .longest = batch->longest, .target = batch->target};
    for (int32_t f = 0; task->fields[f].name; f++)
        part.field[f] = (char *)batch->field[f] + first * bytes_of(&task->fields[f], block);
    return part;
}

int64_t tx_batch_longest(const tx_task *task, const tx_batch *batch)
{
    int64_t longest = 0;
    for (int32_t f = 0; task->fields[f].name; f++)
        for (int64_t r = 0;
             r < batch->rows * sequences_of(&task->fields[f]) && strcmp(task->fields[f].name, TX_FIELD_LENGTHS) == 0;
             r++) {
            const int32_t length = ((const int32_t *)batch->field[f])[r];
            longest = length > longest ? length : longest;
        }
    return longest;
}

int64_t tx_task_target(const tx_task *task)
{
    const tx_field *f = task->fields;
    while (f->name && !f->target)
        f++;
    return f->name ? f->width : 0;
}

int64_t tx_batch_target(const tx_task *task, const tx_batch *batch)
{
    int64_t longest = 0;
    for (int32_t f = 0; task->fields[f].name; f++) {
        const int64_t width = task->fields[f].width;
        const int32_t *labels = batch->field[f];
        if (!task->fields[f].target || strcmp(task->fields[f].name, "labels") != 0)
            continue;
        for (int64_t i = 0; i < batch->rows * width; i++)
            if (labels[i] != TX_IGNORE_LABEL && i % width >= longest)
                longest = i % width + 1;
    }
    return longest;
}

/* The index of the field of this name, or -1. */
static int32_t find(const tx_task *task, const char *name)
{
    for (int32_t f = 0; task->fields[f].name; f++)
        if (strcmp(task->fields[f].name, name) == 0)
            return f;
    return -1;
}

const tx_field *tx_task_ids(const tx_task *task)
{
    const int32_t at = find(task, "input_ids");
    return at < 0 ? NULL : &task->fields[at];
}

int64_t tx_task_sequences(const tx_task *task)
{
    const tx_field *ids = tx_task_ids(task);
    return ids ? sequences_of(ids) : 1;
}

int64_t tx_batch_tokens(const tx_task *task, int64_t block, const tx_batch *batch)
{
    const int32_t at_lengths = find(task, TX_FIELD_LENGTHS), at_ids = find(task, "input_ids");
    const int32_t *lengths = at_lengths < 0 ? NULL : batch->field[at_lengths];
    const bool has_ids =
        at_ids >= 0 && task->fields[at_ids].width == TX_FIELD_BLOCK && task->fields[at_ids].dtype == TX_I32;
    int64_t tokens = 0;
    for (int64_t r = 0; r < batch->rows * tx_task_sequences(task); r++) {
        const int32_t *ids = has_ids ? (const int32_t *)batch->field[at_ids] + r * block : NULL;
        const int64_t used = lengths ? lengths[r] : block;
        for (int64_t t = 0; t < used; t++)
            tokens += !ids || ids[t] != TX_NO_TOKEN;
    }
    return tokens;
}

/* Counts the labels that are not ignored. The counter has 32 bits so that the loop vectorises. */
static int32_t count(const tx_field *field, const void *values, int32_t number)
{
    const int32_t *whole = values;
    const float *real = values;
    int32_t counted = 0;
    if (field->dtype == TX_I32)
        for (int32_t i = 0; i < number; i++)
            counted += whole[i] != TX_IGNORE_LABEL;
    else
        for (int32_t i = 0; i < number; i++)
            counted += !isnan(real[i]);
    return counted;
}

int64_t tx_batch_labels(const tx_task *task, int64_t block, const tx_batch *batch)
{
    int64_t labels = 0;
    for (int32_t f = 0; task->fields[f].name; f++)
        for (int64_t r = 0; r < batch->rows && strcmp(task->fields[f].name, "labels") == 0; r++)
            labels += count(&task->fields[f], (const char *)batch->field[f] + r * bytes_of(&task->fields[f], block),
                            (int32_t)tx_field_values(&task->fields[f], block));
    return labels;
}

tx_tensor *tx_label_loss(tx_graph *graph, const tx_config *config, tx_tensor *logits, float smoothing)
{
    return tx_mean_loss(
        tx_cross_entropy_smoothed(logits, tx_find_input(graph, "labels"), tx_arch_columns(config), smoothing));
}

tx_tensor *tx_task_label_loss(const tx_loss_operands *of, tx_tensor **rows)
{
    (void)rows;
    return tx_label_loss(of->graph, of->config, of->output, (float)of->set->smoothing);
}

tx_tensor *tx_task_distill(const tx_loss_operands *of)
{
    return tx_mean_loss(tx_distillation(of->output, of->second, tx_find_input(of->graph, "labels"),
                                        tx_arch_columns(of->config), (float)of->set->temperature,
                                        (float)of->set->alpha));
}

void tx_own_task_make(const tx_task *task, tx_own_task *own)
{
    int32_t count = 0;
    while (task->fields[count].name)
        count++;
    own->task = *task;
    memcpy(own->field, task->fields, (size_t)(count + 1) * sizeof *own->field);
    own->task.fields = own->field;
}

tx_status tx_task_write_label(const tx_config *config, int64_t label, tx_file *file)
{
    char text[24];
    const char *name = tx_label_name(config, label);
    snprintf(text, sizeof text, "%" PRId64, label);
    return tx_file_append(file, name ? name : text, strlen(name ? name : text));
}

int64_t tx_task_best(const float *values, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = values[i] > values[best] ? i : best;
    return best;
}

/* A gather by a negative index gives 0. */
tx_tensor *tx_task_row_weights(tx_graph *graph)
{
    tx_tensor *labels = tx_find_input(graph, "labels");
    return labels ? tx_reshape(tx_gather(tx_fill(graph, TX_SHAPE(1, 1), 1.0f), labels), *tx_tensor_shape(labels))
                  : NULL;
}

tx_status tx_task_need_tokenizer(const char *path, const tx_data_options *o)
{
    return o->tokenizer ? TX_OK : tx_fail(TX_NOT_FOUND, "%s: the model has no tokenizer: give --tokenizer_name", path);
}

tx_status tx_task_choose_range(const tx_data_options *o, int64_t count, const char *what, int64_t *begin, int64_t *end)
{
    *begin = (int64_t)rint((double)count * o->from / 100.0);
    *end = (int64_t)rint((double)count * o->to / 100.0);
    if (o->most && *end - *begin > o->most)
        *end = *begin + o->most;
    if (count == 0)
        return tx_fail(TX_INVALID, "the file has no %s", what);
    return *begin < *end ? TX_OK
                         : tx_fail(TX_INVALID,
                                   "the part of the file that --validation_split_percentage selects has no %s: give "
                                   "another percentage or --validation_file",
                                   what);
}

tx_status tx_task_check_ids(const tx_data_options *o, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= o->config->vocab_size)
            return tx_fail(TX_INVALID, "the tokenizer's id %" PRId32 " is not in the model's vocabulary of %" PRId64,
                           ids[i], o->config->vocab_size);
    return TX_OK;
}

tx_status tx_task_pad(const tx_data_options *o, int64_t *pad)
{
    *pad = -1;
    if (!o->config->architecture->reads_last)
        return TX_OK;
    *pad = tx_pad_token(o->config);
    if (*pad >= 0)
        return TX_OK;
    *pad = tx_tokenizer_pad(o->tokenizer);
    return *pad < 0 ? TX_OK : tx_pad_token_set(o->config, *pad);
}

double tx_task_mean_loss(const double sums[TX_SUMS_MAX])
{
    return sums[TX_SUM_LOSS] / sums[TX_SUM_LABELS];
}
