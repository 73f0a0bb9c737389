/* SPDX-License-Identifier: Apache-2.0
 *
 * Perplexity of a text longer than the model's context, by windows that overlap, as Hugging Face's guide "Perplexity of
 * fixed-length models" computes it: window i holds max_length tokens from i * stride on; of each only the tokens that
 * no earlier window held are scored. As in the guide, the mean loss of a window weighs by the number of those tokens
 * less one, and the perplexity is exp of the mean. */
#ifndef TX_GENERATE_PERPLEXITY_H
#define TX_GENERATE_PERPLEXITY_H

#include "models/arch/arch.h"
#include "models/tx_generate.h"

typedef struct tx_perplexity tx_perplexity;

/* Create it before the weights are loaded, free it before the model. */
tx_status tx_perplexity_create(tx_model *model, const tx_config *config, const tx_perplexity_options *options,
                               tx_perplexity **perplexity);
void tx_perplexity_free(tx_perplexity *perplexity);
/* Of `count` ids, at least 2. */
tx_status tx_perplexity_run(tx_perplexity *perplexity, const int32_t *ids, int64_t count, tx_perplexity_result *result);

#endif
