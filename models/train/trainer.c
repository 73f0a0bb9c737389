/* SPDX-License-Identifier: Apache-2.0
 * Compiles the plans of a model in training, and runs optimizer steps and evaluations. */
#include "models/train/writer.h"

#include "comm/comm.h"
#include "models/reward/reward.h"
#include "models/train/narrow.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A compiled graph over a batch. */
typedef struct batch_plan {
    tx_graph *graph;
    tx_tensor *field[TX_FIELDS_MAX], *output, *loss;
    tx_plan *plan;
    int64_t positions; /* of a row */
    int64_t runs;      /* since profiling began */
} batch_plan;

struct tx_trainer {
    tx_model *model;
    const tx_config *config;
    tx_trainer_options options;
    batch_plan train[TX_LENGTHS_MAX], evaluate[TX_LENGTHS_MAX]; /* from whole rows to the shortest rows */
    void *narrow;                                               /* a field of a batch as a plan reads it */
    void *padding;             /* a micro-batch without rows, for a short step of a pipeline */
    tx_plan *update, *average; /* the average's is NULL except for schedule-free optimizers */
    bool averaged;             /* the model has the average of the weights, not the weights of training */
    tx_writer *writer;         /* or NULL */
    tx_scorer *scorer[TX_REWARDS_MAX];
    int64_t updates; /* runs of the update plan since profiling began */
    int64_t step;
    float (*vote)(void *context);
    void *vote_context;
};

/* This rank among those that divide the positions of a row. */
static int64_t chunk_of(const tx_trainer_options *o)
{
    return o->parallel.context ? o->parallel.context->rank : 0;
}

static tx_status build(tx_trainer *trainer, bool train, int64_t rows, int32_t which, batch_plan *result)
{
    const tx_trainer_options *o = &trainer->options;
    const tx_task *task = o->task;
    const int64_t block = tx_trainer_length(o, which) / tx_trainer_chunks(o);
    result->positions = block;
    TX_TRY(tx_graph_create(trainer->model, &result->graph));
    const tx_dtype products = train ? o->autocast : o->eval_autocast;
    TX_TRY(tx_graph_autocast(result->graph, products));
    if (o->residual == products)
        TX_TRY(tx_graph_residual_dtype(result->graph, o->residual));
    if (train && (o->checkpointing.whole != 0 || o->checkpointing.cheap != 0))
        TX_TRY(tx_graph_checkpointing(result->graph, &o->checkpointing));
    if (train && o->fp32_residual_gradient)
        TX_TRY(tx_graph_fp32_residual_gradient(result->graph));
    if (train && o->logits)
        TX_TRY(tx_graph_limit_logits(result->graph, o->logits));
    if (train && o->offload_activations)
        TX_TRY(tx_graph_offload_activations(result->graph));
    for (int32_t f = 0; task->fields[f].name; f++) {
        tx_field field = task->fields[f];
        field.width = field.target ? tx_trainer_target(o, which) : field.width;
        result->field[f] = tx_input(result->graph, field.name, field.dtype, tx_field_shape(&field, rows, block));
    }
    result->loss = tx_trainer_loss(&trainer->options, trainer->config, result->graph, train, &result->output);
    if (train)
        TX_TRY(tx_backward(result->graph, result->loss));
    else
        tx_output(result->loss);
    if (!train && (task->generates || (task->measure && !o->write)))
        tx_output(result->output);
    TX_TRY(tx_plan_create(result->graph, train ? "train" : "evaluate", &result->plan));
    return train && trainer->options.watch ? tx_plan_watch(result->plan, trainer->options.watch) : TX_OK;
}

static void discard(batch_plan plans[TX_LENGTHS_MAX])
{
    for (int32_t i = 0; i < TX_LENGTHS_MAX; i++) {
        tx_plan_free(plans[i].plan);
        tx_graph_free(plans[i].graph);
        plans[i] = (batch_plan){0};
    }
}

/* Builds the plans of all lengths. */
static tx_status build_all(tx_trainer *trainer, bool train, int64_t rows, batch_plan result[TX_LENGTHS_MAX])
{
    for (int32_t i = 0; i < tx_trainer_plans(&trainer->options); i++)
        TX_TRY(build(trainer, train, rows, i, &result[i]));
    return TX_OK;
}

/* Whether the model has pipeline stages, so that one run of the training plan is a whole step. */
static bool is_staged(const tx_trainer *trainer)
{
    return trainer->options.parallel.pipeline && trainer->options.parallel.pipeline->size > 1;
}

static tx_status prepare(tx_trainer *trainer)
{
    const tx_trainer_options *o = &trainer->options;
    int32_t count;
    tx_reward_model *const *judges = tx_rewards_models(o->rewards, &count);
    TX_TRY(tx_model_store(trainer->model, o->stored));
    if (o->comm) {
        tx_parallel_options parallel = o->parallel;
        parallel.blocks = (int32_t)trainer->config->layers;
        parallel.micro_batches = (int32_t)o->accumulation;
        TX_TRY(tx_model_parallel(trainer->model, o->comm, &parallel));
    }
    if (o->offload_params)
        TX_TRY(tx_model_offload_params(trainer->model, o->offload_params, o->offload_folder,
                                       trainer->config->lora != NULL));
    else if (tx_trainer_offloads_weights(o))
        TX_TRY(tx_model_offload_weights(trainer->model));
    if (o->eval_batch && o->task->generates) /* first, since only they read the reference model */
        TX_TRY(build_all(trainer, false, o->eval_batch, trainer->evaluate));
    TX_TRY(tx_scorers_create(trainer->model, judges, count, o->eval_batch, o->eval_autocast, trainer->scorer));
    TX_TRY(build_all(trainer, true, o->batch, trainer->train));
    TX_TRY(tx_optimizer_create(trainer->model, &o->optimizer, &trainer->update));
    TX_TRY(tx_optimizer_average(trainer->model, &trainer->average));
    if (o->eval_batch && !o->task->generates)
        TX_TRY(build_all(trainer, false, o->eval_batch, trainer->evaluate));
    if (o->eval_batch && o->write && (o->slots || !o->task->generates))
        TX_TRY(tx_writer_create(trainer->model, trainer->config, o, &trainer->writer));
    if (is_staged(trainer)) {
        trainer->padding = malloc((size_t)(o->batch * tx_task_row_bytes(o->task, o->block)));
        TX_TRY(trainer->padding ? TX_OK : tx_fail(TX_MEMORY, "trainer: no memory for a micro-batch"));
    }
    if (tx_trainer_plans(o) > 1 || tx_trainer_chunks(o) > 1 || o->task->generates) {
        const int64_t rows = o->batch > o->eval_batch ? o->batch : o->eval_batch;
        trainer->narrow = malloc((size_t)(rows * tx_task_row_bytes(o->task, o->block)));
        TX_TRY(trainer->narrow ? TX_OK : tx_fail(TX_MEMORY, "trainer: no memory for a batch of shorter rows"));
    }
    TX_TRY(tx_model_set_seed(trainer->model, (uint64_t)o->set->seed));
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_MAX_GRAD_NORM, o->set->max_grad_norm));
    TX_TRY(
        tx_model_set(trainer->model, TX_CONTROL_GROWTH_INTERVAL, o->set->fp16 ? (double)o->set->growth_interval : 0.0));
    return tx_trainer_restore(trainer, &(tx_results){{0}});
}

tx_status tx_trainer_create(tx_model *model, const tx_config *config, const tx_trainer_options *options,
                            tx_trainer **trainer)
{
    TX_TRY(tx_trainer_check(options));
    tx_trainer *created = calloc(1, sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "trainer: out of memory");
    created->model = model;
    created->config = config;
    created->options = *options;
    created->options.set = options->set ? options->set : &tx_job_defaults;
    created->options.all_rows = options->all_rows ? options->all_rows : options->batch;
    tx_status status = prepare(created);
    return TX_RETURN(status, created, trainer, tx_trainer_free);
}

void tx_trainer_free(tx_trainer *trainer)
{
    if (!trainer)
        return;
    tx_scorers_free(trainer->scorer);
    tx_writer_free(trainer->writer);
    discard(trainer->evaluate);
    tx_plan_free(trainer->average);
    tx_plan_free(trainer->update);
    discard(trainer->train);
    free(trainer->narrow);
    free(trainer->padding);
    free(trainer);
}

tx_status tx_trainer_forecast(tx_engine *engine, const tx_config *config, const tx_trainer_options *options,
                              tx_forecast *forecast)
{
    tx_model *model = NULL;
    tx_trainer *trainer = NULL;
    tx_status status = tx_model_create(engine, &model);
    if (status)
        return status;
    tx_model_only_plan(model);
    status = tx_trainer_create(model, config, options, &trainer);
    TX_THEN(status, tx_model_memory(model, &forecast->memory));
    if (!status) {
        tx_plan_work(trainer->update, &(double){0}, &forecast->update_bytes);
        tx_plan_work(trainer->train[0].plan, &forecast->product_flops, &forecast->other_bytes);
        const double times = is_staged(trainer) ? (double)options->accumulation : 1.0;
        forecast->product_flops /= times;
        forecast->other_bytes /= times;
    }
    tx_trainer_free(trainer);
    tx_model_free(model);
    return status;
}

void tx_trainer_ask(tx_trainer *trainer, float (*vote)(void *context), void *context)
{
    trainer->vote = vote;
    trainer->vote_context = context;
}

tx_status tx_trainer_share(tx_trainer *trainer, int64_t batch, int64_t rows_before)
{
    tx_trainer_options changed = trainer->options;
    changed.batch = batch;
    changed.rows_before = rows_before;
    tx_status status = tx_trainer_check(&changed);
    if (status || batch == trainer->options.batch) {
        trainer->options = status ? trainer->options : changed;
        return status;
    }
    batch_plan result[TX_LENGTHS_MAX] = {{0}};
    void *narrow =
        trainer->narrow
            ? realloc(trainer->narrow, (size_t)(changed.all_rows * tx_task_row_bytes(changed.task, changed.block)))
            : NULL;
    status = trainer->narrow && !narrow ? tx_fail(TX_MEMORY, "trainer: no memory for a batch of shorter rows")
                                        : build_all(trainer, true, batch, result);
    trainer->narrow = narrow ? narrow : trainer->narrow;
    if (status) {
        discard(result);
        return status;
    }
    discard(trainer->train);
    memcpy(trainer->train, result, sizeof result);
    trainer->options = changed;
    return TX_OK;
}

const tx_trainer_options *tx_trainer_options_of(const tx_trainer *trainer)
{
    return &trainer->options;
}

int64_t tx_trainer_steps(const tx_trainer *trainer)
{
    return trainer->step;
}

tx_status tx_trainer_restore(tx_trainer *trainer, const tx_results *results)
{
    tx_results begin = *results;
    const tx_job_settings *set = trainer->options.set;
    const float first = set->fp16 ? (float)set->init_scale : 0.0f;
    if (first == 0.0f || begin.value[TX_RESULT_LOSS_SCALE] == 0.0f) {
        begin.value[TX_RESULT_LOSS_SCALE] = first;
        begin.value[TX_RESULT_SCALE_STEPS] = 0.0f;
    }
    return tx_model_restore(trainer->model, &begin);
}

void tx_trainer_set_steps(tx_trainer *trainer, int64_t steps)
{
    trainer->step = steps;
    trainer->averaged = steps > 0; /* a checkpoint has the average */
}

tx_status tx_trainer_average(tx_trainer *trainer, bool averaged)
{
    if (trainer->average && trainer->averaged != averaged) {
        TX_TRY(tx_plan_run(trainer->average));
        TX_TRY(tx_model_wait(trainer->model)); /* ranks have sent the weights */
    }
    trainer->averaged = averaged;
    return TX_OK;
}

/* Writes a batch to a plan's inputs for a micro-batch. */
static tx_status write_fields(tx_trainer *trainer, const batch_plan *plan, const tx_batch *batch, int32_t micro_batch)
{
    const tx_trainer_options *o = &trainer->options;
    const tx_narrowing narrow = {o->task,        o->block, plan->positions, chunk_of(o), tx_trainer_chunks(o),
                                 trainer->narrow};
    for (int32_t f = 0; o->task->fields[f].name; f++) {
        tx_tensor *field = tx_plan_input(plan->plan, plan->field[f], micro_batch);
        const tx_shape *shape = tx_tensor_shape(field);
        TX_TRY(tx_plan_write(plan->plan, field, tx_narrow_rows(&narrow, f, shape, batch->field[f]),
                             (size_t)tx_shape_count(shape) * tx_dtype_size(tx_tensor_dtype(field))));
    }
    return TX_OK;
}

/* The plan with the shortest rows that fit a batch. */
static int32_t plan_for(const tx_trainer_options *o, const tx_batch *batch)
{
    int32_t found = 0;
    for (int32_t which = 1; batch->longest && which < tx_trainer_plans(o); which++)
        if (tx_trainer_length(o, which) >= batch->longest && tx_trainer_target(o, which) >= batch->target)
            found = which;
    return found;
}

int64_t tx_trainer_positions(const tx_trainer *trainer, const tx_batch *batch)
{
    return tx_trainer_length(&trainer->options, plan_for(&trainer->options, batch));
}

/* Sets whether weights are rounded, and the controls that depend on a batch's padding: positions per token, and the
 * noise on embeddings. It depends on the longest row of the batch, not on the length of the plan's rows. */
static tx_status set_controls(const tx_trainer *trainer, const tx_batch *batch)
{
    const tx_trainer_options *o = &trainer->options;
    const int64_t tokens = tx_batch_tokens(o->task, o->block, batch), length = tx_trainer_positions(trainer, batch);
    const double positions = (double)(batch->rows * tx_task_sequences(o->task) * length);
    const double longest = (double)(o->lengths > 1 && batch->longest ? batch->longest : length);
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_FAKE_QUANTIZE, trainer->step >= o->set->fake_quant_after));
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_NOISE, sqrt((double)length / longest)));
    return tx_model_set(trainer->model, TX_CONTROL_POSITIONS_PER_TOKEN, tokens ? positions / (double)tokens : 0.0);
}

/* Runs the plan for a batch. */
static tx_status run_batch(tx_trainer *trainer, batch_plan plans[TX_LENGTHS_MAX], const tx_batch *batch,
                           batch_plan **ran)
{
    batch_plan *plan = *ran = &plans[plan_for(&trainer->options, batch)];
    TX_TRY(set_controls(trainer, batch));
    TX_TRY(write_fields(trainer, plan, batch, 0));
    TX_TRY(tx_plan_run(plan->plan));
    plan->runs++;
    return TX_OK;
}

/* Sets the controls of micro-batch `i` of a step. */
static tx_status begin_micro_batch(const tx_trainer *trainer, int64_t i, const tx_batch *micro, int64_t labels)
{
    const tx_trainer_options *o = &trainer->options;
    const double share = (double)tx_batch_labels(o->task, o->block, micro) / (double)labels;
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_ACCUMULATE, i > 0 ? 1.0 : 0.0));
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_SAMPLE,
                        (double)((i * o->all_rows + o->rows_before) * tx_task_sequences(o->task))));
    return tx_model_set(trainer->model, TX_CONTROL_LABEL_SHARE, share);
}

/* Runs all micro-batches of a step in one run of the plan. A short step is filled with micro-batches without labels,
 * which contribute nothing. */
static tx_status run_stages(tx_trainer *trainer, const tx_batch *batch, int64_t micro_batches, int64_t labels)
{
    const tx_trainer_options *o = &trainer->options;
    const tx_batch padding = tx_batch_of(o->task, o->block, o->batch, trainer->padding);
    for (int32_t f = 0; o->task->fields[f].name; f++)
        tx_field_pad(&o->task->fields[f], padding.field[f], o->batch * tx_field_values(&o->task->fields[f], o->block));
    for (int64_t i = 0; i < o->accumulation; i++) {
        const tx_batch micro =
            i < micro_batches ? tx_batch_rows(o->task, o->block, batch, i * o->batch, o->batch) : padding;
        TX_TRY(begin_micro_batch(trainer, i, &micro, labels));
        TX_TRY(set_controls(trainer, &micro));
        TX_TRY(tx_model_keep_controls(trainer->model, (int32_t)i));
        TX_TRY(write_fields(trainer, &trainer->train[0], &micro, (int32_t)i));
    }
    TX_TRY(tx_plan_run(trainer->train[0].plan));
    trainer->train[0].runs++;
    return TX_OK;
}

tx_status tx_trainer_step(tx_trainer *trainer, const tx_batch *batch, int64_t labels, double learning_rate)
{
    const tx_trainer_options *o = &trainer->options;
    const int64_t micro_batches = batch->rows / o->batch;
    if (batch->rows % o->batch != 0 || micro_batches < 1 || micro_batches > o->accumulation)
        return tx_fail(TX_INVALID,
                       "trainer: a step of %" PRId64 " rows; 1 to %" PRId64 " micro-batches of %" PRId64
                       " were planned",
                       batch->rows, o->accumulation, o->batch);
    if (labels == 0)
        return tx_fail(TX_INVALID, "trainer: a step without labels");
    tx_model *model = trainer->model;
    batch_plan *ran;
    tx_status status = tx_trainer_average(trainer, false);
    TX_THEN(status, tx_model_set(model, TX_CONTROL_LEARNING_RATE, learning_rate));
    TX_THEN(status, tx_model_set(model, TX_CONTROL_INVERSE_LABELS, 1.0 / (double)labels));
    TX_THEN(status, tx_model_set(model, TX_CONTROL_STEP, (double)(trainer->step & UINT32_MAX)));
    if (is_staged(trainer))
        TX_THEN(status, run_stages(trainer, batch, micro_batches, labels));
    for (int64_t i = 0; i < micro_batches && !status && !is_staged(trainer); i++) {
        const tx_batch micro = tx_batch_rows(o->task, o->block, batch, i * o->batch, o->batch);
        status = begin_micro_batch(trainer, i, &micro, labels);
        TX_THEN(status, tx_model_synchronize(model, i == micro_batches - 1));
        TX_THEN(status, run_batch(trainer, trainer->train, &micro, &ran));
    }
    if (trainer->vote)
        tx_model_vote(trainer->model, trainer->vote(trainer->vote_context));
    TX_THEN(status, tx_plan_run(trainer->update));
    trainer->updates++;
    trainer->step++;
    TX_THEN(status, tx_model_fetch(trainer->model));
    return status;
}

tx_status tx_trainer_hold_rate(tx_trainer *trainer, double rate, int64_t skipped)
{
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_HELD_RATE, rate));
    return tx_model_set(trainer->model, TX_CONTROL_HOLD_FROM, (double)(skipped + 1));
}

tx_status tx_trainer_results(tx_trainer *trainer, tx_results *results)
{
    return tx_model_results(trainer->model, results);
}

int64_t tx_trainer_outputs(const tx_trainer *trainer)
{
    const tx_tensor *output = trainer->evaluate[0].output;
    if (trainer->writer && !trainer->options.slots)
        return tx_writer_columns(trainer->writer);
    return output && (trainer->options.task->measure || trainer->options.task->generates)
               ? tx_shape_count(tx_tensor_shape(output)) / tx_tensor_shape(output)->dim[0]
               : 0;
}

tx_writer *tx_trainer_writer(const tx_trainer *trainer)
{
    return trainer->writer;
}

tx_scorer *const *tx_trainer_scorers(const tx_trainer *trainer)
{
    return trainer->scorer;
}

/* Reads a result of an evaluation. In a pipeline the last stage broadcasts it. */
static tx_status read_output(const tx_trainer *trainer, const batch_plan *e, tx_tensor *from, float *output)
{
    tx_comm *pipeline = is_staged(trainer) ? trainer->options.parallel.pipeline : NULL;
    const int64_t count = tx_shape_count(tx_tensor_shape(from));
    if (!pipeline || pipeline->rank == pipeline->size - 1)
        TX_TRY(tx_plan_read(e->plan, from, output, (size_t)count * sizeof *output));
    return pipeline ? tx_comm_collect(pipeline, TX_BROADCAST, output, count, TX_F32, pipeline->size - 1) : TX_OK;
}

tx_status tx_trainer_evaluate(tx_trainer *trainer, const tx_batch *batch, double sums[TX_SUMS_MAX], float *output)
{
    const tx_trainer_options *o = &trainer->options;
    batch_plan *e;
    if (!trainer->evaluate[0].plan || batch->rows != o->eval_batch)
        return tx_fail(TX_INVALID, "trainer: an evaluation of %" PRId64 " rows; %" PRId64 " were planned", batch->rows,
                       o->eval_batch);
    const double labels = (double)tx_batch_labels(o->task, o->block, batch);
    if (labels == 0.0 && !output && !tx_model_gathers(trainer->model))
        return TX_OK;
    float mean = 0.0f;
    TX_TRY(tx_trainer_average(trainer, true));
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_INVERSE_LABELS, labels > 0.0 ? 1.0 / labels : 0.0));
    TX_TRY(tx_model_set(trainer->model, TX_CONTROL_LABEL_SHARE, 1.0));
    TX_TRY(run_batch(trainer, trainer->evaluate, batch, &e));
    TX_TRY(read_output(trainer, e, e->loss, &mean));
    if (output)
        TX_TRY(read_output(trainer, e, e->output, output));
    sums[TX_SUM_LOSS] += (double)mean * labels;
    sums[TX_SUM_LABELS] += chunk_of(o) == 0 ? labels : 0.0; /* context-parallel ranks add only parts of the loss */
    return TX_OK;
}

tx_status tx_trainer_profile(tx_trainer *trainer)
{
    trainer->updates = 0;
    for (int32_t i = 0; i < TX_LENGTHS_MAX && trainer->train[i].plan; i++) {
        trainer->train[i].runs = 0;
        TX_TRY(tx_plan_profile(trainer->train[i].plan, true));
    }
    return tx_plan_profile(trainer->update, true);
}

const tx_plan *tx_trainer_plan(const tx_trainer *trainer, int32_t which, int64_t *runs)
{
    static const batch_plan none = {0};
    const int32_t i = which - TX_TRAINER_TRAIN;
    const batch_plan *train = i >= 0 && i < TX_LENGTHS_MAX ? &trainer->train[i] : &none;
    *runs = which == TX_TRAINER_UPDATE ? trainer->updates : train->runs;
    return which == TX_TRAINER_UPDATE ? trainer->update : train->plan;
}
