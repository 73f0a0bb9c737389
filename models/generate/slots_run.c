/* SPDX-License-Identifier: Apache-2.0
 * Runs the plans of slots. If ranks divide the model, rank 0 may lead: before each run it broadcasts the inputs to the
 * ranks that follow. The message has one size for all plans, so that a run costs one broadcast. */
#include "models/generate/slots_plans.h"

#include "api/base/arithmetic.h"
#include "comm/watch.h"
#include "models/lora/bank.h"

#include <stdlib.h>
#include <string.h>

/* The first element of a message, the kind, and the number of elements before the inputs. The second one is the number
 * of the plan, for copies whether they are those of the keeper, or the place of an adapter. */
enum { END, IDLE, RUN, COPY, LOAD, HEAD = 2 };

/* ---- Messages ------------------------------------------------------------------------------------------- */

/* The plan of a number, which counts through all kinds; NULL if there is none. */
static const tx_slots_pass *pass_of(const tx_slots *s, int32_t number)
{
    const tx_slots_passes *const kinds[] = {&s->decode, &s->prefill, &s->score, &s->start};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && number >= 0; number -= kinds[k++]->count)
        if (number < kinds[k]->count)
            return &kinds[k]->pass[number];
    return NULL;
}

/* Elements of the inputs of a plan. */
static int64_t inputs_of(const tx_slots *s, const tx_slots_pass *p)
{
    return p->rows * (4 + p->length + s->pairs) + p->outputs;
}

/* Copies arrays to the message, or from it. */
static void copy_arrays(tx_slots *s, void *const *array, const int64_t *count, size_t arrays, bool out)
{
    int32_t *at = s->message + HEAD;
    for (size_t i = 0; i < arrays; at += count[i++])
        memcpy(out ? at : array[i], out ? array[i] : at, (size_t)count[i] * sizeof *at);
}

/* The inputs of a plan. */
static void copy_inputs(tx_slots *s, const tx_slots_pass *p, bool out)
{
    void *const array[] = {s->rows, s->positions, s->counts, s->row_places, s->chosen, s->tokens, s->row_rates};
    const int64_t count[] = {p->rows, p->rows, p->rows, p->rows, p->outputs, p->rows * p->length, p->rows * s->pairs};
    copy_arrays(s, array, count, sizeof array / sizeof *array, out);
}

/* The inputs of a copier. */
static void copy_copies(tx_slots *s, bool out)
{
    void *const array[] = {s->rows, s->positions, s->states};
    const int64_t count[] = {s->count, s->count, s->count + s->spare};
    copy_arrays(s, array, count, sizeof array / sizeof *array, out);
}

static tx_status broadcast(tx_slots *s)
{
    tx_watchdog_alive(s->watch, NULL);
    return tx_comm_collect(s->ranks, TX_BROADCAST, s->message, s->message_size, TX_I32, 0);
}

/* Sends a message of rank 0, whose inputs have been copied. */
static tx_status send(tx_slots *s, int32_t kind, int32_t number)
{
    if (s->ranks->rank > 0)
        return tx_fail(TX_INVALID, "only rank 0 computes steps: call tx_batch_follow on the others");
    s->message[0] = kind;
    s->message[1] = number;
    return broadcast(s);
}

tx_status tx_slots_lead(tx_slots *slots, struct tx_watchdog *watch)
{
    tx_slots *s = slots;
    int64_t most = 3 * s->count + s->spare; /* of copies */
    const tx_slots_pass *p;
    for (int32_t n = 0; (p = pass_of(s, n)) != NULL; n++)
        most = tx_max(most, inputs_of(s, p));
    s->message_size = HEAD + most;
    s->message = calloc((size_t)s->message_size, sizeof *s->message);
    s->watch = watch;
    return s->message ? TX_OK : tx_fail(TX_MEMORY, "generate: out of memory");
}

tx_status tx_slots_idle(tx_slots *slots)
{
    return slots->message ? send(slots, IDLE, 0) : TX_OK;
}

tx_status tx_slots_dismiss(tx_slots *slots)
{
    return slots->message ? send(slots, END, 0) : TX_OK;
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

static tx_status write_spans(tx_slots *s, const tx_slots_pass *p)
{
    for (int64_t i = 0; i < p->rows && p->spans; i++) {
        s->spans[3 * i] = s->rows[i];
        s->spans[3 * i + 1] = s->positions[i];
        s->spans[3 * i + 2] = s->counts[i];
    }
    return p->spans ? tx_plan_write(p->plan, p->spans, s->spans, (size_t)p->rows * 3 * sizeof *s->spans) : TX_OK;
}

/* Runs a plan on the inputs in `s`, on this rank and together with the others. */
static tx_status compute(tx_slots *s, const tx_slots_pass *p, const int32_t *sources)
{
    const size_t rows = (size_t)p->rows * sizeof(int32_t);
    if (p->rates)
        TX_TRY(tx_plan_write(p->plan, p->rates, s->row_rates, (size_t)(p->rows * s->pairs) * sizeof *s->row_rates));
    TX_TRY(write_spans(s, p));
    if (s->config->bank)
        TX_TRY(tx_lora_bank_choose(s->config->bank, p->plan, p->mask, p->rows, p->length, s->row_places, s->masks));
    TX_TRY(tx_plan_write(p->plan, p->tokens, s->tokens, (size_t)p->length * rows));
    TX_TRY(tx_plan_write(p->plan, p->positions, s->positions, rows));
    if (p->slots)
        TX_TRY(tx_plan_write(p->plan, p->slots, s->rows, rows));
    if (p->sources)
        TX_TRY(tx_plan_write(p->plan, p->sources, sources ? sources : s->rows, rows));
    TX_TRY(tx_plan_write(p->plan, p->chosen, s->chosen, (size_t)p->outputs * sizeof(int32_t)));
    TX_TRY(tx_source_write(s->source, p->plan, s->positions));
    TX_TRY(tx_plan_run(p->plan));
    return s->ranks ? tx_slots_gather(s->ranks, p->plan, p->logits, p->outputs, s->vocab, s->padded, s->read)
                    : tx_plan_read(p->plan, p->logits, s->read, (size_t)(p->outputs * s->padded) * sizeof *s->read);
}

tx_status tx_slots_run(tx_slots *slots, const tx_slots_pass *pass, const int32_t *sources)
{
    tx_slots *s = slots;
    int32_t number = 0;
    for (int64_t i = 0; i < pass->rows && s->pairs; i++)
        memcpy(s->row_rates + i * s->pairs, s->rates + s->rows[i] * s->pairs, (size_t)s->pairs * sizeof *s->rates);
    for (int64_t i = 0; i < pass->rows; i++)
        s->row_places[i] = s->place[s->rows[i]];
    while (s->message && pass_of(s, number) != pass)
        number++;
    if (s->message) {
        copy_inputs(s, pass, true);
        TX_TRY(send(s, RUN, number));
    }
    return compute(s, pass, sources);
}

/* Runs a copier on the inputs in `s`. */
static tx_status copy(tx_slots *s, const tx_slots_copier *c)
{
    const size_t slots = (size_t)s->count * sizeof(int32_t), states = (size_t)s->spare * sizeof(int32_t) + slots;
    if (c->sources) {
        TX_TRY(tx_plan_write(c->plan, c->sources, s->rows, slots));
        TX_TRY(tx_plan_write(c->plan, c->positions, s->positions, slots));
    }
    if (c->states)
        TX_TRY(tx_plan_write(c->plan, c->states, s->states, states));
    return tx_plan_run(c->plan);
}

tx_status tx_slots_run_copies(tx_slots *slots, const tx_slots_copier *copier)
{
    if (slots->message) {
        copy_copies(slots, true);
        TX_TRY(send(slots, COPY, copier == &slots->keeper));
    }
    return copy(slots, copier);
}

tx_status tx_slots_load(tx_slots *slots, int64_t place, const tx_adapter *adapter)
{
    const tx_slots *s = slots;
    TX_TRY(tx_lora_bank_check(s->config->bank, adapter));
    if (s->message)
        TX_TRY(send(slots, LOAD, (int32_t)place));
    return tx_lora_bank_write(s->config->bank, s->config, s->model, place, adapter, s->message ? s->ranks : NULL);
}

tx_status tx_slots_follow(tx_slots *slots)
{
    tx_slots *s = slots;
    for (;;) {
        TX_TRY(broadcast(s));
        const int32_t kind = s->message[0];
        const tx_slots_pass *p = kind == RUN ? pass_of(s, s->message[1]) : NULL;
        if (kind == END)
            return TX_OK;
        if (kind == RUN && !p)
            return tx_fail(TX_INVALID, "rank 0 has other plans than rank %d: start all ranks with the same options",
                           (int)s->ranks->rank);
        if (kind == LOAD)
            TX_TRY(tx_lora_bank_write(s->config->bank, s->config, s->model, s->message[1], NULL, s->ranks));
        if (kind == COPY)
            copy_copies(s, false);
        else if (p)
            copy_inputs(s, p, false);
        TX_TRY(kind == COPY ? copy(s, s->message[1] ? &s->keeper : &s->copier) : p ? compute(s, p, NULL) : TX_OK);
    }
}
