/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of a disk: replays the log of fault_shim.c and computes the states that a loss of power may leave. Data
 * persist once their file is flushed, names once their folder is flushed; anything else may be lost. */
#ifndef TX_TESTS_DISK_H
#define TX_TESTS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct disk_event {
    char what; /* as fault_shim.c writes them; 'X' is a line of the program's output, 'E' a close that failed */
    long call, a, b;
    char *data; /* NUL-terminated */
    size_t size;
} disk_event;

typedef struct disk_log {
    disk_event *event;
    size_t count;
} disk_log;

/* Returns false if the log cannot be read. */
bool disk_log_read(const char *path, disk_log *log);
void disk_log_free(disk_log *log);

typedef struct disk disk;

disk *disk_create(void);
void disk_free(disk *d);
/* Returns false if the event contradicts the state of the disk: then the shim or the model is wrong. */
bool disk_apply(disk *d, const disk_event *event);
/* Returns the number of changes of names that are not flushed. */
size_t disk_pending(const disk *d);

typedef enum disk_data {
    DISK_FLUSHED, /* files hold their flushed data, others are empty */
    DISK_ALL,     /* files hold all written data */
    DISK_TORN     /* files hold a part of the written data followed by zeros, or their flushed data */
} disk_data;

/* A state after a loss of power. With seed 0 the first `kept` changes of names persist, otherwise a random subset.
 * `data` selects the state of the files' data. */
typedef struct disk_crash {
    size_t kept;
    uint64_t seed;
    disk_data data;
} disk_crash;

/* Writes that state into the empty folder `path`. */
bool disk_build(const disk *d, const disk_crash *crash, const char *path);
/* A number that is the same for the same state. */
uint64_t disk_hash(const disk *d, const disk_crash *crash);

#endif
