/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator of this build, as one rank or under a launcher. `test_comm open` only opens it and says why it could
 * not, `window MB [kill]` makes a window, `differ` is about ranks that do different things, `abandon` about a rank that
 * is lost, `huge` about more than 2^31 elements. */
#include "api/base/half.h"
#include "api/base/memory_left.h"
#include "tests/comm/ranks.h"

#include <math.h>
#include <signal.h>

static void test_ranks(void **state)
{
    const fixture *f = *state;
    const char *hosts = getenv("TX_TEST_HOSTS"), *expected = getenv("TX_TEST_RANKS");
    const int32_t each = f->size / (hosts ? (int32_t)strtol(hosts, NULL, 10) : 1);
    assert_in_range(f->rank, 0, f->size - 1);
    assert_int_equal(f->comm->local_size, each);
    assert_int_equal(f->comm->local_rank, f->rank % each);
    for (int32_t r = 0; r < f->size; r++) {
        assert_int_equal(f->comm->ranks[r].host, r / each);
        assert_string_equal(f->comm->ranks[r].name, f->comm->ranks[r / each * each].name);
        assert_true(r < each || strcmp(f->comm->ranks[r].name, f->comm->ranks[0].name) != 0);
    }
    if (expected)
        assert_int_equal(f->size, strtol(expected, NULL, 10));
}

static void test_shards(void **state)
{
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

/* Returns the expected result of a collective for each rank's elements first.., with a guard after them. */
static char *make_expected(const fixture *f, tx_collective kind, int32_t root, int64_t first, int64_t count,
                           tx_dtype dtype)
{
    if (kind == TX_ALL_REDUCE || kind == TX_REDUCE_SCATTER)
        return make_sum(f->size, first, count, dtype, true);
    char *expected = make_of(kind == TX_BROADCAST ? root : f->rank, first, count, dtype);
    for (int32_t r = 0; r < f->size && kind == TX_ALL_GATHER; r++)
        for (int64_t i = tx_comm_shard(count, f->size, r); i < tx_comm_shard(count, f->size, r + 1); i++)
            put(expected, i, dtype, value_of(r, first + i));
    return expected;
}

static void check(const fixture *f, tx_collective kind, int64_t count, tx_dtype dtype, const char *data,
                  const char *expected)
{
    const size_t bytes = tx_dtype_size(dtype);
    const bool part = kind == TX_REDUCE_SCATTER;
    const size_t from = part ? (size_t)tx_comm_shard(count, f->size, f->rank) * bytes : 0;
    const size_t to = part ? (size_t)tx_comm_shard(count, f->size, f->rank + 1) * bytes : (size_t)(count + 1) * bytes;
    assert_memory_equal(data + from, expected + from, to - from);
}

static void test_collectives(void **state)
{
    const fixture *f = *state;
    for (tx_collective kind = 0; kind < TX_BARRIER; kind++)
        for (int32_t root = 0; root < (kind == TX_BROADCAST ? f->size : 1); root++)
            for (int d = 0; d < DTYPES; d++)
                for (size_t c = 0; c < COUNTS; c++) {
                    char *expected = make_expected(f, kind, root, 0, counts[c], dtypes[d]);
                    for (place at = 0; at < PLACES; at++) {
                        void *data = make_of(f->rank, 0, counts[c], dtypes[d]);
                        assert_int_equal(collect(f, at, kind, data, counts[c], dtypes[d], dtypes[d], root), TX_OK);
                        check(f, kind, counts[c], dtypes[d], data, expected);
                        free(data);
                    }
                    free(expected);
                }
}

static float get(const void *data, int64_t i, tx_dtype dtype)
{
    return dtype == TX_F32 ? ((const float *)data)[i] : tx_bf16_to_f32(((const uint16_t *)data)[i]);
}

/* Fails unless `data` is the sum of all ranks, with the error of 8 bits, and the same on all of them. */
static void check_small(const fixture *f, const void *data, int64_t count, tx_dtype dtype)
{
    char *expected = make_sum(f->size, 0, count, dtype, true), *same = make(count, dtype);
    for (int64_t first = 0; first < count; first += TX_COMM_BLOCK) {
        const int64_t end = first + TX_COMM_BLOCK < count ? first + TX_COMM_BLOCK : count;
        float addends = 0.0f, sum = 0.0f; /* the largest magnitudes of the block, added up over the ranks, and of it */
        for (int32_t rank = 0; rank < f->size; rank++) {
            float most = 0.0f;
            for (int64_t i = first; i < end; i++)
                most = fmaxf(most, fabsf(value_of(rank, i)));
            addends += most;
        }
        for (int64_t i = first; i < end; i++)
            sum = fmaxf(sum, fabsf(get(expected, i, dtype)));
        const float half = dtype == TX_BF16 ? (addends + sum) / 256.0f : 0.0f;
        for (int64_t i = first; i < end; i++)
            assert_true(fabsf(get(data, i, dtype) - get(expected, i, dtype)) <= (addends + sum) / 252.0f + half);
    }
    const size_t bytes = (size_t)count * tx_dtype_size(dtype);
    memcpy(same, data, bytes);
    assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, same, count, dtype, 0), TX_OK);
    assert_memory_equal(same, data, bytes);
    free(expected);
    free(same);
}

/* F32 data that are sent in 16 bits: the result is the same on all ranks, and equals the sum of rounded addends. */
static void test_rounded(void **state)
{
    const fixture *f = *state;
    for (size_t c = 0; c < COUNTS; c++)
        for (int at = 0; at < PLACES; at++) {
            int64_t first = tx_comm_shard(counts[c], f->size, f->rank);
            int64_t count = tx_comm_shard(counts[c], f->size, f->rank + 1) - first;
            float *data = make_of(f->rank, 0, counts[c], TX_F32), *part = make_of(f->rank, 0, counts[c], TX_F32);
            float *expected = make_rounded_sum(f->size, at == PRIVATE ? 1 : f->most, 0, counts[c]);
            assert_int_equal(collect(f, (place)at, TX_ALL_REDUCE, data, counts[c], TX_F32, TX_BF16, 0), TX_OK);
            assert_same(data, expected, counts[c], TX_F32);
            assert_int_equal(collect(f, (place)at, TX_REDUCE_SCATTER, part, counts[c], TX_F32, TX_BF16, 0), TX_OK);
            assert_memory_equal(part + first, expected + first, (size_t)count * sizeof *part);
            free(data);
            free(part);
            free(expected);
        }
}

/* Data that are sent in 8 bits: the result is the same on all ranks, and as near the sum as tx_transfer.wire says. */
static void test_small(void **state)
{
    const fixture *f = *state;
    for (size_t c = 0; c < COUNTS; c++)
        for (int at = 0; at < PLACES; at++) {
            const tx_dtype dtype = c % 2 ? TX_F32 : TX_BF16;
            const int64_t first = tx_comm_shard(counts[c], f->size, f->rank),
                          count = tx_comm_shard(counts[c], f->size, f->rank + 1) - first;
            void *data = make_of(f->rank, 0, counts[c], dtype), *part = make_of(f->rank, 0, counts[c], dtype);
            assert_int_equal(collect(f, (place)at, TX_ALL_REDUCE, data, counts[c], dtype, TX_U8, 0), TX_OK);
            check_small(f, data, counts[c], dtype);
            assert_int_equal(collect(f, (place)at, TX_REDUCE_SCATTER, part, counts[c], dtype, TX_U8, 0), TX_OK);
            const size_t bytes = tx_dtype_size(dtype);
            assert_memory_equal((char *)part + (size_t)first * bytes, (char *)data + (size_t)first * bytes,
                                (size_t)count * bytes);
            free(data);
            free(part);
        }
}

/* A number that is not finite reaches all ranks, and its block only. */
static void test_small_nan(void **state)
{
    const fixture *f = *state;
    enum { COUNT = 4 * 256 };
    for (int kind = 0; kind < 2; kind++) {
        float *data = make(COUNT, TX_F32);
        for (int64_t i = 0; i < COUNT; i++)
            data[i] = 1.0f;
        data[70] = f->rank > 0 ? 1.0f : kind ? INFINITY : NAN;
        assert_int_equal(collect(f, PRIVATE, TX_ALL_REDUCE, data, COUNT, TX_F32, TX_U8, 0), TX_OK);
        assert_true(isnan(data[70]) || isinf(data[70]));
        for (int64_t i = 0; i < COUNT; i++)
            assert_true(i / TX_COMM_BLOCK == 1 || data[i] == (float)f->size);
        free(data);
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

static tx_status begin_sum(const fixture *f, void *data, int64_t count, int32_t *request)
{
    const tx_transfer transfer = sum_of(data, count, -1);
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

/* Transfers of every kind at once, in windows and outside, made by the thread and by wait(). */
static void test_mixed(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    enum { COUNT = 5000, EACH = (COUNT + 1) * 4, KINDS = 5, TRANSFERS = 4 * KINDS };
    for (int round = 0; round < 2; round++) {
        void *data[TRANSFERS];
        int32_t request[TRANSFERS];
        assert_int_equal(t->background(f->comm, round), TX_OK);
        for (int i = 0; i < TRANSFERS; i++) {
            void *made = make_of(f->rank, i, COUNT, TX_F32);
            data[i] = i % 2 ? made : memcpy(f->window + (size_t)i * EACH, made, EACH);
            const tx_transfer one = {.kind = (tx_collective)(i % KINDS),
                                     .dtype = TX_F32,
                                     .wire = TX_F32,
                                     .root = f->size - 1,
                                     .data = i % KINDS == TX_BARRIER ? NULL : data[i],
                                     .count = i % KINDS == TX_BARRIER ? 0 : COUNT};
            assert_int_equal(t->begin(f->comm, &one, &request[i]), TX_OK);
            if (i % 2 == 0)
                free(made);
        }
        for (int i = 0; i < TRANSFERS; i++) {
            assert_int_equal(t->wait(f->comm, request[i]), TX_OK);
            const tx_collective kind = (tx_collective)(i % KINDS);
            char *expected = make_expected(f, kind, f->size - 1, i, COUNT, TX_F32);
            check(f, kind, COUNT, TX_F32, data[i], expected);
            free(expected);
            if (i % 2)
                free(data[i]);
        }
    }
    assert_int_equal(t->background(f->comm, false), TX_OK);
}

/* Groups support everything that the communicator does, at the same time: every second rank, in the opposite order, and
 * groups of these. */
static void test_groups(void **state)
{
    const fixture *f = *state;
    fixture half, own;
    tx_comm *sub = NULL;
    assert_int_equal(tx_comm_sub(f->comm, -1, 0, &sub), TX_INVALID);
    assert_int_equal(tx_comm_sub(f->comm, f->rank % 2, -f->rank, &sub), TX_OK);
    assert_int_equal(sub->size, (f->size + 1 - f->rank % 2) / 2);
    assert_int_equal(sub->rank, (f->size - 1 - f->rank) / 2);
    assert_int_equal(fixture_take(&half, sub), TX_OK);
    int32_t request;
    float *data = make_of(f->rank, 0, 999, TX_F32), *expected = make_sum(f->size, 0, 999, TX_F32, true);
    assert_int_equal(f->comm->table->background(f->comm, true), TX_OK);
    assert_int_equal(begin_sum(f, data, 999, &request), TX_OK);
    void *of_half = &half;
    test_collectives(&of_half);
    assert_int_equal(f->comm->table->wait(f->comm, request), TX_OK);
    assert_same(data, expected, 999, TX_F32);
    assert_int_equal(f->comm->table->background(f->comm, false), TX_OK);
    test_requests(&of_half);
    test_mixed(&of_half);
    free(data);
    free(expected);
    assert_int_equal(tx_comm_sub(sub, sub->rank, 0, &sub), TX_OK); /* a group of one rank */
    assert_int_equal(sub->size, 1);
    assert_int_equal(fixture_take(&own, sub), TX_OK);
    void *of_own = &own;
    test_collectives(&of_own);
    test_mixed(&of_own);
}

/* The bytes that a sum transfers, in the window and by messages. */
static void test_traffic(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    enum { COUNT = 6 * 256 * 100 }; /* pieces of one size for 2, 3, 4 and 6 ranks */
    const bool alone = f->size == 1, shared = f->most >= f->size;
    for (int at = PRIVATE; at <= WINDOW; at++) {
        tx_comm_traffic before, after;
        void *data = make_of(f->rank, 0, COUNT, TX_F32);
        t->traffic(f->comm, &before);
        assert_int_equal(collect(f, (place)at, TX_ALL_REDUCE, data, COUNT, TX_F32, TX_F32, 0), TX_OK);
        t->traffic(f->comm, &after);
        const int64_t moved = alone ? 0 : 2 * (int64_t)COUNT * 4 * (f->size - 1) / f->size;
        if (at == PRIVATE || shared || f->most == 1) {
            assert_int_equal(after.sent - before.sent, at == WINDOW && shared ? 0 : moved);
            assert_int_equal(after.shared - before.shared, at == WINDOW && shared ? moved : 0);
        } else
            assert_true(after.sent > before.sent && after.sent - before.sent < moved);
        assert_true(alone || (after.moving > before.moving && after.waited > before.waited));
        free(data);
    }
}

/* One message, waited for at once. */
static tx_status pass(const fixture *f, bool out, void *data, int64_t count, tx_dtype dtype, int32_t other)
{
    const tx_message message = {.out = out, .other = other, .data = data, .count = count, .dtype = dtype};
    int32_t request = 0;
    TX_TRY(f->comm->table->begin_message(f->comm, &message, &request));
    return f->comm->table->wait_message(f->comm, request);
}

/* Each two ranks, one direction after the other; long messages stay in order. */
static void test_pairs(void **state)
{
    const fixture *f = *state;
    for (int32_t a = 0; a < f->size; a++)
        for (int32_t b = 0; b < f->size; b++)
            for (int32_t i = 0; i < 2 && a != b; i++) {
                const int64_t count = i ? 3 : BIG;
                const tx_dtype dtype = dtypes[(a + b) % DTYPES];
                void *expected = make_of(a, i, count, dtype), *got = make(count, dtype);
                if (f->rank == a)
                    assert_int_equal(pass(f, true, expected, count, dtype, b), TX_OK);
                if (f->rank == b) {
                    assert_int_equal(pass(f, false, got, count, dtype, a), TX_OK);
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
    const tx_transfer whole = {.kind = TX_ALL_REDUCE, .dtype = TX_I32, .wire = TX_U8, .data = x, .count = 1};
    assert_int_equal(tx_comm_run(f->comm, &whole), TX_INVALID);
    assert_int_equal(pass(f, true, x, 1, TX_F32, f->rank), TX_INVALID);
    assert_int_equal(pass(f, true, x, 1, TX_F32, f->size), TX_INVALID);
    assert_int_equal(pass(f, false, x, 1, TX_F32, -1), TX_INVALID);
    assert_int_equal(pass(f, false, NULL, 1, TX_F32, f->rank == 0 ? 1 : 0), TX_INVALID);
    assert_int_equal(begin_sum(f, NULL, 1, &request), TX_INVALID);
    assert_int_equal(request, -7);
    assert_int_equal(t->wait(f->comm, 0), TX_INVALID);
    void *window = x;
    assert_int_equal(t->window(f->comm, 0, &window), TX_INVALID);
    if (f->size > 1)
        assert_int_equal(t->window(f->comm, INT64_C(1) << 50, &window), TX_MEMORY); /* on all ranks */
    if (f->size > 1 && f->most > 1)
        assert_non_null(strstr(tx_error(), "fewer ranks on a host"));
    assert_ptr_equal(window, x);
    assert_int_equal(begin_sum(f, x, 4, &request), TX_OK); /* now one is outstanding */
    assert_int_equal(t->window(f->comm, 1, &window), TX_INVALID);
    assert_int_equal(t->background(f->comm, true), TX_INVALID);
    assert_int_equal(t->wait(f->comm, request), TX_OK);
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

/* Ranks that begin different sums in a window report it, and no call succeeds afterwards. */
static int differ(fixture *f)
{
    tx_transfer sum = sum_of(f->window, 100 + f->rank, -1);
    if (f->most < f->size || f->size == 1)
        return 77;
    for (int i = 0; i < 2; i++) {
        if (tx_comm_run(f->comm, &sum) != TX_INVALID || !strstr(tx_error(), "different transfers")) {
            fprintf(stderr, "test_comm: different sums: %s\n", tx_error());
            return 1;
        }
        sum.count = 100;
    }
    return 0;
}

/* More than 2^31 elements, 4 GiB a rank: the addends are 1, 2, .. by rank and the sum is the same everywhere. */
static int huge(fixture *f)
{
    const int64_t count = (INT64_C(1) << 31) + 5;
    void *memory = NULL;
    char owner[200];
    int32_t enough = (double)tx_memory_left("", owner, sizeof owner) > 2.0 * (double)count * f->size + 4e9;
    tx_status status = tx_comm_collect(f->comm, TX_BROADCAST, &enough, 1, TX_I32, 0);
    if (status || !enough) {
        printf("skipped: needs %.1f GB of free memory\n", 2e-9 * (double)count * f->size + 4.0);
        return 77;
    }
    status = f->comm->table->window(f->comm, 2 * count, &memory);
    uint16_t *data = memory;
    for (int64_t i = 0; i < count && !status; i++)
        put(data, i, TX_BF16, (float)(f->rank + 1 + i % 3));
    TX_THEN(status, tx_comm_collect(f->comm, TX_ALL_REDUCE, data, count, TX_BF16, 0));
    uint16_t sum[3];
    for (int64_t i = 0; i < 3; i++)
        put(sum, i, TX_BF16, (float)(f->size * (f->size + 1) / 2 + f->size * i));
    for (int64_t i = 0; i < count && !status; i++)
        if (data[i] != sum[i % 3])
            status = tx_fail(TX_INTERNAL, "element %lld is wrong", (long long)i);
    if (status)
        fprintf(stderr, "test_comm: huge: %s\n", tx_error());
    return status ? 1 : 0;
}

/* A window of so many MB (2^20 bytes), and perhaps a sudden end. */
static int window(fixture *f, const char *megabytes, bool sudden)
{
    void *memory = NULL;
    if (f->comm->table->window(f->comm, strtol(megabytes, NULL, 10) << 20, &memory)) {
        fprintf(stderr, "test_comm: %s\n", tx_error());
        return 1;
    }
    printf("a window of %s MB\n", megabytes);
    fflush(stdout);
    if (sudden && !tx_comm_collect(f->comm, TX_BARRIER, NULL, 0, TX_F32, 0))
        raise(SIGKILL);
    return 0;
}

static int run_all(fixture *f)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_ranks, f),     cmocka_unit_test_prestate(test_collectives, f),
        cmocka_unit_test_prestate(test_rounded, f),   cmocka_unit_test_prestate(test_small, f),
        cmocka_unit_test_prestate(test_small_nan, f), cmocka_unit_test_prestate(test_order_shows, f),
        cmocka_unit_test_prestate(test_requests, f),  cmocka_unit_test_prestate(test_mixed, f),
        cmocka_unit_test_prestate(test_traffic, f),   cmocka_unit_test_prestate(test_laggard, f),
        cmocka_unit_test_prestate(test_pulse, f),     cmocka_unit_test_prestate(test_refusals, f),
        cmocka_unit_test_prestate(test_pairs, f),     cmocka_unit_test(test_shards),
        cmocka_unit_test_prestate(test_groups, f),    cmocka_unit_test_prestate(test_laggard_of_group, f),
        cmocka_unit_test_prestate(test_messages, f),  cmocka_unit_test_prestate(test_all_to_all, f),
    };
    if (f->size > 1)
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* the others would wait for a rank that failed */
    return cmocka_run_group_tests_name(f->comm->table->name, tests, NULL, NULL) ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "open") == 0)
        return open_only(&argc, &argv);
    fixture f = {0};
    if (!fixture_open(&f, &argc, &argv))
        return 1;
    int result = strcmp(what, "differ") == 0                ? differ(&f)
                 : strcmp(what, "huge") == 0                ? huge(&f)
                 : strcmp(what, "abandon") == 0             ? abandon(&f)
                 : strcmp(what, "window") == 0 && argc >= 3 ? window(&f, argv[2], argc > 3)
                                                            : run_all(&f);
    fixture_close(&f);
    return result;
}
