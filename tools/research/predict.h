/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of matrix products, attention and training steps on cards that are not here. Nothing of it is measured: it
 * holds what is counted in machine code (loops.def) against what vendors and others say of cards (cards.def).
 *
 * A work-group's round of the inner loop takes as long as what takes longest of it: the matrix units' operations at the
 * rate that the best known library reaches; the instructions; local memory; what a unit's share of the cache gives.
 * Groups that a unit holds at once take turns, so their beginnings and ends (what is outside of the loop, and a wait
 * for memory) are hidden by the others' rounds where there are others; groups that go on from tile to tile wait once.
 * Tiles go in waves over the units; terms are parted where that is faster, and the parts' sums are written and read
 * once more. GELU and its slope, where a product ends by them, are more instructions outside of the loop, and what they
 * read or keep goes to and from memory once; where terms are parted adding up hides their instructions. Each wave of
 * tiles reads its rows and columns from memory once, and results are written once.
 *
 * Attention by matrix units goes the same way, a step of a work-group (attention_loops.def) taking the place of a
 * round; powers of two are another term of it. Its work is counted as 2, 3 and 4 products of queries by keys.
 *
 * So it says what should be slow, and no kernel should be expected to be faster. */
#ifndef TX_TOOLS_RESEARCH_PREDICT_H
#define TX_TOOLS_RESEARCH_PREDICT_H

#include "api/graph/op.h"

typedef struct tx_card {
    const char *id, *target;
    double units, ghz, simt, half, tf32, fp32, share, wgmma, local, issue, local_kib, registers, memory, cache, aim,
        others;
} tx_card;

/* Number i; NULL behind the last. */
const tx_card *tx_card_at(int i);

typedef enum tx_operands { TX_IN_FP32, TX_IN_TF32, TX_IN_BF16, TX_OPERAND_KINDS } tx_operands;

/* What a round of the inner loop takes. X(NAME, word) */
#define TX_ROUND_MAP(X)             \
    X(UNITS, "units")               \
    X(INSTRUCTIONS, "instructions") \
    X(LOCAL, "local_memory")        \
    X(CACHE, "cache")

enum {
#define X(name, word) TX_ROUND_##name,
    TX_ROUND_MAP(X)
#undef X
        TX_ROUND_TERMS
};

typedef struct tx_predicted {
    double seconds, tflops;
    double clocks[TX_ROUND_TERMS]; /* for 64 terms of a tile; 0: not counted */
    const char *provider, *bound;  /* what takes longest */
    int64_t parts;                 /* of the terms */
    double cached, moved;          /* bytes: read by tiles from the cache; read from memory, at most, and written */
} tx_predicted;

/* A product of a card's fastest provider, with what becomes of its sums; fp32 where the card has nothing for
 * `operands`. Without counted loops half of the other units' peak is assumed, and the provider is "not counted". */
tx_predicted tx_predict_product(const tx_card *card, tx_operands operands, bool trans_a, bool trans_b, int64_t m,
                                int64_t n, int64_t k, tx_epilogue epilogue);
/* The same by this provider, NULL: by the fastest; INFINITY seconds where no loop of it is counted for the card. */
tx_predicted tx_predict_provider(const tx_card *card, const char *provider, tx_operands operands, bool trans_a,
                                 bool trans_b, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue);

/* Clocks of a work-group's first blocks on their way, and of its last results: an estimate. */
#define TX_WAIT_CLOCKS 1500.0

typedef enum tx_attention_pass { TX_ATTENTION_FORWARD, TX_ATTENTION_GRAD_Q, TX_ATTENTION_GRAD_KV } tx_attention_pass;

typedef struct tx_attention_shape {
    int64_t batch, tokens, heads, size; /* size: of a head */
    bool causal;
} tx_attention_shape;

/* Units, instructions, local memory, exponentials, cache. */
#define TX_ATTENTION_TERMS 5

typedef struct tx_predicted_attention {
    double seconds, tflops,
        clocks[TX_ATTENTION_TERMS]; /* clocks: of a step of a work-group that has a unit for itself */
    const char *form, *bound;       /* what takes longest */
} tx_predicted_attention;

/* One pass of attention in bf16 by matrix units. False where none is counted: of that card, or heads of that size. */
bool tx_predict_attention(const tx_card *card, tx_attention_pass pass, const tx_attention_shape *shape,
                          tx_predicted_attention *p);

#endif
