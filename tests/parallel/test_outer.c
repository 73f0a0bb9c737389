/* SPDX-License-Identifier: Apache-2.0
 * The outer optimizer of local steps, beside its formula in double precision. Ranks move their weights by known
 * amounts. All ranks get the same bits, a saved momentum continues with the same bits, and the bytes that ranks send
 * are those of an all-reduce of the trained weights. Frozen weights stay. test_outer     with any number of ranks;
 * TX_COMM_SHM, if set, must be 0 */
#include "models/train/outer.h"
#include "tests/scratch.h"

#include <math.h>

enum { ROWS = 37, COLUMNS = 300, COUNT = ROWS * COLUMNS, ROUNDS = 4 };

static tx_comm *comm;

/* How far a rank moves weight k in a round. */
static double moved(int32_t rank, int32_t round, int64_t k)
{
    return 1e-2 * sin((double)(k + 1) * (rank + 1) + round);
}

static double start(int64_t k)
{
    return cos((double)k);
}

typedef struct fixture {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan;
    float values[COUNT];
} fixture;

static void open_model(fixture *f)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = "cpu", .threads = 1};
    const tx_param_spec trained = {.shape = TX_SHAPE(ROWS, COLUMNS), .logical = TX_SHAPE(ROWS, COLUMNS)};
    tx_param_spec frozen = trained;
    frozen.frozen = true;
    assert_ok(tx_engine_create(&engine, &f->engine));
    assert_ok(tx_model_create(f->engine, &f->model));
    assert_ok(tx_graph_create(f->model, &f->graph));
    tx_tensor *a = tx_param(f->graph, "frozen", &frozen), *b = tx_param(f->graph, "trained", &trained);
    tx_output(tx_add(a, b));
    assert_ok(tx_plan_create(f->graph, "sum", &f->plan));
    for (int32_t k = 0; k < COUNT; k++)
        f->values[k] = (float)start(k);
    for (int32_t i = 0; i < 2; i++)
        assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, i, f->values));
}

static void close_model(fixture *f)
{
    tx_plan_free(f->plan);
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    tx_engine_free(f->engine);
}

/* Moves the weights of this rank, and averages. */
static void do_round(fixture *f, tx_outer *outer, int32_t round)
{
    float vote = (float)(comm->rank + 1);
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 1, f->values));
    for (int32_t k = 0; k < COUNT; k++)
        f->values[k] += (float)moved(comm->rank, round, k);
    assert_ok(tx_model_write(f->model, TX_PARAM_WEIGHT, 1, f->values));
    assert_ok(tx_outer_synchronize(outer, &vote));
    assert_true(vote == (float)(comm->size * (comm->size + 1)) / 2.0f);
    assert_ok(tx_model_read(f->model, TX_PARAM_WEIGHT, 1, f->values));
}

static double error_of(const fixture *f, const double *weights)
{
    double most = 0.0;
    for (int32_t k = 0; k < COUNT; k++)
        most = fmax(most, fabs((double)f->values[k] - weights[k]));
    return most;
}

/* The formula: m = momentum m + mean, w = w - rate (mean + momentum m), with the mean of the ways against the steps. */
static void apply(double *weights, double *momentum, const tx_job_settings *set, int32_t round)
{
    for (int32_t k = 0; k < COUNT; k++) {
        double mean = 0.0;
        for (int32_t r = 0; r < comm->size; r++)
            mean -= moved(r, round, k) / comm->size;
        momentum[k] = set->outer_momentum * momentum[k] + mean;
        weights[k] -= set->outer_rate * (mean + set->outer_momentum * momentum[k]);
    }
}

static void test_formula(void **state)
{
    static double weights[COUNT], momentum[COUNT];
    static fixture f, other;
    const tx_job_settings set = {.outer_rate = 0.7, .outer_momentum = 0.9};
    tx_outer *outer = NULL, *resumed = NULL;
    tx_comm_traffic before, after;
    char *folder = make_scratch(), shared[1024] = "";
    open_model(&f);
    open_model(&other);
    assert_ok(tx_outer_create(f.model, comm, &set, NULL, &outer));
    for (int32_t k = 0; k < COUNT; k++)
        weights[k] = start(k);
    comm->table->traffic(comm, &before);
    for (int32_t round = 0; round < ROUNDS; round++) {
        apply(weights, momentum, &set, round);
        do_round(&f, outer, round);
        if (!(error_of(&f, weights) < 1e-6))
            fail_msg("round %d: %g off", (int)round, error_of(&f, weights));
        if (round != ROUNDS / 2)
            continue;
        /* Another model continues from here, with the momentum that rank 0 saved. */
        if (comm->rank == 0)
            assert_ok(tx_outer_save(outer, folder));
        snprintf(shared, sizeof shared, "%s", folder);
        assert_ok(tx_comm_collect(comm, TX_BROADCAST, shared, sizeof shared / 4, TX_I32, 0));
        assert_ok(tx_model_write(other.model, TX_PARAM_WEIGHT, 1, f.values));
        assert_ok(tx_outer_create(other.model, comm, &set, shared, &resumed));
        comm->table->traffic(comm, &before);
    }
    comm->table->traffic(comm, &after);
    /* The ranks' windows without messages; else N - 1 parts of N are sent twice, and the vote. */
    const double bytes = 2.0 * (comm->size - 1) / comm->size * COUNT * sizeof(float);
    const double sent = (double)(after.sent - before.sent) / (ROUNDS - 1 - ROUNDS / 2);
    if (getenv("TX_COMM_SHM"))
        assert_true(fabs(sent - bytes) < 0.05 * bytes + 64.0);
    else
        assert_true(sent <= 64.0);
    do_round(&other, resumed, ROUNDS - 1);
    assert_memory_equal(f.values, other.values, sizeof f.values);
    /* The same bits on all ranks, and the frozen weights as before. */
    float *all = tx_comm_gather(comm, f.values, sizeof f.values, &(tx_status){TX_OK});
    for (int32_t r = 0; r < comm->size; r++)
        assert_memory_equal(all + (size_t)r * COUNT, f.values, sizeof f.values);
    free(all);
    assert_ok(tx_model_read(f.model, TX_PARAM_WEIGHT, 0, f.values));
    for (int32_t k = 0; k < COUNT; k++)
        assert_true(f.values[k] == (float)start(k));
    tx_outer_free(resumed);
    tx_outer_free(outer);
    close_model(&other);
    close_model(&f);
    assert_ok(tx_comm_collect(comm, TX_BARRIER, NULL, 0, TX_F32, 0));
    remove_scratch(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formula)};
    if (tx_comm_open(&argc, &argv, &comm)) {
        fprintf(stderr, "test_outer: %s\n", tx_error());
        return 1;
    }
    if (comm->size > 1)
        setenv("CMOCKA_TEST_ABORT", "1", 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tx_comm_close(comm);
    return failed ? 1 : 0;
}
