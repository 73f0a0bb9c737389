/* SPDX-License-Identifier: Apache-2.0
 * A forward pass over a batch of texts: see pass.h. */
#include "models/arch/pass.h"

#include "models/arch/labels.h"

#include <stdlib.h>
#include <string.h>

struct tx_pass {
    tx_pass_spec of;
    int64_t rows, length, values, stride; /* values and outputs of a row */
    tx_graph *graph;
    tx_tensor *in_ids, *in_types, *in_counts, *in_values, *result;
    tx_plan *plan;
    int32_t *ids, *types, *counts; /* [rows, length], and [rows]: numbers of tokens */
    float *selects;                /* [rows, values] */
    float *output;                 /* [rows, stride] */
};

/* The values of a row that select its output: those of the pooling, or last_token of a decoder's classifier. */
static int64_t values_of(const tx_pass_spec *of, int64_t length)
{
    return of->pooling ? tx_pooling_values(of->pooling, length) : of->config->architecture->reads_last ? length : 0;
}

static tx_status build(tx_pass *p)
{
    const tx_pass_spec *of = &p->of;
    TX_TRY(tx_graph_create(of->model, &p->graph));
    if (of->autocast != TX_F32)
        TX_TRY(tx_graph_autocast(p->graph, of->autocast));
    p->in_ids = tx_input(p->graph, "input_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->in_types = tx_input(p->graph, "token_type_ids", TX_I32, TX_SHAPE(p->rows, p->length));
    p->in_counts = tx_input(p->graph, "attention_lengths", TX_I32, TX_SHAPE(p->rows));
    if (p->values)
        p->in_values = tx_input(p->graph, of->pooling ? "pooling" : "last_token", TX_F32, TX_SHAPE(p->rows, p->values));
    tx_tensor *y = tx_arch_logits(p->graph, of->config, NULL);
    y = of->pooling ? tx_pooling_graph(p->graph, of->pooling, y) : y;
    p->result = tx_output(y && tx_tensor_dtype(y) != TX_F32 ? tx_cast(y, TX_F32) : y);
    TX_TRY(tx_plan_create(p->graph, of->name, &p->plan));
    p->stride = tx_shape_count(tx_tensor_shape(p->result)) / p->rows;
    return TX_OK;
}

static tx_status prepare(tx_pass *p)
{
    const size_t rows = (size_t)p->rows, places = rows * (size_t)p->length;
    TX_TRY(build(p));
    p->ids = malloc(places * sizeof *p->ids);
    p->types = malloc(places * sizeof *p->types);
    p->counts = malloc(rows * sizeof *p->counts);
    p->selects = malloc((rows * (size_t)p->values + 1) * sizeof *p->selects);
    p->output = malloc(rows * (size_t)p->stride * sizeof *p->output);
    return p->ids && p->types && p->counts && p->selects && p->output
               ? TX_OK
               : tx_fail(TX_MEMORY, "no memory for a batch of %zu tokens", places);
}

tx_status tx_pass_create(const tx_pass_spec *spec, int64_t rows, int64_t length, tx_pass **pass)
{
    tx_pass *p = calloc(1, sizeof *p);
    if (!p)
        return tx_fail(TX_MEMORY, "no memory for a plan");
    p->of = *spec;
    p->rows = rows;
    p->length = length;
    p->values = values_of(spec, length);
    const tx_status status = prepare(p);
    return TX_RETURN(status, p, pass, tx_pass_free);
}

void tx_pass_free(tx_pass *pass)
{
    if (!pass)
        return;
    tx_plan_free(pass->plan);
    tx_graph_free(pass->graph);
    free(pass->ids);
    free(pass->types);
    free(pass->counts);
    free(pass->selects);
    free(pass->output);
    free(pass);
}

/* Copies `count` ids, if they are given, to a row of the batch, which ends with zeros. */
static void set_ids(const tx_pass *p, const int32_t *ids, int64_t count, int32_t *row)
{
    memset(row, 0, (size_t)p->length * sizeof *row);
    if (ids)
        memcpy(row, ids, (size_t)count * sizeof *row);
}

void tx_pass_set(tx_pass *pass, int64_t row, tx_pass_text text)
{
    const tx_pass *p = pass;
    const int64_t count = text.count ? text.count : 1;
    int32_t *ids = p->ids + row * p->length;
    float *selects = p->selects + row * p->values;
    set_ids(p, text.ids, text.count, ids);
    set_ids(p, text.types, text.count, p->types + row * p->length);
    p->counts[row] = (int32_t)count;
    if (p->of.pooling)
        tx_pooling_fill(p->of.pooling, p->length, count, text.prompt, selects);
    else if (p->in_values)
        tx_mark_last_token(ids, count, p->of.pad, p->length, selects);
}

tx_status tx_pass_run(tx_pass *pass, const float **output, int64_t *stride)
{
    const tx_pass *p = pass;
    const size_t rows = (size_t)p->rows, places = rows * (size_t)p->length;
    TX_TRY(tx_plan_write(p->plan, p->in_ids, p->ids, places * sizeof *p->ids));
    TX_TRY(tx_plan_write(p->plan, p->in_types, p->types, places * sizeof *p->types));
    TX_TRY(tx_plan_write(p->plan, p->in_counts, p->counts, rows * sizeof *p->counts));
    if (p->in_values)
        TX_TRY(tx_plan_write(p->plan, p->in_values, p->selects, rows * (size_t)p->values * sizeof *p->selects));
    TX_TRY(tx_plan_run(p->plan));
    TX_TRY(tx_plan_read(p->plan, p->result, p->output, rows * (size_t)p->stride * sizeof *p->output));
    *output = p->output;
    *stride = p->stride;
    return TX_OK;
}
