/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: config.json. What is accepted passes its checks, has parameters, and is the same after it was written
 * and read again. */
#include "models/arch/gpt2.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define NAME "config.json"

/* All but the file it came from. */
static bool same(const tx_gpt2_config *a, const tx_gpt2_config *b)
{
    return a->base.vocab_size == b->base.vocab_size && a->base.positions == b->base.positions &&
           a->base.width == b->base.width && a->base.layers == b->base.layers && a->base.heads == b->base.heads &&
           a->n_inner == b->n_inner && a->base.bos_token_id == b->base.bos_token_id &&
           a->base.eos_token_id == b->base.eos_token_id && a->activation_function == b->activation_function &&
           a->layer_norm_epsilon == b->layer_norm_epsilon && a->initializer_range == b->initializer_range &&
           a->resid_pdrop == b->resid_pdrop && a->embd_pdrop == b->embd_pdrop && a->attn_pdrop == b->attn_pdrop &&
           a->scale_attn_weights == b->scale_attn_weights &&
           a->scale_attn_by_inverse_layer_idx == b->scale_attn_by_inverse_layer_idx &&
           a->reorder_and_upcast_attn == b->reorder_and_upcast_attn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_config *config = NULL, *again = NULL;
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_fuzz_put(NAME, data, size);
    if (tx_fuzz_refused(tx_config_read(tx_fuzz_path(NAME), &config), NAME))
        return 0;
    FUZZ_CHECK(!tx_config_check(config));
    FUZZ_CHECK(tx_arch_param_count(config) > 0);
    int32_t params = tx_arch_params(config);
    FUZZ_CHECK(params > 0 && !tx_arch_param(config, 0, name, &spec) && !tx_arch_param(config, params - 1, name, &spec));
    FUZZ_CHECK(!tx_config_write(config, TX_F32, tx_fuzz_path("written.json")));
    FUZZ_CHECK(!tx_config_read(tx_fuzz_path("written.json"), &again));
    FUZZ_CHECK(same(tx_gpt2_of(config), tx_gpt2_of(again)));
    tx_config_free(again);
    tx_config_free(config);
    return 0;
}
