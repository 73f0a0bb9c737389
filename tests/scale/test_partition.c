/* SPDX-License-Identifier: Apache-2.0
 * How blocks go to the stages of a pipeline: against all divisions that there are of small cases, and of models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "models/split/split.h"
#include "tests/scale/shapes.h"
#include "tests/scratch.h"

enum { RANKS = 4, CASES = 3000 };

/* ---- Against all divisions ---------------------------------------------------------------------------------- */

typedef struct looking {
    tx_split_load load[RANKS];
    int32_t ranks, fewest;
    double room;           /* that nobody is to be above */
    double least[3];       /* bytes of any division; work of those within; bytes of those with as little */
    int32_t blocks[RANKS]; /* of the one that is looked at */
} looking;

static void find_largest(const looking *l, const int32_t *blocks, double *work, double *bytes)
{
    *work = *bytes = 0.0;
    for (int32_t r = 0; r < l->ranks; r++) {
        *work = fmax(*work, l->load[r].work + blocks[r] * l->load[r].each_work);
        *bytes = fmax(*bytes, l->load[r].bytes + blocks[r] * l->load[r].each_bytes);
    }
}

static void consider(looking *l, int pass)
{
    double work, bytes;
    find_largest(l, l->blocks, &work, &bytes);
    if (pass == 0)
        l->least[0] = fmin(l->least[0], bytes);
    else if (pass == 1 && bytes <= l->room)
        l->least[1] = fmin(l->least[1], work);
    else if (pass == 2 && bytes <= l->room && work <= l->least[1])
        l->least[2] = fmin(l->least[2], bytes);
}

static void all_divisions(looking *l, int pass, int32_t rank, int32_t left)
{
    if (rank == l->ranks - 1 || rank == RANKS - 1) {
        l->blocks[rank] = left;
        consider(l, pass);
        return;
    }
    const int32_t others = (l->ranks - 1 - rank) * l->fewest;
    for (l->blocks[rank] = l->fewest; l->blocks[rank] <= left - others; l->blocks[rank]++)
        all_divisions(l, pass, rank + 1, left - l->blocks[rank]);
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Small whole numbers, so that many divisions are as good as others. */
static void test_all_divisions(void **state)
{
    uint32_t seed = 7;
    int bound = 0, beyond = 0;
    for (int i = 0; i < CASES; i++) {
        looking l = {.least = {INFINITY, INFINITY, INFINITY}};
        l.ranks = 1 + (int32_t)(next(&seed) % RANKS);
        l.fewest = 1 + (int32_t)(next(&seed) % 2);
        const int32_t all = l.ranks * l.fewest + (int32_t)(next(&seed) % 8);
        for (int32_t r = 0; r < l.ranks; r++)
            l.load[r] =
                (tx_split_load){next(&seed) % 3 ? 0.0 : next(&seed) % 20, 2.0, next(&seed) % 4, 1.0 + next(&seed) % 4};
        const double room = next(&seed) % 2 ? 0.0 : 4.0 + next(&seed) % 20;
        int32_t blocks[RANKS], sum = 0;
        tx_split_share(l.load, l.ranks, l.fewest, all, room, blocks);
        for (int pass = 0; pass < 3; pass++) {
            l.room = room > 0.0 ? fmax(room, l.least[0]) : INFINITY;
            all_divisions(&l, pass, 0, all);
        }
        double work, bytes;
        find_largest(&l, blocks, &work, &bytes);
        for (int32_t r = 0; r < l.ranks; r++) {
            assert_true(blocks[r] >= l.fewest);
            sum += blocks[r];
        }
        assert_int_equal(sum, all);
        if (!(work == l.least[1] && bytes == l.least[2]))
            fail_msg("case %d: work %g, %g of all; bytes %g, %g of all", i, work, l.least[1], bytes, l.least[2]);
        bound += room > 0.0 && room >= l.least[0];
        beyond += room > 0.0 && room < l.least[0];
    }
    assert_true(bound > 100 && beyond > 100);
}

static void check(const tx_split_load *load, int32_t ranks, int32_t all, double room, const int32_t *wanted)
{
    int32_t blocks[RANKS];
    tx_split_share(load, ranks, 1, all, room, blocks);
    for (int32_t r = 0; r < ranks; r++)
        assert_int_equal(blocks[r], wanted[r]);
}

/* Ends that weigh as much as several blocks, ties, and a memory limit that excludes the fastest partition. */
static void test_by_hand(void **state)
{
    const tx_split_load even[] = {{0, 1, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}};
    const tx_split_load head[] = {{0, 1, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}, {4, 1, 0, 0}};
    const tx_split_load ends[] = {{5, 1, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 0}, {90, 1, 0, 0}};
    /* 1F1B: the first stage keeps four micro-batches, the last one. */
    const tx_split_load kept[] = {{0, 1, 0, 4}, {0, 1, 0, 3}, {0, 1, 0, 2}, {2, 1, 0, 1}};
    check(even, 4, 8, 0, (const int32_t[]){2, 2, 2, 2});
    check(even, 4, 4, 0, (const int32_t[]){1, 1, 1, 1});
    check(even, 1, 9, 0, (const int32_t[]){9});
    check(head, 4, 16, 0, (const int32_t[]){5, 5, 5, 1});
    check(ends, 4, 7, 0, (const int32_t[]){1, 3, 2, 1}); /* whatever the others have, the last is the slowest */
    check(kept, 4, 10, 0, (const int32_t[]){3, 3, 3, 1});
    check(kept, 4, 9, 0, (const int32_t[]){2, 3, 3, 1});  /* as slow as 3, 3, 2, 1, in less memory */
    check(kept, 4, 10, 8, (const int32_t[]){2, 2, 4, 2}); /* slower, since there the first has 12 */
    check(kept, 4, 10, 1, (const int32_t[]){1, 2, 3, 4}); /* somebody has 6 whatever is done */
}

/* ---- Of models ---------------------------------------------------------------------------------------------- */

static tx_split pipeline_of(int64_t stages, int64_t chunks, int64_t tensor)
{
    return (tx_split){.data = 1,
                      .tensor = tensor,
                      .pipeline = stages,
                      .expert = 1,
                      .context = 1,
                      .schedule = chunks > 1 ? TX_PIPELINE_INTERLEAVED : TX_PIPELINE_1F1B,
                      .chunks = chunks,
                      .batch = 1,
                      .micro = 8};
}

/* All divisions of a model's blocks among two ranks: of none has the slowest rank less work than the chosen one's. The
 * last one has at least so many blocks `fewer`. */
static void check_model(const char *name, int64_t block, int64_t tensor, int32_t fewer)
{
    const tx_engine_options options = {.size = sizeof options, .threads = 1};
    tx_engine *engine = NULL;
    tx_config *config = NULL;
    tx_split_model model;
    tx_split split = pipeline_of(2, 1, tensor);
    int32_t blocks[64];
    assert_ok(tx_engine_create(&options, &engine));
    assert_ok(tx_shape_config(name, block, &config));
    const tx_trainer_options base = tx_bench_trainer_options(config, 1, block);
    assert_ok(tx_split_model_of(engine, config, &base, &split, &model));
    tx_split_stages(&model, &split, 0.0, blocks);
    const int32_t layers = (int32_t)config->layers;
    const double chosen = tx_split_slowest(&model, &split, blocks);
    assert_int_equal(blocks[0] + blocks[1], layers);
    assert_true(blocks[0] - blocks[1] >= fewer); /* it has the head */
    for (int32_t first = 1; first < layers; first++)
        assert_true(chosen <= tx_split_slowest(&model, &split, (const int32_t[]){first, layers - first}));
    /* In turns: ranks are as even as they were, and the last stage has the fewest blocks. */
    split = pipeline_of(2, 2, tensor);
    tx_split_stages(&model, &split, 0.0, blocks);
    assert_int_equal(blocks[0] + blocks[1] + blocks[2] + blocks[3], layers);
    assert_true(blocks[3] <= blocks[1]);
    const double turns = tx_split_slowest(&model, &split, blocks);
    assert_true(fabs(turns - chosen) <= 1e-12);
    /* As many stages as blocks. */
    split = pipeline_of(layers, 1, tensor);
    tx_split_stages(&model, &split, 0.0, blocks);
    for (int32_t s = 0; s < layers; s++)
        assert_int_equal(blocks[s], 1);
    tx_config_free(config);
    tx_engine_free(engine);
}

static void test_models(void **state)
{
    check_model("gpt2", 128, 1, 4);
    check_model("gpt2", 128, 2, 2);
    check_model("gpt2-xl", 128, 1, 2);
    check_model("llama-7b", 256, 4, 0);
    check_model("mixtral-8x7b", 256, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_divisions),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
