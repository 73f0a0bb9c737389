/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of tests that cannot run on this machine. */
#ifndef TX_TESTS_SKIP_H
#define TX_TESTS_SKIP_H

#include "tx.h"

#include <stdio.h>
#include <stdlib.h>

/* The exit status that ctest counts as skipped. */
#define TX_TEST_SKIPPED 77

/* Ends the test as skipped if no device has this name. Returns the name. */
static inline const char *tx_test_device(const char *device)
{
    int32_t index;
    if (tx_device_find(device, &index)) {
        printf("skipped: %s\n", tx_error());
        exit(TX_TEST_SKIPPED);
    }
    return device;
}

#endif
