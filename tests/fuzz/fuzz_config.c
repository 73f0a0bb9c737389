/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: config.json. An accepted configuration passes its checks, has parameters, and is unchanged after it was
 * written and read again. */
#include "models/arch/gpt2.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define NAME "config.json"

static bool same_gpt2(const tx_gpt2_config *a, const tx_gpt2_config *b)
{
    return a->n_inner == b->n_inner && a->activation_function == b->activation_function &&
           a->layer_norm_epsilon == b->layer_norm_epsilon && a->initializer_range == b->initializer_range &&
           a->resid_pdrop == b->resid_pdrop && a->embd_pdrop == b->embd_pdrop && a->attn_pdrop == b->attn_pdrop &&
           a->scale_attn_weights == b->scale_attn_weights &&
           a->scale_attn_by_inverse_layer_idx == b->scale_attn_by_inverse_layer_idx &&
           a->reorder_and_upcast_attn == b->reorder_and_upcast_attn;
}

/* Compares everything except the source file. */
static bool same(const tx_config *a, const tx_config *b)
{
    return a->architecture == b->architecture && a->vocab_size == b->vocab_size && a->positions == b->positions &&
           a->width == b->width && a->layers == b->layers && a->heads == b->heads &&
           a->bos_token_id == b->bos_token_id && a->eos_token_id == b->eos_token_id &&
           (a->architecture != &tx_gpt2 || same_gpt2(tx_gpt2_of(a), tx_gpt2_of(b)));
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
    FUZZ_CHECK(same(config, again));
    tx_config_free(again);
    tx_config_free(config);
    return 0;
}
