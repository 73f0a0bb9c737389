/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the data of tests: the folder in TX_TEST_DATA, by default ../shared/data next to the source tree. */
#ifndef TX_TESTS_DATA_H
#define TX_TESTS_DATA_H

#include "tests/skip.h"

#include <unistd.h>

/* Writes the path of `name` in the data folder. If the file is missing, it says so and ends the test as skipped. */
static inline const char *tx_test_data(const char *name, char *path, size_t size)
{
    const char *folder = getenv("TX_TEST_DATA");
    snprintf(path, size, "%s/%s", folder ? folder : TX_SOURCE_DIR "/../shared/data", name);
    if (access(path, R_OK)) {
        printf("skipped: %s is not there (set TX_TEST_DATA to the folder of test data)\n", path);
        exit(TX_TEST_SKIPPED);
    }
    return path;
}

#endif
