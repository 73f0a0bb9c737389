/* SPDX-License-Identifier: Apache-2.0
 * Makes rows of samples in the order of an epoch, a permutation that is computed position by position. */
#include "models/task/task.h"

#include <stdlib.h>

#include "models/text/hash.h"

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
    tx_samples made = {.task = task, .block = options->block};
    if (task->of_texts)
        TX_TRY(tx_task_need_tokenizer(path, options));
    if (task->data_size && !(made.own = calloc(1, task->data_size)))
        return tx_fail(TX_MEMORY, "%s: out of memory", path);
    const tx_status status = task->read(&made, path, options);
    made.data = made.own;
    if (status)
        tx_samples_close(&made);
    else
        *samples = made;
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
        const tx_batch row = tx_batch_rows(task, block, batch, r, 1);
        TX_TRY(task->row(samples, tx_sample_order_at(order, samples->count, first + r), order->epoch, &row));
    }
    const tx_batch rest = tx_batch_rows(task, block, batch, real, padding);
    for (int32_t f = 0; task->fields[f].name; f++)
        tx_field_pad(&task->fields[f], rest.field[f], padding * tx_field_values(&task->fields[f], block));
    return TX_OK;
}
