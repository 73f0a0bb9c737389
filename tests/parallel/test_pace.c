/* SPDX-License-Identifier: Apache-2.0
 * Shares of a batch by weight; and, as several ranks, that weights which differ in one bit are found on the rank that
 * has them. */
#include "models/train/pace.h"

#include "tests/unit.h" /* needs some of the above before it */

static void expect_shares(int64_t rows, int32_t ranks, const double *weight, const int64_t *expected)
{
    int64_t share[8];
    assert_int_equal(tx_pace_apportion(weight, ranks, rows, share), TX_OK);
    for (int32_t r = 0; r < ranks; r++)
        assert_int_equal(share[r], expected[r]);
}

static void shares(void **state)
{
    expect_shares(4, 2, (double[]){3, 1}, (int64_t[]){3, 1});
    expect_shares(12, 2, (double[]){1, 1}, (int64_t[]){6, 6});
    expect_shares(10, 3, (double[]){1, 1, 1}, (int64_t[]){4, 3, 3});
    expect_shares(3, 3, (double[]){1000, 1, 1}, (int64_t[]){1, 1, 1});
    expect_shares(8, 3, (double[]){100, 1, 1}, (int64_t[]){6, 1, 1});
    expect_shares(7, 2, (double[]){1e-9, 1e-9}, (int64_t[]){4, 3});
    expect_shares(16, 4, (double[]){0.5, 1.5, 1, 1}, (int64_t[]){2, 6, 4, 4});
    int64_t share[2];
    assert_int_equal(tx_pace_apportion((double[]){1, 1}, 2, 1, share), TX_INVALID);
}

static tx_model *make_model(tx_engine *engine, tx_graph **graph)
{
    tx_model *model = NULL;
    assert_int_equal(tx_model_create(engine, &model), TX_OK);
    assert_int_equal(tx_graph_create(model, graph), TX_OK);
    const tx_param_spec spec = {.shape = TX_SHAPE(300, 7), .init = TX_INIT_NORMAL, .scale = 1.0f};
    assert_non_null(tx_param(*graph, "a", &spec));
    assert_non_null(tx_param(*graph, "b", &spec));
    assert_int_equal(tx_model_init(model, 1), TX_OK);
    return model;
}

static void weights(void **state)
{
    tx_comm *comm = *state;
    const tx_engine_options options = {.size = sizeof options, .device = "cpu", .threads = 1};
    tx_engine *engine = NULL;
    tx_graph *graph = NULL;
    uint64_t hash = 0, again = 1;
    assert_int_equal(tx_engine_create(&options, &engine), TX_OK);
    tx_model *model = make_model(engine, &graph);
    assert_int_equal(tx_pace_compare_weights(model, comm, "why?", &hash), TX_OK);
    assert_int_equal(tx_pace_compare_weights(model, comm, "why?", &again), TX_OK);
    assert_int_equal(hash, again);
    uint32_t word;
    float value;
    assert_int_equal(tx_model_read_range(model, TX_PARAM_WEIGHT, 1, 2099, 1, &value), TX_OK);
    memcpy(&word, &value, sizeof word);
    if (comm->rank == comm->size - 1)
        word ^= 1;
    memcpy(&value, &word, sizeof word);
    assert_int_equal(tx_model_write_range(model, TX_PARAM_WEIGHT, 1, 2099, 1, &value), TX_OK);
    if (comm->size == 1) {
        assert_int_equal(tx_pace_compare_weights(model, comm, "why?", &again), TX_OK);
        assert_int_not_equal(hash, again);
    } else {
        char expected[32];
        snprintf(expected, sizeof expected, "rank %d on ", (int)comm->size - 1);
        assert_int_equal(tx_pace_compare_weights(model, comm, "why?", &again), TX_DEVICE);
        assert_non_null(strstr(tx_error(), expected));
        assert_non_null(strstr(tx_error(), "): why?"));
    }
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
}

int main(int argc, char **argv)
{
    tx_comm *comm = NULL;
    if (tx_comm_open(&argc, &argv, &comm)) {
        fprintf(stderr, "test_pace: %s\n", tx_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares), cmocka_unit_test_prestate(weights, comm)};
    int failed = cmocka_run_group_tests_name("pace", tests, NULL, NULL);
    tx_comm_close(comm);
    return failed ? 1 : 0;
}
