/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of which parts come from strangers, who shall write no special tokens. */
#ifndef TX_TEXT_MARKS_H
#define TX_TEXT_MARKS_H

#include "models/tx_text.h"

/* A text of which parts are a frame and the others a stranger's: there no special token is found, and none of `kept`.
 */
typedef struct tx_text_part {
    size_t end; /* the part has the bytes from the end of the one before on */
    bool frame;
} tx_text_part;

typedef struct tx_marks {
    const char *text;
    const tx_text_part *part;
    size_t parts;
    const int32_t *kept;
    size_t kept_count;
} tx_marks;

/* As tx_encoder_run with special tokens, but that the marks say where these are found. The text is UTF-8. */
tx_status tx_encoder_marked(tx_encoder *encoder, const char *text, size_t size, const tx_marks *marks, tx_ids *ids);

#endif
