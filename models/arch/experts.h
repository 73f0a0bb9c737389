/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture-of-experts layers (Shazeer et al., Outrageously large neural networks, 2017), as in Hugging Face's Mixtral
 * and Qwen-MoE: a router sends each token to its top-k experts. Also the routers' losses. All experts of a layer are
 * one parameter [experts, out, in]. */
#ifndef TX_MODELS_EXPERTS_H
#define TX_MODELS_EXPERTS_H

#include "models/arch/stack.h"

#define TX_EXPERT_GROUPS 64 /* limit of tx_expert_choice */

typedef struct tx_experts {
    int64_t count, chosen;                        /* number of experts, and of experts per token (k) */
    bool normalise;                               /* the k weights of a token are scaled to sum 1 */
    bool sigmoid;                                 /* scores are the sigmoid of the router's logits, not their softmax */
    int32_t groups, kept, best;                   /* as in tx_expert_choice */
    float least, scale;                           /* its eps, and its scale; 0 means a scale of 1 */
    float mixer;                                  /* above 0: SparseMixer with this jitter (experts.c) */
    tx_tensor *scored;                            /* the router's input [B, T, C], if it is not that of the experts */
    int32_t factors;                              /* slot of factors of the experts' weights [E], or one without any */
    bool gelu;                                    /* gates pass through the tanh form of GELU, not SiLU */
    int32_t choice_bias;                          /* slot of its bias [E], which a model may lack */
    bool balance;                                 /* collect the layer's figures for the load-balancing loss */
    int32_t router, gate_up, down;                /* slots of the parameters [E, C], [E, 2 F, C] and [E, C, F] */
    int32_t router_bias, gate_up_bias, down_bias; /* slots of [E], [E, 2 F] and [E, C], which a model may lack */
    bool scales_inputs; /* the weights of a token's experts scale their inputs, not their results */
    bool inputs_first;  /* matrices are [E, C, 2 F] and [E, F, C] */
    bool squares;       /* no gates: the matrix is [E, F, C], and the activation the square of ReLU */
    /* As in tx_swiglu_clamped. With a limit above 0, gates and ups alternate. */
    float alpha, limit;
} tx_experts;

/* x [B, T, C] -> [B, T, C]. Ties between scores go to the expert with the lower index. NULL on error. */
tx_tensor *tx_stack_experts(tx_stack *stack, tx_tensor *x, const tx_experts *experts);
/* Sets options->own_loss after all layers are built. The load-balancing loss is `balance` * E * (sum over experts of
 * f * P), where f is the expert's fraction of choices per token and P its mean probability, both over all layers
 * (transformers' load_balancing_loss_func). Balanced routing gives E * sum = k. The z-loss adds options->z_loss
 * times the mean square of log-sum-exp of the router logits. Padding tokens, whose ids are negative, choose no expert
 * and count in no mean. */
void tx_stack_router_loss(tx_stack *stack, const tx_experts *experts, double balance);

#endif
