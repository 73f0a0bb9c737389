/* SPDX-License-Identifier: Apache-2.0
 * Compiles the plans of slots: pieces of prompts, and a token of some slots. */
#include "models/generate/slots_plans.h"

#include "api/base/arithmetic.h"
#include "models/lora/bank.h"

#include <inttypes.h>
#include <stdlib.h>

/* Sizes of plans grow by this factor: 1, 4, 16 .. rows of decode plans, and tokens of prefill plans. */
#define GROWTH 4
#define PREFILL_LEAST 16
#define PREFILL_MOST 256
/* Tokens of padding that take less time than another plan, which reads all weights again. Not on the cpu, where time
 * grows with the rows, except for weights in blocks: there 64 rows take as long as 32. */
#define PADDING 31
/* Tokens of a prompt whose logits are all computed at once. */
#define SCORED 64
/* Capacities of caches, and lengths of prompts, are multiples of this, so that few programs are compiled. */
#define UNIT 32
#define WHOLE (1 << 30) /* rows of a state, which are no positions */

static int64_t round_up(int64_t value, int64_t most)
{
    return tx_min(tx_round_up(value, UNIT), most);
}

/* ---- Plans ---------------------------------------------------------------------------------------------- */

/* A plan that always computes all slots has no input that names them. */
static tx_status add_pass(tx_slots *s, tx_model *model, tx_slots_passes *to, const char *name,
                          const tx_slots_pass *sizes)
{
    if (to->count == TX_SLOTS_PASSES)
        return tx_fail(TX_UNSUPPORTED, "generate: %" PRId64 " slots are too many", s->count);
    tx_slots_pass *p = &to->pass[to->count++];
    *p = *sizes;
    const int64_t rows = !s->varied && p->rows == s->count ? 0 : s->count; /* 0 for all */
    TX_TRY(tx_lora_graph(model, s->config, s->autocast, &p->graph));
    p->tokens = tx_input(p->graph, "input_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->positions = tx_input(p->graph, "positions", TX_I32, TX_SHAPE(p->rows));
    p->slots = rows ? tx_input(p->graph, "slots", TX_I32, TX_SHAPE(p->rows)) : NULL;
    p->spans = s->recurs ? tx_input(p->graph, "spans", TX_I32, TX_SHAPE(p->rows, 3)) : NULL;
    p->sources = s->beams > 1 && to == &s->decode ? tx_input(p->graph, "sources", TX_I32, TX_SHAPE(p->rows)) : NULL;
    p->rates = s->pairs ? tx_input(p->graph, "rope_rates", TX_F32, TX_SHAPE(p->rows, s->pairs)) : NULL;
    p->chosen = tx_input(p->graph, "rows", TX_I32, TX_SHAPE(p->outputs));
    tx_source_inputs(s->source, p->graph);
    if (s->config->bank)
        tx_lora_bank_inputs(s->config->bank, p->graph, p->rows, p->length, p->mask);
    const tx_arch_options options = {sizeof options, .cache = s->context, .cache_rows = rows, .spare_states = s->spare,
                                     .cache_q8_0 = s->q8_0};
    p->logits = tx_arch_logits(p->graph, s->config, &options);
    if (s->ranks && p->logits)
        TX_TRY(tx_slots_divide(s->config, &p->logits));
    tx_output(p->logits);
    return tx_plan_create(p->graph, name, &p->plan);
}

/* Plans for prompts of varied lengths and any number of slots. */
static tx_status add_varied(tx_slots *s, tx_model *model, bool dense)
{
    const int64_t growth = dense ? 2 : GROWTH;
    const int64_t longest = tx_min(PREFILL_MOST, s->context), scored = tx_min(SCORED, s->context);
    for (int64_t n = 1;; n = tx_min(n * growth, s->count)) {
        TX_TRY(add_pass(s, model, &s->decode, "decode", &(tx_slots_pass){.rows = n, .length = 1, .outputs = n}));
        if (n == s->count)
            break;
    }
    s->prefill.padding = dense && !s->config->blocks ? 0 : PADDING;
    for (int64_t n = tx_min(PREFILL_LEAST, longest);; n = tx_min(n * GROWTH, longest)) {
        TX_TRY(add_pass(s, model, &s->prefill, "prefill", &(tx_slots_pass){.rows = 1, .length = n, .outputs = 1}));
        if (n == longest)
            break;
    }
    return add_pass(s, model, &s->score, "score", &(tx_slots_pass){.rows = 1, .length = scored, .outputs = scored});
}

/* The tokens of a piece of prompts. Pieces of recurrent layers cannot overlap, so that all of them must fit. */
static int64_t piece_length(const tx_slots *s, int64_t prompt)
{
    int64_t pieces = tx_ceil_div(prompt, PREFILL_MOST), length = round_up(tx_min(prompt, PREFILL_MOST), s->context);
    while (s->recurs && length > UNIT && length * tx_ceil_div(prompt, length) > s->context)
        length = round_up(tx_ceil_div(prompt, ++pieces), s->context);
    return length;
}

static tx_status add_passes(tx_slots *s, tx_model *model, const tx_slots_options *o)
{
    const int64_t prompt = o->prompt, draft_tokens = tx_min(o->draft_tokens, s->context - 1);
    const int64_t length = piece_length(s, prompt), n = s->count;
    if (s->config->architecture->head == TX_HEAD_SEQ2SEQ) {
        TX_TRY(prompt ? TX_OK : tx_fail(TX_UNSUPPORTED, "%s is not served", s->config->architecture->class_name));
        TX_TRY(tx_source_create(model, s->config, n, s->beams, s->context, &s->source));
        return add_pass(s, model, &s->decode, "decode", &(tx_slots_pass){.rows = n, .length = 1, .outputs = n});
    }
    if (!prompt)
        return add_varied(s, model, o->dense);
    TX_TRY(add_pass(s, model, &s->decode, "decode", &(tx_slots_pass){.rows = n, .length = 1, .outputs = n}));
    TX_TRY(add_pass(s, model, &s->prefill, "prefill", &(tx_slots_pass){.rows = 1, .length = length, .outputs = 1}));
    if (draft_tokens > 0)
        TX_TRY(add_pass(s, model, &s->score, "guess",
                        &(tx_slots_pass){.rows = 1, .length = draft_tokens + 1, .outputs = draft_tokens + 1}));
    return n == 1 ? TX_OK
                  : add_pass(s, model, &s->start, "start", &(tx_slots_pass){.rows = n, .length = length, .outputs = n});
}

/* Compiles copies between slots, after the plans that declare the caches and states. */
static tx_status add_copier(tx_slots *s, tx_model *model, bool caches, tx_slots_copier *copier)
{
    tx_slots_copier *c = copier;
    const tx_shape rows = TX_SHAPE(s->count + s->spare);
    TX_TRY(tx_graph_create(model, &c->graph));
    if (caches) {
        c->sources = tx_input(c->graph, "sources", TX_I32, TX_SHAPE(s->count));
        c->positions = tx_input(c->graph, "positions", TX_I32, TX_SHAPE(s->count));
        TX_TRY(tx_caches_reorder(c->graph, "cache.", c->sources, c->positions));
    }
    if (s->recurs) {
        c->states = tx_input(c->graph, "states", TX_I32, rows);
        TX_TRY(tx_caches_reorder(c->graph, TX_ARCH_STATES, c->states, tx_range(c->graph, rows, WHOLE, 0)));
    }
    return tx_plan_create(c->graph, "copy", &c->plan);
}

/* X(array, its number of elements) */
#define ARRAYS(X)                               \
    X(filled, count)                            \
    X(held, count *(size_t)s->context)          \
    X(piece, count *(size_t)s->context)         \
    X(new, count)                               \
    X(rates, count *(size_t)(s->pairs + 1))     \
    X(row_rates, count *(size_t)(s->pairs + 1)) \
    X(mixed, count)                             \
    X(adapter, count)                           \
    X(place, count)                             \
    X(row_places, count)                        \
    X(masks, most *mask + 1)                    \
    X(tokens, most)                             \
    X(positions, count)                         \
    X(rows, count)                              \
    X(counts, count)                            \
    X(spans, 3 * count)                         \
    X(states, count + (size_t)s->spare)         \
    X(marked_ids, (size_t)s->context + 1)       \
    X(kept, count)                              \
    X(chosen, outputs)                          \
    X(logits, count *(size_t)s->padded)         \
    X(read, outputs *(size_t)s->padded)

static tx_status allocate(tx_slots *s, int64_t prompt)
{
    const int64_t length = tx_min(PREFILL_MOST, s->context);
    const size_t count = (size_t)s->count, most = (size_t)(s->count * (prompt ? length : 1) + length);
    const size_t outputs = (size_t)(s->count > SCORED ? s->count : SCORED);
    const size_t mask = s->config->bank ? (size_t)tx_lora_bank_most(s->config->bank) : 0;
    bool full = true;
#define X(array, elements)                         \
    s->array = calloc(elements, sizeof *s->array); \
    full = full && s->array;
    ARRAYS(X)
#undef X
    for (size_t i = 0; i < count && full; i++)
        s->place[i] = -1;
    return full ? TX_OK : tx_fail(TX_MEMORY, "generate: out of memory");
}

tx_status tx_slots_create(tx_model *model, const tx_config *config, const tx_slots_options *options, tx_slots **slots)
{
    const tx_slots_options *o = options;
    char why[TX_ARCH_NAME];
    if (o->count < 1 || o->count > INT32_MAX / PREFILL_MOST)
        return tx_fail(TX_INVALID, "generate: a batch cannot have %" PRId64 " sequences", o->count);
    if (o->context < 1 || o->prompt > o->context || o->context > config->positions)
        return tx_fail(TX_INVALID,
                       "a prompt of %" PRId64 " tokens and %" PRId64 " new ones: the model has %" PRId64
                       " positions%s; shorten the prompt or request fewer new ones",
                       o->prompt, o->context - o->prompt, config->positions, tx_config_bound(config, why));
    tx_slots *s = calloc(1, sizeof *s);
    if (!s)
        return tx_fail(TX_MEMORY, "generate: out of memory");
    *s = (tx_slots){.count = o->count, .beams = o->beams, .varied = !o->prompt, .config = config, .q8_0 = o->q8_0};
    s->model = model;
    s->autocast = o->autocast;
    s->ranks = o->ranks;
    s->recurs = tx_arch_recurs(config);
    s->keeps = s->recurs && s->varied && !o->draft_tokens;
    s->spare = s->keeps ? s->count : s->recurs && o->draft_tokens > 0;
    s->context = round_up(o->context, config->positions);
    s->pairs = tx_arch_pairs(config);
    s->vocab = config->vocab_size;
    s->padded = tx_arch_padded_vocab(config);
    tx_status status = allocate(s, o->prompt);
    TX_THEN(status, add_passes(s, model, o));
    if (o->copies && s->count > 1)
        TX_THEN(status, add_copier(s, model, true, &s->copier));
    if (s->spare)
        TX_THEN(status, add_copier(s, model, false, &s->keeper));
    return TX_RETURN(status, s, slots, tx_slots_free);
}

void tx_slots_pass_free(const tx_slots_pass *pass)
{
    tx_plan_free(pass->plan);
    tx_graph_free(pass->graph);
}

static void free_passes(const tx_slots_passes *of)
{
    for (int32_t i = 0; i < of->count; i++)
        tx_slots_pass_free(&of->pass[i]);
}

static void free_copier(const tx_slots_copier *copier)
{
    tx_plan_free(copier->plan);
    tx_graph_free(copier->graph);
}

void tx_slots_free(tx_slots *slots)
{
    if (!slots)
        return;
    free_passes(&slots->decode);
    free_passes(&slots->prefill);
    free_passes(&slots->score);
    free_passes(&slots->start);
    free_copier(&slots->copier);
    free_copier(&slots->keeper);
    tx_source_free(slots->source);
    free(slots->message);
#define X(array, elements) free(slots->array);
    ARRAYS(X)
#undef X
    free(slots);
}
