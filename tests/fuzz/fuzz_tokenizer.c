/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: tokenizer.json. An accepted tokenizer encodes any bytes, and adds nothing but blanks. */
#include "tests/fuzz/tokenizer.h"

#define NAME "tokenizer.json"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_fuzz_put(NAME, data, size);
    tx_fuzz_tokenizer(tx_fuzz_path(NAME), NAME);
    return 0;
}
