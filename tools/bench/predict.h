/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of matrix products and training steps on cards that are not here. Nothing of it is measured: it holds what is
 * counted in machine code (loops.def) against what vendors and others say of cards (cards.def).
 *
 * A work-group's round of the inner loop takes as long as what takes longest of it: the matrix units' operations at the
 * rate that the best known library reaches; the instructions; local memory; what a unit's share of the cache gives.
 * Groups that a unit holds at once take turns, so their beginnings and ends (what is outside of the loop, and a wait
 * for memory) are hidden by the others' rounds where there are others. Tiles go in waves over the units; terms are
 * parted where that is faster, and the parts' sums are written and read once more. Operands and results go through
 * memory once at least.
 *
 * So it says what should be slow, and no kernel should be expected to be faster. */
#ifndef TX_TOOLS_PREDICT_H
#define TX_TOOLS_PREDICT_H

#include "tx.h"

typedef struct tx_card {
    const char *id, *target;
    double units, ghz, simt, half, tf32, fp32, share, local, issue, local_kib, registers, memory, cache, aim, others;
} tx_card;

/* Number i; NULL behind the last. */
const tx_card *tx_card_at(int i);

typedef enum tx_operands { TX_IN_FP32, TX_IN_TF32, TX_IN_BF16, TX_OPERAND_KINDS } tx_operands;

typedef struct tx_predicted {
    double seconds, tflops;
    const char *provider, *bound; /* what takes longest */
    int64_t parts;                /* of the terms */
} tx_predicted;

/* A product of a card's fastest provider; fp32 where the card has nothing for `operands`. Without counted loops half of
 * the other units' peak is assumed, and the provider is "not counted". */
tx_predicted tx_predict_product(const tx_card *card, tx_operands operands, bool trans_a, bool trans_b, int64_t m,
                                int64_t n, int64_t k);

#endif
