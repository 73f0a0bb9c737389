/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: a .bin file of tokens, read whole and in part. */
#include "tests/fuzz/dataset.h"

#define NAME "fuzz.bin"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_fuzz_put(NAME, data, size);
    tx_fuzz_dataset(NAME, (tx_dataset_options){.to = 100});
    tx_fuzz_dataset(NAME, (tx_dataset_options){.from = 10, .to = 55, .most_blocks = 3});
    return 0;
}
