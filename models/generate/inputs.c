/* SPDX-License-Identifier: Apache-2.0
 * Sums squares of the inputs of a model's matrices over a text. */
#include "models/generate/inputs.h"

#include "api/base/arithmetic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Length of a window, as in llama-imatrix. */
#define WINDOW 512

/* A product of the graph. */
typedef struct product {
    int32_t param;
    int64_t rows;               /* of its inputs */
    tx_tensor *sums, *offsets;  /* of each column, and experts' [E, in]; their offsets, or NULL */
    float *sum;                 /* as `sums` */
    int32_t *offset;            /* as `offsets` */
    int64_t matrices, elements; /* E, or 1; elements of `sums` */
} product;

typedef struct collection {
    tx_graph *graph;
    tx_plan *plan;
    tx_tensor *tokens, *scored;
    product *product;
    int32_t products;
    int32_t *token; /* of a window */
    tx_inputs *inputs;
} collection;

/* ---- The graph ------------------------------------------------------------------------------------------ */

/* A tx_arch_inputs.add: adds the sums as outputs. A parameter may occur in several products. */
static void add_product(void *context, int32_t param, tx_tensor *x, tx_tensor *offsets)
{
    collection *c = context;
    x = tx_tensor_dtype(x) == TX_F32 ? x : tx_cast(x, TX_F32);
    tx_tensor *sums = offsets ? tx_grouped_sums(tx_mul(x, x), offsets) : tx_reduce(x, TX_REDUCE_SUMSQ, TX_AXIS_ROWS);
    product *larger = sums ? realloc(c->product, ((size_t)c->products + 1) * sizeof *larger) : NULL;
    c->product = larger ? larger : c->product;
    if (!larger) {
        tx_graph_fail(c->graph, tx_fail(TX_MEMORY, "no memory for the list of products"));
        return;
    }
    const int64_t elements = tx_shape_count(tx_tensor_shape(sums));
    c->product[c->products++] = (product){.param = param,
                                          .rows = tx_shape_rows(tx_tensor_shape(x)),
                                          .sums = tx_output(sums),
                                          .offsets = offsets ? tx_output(offsets) : NULL,
                                          .matrices = offsets ? tx_tensor_shape(offsets)->dim[0] - 1 : 1,
                                          .elements = elements};
}

/* Makes room for the numbers that the host reads. */
static tx_status make_room(collection *c)
{
    bool enough = true;
    for (int32_t i = 0; i < c->products && enough; i++) {
        product *p = &c->product[i];
        tx_input_sums *of = &c->inputs->of[p->param];
        p->sum = malloc((size_t)p->elements * sizeof *p->sum);
        p->offset = malloc(((size_t)p->matrices + 1) * sizeof *p->offset);
        of->width = p->elements / p->matrices;
        of->matrices = p->matrices;
        of->squares = of->squares ? of->squares : calloc((size_t)p->elements, sizeof *of->squares);
        of->rows = of->rows ? of->rows : calloc((size_t)p->matrices, sizeof *of->rows);
        enough = p->sum && p->offset && of->squares && of->rows;
    }
    return enough ? TX_OK : tx_fail(TX_MEMORY, "no memory for sums of inputs");
}

/* Only one position has logits, since nobody reads them. */
static tx_status build(collection *c, const tx_lm *lm)
{
    const tx_arch_inputs inputs = {add_product, c};
    const tx_arch_options options = {.size = sizeof options, .inputs = &inputs};
    TX_TRY(tx_graph_create(lm->model, &c->graph));
    c->tokens = tx_input(c->graph, "input_ids", TX_I32, TX_SHAPE(1, c->inputs->length));
    c->scored = tx_input(c->graph, "rows", TX_I32, TX_SHAPE(1));
    tx_output(tx_arch_logits(c->graph, lm->config, &options));
    TX_TRY(tx_plan_create(c->graph, "calibration", &c->plan));
    return make_room(c);
}

/* ---- The text ------------------------------------------------------------------------------------------- */

static tx_status read_product(const collection *c, const product *p)
{
    tx_input_sums *of = &c->inputs->of[p->param];
    TX_TRY(tx_plan_read(c->plan, p->sums, p->sum, (size_t)p->elements * sizeof *p->sum));
    if (p->offsets)
        TX_TRY(tx_plan_read(c->plan, p->offsets, p->offset, ((size_t)p->matrices + 1) * sizeof *p->offset));
    for (int64_t i = 0; i < p->elements; i++)
        of->squares[i] += (double)p->sum[i];
    for (int64_t m = 0; m < p->matrices; m++)
        of->rows[m] += (double)(p->offsets ? p->offset[m + 1] - p->offset[m] : p->rows);
    return TX_OK;
}

static tx_status run_windows(const collection *c, const tx_lm *lm, const int32_t *ids, int32_t begin)
{
    const int64_t length = c->inputs->length;
    const int32_t last = (int32_t)length - 1;
    TX_TRY(tx_plan_write(c->plan, c->scored, &last, sizeof last));
    for (int64_t w = 0; w < c->inputs->windows; w++) {
        memcpy(c->token, ids + w * length, (size_t)length * sizeof *ids);
        if (begin >= 0)
            c->token[0] = begin;
        TX_TRY(tx_plan_write(c->plan, c->tokens, c->token, (size_t)length * sizeof *c->token));
        TX_TRY(tx_plan_run(c->plan));
        for (int32_t i = 0; i < c->products; i++)
            TX_TRY(read_product(c, &c->product[i]));
        tx_report_progress(&lm->progress, "reading the text", w + 1, c->inputs->windows);
    }
    return TX_OK;
}

static tx_status create(const tx_lm *lm, int64_t length, int64_t count, collection *c)
{
    tx_inputs *created = c->inputs = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for sums of inputs");
    created->length = length;
    created->windows = count / length;
    created->params = tx_arch_params(lm->config);
    created->of = calloc((size_t)created->params, sizeof *created->of);
    c->token = malloc((size_t)length * sizeof *c->token);
    return created->of && c->token ? TX_OK : tx_fail(TX_MEMORY, "no memory for sums of inputs");
}

tx_status tx_lm_sum_inputs(tx_lm *lm, const int32_t *ids, int64_t count, int32_t begin, tx_inputs **inputs)
{
    const int64_t length = tx_min(WINDOW, lm->config->positions);
    collection c = {.inputs = NULL};
    if (lm->config->architecture->head != TX_HEAD_CAUSAL_LM)
        return tx_fail(TX_UNSUPPORTED, "%s cannot generate text", lm->config->architecture->class_name);
    if (count < length)
        return tx_fail(TX_INVALID, "the text has %" PRId64 " tokens: give one of at least %" PRId64, count, length);
    TX_TRY(tx_check_ids(ids, count, lm->config->vocab_size));
    tx_status status = create(lm, length, count, &c);
    TX_THEN(status, tx_lm_create_model(lm, &(tx_lm_sizes){.tokens = length}));
    TX_THEN(status, build(&c, lm));
    TX_THEN(status, tx_lm_load(lm));
    TX_THEN(status, run_windows(&c, lm, ids, begin));
    for (int32_t i = 0; i < c.products; i++) {
        free(c.product[i].sum);
        free(c.product[i].offset);
    }
    tx_plan_free(c.plan);
    tx_graph_free(c.graph);
    free(c.product);
    free(c.token);
    return TX_RETURN(status, c.inputs, inputs, tx_inputs_free);
}

void tx_inputs_free(tx_inputs *inputs)
{
    if (!inputs)
        return;
    for (int32_t i = 0; i < inputs->params && inputs->of; i++) {
        free(inputs->of[i].squares);
        free(inputs->of[i].rows);
    }
    free(inputs->of);
    free(inputs);
}
