/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: pasted text of nvidia-smi topo -m. A topology that the parser makes is written as
 * JSON. */
#include "comm/topology/sources.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_draft draft;
    tx_topology *t = NULL;
    char *text = calloc(size + 1, 1), *json = NULL;
    FUZZ_CHECK(text && !tx_draft_begin(TX_TOPO_ORIGIN_PASTED, &draft));
    memcpy(text, data, size);
    if (memchr(data, '\0', size) || tx_topo_matrix_parse(text, size, &draft))
        tx_draft_discard(&draft);
    else if (!tx_draft_finish(&draft, &t) && t->device_count < 64) {
        json = tx_topology_json(t);
        FUZZ_CHECK(json);
    }
    free(json);
    tx_topology_free(t);
    free(text);
    return 0;
}
