/* SPDX-License-Identifier: Apache-2.0
 * Predicts the memory of each training configuration from plans. Nothing is allocated on the device. */
#include "tools/memory/txmem.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    int32_t whole, cheap;
} checkpointings[] = {
#define X(name, word, whole, cheap) {word, whole, cheap},
    TX_MEM_CHECKPOINTING_MAP(X)
#undef X
};
enum { CHECKPOINTINGS = sizeof checkpointings / sizeof checkpointings[0] };

static const struct {
    const char *word;
    tx_dtype autocast, stored;
    tx_mem_precision plans;
} precisions[TX_MEM_PRECISIONS] = {
#define X(name, word, autocast, stored, plans) {word, TX_##autocast, TX_##stored, TX_MEM_##plans},
    TX_MEM_PRECISION_MAP(X)
#undef X
};

static tx_optimizer_kind kind_of(int optimizer)
{
    tx_optimizer_kind kind = TX_SGD;
    tx_optimizer_word(optimizer, &kind);
    return kind;
}

static int optimizer_count(void)
{
    tx_optimizer_kind kind;
    int count = 0;
    while (tx_optimizer_word(count, &kind))
        count++;
    return count;
}

/* True if the optimizer supports the precision: only AdamW updates 16-bit weights. */
static bool supports(tx_mem_precision precision, int optimizer)
{
    const tx_optimizer_kind kind = kind_of(optimizer);
    return precisions[precision].stored == TX_F32 || kind == TX_ADAMW || kind == TX_ADAMW_ANYPRECISION;
}

uint32_t tx_mem_all_optimizers(void)
{
    const int count = optimizer_count();
    uint32_t set = 0, kinds = 0;
    for (int o = 0; o < count; o++) {
        const uint32_t kind = UINT32_C(1) << kind_of(o);
        set |= kinds & kind ? 0 : UINT32_C(1) << o;
        kinds |= kind;
    }
    return set;
}

static tx_status forecast_plan(const tx_mem_table *t, tx_mem_precision precision, int checkpointing, int optimizer,
                               int64_t batch, tx_forecast *forecast)
{
    const tx_forecast_options options = {.size = sizeof options,
                                         .rows = batch,
                                         .block = t->block,
                                         .autocast = precisions[precision].autocast,
                                         .stored = precisions[precision].stored,
                                         .whole = checkpointings[checkpointing].whole,
                                         .cheap = checkpointings[checkpointing].cheap,
                                         .kind = kind_of(optimizer),
                                         .offload = t->offload,
                                         .offload_params = t->offload_params,
                                         .zero_stage = t->zero_stage,
                                         .eval_rows = t->eval_rows,
                                         .writes = t->writes,
                                         .text = t->text,
                                         .beams = t->beams};
    return tx_forecaster_plan(t->forecaster, &options, forecast);
}

/* The forecasts of one precision, one checkpointing mode and the first optimizer of the table, by batch size. */
typedef struct forecasts {
    const tx_mem_table *table;
    tx_mem_precision precision;
    int checkpointing, first;
    bool fits[TX_MEM_BATCHES];
    tx_forecast of[TX_MEM_BATCHES];
} forecasts;

static tx_status first_forecast(forecasts *s, int b, tx_forecast *forecast)
{
    tx_status status =
        s->fits[b] ? TX_OK
                   : forecast_plan(s->table, s->precision, s->checkpointing, s->first, INT64_C(1) << b, &s->of[b]);
    s->fits[b] = !status;
    *forecast = s->of[b];
    return status;
}

/* True if only the optimizer states differ. Temporaries of the updates then fit in those of the smallest batch, and so
 * in those of any batch. */
static bool only_states_differ(const tx_memory *a, const tx_memory *b)
{
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (k != TX_MEMORY_OPTIMIZER && k != TX_MEMORY_OFFLOADED && a->bytes[k] != b->bytes[k])
            return false;
    return true;
}

static tx_status fill_row(forecasts *s, int optimizer, tx_mem_row *row)
{
    const tx_mem_table *t = s->table;
    tx_forecast own, forecast;
    tx_status status = first_forecast(s, 0, &forecast);
    TX_THEN(status, forecast_plan(t, s->precision, s->checkpointing, optimizer, 1, &own));
    const bool shares_plans = !status && only_states_differ(&own.memory, &forecast.memory);
    bool fits = true;
    for (int b = 0; b < TX_MEM_BATCHES && fits && !status; b++) {
        status = shares_plans ? first_forecast(s, b, &forecast)
                              : forecast_plan(t, s->precision, s->checkpointing, optimizer, INT64_C(1) << b, &forecast);
        if (status)
            break;
        forecast.memory.bytes[TX_MEMORY_OPTIMIZER] = own.memory.bytes[TX_MEMORY_OPTIMIZER];
        forecast.memory.bytes[TX_MEMORY_OFFLOADED] = own.memory.bytes[TX_MEMORY_OFFLOADED];
        row->memory[b] = forecast.memory;
        row->batches = b + 1;
        fits = tx_memory_total(&forecast.memory) <= t->memory;
    }
    /* The plan failed because one tensor exceeds the device's largest allocation. Larger batches do not fit then. If
     * not even one row fits, although t->memory is larger, the device is too small for this table, which is an error.
     */
    const bool large = row->batches > 0 || tx_forecaster_device(t->forecaster)->max_allocation >= t->memory;
    return status == TX_MEMORY && large ? TX_OK : status;
}

static bool has_row(const tx_mem_table *t, tx_mem_precision precision, int optimizer)
{
    return t->optimizers & (UINT32_C(1) << optimizer) && supports(precision, optimizer);
}

static int first_optimizer(const tx_mem_table *t, tx_mem_precision precision)
{
    const int last = optimizer_count() - 1;
    int o = 0;
    while (o < last && !has_row(t, precision, o))
        o++;
    return o;
}

static tx_status fill_group(tx_mem_table *t, tx_mem_precision precision, int checkpointing)
{
    forecasts s = {
        .table = t, .precision = precision, .checkpointing = checkpointing, .first = first_optimizer(t, precision)};
    const int count = optimizer_count();
    tx_optimizer_kind kind;
    tx_status status = TX_OK;
    for (int o = 0; o < count && !status; o++) {
        if (!has_row(t, precision, o))
            continue;
        tx_mem_row *row = &t->row[t->rows++];
        *row = (tx_mem_row){.precision = precisions[precision].word,
                            .checkpointing = checkpointings[checkpointing].word,
                            .optimizer = tx_optimizer_word(o, &kind)};
        status = fill_row(&s, o, row);
    }
    return status;
}

/* Copies the rows of the precision that has the same plans. */
static void copy_rows(tx_mem_table *t, tx_mem_precision precision)
{
    const int32_t rows = t->rows;
    for (int32_t i = 0; i < rows; i++)
        if (t->row[i].precision == precisions[precisions[precision].plans].word) {
            t->row[t->rows] = t->row[i];
            t->row[t->rows++].precision = precisions[precision].word;
        }
}

/* Removes the rows of other precisions and checkpointing levels than those that were chosen. */
static void choose_rows(tx_mem_table *t)
{
    const int32_t rows = t->rows;
    t->rows = 0;
    for (int32_t i = 0; i < rows; i++)
        if ((!t->precision || !strcmp(t->precision, t->row[i].precision)) &&
            (!t->checkpointing || !strcmp(t->checkpointing, t->row[i].checkpointing)))
            t->row[t->rows++] = t->row[i];
}

tx_status tx_mem_fill(tx_mem_table *t)
{
    t->row = calloc((size_t)TX_MEM_PRECISIONS * CHECKPOINTINGS * (size_t)optimizer_count(), sizeof *t->row);
    tx_status status = t->row ? TX_OK : tx_fail(TX_MEMORY, "no memory for a table");
    for (tx_mem_precision p = 0; p < TX_MEM_PRECISIONS; p++) {
        /* The weights of an adapter are always fp32. */
        if (p == TX_MEM_PURE && t->adapts)
            continue;
        if (precisions[p].plans != p)
            copy_rows(t, p);
        for (int checkpointing = 0; checkpointing < CHECKPOINTINGS && !status && precisions[p].plans == p;
             checkpointing++)
            status = fill_group(t, p, checkpointing);
    }
    choose_rows(t);
    return status;
}
