/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: pasted text of nvidia-smi topo -m. */
#include "comm/topology/sources.h"
#include "tests/topology/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return tx_fuzz_parse(TX_TOPO_ORIGIN_PASTED, tx_topo_matrix_parse, data, size);
}
