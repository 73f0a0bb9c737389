/* SPDX-License-Identifier: Apache-2.0
 * A library to preload: counts a program's calls that create threads and lock memory, and prints the counts at its
 * end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#define SEEN __attribute__((visibility("default")))

static atomic_int threads, locks;

/* dlsym gives an object's address, which ISO C does not turn into a function's. */
static void find(const char *name, void *function)
{
    *(void **)function = dlsym(RTLD_NEXT, name);
}

SEEN int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    find("pthread_create", &real);
    atomic_fetch_add(&threads, 1);
    return real(thread, attributes, start, argument);
}

SEEN int mlock(const void *address, size_t bytes)
{
    int (*real)(const void *, size_t);
    find("mlock", &real);
    atomic_fetch_add(&locks, 1);
    return real(address, bytes);
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "calls of pthread_create: %d\ncalls of mlock: %d\n", atomic_load(&threads), atomic_load(&locks));
}
