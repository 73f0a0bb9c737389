/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: config.json. What is accepted passes its checks, has parameters, and is the same after it was written
 * and read again. */
#include "models/gpt2.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define NAME "config.json"

/* All but the file it came from. */
static bool same(const tx_gpt2_config *a, const tx_gpt2_config *b)
{
    return a->vocab_size == b->vocab_size && a->n_positions == b->n_positions && a->n_embd == b->n_embd &&
           a->n_layer == b->n_layer && a->n_head == b->n_head && a->n_inner == b->n_inner &&
           a->bos_token_id == b->bos_token_id && a->eos_token_id == b->eos_token_id &&
           a->activation_function == b->activation_function && a->layer_norm_epsilon == b->layer_norm_epsilon &&
           a->initializer_range == b->initializer_range && a->resid_pdrop == b->resid_pdrop &&
           a->embd_pdrop == b->embd_pdrop && a->attn_pdrop == b->attn_pdrop &&
           a->scale_attn_weights == b->scale_attn_weights &&
           a->scale_attn_by_inverse_layer_idx == b->scale_attn_by_inverse_layer_idx &&
           a->reorder_and_upcast_attn == b->reorder_and_upcast_attn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tx_gpt2_config config, again;
    char name[TX_GPT2_NAME];
    tx_param_spec spec;
    tx_fuzz_put(NAME, data, size);
    tx_status status = tx_gpt2_config_read(tx_fuzz_path(NAME), &config);
    if (status) {
        tx_fuzz_refused(status, NAME);
        return 0;
    }
    FUZZ_CHECK(!tx_gpt2_config_check(&config));
    FUZZ_CHECK(tx_gpt2_param_count(&config) > 0);
    int32_t params = tx_gpt2_params(&config);
    FUZZ_CHECK(params > 0 && !tx_gpt2_param(&config, 0, name, &spec) &&
               !tx_gpt2_param(&config, params - 1, name, &spec));
    FUZZ_CHECK(!tx_gpt2_config_write(&config, tx_fuzz_path("written.json")));
    FUZZ_CHECK(!tx_gpt2_config_read(tx_fuzz_path("written.json"), &again));
    FUZZ_CHECK(same(&config, &again));
    tx_gpt2_config_free(&again);
    tx_gpt2_config_free(&config);
    return 0;
}
