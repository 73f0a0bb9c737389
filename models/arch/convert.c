/* SPDX-License-Identifier: Apache-2.0
 * tx_convert: converts model folders to GGUF files, and back. */
#include "models/tx_convert.h"

#include "api/base/needs.h"
#include "models/files/dcp.h"
#include "models/files/hub.h"
#include "models/gguf/gguf.h"
#include "models/gguf/gguf_calibrate.h"
#include "models/lora/lora.h"
#include "models/tx_folder.h"
#include "tx_file.h"

#include <stdlib.h>

/* Reads the importance, or computes it after the checks that the conversion makes. */
static tx_status find_importance(const char *folder, const tx_calibration *calibration, const tx_reporter *report,
                                 tx_importance **importance)
{
    if (!calibration)
        return TX_OK;
    if (!calibration->text)
        return tx_importance_open(calibration->file, importance);
    TX_TRY(tx_gguf_check_export(folder));
    return tx_gguf_calibrate(folder, calibration, report, importance);
}

static tx_status export(const char *from, const char *to, tx_convert_type type, const tx_calibration *calibration,
                        const tx_reporter *report)
{
    char *folder;
    tx_importance *importance = NULL;
    if (tx_lora_is_folder(from))
        return tx_fail(TX_UNSUPPORTED, "%s: is an adapter: merge it first with txgen --adapter %s --save_merged DIR",
                       from, from);
    TX_TRY(tx_hub_model(from, &folder));
    tx_status status = find_importance(folder, calibration, report, &importance);
    TX_THEN(status, tx_gguf_export(folder, to, type, importance, report));
    tx_importance_close(importance);
    free(folder);
    return status;
}

static tx_status check_calibration(const tx_calibration *calibration, tx_convert_type type)
{
    if (calibration->size != sizeof *calibration)
        return tx_fail(TX_INVALID, "tx_convert: the calibration's size field is %zu, expected %zu", calibration->size,
                       sizeof *calibration);
    if (!calibration->text && !calibration->file)
        return tx_fail(TX_INVALID, "tx_convert: a calibration needs a text or a file");
    if (calibration->text && calibration->file && !tx_gguf_is_name(calibration->file))
        return tx_fail(TX_INVALID, "--imatrix %s: with --calibrate, give a name that ends with .gguf",
                       calibration->file);
    return type > TX_CONVERT_BF16
               ? TX_OK
               : tx_fail(TX_INVALID, "--%s: this --outtype does not use it: choose one of 2 to 6 bits",
                         calibration->text ? "calibrate" : "imatrix");
}

tx_status tx_convert(const char *from, const char *to, tx_convert_type type, const tx_calibration *calibration,
                     const tx_reporter *report)
{
    TX_NEEDS(from && to && type < TX_CONVERT_TYPES, TX_INVALID);
    if (!tx_gguf_is_name(to) && tx_file_exists(TX_PATH(from, TX_DCP_METADATA)))
        return type == TX_CONVERT_F32 && !calibration
                   ? tx_convert_distributed(from, to, 0, report)
                   : tx_fail(TX_INVALID, "%s: a distributed checkpoint keeps its types: leave --outtype out", from);
    if (tx_gguf_is_name(from) == tx_gguf_is_name(to))
        return tx_fail(TX_INVALID, "one of %s and --to %s must be a file whose name ends with .gguf", from, to);
    if (calibration)
        TX_TRY(check_calibration(calibration, type));
    if (tx_gguf_is_name(to))
        return export(from, to, type, calibration, report);
    const tx_dtype dtype = type == TX_CONVERT_F32    ? TX_F32
                           : type == TX_CONVERT_F16  ? TX_F16
                           : type == TX_CONVERT_BF16 ? TX_BF16
                                                     : TX_DTYPE_COUNT;
    if (dtype == TX_DTYPE_COUNT)
        return tx_fail(TX_INVALID, "--outtype: safetensors have no such type: use f32, f16 or bf16");
    return tx_gguf_import(from, to, dtype, report);
}
