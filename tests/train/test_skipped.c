/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates that are skipped because a gradient is not finite, with every way of offloading. A small GPT-2 trains for
 * seven steps, with an evaluation after each. A cell of the table has a precision, an optimizer, a way of offloading
 * and a pattern of skipped steps. Its losses, results, weights and states have the same bits as without offloading.
 * Under a launcher the ZeRO stages alternate.
 *
 *     test_skipped DEVICE [all]    Without `all`, one of twelve cells, chosen by TX_TEST_TURN. Exit status 77: no
 * device
 */
#include "tests/train/rows.h"
#include "tests/train/small_gpt2.h"

#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 7, ROWS = 2, ACCUMULATION = 2, EVERY = 12 };

static const struct {
    const char *name;
    tx_offload_place params, states;
    bool activations;
} offloads[] = {
    {"param cpu", TX_OFFLOAD_HOST, TX_OFFLOAD_NONE, false},
    {"param nvme", TX_OFFLOAD_FILE, TX_OFFLOAD_NONE, false},
    {"optimizer cpu", TX_OFFLOAD_NONE, TX_OFFLOAD_HOST, false},
    {"optimizer nvme", TX_OFFLOAD_NONE, TX_OFFLOAD_FILE, false},
    {"both cpu", TX_OFFLOAD_HOST, TX_OFFLOAD_HOST, false},
    {"both nvme", TX_OFFLOAD_FILE, TX_OFFLOAD_FILE, false},
    {"activations", TX_OFFLOAD_NONE, TX_OFFLOAD_NONE, true},
    {"all", TX_OFFLOAD_HOST, TX_OFFLOAD_FILE, true},
};
enum { OFFLOADS = sizeof offloads / sizeof offloads[0] };

/* Bit i skips step i by a loss scale at which the norm of any gradient is infinite. Scaler: the loss scale of fp16 is
 * too large at first and grows, so that it skips steps itself. */
static const struct {
    const char *name;
    uint32_t steps;
} patterns[] = {{"first", 1u}, {"first two", 3u}, {"middle", 8u}, {"twice in a row", 12u}, {"scaler", 0u}};
enum { PATTERNS = sizeof patterns / sizeof patterns[0] };

static const tx_job_settings settings[] = {
    {.seed = 7, .max_grad_norm = 1.0},
    {.seed = 7, .max_grad_norm = 1.0, .fp16 = true, .init_scale = 1024.0, .growth_interval = 2},
    {.seed = 7, .max_grad_norm = 1.0, .fp16 = true, .init_scale = 4194304.0, .growth_interval = 1}};

typedef struct cell {
    int precision, optimizer, pattern, offload, stage; /* an offload of -1 is none */
} cell;

/* The results of a step and the sums of the evaluation after it. */
typedef struct outcome {
    tx_results results;
    double sums[TX_SUMS_MAX];
} outcome;

typedef struct run_of {
    outcome step[STEPS];
    snapshot end;
} run_of;

static tx_engine *engine;
static tx_comm *comm;
static tx_config *config;

static tx_trainer_options options_of(const cell *c)
{
    tx_trainer_options o = small_options();
    const tx_dtype autocast = precisions[c->precision].autocast;
    o.batch = o.eval_batch = ROWS;
    o.accumulation = ACCUMULATION;
    o.all_rows = ROWS * comm->size;
    o.rows_before = (int64_t)ROWS * comm->rank;
    o.comm = comm;
    o.set = &settings[autocast != TX_F16 ? 0 : patterns[c->pattern].steps ? 1 : 2];
    o.autocast = o.eval_autocast = autocast;
    o.stored = precisions[c->precision].stored;
    o.optimizer = optimizers[c->optimizer].options;
    o.optimizer.size = sizeof o.optimizer;
    o.parallel = (tx_parallel_options){
        .size = sizeof o.parallel, .zero_stage = c->stage, .whole = tx_optimizer_is_whole(o.optimizer.kind)};
    o.optimizer.offload_folder = o.offload_folder = ".";
    o.optimizer.offload_elements = 1000; /* several pieces a matrix, and no whole number of blocks */
    if (c->offload >= 0) {
        o.offload_params = offloads[c->offload].params;
        o.optimizer.offload = offloads[c->offload].states;
        o.offload_activations = offloads[c->offload].activations;
    }
    return o;
}

/* ---- A run ---------------------------------------------------------------------------------------------- */

static tx_status take_step(tx_trainer *trainer, tx_model *model, const cell *c, int step, outcome *to)
{
    int32_t tokens[ROWS * ACCUMULATION * SMALL_BLOCK];
    const float too_large = 3e38f;
    const bool skips = patterns[c->pattern].steps >> step & 1u;
    tx_results before = step ? to[-1].results : (tx_results){{0}};
    const float scale =
        step ? before.value[TX_RESULT_LOSS_SCALE] : (float)tx_trainer_options_of(trainer)->set->init_scale;
    for (int64_t i = 0; i < ROWS * ACCUMULATION * SMALL_BLOCK; i++)
        tokens[i] = (int32_t)((i * i + 31 * step + 7 * comm->rank) % 251);
    const tx_batch batch = {.rows = ROWS * ACCUMULATION, .field = {tokens, tokens}},
                   rows = {.rows = ROWS, .field = {tokens, tokens}};
    before.value[TX_RESULT_LOSS_SCALE] = skips ? too_large : scale;
    if (patterns[c->pattern].steps)
        TX_TRY(tx_model_restore(model, &before));
    TX_TRY(tx_trainer_step(trainer, &batch, batch.rows * comm->size * SMALL_BLOCK, 1e-3));
    TX_TRY(tx_trainer_results(trainer, &to->results));
    if (patterns[c->pattern].steps)
        to->results.value[TX_RESULT_LOSS_SCALE] =
            skips || scale == 0.0f ? scale : to->results.value[TX_RESULT_LOSS_SCALE];
    TX_TRY(tx_model_wait(model));
    return tx_trainer_evaluate(trainer, &rows, to->sums, NULL);
}

/* The pattern's steps were skipped and the others were not. */
static tx_status check_count(const cell *c, const run_of *r)
{
    const tx_result kinds[] = {TX_RESULT_SKIPPED, TX_RESULT_UPDATES};
    const float *end = r->step[STEPS - 1].results.value;
    int skipped = 0;
    for (int i = 0; i < STEPS; i++)
        skipped += (int)(patterns[c->pattern].steps >> i & 1u);
    const bool right = skipped ? end[kinds[0]] == (float)skipped && end[kinds[1]] == (float)(STEPS - skipped)
                               : end[kinds[0]] >= 2.0f && end[kinds[1]] >= 2.0f;
    return right ? TX_OK
                 : tx_fail(TX_INTERNAL, "%g updates and %g skipped ones", (double)end[kinds[1]], (double)end[kinds[0]]);
}

static tx_status run(const cell *c, run_of *r)
{
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    const tx_trainer_options options = options_of(c);
    tx_status status = tx_model_create(engine, &model);
    TX_THEN(status, tx_trainer_create(model, config, &options, &trainer));
    TX_THEN(status, tx_model_init(model, 1));
    for (int i = 0; i < STEPS && !status; i++)
        status = take_step(trainer, model, c, i, &r->step[i]);
    TX_THEN(status, copy_all(model, &r->end, false));
    TX_THEN(status, check_count(c, r));
    tx_trainer_free(trainer);
    tx_model_free(model);
    return status;
}

static tx_status compare(const run_of *kept, const run_of *away)
{
    for (int i = 0; i < STEPS; i++)
        if (memcmp(&kept->step[i], &away->step[i], sizeof kept->step[i]) != 0)
            return tx_fail(TX_INTERNAL, "step %d has loss %g instead of %g, or its evaluation differs", i + 1,
                           (double)away->step[i].results.value[TX_RESULT_LOSS],
                           (double)kept->step[i].results.value[TX_RESULT_LOSS]);
    return kept->end.count == away->end.count &&
                   memcmp(kept->end.number, away->end.number, (size_t)kept->end.count * sizeof *kept->end.number) == 0
               ? TX_OK
               : tx_fail(TX_INTERNAL, "weights or states differ");
}

/* ---- The table ------------------------------------------------------------------------------------------ */

/* Ranks that exchange whole weights keep them on the device. */
static bool has(const cell *c)
{
    return goes_with(c->precision, c->optimizer) &&
           (patterns[c->pattern].steps || precisions[c->precision].autocast == TX_F16) &&
           !(offloads[c->offload].params && (c->stage == 1 || c->stage == 2));
}

static tx_status check(const cell *c, run_of *kept)
{
    run_of away = {0};
    cell without = *c;
    without.offload = -1;
    tx_status status = kept->end.count ? TX_OK : run(&without, kept);
    TX_THEN(status, run(c, &away));
    TX_THEN(status, compare(kept, &away));
    free(away.end.number);
    return status;
}

static int check_all(bool all)
{
    const char *turn = getenv("TX_TEST_TURN");
    const int chosen = turn ? atoi(turn) % EVERY : 0;
    int failed = 0, done = 0, cells = 0;
    run_of kept = {0};
    for (int i = 0; i < PRECISIONS * OPTIMIZERS * PATTERNS * OFFLOADS; i++) {
        cell c = {.offload = i % OFFLOADS,
                  .pattern = i / OFFLOADS % PATTERNS,
                  .precision = i / OFFLOADS / PATTERNS % PRECISIONS,
                  .optimizer = i / OFFLOADS / PATTERNS / PRECISIONS};
        c.stage = comm->size > 1 ? (c.optimizer + c.precision) % 4 : 0;
        if (c.offload == 0) { /* the run without offloading is another one */
            free(kept.end.number);
            kept = (run_of){0};
        }
        if (!has(&c) || (cells++ % EVERY != chosen && !all))
            continue;
        done++;
        if (check(&c, &kept) == TX_OK)
            continue;
        failed++;
        printf("FAIL %s, %s, %s, skipped %s, stage %d: %s\n", precisions[c.precision].name,
               optimizers[c.optimizer].name, offloads[c.offload].name, patterns[c.pattern].name, c.stage, tx_error());
    }
    free(kept.end.number);
    printf("%d of %d cells have the same bits; the table has %d\n", done - failed, done, cells);
    return failed > 0 || done == 0;
}

int main(int argc, char **argv)
{
    const tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu", .threads = 1};
    tx_status status = tx_comm_open(&argc, &argv, &comm);
    TX_THEN(status, tx_engine_create(&options, &engine));
    if (status == TX_NOT_FOUND) {
        printf("skipped: %s\n", tx_error());
        return 77;
    }
    TX_THEN(status, small_config(&config));
    if (status) {
        printf("FAIL: %s\n", tx_error());
        return 1;
    }
    config->width = 48; /* so that some matrices have moments in 8 bits */
    const int failed = check_all(argc > 2 && strcmp(argv[2], "all") == 0);
    tx_config_free(config);
    tx_engine_free(engine);
    tx_comm_close(comm);
    return failed;
}
