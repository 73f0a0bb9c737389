/* SPDX-License-Identifier: Apache-2.0
 * Groups of ranks: pieces and their handlers cover everything once, and the nodes of any placement add up to the bits
 * of the whole tree. */
#include "comm/common.h"
#include "comm/layout.h"
#include "tests/comm/ranks.h"

enum { MOST = 17, COUNT = 3000 };

static tx_comm_layout *layout_of(const int32_t *group, int32_t size)
{
    tx_comm_layout *layout = NULL;
    assert_int_equal(tx_comm_layout_create(group, size, &layout), TX_OK);
    return layout;
}

/* Ranks dealt to groups by `kind`: blocks of 2, blocks of 3, in turn to 3 hosts, one apart, all apart, all together, at
 * random. Numbers in the order of their lowest ranks. */
enum { KINDS = 7 };

static void deal(int32_t *group, int32_t size, int kind)
{
    int32_t host[MOST], groups = 0;
    uint32_t random = 7;
    for (int32_t r = 0; r < size; r++) {
        random = random * 1664525u + 1013904223u;
        const int32_t dealt[KINDS] = {r / 2, r / 3, r % 3, r == size - 1, r, 0, (int32_t)(random >> 29)};
        host[r] = dealt[kind];
        group[r] = -1;
        for (int32_t other = 0; other < r && group[r] < 0; other++)
            if (host[other] == host[r])
                group[r] = group[other];
        if (group[r] < 0)
            group[r] = groups++;
    }
}

static void test_nodes(void **state)
{
    const int32_t blocks[] = {0, 0, 0, 1, 1, 1}, turns[] = {0, 1, 0, 1}, late[] = {0, 1, 1, 1, 1, 0};
    tx_comm_layout *l = layout_of(blocks, 6); /* ((0 1) (2 3)) (4 5) */
    assert_int_equal(l->groups, 2);
    assert_int_equal(l->node_count, 4);
    assert_int_equal(l->node[0].count, 2);
    assert_int_equal(l->node[1].first, 2);
    assert_int_equal(l->node[1].index, 1);
    assert_int_equal(l->node[3].first, 4);
    assert_int_equal(l->node[3].count, 2);
    assert_int_equal(l->most_nodes, 2);
    free(l);
    l = layout_of(turns, 4);
    assert_int_equal(l->node_count, 4);
    assert_int_equal(l->nodes[0], 2);
    assert_int_equal(l->member[1], 2);
    assert_int_equal(tx_comm_layout_handler(l, 0, 3), 2);
    assert_int_equal(tx_comm_layout_handler(l, 1, 3), 3);
    free(l);
    l = layout_of(late, 6);
    assert_int_equal(l->nodes[0], 2);
    assert_int_equal(l->nodes[1], 3); /* 1, (2 3), 4 */
    assert_int_equal(l->most_members, 4);
    assert_int_equal(tx_comm_layout_handler(l, 0, 4), 5); /* place 3 of 2 */
    free(l);
}

/* Pieces are contiguous, and each group has one handler of each piece. */
static void test_pieces(void **state)
{
    static const int64_t counts[] = {0, 1, 255, 257, 5000, (INT64_C(1) << 33) + 3};
    int32_t group[MOST];
    for (int kind = 0; kind < KINDS; kind++)
        for (int32_t size = 1; size <= MOST; size++) {
            deal(group, size, kind);
            tx_comm_layout *l = layout_of(group, size);
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                for (int32_t sums = 0; sums < 2; sums++) {
                    int64_t at = 0, covered = 0;
                    for (int32_t g = 0; g < l->groups; g++) /* all_reduce: by groups; shards: by ranks */
                        for (int32_t i = l->start[g]; i < l->start[g + 1]; i++) {
                            int32_t owner = sums ? l->member[i] : i;
                            const tx_transfer t = {.kind = sums ? TX_ALL_REDUCE : TX_REDUCE_SCATTER,
                                                   .count = counts[c]};
                            tx_comm_piece p = tx_comm_layout_piece(l, &t, owner);
                            assert_int_equal(p.first, at);
                            assert_true(p.count >= 0 && (p.first % TX_PARAM_BLOCK == 0 || p.count == 0));
                            at += p.count;
                            covered += p.count;
                        }
                    assert_int_equal(covered, counts[c]);
                }
            for (int32_t g = 0; g < l->groups; g++)
                for (int32_t owner = 0; owner < size; owner++) {
                    assert_int_equal(l->group[tx_comm_layout_handler(l, g, owner)], g);
                    if (l->group[owner] == g)
                        assert_int_equal(tx_comm_layout_handler(l, g, owner), owner);
                }
            free(l);
        }
}

/* Sums each node, then the nodes. */
static void sum_by_nodes(const tx_comm_layout *l, float *const *data, float *sum)
{
    float *nodes[MOST];
    tx_term term[MOST];
    void *out = sum;
    for (int32_t n = 0; n < l->node_count; n++) {
        const tx_comm_node *node = &l->node[n];
        for (int32_t i = 0; i < node->count; i++)
            term[i] = (tx_term){data[node->first + i], TX_F32, 1};
        void *partial = nodes[n] = make(COUNT, TX_F32);
        tx_comm_sum(term, node->count, &partial, 1, COUNT, TX_F32);
    }
    for (int32_t n = 0; n < l->node_count; n++)
        term[n] = (tx_term){nodes[n], TX_F32, l->node[n].count};
    tx_comm_sum(term, l->node_count, &out, 1, COUNT, TX_F32);
    for (int32_t n = 0; n < l->node_count; n++)
        free(nodes[n]);
}

static void test_sums(void **state)
{
    float *data[MOST];
    int32_t group[MOST];
    for (int32_t r = 0; r < MOST; r++)
        data[r] = make_of(r, 0, COUNT, TX_F32);
    for (int32_t size = 1; size <= MOST; size++) {
        void *expected = make_sum(size, 0, COUNT, TX_F32, true);
        for (int kind = 0; kind < KINDS; kind++) {
            deal(group, size, kind);
            tx_comm_layout *l = layout_of(group, size);
            float *sum = make(COUNT, TX_F32);
            sum_by_nodes(l, data, sum);
            assert_same(sum, expected, COUNT, TX_F32);
            free(sum);
            free(l);
        }
        free(expected);
    }
    for (int32_t r = 0; r < MOST; r++)
        free(data[r]);
}

/* Several places at once, of which some are addends; conversions on the way. */
static void test_outs(void **state)
{
    for (int d = 0; d < DTYPES; d++) {
        void *a = make_of(0, 0, COUNT, dtypes[d]), *b = make_of(1, 0, COUNT, dtypes[d]), *c = make(COUNT, dtypes[d]);
        void *expected = make_sum(2, 0, COUNT, dtypes[d], true), *out[] = {b, c, a};
        const tx_term term[] = {{a, dtypes[d], 1}, {b, dtypes[d], 1}};
        tx_comm_sum(term, 2, out, 3, COUNT, dtypes[d]);
        for (int i = 0; i < 3; i++) {
            assert_same(out[i], expected, COUNT, dtypes[d]);
            free(out[i]);
        }
        free(expected);
    }
    float *wide = make_of(0, 0, COUNT, TX_F32), *back = make(COUNT, TX_F32);
    uint16_t *half = make(COUNT, TX_BF16), *expected = make_of(0, 0, COUNT, TX_BF16);
    void *to_half = half, *to_wide = back;
    tx_comm_sum(&(tx_term){wide, TX_F32, 1}, 1, &to_half, 1, COUNT, TX_BF16);
    assert_same(half, expected, COUNT, TX_BF16);
    tx_comm_sum(&(tx_term){half, TX_BF16, 1}, 1, &to_wide, 1, COUNT, TX_F32);
    tx_comm_sum(&(tx_term){back, TX_F32, 1}, 1, &to_half, 1, COUNT, TX_BF16);
    assert_same(half, expected, COUNT, TX_BF16);
    free(wide);
    free(back);
    free(half);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_sums), cmocka_unit_test(test_outs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
