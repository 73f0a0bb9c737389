/* SPDX-License-Identifier: Apache-2.0
 * The table of cards, for the performance models of products and attention. */
#include "tools/research/predict.h"

#include <math.h>
#include <string.h>

#define COPY_SHARE 0.85 /* share of the memory rate that copies reach; 0.89 is measured on an H200 */

static const tx_card cards[] = {
#define TX_CARD(id, ...) {#id, __VA_ARGS__},
#include "tools/research/cards.def"
};

const tx_card *tx_card_at(int i)
{
    return (size_t)i < sizeof cards / sizeof cards[0] ? &cards[i] : NULL;
}

double tx_card_bytes(const tx_card *card)
{
    return 1e9 * COPY_SHARE * card->memory;
}

double tx_card_held(const tx_card *card, double lanes, double registers, double local_bytes)
{
    const double reserved = strncmp(card->target, "sm_", 3) == 0 ? 1024.0 : 0.0; /* by NVIDIA's driver for each group */
    return fmax(floor(fmin(1024.0 * card->local_kib / (local_bytes + reserved), card->registers / (lanes * registers))),
                1.0);
}
