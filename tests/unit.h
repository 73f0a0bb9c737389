/* SPDX-License-Identifier: Apache-2.0
 * cmocka, after the headers that it needs, and the C library's headers that most tests use. */
#ifndef TX_TESTS_UNIT_H
#define TX_TESTS_UNIT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka gives every test a state, which few need. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
