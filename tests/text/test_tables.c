/* SPDX-License-Identifier: Apache-2.0
 * Arrays that grow, heaps, and what finds things by their hashes. */
#include "models/heap.h"
#include "models/text/hash.h"
#include "tests/scratch.h"

#define COUNT 5000

static void test_array(void **state)
{
    int32_t *array = NULL;
    size_t room = 0;
    for (size_t count = 0; count < COUNT; count += count % 37 + 1) { /* by one and by many */
        assert_ok(tx_array_reserve(&array, &room, count, sizeof *array, "numbers"));
        assert_true(room >= count);
        for (size_t i = 0; i < room; i++)
            array[i] = (int32_t)i;
    }
    const size_t before = room;
    assert_refused(tx_array_reserve(&array, &room, SIZE_MAX / 2, sizeof *array, "numbers"), TX_MEMORY, "numbers");
    assert_int_equal(room, before);
    free(array);
}

static bool before(const void *a, const void *b)
{
    return *(const uint64_t *)a < *(const uint64_t *)b;
}

/* What is pushed and popped in any order comes out in its own. */
static void test_heap(void **state)
{
    uint64_t heap[COUNT], item, last;
    size_t count = 0;
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; count < COUNT; i++)
            tx_heap_push(heap, count++, sizeof *heap, before, &(uint64_t){tx_hash_mix(round * COUNT + i) % 1000});
        for (last = 0; count > round * COUNT / 3; last = item) {
            tx_heap_pop(heap, count--, sizeof *heap, before, &item);
            assert_true(item >= last);
        }
    }
}

static bool same(const void *things, uint32_t number, const void *key)
{
    return ((const uint64_t *)things)[number] == *(const uint64_t *)key;
}

/* Many things of few hashes are told apart. */
static void test_index(void **state)
{
    static uint64_t things[COUNT];
    tx_index index = {0};
    for (size_t i = 0; i < COUNT; i++) {
        things[i] = 3 * i;
        assert_int_equal(tx_index_find(&index, i % 97, same, things, &things[i]), TX_INDEX_NONE);
        assert_ok(tx_index_add(&index, i % 97, i));
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(tx_index_find(&index, i % 97, same, things, &things[i]), i);
        assert_int_equal(tx_index_find(&index, i % 97, same, things, &(uint64_t){3 * i + 1}), TX_INDEX_NONE);
    }
    free(index.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
