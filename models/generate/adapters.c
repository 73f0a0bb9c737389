/* SPDX-License-Identifier: Apache-2.0
 * Adapters of which each request of a batch uses one. */
#include "models/generate/lm.h"
#include "models/generate/run.h"
#include "models/lora/bank.h"

#include "api/base/needs.h"

#include <inttypes.h>
#include <stdlib.h>

/* The rank for which there is room if nothing is known about the adapters. */
#define USUAL_RANK 16
#define MOST_PLACES 1024
#define MOST_RANK 4096

/* Fails if no request can have an adapter of its own. */
static tx_status check_model(const tx_lm *lm)
{
    const char *what = lm->lora               ? "the model has a merged adapter"
                       : tx_lm_has_source(lm) ? "an encoder with a decoder is not served"
                                              : NULL;
    return what ? tx_fail(TX_UNSUPPORTED, "%s: adapters: %s", lm->folder, what) : TX_OK;
}

tx_status tx_adapter_read(const tx_lm *lm, const char *folder, tx_adapter **adapter)
{
    TX_NEEDS(lm && folder && adapter, TX_INVALID);
    TX_TRY(check_model(lm));
    return tx_lora_adapter_read(lm->config, lm->folder, folder, adapter);
}

void tx_adapter_free(tx_adapter *adapter)
{
    tx_lora_adapter_free(adapter);
}

/* Replaces zeros by their defaults. */
static tx_status complete(tx_adapters_options *o)
{
    o->places = o->places ? o->places : o->count;
    if (o->places < 1 || o->places > MOST_PLACES || o->places < o->count)
        return tx_fail(TX_INVALID, "%" PRId64 " places for %" PRId32 " adapters: give 1 to %d, and one for each",
                       o->places, o->count, MOST_PLACES);
    int64_t greatest = 0;
    for (int32_t i = 0; i < o->count; i++) {
        const int64_t rank = tx_lora_adapter_rank(o->adapters[i]);
        greatest = rank > greatest ? rank : greatest;
    }
    o->rank = o->rank ? o->rank : greatest ? greatest : USUAL_RANK;
    return o->rank >= 1 && o->rank <= MOST_RANK
               ? TX_OK
               : tx_fail(TX_INVALID, "a rank of %" PRId64 " for adapters: give 1 to %d", o->rank, MOST_RANK);
}

tx_status tx_lm_reserve_adapters(tx_lm *lm, const tx_adapters_options *options)
{
    TX_NEEDS(lm && options && (options->adapters || !options->count), TX_INVALID);
    tx_adapters_options o = *options;
    if (o.size != sizeof o)
        return tx_fail(TX_INVALID, "tx_lm_reserve_adapters: the options' size field is %zu, expected %zu", o.size,
                       sizeof o);
    TX_TRY(check_model(lm));
    if (lm->model)
        return tx_fail(TX_INVALID, "tx_lm_reserve_adapters: the model is in use: call it before tx_batch_create");
    TX_TRY(complete(&o));
    const char *modules = o.modules ? o.modules : o.count ? NULL : TX_LORA_ALL;
    tx_lora more = {.rank = o.rank, .targets = (char *)(uintptr_t)modules};
    const tx_lora **all = calloc((size_t)o.count + 1, sizeof *all);
    tx_lora_bank *bank = NULL;
    tx_status status = all ? TX_OK : tx_fail(TX_MEMORY, "no memory for adapters");
    for (int32_t i = 0; i < o.count && !status; i++)
        all[i] = tx_lora_adapter_config(o.adapters[i]);
    if (modules && !status) {
        all[o.count] = &more;
        status = tx_fail_in(tx_lora_check(&more, lm->config), "modules of adapters");
    }
    TX_THEN(status, tx_lora_bank_create(lm->config, all, o.count + (modules != NULL), o.places, o.rank, &bank));
    free(all);
    TX_TRY(status);
    tx_lora_bank_free(lm->config->bank);
    lm->config->bank = bank;
    return TX_OK;
}

/* ---- Batches ------------------------------------------------------------------------------------------------ */

static tx_lora_bank *bank_of(const tx_batch *batch)
{
    const tx_lm *lm = tx_batch_lm(batch);
    return lm ? lm->config->bank : NULL;
}

tx_status tx_batch_load(tx_batch *batch, const tx_adapter *adapter, int64_t *number)
{
    TX_NEEDS(batch && adapter && number, TX_INVALID);
    tx_lora_bank *bank = bank_of(batch);
    if (!bank)
        return tx_fail(TX_INVALID, "tx_batch_load: call tx_lm_reserve_adapters before tx_batch_create");
    const int64_t place = tx_lora_bank_place(bank, 0);
    if (place < 0)
        return tx_fail(TX_INVALID, "all %" PRId64 " places have an adapter: unload one first, or raise max_loras",
                       bank->places);
    TX_TRY(tx_slots_load(tx_batch_slots(batch), place, adapter));
    *number = bank->adapter[place] = ++bank->last;
    return TX_OK;
}

tx_status tx_batch_unload(tx_batch *batch, int64_t number)
{
    TX_NEEDS(batch, TX_INVALID);
    tx_lora_bank *bank = bank_of(batch);
    const int64_t place = bank && number > 0 ? tx_lora_bank_place(bank, number) : -1;
    if (place < 0)
        return tx_fail(TX_NOT_FOUND, "adapter %" PRId64 " is not loaded", number);
    if (tx_batch_uses(batch, number))
        return tx_fail(TX_INVALID, "adapter %" PRId64 ": a request uses it", number);
    bank->adapter[place] = 0;
    return TX_OK;
}
