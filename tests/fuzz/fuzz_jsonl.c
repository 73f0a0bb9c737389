/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a .jsonl file of texts, read whole, with bad lines left out, and in part. */
#include "tests/fuzz/dataset.h"

#define NAME "fuzz.jsonl"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tx_tokenizer *bytes;
    FUZZ_CHECK(bytes || !tx_tokenizer_bytes(&bytes));
    tx_fuzz_put(NAME, data, size);
    tx_fuzz_dataset(NAME, (tx_dataset_options){.tokenizer = bytes, .to = 100});
    tx_fuzz_dataset(NAME, (tx_dataset_options){.tokenizer = bytes, .to = 100, .skip_bad = 3, .group = 2});
    tx_fuzz_dataset(NAME, (tx_dataset_options){.tokenizer = bytes, .from = 10, .to = 55, .most_blocks = 3});
    return 0;
}
