/* SPDX-License-Identifier: Apache-2.0
 *
 * A classifier in chunks of rows. Losses and gradients equal those of a classifier with all logits at once, within
 * rounding, with the same bits every time. The memory is that of a chunk's logits.
 *
 *     test_classifier [DEVICE]      exit status 77: there is no such device */
#include "api/model/model.h"
#include "api/passes/passes.h"
#include "tests/gradients.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
    if (call)       \
    return fprintf(stderr, "test_classifier: %s\n", tx_error()), false

enum { BATCH = 2, LENGTH = 300, ROWS = BATCH * LENGTH, VOCAB = 500, PADDED = 512, WIDTH = 24, CHUNK_ROWS = 256 };
enum { TABLE = VOCAB * WIDTH, GRADIENTS = 2 * TABLE + 2 * WIDTH };

#define ROW_BYTES ((int64_t)(PADDED * sizeof(float)))
#define WHOLE TX_CHUNK_BYTES /* more than the logits of these graphs */
#define CHUNKS (CHUNK_ROWS * ROW_BYTES)

typedef struct form {
    const char *name;
    bool tied, train, half; /* half: the product reads and writes bf16 */
    bool taught;            /* learns from the logits of a frozen table */
    bool squared;           /* the mean of the squared losses: their gradient depends on them */
    bool measured;          /* losses times the entropies */
    bool rewarded;          /* a half of the entropies is added to the losses, with its gradient */
} form;

/* Results of a graph. */
typedef struct outcome {
    float loss, losses[ROWS], gradient[GRADIENTS];
    int64_t planned; /* bytes of activations and temporary memory */
    int32_t losses_nodes, fused_nodes;
} outcome;

typedef struct machine {
    tx_model *model;
    tx_graph *graph;
    tx_tensor *tokens, *labels, *losses;
    tx_plan *plan;
} machine;

static tx_tensor *param(tx_graph *g, const char *name, tx_shape shape, tx_init init)
{
    tx_param_spec spec = {.shape = shape, .init = init, .scale = 0.5f};
    if (shape.rank == 2) {
        spec.logical = shape;
        spec.logical.dim[0] = VOCAB;
    }
    return tx_param(g, name, &spec);
}

static tx_tensor *logits_of(tx_tensor *x, tx_tensor *table, bool half)
{
    if (!half)
        return tx_linear(x, table, NULL, true);
    return tx_cast(tx_linear(tx_cast(x, TX_BF16), tx_cast(table, TX_BF16), NULL, true), TX_F32);
}

static tx_status build(machine *m, const form *f)
{
    tx_graph *g = m->graph;
    m->tokens = tx_input(g, "tokens", TX_I32, TX_SHAPE(BATCH, LENGTH));
    m->labels = tx_input(g, "labels", TX_I32, TX_SHAPE(BATCH, LENGTH));
    tx_tensor *table = param(g, "table", TX_SHAPE(PADDED, WIDTH), TX_INIT_NORMAL);
    tx_tensor *gamma = param(g, "gamma", TX_SHAPE(WIDTH), TX_INIT_ONE);
    tx_tensor *beta = param(g, "beta", TX_SHAPE(WIDTH), TX_INIT_ZERO);
    tx_tensor *head = param(g, "head", TX_SHAPE(PADDED, WIDTH), TX_INIT_NORMAL);
    tx_tensor *x = tx_layer_norm(tx_embedding(m->tokens, table, NULL, NULL), gamma, beta, 1e-5f);
    tx_tensor *logits = logits_of(x, f->tied ? table : head, f->half);
    const tx_param_spec frozen = {
        .shape = TX_SHAPE(PADDED, WIDTH), .init = TX_INIT_NORMAL, .scale = 0.5f, .frozen = true};
    tx_tensor *teacher = f->taught ? logits_of(tx_embedding(m->tokens, tx_param(g, "teacher.in", &frozen), NULL, NULL),
                                               tx_param(g, "teacher.out", &frozen), f->half)
                                   : NULL;
    m->losses = f->taught ? tx_distillation(logits, teacher, m->labels, VOCAB, 2.0f, 0.3f)
                          : tx_cross_entropy_smoothed(logits, m->labels, VOCAB, f->tied ? 0.1f : 0.0f);
    tx_tensor *statistics[TX_TOKEN_STATISTICS], *cross_entropy = m->losses;
    if (f->measured && tx_token_statistics(m->losses, m->labels, statistics) == TX_OK)
        m->losses = tx_mul(m->losses, statistics[TX_TOKEN_ENTROPY]);
    if (f->rewarded)
        m->losses = tx_add(m->losses, tx_scale(tx_token_entropy(cross_entropy, m->labels), 0.5f));
    if (f->train)
        return tx_backward(g, tx_mean_loss(f->squared ? tx_mul(m->losses, m->losses) : m->losses));
    tx_output(m->losses);
    return TX_OK;
}

/* One micro-batch. Some labels are ignored, and all of the third chunk's. */
static tx_status run(machine *m, int number)
{
    int32_t tokens[ROWS], labels[ROWS];
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 7 + number * 13) % VOCAB;
        labels[i] = i % 9 == 4 || i >= 2 * CHUNK_ROWS ? TX_IGNORE_LABEL : (i * 11 + number * 3) % VOCAB;
    }
    tx_status status = tx_model_set(m->model, TX_CONTROL_ACCUMULATE, number > 0);
    TX_THEN(status, tx_plan_write(m->plan, m->tokens, tokens, sizeof tokens));
    TX_THEN(status, tx_plan_write(m->plan, m->labels, labels, sizeof labels));
    return status ? status : tx_plan_run(m->plan);
}

/* The memory that the backend allocates equals the plan, to the byte. */
static bool check_memory(const tx_engine *engine, const machine *m, outcome *out)
{
    tx_memory planned, counted;
    CHECK(tx_model_memory(m->model, &planned));
    CHECK(tx_engine_memory(engine, &counted));
    out->planned = planned.bytes[TX_MEMORY_ACTIVATIONS] + planned.bytes[TX_MEMORY_TEMPORARY];
    if (tx_memory_total(&planned) == tx_memory_total(&counted))
        return true;
    printf("planned are %lld bytes, counted %lld\n", (long long)tx_memory_total(&planned),
           (long long)tx_memory_total(&counted));
    return false;
}

/* Builds, lets the classifier go by chunks of `bytes`, and runs two micro-batches. */
static bool make(tx_engine *engine, const form *f, int64_t bytes, bool fused, outcome *out)
{
    machine m = {0};
    setenv("TX_FUSE", fused ? "1" : "0", 1);
    memset(out, 0, sizeof *out);
    CHECK(tx_model_create(engine, &m.model));
    CHECK(tx_graph_create(m.model, &m.graph));
    CHECK(build(&m, f));
    m.graph->chunk_bytes = bytes;
    CHECK(tx_plan_create(m.graph, "classifier", &m.plan));
    for (int32_t i = 0; i < m.graph->nodes; i++) {
        out->losses_nodes += m.graph->node[i].op == (f->taught ? TX_OP_DISTILLATION : TX_OP_CROSS_ENTROPY);
        out->fused_nodes += m.graph->node[i].op == TX_OP_FUSED_CLASSIFIER;
    }
    CHECK(tx_model_init(m.model, 1));
    CHECK(tx_model_set(m.model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)ROWS));
    CHECK(run(&m, 0));
    CHECK(run(&m, 1));
    CHECK(f->train ? read_gradients(m.model, &out->loss, out->gradient)
                   : tx_plan_read(m.plan, m.losses, out->losses, sizeof out->losses));
    const bool good = check_memory(engine, &m, out);
    tx_plan_free(m.plan);
    tx_graph_free(m.graph);
    tx_model_free(m.model);
    return good;
}

static int64_t aligned(int64_t floats)
{
    return (floats * (int64_t)sizeof(float) + TX_ALIGNMENT - 1) / TX_ALIGNMENT * TX_ALIGNMENT;
}

/* Only a chunk's logits and their cast to fp32 are stored. In training dx cannot overwrite the product's input, which
 * later chunks read. In evaluation memory peaks when the logits have just been computed. Losses and lse are not
 * allocated then, but with chunks they are. A teacher's logits are divided in the same way, and losses exist at the
 * peak. */
static int64_t memory_saved(const form *f)
{
    const int64_t logits = (ROWS - CHUNK_ROWS) * ROW_BYTES;
    if (f->taught)
        return 2 * logits - aligned(ROWS * WIDTH) - aligned(ROWS);
    if (!f->train)
        return logits - 2 * aligned(ROWS);
    if (f->rewarded) /* the gradients of losses and entropies exist together */
        return 2 * logits - aligned(ROWS * WIDTH);
    return logits + (f->half ? logits / 2 : 0) - aligned(ROWS * WIDTH);
}

static double distance(const form *f, const outcome *a, const outcome *b)
{
    return f->train ? relative_distance(a->gradient, b->gradient, GRADIENTS)
                    : relative_distance(a->losses, b->losses, ROWS);
}

/* In training loss and gradient are one node. It gives the results of two nodes, on the cpu with the same bits. */
static bool compare_fused(const form *f, const outcome *fused, const outcome *apart, bool same_bits)
{
    const double off = distance(f, fused, apart), loss_off = fabs((double)fused->loss - (double)apart->loss);
    const double most = same_bits ? 0.0 : 1e-6;
    const bool good = off <= most && loss_off <= most * fabs((double)apart->loss) && apart->fused_nodes == 0 &&
                      fused->fused_nodes == (f->train ? apart->losses_nodes : 0);
    printf("%s: %d fused, relative L2 distance %.1e, of the loss %.1e%s\n", f->name, fused->fused_nodes, off, loss_off,
           good ? "" : "  WRONG");
    return good;
}

static bool compare(const form *f, const outcome *whole, const outcome *parts, const outcome *again)
{
    const double off = distance(f, parts, whole);
    const double loss_off = fabs((double)parts->loss - (double)whole->loss);
    const bool same = memcmp(parts, again, sizeof *parts) == 0;
    const int64_t less = whole->planned - parts->planned, wanted = memory_saved(f);
    /* With two rounds some numbers for each row, such as the lse, exist at other times. */
    const int64_t apart = f->measured || f->rewarded ? 6 * aligned(ROWS) : f->squared ? 2 * aligned(ROWS) : 0;
    const bool good = off <= 1e-6 && loss_off <= 1e-6 * fabs((double)whole->loss) && same && less >= wanted - apart &&
                      less <= wanted + apart && whole->losses_nodes + whole->fused_nodes == 1 &&
                      parts->losses_nodes + parts->fused_nodes == 3;
    printf("%s: %d chunks, relative L2 distance %.1e, of the loss %.1e, %s bits again, %lld bytes less (of %lld)%s\n",
           f->name, parts->losses_nodes + parts->fused_nodes, off, loss_off, same ? "the same" : "OTHER",
           (long long)less, (long long)wanted, good ? "" : "  WRONG");
    return good;
}

static bool check(tx_engine *engine, const form *f, bool same_bits)
{
    static outcome whole, parts, again, apart;
    bool good = make(engine, f, WHOLE, true, &whole) && make(engine, f, CHUNKS, true, &parts) &&
                make(engine, f, CHUNKS, true, &again) && compare(f, &whole, &parts, &again);
    if (f->taught || f->squared || f->measured || f->rewarded)
        return good;
    good = make(engine, f, WHOLE, false, &apart) && compare_fused(f, &whole, &apart, same_bits) && good;
    return make(engine, f, CHUNKS, false, &apart) && compare_fused(f, &parts, &apart, same_bits) && good;
}

int main(int argc, char **argv)
{
    tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu"};
    tx_engine *engine;
    tx_status status = tx_engine_create(&options, &engine);
    if (status)
        return fprintf(stderr, "test_classifier: %s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    static const form forms[] = {
        {"tied, training", true, true, false, false, false, false, false},
        {"with a table of its own, training", false, true, false, false, false, false, false},
        {"evaluation", true, false, false, false, false, false, false},
        {"tied, training, in bf16", true, true, true, false, false, false, false},
        {"tied, squared losses", true, true, false, false, true, false, false},
        {"with a table of its own, squared losses", false, true, false, false, true, false, false},
        {"tied, squared losses, in bf16", true, true, true, false, true, false, false},
        {"tied, with entropies", true, true, false, false, false, true, false},
        {"tied, with entropies, evaluation", true, false, false, false, false, true, false},
        {"with a table of its own, squared losses and entropies, in bf16", false, true, true, false, true, true, false},
        {"with a teacher", true, true, false, true, false, false, false},
        {"with a teacher and a table of its own", false, true, false, true, false, false, false},
        {.name = "tied, and a half of the entropies", .tied = true, .train = true, .rewarded = true},
        {.name = "squared losses and a half of the entropies, in bf16",
         .train = true,
         .half = true,
         .squared = true,
         .rewarded = true},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        good &= check(engine, &forms[i], strcmp(options.device, "cpu") == 0);
    tx_engine_free(engine);
    return good ? 0 : 1;
}
