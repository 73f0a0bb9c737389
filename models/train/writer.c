/* SPDX-License-Identifier: Apache-2.0
 * Writes texts by a model in training. Called by trainer.c, evaluate.c and rollout.c; its settings also by data.c and
 * forecast.c of models/job. */
#include "models/train/writer.h"

#include "models/generate/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tx_writer {
    tx_model *model;
    const tx_task *task;
    tx_generation how;
    tx_generator *generator;
    int64_t block, columns, rows; /* rows: of an evaluation batch */
    bool together;                /* ranks write together, all of them whole batches */
    tx_prompt *prompts;           /* [eval_batch] */
    float *ids;                   /* [count, columns]: of this run */
    int64_t *written;             /* [eval_batch]: ids of each text so far */
    bool proved;                  /* see tx_generator_prove */
};

tx_status tx_writer_settings(const tx_config *config, const char *folder, int64_t length, int64_t beams,
                             const tx_reporter *reporter, tx_generation *settings)
{
    tx_generation result;
    if (config->architecture->head != TX_HEAD_SEQ2SEQ)
        return tx_fail(TX_UNSUPPORTED, "--predict_with_generate is for an encoder with a decoder; this is a %s",
                       config->architecture->class_name);
    if (length < 2)
        return tx_fail(TX_INVALID, "--generation_max_length: give 2 or more: it counts the token that begins a text");
    TX_TRY(tx_generation_read(config, folder, reporter, &result, NULL));
    if (!(fabs(result.repetition_penalty - 1.0) <= 0.0))
        return tx_fail(TX_UNSUPPORTED,
                       "--predict_with_generate: repetition_penalty is not implemented for an encoder with a decoder: "
                       "remove it from generation_config.json");
    result.max_new_tokens = length - 1;
    result.min_new_tokens = tx_generation_least(&result, 1);
    result.num_beams = beams ? beams : result.num_beams;
    result.prompt_lookup_num_tokens = 0;
    TX_TRY(tx_fail_in(tx_generation_check(&result), "--predict_with_generate"));
    *settings = result;
    return TX_OK;
}

tx_status tx_writer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                           tx_writer **writer)
{
    const tx_trainer_options *o = options;
    tx_writer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "trainer: out of memory");
    *created = (tx_writer){.model = model, .task = o->task, .how = *o->write, .block = o->block};
    created->columns = o->write->max_new_tokens + 1;
    created->rows = o->eval_batch;
    created->together = o->comm && o->parallel.zero_stage == 3;
    const tx_generator_options texts = {.size = sizeof texts,
                                        .batch = o->eval_batch,
                                        .beams = created->how.num_beams,
                                        .prompt = o->block,
                                        .context = o->block + created->columns,
                                        .comm = created->together ? o->comm : NULL},
                               completions = {.size = sizeof completions,
                                              .batch = o->slots,
                                              .beams = 1,
                                              .context = o->block,
                                              .autocast = o->eval_autocast,
                                              .copies = true};
    created->prompts = malloc((size_t)o->eval_batch * sizeof *created->prompts);
    created->written = malloc((size_t)o->eval_batch * sizeof *created->written);
    const bool has = created->prompts && created->written;
    tx_status status = has ? TX_OK : tx_fail(TX_MEMORY, "trainer: out of memory");
    if (o->slots) /* completions are not written while a step has activations */
        TX_THEN(status, tx_model_share_states(model));
    TX_THEN(status, tx_generator_create(model, config, o->slots ? &completions : &texts, &created->generator));
    return TX_RETURN(status, created, writer, tx_writer_free);
}

void tx_writer_free(tx_writer *writer)
{
    if (!writer)
        return;
    tx_generator_free(writer->generator);
    free(writer->prompts);
    free(writer->written);
    free(writer);
}

int64_t tx_writer_columns(const tx_writer *writer)
{
    return writer->columns;
}

static bool emit(void *context, int64_t row, int32_t id)
{
    tx_writer *w = context;
    w->ids[row * w->columns + w->written[row]++] = (float)id; /* exact: ids are below 2^24 */
    return true;
}

/* The values of the field with this name. */
static const int32_t *field(const tx_writer *w, const tx_batch *batch, const char *name)
{
    int32_t f = 0;
    while (strcmp(w->task->fields[f].name, name) != 0)
        f++;
    return batch->field[f];
}

tx_status tx_writer_run(tx_writer *writer, const tx_batch *batch, int64_t count, int64_t first, float *ids)
{
    tx_writer *w = writer;
    const int32_t *sources = field(w, batch, "input_ids"), *lengths = field(w, batch, TX_FIELD_LENGTHS);
    const int64_t rows = w->together ? w->rows : count;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = r < count ? r : 0;
        w->prompts[r] = (tx_prompt){sources + from * w->block, lengths[from]};
        w->written[r] = 0;
    }
    for (int64_t i = 0; i < rows * w->columns; i++)
        ids[i] = -1.0f;
    w->ids = ids;
    return tx_generator_run(w->generator, w->prompts, rows, (uint64_t)first, &w->how, &(tx_sink){emit, NULL, NULL, w});
}

static bool take(void *context, int64_t row, int32_t id)
{
    const tx_written *w = context;
    w->ids[row * w->most + w->length[row]++] = id;
    w->alive(w->context);
    return true;
}

tx_status tx_writer_sample(tx_writer *writer, const tx_prompt *prompts, int64_t count, uint64_t first,
                           tx_written *written)
{
    TX_TRY(tx_model_clear_states(writer->model));
    if (!writer->proved) /* the weights are loaded */
        TX_TRY(tx_generator_prove(writer->generator));
    writer->proved = true;
    for (int64_t i = 0; i < count; i++)
        written->length[i] = 0;
    TX_TRY(tx_generator_run(writer->generator, prompts, count, first, &writer->how,
                            &(tx_sink){take, NULL, NULL, written}));
    return tx_model_return_states(writer->model);
}
