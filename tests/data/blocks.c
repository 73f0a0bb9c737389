/* SPDX-License-Identifier: Apache-2.0
 * Prints the blocks of a file, one a line, for the comparison with Hugging Face's datasets:
 *
 *     blocks TOKENIZER FILE BLOCK GROUP FROM TO THREADS */
#include "models/tx_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static tx_status print_blocks(const tx_dataset *dataset)
{
    int64_t block = tx_dataset_block(dataset);
    int32_t *tokens = calloc((size_t)block, sizeof *tokens);
    tx_status status = tokens ? TX_OK : tx_fail(TX_MEMORY, "no memory for a block");
    for (int64_t b = 0; b < tx_dataset_blocks(dataset) && !status; b++) {
        status = tx_dataset_read(dataset, b, tokens);
        for (int64_t t = 0; t < block && !status; t++)
            printf("%s%" PRId32, t ? " " : "", tokens[t]);
        printf("\n");
    }
    free(tokens);
    return status;
}

int main(int argc, char **argv)
{
    tx_tokenizer *tokenizer = NULL;
    tx_dataset *dataset = NULL;
    if (argc != 8)
        return 2;
    tx_status status = tx_tokenizer_open(argv[1], &tokenizer);
    tx_dataset_options options = {
        .size = sizeof options,
        .tokenizer = tokenizer,
        .vocab = INT32_MAX,
        .block = strtoll(argv[3], NULL, 10),
        .group = strtoll(argv[4], NULL, 10),
        .from = strtod(argv[5], NULL),
        .to = strtod(argv[6], NULL),
        .threads = (int32_t)strtol(argv[7], NULL, 10),
    };
    TX_THEN(status, tx_dataset_open(argv[2], &options, &dataset));
    TX_THEN(status, print_blocks(dataset));
    if (status)
        fprintf(stderr, "blocks: %s\n", tx_error());
    tx_dataset_free(dataset);
    tx_tokenizer_free(tokenizer);
    return status != TX_OK;
}
