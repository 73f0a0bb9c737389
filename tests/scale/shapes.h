/* SPDX-License-Identifier: Apache-2.0
 * Configurations of published models, for tests of the model of divided training. */
#ifndef TX_TESTS_SCALE_SHAPES_H
#define TX_TESTS_SCALE_SHAPES_H

#include "tools/bench/training.h"

#include <string.h>

static const struct {
    const char *name, *json;
} tx_shapes[] = {
#define TX_PUBLISHED(name, json) {name, json},
#include "tests/scale/shapes.def"
};

/* A shape by its name (shapes.def), or as tx_bench_config finds it. The caller frees it in any case. */
static inline tx_status tx_shape_config(const char *name, int64_t block, tx_config **config)
{
    for (size_t i = 0; i < sizeof tx_shapes / sizeof tx_shapes[0]; i++)
        if (strcmp(name, tx_shapes[i].name) == 0) {
            tx_json *json = NULL;
            TX_TRY(tx_json_parse(tx_shapes[i].json, strlen(tx_shapes[i].json), name, &json));
            TX_TRY(tx_config_of_json(json, config));
            return block <= (*config)->positions
                       ? TX_OK
                       : tx_fail(TX_INVALID, "--block: %s has %d positions", name, (int)(*config)->positions);
        }
    return tx_bench_config(name, block, config);
}

#endif
