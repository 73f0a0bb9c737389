/* SPDX-License-Identifier: Apache-2.0
 * The forward pass over one sequence. */
#include "models/generate/generate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tx_forward {
    tx_graph *graph;
    tx_tensor *tokens, *logits;
    tx_plan *plan;
    int64_t count, vocab, padded;
    float *read; /* [count, padded] */
};

static tx_status build(tx_model *model, const tx_config *config, tx_forward *f)
{
    TX_TRY(tx_graph_create(model, &f->graph));
    f->tokens = tx_input(f->graph, "input_ids", TX_I32, TX_SHAPE(1, f->count));
    f->logits = tx_output(tx_arch_logits(f->graph, config, NULL));
    return tx_plan_create(f->graph, "forward", &f->plan);
}

tx_status tx_forward_create(tx_model *model, const tx_config *config, int64_t count, tx_forward **forward)
{
    if (count < 1 || count > config->positions)
        return tx_fail(TX_INVALID, "%" PRId64 " tokens: the model takes 1 to %" PRId64, count, config->positions);
    tx_forward *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "forward: out of memory");
    made->count = count;
    made->vocab = config->vocab_size;
    made->padded = tx_arch_padded_vocab(config);
    made->read = malloc((size_t)(count * made->padded) * sizeof *made->read);
    tx_status status =
        made->read ? build(model, config, made) : tx_fail(TX_MEMORY, "forward: no memory for the logits");
    if (status)
        tx_forward_free(made);
    else
        *forward = made;
    return status;
}

void tx_forward_free(tx_forward *forward)
{
    if (!forward)
        return;
    tx_plan_free(forward->plan);
    tx_graph_free(forward->graph);
    free(forward->read);
    free(forward);
}

tx_status tx_forward_run(tx_forward *forward, const int32_t *ids, float *logits)
{
    tx_forward *f = forward;
    TX_TRY(tx_check_ids(ids, f->count, f->vocab));
    TX_TRY(tx_plan_write(f->plan, f->tokens, ids, (size_t)f->count * sizeof *ids));
    TX_TRY(tx_plan_run(f->plan));
    TX_TRY(tx_plan_read(f->plan, f->logits, f->read, (size_t)(f->count * f->padded) * sizeof *f->read));
    for (int64_t t = 0; t < f->count; t++)
        memcpy(logits + t * f->vocab, f->read + t * f->padded, (size_t)f->vocab * sizeof *logits);
    return TX_OK;
}
