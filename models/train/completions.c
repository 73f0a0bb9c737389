/* SPDX-License-Identifier: Apache-2.0
 * Completions of a generation batch: has them written and scored, or copies them from a file, and logs them. */
#include "models/train/rolling.h"

#include "api/base/file.h"
#include "comm/comm.h"
#include "models/files/folder.h"
#include "models/train/writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies the completions and rewards of the file. */
static void copy_recorded(tx_rollout *r)
{
    const tx_policy_batch *b = &r->data->batch;
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t line = b->sample[i] * b->group + i % b->group, begin = tx_sample_begin(r->recorded.end, line);
        b->length[i] = r->recorded.end[line] - begin;
        memcpy(b->ids + i * b->most, r->recorded.ids.id + begin, (size_t)b->length[i] * sizeof *b->ids);
        memcpy(b->rewards + i * b->functions, r->recorded.rewards + line * b->functions,
               (size_t)b->functions * sizeof *b->rewards);
    }
}

/* This rank's part of the completions. */
static void find_part(const tx_rollout *r, int64_t *first, int64_t *count)
{
    const tx_policy_batch *b = &r->data->batch;
    *count = b->count / (r->comm ? r->comm->size : 1);
    *first = r->comm ? r->comm->rank * *count : 0;
}

/* Fails on all ranks if one failed; else each gets the parts of all in an array. */
static tx_status share(const tx_rollout *r, tx_status status, const char *what, void *array, int64_t bytes)
{
    if (!r->comm)
        return status;
    TX_TRY(tx_comm_agree(r->comm, status, what));
    return tx_comm_share(r->comm, array, (size_t)bytes);
}

/* ---- Generation ------------------------------------------------------------------------------------------- */

/* The prompts of `count` completions from `first` on. Their ids are in `ids`, room for the longest for each. */
static tx_status read_prompts(const tx_rollout *r, int64_t first, int64_t count, int32_t *ids, tx_prompt *prompts)
{
    const tx_policy_data *d = r->data;
    for (int64_t i = 0; i < count; i++) {
        const int64_t sample = d->batch.sample[first + i], begin = tx_sample_begin(d->end, sample);
        prompts[i] = (tx_prompt){ids + i * d->longest, d->end[sample] - begin};
        TX_TRY(tx_store_read(&d->from.ids, begin, prompts[i].count, ids + i * d->longest));
    }
    return TX_OK;
}

/* Writes this rank's completions. Their random numbers depend on their number in the run. */
static tx_status sample(tx_rollout *r, int64_t first, int64_t count)
{
    tx_policy_batch *b = &r->data->batch;
    tx_written written = {b->most, b->ids + first * b->most, b->length + first, tx_rollout_alive, r->watch};
    tx_prompt *prompts = malloc((size_t)count * sizeof *prompts);
    int32_t *ids = malloc((size_t)(count * r->data->longest) * sizeof *ids);
    tx_status status = prompts && ids ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " prompts", count);
    TX_THEN(status, read_prompts(r, first, count, ids, prompts));
    TX_THEN(status, tx_writer_sample(tx_trainer_writer(r->trainer), prompts, count,
                                     (uint64_t)(r->generation * b->count + first), &written));
    free(prompts);
    free(ids);
    return status;
}

/* ---- Rewards ---------------------------------------------------------------------------------------------- */

/* Decodes a completion. A model may write ids that its tokenizer does not have; they have no text. Bytes that are not
 * UTF-8 become U+FFFD. The caller frees `*text`. */
static tx_status decode(const tx_rollout *r, int64_t i, char **text, size_t *size)
{
    const tx_policy_batch *b = &r->data->batch;
    const char *bytes;
    size_t count = 0, of_piece;
    int32_t *ids = malloc((size_t)b->length[i] * sizeof *ids);
    if (!ids)
        return tx_fail(TX_MEMORY, "no memory for a completion");
    for (int64_t t = 0; t < b->length[i]; t++) {
        ids[count] = b->ids[i * b->most + t];
        count += tx_tokenizer_piece(r->data->tokenizer, ids[count], true, &bytes, &of_piece) == TX_OK;
    }
    char *raw = NULL;
    tx_status status = tx_tokenizer_decode(r->data->tokenizer, ids, count, true, &raw, &of_piece);
    TX_THEN(status, tx_utf8_replace(raw, of_piece, text, size));
    free(raw);
    free(ids);
    return status;
}

static tx_status make_sample(const tx_rollout *r, int64_t i, tx_reward_sample *s)
{
    const tx_policy_data *d = r->data;
    const char *row = d->object[d->batch.sample[i]];
    tx_json *object = NULL;
    char *text = NULL;
    TX_TRY(tx_json_parse_line(row, strlen(row), "data", &object));
    s->object = object;
    TX_TRY(decode(r, i, &text, &s->size));
    s->text = text;
    s->ids = d->batch.ids + i * d->batch.most;
    s->count = d->batch.length[i];
    return TX_OK;
}

static void free_sample(const tx_reward_sample *s)
{
    tx_json_free((tx_json *)(uintptr_t)s->object);
    free((char *)(uintptr_t)s->text);
}

/* Scores this rank's completions. */
static tx_status reward(tx_rollout *r, int64_t first, int64_t count)
{
    tx_policy_batch *b = &r->data->batch;
    tx_reward_sample *samples = calloc((size_t)count, sizeof *samples);
    tx_status status = samples ? TX_OK : tx_fail(TX_MEMORY, "no memory for %" PRId64 " completions", count);
    for (int64_t i = 0; i < count && !status; i++)
        status = make_sample(r, first + i, &samples[i]);
    TX_THEN(status, tx_rewards_compute(r->rewards, tx_trainer_scorers(r->trainer), r->step + 1, samples, count,
                                       b->rewards + first * b->functions));
    for (int64_t i = 0; i < count && samples; i++)
        free_sample(&samples[i]);
    free(samples);
    return status;
}

tx_status tx_rollout_write(tx_rollout *r)
{
    tx_policy_batch *b = &r->data->batch;
    int64_t first, count, tokens = 0;
    if (!r->rewards) {
        copy_recorded(r);
        return TX_OK;
    }
    find_part(r, &first, &count);
    const double begin = tx_now();
    tx_status status = sample(r, first, count);
    TX_TRY(share(r, status, "write its completions", b->ids, count * b->most * (int64_t)sizeof *b->ids));
    TX_TRY(share(r, TX_OK, "write its completions", b->length, count * (int64_t)sizeof *b->length));
    const double written = tx_now();
    status = reward(r, first, count);
    TX_TRY(share(r, status, "score its completions", b->rewards, count * b->functions * (int64_t)sizeof *b->rewards));
    for (int64_t i = 0; i < b->count; i++)
        tokens += b->length[i];
    tx_rollout_note_time(r, written - begin, "rollout_time");
    tx_rollout_note_time(r, (double)tokens / (written - begin), "rollout_tokens_per_second");
    tx_rollout_note_time(r, tx_now() - written, "reward_time");
    return TX_OK;
}

/* ---- The log of completions ------------------------------------------------------------------------------- */

/* A line of the file, by the names of TRL. The caller frees. */
static char *line_of(const tx_rollout *r, int64_t i)
{
    const tx_policy_batch *b = &r->data->batch;
    tx_reward_sample s = {0};
    tx_json *json = tx_json_object();
    tx_status status = make_sample(r, i, &s);
    TX_THEN(status, tx_json_set_int(json, "step", r->step + 1));
    TX_THEN(status, tx_json_set(json, "prompt", tx_json_copy(tx_json_find(s.object, "prompt"))));
    TX_THEN(status, tx_json_set_text(json, "completion", s.text, s.size));
    for (int32_t k = 0; k < b->functions && !status; k++) {
        const double value = b->rewards[i * b->functions + k];
        status =
            isnan(value) ? tx_json_set_null(json, r->names.name[k]) : tx_json_set_number(json, r->names.name[k], value);
    }
    TX_THEN(status, tx_json_set_number(json, "advantage", b->advantage[i]));
    char *text = status ? NULL : tx_json_text(json, TX_JSON_LINE);
    free_sample(&s);
    tx_json_free(json);
    return text;
}

tx_status tx_rollout_log(const tx_rollout *r)
{
    char name[64];
    tx_file *file;
    if (!r->set->output_dir || (r->comm && r->comm->rank != 0))
        return TX_OK;
    const char *folder = TX_PATH(r->set->output_dir, "completions");
    snprintf(name, sizeof name, "completions_%05" PRId64 ".jsonl", r->step + 1);
    TX_TRY(tx_folder_create(folder));
    TX_TRY(tx_file_create_output(TX_PATH(folder, name), &file));
    tx_status status = TX_OK;
    for (int64_t i = 0; i < r->data->batch.count && !status; i++) {
        char *line = line_of(r, i);
        status = line ? tx_file_append(file, line, strlen(line)) : TX_INVALID;
        TX_THEN(status, tx_file_append(file, "\n", 1));
        free(line);
    }
    return tx_file_end(file, status);
}
