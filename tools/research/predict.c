/* SPDX-License-Identifier: Apache-2.0
 * txresearch predict: products and training steps on other cards. */
#include "tools/research/predict.h"
#include "tools/bench/training.h"
#include "tools/research/research.h"

#include <math.h>
#include <string.h>

/* ---- A training step ------------------------------------------------------------------------------------------ */

/* Share of the peak that attention reaches without matrix units: multiply-adds are 0.75 to 0.83 of its instructions,
 * and half of these wait. */
#define ATTENTION_SHARE 0.4
#define HOST_LAUNCH 4.6e-6 /* host seconds of a launch, measured with NVIDIA's driver */

/* X(NAME, member of the JSON) */
#define KIND_MAP(X)           \
    X(PRODUCTS, "products")   \
    X(ATTENTION, "attention") \
    X(OTHERS, "others")       \
    X(UPDATE, "update")       \
    X(GAPS, "gaps")

enum kind {
#define X(name, word) name,
    KIND_MAP(X)
#undef X
        KINDS
};

static const char *const kind_names[] = {
#define X(name, word) word "_ms",
    KIND_MAP(X)
#undef X
};

enum { OVERLAP = 2, PRODUCT_ROWS = 128, ATTENTION_ROWS = 64 }; /* rows of tiles whose columns are summed */

/* States of the kernels on cards that were measured (measured.def), and members of the JSON. */
static const struct {
    const char *name, *member;
} states[] = {{"guarded", "measured_ms"}, {"whole", "whole_tiles_ms"}, [OVERLAP] = {"overlap", "predicted_ms"}};
enum { STATES = sizeof states / sizeof states[0] };

typedef struct step {
    double seconds[KINDS], launches, bytes; /* bytes: of memory, outside products and attention */
    double by_rates[STATES];                /* seconds by measured rates */
    bool measured;                          /* some commands have a measured rate */
} step;

/* Predicts attention, by matrix units if loops for them are counted. */
static double attention_seconds(const tx_card *card, const tx_command *c, double flops)
{
    const bool backward = c->op == TX_OP_ATTENTION_GRAD;
    const tx_operand *qkv = &c->in[backward ? 1 : 0];
    const tx_attention_shape shape = {.batch = qkv->shape.dim[0],
                                      .tokens = qkv->shape.dim[1],
                                      .heads = c->attrs.attention.heads,
                                      .size = tx_shape_last(&qkv->shape) /
                                              (c->attrs.attention.heads + 2 * c->attrs.attention.kv_heads),
                                      .causal = c->attrs.attention.causal};
    double seconds = 0.0;
    for (int pass = backward ? TX_ATTENTION_GRAD_Q : TX_ATTENTION_FORWARD;
         pass <= (backward ? TX_ATTENTION_GRAD_KV : 0); pass++) {
        tx_predicted_attention p;
        if (qkv->dtype != TX_BF16 || c->attrs.attention.window ||
            !tx_predict_attention(card, (tx_attention_pass)pass, &shape, &p))
            return flops / (1e9 * ATTENTION_SHARE * card->ghz * card->units * card->simt);
        seconds += p.seconds;
    }
    return seconds;
}

/* Returns the number of kernels of an op in backends/opencl, without the one that joins the parts of a product. */
static double kernels_of(tx_op op)
{
    switch (op) {
    case TX_OP_LAYER_NORM_GRAD:
    case TX_OP_RMS_NORM_GRAD:
        return 2.0;
    case TX_OP_ATTENTION_GRAD:
        return 3.0;
    case TX_OP_REDUCE:
        return 2.0;
    case TX_OP_SCATTER_ADD:
        return 5.0;
    default:
        return 1.0;
    }
}

/* Returns the share of a command's bytes that remains if it is a sum over rows of a product with the gradient of GELU
 * by wgmma, or of the gradient of attention. These write sums of tiles, which are read instead
 * (backends/opencl/runtime/join.c). */
static double share_left(const tx_card *card, const tx_plan *plan, int32_t at)
{
    const tx_command *sum = &plan->commands[at], *c = NULL;
    for (int32_t i = at - 1; i >= 0 && !c && sum->op == TX_OP_REDUCE && sum->attrs.axis == TX_AXIS_ROWS; i--)
        if (plan->commands[i].out[0].arena == sum->in[0].arena && plan->commands[i].out[0].offset == sum->in[0].offset)
            c = &plan->commands[i];
    if (!c || sum->in[0].dtype != TX_BF16)
        return 1.0;
    const bool product = c->op == TX_OP_MATMUL && c->attrs.epilogue == TX_EPILOGUE_GELU_GRAD && card->wgmma > 0.0;
    const bool attention = c->op == TX_OP_ATTENTION_GRAD && c->attrs.attention.window == 0 &&
                           (strncmp(card->target, "sm_", 3) == 0 || strncmp(card->target, "gfx", 3) == 0);
    return product || attention ? 2.0 * sizeof(float) / ((product ? PRODUCT_ROWS : ATTENTION_ROWS) * 2.0) : 1.0;
}

/* Adds a command to the lower bounds, and returns its seconds. `left`: its share_left. */
static double add_bound(const tx_card *card, tx_operands operands, const tx_command *c, bool updates, double left,
                        step *s)
{
    double flops, bytes, seconds;
    enum kind kind = updates ? UPDATE : OTHERS;
    tx_op_work(c, &flops, &bytes);
    const double kernels = kernels_of(c->op);
    s->launches += kernels;
    s->seconds[GAPS] += kernels * TX_LAUNCH_GAP;
    if (c->op == TX_OP_MATMUL) {
        const int64_t n = c->out[0].shape.dim[c->out[0].shape.rank - 1], m = tx_operand_count(&c->out[0]) / n;
        const int64_t k = (int64_t)(flops / (2.0 * (double)(m * n)) + 0.5);
        const tx_operands from = c->in[0].dtype == TX_F32 && operands == TX_IN_BF16 ? TX_IN_FP32 : operands;
        const tx_predicted p =
            tx_predict_product(card, from, c->attrs.trans_a, c->attrs.trans_b, m, n, k, c->attrs.epilogue);
        kind = PRODUCTS;
        seconds = p.seconds;
        s->launches += p.parts > 1;
    } else if (c->op == TX_OP_ATTENTION || c->op == TX_OP_ATTENTION_GRAD) {
        kind = ATTENTION;
        seconds = attention_seconds(card, c, flops);
    } else {
        s->bytes += left * bytes;
        seconds = left * bytes / tx_card_bytes(card) + kernels * 2e-9 * card->latency / card->ghz;
    }
    s->seconds[kind] += seconds;
    return seconds + kernels * TX_LAUNCH_GAP;
}

/* Returns the share of the time of attention by mma, which was measured, that the forms of wgmma are predicted to need.
 */
static double share_by_wgmma(const tx_card *card, const tx_command *c)
{
    double flops, bytes;
    tx_card without = *card;
    without.wgmma = 0.0;
    if (c->op != TX_OP_ATTENTION && c->op != TX_OP_ATTENTION_GRAD)
        return 1.0;
    tx_op_work(c, &flops, &bytes);
    return attention_seconds(card, c, flops) / attention_seconds(&without, c, flops);
}

static void add_command(const tx_card *card, tx_operands operands, const tx_plan *plan, int32_t at, bool updates,
                        step *s)
{
    const tx_command *c = &plan->commands[at];
    const double left = share_left(card, plan, at), bound = add_bound(card, operands, c, updates, left, s);
    for (int i = 0; i < STATES; i++) {
        double seconds = bound;
        if (tx_measured_seconds(card, states[i].name, c, &seconds)) {
            s->measured = true;
            seconds *= i == OVERLAP ? left * share_by_wgmma(card, c) : 1.0;
        }
        s->by_rates[i] += seconds;
    }
}

static step predict_step(const tx_card *card, tx_operands operands, const tx_trainer *trainer)
{
    step s = {.launches = 0.0};
    const tx_plan *plan;
    int64_t runs;
    for (int32_t which = TX_TRAINER_UPDATE; (plan = tx_trainer_plan(trainer, which, &runs)) != NULL; which++)
        for (int32_t i = 0; i < tx_plan_length(plan); i++)
            add_command(card, operands, plan, i, which == TX_TRAINER_UPDATE, &s);
    return s;
}

static double device_seconds(const step *s)
{
    double seconds = 0.0;
    for (int kind = 0; kind < KINDS; kind++)
        seconds += s->seconds[kind];
    return seconds;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

typedef struct settings {
    const char *config, *card, *provider, *device;
    int64_t batch, block, size, threads;
    int32_t residual;
    bool json;
} settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_TEXT, "card", AT(card), .choices = "NAME",
     .help = "a card of cards.def: h200, a100, mi300x, ...; default: all cards"},
    {TX_OPTION_TEXT, "provider", AT(provider), .choices = "NAME",
     .help = "predict only products of this provider, such as nvidia-mma-128x256; default: the fastest provider"},
    {TX_OPTION_CHOICE, "residual_dtype", AT(residual), .choices = "float32|bfloat16",
     .help = "type of the residual stream of steps in bf16"},
    {TX_OPTION_INTEGER, "size", AT(size), 1, 1 << 24, "N", "size of square products"},
    TX_BENCH_DEVICE(AT),
    TX_BENCH_JSON(AT),
};

static const settings defaults = {.config = "gpt2", .device = "cpu", .batch = 16, .block = 1024, .size = 4096};

static void add_products(const settings *set, const tx_card *card, tx_json *all)
{
    for (int operands = 0; operands < TX_OPERAND_KINDS; operands++)
        for (int transposes = 0; transposes < 3 && (operands != TX_IN_TF32 || card->tf32 > 0.0); transposes++) {
            const bool trans_a = transposes == 2, trans_b = transposes == 1;
            const int64_t n = set->size;
            const tx_predicted p = set->provider ? tx_predict_provider(card, set->provider, (tx_operands)operands,
                                                                       trans_a, trans_b, n, n, n, TX_EPILOGUE_NONE)
                                                 : tx_predict_product(card, (tx_operands)operands, trans_a, trans_b, n,
                                                                      n, n, TX_EPILOGUE_NONE);
            if (!(p.seconds < INFINITY))
                continue;
            tx_json *one = tx_json_object();
            tx_json_set_string(one, "card", card->id);
            tx_json_set_string(one, "type", tx_operand_names[operands]);
            tx_json_set_string(one, "transposes", transposes == 2 ? "TN" : transposes ? "NT" : "NN");
            tx_json_set_string(one, "provider", p.provider);
            tx_json_set_number(one, "tflops_at_most", p.tflops);
            if (operands == TX_IN_BF16)
                tx_json_set_number(one, "aim", card->aim);
            tx_json_set_string(one, "bound", p.bound);
            for (int i = 0; i < TX_ROUND_TERMS; i++)
                tx_json_set_number(one, tx_round_names[i], p.clocks[i]);
            tx_json_set_number(one, "cache_mb", 1e-6 * p.cached);
            tx_json_set_number(one, "memory_mb", 1e-6 * p.moved);
            tx_json_append(all, one);
        }
}

/* Adds attention in bf16 with 768 columns. */
static void add_attention(const settings *set, const tx_card *card, tx_json *all)
{
    static const char *const passes[] = {"forward", "dq", "dkv"};
#define X(word) word,
    static const char *const terms[] = {TX_ATTENTION_MAP(X)};
#undef X
    for (int64_t size = 64; size <= 128; size *= 2)
        for (int pass = TX_ATTENTION_FORWARD; pass <= TX_ATTENTION_GRAD_KV; pass++) {
            const tx_attention_shape shape = {set->batch, set->block, 768 / size, size, true};
            tx_predicted_attention p;
            if (!tx_predict_attention(card, (tx_attention_pass)pass, &shape, &p))
                continue;
            tx_json *one = tx_json_object();
            tx_json_set_string(one, "card", card->id);
            tx_json_set_string(one, "pass", passes[pass]);
            tx_json_set_number(one, "head", (double)size);
            tx_json_set_string(one, "form", p.form);
            tx_json_set_number(one, "ms_at_least", 1e3 * p.seconds);
            tx_json_set_number(one, "tflops_at_most", p.tflops);
            for (int i = 0; i < TX_ATTENTION_TERMS; i++)
                tx_json_set_number(one, terms[i], p.clocks[i]);
            tx_json_set_string(one, "bound", p.bound);
            tx_json_append(all, one);
        }
}

static void add_step(const settings *set, const tx_card *card, tx_operands operands, const tx_trainer *trainer,
                     tx_json *all)
{
    const step s = predict_step(card, operands, trainer);
    const double device = device_seconds(&s), host = s.launches * HOST_LAUNCH, seconds = fmax(device, host);
    tx_json *one = tx_json_object();
    tx_json_set_string(one, "card", card->id);
    tx_json_set_string(one, "type", tx_operand_names[operands]);
    for (int kind = 0; kind < KINDS; kind++)
        tx_json_set_number(one, kind_names[kind], 1e3 * s.seconds[kind]);
    tx_json_set_number(one, "launches", s.launches);
    tx_json_set_number(one, "other_gb", 1e-9 * s.bytes);
    tx_json_set_number(one, "host_ms", 1e3 * host);
    tx_json_set_number(one, "step_ms_at_least", 1e3 * seconds);
    tx_json_set_number(one, "tokens_per_second_at_most", (double)(set->batch * set->block) / seconds);
    for (int i = 0; i < STATES; i++)
        tx_json_set_number(one, states[i].member, operands == TX_IN_BF16 && s.measured ? 1e3 * s.by_rates[i] : 0.0);
    tx_json_set_number(one, "others", operands == TX_IN_BF16 ? card->others : 0.0);
    tx_json_append(all, one);
}

/* Predicts the training steps with this precision from the trainer's plans. */
static tx_status predict_steps(const settings *set, const tx_config *config, tx_dtype autocast, tx_json *all)
{
    const tx_engine_options engine = {.size = sizeof engine, .device = "cpu"};
    tx_trainer_options trainer = tx_bench_trainer_options(config, set->batch, set->block);
    tx_bench_training training;
    trainer.autocast = autocast;
    trainer.residual = autocast == TX_BF16 && set->residual ? TX_BF16 : TX_F32;
    TX_TRY(tx_bench_training_open(&engine, config, &trainer, &training));
    const tx_card *card;
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++) {
        if (set->card && strcmp(set->card, card->id) != 0)
            continue;
        if (autocast == TX_BF16)
            add_step(set, card, TX_IN_BF16, training.trainer, all);
        else
            add_step(set, card, TX_IN_FP32, training.trainer, all);
        if (autocast != TX_BF16 && card->tf32 > 0.0)
            add_step(set, card, TX_IN_TF32, training.trainer, all);
    }
    tx_bench_training_close(&training);
    return TX_OK;
}

static tx_status check_card(const char *id)
{
    char known[256] = "";
    const tx_card *card;
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++) {
        if (!id || strcmp(id, card->id) == 0)
            return TX_OK;
        tx_list_add(known, sizeof known, ", ", "%s", card->id);
    }
    return tx_fail(TX_INVALID, "--card: \"%s\" is not one of %s", id, known);
}

static tx_status check_provider(const char *name)
{
    if (!name || tx_is_counted(name))
        return TX_OK;
    return tx_fail(TX_INVALID, "--provider: no loop of \"%s\" is counted; `txresearch predict` prints the fastest",
                   name);
}

static tx_status run(const void *settings_, char *const *argv)
{
    const settings *set = settings_;
    tx_config *config = NULL;
    const tx_card *card;
    (void)argv;
    TX_TRY(check_card(set->card));
    TX_TRY(check_provider(set->provider));
    tx_json *products = tx_json_array(), *attention = tx_json_array(), *steps = tx_json_array();
    for (int i = 0; (card = tx_card_at(i)) != NULL; i++)
        if (!set->card || strcmp(set->card, card->id) == 0) {
            add_products(set, card, products);
            if (!set->provider)
                add_attention(set, card, attention);
        }
    tx_status status = tx_bench_config(set->config, set->block, &config);
    if (!set->provider) {
        TX_THEN(status, predict_steps(set, config, TX_F32, steps));
        TX_THEN(status, predict_steps(set, config, TX_BF16, steps));
    }
    tx_config_free(config);
    if (status) {
        tx_json_free(products);
        tx_json_free(attention);
        tx_json_free(steps);
        return status;
    }
    tx_json *all = tx_bench_figures(&tx_bench_predict.program, set);
    tx_json_set_string(all, "measured", TX_AT_MOST);
    tx_json_set(all, "products", products);
    tx_json_set(all, "attention", attention);
    tx_json_set(all, "steps", steps);
    return tx_bench_print(all, set->json, NULL);
}

TX_BENCH_COMMAND(
    predict, "",
    "Predicts products and training steps on other cards from instructions counted in machine code and published\n"
    "figures of the cards (tools/research/predict.h describes the model). Nothing is measured: speeds are upper\n"
    "bounds, and no kernel should be faster. `bound` is the slowest resource. The next columns are clocks of 64 terms\n"
    "of a tile, then the bytes that tiles read from the cache and from memory. `others` are measured tokens/s of "
    "llm.c\n"
    "on that card, or 0 if unknown.");
