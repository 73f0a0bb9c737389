/* SPDX-License-Identifier: Apache-2.0
 * tx_convert: converts model folders to GGUF files, and back. */
#include "models/tx_convert.h"

#include "api/base/needs.h"
#include "models/files/hub.h"
#include "models/gguf/gguf.h"
#include "models/lora/lora.h"

#include <stdlib.h>

static tx_status export(const char *from, const char *to, tx_convert_type type, const char *importance,
                        const tx_reporter *report)
{
    char *folder;
    if (tx_lora_is_folder(from))
        return tx_fail(TX_UNSUPPORTED, "%s: is an adapter: merge it first with txgen --adapter %s --save_merged DIR",
                       from, from);
    TX_TRY(tx_hub_model(from, &folder));
    const tx_status status = tx_gguf_export(folder, to, type, importance, report);
    free(folder);
    return status;
}

tx_status tx_convert(const char *from, const char *to, tx_convert_type type, const char *importance,
                     const tx_reporter *report)
{
    TX_NEEDS(from && to && type < TX_CONVERT_TYPES, TX_INVALID);
    if (tx_gguf_is_name(from) == tx_gguf_is_name(to))
        return tx_fail(TX_INVALID, "one of %s and --to %s must be a file whose name ends with .gguf", from, to);
    if (importance && type <= TX_CONVERT_BF16)
        return tx_fail(TX_INVALID, "--imatrix: this --outtype does not use it: choose one of 2 to 6 bits");
    if (tx_gguf_is_name(to))
        return export(from, to, type, importance, report);
    const tx_dtype dtype = type == TX_CONVERT_F32    ? TX_F32
                           : type == TX_CONVERT_F16  ? TX_F16
                           : type == TX_CONVERT_BF16 ? TX_BF16
                                                     : TX_DTYPE_COUNT;
    if (dtype == TX_DTYPE_COUNT)
        return tx_fail(TX_INVALID, "--outtype: safetensors have no such type: use f32, f16 or bf16");
    return tx_gguf_import(from, to, dtype, report);
}
