/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of tests that compare two ways to compute a gradient. */
#ifndef TX_TESTS_GRADIENTS_H
#define TX_TESTS_GRADIENTS_H

#include "tx.h"

#include <math.h>

/* The loss of the last run, and the gradients of all parameters one after the other, without padding. */
static inline tx_status read_gradients(tx_model *model, float *loss, float *gradient)
{
    tx_results results;
    tx_status status = tx_model_fetch(model);
    TX_THEN(status, tx_model_results(model, &results));
    if (!status)
        *loss = results.value[TX_RESULT_LOSS];
    for (int32_t i = 0; i < tx_model_param_count(model) && !status; i++) {
        const char *name;
        const tx_param_spec *spec;
        status = tx_model_param(model, i, &name, &spec);
        if (!status && spec->frozen)
            continue;
        TX_THEN(status, tx_model_read(model, TX_PARAM_GRADIENT, i, gradient));
        if (!status)
            gradient += tx_shape_count(&spec->logical);
    }
    return status;
}

/* Relative L2 distance of a from b. */
static inline double relative_distance(const float *a, const float *b, int count)
{
    double difference = 0.0, norm = 0.0;
    for (int i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

#endif
