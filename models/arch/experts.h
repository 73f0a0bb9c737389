/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of experts (Shazeer et al., Outrageously large neural networks, 2017), of which a router gives each token the
 * few that it scores highest, as Hugging Face's Mixtral and Qwen-MoE have them; and the losses of routers. All experts
 * of a layer are one parameter [experts, out, in]. */
#ifndef TX_MODELS_EXPERTS_H
#define TX_MODELS_EXPERTS_H

#include "models/arch/stack.h"

typedef struct tx_experts {
    int64_t count, chosen;         /* experts, and of these a token's */
    bool normalise;                /* a token's weights are made to sum up to 1 */
    bool balance;                  /* the layer's part in the loss that balances experts is noted */
    int32_t router, gate_up, down; /* slots of the parameters [E, C], [E, 2 F, C] and [E, C, F] */
} tx_experts;

/* x [B, T, C] -> [B, T, C]. Of equal scores the expert of the lower number is taken. NULL on error. */
tx_tensor *tx_stack_experts(tx_stack *stack, tx_tensor *x, const tx_experts *experts);
/* What options->own_loss receives once all layers are there: `balance` times E times the sum over experts of the share
 * of the choices and tokens f and the mean probability P, f and P over all layers (transformers'
 * load_balancing_loss_func; even routes give the number of a token's experts), plus options->z_loss times the mean
 * square of log-sum-exp. Tokens whose id is below 0 are padding: they choose no expert and count in no mean. */
void tx_stack_router_loss(tx_stack *stack, const tx_experts *experts, double balance);

#endif
