/* SPDX-License-Identifier: Apache-2.0
 * Ranks that divide a model: their devices and their logits. Called by lm.c and slots.c. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "models/generate/lm.h"
#include "models/generate/slots.h"

#include "api/base/arithmetic.h"
#include "api/base/cores.h"
#include "comm/topology/placement.h"
#include "comm/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

tx_status tx_lm_join(tx_lm *lm, tx_lm_options *options, char device[TX_LM_DEVICE])
{
    tx_lm_options *o = options;
    const tx_watchdog_options watch = {
        .size = sizeof watch, .program = program_invocation_short_name, .advice = "start it again"};
    const tx_comm *ranks = o->ranks;
    if (o->device_map || o->offload_params || o->load_in_4bit || o->assistant_model)
        return tx_fail(TX_UNSUPPORTED,
                       "a model that ranks divide cannot have device_map, offload_param, load_in_4bit or "
                       "assistant_model");
    if (ranks->local_size > 1 || o->device) {
        TX_TRY(tx_placement_device(o->device ? o->device : "cpu", ranks->local_rank, ranks->local_size, TX_LM_DEVICE,
                                   device));
        o->device = device;
    }
    if (o->threads == 0 && ranks->local_size > 1)
        o->threads = tx_min(tx_ceil_div(tx_cores_quota(), ranks->local_size), tx_cores_allowed());
    lm->ranks = o->ranks;
    TX_TRY(tx_comm_sub(o->ranks, ranks->rank, 0, &lm->alone));
    TX_TRY(tx_watchdog_start(&watch, &lm->watch));
    TX_TRY(tx_watchdog_join(lm->watch, o->ranks));
    tx_watchdog_begin(lm->watch, TX_WATCHDOG_GENERATING);
    return TX_OK;
}

void tx_lm_part(tx_lm *lm)
{
    if (lm->generated)
        tx_watchdog_done(lm->watch);
    else
        tx_watchdog_failed(lm->watch, 1, tx_error());
    tx_watchdog_stop(lm->watch);
}

tx_status tx_slots_divide(const tx_config *config, tx_tensor **logits)
{
    const tx_shape columns = TX_SHAPE(tx_shape_count(tx_tensor_shape(*logits)));
    if (tx_tp_columns(*logits) != config->vocab_size)
        return tx_fail(TX_UNSUPPORTED, "%s: ranks do not divide its vocabulary: start it without the launcher",
                       config->architecture->type);
    *logits = tx_reshape(*logits, columns);
    return TX_OK;
}

tx_status tx_slots_gather(tx_comm *ranks, tx_plan *plan, tx_tensor *logits, int64_t rows, int64_t vocab, int64_t padded,
                          float *to)
{
    const int64_t columns = tx_shape_count(tx_tensor_shape(logits)) / rows, each = tx_ceil_div(vocab, ranks->size);
    float *all = calloc((size_t)(ranks->size * rows * each), sizeof *all);
    tx_status status = all ? TX_OK : tx_fail(TX_MEMORY, "generate: no memory for the ranks' logits");
    TX_THEN(status, tx_plan_read(plan, logits, to, (size_t)(rows * columns) * sizeof *to));
    for (int64_t r = 0; r < rows && !status; r++)
        memcpy(all + (ranks->rank * rows + r) * each, to + r * columns, (size_t)tx_min(each, columns) * sizeof *all);
    TX_THEN(status, tx_comm_share(ranks, all, (size_t)(rows * each) * sizeof *all));
    for (int64_t k = 0; k < ranks->size * rows && !status; k++) {
        const int64_t first = k / rows * each, count = tx_min(each, vocab - first);
        if (count > 0)
            memcpy(to + k % rows * padded + first, all + k * each, (size_t)count * sizeof *all);
    }
    free(all);
    return status;
}
