/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects of a JSON file: one on each line, or the elements of one array. Tasks read their samples from them. */
#ifndef TX_TASK_OBJECTS_H
#define TX_TASK_OBJECTS_H

#include "models/files/data_file.h"
#include "models/task/task.h"
#include "models/text/buffer.h"

/* Lines are read from the file on demand. Begin with {0}. */
typedef struct tx_objects {
    tx_data_file file;
    tx_json *array; /* NULL if the objects are lines */
    int64_t *line;  /* the first byte of each object's line */
    int64_t end;    /* of the last line */
    size_t count, room;
    tx_buffer text;   /* of the line that was read */
    int64_t bad;      /* number of skipped objects */
    size_t first_bad; /* and the first of them */
} tx_objects;

/* Fails if the file has no objects. Close the objects after success and failure. */
tx_status tx_objects_open(const char *path, tx_objects *objects);
void tx_objects_close(tx_objects *objects);
/* Reads object `number`, counted from 0. The caller frees `*own`, which may be NULL. */
tx_status tx_objects_read(tx_objects *objects, size_t number, tx_json **own, const tx_json **object);
/* Adds the position of object `number` to the message of a failure. Returns the status. */
tx_status tx_objects_fail(const tx_objects *objects, size_t number, tx_status status);
/* Counts a malformed object as skipped. False if `most` objects are skipped already. */
bool tx_objects_skip(tx_objects *objects, size_t number, int64_t most);
/* Prints how many objects were skipped. */
void tx_objects_report(const tx_objects *objects, const char *path, const tx_reporter *report);

#endif
