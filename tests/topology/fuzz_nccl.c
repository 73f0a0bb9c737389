/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: NCCL's topology XML. */
#include "comm/topology/sources.h"
#include "tests/topology/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return tx_fuzz_parse(TX_TOPO_ORIGIN_NCCL, tx_topo_nccl_parse, data, size);
}
