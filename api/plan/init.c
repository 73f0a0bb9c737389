/* SPDX-License-Identifier: Apache-2.0
 * Initialises a model's parameters with reproducible random numbers. */
#include "api/base/hash.h"
#include "api/base/needs.h"
#include "api/model/model.h"

#include "backends/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The inverse of softplus. */
static float unsoftplus(float x)
{
    return x + logf(-expm1f(-x));
}

/* A number from u, uniform in (0, 1). `i` is the index of the element. */
static float number_of(const tx_param_spec *spec, float u, int64_t i)
{
    switch (spec->init) {
    case TX_INIT_UNIFORM:
        return spec->scale * (2.0f * u - 1.0f);
    case TX_INIT_LOG_UNIFORM:
        return logf(0.01f + (spec->scale - 0.01f) * u);
    case TX_INIT_LOG_RANGE:
        return logf((float)(i + 1));
    case TX_INIT_CONSTANT:
        return spec->scale;
    case TX_INIT_LOG_STEPS:
        return unsoftplus(0.001f * expf(u * logf(100.0f)));
    default:
        return spec->init == TX_INIT_ONE ? 1.0f : 0.0f;
    }
}

/* Computes elements 4 * block .. 4 * block + 3 of a parameter. Normal numbers are drawn by the Box-Muller method. */
static void draw_block(const tx_param_spec *spec, uint64_t hash, uint64_t seed, int64_t block, float out[4])
{
    tx_random r = tx_philox((tx_u32)block, (tx_u32)((uint64_t)block >> 32), (tx_u32)hash, (tx_u32)(hash >> 32),
                            (tx_u32)seed, (tx_u32)(seed >> 32));
    for (int i = 0; i < 4; i += 2) {
        float u = ((float)(r.word[i] >> 8) + 0.5f) * 0x1p-24f, v = ((float)(r.word[i + 1] >> 8) + 0.5f) * 0x1p-24f;
        if (spec->init == TX_INIT_NORMAL) {
            float radius = spec->scale * sqrtf(-2.0f * logf(u)), angle = 6.28318530717958648f * v;
            out[i] = radius * cosf(angle);
            out[i + 1] = radius * sinf(angle);
        } else {
            out[i] = number_of(spec, u, 4 * block + i);
            out[i + 1] = number_of(spec, v, 4 * block + i + 1);
        }
    }
}

tx_status tx_model_init(tx_model *model, uint64_t seed)
{
    TX_NEEDS(model, TX_INVALID);
    for (int32_t i = 0; i < model->params; i++)
        TX_TRY(tx_model_init_param(model, i, seed));
    return TX_OK;
}

tx_status tx_model_init_param(tx_model *model, int32_t index, uint64_t seed)
{
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(tx_model_param(model, index, &name, &spec));
    const uint64_t hash = tx_hash(TX_HASH_START, name, strlen(name));
    const int64_t room = 1 << 16, count = tx_shape_count(&spec->logical);
    float *slice = malloc((size_t)room * sizeof *slice);
    tx_status status = slice ? TX_OK : tx_fail(TX_MEMORY, "no memory to initialise parameters");
    for (int64_t first = 0; first < count && !status; first += room) {
        const int64_t n = count - first < room ? count - first : room;
        for (int64_t i = 0; i < n; i += 4)
            draw_block(spec, hash, seed, (first + i) / 4, slice + i);
        status = tx_model_write_range(model, TX_PARAM_WEIGHT, index, first, n, slice);
    }
    free(slice);
    return status;
}
