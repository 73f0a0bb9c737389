/* SPDX-License-Identifier: Apache-2.0
 * Reads sources by the encoder for the decoder's caches. */
#include "models/generate/source.h"

#include "models/arch/relative.h"
#include "models/arch/t5.h"

#include <stdlib.h>
#include <string.h>

struct tx_source {
    const tx_config *config;
    int64_t slots, beams, context;
    tx_graph *graph;
    tx_tensor *tokens, *length, *position, *slot; /* inputs of the encoder's plan, which has one row */
    tx_plan *plan;
    tx_tensor *masks, *biases; /* inputs of a step */
    int32_t *ids, *places;     /* [context]; [2, beams]: zeros and slots */
    int32_t *bias_rows;        /* [slots, context] */
    float *mask;               /* [slots, context] */
};

static tx_status build(tx_source *s, tx_model *model)
{
    const tx_arch_options options = {.size = sizeof options, .cache = s->context, .cache_rows = s->slots};
    TX_TRY(tx_lora_graph(model, s->config, TX_F32, &s->graph));
    s->tokens = tx_input(s->graph, "input_ids", TX_I32, TX_SHAPE(1, s->context));
    s->length = tx_input(s->graph, "attention_lengths", TX_I32, TX_SHAPE(1));
    s->position = tx_input(s->graph, "positions", TX_I32, TX_SHAPE(s->beams));
    s->slot = tx_input(s->graph, "slots", TX_I32, TX_SHAPE(s->beams));
    tx_output(tx_arch_logits(s->graph, s->config, &options));
    return tx_plan_create(s->graph, "encode", &s->plan);
}

tx_status tx_source_create(tx_model *model, const tx_config *config, int64_t slots, int64_t beams, int64_t context,
                           tx_source **source)
{
    tx_source *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    *s = (tx_source){.config = config, .slots = slots, .beams = beams, .context = context};
    s->ids = calloc((size_t)context, sizeof *s->ids);
    s->places = calloc(2 * (size_t)beams, sizeof *s->places);
    s->mask = calloc((size_t)(slots * context), sizeof *s->mask);
    s->bias_rows = calloc((size_t)(slots * context), sizeof *s->bias_rows);
    const bool has = s->ids && s->places && s->mask && s->bias_rows;
    const tx_status status = has ? build(s, model) : tx_fail(TX_MEMORY, "generate: out of memory");
    return TX_RETURN(status, s, source, tx_source_free);
}

void tx_source_free(tx_source *source)
{
    if (!source)
        return;
    tx_plan_free(source->plan);
    tx_graph_free(source->graph);
    free(source->ids);
    free(source->places);
    free(source->mask);
    free(source->bias_rows);
    free(source);
}

tx_status tx_source_read(tx_source *source, int64_t slot, const tx_prompt *prompt, int32_t *begin)
{
    tx_source *s = source;
    const int32_t length = (int32_t)prompt->count;
    const size_t size = sizeof(int32_t), beams = (size_t)s->beams;
    memset(s->ids, 0, (size_t)s->context * size);
    memcpy(s->ids, prompt->ids, (size_t)prompt->count * size);
    *begin = (int32_t)tx_t5_begin(s->config);
    for (int64_t i = 0; i < s->beams * s->context; i++)
        s->mask[slot * s->context + i] = i % s->context < prompt->count ? 0.0f : TX_RELATIVE_MASKED;
    for (int64_t i = 0; i < s->beams; i++)
        s->places[s->beams + i] = (int32_t)(slot + i);
    TX_TRY(tx_plan_write(s->plan, s->tokens, s->ids, (size_t)s->context * size));
    TX_TRY(tx_plan_write(s->plan, s->length, &length, size));
    TX_TRY(tx_plan_write(s->plan, s->position, s->places, beams * size));
    TX_TRY(tx_plan_write(s->plan, s->slot, s->places + beams, beams * size));
    return tx_plan_run(s->plan);
}

void tx_source_inputs(tx_source *source, tx_graph *graph)
{
    if (!source)
        return;
    source->masks = tx_input(graph, "source_mask", TX_F32, TX_SHAPE(source->slots, source->context));
    source->biases = tx_input(graph, "bias_rows", TX_I32, TX_SHAPE(source->slots, source->context));
}

tx_status tx_source_write(tx_source *source, tx_plan *plan, const int32_t *positions)
{
    const tx_source *s = source;
    if (!s)
        return TX_OK;
    const size_t count = (size_t)(s->slots * s->context);
    for (int64_t i = 0; i < s->slots; i++)
        tx_t5_bias_rows(s->config, positions[i], s->context, s->bias_rows + i * s->context);
    TX_TRY(tx_plan_write(plan, s->masks, s->mask, count * sizeof *s->mask));
    return tx_plan_write(plan, s->biases, s->bias_rows, count * sizeof *s->bias_rows);
}
