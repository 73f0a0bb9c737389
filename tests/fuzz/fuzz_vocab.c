/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: vocab.json, a NUL, merges.txt, and optionally another NUL and tokenizer_config.json. An accepted
 * tokenizer encodes any bytes, and adds nothing but blanks. */
#include "tests/fuzz/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    tx_fuzz_remove(names[2]);
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
        size_t length = end && i < 2 ? (size_t)(end - data) : size;
        tx_fuzz_put(names[i], data, length);
        if (i > 0 && !end)
            break;
        size_t used = length + (length < size);
        data += used;
        size -= used;
    }
    tx_fuzz_tokenizer(tx_fuzz_path(names[0]), tx_fuzz_folder());
    return 0;
}
