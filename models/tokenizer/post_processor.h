/* SPDX-License-Identifier: Apache-2.0
 *
 * Post-processors, the member "post_processor" of tokenizer.json: they add special tokens around texts. */
#ifndef TX_TOKENIZER_POST_PROCESSOR_H
#define TX_TOKENIZER_POST_PROCESSOR_H

#include "tx_json.h"

#define TX_TEMPLATE_FIRST (-1)
#define TX_TEMPLATE_SECOND (-2)

typedef struct tx_template_item {
    int32_t id; /* of a token, or one of the two above for a text */
    int32_t type;
} tx_template_item;

typedef struct tx_template {
    tx_template_item *item;
    size_t count, room;
} tx_template;

/* The templates for one text, and for two. */
typedef struct tx_post_processor {
    tx_template of[2];
    bool given; /* the file has a template; otherwise nothing is added */
} tx_post_processor;

/* `json` may be NULL. */
tx_status tx_post_processor_read(tx_post_processor *post, const tx_json *json);
/* Makes an empty post-processor that of RoBERTa: `cls` A `sep` for one text, `cls` A `sep` `sep` B `sep` for two. */
tx_status tx_post_processor_roberta(tx_post_processor *post, int32_t cls, int32_t sep);
void tx_post_processor_free(tx_post_processor *post);
/* Completes a post-processor without templates, and checks that all ids are less than `vocab`. */
tx_status tx_post_processor_seal(tx_post_processor *post, int32_t vocab);

#endif
