/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts with untrusted parts, in which no special tokens are recognized. */
#ifndef TX_TOKENIZER_MARKS_H
#define TX_TOKENIZER_MARKS_H

#include "models/tx_text.h"

/* A part of a text: a trusted frame, or untrusted. In an untrusted part special tokens and the tokens of `kept` are
 * ordinary text. */
typedef struct tx_text_part {
    size_t end; /* the part begins at the end of the one before */
    bool frame;
} tx_text_part;

typedef struct tx_marks {
    const char *text;
    const tx_text_part *part;
    size_t parts;
    const int32_t *kept;
    size_t kept_count;
} tx_marks;

/* Like tx_encoder_run with `special`, except that the marks restrict special tokens. The text must be UTF-8. */
tx_status tx_encoder_marked(tx_encoder *encoder, const char *text, size_t size, const tx_marks *marks, tx_ids *ids);

#endif
