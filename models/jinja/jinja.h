/* SPDX-License-Identifier: Apache-2.0
 *
 * Jinja chat templates, rendered as transformers does (trim_blocks, lstrip_blocks, loop controls, the block
 * `generation`). Each byte of the result has flags that say whether the template or a message wrote it. */
#ifndef TX_JINJA_JINJA_H
#define TX_JINJA_JINJA_H

#include "models/tokenizer/buffer.h"
#include "tx_json.h"

/* A parsed template. Immutable: threads may render it at the same time. */
typedef struct tx_jinja tx_jinja;

/* Parses the text of a template. TX_FORMAT or TX_UNSUPPORTED names the line. The caller frees. */
tx_status tx_jinja_parse(const char *text, size_t size, tx_jinja **created);
void tx_jinja_free(tx_jinja *jinja); /* NULL is fine */
/* True if the template marks the model's own text by blocks `generation`. */
bool tx_jinja_marks_generation(const tx_jinja *jinja);

/* Flags of a byte of the rendered text. */
#define TX_JINJA_SAID 1u       /* from a message, a tool or a document; otherwise from the template */
#define TX_JINJA_GENERATION 2u /* inside a block `generation` */

/* The bytes that the body of a loop over the messages wrote for one of them. */
typedef struct tx_jinja_turn {
    size_t message, begin, end;
} tx_jinja_turn;

/* Begin with {0}. */
typedef struct tx_jinja_text {
    tx_buffer bytes, flags; /* as many flags as bytes */
    tx_jinja_turn *turn;    /* in the order of the text, without empty turns */
    size_t turns, room;
} tx_jinja_text;

void tx_jinja_text_free(tx_jinja_text *text); /* sets it to {0} */

/* Renders the template with the members of two objects as its variables, and replaces the contents of `text`. Texts in
 * `said` (messages, tools, documents) are untrusted; texts in `given` (bos_token, ...) count as the template's.
 * TX_FORMAT if the template raises an exception, whose text is the message, or does not fit the values. TX_UNSUPPORTED
 * if it exceeds the limits of steps, memory or depth. */
tx_status tx_jinja_render(const tx_jinja *jinja, const tx_json *said, const tx_json *given, tx_jinja_text *text);

#endif
