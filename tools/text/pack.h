/* SPDX-License-Identifier: Apache-2.0
 *
 * `txtok pack`: tokenises a corpus into the cache that training reads. */
#ifndef TX_TOOLS_TEXT_PACK_H
#define TX_TOOLS_TEXT_PACK_H

#include "models/report.h"
#include "tx_text.h"

typedef struct tx_pack {
    const tx_tokenizer *tokenizer;
    const char *text_column, *delimiter; /* see tx_prepare_options */
    bool bare_lines;                     /* see tx_dataset_options */
    int64_t skip_bad, part, threads;     /* the same; 0 threads for one on each core */
    tx_reporter report;
} tx_pack;

/* Tokenises the files, which may be patterns, as one corpus. Sets `*tokens` to the number of tokens. */
tx_status tx_pack_files(const tx_pack *pack, const char *const *files, int32_t count, int64_t *tokens);

#endif
