/* SPDX-License-Identifier: Apache-2.0
 * The detection of the rank that others wait for, among ranks that see each other's marks. */
#include "comm/group.h"

#include "tests/unit.h"

enum { RANKS = 4 };

static const int32_t member[RANKS] = {2, 3, 6, 7};

typedef struct fixture {
    tx_mark mark[RANKS], *list[RANKS];
    tx_group group[RANKS];
} fixture;

/* None waits. */
static void make(fixture *f)
{
    for (int32_t i = 0; i < RANKS; i++) {
        f->mark[i] = (tx_mark){0};
        f->list[i] = &f->mark[i];
        f->group[i] = (tx_group){.place = i, .size = RANKS, .member = member, .mark = f->list};
        tx_group_wait_for(&f->group[i], -1);
    }
}

static void a_chain_ends_at_whom_all_wait_for(void **state)
{
    fixture f;
    make(&f);
    assert_int_equal(tx_group_laggard(&f.group[0]), -1);
    tx_group_wait_for(&f.group[0], 3);
    assert_int_equal(tx_group_laggard(&f.group[0]), 3);
    tx_group_wait_for(&f.group[1], 7);
    assert_int_equal(tx_group_laggard(&f.group[0]), 7);
    assert_int_equal(tx_group_laggard(&f.group[3]), -1);
    tx_group_wait_for(&f.group[3], 0); /* on another host */
    assert_int_equal(tx_group_laggard(&f.group[0]), 0);
}

static void a_chain_that_comes_back_ends_before_its_beginning(void **state)
{
    fixture f;
    make(&f);
    tx_group_wait_for(&f.group[0], 3);
    tx_group_wait_for(&f.group[1], 7);
    tx_group_wait_for(&f.group[3], 2);
    assert_int_equal(tx_group_laggard(&f.group[0]), 7);
    assert_int_equal(tx_group_laggard(&f.group[1]), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_ends_at_whom_all_wait_for),
        cmocka_unit_test(a_chain_that_comes_back_ends_before_its_beginning),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
