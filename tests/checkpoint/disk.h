/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk in the mind: replays the log of fault_shim.c and works out what a loss of power may leave. Data last once
 * their file has been flushed, names once their folder has been; everything else may be there or not. */
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

/* False where the log cannot be read. */
bool disk_log_read(const char *path, disk_log *log);
void disk_log_free(disk_log *log);

typedef struct disk disk;

disk *disk_create(void);
void disk_free(disk *d);
/* False where the event does not fit the disk: the shim or the model is wrong. */
bool disk_apply(disk *d, const disk_event *event);
/* Changes of names that have not been flushed. */
size_t disk_pending(const disk *d);

typedef enum disk_data {
    DISK_FLUSHED, /* files hold what was flushed, others are empty */
    DISK_ALL,     /* files hold all that was written */
    DISK_TORN     /* files hold a part of it, zeros for the rest, or what was flushed */
} disk_data;

/* What the loss of power leaves: the first `kept` of the changes of names, or each by the toss of a coin (`seed` not
 * 0); and of the data. */
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
