/* SPDX-License-Identifier: Apache-2.0
 *
 * Model folders as GGUF files, which llama.cpp runs, and back. */
#ifndef TX_CONVERT_H
#define TX_CONVERT_H

#include "tx.h"

TX_API_BEGIN

/* The type of the matrices that are written. X(NAME, "word") */
#define TX_CONVERT_MAP(X) X(F32, "f32") X(F16, "f16") X(Q8_0, "q8_0") X(BF16, "bf16")

typedef enum tx_convert_type {
#define X(name, word) TX_CONVERT_##name,
    TX_CONVERT_MAP(X)
#undef X
} tx_convert_type;

/* Writes the model `from` as `to`, whole or not at all: one of both is a file whose name ends with .gguf, the other a
 * model folder or, for `from`, a name that txtrain's --model_name_or_path takes. TX_UNSUPPORTED refuses adapters, and
 * models and tokenizers that llama.cpp would compute in another way; TX_INVALID a folder that holds a model already,
 * and Q8_0 for a folder. F32 holds every value as it was. `report` may be NULL. */
tx_status tx_convert(const char *from, const char *to, tx_convert_type type, const tx_reporter *report);

TX_API_END

#endif
