/* SPDX-License-Identifier: Apache-2.0
 * Makes the options of the trainer from the settings, and compiles its plans. */
#include "models/job/plans.h"

#include "api/base/arithmetic.h"
#include "models/job/ranks.h"
#include "models/lora/lora.h"
#include "models/options/bytes.h"

static tx_dtype half(bool bf16, bool fp16)
{
    return bf16 ? TX_BF16 : fp16 ? TX_F16 : TX_F32;
}

/* The place for offloading. On the cpu, offloading to host memory changes nothing. */
static tx_offload_place offload_place(const tx_job *j, int32_t asked)
{
    const tx_offload_place place = (tx_offload_place)asked;
    return place == TX_OFFLOAD_HOST && tx_job_in_host(j) ? TX_OFFLOAD_NONE : place;
}

/* Whether the run needs evaluation plans, also for log-probabilities. */
static bool evaluates(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    return tx_job_evaluates(set) || set->do_predict || set->precompute_ref || j->inputs.task->generates;
}

tx_status tx_job_trainer_options(const tx_job *j, tx_trainer_options *trainer, int64_t *limit)
{
    const tx_job_settings *set = &j->set;
    const bool narrow = set->dtype != 0, stored = narrow && !j->inputs.config->lora;
    tx_optimizer_options optimizer;
    TX_TRY(tx_job_optimizer(set, &optimizer));
    optimizer.offload = offload_place(j, set->offload_optimizer);
    optimizer.offload_folder = set->nvme_path;
    optimizer.warmup_steps = (float)tx_job_warmup(j);
    *trainer = (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .set = set,
        .task = j->inputs.task,
        .batch = j->rows,
        .block = j->inputs.block,
        .accumulation = tx_ceil_div(j->step_rows, j->all_rows),
        .all_rows = j->all_rows,
        .rows_before = j->rows_before,
        .comm = j->sums,
        .across = j->set.sync_every > 1 && j->data->size > 1 ? j->data : NULL,
        .parallel = {sizeof(tx_parallel_options), .bucket_bytes = set->bucket_cap << 20, .wire = tx_job_wire(set),
                     .zero_stage = j->zero_stage, .whole = tx_optimizer_is_whole(optimizer.kind),
                     .shards = j->zero_stage ? j->shards : NULL, .replicate = j->zero_stage ? j->replicate : NULL,
                     .tensor = j->tensor, .sequence = set->sequence_parallel, .pipeline = j->pipeline, .ends = j->ends,
                     .expert = j->expert, .replicas = j->replicas, .context = j->context, .peers = j->peers,
                     .schedule = (tx_pipeline_schedule)set->pipeline_schedule, .chunks = tx_job_chunks(set),
                     .stage_blocks = j->stage_blocks},
        .eval_batch = evaluates(j) ? set->eval_batch : 0,
        .lengths = j->inputs.task->of_texts && !set->pad_to_max_length ? TX_LENGTHS_MAX : 0,
        .stored = half(stored, false),
        .autocast = half(set->bf16 || narrow, set->fp16),
        .eval_autocast = half(narrow || set->bf16_full_eval || (set->bf16 && !set->fp16_full_eval),
                              set->fp16 || set->fp16_full_eval),
        .residual = half(set->residual_dtype, false),
        .fp32_residual_gradient = set->fp32_residual_gradient,
        .offload_activations = set->activation_offloading && !tx_job_in_host(j),
        .offload_params = offload_place(j, set->offload_param),
        .offload_folder = set->nvme_path,
        .optimizer = optimizer,
        .watch = set->debug ? &j->report : NULL,
        .teacher = j->inputs.teacher,
        .write = set->predict_with_generate || j->inputs.task->generates ? &j->inputs.write : NULL,
        .slots = tx_job_slots(j),
        .rewards = j->inputs.rewards,
    };
    if (j->inputs.config->lora) /* frozen matrices are stored in the type that products or sums with the adapter read */
        j->inputs.config->lora->stored = set->qat ? TX_F32 : trainer->autocast;
    return tx_job_read_checkpointing(set->checkpointing, &trainer->checkpointing, limit);
}

static tx_status make_plans(tx_job *j, const tx_trainer_options *options)
{
    tx_trainer_free(j->trainer);
    tx_model_free(j->model);
    j->trainer = NULL;
    j->model = NULL;
    TX_TRY(tx_model_create(j->engine, &j->model));
    return tx_trainer_create(j->model, j->inputs.config, options, &j->trainer);
}

tx_status tx_job_forecast(tx_job *j, int64_t scratch, tx_forecast *forecast)
{
    tx_trainer_options trainer;
    int64_t limit;
    TX_TRY(tx_job_trainer_options(j, &trainer, &limit));
    if (limit)
        TX_TRY(tx_job_choose_checkpointing(j, &trainer, limit, scratch));
    else
        TX_TRY(tx_job_choose_logits(j, &trainer));
    return tx_trainer_forecast(j->engine, j->inputs.config, &trainer, forecast);
}

/* Notes the offloaded tensors, and options that have no effect on the cpu. */
static tx_status note_offload(tx_job *j)
{
    const tx_trainer_options *options = tx_trainer_options_of(j->trainer);
    const tx_offload_place states = options->optimizer.offload, weights = options->offload_params;
    const bool file = states == TX_OFFLOAD_FILE || weights == TX_OFFLOAD_FILE;
    const bool fp32 = !weights && tx_trainer_offloads_weights(options);
    tx_memory planned;
    TX_TRY(tx_model_memory(j->model, &planned));
    const struct {
        tx_offload_place place;
        const char *what;
    } parts[] = {
        {states, "optimizer states"},
        {weights, j->inputs.config->lora ? "weights of the base" : "weights"},
        {fp32 ? TX_OFFLOAD_HOST : TX_OFFLOAD_NONE, "fp32 weights"},
        {options->offload_activations ? TX_OFFLOAD_HOST : TX_OFFLOAD_NONE, "activations"},
        {file && planned.bytes[TX_MEMORY_OFFLOADED] ? TX_OFFLOAD_HOST : TX_OFFLOAD_NONE, "buffers of the file"}};
    char lists[TX_OFFLOAD_FILE + 1][160] = {""}, asked[120] = "";
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        tx_list_add(lists[parts[i].place], sizeof lists[0], ", ", "%s", parts[i].what);
    if (file)
        tx_job_note(j, "offload %.2f GiB of %s are kept in a file in %s", tx_gib(tx_model_file_bytes(j->model)),
                    lists[TX_OFFLOAD_FILE], j->set.nvme_path);
    if (*lists[TX_OFFLOAD_HOST])
        tx_job_note(j, "offload %.2f GiB of %s are kept in host memory", tx_gib(planned.bytes[TX_MEMORY_OFFLOADED]),
                    lists[TX_OFFLOAD_HOST]);
    if (j->set.offload_optimizer == (int32_t)TX_OFFLOAD_HOST)
        tx_list_add(asked, sizeof asked, ", ", "--offload_optimizer cpu");
    if (j->set.offload_param == (int32_t)TX_OFFLOAD_HOST)
        tx_list_add(asked, sizeof asked, ", ", "--offload_param cpu");
    if (j->set.activation_offloading)
        tx_list_add(asked, sizeof asked, ", ", "--activation_offloading");
    if (tx_job_in_host(j) && *asked)
        tx_job_note(j, "offload the cpu uses host memory: %s changes nothing", asked);
    return TX_OK;
}

/* With a limit of auto:BYTES, plans without checkpointing are compiled first to find the scratch memory of the kernels.
 */
tx_status tx_job_compile(tx_job *j)
{
    tx_trainer_options trainer;
    tx_forecast kept;
    tx_memory planned;
    int64_t limit;
    TX_TRY(tx_job_trainer_options(j, &trainer, &limit));
    if (!limit)
        TX_TRY(tx_job_choose_logits(j, &trainer));
    TX_TRY(make_plans(j, &trainer));
    if (limit) {
        TX_TRY(tx_model_memory(j->model, &planned));
        TX_TRY(tx_trainer_forecast(j->engine, j->inputs.config, &trainer, &kept));
        TX_TRY(
            tx_job_choose_checkpointing(j, &trainer, limit, tx_memory_total(&planned) - tx_memory_total(&kept.memory)));
        TX_TRY(make_plans(j, &trainer));
    }
    tx_job_note_checkpointing(j);
    return note_offload(j);
}
