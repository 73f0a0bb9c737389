/* SPDX-License-Identifier: Apache-2.0
 * A transformer of one block, for tests of the types in mixed precision. */
#ifndef TX_TESTS_GRAPH_TRANSFORMER_H
#define TX_TESTS_GRAPH_TRANSFORMER_H

#include "tests/device_model.h"

enum { BATCH = 2, LENGTH = 24, ROWS = BATCH * LENGTH, WIDTH = 32, VOCAB = 60, PADDED = 64, WEIGHTS = 1 << 14 };

static inline tx_tensor *param(fixture *f, const char *name, tx_shape shape, tx_init init)
{
    return tx_param(f->graph, name, &(tx_param_spec){.shape = shape, .init = init, .scale = 0.2f});
}

static inline tx_tensor *matrix(fixture *f, const char *name, int64_t rows, int64_t columns)
{
    return param(f, name, TX_SHAPE(rows, columns), TX_INIT_NORMAL);
}

static inline tx_tensor *linear(fixture *f, tx_tensor *x, const char *name, int64_t from, int64_t to)
{
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    tx_tensor *w = matrix(f, name, from, to);
    return tx_linear(x, w, param(f, bias, TX_SHAPE(to), TX_INIT_ZERO), false);
}

static inline tx_tensor *norm(fixture *f, tx_tensor *x, const char *name)
{
    char beta[32];
    snprintf(beta, sizeof beta, "%s.bias", name);
    tx_tensor *gamma = param(f, name, TX_SHAPE(WIDTH), TX_INIT_ONE);
    return tx_layer_norm(x, gamma, param(f, beta, TX_SHAPE(WIDTH), TX_INIT_ZERO), 1e-5f);
}

/* A transformer of one block, with a tied table. */
typedef struct network {
    tx_tensor *tokens, *labels, *table, *x, *normed, *qkv, *o, *projected, *up, *gelu, *down, *logits, *losses, *loss;
} network;

static inline network build(fixture *f)
{
    tx_graph *g = f->graph;
    network n = {.tokens = tx_input(g, "tokens", TX_I32, TX_SHAPE(BATCH, LENGTH)),
                 .labels = tx_input(g, "labels", TX_I32, TX_SHAPE(BATCH, LENGTH))};
    const tx_attention_options options = {.size = sizeof options, .heads = 2, .kv_heads = 2, .causal = true};
    n.table = matrix(f, "table", PADDED, WIDTH);
    n.x = tx_embedding(n.tokens, n.table, NULL, NULL);
    n.normed = norm(f, n.x, "norm1");
    n.qkv = linear(f, n.normed, "qkv", WIDTH, 3 * WIDTH);
    n.o = tx_attention(n.qkv, NULL, NULL, &options);
    n.projected = linear(f, n.o, "out", WIDTH, WIDTH);
    tx_tensor *x = tx_add(n.x, n.projected);
    n.up = linear(f, norm(f, x, "norm2"), "up", WIDTH, 4 * WIDTH);
    n.gelu = tx_gelu(n.up, false);
    n.down = linear(f, n.gelu, "down", 4 * WIDTH, WIDTH);
    n.logits = tx_linear(norm(f, tx_add(x, n.down), "norm3"), n.table, NULL, true);
    n.losses = tx_cross_entropy(n.logits, n.labels, VOCAB);
    n.loss = tx_mean_loss(n.losses);
    return n;
}

#endif
