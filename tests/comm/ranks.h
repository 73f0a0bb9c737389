/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the tests of the communicators. Every rank generates the data of all ranks, so that it knows the expected
 * result of each call, to the bit. */
#ifndef TX_TESTS_COMM_RANKS_H
#define TX_TESTS_COMM_RANKS_H

#include "comm/comm.h"

#include "tests/unit.h" /* needs some of the above before it */

/* Location of data: in memory of the rank, or in a window. */
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

/* Returns element i of the data of `rank`, with magnitudes from 2^-8 to 2^7, so that the order of a sum affects its
 * bits. */
float value_of(int32_t rank, int64_t i);
void put(void *data, int64_t i, tx_dtype dtype, float value);

/* Allocates `count` elements and a guard after them. */
void *make(int64_t count, tx_dtype dtype);
/* Allocates and fills elements first.. of the data of `rank`. */
void *make_of(int32_t rank, int64_t first, int64_t count, tx_dtype dtype);
/* Elements first.. of the sum over `size` ranks in the order of the tree, or in the order of the ranks. */
void *make_sum(int32_t size, int64_t first, int64_t count, tx_dtype dtype, bool tree);
/* The same for F32 data that leave groups of `most` neighbours rounded to BF16. */
void *make_rounded_sum(int32_t size, int32_t most, int64_t first, int64_t count);
/* Checks for the same bits, and for an unchanged guard element; both arrays were made by make(). */
void assert_same(const void *got, const void *expected, int64_t count, tx_dtype dtype);

/* Runs a collective on made data, which are copied to `at` and back. The memory around them there must not change. */
tx_status collect(const fixture *f, place at, tx_collective kind, void *data, int64_t count, tx_dtype dtype,
                  tx_dtype wire, int32_t root);
tx_transfer sum_of(void *data, int64_t count, int32_t bucket);

/* Tests of waiting.c; their state is the fixture. */
void test_pulse(void **state);
void test_laggard(void **state);
void test_laggard_of_group(void **state);

/* Of abandon.c: all ranks end in it, unless it is skipped. */
int abandon(fixture *f);

/* Of messages.c. */
void test_messages(void **state);
void test_all_to_all(void **state);

#endif
