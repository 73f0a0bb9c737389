/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of the topology share: fixtures, matrices as text, and temporary files. Include after cmocka.h. */
#ifndef TX_TESTS_TOPOLOGY_HELPER_H
#define TX_TESTS_TOPOLOGY_HELPER_H

#include "comm/topology/topology.h"
#include "tests/scratch.h"
#include "tools/topology/txtopo.h"

#define FIXTURES TX_SOURCE_DIR "/tests/topology/fixtures/"

static inline tx_topology *read_topology(const char *path)
{
    tx_topology *t = NULL;
    assert_ok(tx_topology_read(path, &t));
    return t;
}

/* What a renderer prints, allocated. */
static inline char *printed(void (*print)(FILE *, const tx_topology *, bool), const tx_topology *t, bool links)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    print(out, t, links);
    assert_int_equal(fclose(out), 0);
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

static inline void assert_cell(const tx_topology *t, const char *a, const char *b, bool links, const char *wanted)
{
    char cell[16];
    int32_t i = tx_topo_find(t, a), k = tx_topo_find(t, b);
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
