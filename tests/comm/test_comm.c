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
    const tx_comm_table *table;
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

/* Elements first.. of the sum over the ranks, from the first to the last or the other way. */
static void *make_sum(int32_t size, int64_t first, int64_t count, tx_dtype dtype, bool reversed)
{
    void *sum = make(count, dtype), *one = make(1, dtype);
    for (int64_t i = 0; i < count; i++) {
        float total = 0.0f;
        int32_t whole = 0;
        for (int32_t k = 0; k < size; k++) {
            put(one, 0, dtype, value_of(reversed ? size - 1 - k : k, first + i));
            if (dtype == TX_I32)
                whole += *(int32_t *)one;
            else {
                float x = dtype == TX_F32 ? *(float *)one : tx_bf16_to_f32(*(uint16_t *)one);
                total = k ? total + x : x;
            }
        }
        if (dtype == TX_I32)
            ((int32_t *)sum)[i] = whole;
        else
            put(sum, i, dtype, total);
    }
    free(one);
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
    assert_int_equal(f->table->local_size(f->comm), f->size);
    assert_int_equal(f->table->local_rank(f->comm), f->rank);
    const char *expected = getenv("TX_TEST_RANKS");
    if (expected)
        assert_int_equal(f->size, strtol(expected, NULL, 10));
}

static void test_all_reduce(void **state)
{
    const fixture *f = *state;
    static const int64_t counts[] = {0, 1, 2, 3, 7, 1000, 16385, BIG};
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            void *expected = make_sum(f->size, 0, counts[c], dtypes[d], false);
            for (int repeat = 0; repeat < 2; repeat++) {
                void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
                assert_int_equal(f->table->all_reduce(f->comm, data, counts[c], dtypes[d]), TX_OK);
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
    if (f->size < 3)
        skip();
    void *forward = make_sum(f->size, 0, 1000, TX_F32, false), *backward = make_sum(f->size, 0, 1000, TX_F32, true);
    assert_memory_not_equal(forward, backward, 1000 * sizeof(float));
    free(forward);
    free(backward);
}

static void test_reduce_scatter(void **state)
{
    const fixture *f = *state;
    static const int64_t counts[] = {0, 1, 5, 4097, BIG / 2};
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            int64_t count = counts[c];
            void *data = make_of(f->rank, 0, f->size * count, dtypes[d]);
            void *expected = make_sum(f->size, f->rank * count, count, dtypes[d], false);
            void *out = make(count, dtypes[d]);
            assert_int_equal(f->table->reduce_scatter(f->comm, data, out, count, dtypes[d]), TX_OK);
            assert_same(out, expected, count, dtypes[d]);
            free(data);
            free(expected);
            free(out);
        }
}

static void test_all_gather(void **state)
{
    const fixture *f = *state;
    static const int64_t counts[] = {0, 1, 3, 999, BIG};
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            int64_t count = counts[c];
            void *data = make_of(f->rank, 0, count, dtypes[d]);
            void *out = make(f->size * count, dtypes[d]), *expected = make(f->size * count, dtypes[d]);
            for (int32_t r = 0; r < f->size; r++)
                for (int64_t i = 0; i < count; i++)
                    put(expected, r * count + i, dtypes[d], value_of(r, i));
            assert_int_equal(f->table->all_gather(f->comm, data, out, count, dtypes[d]), TX_OK);
            assert_same(out, expected, f->size * count, dtypes[d]);
            free(data);
            free(out);
            free(expected);
        }
}

static void test_broadcast(void **state)
{
    const fixture *f = *state;
    static const int64_t counts[] = {0, 1, 333, BIG};
    for (int d = 0; d < DTYPES; d++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int32_t root = 0; root < f->size; root++) {
                void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
                void *expected = make_of(root, 0, counts[c], dtypes[d]);
                assert_int_equal(f->table->broadcast(f->comm, data, counts[c], dtypes[d], root), TX_OK);
                assert_same(data, expected, counts[c], dtypes[d]);
                free(data);
                free(expected);
            }
}

static void test_requests(void **state)
{
    const fixture *f = *state;
    enum { REQUESTS = 70, COUNT = 33 };
    void *data[REQUESTS];
    int32_t request[REQUESTS];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < REQUESTS; i++) {
            data[i] = make_of(f->rank, i, COUNT, TX_F32);
            assert_int_equal(f->table->begin(f->comm, data[i], COUNT, TX_F32, &request[i]), TX_OK);
        }
        assert_int_equal(f->table->wait(f->comm, request[1]), TX_INVALID);
        for (int i = 0; i < REQUESTS; i++) {
            if (i == 3) /* other calls may come between */
                assert_int_equal(f->table->barrier(f->comm), TX_OK);
            assert_int_equal(f->table->wait(f->comm, request[i]), TX_OK);
            void *expected = make_sum(f->size, i, COUNT, TX_F32, false);
            assert_same(data[i], expected, COUNT, TX_F32);
            free(expected);
            free(data[i]);
        }
        assert_int_equal(f->table->wait(f->comm, request[REQUESTS - 1]), TX_INVALID);
    }
}

/* Each two ranks, one direction after the other; long messages stay in order. */
static void test_pairs(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->table;
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
    const tx_comm_table *t = f->table;
    float x[4] = {0}, y[64] = {0};
    int32_t request = -7;
    assert_int_equal(t->all_reduce(f->comm, x, 4, TX_U8), TX_INVALID);
    assert_non_null(strstr(tx_error(), "U8"));
    assert_int_equal(t->all_reduce(f->comm, x, -1, TX_F32), TX_INVALID);
    assert_int_equal(t->all_reduce(f->comm, NULL, 4, TX_F32), TX_INVALID);
    assert_int_equal(t->all_reduce(f->comm, x, INT64_MAX / 2, TX_F32), TX_INVALID);
    assert_int_equal(t->reduce_scatter(f->comm, y, NULL, 1, TX_F32), TX_INVALID);
    assert_int_equal(t->reduce_scatter(f->comm, NULL, x, 1, TX_F32), TX_INVALID);
    assert_int_equal(t->all_gather(f->comm, x, NULL, 1, TX_F32), TX_INVALID);
    assert_int_equal(t->all_gather(f->comm, x, y, 1, TX_F16), TX_INVALID);
    assert_int_equal(t->broadcast(f->comm, x, 1, TX_F32, -1), TX_INVALID);
    assert_int_equal(t->broadcast(f->comm, x, 1, TX_F32, f->size), TX_INVALID);
    assert_int_equal(t->send(f->comm, x, 1, TX_F32, f->rank), TX_INVALID);
    assert_int_equal(t->send(f->comm, x, 1, TX_F32, f->size), TX_INVALID);
    assert_int_equal(t->receive(f->comm, x, 1, TX_F32, -1), TX_INVALID);
    assert_int_equal(t->receive(f->comm, NULL, 1, TX_F32, f->rank == 0 ? 1 : 0), TX_INVALID);
    assert_int_equal(t->begin(f->comm, NULL, 1, TX_F32, &request), TX_INVALID);
    assert_int_equal(request, -7);
    assert_int_equal(t->wait(f->comm, 0), TX_INVALID);
    assert_int_equal(t->barrier(f->comm), TX_OK);
}

static int open_only(int *argc, char ***argv)
{
    const tx_comm_table *table = tx_comm_default();
    tx_comm *comm = NULL;
    if (table->open(argc, argv, &comm)) {
        fprintf(stderr, "test_comm: %s\n", tx_error());
        return 1;
    }
    printf("%s: rank %d of %d\n", table->name, (int)table->rank(comm), (int)table->size(comm));
    table->close(comm);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "open") == 0)
        return open_only(&argc, &argv);
    fixture f = {.table = tx_comm_default()};
    if (f.table->open(&argc, &argv, &f.comm)) {
        fprintf(stderr, "test_comm: %s\n", tx_error());
        return 1;
    }
    f.rank = f.table->rank(f.comm);
    f.size = f.table->size(f.comm);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_ranks, &f),       cmocka_unit_test_prestate(test_all_reduce, &f),
        cmocka_unit_test_prestate(test_order_shows, &f), cmocka_unit_test_prestate(test_reduce_scatter, &f),
        cmocka_unit_test_prestate(test_all_gather, &f),  cmocka_unit_test_prestate(test_broadcast, &f),
        cmocka_unit_test_prestate(test_requests, &f),    cmocka_unit_test_prestate(test_refusals, &f),
        cmocka_unit_test_prestate(test_pairs, &f),
    };
    int failed = cmocka_run_group_tests_name(f.table->name, tests, NULL, NULL);
    f.table->close(f.comm);
    return failed ? 1 : 0;
}
