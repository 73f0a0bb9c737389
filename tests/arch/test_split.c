/* SPDX-License-Identifier: Apache-2.0
 * The elements of a parameter on each rank of a tensor group, of an expert group, or of both, compared with a reference
 * that decides for each element. */
#include "api/parallel/own.h"

#include "tests/unit.h" /* needs some of the above before it */

enum { MOST = 400 };

static const tx_param_spec specs[] = {
    {.logical = {1, {12}}, .split = 1},
    {.logical = {1, {24}}, .split = 1, .sections = {3, 0, {12, 8, 4}, {0}}},
    {.logical = {2, {12, 5}}, .split = 1},
    {.logical = {2, {5, 12}}, .split = 2},
    {.logical = {2, {16, 3}}, .split = 1, .sections = {3, 0, {8, 4, 4}, {0}}},
    {.logical = {2, {3, 20}}, .split = 2, .sections = {2, 1, {8, 12}, {0}}},
    {.logical = {2, {4, 8}}, .split = 2, .sections = {2, 0, {3, 1}, {0}}}, /* of the other dimension */
    {.logical = {1, {13}}, .shape = {1, {16}}, .split = 1},
    {.logical = {2, {10, 3}}, .shape = {2, {16, 3}}, .split = 1},
    {.logical = {3, {3, 8, 4}}, .split = 2, .sections = {2, 1, {4, 4}, {0}}},
    {.logical = {3, {3, 5, 4}}, .split = 3},
    {.logical = {1, {20}}, .split = 1, .sections = {3, 0, {16, 2, 2}, {2, 2, 2}}},    /* keys and values of one head, */
    {.logical = {2, {24, 3}}, .split = 1, .sections = {3, 0, {16, 4, 4}, {2, 2, 2}}}, /* and of two */
    {.logical = {2, {28, 3}}, .split = 1, .sections = {5, 0, {8, 8, 4, 4, 4}, {2, 2, 4, 4, 1}}}, /* of Mamba-2 */
};

/* Returns the number of ranks that have element i, and the first of them, from its position in its section of the split
 * dimension. If the division is uneven, the last ranks have fewer elements. If there are few units, several ranks have
 * replicas. */
static int32_t owners(const tx_param_spec *s, int32_t parts, int64_t i, int32_t *first)
{
    const int32_t dimension = s->split - 1;
    int64_t inner = 1, size = s->logical.dim[dimension];
    for (int32_t k = dimension + 1; k < s->logical.rank; k++)
        inner *= s->logical.dim[k];
    int64_t at = i / inner % size, unit = 0;
    for (int32_t k = 0; s->sections.dimension == dimension && k < s->sections.count; k++) {
        size = s->sections.size[k];
        unit = s->sections.unit[k];
        if (at < size)
            break;
        at -= size;
    }
    const int64_t units = unit ? size / unit : size;
    if (unit && units < parts) {
        *first = (int32_t)(at / unit * parts / units);
        return (int32_t)(parts / units);
    }
    *first = (int32_t)(at / ((size + parts - 1) / parts));
    return 1;
}

/* A rank's numbers in its groups: `division` of a tensor group, `experts` of one of experts. */
static bool has(const tx_param_record *r, int64_t i)
{
    int32_t first, count = owners(&r->whole, r->division.parts, i, &first);
    const int64_t alternating = r->whole.alternating,
                  all = alternating ? alternating : tx_shape_count(&r->whole.logical);
    const bool expert = i % all / (all / r->experts.parts) == r->experts.part;
    return expert && r->division.part >= first && r->division.part < first + count;
}

static void check_range(const tx_param_record *r, int64_t first, int64_t count)
{
    float whole[MOST], own[MOST + 1], back[MOST];
    int64_t mine = 0, before = 0;
    for (int64_t i = 0; i < first; i++)
        before += has(r, i);
    for (int64_t i = 0; i < count; i++) {
        whole[i] = (float)(first + i + 1);
        back[i] = 0.0f;
        mine += has(r, first + i);
    }
    assert_int_equal(tx_own_before(r, first), before);
    assert_int_equal(tx_own_before(r, first + count), before + mine);
    own[mine] = -1.0f;
    tx_own_take(r, first, count, whole, own);
    assert_true(own[mine] == -1.0f);
    tx_own_put(r, first, count, own, back);
    for (int64_t i = 0, k = 0; i < count; i++) {
        int32_t puts; /* one rank for all that have it */
        owners(&r->whole, r->division.parts, first + i, &puts);
        assert_true(back[i] == (has(r, first + i) && r->division.part == puts ? whole[i] : 0.0f));
        if (has(r, first + i))
            assert_true(own[k++] == whole[i]);
    }
}

static void check_ranges(const tx_param_record *r)
{
    const int64_t count = tx_shape_count(&r->whole.logical);
    for (int64_t first = 0; first < count; first++)
        for (int64_t end = first; end <= count; end++)
            check_range(r, first, end - first);
}

/* Every rank of `parts`, and of `experts` groups of these. */
static void check_spec(const tx_param_spec *s, int32_t parts, int32_t experts)
{
    tx_param_record r = {.whole = *s,
                         .division = {s->split - 1, 0, parts},
                         .experts = {s->alternating ? s->logical.rank - 1 : 0, 0, experts}};
    for (r.experts.part = 0; r.experts.part < experts; r.experts.part++)
        for (r.division.part = 0; r.division.part < parts; r.division.part++) {
            tx_own_divide(&r);
            check_ranges(&r);
        }
}

static void test_ranges(void **state)
{
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++)
        for (int32_t parts = 1; parts <= 4; parts *= 2)
            check_spec(&specs[k], parts, 1);
}

static void test_experts(void **state)
{
    static const tx_param_spec of_experts[] = {
        {.logical = {3, {4, 8, 3}}, .split = 2, .sections = {2, 1, {4, 4}, {0}}},
        {.logical = {3, {4, 3, 4}}, .split = 3},
        {.logical = {2, {12, 8}}, .split = 1, .sections = {2, 0, {8, 4}, {0}}, .alternating = 4},
        {.logical = {2, {8, 4}}, .split = 1, .sections = {2, 0, {4, 4}, {2, 2}}, .alternating = 4},
    };
    for (size_t k = 0; k < sizeof of_experts / sizeof of_experts[0]; k++)
        for (int32_t parts = 1; parts <= 4; parts *= 2)
            for (int32_t experts = 1; experts <= 4; experts *= 2)
                check_spec(&of_experts[k], parts, experts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
