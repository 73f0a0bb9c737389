/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes a batch of sequences with KV caches. A prefill plan computes prompts of any length in chunks. A decode plan
 * then computes one token for each row per step. Each row has its own position. */
#ifndef TX_GENERATE_DECODE_H
#define TX_GENERATE_DECODE_H

#include "models/arch/arch.h"

/* Ids of one sequence. */
typedef struct tx_prompt {
    const int32_t *ids;
    int64_t count;
} tx_prompt;

typedef struct tx_decoder tx_decoder;

/* Creates a decoder for `rows` sequences of at most `context` tokens. `prompt` is the usual length of a prompt. With
 * `beams` a row may continue another row's cache. Building the graphs declares the parameters, so create it before the
 * weights are loaded, and free it before the model. */
tx_status tx_decoder_create(tx_model *model, const tx_config *config, int64_t rows, int64_t prompt, int64_t context,
                            bool beams, tx_decoder **decoder);
void tx_decoder_free(tx_decoder *decoder);

/* Starts new sequences: row r gets prompts[r]. Ids are checked. With `keep` the longest prefix that all prompts share
 * with their rows' caches is not computed again. The logits then equal those of whole prompts except for rounding. Not
 * with beams, which exchange caches. */
tx_status tx_decoder_start(tx_decoder *decoder, const tx_prompt *prompts, bool keep);
/* Appends tokens[r] to row r, unless it is -1. With `sources` (beams), row r continues the sequence of row sources[r].
 */
tx_status tx_decoder_step(tx_decoder *decoder, const int32_t *tokens, const int32_t *sources);
/* Logits [vocab_size] for the token after the last one of a row. They live until the next call. */
const float *tx_decoder_logits(const tx_decoder *decoder, int64_t row);
int64_t tx_decoder_vocab(const tx_decoder *decoder);

/* Fails if an id is outside the vocabulary. */
tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab);

#endif
