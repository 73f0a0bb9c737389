/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of this build, as one rank or under a launcher: every rank makes the data of all ranks, so it knows
 * what each call must give, to the bit. `test_comm open` only opens it and says why it could not. */
#include "api/half.h"
#include "comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* needs some of the above before it */

static const tx_dtype dtypes[] = {TX_F32, TX_BF16, TX_I32};
enum { DTYPES = 3, BIG = (1 << 20) + 5 }; /* BIG: more than is summed at a time */

typedef struct fixture {
    tx_comm *comm;
    int32_t rank, size;
} fixture;

/* Element i of what `rank` brings: magnitudes from 2^-8 to 2^7, so that the order of a sum shows in its bits. */
static float value_of(int32_t rank, int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    float mantissa = (float)(h >> 8) * 0x1p-24f + 1.0f;
    return (h & 1u ? -mantissa : mantissa) * (float)(1u << ((h >> 1) & 15u)) * 0x1p-8f;
}

static void put(void *data, int64_t i, tx_dtype dtype, float value)
{
    if (dtype == TX_F32)
        ((float *)data)[i] = value;
    else if (dtype == TX_BF16)
        ((uint16_t *)data)[i] = tx_f32_to_bf16(value);
    else
        ((int32_t *)data)[i] = (int32_t)(value * 1000.0f);
}

static void *make(int64_t count, tx_dtype dtype)
{
    void *data = malloc((size_t)(count + 1) * tx_dtype_size(dtype));
    assert_non_null(data);
    memset(data, 0xA5, (size_t)(count + 1) * tx_dtype_size(dtype));
    return data;
}

/* Elements first.. of what `rank` brings. */
static void *make_of(int32_t rank, int64_t first, int64_t count, tx_dtype dtype)
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

/* Elements first.. of the sum over the ranks. */
static void *make_sum(int32_t size, int64_t first, int64_t count, tx_dtype dtype, bool tree)
{
    void *sum = make(count, dtype);
    for (int64_t i = 0; i < count; i++)
        if (dtype == TX_I32)
            ((int32_t *)sum)[i] = sum_i32(size, first + i);
        else
            put(sum, i, dtype, sum_f32(0, size, first + i, dtype, tree));
    return sum;
}

/* Same bits, and the guard element behind them untouched: both were made by make(). */
static void assert_same(const void *got, const void *expected, int64_t count, tx_dtype dtype)
{
    assert_memory_equal(got, expected, (size_t)(count + 1) * tx_dtype_size(dtype));
}

static void test_ranks(void **state)
{
    const fixture *f = *state;
    assert_in_range(f->rank, 0, f->size - 1);
    assert_int_equal(f->comm->local_size, f->size);
    assert_int_equal(f->comm->local_rank, f->rank);
    for (int32_t r = 0; r < f->size; r++) {
        assert_int_equal(f->comm->ranks[r].host, 0);
        assert_string_equal(f->comm->ranks[r].name, f->comm->ranks[0].name);
    }
    const char *expected = getenv("TX_TEST_RANKS");
    if (expected)
        assert_int_equal(f->size, strtol(expected, NULL, 10));
}

static void test_shards(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 255, 256, 257, 5000, INT64_C(1) << 40};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int32_t size = 1; size < 7; size++) {
            assert_int_equal(tx_comm_shard(counts[c], size, 0), 0);
            assert_int_equal(tx_comm_shard(counts[c], size, size), counts[c]);
            for (int32_t r = 0; r < size; r++) {
                int64_t first = tx_comm_shard(counts[c], size, r), next = tx_comm_shard(counts[c], size, r + 1);
                assert_true(first == counts[c] || first % TX_PARAM_BLOCK == 0);
                assert_true(next >= first && next - first <= counts[c] / size + 2 * TX_PARAM_BLOCK);
            }
        }
}

static const int64_t counts[] = {0, 1, 2, 3, 7, 1000, 16385, BIG};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static void test_all_reduce(void **state)
{
    const fixture *f = *state;
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < COUNTS; c++) {
            void *expected = make_sum(f->size, 0, counts[c], dtypes[d], true);
            for (int repeat = 0; repeat < 2; repeat++) {
                void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
                assert_int_equal(tx_comm_collect(f->comm, TX_ALL_REDUCE, data, counts[c], dtypes[d], 0), TX_OK);
                assert_same(data, expected, counts[c], dtypes[d]);
                free(data);
            }
            free(expected);
        }
}

/* The data would not show a sum in another order if that gave the same bits. */
static void test_order_shows(void **state)
{
    const fixture *f = *state;
    if (f->size < 4)
        skip();
    void *tree = make_sum(f->size, 0, 1000, TX_F32, true), *chain = make_sum(f->size, 0, 1000, TX_F32, false);
    assert_memory_not_equal(tree, chain, 1000 * sizeof(float));
    free(tree);
    free(chain);
}

static void test_reduce_scatter(void **state)
{
    const fixture *f = *state;
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < COUNTS; c++) {
            int64_t first = tx_comm_shard(counts[c], f->size, f->rank);
            int64_t count = tx_comm_shard(counts[c], f->size, f->rank + 1) - first;
            void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
            void *expected = make_sum(f->size, first, count, dtypes[d], true);
            assert_int_equal(tx_comm_collect(f->comm, TX_REDUCE_SCATTER, data, counts[c], dtypes[d], 0), TX_OK);
            size_t bytes = tx_dtype_size(dtypes[d]);
            assert_memory_equal((char *)data + (size_t)first * bytes, expected, (size_t)count * bytes);
            free(data);
            free(expected);
        }
}

static void test_all_gather(void **state)
{
    const fixture *f = *state;
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < COUNTS; c++) {
            size_t bytes = tx_dtype_size(dtypes[d]);
            void *expected = make_of(0, 0, counts[c], dtypes[d]), *data = make(counts[c], dtypes[d]);
            for (int32_t r = 0; r < f->size; r++)
                for (int64_t i = tx_comm_shard(counts[c], f->size, r); i < tx_comm_shard(counts[c], f->size, r + 1);
                     i++)
                    put((char *)expected + (size_t)i * bytes, 0, dtypes[d], value_of(r, i));
            for (int64_t i = 0; i < counts[c]; i++) /* only the own shard is right */
                put(data, i, dtypes[d], value_of(f->rank, i));
            assert_int_equal(tx_comm_collect(f->comm, TX_ALL_GATHER, data, counts[c], dtypes[d], 0), TX_OK);
            assert_same(data, expected, counts[c], dtypes[d]);
            free(data);
            free(expected);
        }
}

static void test_broadcast(void **state)
{
    const fixture *f = *state;
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < COUNTS; c++)
            for (int32_t root = 0; root < f->size; root++) {
                void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
                void *expected = make_of(root, 0, counts[c], dtypes[d]);
                assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, data, counts[c], dtypes[d], root), TX_OK);
                assert_same(data, expected, counts[c], dtypes[d]);
                free(data);
                free(expected);
            }
}

static tx_status begin_sum(const fixture *f, void *data, int64_t count, int32_t *request)
{
    const tx_transfer transfer = {
        .kind = TX_ALL_REDUCE, .dtype = TX_F32, .wire = TX_F32, .bucket = -1, .data = data, .count = count};
    return f->comm->table->begin(f->comm, &transfer, request);
}

static void test_requests(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    enum { REQUESTS = 70, COUNT = 33 };
    void *data[REQUESTS];
    int32_t request[REQUESTS];
    for (int round = 0; round < 4; round++) {
        assert_int_equal(t->background(f->comm, round % 2), TX_OK);
        for (int i = 0; i < REQUESTS; i++) {
            data[i] = make_of(f->rank, i, COUNT, TX_F32);
            assert_int_equal(begin_sum(f, data[i], COUNT, &request[i]), TX_OK);
        }
        assert_int_equal(t->wait(f->comm, request[1]), TX_INVALID);
        for (int i = 0; i < REQUESTS; i++) {
            assert_int_equal(t->wait(f->comm, request[i]), TX_OK);
            void *expected = make_sum(f->size, i, COUNT, TX_F32, true);
            assert_same(data[i], expected, COUNT, TX_F32);
            free(expected);
            free(data[i]);
        }
        assert_int_equal(t->wait(f->comm, request[REQUESTS - 1]), TX_INVALID);
    }
    assert_int_equal(t->background(f->comm, false), TX_OK);
}

/* Each two ranks, one direction after the other; long messages stay in order. */
static void test_pairs(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    for (int32_t a = 0; a < f->size; a++)
        for (int32_t b = 0; b < f->size; b++)
            for (int32_t i = 0; i < 2 && a != b; i++) {
                const int64_t count = i ? 3 : BIG;
                const tx_dtype dtype = dtypes[(a + b) % DTYPES];
                void *expected = make_of(a, i, count, dtype), *got = make(count, dtype);
                if (f->rank == a)
                    assert_int_equal(t->send(f->comm, expected, count, dtype, b), TX_OK);
                if (f->rank == b) {
                    assert_int_equal(t->receive(f->comm, got, count, dtype, a), TX_OK);
                    assert_same(got, expected, count, dtype);
                }
                free(expected);
                free(got);
            }
}

static void test_refusals(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    float x[4] = {0};
    int32_t request = -7;
    assert_int_equal(tx_comm_collect(f->comm, TX_ALL_REDUCE, x, 4, TX_U8, 0), TX_INVALID);
    assert_non_null(strstr(tx_error(), "U8"));
    assert_int_equal(tx_comm_collect(f->comm, TX_ALL_REDUCE, x, -1, TX_F32, 0), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_ALL_REDUCE, NULL, 4, TX_F32, 0), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_ALL_REDUCE, x, INT64_MAX / 2, TX_F32, 0), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_ALL_GATHER, x, 1, TX_F16, 0), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, x, 1, TX_F32, -1), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, x, 1, TX_F32, f->size), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_COLLECTIVE_COUNT, x, 1, TX_F32, 0), TX_INVALID);
    const tx_transfer odd = {.kind = TX_ALL_REDUCE, .dtype = TX_I32, .wire = TX_BF16, .data = x, .count = 1};
    assert_int_equal(tx_comm_run(f->comm, &odd), TX_INVALID);
    assert_int_equal(t->send(f->comm, x, 1, TX_F32, f->rank), TX_INVALID);
    assert_int_equal(t->send(f->comm, x, 1, TX_F32, f->size), TX_INVALID);
    assert_int_equal(t->receive(f->comm, x, 1, TX_F32, -1), TX_INVALID);
    assert_int_equal(t->receive(f->comm, NULL, 1, TX_F32, f->rank == 0 ? 1 : 0), TX_INVALID);
    assert_int_equal(begin_sum(f, NULL, 1, &request), TX_INVALID);
    assert_int_equal(request, -7);
    assert_int_equal(t->wait(f->comm, 0), TX_INVALID);
    assert_int_equal(tx_comm_collect(f->comm, TX_BARRIER, NULL, 0, TX_F32, 0), TX_OK);
}

static int open_only(int *argc, char ***argv)
{
    const tx_comm_table *table = tx_comm_default();
    tx_comm *comm = NULL;
    if (table->open(argc, argv, &comm)) {
        fprintf(stderr, "test_comm: %s\n", tx_error());
        return 1;
    }
    printf("%s: rank %d of %d\n", table->name, (int)comm->rank, (int)comm->size);
    table->close(comm);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "open") == 0)
        return open_only(&argc, &argv);
    fixture f = {0};
    if (tx_comm_default()->open(&argc, &argv, &f.comm)) {
        fprintf(stderr, "test_comm: %s\n", tx_error());
        return 1;
    }
    f.rank = f.comm->rank;
    f.size = f.comm->size;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_ranks, &f),       cmocka_unit_test_prestate(test_all_reduce, &f),
        cmocka_unit_test_prestate(test_order_shows, &f), cmocka_unit_test_prestate(test_reduce_scatter, &f),
        cmocka_unit_test_prestate(test_all_gather, &f),  cmocka_unit_test_prestate(test_broadcast, &f),
        cmocka_unit_test_prestate(test_requests, &f),    cmocka_unit_test_prestate(test_refusals, &f),
        cmocka_unit_test_prestate(test_pairs, &f),       cmocka_unit_test(test_shards),
    };
    int failed = cmocka_run_group_tests_name(f.comm->table->name, tests, NULL, NULL);
    f.comm->table->close(f.comm);
    return failed ? 1 : 0;
}
