/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of fuzz targets. A target passes arbitrary bytes to one parser of untrusted input. The parser must return an
 * error that names the file, or a result that keeps its promises. README.md describes how to run them. */
#ifndef TX_TESTS_FUZZ_H
#define TX_TESTS_FUZZ_H

#include "tx.h"

/* The entry point of a target, by libFuzzer's name: called once an input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process if a promise is broken, so that the fuzzer keeps the input. */
#define FUZZ_CHECK(holds)                               \
    do {                                                \
        if (!(holds))                                   \
            tx_fuzz_broken(__FILE__, __LINE__, #holds); \
    } while (0)
_Noreturn void tx_fuzz_broken(const char *file, int line, const char *promise);

/* Whether `status` is a refusal, which must be one of the statuses for bad input, with a message that holds `name`. */
bool tx_fuzz_refused(tx_status status, const char *name);

/* A folder in memory that belongs to this process and goes when it ends. */
const char *tx_fuzz_folder(void);
/* The path of a file there, valid until the process ends; `name` is plain. At most 16 different names. */
const char *tx_fuzz_path(const char *name);
/* Writes the file again. */
void tx_fuzz_put(const char *name, const void *data, size_t size);
/* Removes the file if it exists. */
void tx_fuzz_remove(const char *name);

#endif
