/* SPDX-License-Identifier: Apache-2.0
 * Runs a fuzz target over files, as they are, cut off at many places, and mutated.
 *
 *   PROGRAM FILE... */
#include "tests/scratch.h"
#include "tests/topology/fuzz.h"

int main(int argc, char **argv)
{
    uint64_t random = 1;
    for (int i = 1; i < argc; i++) {
        char *text = NULL;
        size_t size = 0;
        if (tx_file_read(argv[i], 1 << 20, &text, &size)) {
            fprintf(stderr, "%s\n", tx_error());
            return 1;
        }
        char *copy = malloc(size * 2 + 64);
        if (!copy)
            return 1;
        LLVMFuzzerTestOneInput((const uint8_t *)text, size);
        for (size_t cut = 0; cut < size; cut += 1 + size / 200)
            LLVMFuzzerTestOneInput((const uint8_t *)text, cut);
        for (int k = 0; k < 500; k++) {
            memcpy(copy, text, size);
            size_t length = mutate(copy, size, &random);
            LLVMFuzzerTestOneInput((const uint8_t *)copy, length);
        }
        free(copy);
        free(text);
    }
    return 0;
}
