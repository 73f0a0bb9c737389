/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a file, as compact as their vocabulary allows: between the readers of files and the dataset. */
#ifndef TX_TEXT_TOKENS_H
#define TX_TEXT_TOKENS_H

#include "models/files/digest.h"
#include "models/files/view.h"
#include "models/text/dataset.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files are little-endian, and are used as they are: this machine is not"
#endif

typedef struct tx_tokens {
    const void *ids; /* uint16_t or uint32_t */
    int32_t width;   /* 2 or 4 */
    int64_t count;
    const uint32_t *lengths; /* tokens of each text; NULL: the file has no texts */
    int64_t texts;
    int64_t bad, first_bad; /* malformed lines left out, and the number of the first */
    int64_t header;         /* bytes before the tokens, where the file holds tokens */
    void *own_ids;          /* freed with the tokens, as is what follows */
    uint32_t *own_lengths;
    tx_view view;
} tx_tokens;

/* Leaves {0}. */
void tx_tokens_free(tx_tokens *tokens);

static inline uint32_t tx_tokens_at(const tx_tokens *tokens, int64_t index)
{
    return tokens->width == 2 ? ((const uint16_t *)tokens->ids)[index] : ((const uint32_t *)tokens->ids)[index];
}

/* A .bin file. Takes the view over when it succeeds. */
tx_status tx_tokens_of_bin(const char *path, tx_view *view, tx_tokens *tokens);

/* What a file of texts is split into. */
typedef enum tx_text_form { TX_TEXT_LINES, TX_TEXT_JSONL } tx_text_form;

/* Tokenises with options' tokenizer and threads. */
tx_status tx_tokens_of_text(const char *path, const tx_view *view, tx_text_form form, const tx_dataset_options *options,
                            tx_tokens *tokens);

/* The tokens of a text from the folder options->cache, or tokenised and kept there. */
tx_status tx_tokens_cached(const char *path, const tx_view *view, tx_text_form form, const tx_dataset_options *options,
                           tx_tokens *tokens);

#endif
