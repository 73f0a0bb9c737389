/* SPDX-License-Identifier: Apache-2.0
 * Decodes sequences that come and go, each in a slot of KV caches that all plans share. */
#include "models/generate/slots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of plans grow by this factor: 1, 4, 16 .. rows of decode plans, and tokens of prefill plans. */
#define GROWTH 4
#define PREFILL_LEAST 16
#define PREFILL_MOST 256
/* Tokens of a prompt whose logits are all computed at once. */
#define SCORED 64
#define PASSES 16

/* A plan for `length` tokens of each of `rows` slots. It returns `outputs` rows of logits. */
typedef struct pass {
    tx_graph *graph;
    tx_tensor *tokens, *positions, *slots, *rates, *chosen, *logits;
    tx_plan *plan;
    int64_t rows, length, outputs;
} pass;

/* The first plan of each kind is the smallest. */
typedef struct passes {
    pass pass[PASSES];
    int32_t count;
} passes;

struct tx_slots {
    passes prefill, decode, score; /* one plan in `score` */
    int64_t count, context, vocab, padded;
    int32_t *filled; /* of each slot: number of tokens in its cache */
    const tx_config *config;
    /* Rotary frequencies that depend on the length (tx_architecture.rates): their number or 0, those of each slot,
     * those of a plan's rows, and whether the keys in a slot have different ones. */
    int64_t pairs;
    float *rates, *row_rates;
    bool *mixed;
    bool *stepped;                               /* scratch of a step: the slots that get a token */
    int32_t *tokens, *positions, *rows, *chosen; /* inputs */
    float *logits, *read;                        /* [count, padded]; output of a plan */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Plans ---------------------------------------------------------------------------------------------- */

static tx_status add_pass(tx_slots *s, tx_model *model, const tx_config *config, passes *to, const char *name,
                          const pass *sizes)
{
    if (to->count == PASSES)
        return tx_fail(TX_UNSUPPORTED, "generate: %" PRId64 " slots are too many", s->count);
    pass *p = &to->pass[to->count++];
    *p = *sizes;
    TX_TRY(tx_graph_create(model, &p->graph));
    p->tokens = tx_input(p->graph, "input_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->positions = tx_input(p->graph, "positions", TX_I32, TX_SHAPE(p->rows));
    p->slots = tx_input(p->graph, "slots", TX_I32, TX_SHAPE(p->rows));
    p->rates = s->pairs ? tx_input(p->graph, "rope_rates", TX_F32, TX_SHAPE(p->rows, s->pairs)) : NULL;
    p->chosen = tx_input(p->graph, "rows", TX_I32, TX_SHAPE(p->outputs));
    const tx_arch_options options = {.size = sizeof options, .cache = s->context, .cache_rows = s->count};
    p->logits = tx_output(tx_arch_logits(p->graph, config, &options));
    return tx_plan_create(p->graph, name, &p->plan);
}

static tx_status add_passes(tx_slots *s, tx_model *model, const tx_config *config)
{
    const int64_t longest = least(PREFILL_MOST, s->context);
    for (int64_t n = 1;; n = least(n * GROWTH, s->count)) {
        TX_TRY(add_pass(s, model, config, &s->decode, "decode", &(pass){.rows = n, .length = 1, .outputs = n}));
        if (n == s->count)
            break;
    }
    for (int64_t n = least(PREFILL_LEAST, longest);; n = least(n * GROWTH, longest)) {
        TX_TRY(add_pass(s, model, config, &s->prefill, "prefill", &(pass){.rows = 1, .length = n, .outputs = 1}));
        if (n == longest)
            break;
    }
    const int64_t scored = least(SCORED, s->context);
    return add_pass(s, model, config, &s->score, "score", &(pass){.rows = 1, .length = scored, .outputs = scored});
}

tx_status tx_slots_create(tx_model *model, const tx_config *config, int64_t count, int64_t context, tx_slots **slots)
{
    if (count < 1 || count > INT32_MAX / PREFILL_MOST || context < 1 || context > config->positions)
        return tx_fail(TX_INVALID,
                       "generate: %" PRId64 " slots of %" PRId64 " tokens; the model has %" PRId64 " positions", count,
                       context, config->positions);
    tx_slots *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    s->count = count;
    s->context = context;
    s->config = config;
    s->pairs = tx_arch_pairs(config);
    s->vocab = config->vocab_size;
    s->padded = tx_arch_padded_vocab(config);
    const size_t most = (size_t)(count > PREFILL_MOST ? count : PREFILL_MOST);
    const size_t outputs = (size_t)(count > SCORED ? count : SCORED);
    s->filled = calloc((size_t)count, sizeof *s->filled);
    s->stepped = calloc((size_t)count, sizeof *s->stepped);
    s->rates = calloc((size_t)(count * (s->pairs + 1)), sizeof *s->rates);
    s->row_rates = calloc((size_t)(count * (s->pairs + 1)), sizeof *s->row_rates);
    s->mixed = calloc((size_t)count, sizeof *s->mixed);
    s->tokens = calloc(most, sizeof *s->tokens);
    s->positions = calloc(most, sizeof *s->positions);
    s->rows = calloc(most, sizeof *s->rows);
    s->chosen = calloc(outputs, sizeof *s->chosen);
    s->logits = calloc((size_t)(count * s->padded), sizeof *s->logits);
    s->read = malloc(outputs * (size_t)s->padded * sizeof *s->read);
    tx_status status = TX_OK;
    if (!s->rates || !s->row_rates || !s->mixed || !s->filled || !s->stepped || !s->tokens || !s->positions ||
        !s->rows || !s->chosen || !s->logits || !s->read)
        status = tx_fail(TX_MEMORY, "generate: out of memory");
    TX_THEN(status, add_passes(s, model, config));
    return TX_RETURN(status, s, slots, tx_slots_free);
}

static void free_passes(passes *of)
{
    for (int32_t i = 0; i < of->count; i++) {
        tx_plan_free(of->pass[i].plan);
        tx_graph_free(of->pass[i].graph);
    }
    of->count = 0;
}

void tx_slots_free(tx_slots *slots)
{
    if (!slots)
        return;
    free_passes(&slots->decode);
    free_passes(&slots->prefill);
    free_passes(&slots->score);
    free(slots->filled);
    free(slots->rates);
    free(slots->row_rates);
    free(slots->mixed);
    free(slots->stepped);
    free(slots->tokens);
    free(slots->positions);
    free(slots->rows);
    free(slots->chosen);
    free(slots->logits);
    free(slots->read);
    free(slots);
}

/* Sets the frequencies of a slot for a text of `length` tokens. Returns true if they change. */
static bool set_rates(tx_slots *s, int64_t slot, int64_t length)
{
    return tx_arch_set_rates(s->config, length, s->rates + slot * s->pairs);
}

static tx_status write_rates(tx_slots *s, const pass *p)
{
    const size_t bytes = (size_t)s->pairs * sizeof *s->rates;
    for (int64_t i = 0; i < p->rows && s->pairs; i++)
        memcpy(s->row_rates + i * s->pairs, s->rates + s->rows[i] * s->pairs, bytes);
    return s->pairs ? tx_plan_write(p->plan, p->rates, s->row_rates, (size_t)p->rows * bytes) : TX_OK;
}

/* Runs a plan on the inputs in `s`. */
static tx_status run(tx_slots *s, const pass *p)
{
    const size_t rows = (size_t)p->rows * sizeof(int32_t);
    TX_TRY(write_rates(s, p));
    TX_TRY(tx_plan_write(p->plan, p->tokens, s->tokens, (size_t)p->length * rows));
    TX_TRY(tx_plan_write(p->plan, p->positions, s->positions, rows));
    TX_TRY(tx_plan_write(p->plan, p->slots, s->rows, rows));
    TX_TRY(tx_plan_write(p->plan, p->chosen, s->chosen, (size_t)p->outputs * sizeof(int32_t)));
    TX_TRY(tx_plan_run(p->plan));
    return tx_plan_read(p->plan, p->logits, s->read, (size_t)(p->outputs * s->padded) * sizeof *s->read);
}

/* ---- Prompts -------------------------------------------------------------------------------------------- */

/* The longest plan that the rest of a prompt fills, or else the shortest. */
static const pass *pass_for(const passes *of, int64_t left)
{
    int32_t i = of->count - 1;
    while (i > 0 && of->pass[i].length > left)
        i--;
    return &of->pass[i];
}

static void set_logits(tx_slots *s, int64_t slot, int64_t row)
{
    memcpy(s->logits + slot * s->padded, s->read + row * s->padded, (size_t)s->padded * sizeof *s->logits);
}

/* If the cache ends within a piece, the piece starts earlier; tokens that are computed again give the same result.
 * Padding after a prompt fills positions that later tokens overwrite before any query attends to them. */
tx_status tx_slots_prefill(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count, int64_t *first,
                           const float **all, int64_t *stride)
{
    tx_slots *s = slots;
    if (slot < 0 || slot >= s->count || *first < 0 || *first >= count || count > s->context)
        return tx_fail(TX_INVALID, "a prompt of %" PRId64 " tokens from %" PRId64 " on; a slot has 1 to %" PRId64,
                       count, *first, s->context);
    if (set_rates(s, slot, count) || s->mixed[slot]) /* keys with other frequencies are computed again */
        *first = 0;
    s->mixed[slot] = false;
    const pass *p = pass_for(all ? &s->score : &s->prefill, count - *first);
    const int64_t at = least(*first, s->context - p->length), end = least(count, at + p->length);
    for (int64_t t = 0; t < p->length; t++)
        s->tokens[t] = at + t < count ? ids[at + t] : 0;
    s->positions[0] = (int32_t)at;
    s->rows[0] = (int32_t)slot;
    for (int64_t i = 0; i < p->outputs; i++)
        s->chosen[i] = (int32_t)(p->outputs > 1 ? i : end - 1 - at);
    s->filled[slot] = 0; /* after a failure the cache is invalid */
    TX_TRY(run(s, p));
    s->filled[slot] = (int32_t)end;
    if (end == count)
        set_logits(s, slot, p->outputs > 1 ? end - 1 - at : 0);
    if (all) {
        *all = s->read + (*first - at) * s->padded;
        *stride = s->padded;
    }
    *first = end;
    return TX_OK;
}

/* ---- Steps ---------------------------------------------------------------------------------------------- */

/* Runs a decode plan. Its rows without a token compute one for other slots, at a position that their next token or
 * piece of a prompt overwrites. */
static tx_status step(tx_slots *s, const pass *p, const int32_t *slot, const int32_t *tokens, int64_t count)
{
    int64_t other = 0;
    memset(s->stepped, 0, (size_t)s->count * sizeof *s->stepped);
    for (int64_t i = 0; i < count; i++) {
        s->stepped[slot[i]] = true;
        s->mixed[slot[i]] = set_rates(s, slot[i], s->filled[slot[i]] + 1) || s->mixed[slot[i]];
    }
    for (int64_t i = 0; i < p->rows; i++) {
        for (; i >= count && s->stepped[other]; other++)
            ;
        s->rows[i] = i < count ? slot[i] : (int32_t)other++;
        s->tokens[i] = i < count ? tokens[i] : 0;
        s->positions[i] = (int32_t)least(s->filled[s->rows[i]], s->context - 1);
        s->chosen[i] = (int32_t)i;
    }
    TX_TRY(run(s, p));
    for (int64_t i = 0; i < count; i++) {
        s->filled[slot[i]]++;
        set_logits(s, slot[i], i);
    }
    return TX_OK;
}

tx_status tx_slots_step(tx_slots *slots, const int32_t *slot, const int32_t *tokens, int64_t count)
{
    int32_t i = 0;
    if (count < 1 || count > slots->count)
        return tx_fail(TX_INVALID, "generate: a step of %" PRId64 " of %" PRId64 " slots", count, slots->count);
    for (int64_t k = 0; k < count; k++)
        if (slots->filled[slot[k]] >= slots->context)
            return tx_fail(TX_INVALID, "generate: the cache of slot %" PRId32 " is full", slot[k]);
    while (slots->decode.pass[i].rows < count)
        i++;
    return step(slots, &slots->decode.pass[i], slot, tokens, count);
}

void tx_slots_clear(tx_slots *slots, int64_t slot)
{
    slots->filled[slot] = 0;
}

const float *tx_slots_logits(const tx_slots *slots, int64_t slot)
{
    return slots->logits + slot * slots->padded;
}

int64_t tx_slots_vocab(const tx_slots *slots)
{
    return slots->vocab;
}

int64_t tx_slots_context(const tx_slots *slots)
{
    return slots->context;
}

/* ---- Proof of equal bits -------------------------------------------------------------------------------- */

/* Steps of the test, at most the context. */
#define PROOF_STEPS 3

/* Computes the same tokens in all rows of a plan, and compares all their logits with those in `want`. Writes those of
 * the first row there if `first`. */
static tx_status compare(tx_slots *s, const pass *p, bool first, float *want, bool *equal)
{
    int32_t *slot = malloc(2 * (size_t)p->rows * sizeof *slot), *tokens = slot ? slot + p->rows : NULL;
    if (!slot)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    tx_status status = TX_OK;
    *equal = true;
    memset(s->filled, 0, (size_t)s->count * sizeof *s->filled);
    for (int64_t t = 0; t < least(PROOF_STEPS, s->context) && !status; t++, want += s->vocab) {
        for (int64_t i = 0; i < p->rows; i++) {
            slot[i] = (int32_t)i;
            tokens[i] = (int32_t)((t + 1) * s->vocab / (PROOF_STEPS + 1));
        }
        status = step(s, p, slot, tokens, p->rows);
        if (first && !status)
            memcpy(want, s->logits, (size_t)s->vocab * sizeof *want);
        for (int64_t i = 0; i < p->rows && !status; i++)
            *equal = *equal && memcmp(want, tx_slots_logits(s, i), (size_t)s->vocab * sizeof *want) == 0;
    }
    free(slot);
    memset(s->filled, 0, (size_t)s->count * sizeof *s->filled);
    return status;
}

tx_status tx_slots_prove(tx_slots *slots)
{
    passes *of = &slots->decode;
    float *want = malloc(PROOF_STEPS * (size_t)slots->vocab * sizeof *want);
    bool equal;
    tx_status status = want ? TX_OK : tx_fail(TX_MEMORY, "generate: out of memory");
    const int32_t last = of->count - 1;
    TX_THEN(status, compare(slots, &of->pass[last], true, want, &equal));
    int32_t kept = 0;
    for (int32_t i = 0; i < last && !status; i++) {
        status = compare(slots, &of->pass[i], false, want, &equal);
        if (!status && equal) {
            const pass moved = of->pass[kept];
            of->pass[kept++] = of->pass[i];
            of->pass[i] = moved;
        }
    }
    if (!status && kept < last) { /* the largest plan follows those that are kept; the others are freed */
        const pass largest = of->pass[last];
        of->pass[last] = of->pass[kept];
        of->pass[kept] = largest;
        for (int32_t i = kept + 1; i <= last; i++) {
            tx_plan_free(of->pass[i].plan);
            tx_graph_free(of->pass[i].graph);
        }
        of->count = kept + 1;
    }
    free(want);
    return status;
}
