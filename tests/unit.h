/* SPDX-License-Identifier: Apache-2.0
 * cmocka, behind the headers that it wants before it. */
#ifndef TX_TESTS_UNIT_H
#define TX_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka gives every test a state, which few need. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
