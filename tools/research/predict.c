/* SPDX-License-Identifier: Apache-2.0
 * The performance model of matrix products, and txresearch predict: products and training steps on other cards. */
#include "tools/research/predict.h"
#include "api/plan/plan.h"
#include "tools/bench/training.h"
#include "tools/research/research.h"

#include <math.h>
#include <string.h>

/* ---- Products ------------------------------------------------------------------------------------------------- */

#define ASSUMED 0.5   /* assumed share of the peak, if no loop is counted */
#define MOST_PARTS 16 /* as in backends/opencl/gemm/gemm_tile.c */
#define LEAST_PART 512
#define COPY_SHARE 0.85 /* share of the memory rate that copies reach; 0.89 is measured on an H200 */
#define LAUNCH_GAP 2e-6 /* estimated seconds between the end of one kernel and the start of the next */

typedef struct loop {
    const char *provider, *target, *type, *transposes;
    double rows, columns, terms, warps, lanes, registers, local_bytes, done, issued, local, outside, gelu, slope, ahead;
} loop;

static const loop loops[] = {
#define TX_LOOP(...) {__VA_ARGS__},
#include "tools/research/loops.def"
#define TX_LOOP(...) {__VA_ARGS__, 0.0, 0.0, 1.0}, /* Intel's instructions of GELU are not counted */
#include "tools/research/loops_intel.def"
};
enum { LOOPS = sizeof loops / sizeof loops[0] };

static const char *const type_names[] = {"fp32", "tf32", "bf16"};

/* Returns the floating-point operations of a loop's kind per clock and unit: the peak, and in `share` the share of it
 * that libraries reach. */
static double rate_of(const tx_card *card, const loop *l, double *share)
{
    *share = strncmp(l->provider, "nvidia-wgmma", 12) == 0 ? card->wgmma : card->share;
    if (strncmp(l->provider, "portable", 8) == 0) {
        *share = 1.0;
        return card->simt;
    }
    if (strcmp(l->type, "bf16") == 0)
        return card->half;
    return strcmp(l->type, "fp32") == 0 && card->fp32 > 0.0 ? card->fp32 : card->tf32;
}

static const char *const round_names[] = {
#define X(name, word) word,
    TX_ROUND_MAP(X)
#undef X
};

/* Sets the clocks of a round by each resource, if `held` work-groups share a unit. Returns the slowest resource. */
static int round_of(const tx_card *card, const loop *l, double operand_bytes, double held,
                    double clocks[TX_ROUND_TERMS])
{
    const double loaded = (l->rows + l->columns) * l->terms * operand_bytes;
    double share;
    const double alone = l->warps * l->done / rate_of(card, l, &share);
    int most = 0;
    clocks[TX_ROUND_UNITS] = alone / share;
    clocks[TX_ROUND_INSTRUCTIONS] = l->warps * l->issued / card->issue;
    clocks[TX_ROUND_LOCAL] = l->warps * l->local * 128.0 / card->local;
    clocks[TX_ROUND_CACHE] = loaded * card->units * card->ghz / card->cache;
    clocks[TX_ROUND_LATENCY] = (fmax(alone, card->latency / l->ahead) + TX_ROUND_CLOCKS) / held;
    for (int i = 1; i < TX_ROUND_TERMS; i++)
        most = clocks[i] > clocks[most] ? i : most;
    return most;
}

/* True if work-groups are persistent: they compute several tiles one after the other (gemm_matrix.cl, GOES_ON). */
static bool goes_on(const loop *l)
{
    return strncmp(l->provider, "nvidia-wgmma", 12) == 0;
}

/* Returns an upper bound of the bytes that tiles read from memory in the order of gemm_place.cl. It assumes that
 * concurrent units read each row and column of a and b once, and that the cache keeps nothing of earlier tiles. */
static double read_bytes(const tx_card *card, const loop *l, double operand_bytes, double m, double n, double k)
{
    const double tiles_m = ceil(m / l->rows), tiles_n = ceil(n / l->columns), most = goes_on(l) ? 16.0 : 8.0;
    double lines = 0.0;
    for (double band = 0.0; band < tiles_m; band += most) {
        const double height = fmin(most, tiles_m - band), first = band * tiles_n, end = first + height * tiles_n;
        for (double from = first; from < end;) {
            const double to = fmin((floor(from / card->units) + 1.0) * card->units, end);
            const double columns = floor((to - 1.0 - first) / height) - floor((from - first) / height) + 1.0;
            lines += fmin(height, to - from) * l->rows + columns * l->columns;
            from = to;
        }
    }
    return fmax(lines, m + n) * k * operand_bytes;
}

/* Returns the instructions that the epilogue adds to a warp. */
static double more_of(const loop *l, tx_epilogue epilogue)
{
    return epilogue == TX_EPILOGUE_GELU ? l->gelu : epilogue == TX_EPILOGUE_GELU_GRAD ? l->slope : 0.0;
}

static tx_predicted predict_parts(const tx_card *card, const loop *l, tx_operands operands, double m, double n,
                                  double k, tx_epilogue epilogue, int64_t parts)
{
    const double bytes = operands == TX_IN_BF16 ? 2.0 : 4.0, gigahertz = 1e9 * card->ghz;
    const double fit = tx_card_held(card, l->warps * l->lanes, l->registers, l->local_bytes);
    const double part = ceil(ceil(k / (double)parts) / l->terms), tiles = ceil(m / l->rows) * ceil(n / l->columns);
    const double waves = ceil(tiles * (double)parts / card->units);
    const double held = fmin(fit, waves);
    double clocks[TX_ROUND_TERMS];
    const int longest = round_of(card, l, bytes, held, clocks);
    const double inside = part * clocks[longest], wait = goes_on(l) ? 0.0 : TX_WAIT_CLOCKS;
    const double ends = l->outside + (parts == 1 ? more_of(l, epilogue) : 0.0);
    const double beside = l->warps * ends / card->issue + wait;
    const double compute = (waves * (inside + beside / held) + TX_WAIT_CLOCKS - wait) / gigahertz;
    const double results = m * n * bytes * (epilogue == TX_EPILOGUE_NONE ? 1.0 : 2.0);
    const double moved = read_bytes(card, l, bytes, m, n, k) + results;
    const double through = moved / (1e9 * COPY_SHARE * card->memory);
    const double join = parts > 1 ? 8.0 * (double)parts * m * n / (1e9 * COPY_SHARE * card->memory) + LAUNCH_GAP : 0.0;
    tx_predicted p = {.seconds = fmax(compute, through) + join,
                      .provider = l->provider,
                      .bound = round_names[longest],
                      .parts = parts,
                      .cached = tiles * k * (l->rows + l->columns) * bytes,
                      .moved = moved};
    for (int i = 0; i < TX_ROUND_TERMS; i++)
        p.clocks[i] = clocks[i] * 64.0 / l->terms;
    const double used = tiles * (double)parts / (waves * card->units);
    if (through > compute)
        p.bound = "memory";
    else if (join > 0.3 * p.seconds)
        p.bound = "parts";
    else if (used < 0.75)
        p.bound = "waves";
    else if (beside / held > 0.3 * inside)
        p.bound = "beginnings";
    p.tflops = 2e-12 * m * n * k / p.seconds;
    return p;
}

/* Predicts the product by the fastest loop of a type and the best number of parts. `provider` restricts the loops, or
 * is NULL. Returns INFINITY seconds if the card has no such loop. */
static tx_predicted best_of_loops(const tx_card *card, const char *provider, tx_operands operands, tx_operands type,
                                  const char *transposes, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue)
{
    tx_predicted best = {.seconds = INFINITY};
    for (int i = 0; i < LOOPS; i++) {
        const loop *l = &loops[i];
        if (strcmp(l->target, card->target) != 0 || strcmp(l->type, type_names[type]) != 0 ||
            strcmp(l->transposes, transposes) != 0 || (provider && strcmp(l->provider, provider) != 0))
            continue;
        for (int64_t parts = 1; parts <= MOST_PARTS && (parts == 1 || parts * LEAST_PART <= k); parts++) {
            const tx_predicted p = predict_parts(card, l, operands, (double)m, (double)n, (double)k, epilogue, parts);
            best = p.seconds < best.seconds ? p : best;
        }
    }
    return best;
}

static const char *transposes_of(bool trans_a, bool trans_b)
{
    return trans_a ? "10" : trans_b ? "01" : "00"; /* if both are transposed, counts as trans_a */
}

tx_predicted tx_predict_provider(const tx_card *card, const char *provider, tx_operands operands, bool trans_a,
                                 bool trans_b, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue)
{
    return best_of_loops(card, provider, operands, operands, transposes_of(trans_a, trans_b), m, n, k, epilogue);
}

tx_predicted tx_predict_product(const tx_card *card, tx_operands operands, bool trans_a, bool trans_b, int64_t m,
                                int64_t n, int64_t k, tx_epilogue epilogue)
{
    const double flops = 2.0 * (double)m * (double)n * (double)k, simt = 1e9 * card->ghz * card->units * card->simt;
    const double assumed = flops / (ASSUMED * simt);
    tx_predicted p = tx_predict_provider(card, NULL, operands, trans_a, trans_b, m, n, k, epilogue);
    if (!(p.seconds < INFINITY)) /* by kernels for fp32, which convert their operands */
        p = best_of_loops(card, NULL, operands, TX_IN_FP32, transposes_of(trans_a, trans_b), m, n, k, epilogue);
    if (!(p.seconds < INFINITY))
        p = (tx_predicted){.seconds = assumed,
                           .tflops = 1e-12 * flops / assumed,
                           .provider = "not counted",
                           .bound = "assumed",
                           .parts = 1};
    return p;
}

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

typedef struct step {
    double seconds[KINDS], launches;
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
        return 4.0;
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

static void add_command(const tx_card *card, tx_operands operands, const tx_command *c, bool updates, step *s)
{
    double flops, bytes;
    tx_op_work(c, &flops, &bytes);
    const double kernels = kernels_of(c->op);
    s->launches += kernels;
    s->seconds[GAPS] += kernels * LAUNCH_GAP;
    if (c->op == TX_OP_MATMUL) {
        const int64_t n = c->out[0].shape.dim[c->out[0].shape.rank - 1], m = tx_operand_count(&c->out[0]) / n;
        const int64_t k = (int64_t)(flops / (2.0 * (double)(m * n)) + 0.5);
        const tx_operands from = c->in[0].dtype == TX_F32 && operands == TX_IN_BF16 ? TX_IN_FP32 : operands;
        const tx_predicted p =
            tx_predict_product(card, from, c->attrs.trans_a, c->attrs.trans_b, m, n, k, c->attrs.epilogue);
        s->seconds[PRODUCTS] += p.seconds;
        s->launches += p.parts > 1;
    } else if (c->op == TX_OP_ATTENTION || c->op == TX_OP_ATTENTION_GRAD) {
        s->seconds[ATTENTION] += attention_seconds(card, c, flops);
    } else {
        s->seconds[updates ? UPDATE : OTHERS] +=
            bytes / (1e9 * COPY_SHARE * card->memory) + kernels * 2e-9 * card->latency / card->ghz;
    }
}

static step predict_step(const tx_card *card, tx_operands operands, const tx_trainer *trainer)
{
    step s = {.launches = 0.0};
    const tx_plan *plan;
    int64_t runs;
    for (int32_t which = TX_TRAINER_UPDATE; (plan = tx_trainer_plan(trainer, which, &runs)) != NULL; which++)
        for (int32_t i = 0; i < tx_plan_length(plan); i++)
            add_command(card, operands, &plan->commands[i], which == TX_TRAINER_UPDATE, &s);
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
    bool json;
} settings;

static const tx_option options[] = {
    TX_BENCH_MODEL(AT),
    TX_BENCH_BATCH(AT),
    {TX_OPTION_TEXT, "card", AT(card), .choices = "NAME",
     .help = "a card of cards.def: h200, a100, mi300x, ...; default: all cards"},
    {TX_OPTION_TEXT, "provider", AT(provider), .choices = "NAME",
     .help = "predict only products of this provider, such as nvidia-mma-128x256; default: the fastest provider"},
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
            tx_json_set_string(one, "type", type_names[operands]);
            tx_json_set_string(one, "transposes", transposes == 2 ? "TN" : transposes ? "NT" : "NN");
            tx_json_set_string(one, "provider", p.provider);
            tx_json_set_number(one, "tflops_at_most", p.tflops);
            if (operands == TX_IN_BF16)
                tx_json_set_number(one, "aim", card->aim);
            tx_json_set_string(one, "bound", p.bound);
            for (int i = 0; i < TX_ROUND_TERMS; i++)
                tx_json_set_number(one, round_names[i], p.clocks[i]);
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
    tx_json_set_string(one, "type", type_names[operands]);
    for (int kind = 0; kind < KINDS; kind++)
        tx_json_set_number(one, kind_names[kind], 1e3 * s.seconds[kind]);
    tx_json_set_number(one, "host_ms", 1e3 * host);
    tx_json_set_number(one, "step_ms_at_least", 1e3 * seconds);
    tx_json_set_number(one, "tokens_per_second_at_most", (double)(set->batch * set->block) / seconds);
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
    for (int i = 0; i < LOOPS; i++)
        if (!name || strcmp(name, loops[i].provider) == 0)
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
