/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of tests of files: the path of the test data, a scratch folder that is removed again, and a random number
 * generator with the same numbers everywhere. Includes unit.h, dirent.h and unistd.h. */
#ifndef TX_TESTS_SCRATCH_H
#define TX_TESTS_SCRATCH_H

#include "api/base/file.h"
#include "models/files/folder.h"
#include "tests/unit.h"
#include "tx.h"

#include <dirent.h>
#include <unistd.h>

/* Asserts success and shows the message of a failure. */
#define assert_ok(call)                            \
    do {                                           \
        tx_status status_ = (call);                \
        if (status_)                               \
            fail_msg("%s: %s", #call, tx_error()); \
    } while (0)

/* Asserts a failure with that status and a message that contains the text. */
#define assert_refused(call, wanted, text)                                           \
    do {                                                                             \
        tx_status status_ = (call);                                                  \
        if (status_ != (wanted) || !strstr(tx_error(), text))                        \
            fail_msg("%s: status %d, message: %s", #call, (int)status_, tx_error()); \
    } while (0)

/* Returns the path of a file of the test data, allocated. If the file is missing, it says so and skips the test. */
static inline char *test_data(const char *name)
{
    const char *folders[] = {getenv("TX_TEST_DATA"), "../shared/data", TX_SOURCE_DIR "/../shared/data",
                             TX_SOURCE_DIR "/../../shared/data"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char *path = folders[i] ? tx_path_join(folders[i], name) : NULL;
        if (path && tx_file_exists(path))
            return path;
        free(path);
    }
    print_message("no test data (%s): set TX_TEST_DATA; skipped\n", name);
    skip();
    return NULL;
}

/* A fresh folder; remove_scratch() empties and frees it. */
static inline char *make_scratch(void)
{
    const char *where = getenv("TMPDIR");
    char *folder = tx_path_join(where ? where : "/tmp", "tx-test-XXXXXX");
    assert_non_null(folder);
    assert_non_null(mkdtemp(folder));
    return folder;
}

static inline void remove_scratch(char *folder)
{
    DIR *list = opendir(folder);
    for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *path = tx_path_join(folder, e->d_name);
        if (unlink(path) == 0)
            free(path);
        else
            remove_scratch(path);
    }
    if (list)
        closedir(list);
    rmdir(folder);
    free(folder);
}

/* Setup and teardown functions for cmocka, for tests that share a new folder as their state. */
static inline int open_scratch(void **state)
{
    *state = make_scratch();
    return 0;
}

static inline int close_scratch(void **state)
{
    remove_scratch(*state);
    return 0;
}

/* Number of entries of a folder, "." and ".." left out. */
static inline int count_entries(const char *folder)
{
    int count = -2;
    DIR *list = opendir(folder);
    assert_non_null(list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

/* xorshift64* (Vigna, 2016). */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* Changes, removes, repeats or inserts bytes at 1 to 4 places. `text` has room for twice `size` bytes; returns the new
 * size. */
static inline size_t mutate(char *text, size_t size, uint64_t *random)
{
    static const char likely[] = "{}[]\",:0123456789-+.eE\\/ \n\ttruefalsnAB\x80\xff";
    for (uint64_t places = 1 + next_random(random) % 4; places > 0 && size > 1; places--) {
        size_t at = next_random(random) % size, length = 1 + next_random(random) % 8;
        if (length > size - at)
            length = size - at;
        switch (next_random(random) % 4) {
        case 0:
            text[at] = likely[next_random(random) % (sizeof likely - 1)];
            break;
        case 1:
            text[at] = (char)next_random(random);
            break;
        case 2:
            memmove(text + at, text + at + length, size - at - length);
            size -= length;
            break;
        default:
            memmove(text + at + length, text + at, size - at);
            size += length;
        }
    }
    return size;
}

#endif
