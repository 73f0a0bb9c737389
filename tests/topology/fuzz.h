/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets share: a parser is given text, what it makes is finished, printed as JSON and read again. */
#ifndef TX_TESTS_TOPOLOGY_FUZZ_H
#define TX_TESTS_TOPOLOGY_FUZZ_H

#include "comm/topology/sources.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline int tx_fuzz_parse(tx_topo_origin origin, tx_status (*parse)(const char *, size_t, tx_draft *),
                                const uint8_t *data, size_t size)
{
    tx_draft draft;
    tx_topology *t = NULL, *again = NULL;
    char *text = malloc(size + 1);
    if (!text || memchr(data, '\0', size) || tx_draft_begin(origin, "", &draft)) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (parse(text, size, &draft))
        tx_draft_discard(&draft);
    else if (!tx_draft_finish(&draft, &t) && t->device_count < 64) {
        char *json = tx_topology_json(t, false);
        if (!json || tx_topology_parse(json, strlen(json), "json", &again))
            abort(); /* what was read can be written and read again */
        if (again->device_count != t->device_count || again->note_count != t->note_count)
            abort();
        free(json);
    }
    tx_topology_free(t);
    tx_topology_free(again);
    free(text);
    return 0;
}

#endif
