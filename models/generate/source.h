/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources of a decoder that attends to an encoder: a plan reads the source of a slot into caches, and a step of the
 * decoder has inputs that mask them. */
#ifndef TX_GENERATE_SOURCE_H
#define TX_GENERATE_SOURCE_H

#include "models/generate/slots.h"
#include "models/lora/lora.h"

typedef struct tx_source tx_source;

/* For `slots` texts of at most `context` tokens each, of which `beams` share a source, which has as many. */
tx_status tx_source_create(tx_model *model, const tx_config *config, int64_t slots, int64_t beams, int64_t context,
                           tx_source **source);
void tx_source_free(tx_source *source); /* NULL is fine */
/* Reads the source of the beams from this slot on: 1 to context valid ids. Sets `*begin` to the token with which its
 * text begins. */
tx_status tx_source_read(tx_source *source, int64_t slot, const tx_prompt *prompt, int32_t *begin);
/* Adds the inputs of a step to its graph. Without a source (NULL) this and the next function do nothing. */
void tx_source_inputs(tx_source *source, tx_graph *graph);
/* Writes them for a token of each slot at these positions. */
tx_status tx_source_write(tx_source *source, tx_plan *plan, const int32_t *positions);

#endif
