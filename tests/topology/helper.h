/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of tests of the topology: fixtures, matrices as text, and temporary files. Include after cmocka.h. */
#ifndef TX_TESTS_TOPOLOGY_HELPER_H
#define TX_TESTS_TOPOLOGY_HELPER_H

#include "comm/topology/placement.h"
#include "comm/topology/tx_topology.h"
#include "tests/scratch.h"
#include "tools/topology/txtopo.h"

#include <strings.h>

#define FIXTURES TX_SOURCE_DIR "/tests/topology/fixtures/"

static inline tx_topology *read_topology(const char *path)
{
    tx_topology *t = NULL;
    assert_ok(tx_topology_read(path, &t));
    return t;
}

/* A machine of the test data; skips the test if there is none. */
static inline tx_topology *recorded(const char *name)
{
    char file[128];
    snprintf(file, sizeof file, "topo/%s.xml", name);
    char *path = test_data(file);
    tx_topology *t = read_topology(path);
    free(path);
    return t;
}

/* The device of a label ("GPU0", "nic1"), bus id ("03:00.0"), OpenCL index ("0:1"), engine or system name; -1 none. */
static inline int32_t device_named(const tx_topology *t, const char *name)
{
    const size_t length = strlen(name);
    for (int32_t i = 0; i < t->device_count && length; i++) {
        const tx_topo_device *d = &t->devices[i];
        const char *listed = strstr(d->opencl, name);
        const bool index = listed && (listed == d->opencl || listed[-1] == ',') && strchr(",", listed[length]);
        if (strcasecmp(d->label, name) == 0 || strcmp(d->system, name) == 0 || strcmp(d->engine, name) == 0 ||
            strcmp(d->bus, name) == 0 || (strncmp(d->bus, "0000:", 5) == 0 && strcmp(d->bus + 5, name) == 0) || index)
            return i;
    }
    return -1;
}

/* Captures the output of `print` (statements) to the stream `out` in `text`, which the caller frees. */
#define PRINTED(text, print)                         \
    do {                                             \
        size_t size_ = 0;                            \
        FILE *out = open_memstream(&(text), &size_); \
        assert_non_null(out);                        \
        print;                                       \
        assert_int_equal(fclose(out), 0);            \
    } while (0)

/* Returns a renderer's output, allocated. */
static inline char *printed(void (*print)(FILE *, const tx_topology *, bool), const tx_topology *t, bool links)
{
    char *text = NULL;
    PRINTED(text, print(out, t, links));
    return text;
}

/* Writes text to a file of that name in a folder; returns the path, allocated. */
static inline char *write_scratch(const char *folder, const char *name, const char *text, size_t size)
{
    char *path = tx_path_join(folder, name);
    assert_non_null(path);
    assert_ok(tx_file_write(path, text, size));
    return path;
}

/* Reads text as a file. */
static inline tx_status read_text(const char *text, size_t size, tx_topology **t)
{
    char *folder = make_scratch(), *path = write_scratch(folder, "input", text, size);
    tx_status status = tx_topology_read(path, t);
    free(path);
    remove_scratch(folder);
    return status;
}

static inline tx_topology *read_good(const char *text)
{
    tx_topology *t = NULL;
    assert_ok(read_text(text, strlen(text), &t));
    return t;
}

static inline void refuses_text(const char *text, size_t size, const char *why)
{
    tx_topology *t = NULL;
    assert_refused(read_text(text, size, &t), TX_FORMAT, why);
    assert_null(t);
    assert_null(strchr(tx_error(), '\n'));
}

static inline void assert_cell(const tx_topology *t, const char *a, const char *b, bool links, const char *wanted)
{
    char cell[16];
    int32_t i = device_named(t, a), k = device_named(t, b);
    assert_true(i >= 0 && k >= 0);
    if (strcmp(tx_topo_cell(t, i, k, links, cell), wanted) != 0)
        fail_msg("%s-%s is %s, not %s", a, b, cell, wanted);
    if (strcmp(tx_topo_cell(t, k, i, links, cell), wanted) != 0)
        fail_msg("%s-%s is %s, not %s", b, a, cell, wanted);
}

static inline bool has_note(const tx_topology *t, const char *text)
{
    for (int32_t i = 0; i < t->note_count; i++)
        if (strstr(t->notes[i].text, text))
            return true;
    return false;
}

#endif
