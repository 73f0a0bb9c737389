/* SPDX-License-Identifier: Apache-2.0
 *
 * Every precision with every optimizer, with and without gradient checkpointing and accumulation. A small GPT-2, or a
 * BERT for masked words, trains for five steps. A second run repeats the last two steps from the state after the third,
 * with offloaded states, and gives the same bits. The memory equals the forecast and the count, to the byte. The zeros
 * of a pruned model stay. Under a launcher the ZeRO stages alternate. (tests/parallel/test_ranks_models.sh tests the
 * models that txtrain trains.)
 *
 *     test_combinations DEVICE [pairs]    pairs: only enough cases to combine any two values. Exit status 77: no
 * device */
#include "models/arch/prune.h"
#include "models/train/trainer.h"
#include "tests/train/rows.h"
#include "tests/train/small_gpt2.h"

#include "comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 5, CUT = 3, ROWS = 2, MOST_ACCUMULATION = 3 };

enum { GPT2, MASKED, MODELS };
static const char *const models[] = {"GPT-2", "BERT"};

typedef struct combination {
    int model, optimizer, precision, checkpointed, accumulation, stage;
    bool pruned;
} combination;

static tx_engine *engine;
static tx_comm *comm;
static tx_config *configs[MODELS];

/* Without and with a loss scale, which grows before and after the cut. */
static const tx_job_settings settings[] = {
    {.seed = 7, .max_grad_norm = 1.0},
    {.seed = 7, .max_grad_norm = 1.0, .fp16 = true, .init_scale = 1024.0, .growth_interval = 2}};

static tx_trainer_options options_of(const combination *c)
{
    tx_trainer_options o = small_options();
    const tx_dtype autocast = precisions[c->precision].autocast;
    o.batch = ROWS;
    o.accumulation = c->accumulation;
    o.all_rows = ROWS * comm->size;
    o.rows_before = (int64_t)ROWS * comm->rank;
    o.comm = comm;
    o.set = &settings[autocast == TX_F16];
    o.autocast = o.eval_autocast = autocast;
    o.stored = precisions[c->precision].stored;
    if (c->checkpointed)
        o.checkpointing = (tx_checkpointing){sizeof o.checkpointing, .whole = INT32_MAX};
    o.optimizer = optimizers[c->optimizer].options;
    o.optimizer.size = sizeof o.optimizer;
    o.optimizer.keep_zeros = c->pruned;
    o.parallel = (tx_parallel_options){
        .size = sizeof o.parallel, .zero_stage = c->stage, .whole = tx_optimizer_is_whole(o.optimizer.kind)};
    return o;
}

/* ---- A run ---------------------------------------------------------------------------------------------- */

static tx_status train(tx_trainer *trainer, const combination *c, int from, int to, tx_results *results)
{
    int32_t tokens[ROWS * MOST_ACCUMULATION * SMALL_BLOCK];
    const int64_t rows = (int64_t)ROWS * c->accumulation;
    for (int step = from; step < to; step++) {
        for (int64_t i = 0; i < rows * SMALL_BLOCK; i++)
            tokens[i] = (int32_t)((i * i + 31 * step + 7 * comm->rank) % 251);
        const tx_batch batch = {.rows = rows, .field = {tokens, tokens}};
        const int64_t labels = rows * comm->size * SMALL_BLOCK;
        TX_TRY(tx_trainer_step(trainer, &batch, labels, 1e-3));
        TX_TRY(tx_trainer_results(trainer, results));
        if (!isfinite(results->value[TX_RESULT_LOSS]) || results->value[TX_RESULT_UPDATES] != (float)(step + 1))
            return tx_fail(TX_INTERNAL, "step %d: loss %g, %g updates", step + 1,
                           (double)results->value[TX_RESULT_LOSS], (double)results->value[TX_RESULT_UPDATES]);
    }
    return TX_OK;
}

/* Runs all steps and saves the state after step CUT in `cut`. If `cut` is set already, restores it and runs the
 * rest. */
static tx_status finish(tx_trainer *trainer, tx_model *model, const combination *c, snapshot *cut, snapshot *end)
{
    if (cut->count > 0) {
        TX_TRY(copy_all(model, cut, true));
        TX_TRY(tx_trainer_restore(trainer, &cut->results));
        tx_trainer_set_steps(trainer, CUT);
    } else {
        TX_TRY(train(trainer, c, 0, CUT, &cut->results));
        TX_TRY(tx_trainer_average(trainer, true)); /* as before a checkpoint */
        TX_TRY(tx_model_wait(model));
        TX_TRY(copy_all(model, cut, false));
    }
    TX_TRY(train(trainer, c, CUT, STEPS, &end->results));
    TX_TRY(tx_model_wait(model));
    return copy_all(model, end, false);
}

/* The planned memory equals the forecast, except for scratch memory of kernels, and the count. */
static tx_status compare_memory(const tx_model *model, const tx_config *config, const tx_trainer_options *options)
{
    tx_forecast foreseen;
    tx_memory planned, counted;
    TX_TRY(tx_model_memory(model, &planned));
    TX_TRY(tx_engine_memory(engine, &counted));
    TX_TRY(tx_trainer_forecast(engine, config, options, &foreseen));
    for (int k = 0; k < TX_MEMORY_COUNT; k++) {
        int64_t plan = planned.bytes[k];
        if (k != TX_MEMORY_SCRATCH && foreseen.memory.bytes[k] != plan)
            return tx_fail(TX_INTERNAL, "%s: %lld bytes foreseen, %lld planned", tx_memory_name((tx_memory_kind)k),
                           (long long)foreseen.memory.bytes[k], (long long)plan);
        plan += k == TX_MEMORY_ACTIVATIONS ? planned.bytes[TX_MEMORY_TEMPORARY] : 0;
        if (k != TX_MEMORY_TEMPORARY && counted.bytes[k] != plan)
            return tx_fail(TX_INTERNAL, "%s: %lld bytes planned, %lld counted", tx_memory_name((tx_memory_kind)k),
                           (long long)plan, (long long)counted.bytes[k]);
    }
    return TX_OK;
}

/* Which weights of the blocks' matrices are 0, as a digest, and how many are. */
static tx_status find_zeros(tx_model *model, uint64_t *digest, int64_t *zeros)
{
    *digest = 0;
    *zeros = 0;
    for (int32_t p = 0; p < tx_model_param_count(model); p++) {
        const char *name;
        const tx_param_spec *spec;
        static float w[1 << 16];
        TX_TRY(tx_model_param(model, p, &name, &spec));
        if (spec->table || spec->shape.rank != 2)
            continue;
        TX_TRY(tx_model_read(model, TX_PARAM_WEIGHT, p, w));
        for (int64_t i = 0; i < tx_shape_count(&spec->shape); i++) {
            *digest = *digest * UINT64_C(6364136223846793005) + (w[i] == 0.0f) + 1;
            *zeros += w[i] == 0.0f;
        }
    }
    return TX_OK;
}

/* The zeros are those of the pruned model, in the resumed run as well. */
static tx_status check_zeros(tx_model *model, bool first)
{
    static uint64_t wanted;
    static int64_t count;
    uint64_t digest;
    int64_t zeros;
    TX_TRY(find_zeros(model, first ? &wanted : &digest, first ? &count : &zeros));
    return first || (digest == wanted && zeros == count)
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld weights are 0, and not the %lld that were", (long long)zeros,
                         (long long)count);
}

static tx_status prune(tx_model *model, const tx_config *config)
{
    const int64_t wanted = config == configs[GPT2] ? 8 : 12;
    tx_pruned pruned;
    TX_TRY(tx_prune(model, config, &(tx_pruning){0.5, 2, 4}, &pruned));
    if (pruned.matrices != wanted || 2 * pruned.zeros != pruned.weights)
        return tx_fail(TX_INTERNAL, "of %lld matrices %lld weights of %lld are 0", (long long)pruned.matrices,
                       (long long)pruned.zeros, (long long)pruned.weights);
    return check_zeros(model, true);
}

/* Runs `finish` with a new model. */
static tx_status run(const combination *c, snapshot *cut, snapshot *end)
{
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    const tx_config *config = configs[c->model];
    tx_trainer_options options = options_of(c);
    /* Offloads the states to host memory or a file, and the weights unless ranks exchange them whole. */
    if (cut->count > 0)
        options.optimizer.offload = c->accumulation > 1 ? TX_OFFLOAD_FILE : TX_OFFLOAD_HOST;
    if (c->stage == 0 || c->stage == 3)
        options.offload_params = options.optimizer.offload;
    options.optimizer.offload_folder = options.offload_folder = ".";
    options.optimizer.offload_elements = 1000; /* several pieces a matrix, and no whole number of blocks */
    tx_status status = tx_model_create(engine, &model);
    TX_THEN(status, tx_trainer_create(model, config, &options, &trainer));
    TX_THEN(status, tx_model_init(model, cut->count > 0 ? 2 : 1));
    if (c->pruned && cut->count == 0)
        TX_THEN(status, prune(model, config));
    TX_THEN(status, finish(trainer, model, c, cut, end));
    if (c->pruned)
        TX_THEN(status, check_zeros(model, false));
    TX_THEN(status, compare_memory(model, config, &options));
    tx_trainer_free(trainer);
    tx_model_free(model);
    return status;
}

static tx_status check(const combination *c)
{
    snapshot cut = {0}, end = {0}, again = {0};
    tx_status status = run(c, &cut, &end);
    TX_THEN(status, run(c, &cut, &again));
    if (!status &&
        (end.count != again.count || memcmp(end.number, again.number, (size_t)end.count * sizeof *end.number) != 0 ||
         memcmp(&end.results, &again.results, sizeof end.results) != 0))
        status = tx_fail(TX_INTERNAL, "what went on from step %d differs", CUT);
    free(cut.number);
    free(end.number);
    free(again.number);
    return status;
}

/* ---- Which ---------------------------------------------------------------------------------------------- */

/* Each optimizer with each precision; the others so that any two values of any two meet. */
static bool is_of_pairs(const combination *c)
{
    return c->model == (c->optimizer + c->precision / 2) % MODELS &&
           c->checkpointed == (c->optimizer + c->precision) % 2 &&
           (c->accumulation > 1) == (c->optimizer / 2 + c->precision) % 2;
}

static int check_all(bool pairs)
{
    int failed = 0, done = 0;
    for (int i = 0; i < OPTIMIZERS * PRECISIONS * 4 * MODELS; i++) {
        combination c = {.model = i / 4 % MODELS,
                         .optimizer = i / 4 / MODELS / PRECISIONS,
                         .precision = i / 4 / MODELS % PRECISIONS,
                         .checkpointed = i & 1,
                         .accumulation = i & 2 ? MOST_ACCUMULATION : 1};
        c.stage = comm->size > 1 ? (c.optimizer + c.precision) % 4 : 0;
        c.pruned = (c.checkpointed + (c.accumulation > 1) + c.optimizer + c.precision) & 1;
        if (!goes_with(c.precision, c.optimizer) || (pairs && !is_of_pairs(&c)))
            continue;
        done++;
        if (check(&c) == TX_OK)
            continue;
        failed++;
        printf("FAIL %s, %s, %s%s%s, %d micro-batches, stage %d: %s\n", models[c.model], precisions[c.precision].name,
               optimizers[c.optimizer].name, c.checkpointed ? ", checkpointed" : "", c.pruned ? ", pruned" : "",
               c.accumulation, c.stage, tx_error());
    }
    printf("%d of %d combinations passed\n", done - failed, done);
    return failed > 0 || done == 0;
}

static tx_status make_configs(void)
{
    static const char masked[] = "{\"model_type\": \"bert\", \"architectures\": [\"BertForMaskedLM\"], \"vocab_size\": "
                                 "257, \"hidden_size\": 48, "
                                 "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 96, "
                                 "\"max_position_embeddings\": 16}";
    tx_json *json = NULL;
    TX_TRY(small_config(&configs[GPT2]));
    configs[GPT2]->width = 48; /* so that some matrices have moments in 8 bits */
    TX_TRY(tx_json_parse(masked, sizeof masked - 1, "masked", &json));
    return tx_config_of_json(json, &configs[MASKED]);
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
    TX_THEN(status, make_configs());
    if (status) {
        printf("FAIL: %s\n", tx_error());
        return 1;
    }
    const int failed = check_all(argc > 2 && strcmp(argv[2], "pairs") == 0);
    for (int m = 0; m < MODELS; m++)
        tx_config_free(configs[m]);
    tx_engine_free(engine);
    tx_comm_close(comm);
    return failed;
}
