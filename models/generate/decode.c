/* SPDX-License-Identifier: Apache-2.0
 * Decodes with KV caches that a prefill plan and a decode plan share. */
#include "models/generate/decode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Capacities of caches and lengths of chunks are multiples of this. */
#define UNIT 32
/* Tokens of a prompt that are computed at once: enough to make matrix products compute-bound. */
#define CHUNK 256

/* A plan for `length` tokens of each row. */
typedef struct stage {
    tx_graph *graph;
    tx_tensor *tokens, *positions, *sources, *rates, *rows, *logits;
    tx_plan *plan;
    int64_t length;
} stage;

struct tx_decoder {
    const tx_config *config;
    stage prefill, decode;
    int64_t pairs;                         /* of rotary frequencies that depend on the length; 0 if they do not */
    float *rates;                          /* input: [rows, pairs] */
    int64_t rows, vocab, padded, capacity; /* padded: vocabulary in memory; capacity: positions in a cache */
    int32_t *tokens;                       /* input of a stage, padded */
    int32_t *count;                        /* of each row: number of tokens in its cache */
    int32_t *held;                         /* [rows, capacity]: these tokens */
    int32_t *positions, *last, *same;      /* inputs: first positions, positions of the logits, 0, 1, .. */
    float *logits, *read;                  /* [rows, padded]; output of a plan */
};

static int64_t round_up(int64_t value, int64_t most)
{
    int64_t up = (value + UNIT - 1) / UNIT * UNIT;
    return up < most ? up : most;
}

tx_status tx_check_ids(const int32_t *ids, int64_t count, int64_t vocab)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return tx_fail(TX_INVALID, "token %" PRId64 ": id %" PRId32 " is outside the vocabulary of %" PRId64, i,
                           ids[i], vocab);
    return TX_OK;
}

static tx_status build(tx_decoder *d, tx_model *model, const tx_config *config, const char *name, int64_t length,
                       bool beams, stage *made)
{
    TX_TRY(tx_graph_create(model, &made->graph));
    made->length = length;
    made->tokens = tx_input(made->graph, "input_ids", TX_I32, TX_SHAPE(d->rows, length));
    made->positions = tx_input(made->graph, "positions", TX_I32, TX_SHAPE(d->rows));
    made->sources = beams ? tx_input(made->graph, "sources", TX_I32, TX_SHAPE(d->rows)) : NULL;
    made->rates = d->pairs ? tx_input(made->graph, "rope_rates", TX_F32, TX_SHAPE(d->rows, d->pairs)) : NULL;
    made->rows = tx_input(made->graph, "rows", TX_I32, TX_SHAPE(d->rows));
    const tx_arch_options options = {.size = sizeof options, .cache = d->capacity};
    made->logits = tx_output(tx_arch_logits(made->graph, config, &options));
    return tx_plan_create(made->graph, name, &made->plan);
}

static tx_status prepare(tx_decoder *d, tx_model *model, const tx_config *config, int64_t prompt, bool beams)
{
    int64_t chunk = round_up(prompt < CHUNK ? prompt : CHUNK, d->capacity);
    d->tokens = calloc((size_t)(d->rows * chunk), sizeof *d->tokens);
    d->count = calloc((size_t)d->rows, sizeof *d->count);
    d->held = malloc((size_t)(d->rows * d->capacity) * sizeof *d->held);
    d->positions = calloc((size_t)d->rows, sizeof *d->positions);
    d->last = calloc((size_t)d->rows, sizeof *d->last);
    d->same = calloc((size_t)d->rows, sizeof *d->same);
    d->logits = calloc((size_t)(d->rows * d->padded), sizeof *d->logits);
    d->read = malloc((size_t)(d->rows * d->padded) * sizeof *d->read);
    d->rates = calloc((size_t)(d->rows * (d->pairs + 1)), sizeof *d->rates);
    if (!d->rates || !d->tokens || !d->count || !d->held || !d->positions || !d->last || !d->same || !d->logits ||
        !d->read)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    for (int64_t r = 0; r < d->rows; r++)
        d->same[r] = (int32_t)r;
    TX_TRY(build(d, model, config, "prefill", chunk, false, &d->prefill));
    return build(d, model, config, "decode", 1, beams, &d->decode);
}

tx_status tx_decoder_create(tx_model *model, const tx_config *config, int64_t rows, int64_t prompt, int64_t context,
                            bool beams, tx_decoder **decoder)
{
    if (rows < 1 || rows > INT32_MAX / CHUNK)
        return tx_fail(TX_INVALID, "generate: a batch cannot have %" PRId64 " sequences", rows);
    if (prompt < 1 || context < prompt || context > config->positions)
        return tx_fail(TX_INVALID,
                       "a prompt of %" PRId64 " tokens and %" PRId64 " new ones: the model has %" PRId64
                       " positions; shorten the prompt or request fewer new ones",
                       prompt, context - prompt, config->positions);
    tx_decoder *made = calloc(1, sizeof *made);
    if (!made)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    made->config = config;
    made->rows = rows;
    made->pairs = tx_arch_pairs(config);
    made->vocab = config->vocab_size;
    made->padded = tx_arch_padded_vocab(config);
    made->capacity = round_up(context, config->positions);
    tx_status status = prepare(made, model, config, prompt, beams);
    return TX_RETURN(status, made, decoder, tx_decoder_free);
}

static void release(stage *s)
{
    tx_plan_free(s->plan);
    tx_graph_free(s->graph);
}

void tx_decoder_free(tx_decoder *decoder)
{
    if (!decoder)
        return;
    release(&decoder->decode);
    release(&decoder->prefill);
    free(decoder->tokens);
    free(decoder->rates);
    free(decoder->count);
    free(decoder->held);
    free(decoder->positions);
    free(decoder->last);
    free(decoder->same);
    free(decoder->logits);
    free(decoder->read);
    free(decoder);
}

/* Runs a stage on d->tokens, d->positions and d->last. */
static tx_status run(tx_decoder *d, const stage *s, const int32_t *sources, float *logits)
{
    const size_t bytes = (size_t)d->rows * sizeof(int32_t);
    TX_TRY(tx_plan_write(s->plan, s->tokens, d->tokens, (size_t)s->length * bytes));
    TX_TRY(tx_plan_write(s->plan, s->positions, d->positions, bytes));
    TX_TRY(tx_plan_write(s->plan, s->rows, d->last, bytes));
    if (s->rates)
        TX_TRY(tx_plan_write(s->plan, s->rates, d->rates, (size_t)(d->rows * d->pairs) * sizeof *d->rates));
    if (s->sources)
        TX_TRY(tx_plan_write(s->plan, s->sources, sources ? sources : d->same, bytes));
    TX_TRY(tx_plan_run(s->plan));
    return tx_plan_read(s->plan, s->logits, logits, (size_t)(d->rows * d->padded) * sizeof *logits);
}

/* ---- Rotary frequencies that depend on the length ------------------------------------------------------------- */

/* Sets the frequencies of a row for a text of `length` tokens. Returns true if they change. */
static bool set_rates(tx_decoder *d, int64_t r, int64_t length)
{
    return tx_arch_set_rates(d->config, length, d->rates + r * d->pairs);
}

/* Sets the frequencies of all rows for their prompts. Returns true if some keys in the caches have others. */
static bool set_prompt_rates(tx_decoder *d, const tx_prompt *prompts)
{
    bool changes = false;
    for (int64_t r = 0; r < d->rows; r++) {
        changes = set_rates(d, r, 1) || changes;
        changes = set_rates(d, r, prompts[r].count) || changes;
    }
    return changes;
}

/* Length of the longest prefix that all rows have in common with their caches. The last token of a prompt is always
 * computed, because its logits are needed. */
static int64_t common_prefix(const tx_decoder *d, const tx_prompt *prompts)
{
    int64_t held = d->capacity;
    for (int64_t r = 0; r < d->rows; r++) {
        const int64_t most = d->count[r] < prompts[r].count ? d->count[r] : prompts[r].count - 1;
        int64_t same = 0;
        while (same < most && d->held[r * d->capacity + same] == prompts[r].ids[same])
            same++;
        held = same < held ? same : held;
    }
    return held;
}

/* Computes a chunk of tokens from `first` on. If the caches end there, the last chunk starts earlier; tokens that are
 * computed again give the same result. Padding after a prompt fills positions of the cache, which later tokens
 * overwrite before any query attends to them. */
static tx_status prefill_chunk(tx_decoder *d, const tx_prompt *prompts, int64_t first)
{
    const int64_t length = d->prefill.length;
    const int64_t at = first < d->capacity - length ? first : d->capacity - length;
    for (int64_t r = 0; r < d->rows; r++) {
        const tx_prompt *p = &prompts[r];
        for (int64_t t = 0; t < length; t++)
            d->tokens[r * length + t] = at + t < p->count ? p->ids[at + t] : 0;
        const int64_t end = p->count - 1 - at; /* last token of the prompt, relative to the chunk */
        d->positions[r] = (int32_t)at;
        d->last[r] = (int32_t)(r * length + (end < 0 ? 0 : end < length ? end : length - 1));
    }
    TX_TRY(run(d, &d->prefill, NULL, d->read));
    for (int64_t r = 0; r < d->rows; r++)
        if (prompts[r].count > first && prompts[r].count <= first + length)
            memcpy(d->logits + r * d->padded, d->read + r * d->padded, (size_t)d->padded * sizeof *d->logits);
    return TX_OK;
}

static tx_status check_prompts(const tx_decoder *d, const tx_prompt *prompts)
{
    for (int64_t r = 0; r < d->rows; r++) {
        if (prompts[r].count < 1 || prompts[r].count > d->capacity)
            return tx_fail(TX_INVALID, "a prompt of %" PRId64 " tokens; compiled for 1 to %" PRId64, prompts[r].count,
                           d->capacity);
        TX_TRY(tx_check_ids(prompts[r].ids, prompts[r].count, d->vocab));
    }
    return TX_OK;
}

tx_status tx_decoder_start(tx_decoder *decoder, const tx_prompt *prompts, bool keep)
{
    tx_decoder *d = decoder;
    int64_t longest = 0;
    TX_TRY(check_prompts(d, prompts));
    const int64_t held = !set_prompt_rates(d, prompts) && keep ? common_prefix(d, prompts) : 0;
    for (int64_t r = 0; r < d->rows; r++) {
        longest = prompts[r].count > longest ? prompts[r].count : longest;
        d->count[r] = 0; /* after a failure the caches are invalid */
    }
    for (int64_t first = held; first < longest; first += d->prefill.length)
        TX_TRY(prefill_chunk(d, prompts, first));
    for (int64_t r = 0; r < d->rows; r++) {
        d->count[r] = (int32_t)prompts[r].count;
        d->last[r] = (int32_t)r;
        memmove(d->held + r * d->capacity, prompts[r].ids, (size_t)prompts[r].count * sizeof *d->held);
    }
    return TX_OK;
}

/* Exchanges the rows' tokens as beam search exchanges their caches. */
static tx_status exchange_held(tx_decoder *d, const int32_t *sources)
{
    const size_t row = (size_t)d->capacity, bytes = (size_t)d->rows * row * sizeof *d->held;
    int32_t *old = malloc(bytes);
    if (!old)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    memcpy(old, d->held, bytes);
    for (int64_t r = 0; r < d->rows; r++)
        memcpy(d->held + (size_t)r * row, old + (size_t)sources[r] * row, row * sizeof *old);
    free(old);
    return TX_OK;
}

/* Sets the frequencies of the rows that get a token. Returns true if the caches must be computed again. */
static bool set_step_rates(tx_decoder *d, const int32_t *tokens)
{
    bool changes = false;
    for (int64_t r = 0; r < d->rows; r++)
        changes = (tokens[r] >= 0 && set_rates(d, r, d->count[r] + 1)) || changes;
    return changes && d->config->architecture->restarts;
}

/* Computes all rows and their new tokens as prompts. */
static tx_status restart(tx_decoder *d, const int32_t *tokens)
{
    tx_prompt *prompts = calloc((size_t)d->rows, sizeof *prompts);
    if (!prompts)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    for (int64_t r = 0; r < d->rows; r++) {
        int32_t *held = d->held + r * d->capacity;
        if (tokens[r] >= 0)
            held[d->count[r]] = tokens[r];
        prompts[r] = (tx_prompt){held, d->count[r] + (tokens[r] >= 0)};
    }
    const tx_status status = tx_decoder_start(d, prompts, false);
    free(prompts);
    return status;
}

tx_status tx_decoder_step(tx_decoder *decoder, const int32_t *tokens, const int32_t *sources)
{
    tx_decoder *d = decoder;
    if (sources && d->pairs && d->config->architecture->restarts)
        TX_TRY(exchange_held(d, sources));
    for (int64_t r = 0; r < d->rows; r++) {
        if (tokens[r] >= 0 && d->count[r] >= d->capacity)
            return tx_fail(TX_INVALID, "generate: the cache of row %" PRId64 " is full", r);
        d->tokens[r] = tokens[r] >= 0 ? tokens[r] : 0;
        d->positions[r] =
            d->count[r] < d->capacity ? d->count[r] : (int32_t)d->capacity - 1; /* a full row gets no token */
    }
    if (set_step_rates(d, tokens))
        return restart(d, tokens);
    tx_status status = run(d, &d->decode, sources, d->logits);
    for (int64_t r = 0; r < d->rows; r++)
        if (tokens[r] >= 0)
            d->held[r * d->capacity + d->count[r]++] = tokens[r];
    return status;
}

const float *tx_decoder_logits(const tx_decoder *decoder, int64_t row)
{
    return decoder->logits + row * decoder->padded;
}

int64_t tx_decoder_vocab(const tx_decoder *decoder)
{
    return decoder->vocab;
}
