/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that the linker sends to a test (--wrap). */
#ifndef TX_TESTS_WRAP_H
#define TX_TESTS_WRAP_H

#include <stddef.h>

/* Defines a function that TX calls instead of `name`. It does `first`, which may return, and then calls `name`. */
#define WRAP(type, name, parameters, arguments, first) \
    type __real_##name parameters;                     \
    type __wrap_##name parameters;                     \
    type __wrap_##name parameters                      \
    {                                                  \
        first;                                         \
        return __real_##name arguments;                \
    }

/* The allocator's functions. */
#define WRAP_MALLOC(first) WRAP(void *, malloc, (size_t size), (size), first)
#define WRAP_CALLOC(first) WRAP(void *, calloc, (size_t number, size_t size), (number, size), first)
#define WRAP_REALLOC(first) WRAP(void *, realloc, (void *memory, size_t size), (memory, size), first)
#define WRAP_POSIX_MEMALIGN(first) \
    WRAP(int, posix_memalign, (void **memory, size_t alignment, size_t size), (memory, alignment, size), first)

#endif
