/* SPDX-License-Identifier: Apache-2.0
 *
 * Post-processors, tokenizer.json's part of that name: which special tokens a model is given around texts. */
#ifndef TX_TEXT_POST_PROCESSOR_H
#define TX_TEXT_POST_PROCESSOR_H

#include "tx_json.h"

#define TX_TEMPLATE_FIRST (-1)
#define TX_TEMPLATE_SECOND (-2)

typedef struct tx_template_item {
    int32_t id; /* of a token, or one of the two above: a text */
    int32_t type;
} tx_template_item;

typedef struct tx_template {
    tx_template_item *item;
    size_t count, room;
} tx_template;

/* What becomes of one text, and of two. */
typedef struct tx_post_processor {
    tx_template of[2];
    bool given; /* by the file; otherwise nothing is added */
} tx_post_processor;

/* `json` may be NULL. */
tx_status tx_post_processor_read(tx_post_processor *post, const tx_json *json);
/* RoBERTa's, of a post-processor that is empty: one text is `cls` A `sep`, two are `cls` A `sep` `sep` B `sep`. */
tx_status tx_post_processor_roberta(tx_post_processor *post, int32_t cls, int32_t sep);
void tx_post_processor_free(tx_post_processor *post);
/* Gives a post-processor that the file does not give what it does without one; checks that `vocab` ids suffice. */
tx_status tx_post_processor_seal(tx_post_processor *post, int32_t vocab);

#endif
