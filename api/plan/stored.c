/* SPDX-License-Identifier: Apache-2.0
 * Bytes of arenas of which ranks have shards, or of which each has all. */
#include "api/plan/stored.h"

#include "api/parallel/parallel.h"

#include <string.h>

/* What this rank's shard has of a range of bytes. */
typedef struct own_part {
    const tx_bucket *bucket;
    int64_t at, bytes; /* within the range; 0 bytes: nothing */
    int64_t kept;      /* its address among the shards */
} own_part;

/* A parameter lies in one bucket, of a model whose memory is there. */
static own_part own_of(const tx_model *model, tx_arena_id arena, int64_t address, int64_t bytes)
{
    const tx_parallel *p = model->parallel;
    const tx_bucket *b = &p->bucket[tx_parallel_bucket_at(p, arena, address)];
    const int64_t shard = b->address + b->first * b->element, last = shard + b->owned * b->element,
                  begin = shard > address ? shard : address, end = last < address + bytes ? last : address + bytes;
    return (own_part){b, begin - address, begin < end ? end - begin : 0, b->kept + begin - shard};
}

tx_status tx_stored_write(tx_model *model, tx_arena_id arena, int64_t address, const void *data, int64_t bytes)
{
    if (!model->arena[arena].addresses)
        return tx_model_write_at(model, arena, address, data, bytes);
    const own_part own = own_of(model, arena, address, bytes);
    return own.bytes ? tx_model_write_at(model, tx_bucket_keeper(model->parallel, own.bucket), own.kept,
                                         (const char *)data + own.at, own.bytes)
                     : TX_OK;
}

tx_status tx_stored_read(tx_model *model, tx_arena_id arena, int64_t address, void *data, int64_t bytes)
{
    const int64_t words = (bytes + (int64_t)sizeof(int32_t) - 1) / (int64_t)sizeof(int32_t);
    tx_status status = TX_OK;
    if (!model->arena[arena].addresses)
        return tx_model_read_at(model, arena, address, data, bytes);
    const own_part own = own_of(model, arena, address, bytes);
    memset(data, 0, (size_t)words * sizeof(int32_t));
    if (own.bytes)
        status = tx_model_read_at(model, tx_bucket_keeper(model->parallel, own.bucket), own.kept, (char *)data + own.at,
                                  own.bytes);
    return tx_stored_add_up(own.bucket->comm, data, words, status);
}

tx_status tx_stored_add_up(tx_comm *comm, void *to, int64_t words, tx_status status)
{
    const tx_status added = tx_comm_collect(comm, TX_ALL_REDUCE, to, words, TX_I32, 0);
    return status ? status : added;
}
