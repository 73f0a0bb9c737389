/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that cross: all ranks begin to send to all others before any of them receives, as a pipeline's stages do.
 * Run with TX_COMM_SYNCHRONOUS=1 as well, since libraries hold small messages back for receivers that come late. */
#include "tests/comm/ranks.h"

enum { SIZES = 4 };
static const int64_t sizes[SIZES] = {0, 1, 2250, BIG};

/* Returns the data that `from` sends to `to`: other data for each pair of ranks. */
static void *made_for(const fixture *f, int32_t from, int32_t to, int64_t count)
{
    return make_of(from * f->size + to, 0, count, TX_F32);
}

static void begin(const fixture *f, bool out, int32_t other, int32_t number, void *data, int64_t count,
                  int32_t *request)
{
    const tx_message m = {.out = out, .other = other, .number = number, .data = data, .count = count, .dtype = TX_F32};
    assert_int_equal(f->comm->table->begin_message(f->comm, &m, request), TX_OK);
}

static void cross(const fixture *f, int64_t count)
{
    const tx_comm_table *t = f->comm->table;
    void *out[16], *in[16];
    int32_t sent[16], received[16];
    for (int32_t r = 0; r < f->size; r++) {
        out[r] = made_for(f, f->rank, r, count);
        in[r] = make(count, TX_F32);
        if (r != f->rank)
            begin(f, true, r, 7, out[r], count, &sent[r]);
    }
    for (int32_t r = 0; r < f->size; r++)
        if (r != f->rank)
            begin(f, false, r, 7, in[r], count, &received[r]);
    for (int32_t r = f->size - 1; r >= 0; r--) {
        if (r != f->rank) {
            void *expected = made_for(f, r, f->rank, count);
            assert_int_equal(t->wait_message(f->comm, received[r]), TX_OK);
            assert_same(in[r], expected, count, TX_F32);
            assert_int_equal(t->wait_message(f->comm, sent[r]), TX_OK);
            free(expected);
        }
        free(out[r]);
        free(in[r]);
    }
}

/* Two of different numbers: the second is received first. */
static void pick(const fixture *f)
{
    const tx_comm_table *t = f->comm->table;
    const int32_t next = (f->rank + 1) % f->size, before = (f->rank + f->size - 1) % f->size;
    float out[2] = {(float)f->rank, (float)f->rank + 0.5f}, in[2] = {-1.0f, -1.0f};
    int32_t sent[2], received[2];
    for (int32_t i = 0; i < 2; i++)
        begin(f, true, next, i, &out[i], 1, &sent[i]);
    for (int32_t i = 1; i >= 0; i--) {
        begin(f, false, before, i, &in[i], 1, &received[i]);
        assert_int_equal(t->wait_message(f->comm, received[i]), TX_OK);
    }
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(t->wait_message(f->comm, sent[i]), TX_OK);
        assert_true(in[i] == (float)before + 0.5f * (float)i);
    }
}

static void refuse(const fixture *f)
{
    const tx_comm_table *t = f->comm->table;
    float x = 0.0f;
    int32_t request = -7;
    const int32_t other = f->rank == 0 ? f->size - 1 : 0;
    const tx_message wrong[] = {{.other = f->rank, .data = &x, .count = 1, .dtype = TX_F32},
                                {.other = f->size, .data = &x, .count = 1, .dtype = TX_F32},
                                {.other = other, .data = NULL, .count = 1, .dtype = TX_F32},
                                {.other = other, .data = &x, .count = 1, .dtype = TX_U8},
                                {.other = other, .number = -1, .data = &x, .count = 1, .dtype = TX_F32},
                                {.other = other, .number = TX_MESSAGE_NUMBERS, .data = &x, .count = 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(t->begin_message(f->comm, &wrong[i], &request), TX_INVALID);
    assert_int_equal(request, -7);
    assert_int_equal(t->wait_message(f->comm, 0), TX_INVALID);
    assert_int_equal(t->wait_message(f->comm, -1), TX_INVALID);
}

/* At most this many messages are active. Later messages reuse the slots of completed ones. */
static void fill(const fixture *f)
{
    const tx_comm_table *t = f->comm->table;
    const int32_t next = (f->rank + 1) % f->size, before = (f->rank + f->size - 1) % f->size;
    float out[TX_MESSAGES / 2], in[TX_MESSAGES / 2] = {0};
    int32_t sent[TX_MESSAGES / 2], received[TX_MESSAGES / 2], one = -7;
    const tx_message more = {.out = true, .other = next, .data = out, .count = 1, .dtype = TX_F32};
    for (int32_t i = 0; i < TX_MESSAGES / 2; i++) {
        out[i] = (float)i + 1.0f;
        begin(f, true, next, 0, &out[i], 1, &sent[i]);
        begin(f, false, before, 0, &in[i], 1, &received[i]);
    }
    assert_int_equal(t->begin_message(f->comm, &more, &one), TX_INVALID);
    for (int32_t i = 0; i < TX_MESSAGES / 2; i++) {
        assert_int_equal(t->wait_message(f->comm, sent[i]), TX_OK);
        assert_int_equal(t->wait_message(f->comm, received[i]), TX_OK);
        assert_true(in[i] == (float)i + 1.0f);
    }
}

/* Elements that `from` sends to `to` in an all-to-all: others for each two ranks, and none for some. */
static int64_t block_of(int32_t from, int32_t to)
{
    return (from + 2 * to) % 3 == 2 ? 0 : 700 * from + 30 * to + 5;
}

/* All blocks that a rank sends or receives. */
static char *blocks(const fixture *f, bool out, tx_dtype dtype, int64_t *count)
{
    int64_t all = 0, at = 0;
    for (int32_t r = 0; r < f->size; r++)
        all += count[r] = out ? block_of(f->rank, r) : block_of(r, f->rank);
    char *data = make(all, dtype);
    const size_t element = tx_dtype_size(dtype);
    for (int32_t r = 0; r < f->size; at += count[r++]) {
        const int32_t from = out ? f->rank : r, to = out ? r : f->rank;
        char *block = make_of(from * f->size + to, 0, count[r], dtype == TX_F16 ? TX_BF16 : dtype);
        memcpy(data + (size_t)at * element, block, (size_t)count[r] * element);
        free(block);
    }
    return data;
}

void test_all_to_all(void **state)
{
    const fixture *f = *state;
    static const tx_dtype types[] = {TX_F32, TX_BF16, TX_F16, TX_I32};
    int64_t out_count[16], in_count[16];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const int64_t element = (int64_t)tx_dtype_size(types[i]);
        char *out = blocks(f, true, types[i], out_count), *expected = blocks(f, false, types[i], in_count);
        int64_t come = 0, gone = 0;
        for (int32_t r = 0; r < f->size; r++) {
            come += in_count[r];
            gone += r == f->rank ? 0 : out_count[r] * element;
        }
        char *in = make(come, types[i]);
        tx_comm_traffic before, after;
        f->comm->table->traffic(f->comm, &before);
        assert_int_equal(tx_comm_all_to_all(f->comm, &(tx_all_to_all){out, out_count, in, in_count, types[i]}), TX_OK);
        f->comm->table->traffic(f->comm, &after);
        assert_same(in, expected, come, types[i]);
        assert_int_equal(after.sent - before.sent, gone);
        free(out);
        free(in);
        free(expected);
    }
    out_count[f->rank] = in_count[f->rank] + 1;
    float x[8] = {0};
    assert_int_equal(tx_comm_all_to_all(f->comm, &(tx_all_to_all){x, out_count, x, in_count, TX_F32}), TX_INVALID);
    assert_int_equal(tx_comm_all_to_all(f->comm, &(tx_all_to_all){x, in_count, x, in_count, TX_U8}), TX_INVALID);
}

static void pass_on(tx_comm *comm, bool out, float *data, int64_t count)
{
    const tx_message m = {.out = out, .other = 1 - comm->rank, .data = data, .count = count, .dtype = TX_F32};
    int32_t request;
    assert_int_equal(comm->table->begin_message(comm, &m, &request), TX_OK);
    assert_int_equal(comm->table->wait_message(comm, request), TX_OK);
}

/* As two stages of two ranks may: rank 0 has begun to send to rank 2 and waits for rank 1. Rank 1 waits for rank 3,
 * rank 3 for rank 2, and rank 2 for rank 0's message. */
static void wait_round(const fixture *f)
{
    const bool four = f->rank < 4;
    tx_comm *stage, *pair;
    float *data = make(BIG, TX_F32), word = 1.0f;
    const tx_message big = {.out = true, .other = 1, .data = data, .count = BIG, .dtype = TX_F32};
    int32_t sent = -1;
    assert_int_equal(tx_comm_sub(f->comm, four ? f->rank / 2 : 2, 0, &stage), TX_OK);
    assert_int_equal(tx_comm_sub(f->comm, four ? f->rank % 2 : 2, 0, &pair), TX_OK);
    if (f->rank == 0)
        assert_int_equal(pair->table->begin_message(pair, &big, &sent), TX_OK);
    if (f->rank == 2)
        pass_on(pair, false, data, BIG);
    if (f->rank == 2 || f->rank == 3)
        pass_on(stage, f->rank == 2, &word, 1);
    if (f->rank == 3 || f->rank == 1)
        pass_on(pair, f->rank == 3, &word, 1);
    if (f->rank < 2)
        assert_int_equal(tx_comm_collect(stage, TX_BARRIER, NULL, 0, TX_F32, 0), TX_OK);
    if (f->rank == 0)
        assert_int_equal(pair->table->wait_message(pair, sent), TX_OK);
    free(data);
}

void test_messages(void **state)
{
    const fixture *f = *state;
    refuse(f);
    if (f->size == 1)
        skip();
    for (int32_t i = 0; i < SIZES; i++)
        cross(f, sizes[i]);
    pick(f);
    fill(f);
    if (f->size >= 4)
        wait_round(f);
    assert_int_equal(tx_comm_collect(f->comm, TX_BARRIER, NULL, 0, TX_F32, 0), TX_OK);
}
