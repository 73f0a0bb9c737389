/* SPDX-License-Identifier: Apache-2.0
 * Assigns blocks to the pipeline stages: --pipeline_partition. */
#include "models/job/ranks.h"

#include "models/job/plans.h"
#include "models/split/split.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Describes the run for the performance model. The recomputation of gradient_checkpointing auto:BYTES is not known yet.
 */
static tx_status find_split(const tx_job *j, tx_trainer_options *base, tx_split *split)
{
    int64_t limit;
    TX_TRY(tx_job_trainer_options(j, base, &limit));
    *split = (tx_split){.data = j->data->size,
                        .tensor = j->tensor ? j->tensor->size : 1,
                        .pipeline = j->pipeline->size,
                        .expert = j->expert ? j->expert->size : 1,
                        .context = j->context ? j->context->size : 1,
                        .zero = j->zero_stage,
                        .schedule = (tx_pipeline_schedule)j->set.pipeline_schedule,
                        .chunks = tx_job_chunks(&j->set),
                        .batch = base->batch,
                        .micro = base->accumulation,
                        .again = base->checkpointing.whole > 0 || base->checkpointing.cheap > 0};
    return TX_OK;
}

static tx_status refuse_list(const char *text, int32_t stages, int64_t layers)
{
    return tx_fail(TX_INVALID,
                   "--pipeline_partition %.80s: give auto, even, or %" PRId32
                   " positive numbers of blocks, separated by commas, with the sum %" PRId64,
                   text, stages, layers);
}

/* Reads a list of blocks such as "7,5". */
static tx_status read_list(const char *text, int32_t stages, int64_t layers, int32_t *blocks)
{
    const char *at = text;
    int64_t left = layers;
    for (int32_t s = 0; s < stages; s++) {
        char *end;
        const long count = strtol(at, &end, 10);
        if (end == at || count < 1 || count > left || *end != (s + 1 < stages ? ',' : '\0'))
            return refuse_list(text, stages, layers);
        blocks[s] = (int32_t)count;
        left -= count;
        at = end + 1;
    }
    return left == 0 ? TX_OK : refuse_list(text, stages, layers);
}

static tx_status divide(tx_job *j, const tx_split *split, const tx_split_model *model, int32_t *blocks)
{
    const char *how = j->set.pipeline_partition ? j->set.pipeline_partition : "auto";
    const int64_t stages = split->pipeline * split->chunks, layers = model->layers;
    if (strcmp(how, "auto") == 0)
        tx_split_stages(model, split, TX_SPLIT_MEMORY * (double)j->own_memory, blocks);
    else if (strcmp(how, "even") == 0)
        for (int64_t s = 0; s < stages; s++)
            blocks[s] = (int32_t)(layers * (s + 1) / stages - layers * s / stages);
    else
        return read_list(how, (int32_t)stages, layers, blocks);
    return TX_OK;
}

tx_status tx_job_assign_blocks(tx_job *j)
{
    tx_trainer_options base;
    tx_split split;
    tx_split_model model;
    free(j->stage_blocks);
    j->stage_blocks = NULL;
    if (!j->pipeline)
        return TX_OK;
    TX_TRY(find_split(j, &base, &split));
    const int64_t stages = split.pipeline * split.chunks;
    if (stages > j->inputs.config->layers)
        return tx_fail(TX_INVALID,
                       "%" PRId64 " pipeline stages need at least as many blocks, but the model has %" PRId64
                       ": give a smaller --pipeline_parallel or --pipeline_chunks",
                       stages, j->inputs.config->layers);
    if (stages > TX_SPLIT_STAGES)
        return tx_fail(TX_UNSUPPORTED, "a pipeline has at most %d stages, not %" PRId64, TX_SPLIT_STAGES, stages);
    TX_TRY(tx_split_model_of(j->engine, j->inputs.config, &base, &split, &model));
    int32_t *blocks = calloc((size_t)stages, sizeof *blocks);
    tx_status status =
        blocks ? divide(j, &split, &model, blocks) : tx_fail(TX_MEMORY, "no memory for a list of stages");
    if (status) {
        free(blocks);
        return status;
    }
    j->stage_blocks = blocks;
    j->slowest = tx_split_slowest(&model, &split, blocks);
    return TX_OK;
}

void tx_job_note_stages(const tx_job *j)
{
    static const char *const schedules[] = {
#define X(name, word) word,
        TX_PIPELINE_MAP(X)
#undef X
    };
    char list[1024] = "";
    for (int32_t s = 0; s < j->pipeline->size * tx_job_chunks(&j->set); s++)
        tx_list_add(list, sizeof list, ",", "%" PRId32, j->stage_blocks[s]);
    tx_job_note(j,
                "stages  %s of %" PRId64 " blocks, %" PRId64 " micro-batch%s a step, %s; the slowest rank is predicted "
                "to do %.1f %% of a step's work (an even share is %.1f %%)",
                list, j->inputs.config->layers, tx_trainer_options_of(j->trainer)->accumulation,
                tx_trainer_options_of(j->trainer)->accumulation == 1 ? "" : "es", schedules[j->set.pipeline_schedule],
                100.0 * j->slowest, 100.0 / j->pipeline->size);
}
