/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference with a GPT-2: logits of a sequence, and generation by a prefill and a decode plan that share key-value
 * caches. Both are created before the weights are loaded, since building the graphs declares the parameters. */
#ifndef TX_GENERATE_GENERATE_H
#define TX_GENERATE_GENERATE_H

#include "models/gpt2.h"

/* ---- Logits of a sequence ------------------------------------------------------------------------ */

typedef struct tx_forward tx_forward;

/* Compiles the forward pass over one sequence of `count` tokens. The caller frees it before the model. */
tx_status tx_forward_create(tx_model *model, const tx_gpt2_config *config, int64_t count, tx_forward **forward);
void tx_forward_free(tx_forward *forward);
/* logits [count, vocab_size], without padding. Ids outside the vocabulary are refused. */
tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits);

/* ---- Generation ------------------------------------------------------------------------------------ */

typedef struct tx_sampling {
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* draw among the k likeliest, and those that equal the k-th; 0: among all */
    uint64_t seed;      /* the same seed, prompt and options give the same text */
} tx_sampling;

typedef struct tx_generator tx_generator;

/* Compiles for prompts of at most `prompt` tokens and `context` tokens in all, which must not pass the model's
 * positions. The caller frees it before the model. */
tx_status tx_generator_create(tx_model *model, const tx_gpt2_config *config, int64_t prompt, int64_t context,
                              tx_generator **generator);
void tx_generator_free(tx_generator *generator);

/* Takes each new token; false ends the generation. */
typedef bool tx_emit(void *context, int32_t id);

/* Continues `ids` by at most `most` tokens; ends early at the model's eos_token_id (which is emitted). */
tx_status tx_generator_run(tx_generator *generator, const int32_t *ids, int64_t count, int64_t most,
                           const tx_sampling *sampling, tx_emit *emit, void *context);

/* Draws a token from logits [vocab]; `place` numbers the draws of one text. Exposed for its test. */
tx_status tx_sample(const float *logits, int64_t vocab, const tx_sampling *sampling, uint64_t place, float *scratch,
                    int32_t *id);

#endif
