/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: manifest.json of a checkpoint, next to the files "a" (5 bytes) and "b" (empty). Only a manifest that
 * names both is accepted. */
#include "models/files/checkpoint.h"
#include "tests/fuzz/fuzz.h"
#include "tx_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool there;
    tx_json *manifest = NULL, *files = NULL;
    if (!there) {
        tx_fuzz_put("a", "hello", 5);
        tx_fuzz_put("b", "", 0);
        there = true;
    }
    tx_fuzz_put(TX_CHECKPOINT_MANIFEST, data, size);
    if (tx_fuzz_refused(tx_checkpoint_verify(tx_fuzz_folder(), NULL), tx_fuzz_folder()))
        return 0;
    FUZZ_CHECK(!tx_json_parse((const char *)data, size, "manifest", &manifest));
    FUZZ_CHECK(!tx_json_get(manifest, "files", TX_JSON_OBJECT, &files));
    FUZZ_CHECK(tx_json_size(files) == 2 && tx_json_has(files, "a") && tx_json_has(files, "b"));
    tx_json_free(manifest);
    return 0;
}
