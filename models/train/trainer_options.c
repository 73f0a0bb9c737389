/* SPDX-License-Identifier: Apache-2.0
 * Checks against the options of a trainer. */
#include "models/train/trainer.h"

#include "comm/comm.h"

#include <inttypes.h>

int64_t tx_trainer_chunks(const tx_trainer_options *o)
{
    return o->parallel.context ? o->parallel.context->size : 1;
}

tx_status tx_trainer_check(const tx_trainer_options *o)
{
    const int64_t chunks = tx_trainer_chunks(o);
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "trainer: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    if (!o->task)
        return tx_fail(TX_INVALID, "trainer: no task");
    if (o->lengths < 0 || o->lengths > TX_LENGTHS_MAX)
        return tx_fail(TX_INVALID, "trainer: %" PRId32 " lengths; must be 0 to %d", o->lengths, TX_LENGTHS_MAX);
    if (o->batch < 1 || o->block < 1 || o->accumulation < 1 || o->eval_batch < 0)
        return tx_fail(TX_INVALID,
                       "trainer: batch %" PRId64 ", block %" PRId64 ", accumulation %" PRId64
                       " must be at least 1, evaluation batch %" PRId64 " at least 0",
                       o->batch, o->block, o->accumulation, o->eval_batch);
    if (o->block % (8 * chunks) != 0 && chunks > 1)
        return tx_fail(TX_INVALID,
                       "context_parallel %" PRId64 ": rows of %" PRId64 " positions cannot be divided into %" PRId64
                       " chunks of a multiple of 4: choose another block_size",
                       chunks, o->block, 2 * chunks);
    if (o->rows_before < 0 || (o->all_rows && o->all_rows - o->rows_before < o->batch))
        return tx_fail(TX_INVALID, "trainer: rows %" PRId64 " to %" PRId64 " are not in a micro-batch of %" PRId64,
                       o->rows_before, o->rows_before + o->batch, o->all_rows);
    return TX_OK;
}

bool tx_trainer_offloads_weights(const tx_trainer_options *o)
{
    const bool exchanged = o->comm && o->comm->size > 1 && o->parallel.zero_stage > 0;
    return o->optimizer.offload == TX_OFFLOAD_HOST && o->autocast != TX_F32 && o->stored == TX_F32 && !exchanged;
}

tx_status tx_trainer_check_samples(const tx_trainer_options *o, const tx_samples *samples)
{
    if (tx_task_is_same(samples->task, o->task, o->block) && samples->block == o->block)
        return TX_OK;
    return tx_fail(TX_INVALID, "the data are for %s with %" PRId64 " positions, the trainer is for %s with %" PRId64,
                   samples->task->name, samples->block, o->task->name, o->block);
}

/* ---- Lengths of rows --------------------------------------------------------------------------------------- */

enum { UNIT = 8 }; /* for the kernels, a rank's part of a row is a multiple */

/* A fraction of `whole`, rounded up to a multiple of `unit`. */
static int64_t part_of(int64_t whole, int64_t part, int64_t parts, int64_t unit)
{
    const int64_t exact = whole * part / parts, rounded = (exact + (exact ? unit - 1 : unit)) / unit * unit;
    return part < parts && rounded < whole ? rounded : whole;
}

/* The number of lengths of targets. Plans of one length of sources, for whole and then for half targets, are adjacent.
 */
static int32_t targets_of(const tx_trainer_options *o)
{
    return o->lengths > 1 && tx_task_target(o->task) ? 2 : 1;
}

int64_t tx_trainer_length(const tx_trainer_options *o, int32_t which)
{
    const int64_t parts = o->lengths > 1 ? o->lengths / targets_of(o) : 1;
    const int64_t ranks = o->parallel.sequence && o->parallel.tensor ? o->parallel.tensor->size : tx_trainer_chunks(o);
    return part_of(o->block, parts - which / targets_of(o), parts, UNIT * ranks);
}

int64_t tx_trainer_target(const tx_trainer_options *o, int32_t which)
{
    return part_of(tx_task_target(o->task), targets_of(o) - which % targets_of(o), targets_of(o), UNIT);
}

int32_t tx_trainer_plans(const tx_trainer_options *o)
{
    return o->lengths > 1 && !o->parallel.pipeline && !o->parallel.expert ? o->lengths : 1;
}
