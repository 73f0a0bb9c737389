/* SPDX-License-Identifier: Apache-2.0
 *
 * The knowledge of waiting ranks about each other: their actions, and the ranks that they wait for. */
#include "api/base/clock.h"
#include "tests/comm/ranks.h"

#include <time.h>
#include <unistd.h>

/* The last rank comes late. The others learn which rank they wait for, and in which step and bucket. It continues when
 * all have created a file that says so. */
static void wait_for_files(const char *folder, int32_t count)
{
    char path[64];
    for (int32_t r = 0; r < count; r++) {
        snprintf(path, sizeof path, "%s/%d", folder, (int)r);
        while (access(path, F_OK) != 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        unlink(path);
    }
}

/* Whether this rank knows the last one for the one to wait for: others may be on their way still. */
static bool laggard_known(const fixture *f, int32_t bucket)
{
    const int32_t last = f->size - 1, group = last / f->most;
    tx_comm_laggard late;
    if (!f->comm->table->laggard(f->comm, &late) || late.bucket != bucket)
        return false;
    if (f->rank / f->most == group)
        return late.rank == last;
    return late.rank / f->most == group; /* whose message is missing may itself wait for the last */
}

static void expect_laggard(const fixture *f, int32_t bucket)
{
    const double begin = tx_now();
    bool known = false;
    while (!(known = laggard_known(f, bucket)) && tx_now() - begin < 60.0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(known);
}

/* Rank 0 receives the heartbeats of every rank, also of other groups, and all receive those of rank 0. */
void test_pulse(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    tx_comm_peer peer;
    if (f->size == 1) {
        assert_false(t->read_status(f->comm, 0, &peer));
        skip();
    }
    assert_false(t->read_status(f->comm, f->rank, &peer)); /* not itself */
    const double begin = tx_now();
    int32_t heard = 0, awaited = f->rank == 0 ? f->size - 1 : 1;
    while (heard < awaited && tx_now() - begin < 60.0) {
        t->send_status(f->comm, 70 + f->rank, "reading: book.txt, 43 %");
        heard = 0;
        for (int32_t r = 0; r < f->size; r++)
            heard += r != f->rank && t->read_status(f->comm, r, &peer) && peer.beats >= 3 && peer.step == 70 + r &&
                     peer.waits_for == -1 && strcmp(peer.doing, "reading: book.txt, 43 %") == 0;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(heard, awaited);
    for (int32_t i = 0; i < 100; i++) /* the others may have missed some */
        t->send_status(f->comm, 70 + f->rank, "reading: book.txt, 43 %");
    assert_int_equal(tx_comm_collect(f->comm, TX_BARRIER, NULL, 0, TX_F32, 0), TX_OK);
}

void test_laggard(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    enum { SUMMED = 6 * TX_PARAM_BLOCK }; /* every rank has a piece to sum */
    tx_comm_laggard late;
    char folder[32] = "/tmp/tx_test_comm_XXXXXX";
    assert_false(t->laggard(f->comm, &late));
    if (f->size == 1)
        skip();
    if (f->rank == 0)
        assert_non_null(mkdtemp(folder));
    assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, folder, sizeof folder / 4, TX_I32, 0), TX_OK);
    for (int32_t round = 0; round < 3; round++) { /* in the window, outside, barrier */
        const int32_t last = f->size - 1;
        float private[SUMMED] = {0};
        int32_t request;
        tx_transfer sum = sum_of(round == 0 ? (void *)f->window : private, SUMMED, 40 + round);
        if (round == 2)
            sum = (tx_transfer){.kind = TX_BARRIER, .bucket = 42};
        assert_int_equal(tx_comm_collect(f->comm, TX_BARRIER, NULL, 0, TX_F32, 0), TX_OK);
        assert_int_equal(t->background(f->comm, true), TX_OK);
        if (f->rank == last)
            wait_for_files(folder, last);
        assert_int_equal(t->begin(f->comm, &sum, &request), TX_OK);
        if (f->rank != last) {
            char path[64];
            expect_laggard(f, 40 + round);
            snprintf(path, sizeof path, "%s/%d", folder, (int)f->rank);
            FILE *told = fopen(path, "w");
            assert_non_null(told);
            fclose(told);
        }
        assert_int_equal(t->wait(f->comm, request), TX_OK);
        assert_false(t->laggard(f->comm, &late));
        assert_int_equal(t->background(f->comm, false), TX_OK);
    }
    if (f->rank == 0)
        rmdir(folder);
}

/* The rank that a group waits for is known in the communicator of all ranks, by its number there. The last of the
 * group, which is rank 0 there, comes late. */
void test_laggard_of_group(void **state)
{
    const fixture *f = *state;
    const tx_comm_table *t = f->comm->table;
    tx_comm *group = NULL;
    tx_comm_laggard late;
    if (f->size == 1 || f->most < f->size)
        skip();
    assert_int_equal(tx_comm_sub(f->comm, 0, -f->rank, &group), TX_OK);
    assert_int_equal(t->background(group, true), TX_OK);
    char folder[32] = "/tmp/tx_test_comm_XXXXXX";
    if (f->rank == 0)
        assert_non_null(mkdtemp(folder));
    assert_int_equal(tx_comm_collect(f->comm, TX_BROADCAST, folder, sizeof folder / 4, TX_I32, 0), TX_OK);
    float data[6] = {0};
    int32_t request;
    const tx_transfer sum = sum_of(data, 6, 7);
    if (f->rank == 0)
        wait_for_files(folder, f->size - 1);
    assert_int_equal(t->begin(group, &sum, &request), TX_OK);
    const double begin = tx_now();
    bool known = f->rank == 0;
    while (!known && tx_now() - begin < 60.0) {
        known = t->laggard(f->comm, &late) && late.rank == 0 && late.bucket == 7;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_true(known);
    if (f->rank != 0) {
        char path[64];
        snprintf(path, sizeof path, "%s/%d", folder, (int)f->rank - 1);
        FILE *told = fopen(path, "w");
        assert_non_null(told);
        fclose(told);
    }
    assert_int_equal(t->wait(group, request), TX_OK);
    assert_int_equal(t->background(group, false), TX_OK);
    if (f->rank == 0)
        rmdir(folder);
}
