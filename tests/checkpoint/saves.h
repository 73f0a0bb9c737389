/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of tests that use the interface of checkpoints: saves of a version, damage to them, and captured messages. */
#ifndef TX_TESTS_SAVES_H
#define TX_TESTS_SAVES_H

#include "tests/checkpoint/states.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <sys/stat.h>

/* All messages so far, one a line. */
static char told[4096];

static inline void listen(void *context, const char *message)
{
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s\n", message);
}

static const tx_reporter report = {.warn = listen};

static inline void save(const char *output, int64_t step, int version)
{
    assert_ok(state_save(output, step, version, NULL));
}

/* "folder/name" in one of a few buffers; `folder` may be one of the others. */
static inline const char *at(const char *folder, const char *name)
{
    static char text[6][1200];
    static int next;
    char path[sizeof text[0]], *out = text[next++ % 6];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(length > 0 && length < (int)sizeof path);
    return memcpy(out, path, (size_t)length + 1);
}

static inline void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* The version that the newest checkpoint holds. */
static inline int newest(const char *output)
{
    char *folder = NULL;
    told[0] = '\0';
    assert_ok(tx_checkpoint_newest(output, &report, &folder));
    const int version = state_read(folder);
    free(folder);
    return version;
}

/* Damage: a byte is another one, the end is missing. */

static inline void flip(const char *folder)
{
    const char *path = at(folder, "model.safetensors");
    int file = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(file, &byte, 1, 500), 1);
    byte ^= 4;
    assert_int_equal(pwrite(file, &byte, 1, 500), 1);
    assert_int_equal(close(file), 0);
}

static inline void cut(const char *folder)
{
    assert_int_equal(truncate(at(folder, "model.safetensors"), 700), 0);
}

#endif
