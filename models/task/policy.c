/* SPDX-License-Identifier: Apache-2.0
 * The tasks of learning from rewards: rows of a generation batch. */
#include "models/task/policy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The fields of tokens get the width max_completion_length (tx_policy_sized). */
#define TOKENS .width = 1, .of_block = true
static const tx_field fields[] = {
    [TX_POLICY_INPUT_IDS] = {"input_ids", TX_I32, TX_FIELD_BLOCK, .padding = TX_NO_TOKEN},
    [TX_POLICY_LENGTHS] = {TX_FIELD_LENGTHS, TX_I32, .padding = 1},
    [TX_POLICY_ROWS] = {"rows", TX_I32, TOKENS, .padding = -1, .places = TX_PLACES_OF_TOKENS},
    [TX_POLICY_COMPLETION_LABELS] = {"completion_labels", TX_I32, TOKENS, .padding = TX_IGNORE_LABEL},
    [TX_POLICY_LABELS] = {"labels", TX_I32, .padding = TX_IGNORE_LABEL},
    [TX_POLICY_MASK] = {"completion_mask", TX_F32, TOKENS, .padding = 0},
    [TX_POLICY_OLD] = {"old_logps", TX_F32, TOKENS, .padding = 0},
    [TX_POLICY_REFERENCE] = {"reference_logps", TX_F32, TOKENS, .padding = 0},
    [TX_POLICY_VALUES] = {"row_numbers", TX_F32, TX_POLICY_NUMBERS, .padding = 0},
    [TX_POLICY_POSITION_IDS] = {"position_ids", TX_I32, TOKENS, .padding = 0},
    [TX_POLICY_SHARED] = {"sequences", TX_I32, TX_FIELD_BLOCK, .padding = -1, .places = TX_PLACES_OF_TOKENS},
    [TX_POLICY_PLACES] = {"places", TX_I32, TOKENS, .padding = -1, .places = TX_PLACES_IN_ROWS},
    {.name = NULL},
};

/* Completion i and the others that share its prompt. The tokens of a group are those of the prompt, then those of each
 * completion. */
typedef struct group {
    const tx_policy_batch *b;
    int64_t size, first;   /* completions, and the first one */
    int64_t begin, prompt; /* of the prompt: its place in the data, and its tokens */
    int64_t own;           /* where the tokens of completion i begin */
} group;

static group group_of(const tx_policy_data *d, const tx_task *task, int64_t i)
{
    const tx_policy_batch *b = &d->batch;
    const int64_t shared = tx_task_ids(task)->group, size = shared > 1 ? shared : 1;
    group g = {.b = b, .size = size, .first = i - i % size, .begin = tx_sample_begin(d->end, b->sample[i])};
    g.own = g.prompt = d->end[b->sample[i]] - g.begin;
    for (int64_t k = g.first; k < i; k++)
        g.own += b->length[k];
    return g;
}

/* Writes the tokens of the group whose number is `row`, `row` + size, .., with their positions and places. */
static void write_share(const group *g, int64_t row, int64_t width, const int32_t *prompt, const tx_batch *to)
{
    int32_t *ids = to->field[TX_POLICY_INPUT_IDS], *positions = to->field[TX_POLICY_POSITION_IDS],
            *places = to->field[TX_POLICY_PLACES];
    const tx_policy_batch *b = g->b;
    int64_t k = 0, begin = g->prompt; /* the next completion */
    for (int64_t x = 0; x < width; x++) {
        const int64_t token = x * g->size + row;
        while (k < g->size && token >= begin + b->length[g->first + k])
            begin += b->length[g->first + k++];
        const bool used = k < g->size, shared = token < g->prompt;
        const int64_t at = shared ? token : token - begin;
        const int64_t position = used ? at + (shared ? 0 : g->prompt) : 0;
        ids[x] = !used ? TX_NO_TOKEN : shared ? prompt[at] : b->ids[(g->first + k) * b->most + at];
        positions[x] = (int32_t)position;
        places[x] = used ? (int32_t)(position * g->size + (shared ? 0 : k)) : -1;
    }
}

/* Writes the tokens of completion i. */
static tx_status write_tokens(const tx_samples *samples, const group *g, int64_t i, const tx_batch *to)
{
    const tx_policy_data *d = samples->data;
    const tx_policy_batch *b = g->b;
    const int64_t block = samples->block, length = g->prompt + b->length[i];
    int32_t *ids = to->field[TX_POLICY_INPUT_IDS], *sequence = g->size > 1 ? to->field[TX_POLICY_SHARED] : ids;
    TX_TRY(tx_store_read(&d->from.ids, g->begin, g->prompt, sequence)); /* it has room for the prompt */
    if (g->size > 1) {
        write_share(g, i - g->first, tx_field_values(tx_task_ids(samples->task), block), sequence, to);
        for (int64_t t = 0; t < block; t++)
            sequence[t] = (int32_t)(t < g->prompt ? t : t < length ? g->own + t - g->prompt : -1);
        return TX_OK;
    }
    memcpy(ids + g->prompt, b->ids + i * b->most, (size_t)b->length[i] * sizeof *ids);
    tx_field_pad(&fields[TX_POLICY_INPUT_IDS], ids + length, block - length);
    return TX_OK;
}

static tx_status row(const tx_samples *samples, int64_t number, const tx_batch *to)
{
    const tx_policy_data *d = samples->data;
    const tx_policy_batch *b = &d->batch;
    const int64_t i = number % b->count, answer = b->length[i];
    const group g = group_of(d, samples->task, i);
    const bool learnt = b->numbers[i * TX_POLICY_NUMBERS + TX_POLICY_SEQUENCE_SHARE] > 0.0f;
    const int64_t most = tx_field_values(&samples->task->fields[TX_POLICY_ROWS], samples->block);
    int32_t *labels = to->field[TX_POLICY_COMPLETION_LABELS], *rows = to->field[TX_POLICY_ROWS];
    float *mask = to->field[TX_POLICY_MASK], *old = to->field[TX_POLICY_OLD], *other = to->field[TX_POLICY_REFERENCE];
    TX_TRY(write_tokens(samples, &g, i, to));
    for (int64_t t = 0; t < most; t++) {
        const bool is = learnt && t < answer;
        rows[t] = is ? (int32_t)((t ? g.own + t : g.prompt) - 1) : -1;
        labels[t] = is ? b->ids[i * b->most + t] : TX_IGNORE_LABEL;
        mask[t] = is ? 1.0f : 0.0f;
        old[t] = is ? b->old[i * b->most + t] : 0.0f;
        other[t] = is ? b->reference[i * b->most + t] : 0.0f;
    }
    memcpy(to->field[TX_POLICY_VALUES], b->numbers + i * TX_POLICY_NUMBERS, TX_POLICY_NUMBERS * sizeof(float));
    *(int32_t *)to->field[TX_POLICY_LENGTHS] = (int32_t)(g.prompt + answer);
    *(int32_t *)to->field[TX_POLICY_LABELS] = 0;
    return TX_OK;
}

/* X(array, its number of elements) */
#define ARRAYS(X)                        \
    X(sample, count)                     \
    X(length, count)                     \
    X(ids, count * b->most)              \
    X(truncated, count)                  \
    X(old, count * b->most)              \
    X(reference, count * b->most)        \
    X(numbers, count *TX_POLICY_NUMBERS) \
    X(advantage, count)                  \
    X(kl, count)                         \
    X(scratch, count)

tx_status tx_policy_plan(tx_samples *samples, const tx_job_settings *set, int64_t count, int64_t rows, int64_t all_rows,
                         int64_t step_rows)
{
    tx_policy_data *d = samples->own;
    tx_policy_batch *b = &d->batch;
    const int64_t prompts = count / set->num_generations;
    if (d->count < prompts)
        return tx_fail(TX_INVALID,
                       "the data have %" PRId64 " prompts, but a generation batch of %" PRId64
                       " completions needs %" PRId64 ": use more prompts, or fewer rows in a step",
                       d->count, count, prompts);
    b->count = count;
    b->group = set->num_generations;
    b->most = set->max_completion_length;
    b->rows = rows;
    b->all_rows = all_rows;
    b->accumulation = step_rows / all_rows;
    bool has = true;
#define X(array, elements)                                   \
    b->array = calloc((size_t)(elements), sizeof *b->array); \
    has = has && b->array;
    ARRAYS(X)
#undef X
    samples->count = d->count / prompts * count * set->num_iterations;
    return has ? TX_OK : tx_fail(TX_MEMORY, "no memory for a generation batch of %" PRId64 " completions", count);
}

tx_status tx_policy_reserve(tx_policy_batch *batch, int32_t functions)
{
    batch->functions = functions;
    batch->rewards = calloc((size_t)(batch->count * functions), sizeof *batch->rewards);
    return batch->rewards ? TX_OK : tx_fail(TX_MEMORY, "no memory for rewards");
}

static void free_batch(tx_policy_batch *b)
{
#define X(array, elements) free(b->array);
    ARRAYS(X)
#undef X
    free(b->rewards);
}

void tx_policy_data_release(void *data)
{
    tx_policy_data *d = data;
    tx_conversation_data_free(&d->from);
    for (int64_t i = 0; i < d->count && d->object; i++)
        free(d->object[i]);
    free_batch(&d->batch);
    free(d->object);
    free(d->end);
    free(d);
}

/* Whether the loss has a divergence from a reference model. */
static bool refers(const tx_task *task, const tx_job_settings *set)
{
    (void)task;
    return set->beta > 0.0;
}

void tx_policy_sized(const tx_task *task, int64_t most, tx_own_task *own)
{
    tx_own_task_make(task, own);
    for (tx_field *f = own->field; f->name; f++)
        f->width = f->of_block ? most : f->width;
    own->field[TX_POLICY_POSITION_IDS].name = NULL;
}

void tx_policy_share(tx_own_task *own, int64_t count)
{
    static const int of_tokens[] = {TX_POLICY_INPUT_IDS, TX_POLICY_POSITION_IDS, TX_POLICY_PLACES};
    memcpy(own->field + TX_POLICY_POSITION_IDS, fields + TX_POLICY_POSITION_IDS,
           sizeof fields - TX_POLICY_POSITION_IDS * sizeof *fields);
    for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++) {
        tx_field *f = &own->field[of_tokens[i]];
        f->of_block = true;
        f->width = own->field[TX_POLICY_ROWS].width;
        f->group = (int32_t)count;
    }
}

#define TASK(word, ...)                                             \
    const tx_task tx_##word = {.name = #word,                       \
                               .head = TX_HEAD_CAUSAL_LM,           \
                               .of_texts = true,                    \
                               .data_size = sizeof(tx_policy_data), \
                               .read = tx_policy_data_read,         \
                               .release = tx_policy_data_release,   \
                               .save = tx_conversation_data_save,   \
                               .end = tx_conversation_data_end,     \
                               .fields = fields,                    \
                               .row = row,                          \
                               .loss = tx_policy_loss,              \
                               .generates = true,                   \
                               .refers = refers,                    \
                               .metrics = tx_policy_metrics,        \
                               __VA_ARGS__}
TASK(grpo, .one_out = false);
TASK(rloo, .one_out = true);
