/* SPDX-License-Identifier: Apache-2.0
 *
 * Where tests find their data: the folder in TX_TEST_DATA, else ../shared/data beside the source tree. */
#ifndef TX_TESTS_DATA_H
#define TX_TESTS_DATA_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What ctest takes for "skipped". */
#define TX_TEST_SKIPPED 77

/* Writes the path of `name` in the data folder; ends the test as skipped, saying so, where it is absent. */
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
