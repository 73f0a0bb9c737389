/* SPDX-License-Identifier: Apache-2.0
 * Checks that llama.cpp computes a model as its configuration says. */
#include "models/gguf/gguf.h"

#include <string.h>

/* llama.cpp computes the tanh form of GELU, also for models that were trained with the exact form. */
static tx_status check_gelu(const tx_gguf_exported *e, const char *key)
{
    const char *activation;
    TX_TRY(tx_json_get_string(e->json, key, &activation));
    if (strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0)
        return TX_OK;
    if (strncmp(activation, "gelu", 4) != 0)
        return tx_fail(TX_UNSUPPORTED, "%s: \"%.40s\": llama.cpp computes gelu_new", key, activation);
    if (strcmp(activation, "gelu") == 0 || strcmp(activation, "gelu_python") == 0)
        tx_reporter_print(e->report, "%s: \"%s\"" TX_GGUF_TANH_WARNING, key, activation);
    return TX_OK;
}

tx_status tx_gguf_check_settings(const tx_gguf_exported *e)
{
    const tx_gguf_family *family = tx_gguf_family_of(e->config);
    for (const tx_gguf_fixed *fixed = family->fixed; fixed && fixed->name; fixed++) {
        bool value = fixed->value;
        if (tx_json_has(e->json, fixed->name))
            TX_TRY(tx_json_get_bool(e->json, fixed->name, &value));
        if (value != fixed->value)
            return tx_fail(TX_UNSUPPORTED, "%s: llama.cpp computes as if it were %s", fixed->name,
                           fixed->value ? "true" : "false");
    }
    if (family->check)
        TX_TRY(family->check(e));
    return family->gelu ? check_gelu(e, family->gelu) : TX_OK;
}
