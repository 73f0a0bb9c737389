/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a .jsonl file of texts, read whole, with bad lines left out, or in part: which of them the size tells.
 */
#include "tests/fuzz/dataset.h"

#define NAME "fuzz.jsonl"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static tx_tokenizer *bytes;
    FUZZ_CHECK(bytes || !tx_tokenizer_bytes(&bytes));
    tx_fuzz_put(NAME, data, size);
    tx_dataset_options options = {.tokenizer = bytes, .to = 100};
    if (size % 3 == 1) {
        options.skip_bad = 3;
        options.group = 2;
    } else if (size % 3 == 2) {
        options.from = 10;
        options.to = 55;
        options.most_blocks = 3;
    }
    tx_fuzz_dataset(NAME, options);
    return 0;
}
