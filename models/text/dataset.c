/* SPDX-License-Identifier: Apache-2.0
 * Text file to shuffled blocks of tokens and labels. */
#include "models/text/dataset.h"

#include "api/file.h"

#include <inttypes.h>
#include <stdlib.h>

struct tx_dataset {
    char *text; /* one byte a token */
    int64_t tokens, block, blocks;
};

static tx_status check_size(const char *path, int64_t tokens, int64_t block)
{
    if (tokens == 0)
        return tx_fail(TX_FORMAT, "%s: the file is empty; give a text to train on", path);
    if (tokens < block)
        return tx_fail(TX_FORMAT,
                       "%s: %" PRId64 " tokens do not fill one block of %" PRId64
                       "; give a longer text or a block_size of at most %" PRId64,
                       path, tokens, block, tokens);
    return TX_OK;
}

tx_status tx_dataset_read_bytes(const char *path, int64_t block, tx_dataset **dataset)
{
    if (block < 2)
        return tx_fail(TX_INVALID, "%s: a block of %" PRId64 " tokens has no label; block_size must be 2 or more", path,
                       block);
    char *text = NULL;
    size_t size = 0;
    tx_status status = tx_file_read(path, INT64_MAX, &text, &size);
    if (status)
        return status;
    status = check_size(path, (int64_t)size, block);
    tx_dataset *made = status ? NULL : malloc(sizeof *made);
    if (!status && !made)
        status = tx_fail(TX_MEMORY, "%s: no memory for the dataset", path);
    if (status) {
        free(text);
        return status;
    }
    *made = (tx_dataset){.text = text, .tokens = (int64_t)size, .block = block, .blocks = (int64_t)size / block};
    *dataset = made;
    return TX_OK;
}

void tx_dataset_free(tx_dataset *dataset)
{
    if (dataset)
        free(dataset->text);
    free(dataset);
}

int64_t tx_dataset_block(const tx_dataset *dataset)
{
    return dataset->block;
}

int64_t tx_dataset_blocks(const tx_dataset *dataset)
{
    return dataset->blocks;
}

int64_t tx_dataset_tokens(const tx_dataset *dataset)
{
    return dataset->tokens;
}

/* The finaliser of splitmix64 (Steele, Lea, Flood, 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* One pass of a balanced Feistel network: a permutation of 0..2^(2 half)-1 whatever the round function is
 * (Luby, Rackoff, 1988; eight rounds because small domains mix slowly). */
static uint64_t feistel(uint64_t x, uint32_t half, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint64_t next = left ^ (mix(mix(key + round) ^ right) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t tx_order_at(const tx_order *order, int64_t count, int64_t place)
{
    if (!order->shuffle || count < 2)
        return place;
    uint32_t half = 1;
    while (half < 31 && (uint64_t)count > (uint64_t)1 << (2 * half))
        half++;
    uint64_t key = mix(mix(order->seed) ^ order->epoch), x = (uint64_t)place;
    /* The network permutes a power of four; walking its cycle until the value falls among the first `count`
     * restricts it to a permutation of these (Black, Rogaway, 2002). */
    do
        x = feistel(x, half, key);
    while (x >= (uint64_t)count);
    return (int64_t)x;
}

int64_t tx_dataset_rows(const tx_dataset *dataset, const tx_order *order, int64_t first, int64_t rows, int32_t *tokens,
                        int32_t *labels)
{
    int64_t block = dataset->block, real = 0;
    for (int64_t r = 0; r < rows; r++, tokens += block, labels += block) {
        bool padding = first + r >= dataset->blocks;
        const uint8_t *from = (const uint8_t *)dataset->text;
        if (!padding) {
            from += tx_order_at(order, dataset->blocks, first + r) * block;
            real++;
        }
        for (int64_t t = 0; t < block; t++) {
            tokens[t] = padding ? 0 : from[t];
            labels[t] = padding || t + 1 == block ? TX_IGNORE_LABEL : from[t + 1];
        }
    }
    return real;
}
