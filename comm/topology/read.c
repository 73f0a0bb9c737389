/* SPDX-License-Identifier: Apache-2.0
 * Reads a topology from a file and detects its format. Broken XML can crash hwloc, so a child process reads it
 * first. This process reads it if the child succeeded. */
#include "comm/topology/sources.h"

#include "api/base/file.h"
#include "api/base/needs.h"
#include "api/base/rehearse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((int64_t)64 << 20)

typedef struct xml_text {
    const char *text;
    size_t size;
} xml_text;

/* Returns the major version in <topology version="2.0">; 1 if there is none. */
static long hwloc_version(const char *element)
{
    char head[512];
    snprintf(head, sizeof head, "%.*s", (int)strcspn(element, ">"), element);
    const char *version = strstr(head, " version=");
    return version ? strtol(version + strlen(" version=") + 1, NULL, 10) : 1;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static tx_status parse_hwloc(const char *text, size_t size, tx_draft *draft)
{
    bool local = false;
    return tx_topo_hwloc_read(text, size, draft, &local);
}

static tx_status make(tx_topo_origin origin, tx_status (*parse)(const char *, size_t, tx_draft *), const char *text,
                      size_t size, tx_topology **topology)
{
    tx_draft draft;
    tx_status status = tx_draft_begin(origin, &draft);
    if (status)
        return status;
    status = parse(text, size, &draft);
    draft.status = draft.status ? draft.status : status;
    return tx_draft_finish(&draft, topology);
}

static tx_status rehearse_read(const void *data)
{
    const xml_text *xml = data;
    tx_topology *topology = NULL;
    tx_status status = make(TX_TOPO_ORIGIN_XML, parse_hwloc, xml->text, xml->size, &topology);
    tx_topology_free(topology);
    return status;
}

static tx_status read_hwloc(const char *text, size_t size, tx_topology **topology)
{
    char version[32], what[128];
    const char *element = strstr(text, "<topology");
    if (!element && !(element = strstr(text, "<root"))) /* in the oldest files */
        return tx_fail(TX_FORMAT, "is XML, but not from hwloc (no <topology> element)");
    tx_topo_hwloc_version(version);
    long have = strtol(version, NULL, 10), written = hwloc_version(element);
    if (written > have)
        return tx_fail(TX_FORMAT,
                       "is hwloc XML of version %ld, which hwloc %s does not read; write it with lstopo "
                       "--export-xml-flags v2 FILE.xml",
                       written, version);
    snprintf(what, sizeof what, "hwloc %s cannot read this file; the XML is damaged", version);
    TX_TRY(tx_rehearse(what, rehearse_read, &(xml_text){text, size}));
    return make(TX_TOPO_ORIGIN_XML, parse_hwloc, text, size, topology);
}

static tx_status parse_any(const char *text, size_t size, tx_topology **topology)
{
    const char *start = text + (strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
    size_t rest = size - (size_t)(start - text), blank = strspn(start, " \t\r\n");
    if (blank == rest)
        return tx_fail(TX_FORMAT, "is empty");
    if (memchr(start, '\0', rest))
        return tx_fail(TX_FORMAT, "holds a NUL byte and is not a text file");
    if (start[blank] == '<')
        return read_hwloc(start, rest, topology);
    return make(TX_TOPO_ORIGIN_PASTED, tx_topo_matrix_parse, start, rest, topology);
}

tx_status tx_topology_read(const char *path, tx_topology **topology)
{
    TX_NEEDS(path && topology, TX_INVALID);
    char *text = NULL;
    size_t size = 0;
    tx_status status = tx_file_read(path, FILE_MAX, &text, &size);
    if (status)
        return status;
    tx_topology *created = NULL;
    status = parse_any(text, size, &created);
    free(text);
    if (!status && !(created->file = tx_topo_pool_text(created->pool, path))) {
        tx_topology_free(created);
        status = tx_fail(TX_MEMORY, "topology: out of memory");
    }
    if (status)
        return tx_fail_in(status, "%s", path);
    *topology = created;
    return TX_OK;
}
