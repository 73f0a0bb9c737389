/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of sequences through the model, with key-value caches: prompts of any length in chunks of one prefill plan,
 * then a token a row and step by the decode plan. Each row stands at its own position. */
#ifndef TX_GENERATE_DECODE_H
#define TX_GENERATE_DECODE_H

#include "models/arch/arch.h"

/* Ids of one sequence. */
typedef struct tx_prompt {
    const int32_t *ids;
    int64_t count;
} tx_prompt;

typedef struct tx_decoder tx_decoder;

/* `rows` sequences of at most `context` tokens, `prompt` being the usual length of a prompt; with `beams` a row may go
 * on with the cache of another. The graphs declare the parameters: create it before the weights are loaded, free it
 * before the model. */
tx_status tx_decoder_create(tx_model *model, const tx_config *config, int64_t rows, int64_t prompt, int64_t context,
                            bool beams, tx_decoder **decoder);
void tx_decoder_free(tx_decoder *decoder);

/* Starts anew: row r takes prompts[r]. Ids are checked. With `keep` what all rows' caches hold of the beginnings of
 * their prompts, from the start before and the steps since, is not computed again: the scores are then those of the
 * whole prompts but for rounding. Not with beams, which exchange caches. */
tx_status tx_decoder_start(tx_decoder *decoder, const tx_prompt *prompts, bool keep);
/* Appends tokens[r] to row r, unless that is -1. With sources (beams), row r goes on where row sources[r] was. */
tx_status tx_decoder_step(tx_decoder *decoder, const int32_t *tokens, const int32_t *sources);
/* Scores [vocab_size] of what follows the last token of a row; they live until the next call. */
const float *tx_decoder_logits(const tx_decoder *decoder, int64_t row);
int64_t tx_decoder_vocab(const tx_decoder *decoder);

/* Refuses ids outside the vocabulary. */
tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab);

#endif
