/* SPDX-License-Identifier: Apache-2.0
 * Dense modules of sentence-transformers, which map embeddings after the pooling: y = activation(W x + b). Called by
 * pooling.c and models/generate/embedder.c. */
#include "models/arch/pooling.h"

#include "models/arch/arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)1 << 20)
#define WIDEST ((int64_t)1 << 20)

/* The names in config.json are those of PyTorch's classes. */
static tx_status read_activation(const tx_json *json, tx_dense *dense)
{
    const char *name = "torch.nn.modules.activation.Tanh";
    TX_TRY(TX_JSON_OPTIONAL(string, json, "activation_function", &name));
    const char *dot = strrchr(name, '.'), *class = dot ? dot + 1 : name;
    dense->tanh = strcmp(class, "Tanh") == 0;
    return dense->tanh || strcmp(class, "Identity") == 0
               ? TX_OK
               : tx_fail(TX_UNSUPPORTED, "activation_function: \"%.80s\" is not one of Tanh, Identity", name);
}

static tx_status read_settings(const tx_json *json, tx_dense *dense, bool *bias)
{
    *bias = true;
    TX_TRY(tx_json_get_int(json, "in_features", 1, WIDEST, &dense->in));
    TX_TRY(tx_json_get_int(json, "out_features", 1, WIDEST, &dense->out));
    TX_TRY(TX_JSON_OPTIONAL(bool, json, "bias", bias));
    return read_activation(json, dense);
}

static tx_status read_tensor(const tx_weights *weights, const char *name, tx_shape shape, float **values)
{
    const int32_t index = tx_weights_find(weights, NULL, name);
    const tx_st_tensor *t = index < 0 ? NULL : tx_weights_tensor_at(weights, index);
    const tx_shape found = t ? tx_st_shape(t) : shape;
    if (!t || t->rank != shape.rank || !tx_shape_equal(&found, &shape))
        return tx_fail(TX_FORMAT, "%s: has no tensor %s of the shape in config.json", tx_weights_path(weights), name);
    *values = malloc((size_t)tx_shape_count(&shape) * sizeof **values);
    return *values ? tx_weights_read_f32(weights, index, 0, tx_shape_count(&shape), *values)
                   : tx_fail(TX_MEMORY, "%s: no memory for a tensor", tx_weights_path(weights));
}

static tx_status read_weights(const char *folder, bool bias, tx_dense *dense)
{
    tx_weights *weights;
    TX_TRY(tx_weights_open(folder, &weights));
    tx_status status = read_tensor(weights, "linear.weight", TX_SHAPE(dense->out, dense->in), &dense->weight);
    if (bias)
        TX_THEN(status, read_tensor(weights, "linear.bias", TX_SHAPE(dense->out), &dense->bias));
    tx_weights_close(weights);
    return status;
}

tx_status tx_dense_read(const char *folder, tx_dense *dense)
{
    tx_json *json;
    bool bias;
    const char *path = TX_PATH(folder, "config.json");
    TX_TRY(tx_json_read(path, CONFIG_LIMIT, &json));
    const tx_status status = tx_fail_in(read_settings(json, dense, &bias), "%s", path);
    tx_json_free(json);
    return status ? status : read_weights(folder, bias, dense);
}

void tx_dense_free(tx_dense *dense)
{
    free(dense->weight);
    free(dense->bias);
    *dense = (tx_dense){0};
}

static void apply(const tx_dense *dense, const float *x, float *y)
{
    for (int64_t o = 0; o < dense->out; o++) {
        const float *row = dense->weight + o * dense->in;
        float sum = dense->bias ? dense->bias[o] : 0.0f;
        for (int64_t i = 0; i < dense->in; i++)
            sum += row[i] * x[i];
        y[o] = dense->tanh ? tanhf(sum) : sum;
    }
}

/* As tx_unit_rows. */
static void normalize(float *x, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (double)x[i] * (double)x[i];
    const double norm = fmax(sqrt(squares), 1e-12);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)((double)x[i] / norm);
}

tx_status tx_dense_apply(const tx_pooling *pooling, const float *pooled, int64_t width, float *embedding)
{
    int64_t widest = width;
    for (int32_t i = 0; i < pooling->dense_count; i++)
        widest = pooling->dense[i].out > widest ? pooling->dense[i].out : widest;
    float *both = malloc((size_t)widest * 2 * sizeof *both), *x = both, *y = both ? both + widest : NULL;
    if (!both)
        return tx_fail(TX_MEMORY, "no memory for an embedding");
    memcpy(x, pooled, (size_t)width * sizeof *x);
    for (int32_t i = 0; i < pooling->dense_count; i++) {
        float *const from = x;
        apply(&pooling->dense[i], x, y);
        width = pooling->dense[i].out;
        x = y;
        y = from;
    }
    if (pooling->normalize)
        normalize(x, width);
    memcpy(embedding, x, (size_t)width * sizeof *x);
    free(both);
    return TX_OK;
}
