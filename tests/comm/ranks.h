/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the communicators share: every rank makes the data of all ranks, so it knows what each call must
 * give, to the bit. */
#ifndef TX_TESTS_COMM_RANKS_H
#define TX_TESTS_COMM_RANKS_H

#include "comm/comm.h"

#include "tests/unit.h" /* needs some of the above before it */

/* Where data lie: in memory of the rank's own, or in a window. */
typedef enum place { PRIVATE, WINDOW, WINDOW_ODD, PLACES } place;

enum { DTYPES = 3, BIG = (1 << 20) + 5 }; /* BIG: more than is summed or sent at a time */
extern const tx_dtype dtypes[DTYPES];

typedef struct fixture {
    tx_comm *comm;
    int32_t rank, size;
    int32_t most; /* ranks of a host that share memory */
    char *window; /* room for BIG elements and some more */
} fixture;

/* Opens the communicator of this build; false when it cannot, having said why. */
bool fixture_open(fixture *f, int *argc, char ***argv);
/* The same for a communicator that is open. */
tx_status fixture_take(fixture *f, tx_comm *comm);
void fixture_close(fixture *f);

/* Element i of what `rank` brings: magnitudes from 2^-8 to 2^7, so that the order of a sum shows in its bits. */
float value_of(int32_t rank, int64_t i);
void put(void *data, int64_t i, tx_dtype dtype, float value);

/* Room for `count` elements and a guard behind them. */
void *make(int64_t count, tx_dtype dtype);
/* Elements first.. of what `rank` brings. */
void *make_of(int32_t rank, int64_t first, int64_t count, tx_dtype dtype);
/* Elements first.. of the sum over `size` ranks in the order of the tree, or in the order of the ranks. */
void *make_sum(int32_t size, int64_t first, int64_t count, tx_dtype dtype, bool tree);
/* The same for F32 data that leave groups of `most` neighbours rounded to BF16. */
void *make_rounded_sum(int32_t size, int32_t most, int64_t first, int64_t count);
/* Same bits, and the guard element behind them untouched: both were made by make(). */
void assert_same(const void *got, const void *expected, int64_t count, tx_dtype dtype);

/* A collective on made data, which are moved to their place and back; what lies around them there must stay. */
tx_status collect(const fixture *f, place at, tx_collective kind, void *data, int64_t count, tx_dtype dtype,
                  tx_dtype wire, int32_t root);
tx_transfer sum_of(void *data, int64_t count, int32_t bucket);

/* Tests of waiting.c; their state is the fixture. */
void test_pulse(void **state);
void test_laggard(void **state);
void test_laggard_of_group(void **state);

/* Of messages.c. */
void test_messages(void **state);
void test_all_to_all(void **state);

#endif
