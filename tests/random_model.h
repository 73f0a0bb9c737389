/* SPDX-License-Identifier: Apache-2.0
 * A model with random weights in a folder. */
#ifndef TX_TESTS_RANDOM_MODEL_H
#define TX_TESTS_RANDOM_MODEL_H

#include "models/arch/arch.h"
#include "tests/scratch.h"

/* Saves a model of a configuration with random weights into a folder. */
static inline void save_random_model(const tx_config *config, const char *folder)
{
    const tx_engine_options options = {.size = sizeof options};
    tx_engine *engine;
    tx_model *model;
    tx_graph *graph;
    assert_ok(tx_engine_create(&options, &engine));
    assert_ok(tx_model_create(engine, &model));
    assert_ok(tx_graph_create(model, &graph));
    assert_non_null(tx_input(graph, "input_ids", TX_I32, TX_SHAPE(1, 1)));
    assert_non_null(tx_arch_logits(graph, config, NULL));
    assert_ok(tx_model_init(model, 3));
    assert_ok(tx_arch_save(model, config, folder));
    tx_graph_free(graph);
    tx_model_free(model);
    tx_engine_free(engine);
}

#endif
