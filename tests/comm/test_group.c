/* SPDX-License-Identifier: Apache-2.0
 * Who waits for whom among ranks that see each other's marks. */
#include "api/clock.h"
#include "comm/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RANKS = 4 };

static const int32_t member[RANKS] = {2, 3, 6, 7};

typedef struct fixture {
    tx_mark mark[RANKS], *list[RANKS];
    tx_group group[RANKS];
} fixture;

/* All live, and none waits. */
static void make(fixture *f)
{
    for (int32_t i = 0; i < RANKS; i++) {
        f->mark[i] = (tx_mark){0};
        f->list[i] = &f->mark[i];
        f->group[i] = (tx_group){.place = i, .size = RANKS, .member = member, .mark = f->list};
        tx_group_wait_for(&f->group[i], -1);
        tx_group_mark(&f->group[i], 40 + i);
    }
}

/* It lives no longer: its last mark is some seconds old. */
static void stop(fixture *f, int32_t place)
{
    f->mark[place].marked -= 5000000000;
}

static void marks_are_seen_by_the_group_alone(void **state)
{
    (void)state;
    fixture f;
    make(&f);
    assert_int_equal(tx_group_step(&f.group[0], 6), 42);
    assert_int_equal(tx_group_step(&f.group[0], 1), -1);
    const double marked = tx_group_marked(&f.group[0], 6);
    assert_true(marked > 0.0 && marked <= tx_now());
    assert_true(tx_group_marked(&f.group[0], 1) == -1.0);
}

static void a_chain_ends_at_whom_all_wait_for(void **state)
{
    (void)state;
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

/* A stopped process may have been in a wait that has long been over, even for the one that now waits for it. */
static void a_chain_ends_at_a_stopped_process(void **state)
{
    (void)state;
    fixture f;
    make(&f);
    tx_group_wait_for(&f.group[0], 3);
    tx_group_wait_for(&f.group[1], 2);
    assert_int_equal(tx_group_laggard(&f.group[0]), 3);
    tx_group_wait_for(&f.group[1], 7);
    tx_group_wait_for(&f.group[3], 3);
    stop(&f, 1);
    for (int32_t place = 0; place < RANKS; place += 3)
        assert_int_equal(tx_group_laggard(&f.group[place]), 3);
    stop(&f, 0); /* as a process that was stopped itself finds things */
    assert_int_equal(tx_group_laggard(&f.group[0]), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_are_seen_by_the_group_alone),
        cmocka_unit_test(a_chain_ends_at_whom_all_wait_for),
        cmocka_unit_test(a_chain_ends_at_a_stopped_process),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
