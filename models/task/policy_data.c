/* SPDX-License-Identifier: Apache-2.0
 * Reads files of prompts. */
#include "models/task/policy.h"

#include "api/base/arithmetic.h"
#include "models/tokenizer/bpe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    tx_conversations from;
    tx_ids prompt;
} reading;

/* Appends a prompt, which is never truncated, with room for a completion. */
static tx_status add_prompt(reading *r, const tx_json *object, tx_policy_data *d)
{
    tx_conversations *c = &r->from;
    const int64_t most = c->options->set->max_completion_length;
    TX_TRY(tx_conversation_read_side(object, NULL, &c->conversation));
    TX_TRY(tx_conversations_open_chat(c));
    TX_TRY(tx_fail_in(tx_conversations_encode(c, true, &r->prompt), "prompt"));
    const int64_t count = (int64_t)r->prompt.count;
    if (count < 1)
        return tx_fail(TX_FORMAT, "prompt: it has no tokens");
    if (count + most > c->options->block)
        return tx_fail(TX_FORMAT,
                       "prompt: it has %" PRId64 " tokens, and with --max_completion_length %" PRId64
                       " a row is longer than --max_seq_length %" PRId64 ": prompts are never truncated",
                       count, most, c->options->block);
    TX_TRY(tx_task_check_ids(c->options, r->prompt.id, r->prompt.count));
    TX_TRY(tx_store_add(&d->from.ids, r->prompt.id, r->prompt.count));
    d->object[d->count] = tx_json_text(object, TX_JSON_LINE);
    if (!d->object[d->count])
        return TX_MEMORY;
    d->longest = count > d->longest ? count : d->longest;
    d->end[d->count++] = d->from.ids.count;
    return TX_OK;
}

static tx_status read_one(reading *r, int64_t number, tx_policy_data *d)
{
    const tx_json *object;
    tx_status status = tx_rows_read(r->from.rows, number, &object);
    TX_THEN(status, add_prompt(r, object, d));
    return tx_conversations_skip(&r->from, number, status);
}

static tx_status write_digest(const tx_policy_data *d, char text[TX_DIGEST_TEXT])
{
    tx_digest *digest;
    TX_TRY(tx_digest_create(&digest));
    tx_digest_fail(digest, tx_store_digest(&d->from.ids, digest));
    tx_digest_add(digest, d->end, (size_t)d->count * sizeof *d->end);
    for (int64_t i = 0; i < d->count; i++)
        tx_digest_add(digest, d->object[i], strlen(d->object[i]) + 1);
    return tx_digest_finish(digest, text);
}

static tx_status read_all(reading *r, tx_policy_data *d)
{
    tx_conversations *c = &r->from;
    TX_TRY(tx_conversations_open(c));
    const size_t count = (size_t)(c->end - c->begin);
    tx_conversation_data_begin(&d->from, c->options);
    d->tokenizer = c->options->tokenizer;
    d->vocab = c->options->config->vocab_size;
    d->end = malloc(count * sizeof *d->end);
    d->object = calloc(count, sizeof *d->object);
    if (!d->end || !d->object)
        return tx_fail(TX_MEMORY, "no memory for %zu prompts", count);
    for (int64_t i = c->begin; i < c->end; i++)
        TX_TRY(read_one(r, i, d));
    tx_rows_report(c->rows, &c->options->report); /* other keys are for rewards */
    tx_conversations_give_chat(c, &d->from);
    return d->count ? write_digest(d, d->from.digest) : tx_fail(TX_FORMAT, "there are no prompts");
}

tx_status tx_policy_data_read(tx_samples *samples, const char *path, const tx_data_options *options)
{
    enum { UNIT = 8 };
    tx_policy_data *d = samples->own;
    reading r = {.from = {.path = path, .options = options}};
    const tx_status status = tx_fail_in(read_all(&r, d), "%s", path);
    tx_conversations_close(&r.from);
    free(r.prompt.id);
    const int64_t needed = tx_round_up(d->longest + options->set->max_completion_length, UNIT);
    samples->block = needed < options->block ? needed : options->block;
    samples->count = d->count;
    samples->tokens = d->from.ids.count;
    samples->digest = d->from.digest;
    return status;
}
