/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of the tokens of texts: the ids, the lengths of the texts, and a trailer with their numbers, the key of the
 * texts and a digest of the file. */
#ifndef TX_DATA_TOKENS_FILE_H
#define TX_DATA_TOKENS_FILE_H

#include "models/data/tokens.h"

/* Increase it if the layout or any rule of tokenising changes. */
#define TX_TOKENS_VERSION 2

/* Opens a file. TX_NOT_FOUND if there is none, or a damaged one or one with another key, of which the user is warned.
 * Its contents are not verified if they are `trusted`: this process wrote them. */
tx_status tx_tokens_file_read(const char *path, const char *key, bool trusted, const tx_reporter *report,
                              tx_tokens *tokens);
/* Tokenises texts into a file. `*written` receives the status of writing, as opposed to reading the texts. */
tx_status tx_tokens_file_write(const tx_text_range *texts, const tx_dataset_options *options, const char *path,
                               const char *key, tx_status *written);

/* Opens part `number` of a file, which the caller closes. */
typedef struct tx_tokens_parts {
    tx_status (*open)(void *context, int64_t number, tx_tokens *tokens);
    void *context;
} tx_tokens_parts;

/* Puts the tokens of `count` parts together. The folder is created. */
tx_status tx_tokens_file_join(const char *folder, const char *path, const char *key, int64_t count,
                              const tx_tokens_parts *parts);

#endif
