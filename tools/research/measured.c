/* SPDX-License-Identifier: Apache-2.0
 * Predicts commands from measured speeds of kernels (measured.def). */
#include "tools/research/predict.h"

#include <math.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 256, TERMS = 64 };

typedef struct tile {
    const char *card, *state;
    double block, plain, bias, gelu, gelu_grad, add, fp32;
} tile;

typedef struct rate {
    const char *card;
    tx_op op;
    double rate;
} rate;

static const tile tiles[] = {
#define TX_TILE(card, ...) {#card, __VA_ARGS__},
#define TX_RATE(...)
#include "tools/research/measured.def"
};

static const rate rates[] = {
#define TX_TILE(...)
#define TX_RATE(card, op, ...) {#card, TX_OP_##op, __VA_ARGS__},
#include "tools/research/measured.def"
};

/* Microseconds of a tile without its terms. */
static double rest_of(const tile *t, const tx_command *c)
{
    switch (c->attrs.epilogue) {
    case TX_EPILOGUE_GELU:
        return t->gelu;
    case TX_EPILOGUE_GELU_GRAD:
        return t->gelu_grad;
    case TX_EPILOGUE_ADD:
        return c->out[0].dtype == TX_F32 ? t->add : t->gelu_grad;
    default:
        break;
    }
    if (c->attrs.accumulate != TX_STORE)
        return t->add;
    return c->out[0].dtype == TX_F32 ? t->fp32 : c->in[2].dtype == TX_DTYPE_COUNT ? t->plain : t->bias;
}

/* The kernel that adds parts reads `read` sums and writes the result. */
static double join_seconds(const tx_card *card, double read, double results)
{
    return TX_LAUNCH_GAP + 4.0 * (read + results) / tx_card_bytes(card);
}

/* An even split: each unit computes the same number of blocks, of one tile or of several. */
static double even_seconds(const tx_card *card, const tile *t, double tiles_of, double k, double results)
{
    const double span = ceil(tiles_of * ceil(k / TERMS) / card->units), pieces = tiles_of + card->units;
    return 1e-6 * (span * t->block + ceil(pieces / card->units) * t->fp32) +
           join_seconds(card, pieces * ROWS * COLUMNS, results);
}

/* The parts of a product are stored in fp32, and added by another kernel. */
static double product_seconds(const tx_card *card, const tile *t, const tx_command *c, double flops)
{
    const double n = (double)tx_shape_last(&c->out[0].shape), m = (double)tx_operand_count(&c->out[0]) / n;
    const double k = flops / (2.0 * m * n), tiles_of = ceil(m / ROWS) * ceil(n / COLUMNS);
    double best = k < 2.0 * TX_LEAST_PART ? INFINITY : even_seconds(card, t, tiles_of, k, m * n);
    for (double parts = 1.0; parts <= TX_MOST_PARTS && (parts == 1.0 || parts * TX_LEAST_PART <= k); parts++) {
        const double waves = ceil(tiles_of * parts / card->units), blocks = ceil(ceil(k / parts) / TERMS);
        const double rest = parts == 1.0 ? rest_of(t, c) : t->fp32;
        const double join = parts == 1.0 ? 0.0 : join_seconds(card, parts * m * n, m * n);
        best = fmin(best, 1e-6 * waves * (blocks * t->block + rest) + join);
    }
    return best;
}

bool tx_measured_seconds(const tx_card *card, const char *state, const tx_command *c, double *seconds)
{
    double flops, bytes;
    tx_op_work(c, &flops, &bytes);
    for (size_t i = 0; c->op == TX_OP_MATMUL && c->in[0].dtype == TX_BF16 && i < sizeof tiles / sizeof tiles[0]; i++)
        if (strcmp(tiles[i].card, card->id) == 0 && strcmp(tiles[i].state, state) == 0) {
            *seconds = product_seconds(card, &tiles[i], c, flops);
            return true;
        }
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (rates[i].op == c->op && strcmp(rates[i].card, card->id) == 0) {
            const bool attention = c->op == TX_OP_ATTENTION || c->op == TX_OP_ATTENTION_GRAD;
            *seconds = attention ? 1e-12 * flops / rates[i].rate : 1e-9 * bytes / rates[i].rate;
            return true;
        }
    return false;
}
