/* SPDX-License-Identifier: Apache-2.0
 * Data of the tests of the communicators, and their expected sums. */
#include "tests/comm/ranks.h"
#include "api/base/half.h"

enum { ROOM = BIG * 4 + 4096, ODD = 1028 }; /* bytes of the window, and where data lie in it that begin on no page */

tx_status fixture_take(fixture *f, tx_comm *comm)
{
    const char *most = getenv("TX_COMM_SHM");
    void *window = NULL;
    TX_TRY(comm->table->window(comm, ROOM, &window));
    *f = (fixture){.comm = comm, .rank = comm->rank, .size = comm->size, .window = window};
    f->most = most && *most ? (int32_t)strtol(most, NULL, 10) : f->size;
    f->most = f->most < 1 ? 1 : f->most > f->comm->local_size ? f->comm->local_size : f->most;
    return TX_OK;
}

bool fixture_open(fixture *f, int *argc, char ***argv)
{
    tx_comm *comm = NULL;
    tx_status status = tx_comm_default()->open(argc, argv, &comm);
    TX_THEN(status, fixture_take(f, comm));
    if (status)
        fprintf(stderr, "test_comm: %s\n", tx_error());
    return !status;
}

void fixture_close(fixture *f)
{
    f->comm->table->close(f->comm);
}

const tx_dtype dtypes[] = {TX_F32, TX_BF16, TX_I32};
float value_of(int32_t rank, int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    float mantissa = (float)(h >> 8) * 0x1p-24f + 1.0f;
    return (h & 1u ? -mantissa : mantissa) * (float)(1u << ((h >> 1) & 15u)) * 0x1p-8f;
}

void put(void *data, int64_t i, tx_dtype dtype, float value)
{
    if (dtype == TX_F32)
        ((float *)data)[i] = value;
    else if (dtype == TX_BF16)
        ((uint16_t *)data)[i] = tx_f32_to_bf16(value);
    else
        ((int32_t *)data)[i] = (int32_t)(value * 1000.0f);
}

void *make(int64_t count, tx_dtype dtype)
{
    void *data = malloc((size_t)(count + 1) * tx_dtype_size(dtype));
    assert_non_null(data);
    memset(data, 0xA5, (size_t)(count + 1) * tx_dtype_size(dtype));
    return data;
}

void *make_of(int32_t rank, int64_t first, int64_t count, tx_dtype dtype)
{
    void *data = make(count, dtype);
    for (int64_t i = 0; i < count; i++)
        put(data, i, dtype, value_of(rank, first + i));
    return data;
}

/* Element `first` of the sum over ranks lowest .. lowest + count - 1, in the order of the tree; or in their order. */
static float sum_f32(int32_t lowest, int32_t count, int64_t i, tx_dtype dtype, bool tree)
{
    float one = value_of(lowest + count - 1, i);
    if (dtype == TX_BF16)
        one = tx_bf16_to_f32(tx_f32_to_bf16(one));
    if (count == 1)
        return one;
    int32_t split = 1;
    while (split * 2 < count)
        split *= 2;
    if (!tree)
        return sum_f32(lowest, count - 1, i, dtype, false) + one;
    return sum_f32(lowest, split, i, dtype, true) + sum_f32(lowest + split, count - split, i, dtype, true);
}

static int32_t sum_i32(int32_t size, int64_t i)
{
    int32_t total = 0, one;
    for (int32_t k = 0; k < size; k++) {
        put(&one, 0, TX_I32, value_of(k, i));
        total += one;
    }
    return total;
}

void *make_sum(int32_t size, int64_t first, int64_t count, tx_dtype dtype, bool tree)
{
    void *sum = make(count, dtype);
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_I32)
            ((int32_t *)sum)[i] = sum_i32(size, first + i);
        else
            put(sum, i, dtype, sum_f32(0, size, first + i, dtype, tree));
    return sum;
}

void assert_same(const void *got, const void *expected, int64_t count, tx_dtype dtype)
{
    assert_memory_equal(got, expected, (size_t)(count + 1) * tx_dtype_size(dtype));
}

/* Returns element i of the sum of ranks lowest .. lowest + count - 1, rounded when it is sent between groups. */
static float sum_rounded(int32_t lowest, int32_t count, int32_t most, int64_t i)
{
    if (lowest / most == (lowest + count - 1) / most)
        return tx_bf16_to_f32(tx_f32_to_bf16(sum_f32(lowest, count, i, TX_F32, true)));
    int32_t split = 1;
    while (split * 2 < count)
        split *= 2;
    return sum_rounded(lowest, split, most, i) + sum_rounded(lowest + split, count - split, most, i);
}

void *make_rounded_sum(int32_t size, int32_t most, int64_t first, int64_t count)
{
    if (size <= most)
        return make_sum(size, first, count, TX_F32, true);
    float *sum = make(count, TX_F32);
    for (int64_t i = 0; i < count; i++)
        sum[i] = tx_bf16_to_f32(tx_f32_to_bf16(sum_rounded(0, size, most, first + i)));
    return sum;
}

tx_status collect(const fixture *f, place at, tx_collective kind, void *data, int64_t count, tx_dtype dtype,
                  tx_dtype wire, int32_t root)
{
    const size_t bytes = (size_t)(count + 1) * tx_dtype_size(dtype);
    char *in = f->window + (at == WINDOW_ODD ? ODD : 0);
    tx_transfer t = {
        .kind = kind, .dtype = dtype, .wire = wire, .root = root, .bucket = -1, .data = data, .count = count};
    if (at == PRIVATE)
        return tx_comm_run(f->comm, &t);
    memset(f->window, 0x5A, ODD);
    t.data = memcpy(in, data, bytes);
    tx_status status = tx_comm_run(f->comm, &t);
    memcpy(data, in, bytes);
    for (int32_t i = 0; i < ODD && at == WINDOW_ODD; i++)
        assert_int_equal(f->window[i], 0x5A);
    return status;
}

tx_transfer sum_of(void *data, int64_t count, int32_t bucket)
{
    return (tx_transfer){
        .kind = TX_ALL_REDUCE, .dtype = TX_F32, .wire = TX_F32, .bucket = bucket, .data = data, .count = count};
}
