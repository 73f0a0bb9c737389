/* SPDX-License-Identifier: Apache-2.0
 * A program outside TX that reads a text as training does: consumer_text TEXT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tx_text.h>

int main(int argc, char **argv)
{
    tx_tokenizer *bytes = NULL;
    tx_dataset *data = NULL;
    tx_batches *batches = NULL;
    tx_token_batch batch;
    char *text = NULL;
    size_t size;
    tx_status status = tx_tokenizer_bytes(&bytes);
    tx_dataset_options blocks = {.size = sizeof blocks, .tokenizer = bytes, .vocab = TX_BYTES_VOCAB, .block = 16};
    blocks.to = 100.0;
    blocks.threads = 1;
    if (!status)
        status = tx_dataset_open(argc == 2 ? argv[1] : "", &blocks, &data);
    if (!status)
        status =
            tx_batches_create(data, &(tx_batches_options){.size = sizeof(tx_batches_options), .rows = 4}, &batches);
    if (!status)
        status = tx_batches_next(batches, &batch);
    if (!status)
        status = tx_tokenizer_decode(bytes, batch.input_ids, 16, false, &text, &size);
    if (status)
        fprintf(stderr, "consumer_text: %s\n", tx_error());
    else
        printf("%" PRId64 " blocks, %" PRId64 " batches of %" PRId64 " labels: %s\n", tx_dataset_blocks(data),
               tx_batches_count(batches), batch.labels, text);
    free(text);
    tx_batches_free(batches);
    tx_dataset_free(data);
    tx_tokenizer_free(bytes);
    return status != 0;
}
