/* SPDX-License-Identifier: Apache-2.0
 * txbench gemm: times the matrix products of a training step, or one product of any shape. */
#include "api/graph/op.h"
#include "api/plan/plan.h"
#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"
#include "tools/bench/training.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    tx_bench_common common;
    int64_t m, n, k, batch, block;
    bool trans_a, trans_b;
    int32_t dtype; /* a tx_dtype */
    const char *model;
} settings;

static const tx_option options[] = {
    TX_BENCH_OPTIONS,
    {TX_OPTION_CHOICE, "dtype", AT(dtype), .choices = "fp32|bf16|fp16",
     .help = "precision of the step, or type of the product's operands and results"},
    {TX_OPTION_HEADING, .help = "step: the products of a training step"},
    {TX_OPTION_TEXT, "model", AT(model), .choices = "NAME|FILE",
     .help = TX_PRESETS ", a config.json or a folder with one"},
    {TX_OPTION_INTEGER, "batch", AT(batch), 1, 1 << 20, "N", "rows of a step"},
    {TX_OPTION_INTEGER, "block", AT(block), 1, 1 << 24, "N", "tokens of a row"},
    {TX_OPTION_HEADING, .help = "product: only one, op(a) [m, k] times op(b) [k, n]"},
    {TX_OPTION_INTEGER, "m", AT(m), 0, 1 << 24, "N", "rows of the result; give m, n and k together"},
    {TX_OPTION_INTEGER, "n", AT(n), 0, 1 << 24, "N", "columns of the result"},
    {TX_OPTION_INTEGER, "k", AT(k), 0, 1 << 24, "N", "inner dimension"},
    {TX_OPTION_FLAG, "trans_a", AT(trans_a), .help = "a is stored [k, m]"},
    {TX_OPTION_FLAG, "trans_b", AT(trans_b), .help = "b is stored [n, k]"},
};

static const settings defaults = {.common = TX_BENCH_DEFAULTS, .model = "gpt2", .batch = 4, .block = 256};

/* ---- the products of a step ------------------------------------------------------------------------- */

typedef struct product {
    tx_command command;
    char name[64], label[96];
    const char *group;
    int64_t count;
} product;

typedef struct products {
    product *item;
    int32_t count;
} products;

/* Names the parameter of an operand in arena WEIGHTS, HALF (of copies in 16 bits) or GRADIENTS, without "transformer.",
 * the layer and ".weight". */
static void name_of(const tx_model *model, const tx_operand *operand, char *text, size_t size)
{
    const int64_t within = operand->offset * (operand->arena == TX_ARENA_HALF ? 2 : 1);
    const int64_t address = operand->chunk * model->arena[TX_ARENA_WEIGHTS].chunk_bytes + within;
    int32_t param = 0;
    while (param + 1 < model->params && model->param[param + 1].offset <= address)
        param++;
    const char *name = model->param[param].name;
    if (strncmp(name, "transformer.", strlen("transformer.")) == 0)
        name += strlen("transformer.");
    if (strncmp(name, "h.", 2) == 0) {
        name += 2;
        name += strspn(name, "0123456789");
        name += *name == '.';
    }
    if (strcmp(name, "wte.weight") == 0)
        name = "classifier";
    const size_t length = strlen(name), tail = strlen(".weight");
    const bool weight = length > tail && strcmp(name + length - tail, ".weight") == 0;
    snprintf(text, size, "%.*s", (int)(weight ? length - tail : length), name);
}

/* Names a product by the weights that it reads or whose gradient it writes, and by forward, dX or dW. */
static void describe(const tx_model *model, product *p)
{
    const tx_command *c = &p->command;
    char weights[40] = "product";
    p->group = c->direction == TX_FORWARD ? "forward" : "dX";
    for (int i = 0; i < TX_MAX_IN; i++)
        if (tx_present(&c->in[i]) && c->in[i].shape.rank == 2 &&
            (c->in[i].arena == TX_ARENA_WEIGHTS || c->in[i].arena == TX_ARENA_HALF))
            name_of(model, &c->in[i], weights, sizeof weights);
    if (c->direction != TX_FORWARD && c->out[0].arena == TX_ARENA_GRADIENTS) {
        p->group = "dW";
        name_of(model, &c->out[0], weights, sizeof weights);
    }
    snprintf(p->name, sizeof p->name, "%s %s", weights, p->group);
}

/* Labels a product by sizes, layouts, types and epilogue. Products with the same label are counted as one. */
static void label_of(product *p)
{
    const tx_command *c = &p->command;
    if (c->op != TX_OP_MATMUL) {
        char shape[64];
        snprintf(p->label, sizeof p->label, "%s %s", tx_op_info_of(c->op)->name,
                 tx_shape_text(&c->in[0].shape, shape, sizeof shape));
        return;
    }
    static const char *const epilogues[] = {[TX_EPILOGUE_NONE] = "",
                                            [TX_EPILOGUE_GELU] = " gelu",
                                            [TX_EPILOGUE_GELU_GRAD] = " gelu_grad",
                                            [TX_EPILOGUE_ADD] = " plus"};
    const tx_gemm g = tx_gemm_of(&c->attrs, &c->in[0].shape, &c->in[1].shape);
    char batch[32] = "";
    if (g.batch > 1)
        snprintf(batch, sizeof batch, "%" PRId64 " x ", g.batch);
    snprintf(p->label, sizeof p->label, "%sm%" PRId64 " n%" PRId64 " k%" PRId64 "%s%s %s->%s%s%s%s", batch, g.m, g.n,
             g.k, c->attrs.trans_a ? " ta" : "", c->attrs.trans_b ? " tb" : "", tx_dtype_name(c->in[0].dtype),
             tx_dtype_name(c->out[0].dtype), tx_present(&c->in[2]) ? " bias" : "",
             c->attrs.accumulate == TX_ADD ? " add" : "", epilogues[c->attrs.epilogue]);
}

static void add_product(products *list, const tx_model *model, const tx_command *command)
{
    product p = {.command = *command, .count = 1};
    describe(model, &p);
    label_of(&p);
    for (int32_t i = 0; i < list->count; i++)
        if (strcmp(list->item[i].label, p.label) == 0) {
            list->item[i].count++;
            return;
        }
    list->item[list->count++] = p;
}

static bool is_product(tx_op op)
{
    const bool attention = op == TX_OP_ATTENTION || op == TX_OP_ATTENTION_GRAD || op == TX_OP_ATTENTION_CACHED;
    return tx_op_info_of(op)->op_class == TX_CONTRACTION && !attention;
}

/* Compiles the model's training plan, which is the same on all devices, and collects its products with the types and
 * epilogues of a step. */
static tx_status collect(const settings *set, products *list)
{
    const tx_engine_options host = {.size = sizeof host, .device = "cpu", .threads = (int32_t)set->common.threads};
    tx_trainer_options trainer;
    tx_config *config = NULL;
    tx_bench_training t = {0};
    tx_status status = tx_bench_config(set->model, set->block, &config);
    if (!status) {
        trainer = tx_bench_trainer_options(config, set->batch, set->block);
        trainer.autocast = (tx_dtype)set->dtype;
        status = tx_bench_training_open(&host, config, &trainer, &t);
    }
    int64_t runs;
    const tx_plan *plan = status ? NULL : tx_trainer_plan(t.trainer, TX_TRAINER_TRAIN, &runs);
    const int32_t length = plan ? tx_plan_length(plan) : 0;
    list->item = calloc((size_t)length + 1, sizeof *list->item);
    if (!status && !list->item)
        status = tx_fail(TX_MEMORY, "no memory for a list of products");
    for (int32_t i = 0; i < length && !status; i++)
        if (is_product(plan->commands[i].op))
            add_product(list, t.model, &plan->commands[i]);
    tx_bench_training_close(&t);
    tx_config_free(config);
    return status;
}

/* ---- the program ------------------------------------------------------------------------------------ */

/* Makes the list of the one product that the options describe. */
static tx_status single(const settings *set, products *list)
{
    if (set->m == 0 || set->n == 0 || set->k == 0)
        return tx_fail(TX_INVALID, "give -m, -n and -k together, or none of them for the products of a step");
    list->item = calloc(1, sizeof *list->item);
    if (!list->item)
        return tx_fail(TX_MEMORY, "no memory for a product");
    product *p = &list->item[list->count++];
    *p = (product){.name = "product", .group = "product"};
    tx_bench_product_command(set->m, set->n, set->k, set->trans_a, set->trans_b, (tx_dtype)set->dtype,
                             (tx_dtype)set->dtype, &p->command);
    label_of(p);
    return TX_OK;
}

static tx_status measure(tx_roofline *report, const void *user)
{
    const products *list = user;
    for (int32_t i = 0; i < list->count; i++) {
        const product *p = &list->item[i];
        TX_TRY(tx_roofline_time(report, &p->command, p->name, p->group, p->label, p->count));
    }
    return TX_OK;
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    products list = {0};
    const bool shape = set->m || set->n || set->k || set->trans_a || set->trans_b;
    tx_status status = shape ? single(set, &list) : collect(set, &list);
    TX_THEN(status, tx_roofline_run("gemm", argv, &set->common, measure, &list));
    free(list.item);
    return status;
}

TX_BENCH_COMMAND(gemm, "",
                 "Times every distinct matrix product of a training step: forward, gradients of activations (dX) "
                 "and of\n"
                 "weights (dW), with its count in the step; or one product of any shape." TX_BENCH_ABOUT);
