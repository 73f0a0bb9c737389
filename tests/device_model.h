/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of tests on one device: a model with an empty graph. Include after cmocka.h. */
#ifndef TX_TESTS_DEVICE_MODEL_H
#define TX_TESTS_DEVICE_MODEL_H

#include "tests/scratch.h"
#include "tests/skip.h"

typedef struct fixture {
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    tx_plan *plan, *update; /* a test may make them, */
    char *folder;           /* and this scratch folder */
} fixture;

static const char *device = "cpu";

static inline int set_up_threads(void **state, int32_t threads)
{
    fixture *f = calloc(1, sizeof *f);
    const tx_engine_options options = {.size = sizeof options, .device = device, .threads = threads};
    assert_non_null(f);
    assert_ok(tx_engine_create(&options, &f->engine));
    assert_ok(tx_model_create(f->engine, &f->model));
    assert_ok(tx_graph_create(f->model, &f->graph));
    *state = f;
    return 0;
}

static inline int set_up(void **state)
{
    return set_up_threads(state, 1);
}

static inline int set_up_folder(void **state)
{
    set_up(state);
    ((fixture *)*state)->folder = make_scratch();
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    if (f->folder)
        remove_scratch(f->folder);
    tx_plan_free(f->update);
    tx_plan_free(f->plan);
    tx_graph_free(f->graph);
    tx_model_free(f->model);
    tx_engine_free(f->engine);
    free(f);
    return 0;
}

#endif
