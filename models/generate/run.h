/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the generation methods: the state of a running batch. */
#ifndef TX_GENERATE_RUN_H
#define TX_GENERATE_RUN_H

#include "models/generate/generate.h"
#include "models/generate/sample.h"

struct tx_generator {
    tx_decoder *decoder;
    int64_t batch, beams, context;
    bool keep;
    tx_choice choice;
    int32_t *ids;              /* [batch * beams, context]: prompts and new tokens */
    int32_t *tokens, *sources; /* [batch * beams]: inputs of a step */
    tx_prompt *prompts;        /* [batch * beams] */
};

/* A run of a generator. */
typedef struct tx_run {
    tx_generator *g;
    const tx_prompt *prompts;
    int64_t count;
    const tx_generation *how;
    const tx_sink *sink;
    uint64_t first;
    int64_t most; /* maximum number of new tokens of any text */
} tx_run;

/* Maximum number of new tokens of text `row`. */
static inline int64_t tx_run_limit(const tx_run *run, int64_t row)
{
    return tx_generation_limit(run->how, run->prompts[row].count);
}

static inline bool tx_run_ends(const tx_run *run, const int32_t *ids, int64_t count)
{
    return tx_generation_ends(run->how, ids[count - 1]) ||
           (run->sink->ends && run->sink->ends(run->sink->context, ids, count));
}

/* Beam search (beam.c): finds the most likely text of each prompt, which the decoder must have started, and emits it.
 */
tx_status tx_run_beams(const tx_run *run);

#endif
