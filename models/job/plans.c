/* SPDX-License-Identifier: Apache-2.0
 * From options to engine, trainer and run. */
#include "models/job/parts.h"

#include "api/base/file.h"
#include "api/base/message.h"
#include "models/arch/lora.h"
#include "models/files/folder.h"
#include "models/options/bytes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Engine and plans ---------------------------------------------------------------------------------------------- */

/* The kernels that the checkpoint's run had chosen by measuring: others may differ in the last bits. */
static void choose_kernels(tx_job *j)
{
    const char *kernels = j->inputs.state.kernels;
    if (kernels && tx_engine_choose(j->engine, kernels))
        tx_tell(&j->report,
                "this device lacks kernels that the checkpoint's run used: results may differ in the last bits");
}

static tx_dtype half(bool bf16, bool fp16)
{
    return bf16 ? TX_BF16 : fp16 ? TX_F16 : TX_F32;
}

bool tx_job_in_host(const tx_job *j)
{
    return strcmp(tx_engine_device(j->engine)->id, "cpu") == 0;
}

/* Where what was asked to lie at a place does. */
static tx_offload_place offload_place(const tx_job *j, int32_t asked)
{
    const tx_offload_place place = (tx_offload_place)asked;
    return place == TX_OFFLOAD_HOST && tx_job_in_host(j) ? TX_OFFLOAD_NONE : place;
}

tx_status tx_job_trainer_options(const tx_job *j, tx_trainer_options *trainer, int64_t *limit)
{
    const tx_job_settings *set = &j->set;
    const bool narrow = set->dtype != 0, stored = narrow && !j->inputs.config->lora;
    tx_optimizer_options optimizer;
    TX_TRY(tx_job_optimizer(set, &optimizer));
    optimizer.offload = offload_place(j, set->offload_optimizer);
    optimizer.offload_folder = set->nvme_path;
    *trainer = (tx_trainer_options){
        .size = sizeof(tx_trainer_options),
        .task = j->inputs.task,
        .batch = j->rows,
        .block = j->inputs.block,
        .accumulation = (j->step_rows + j->all_rows - 1) / j->all_rows,
        .all_rows = j->all_rows,
        .rows_before = j->rows_before,
        .comm = j->sums,
        .parallel = {sizeof(tx_parallel_options), .bucket_bytes = set->bucket_cap << 20,
                     .half = set->ddp_comm == TX_DDP_COMM_BF16, .zero_stage = j->zero_stage,
                     .whole = tx_optimizer_is_whole(optimizer.kind), .tensor = j->tensor,
                     .sequence = set->sequence_parallel, .pipeline = j->pipeline, .ends = j->ends, .expert = j->expert,
                     .replicas = j->replicas, .context = j->context,
                     .schedule = (tx_pipeline_schedule)set->pipeline_schedule, .chunks = tx_job_chunks(set),
                     .stage_blocks = j->stage_blocks},
        .eval_batch = tx_job_evaluates(set) || set->do_predict ? set->eval_batch : 0,
        .lengths = j->inputs.task->of_texts && !set->pad_to_max_length ? TX_LENGTHS_MAX : 0,
        .max_grad_norm = set->max_grad_norm,
        .seed = (uint64_t)set->seed,
        .stored = half(stored, false),
        .autocast = half(set->bf16 || narrow, set->fp16),
        .eval_autocast = half(narrow || set->bf16_full_eval || (set->bf16 && !set->fp16_full_eval),
                              set->fp16 || set->fp16_full_eval),
        .loss_scale = set->fp16 ? set->init_scale : 0.0,
        .growth_interval = set->fp16 ? set->growth_interval : 0,
        .offload_activations = set->activation_offloading && !tx_job_in_host(j),
        .offload_params = offload_place(j, set->offload_param),
        .offload_folder = set->nvme_path,
        .optimizer = optimizer,
        .watch = set->debug ? &j->report : NULL,
        .noise = (float)set->noise,
        .smoothing = (float)set->smoothing,
        .capacity = (float)set->capacity,
        .z_loss = (float)set->z_loss,
        .teacher = j->inputs.teacher,
        .temperature = (float)set->temperature,
        .alpha = (float)set->alpha,
    };
    if (j->inputs.config->lora) /* frozen matrices are stored in what products read */
        j->inputs.config->lora->stored = trainer->autocast;
    return tx_job_read_checkpointing(set->checkpointing, &trainer->checkpointing, limit);
}

static tx_status make_plans(tx_job *j, const tx_trainer_options *options)
{
    tx_trainer_free(j->trainer);
    tx_model_free(j->model);
    j->trainer = NULL;
    j->model = NULL;
    tx_status status = tx_model_create(j->engine, &j->model);
    return status ? status : tx_trainer_create(j->model, j->inputs.config, options, &j->trainer);
}

tx_status tx_job_foresee(tx_job *j, int64_t scratch, tx_trainer_forecast *forecast)
{
    tx_trainer_options trainer;
    int64_t limit;
    TX_TRY(tx_job_trainer_options(j, &trainer, &limit));
    if (limit)
        TX_TRY(tx_job_choose_checkpointing(j, &trainer, limit, scratch));
    return tx_trainer_foresee(j->engine, j->inputs.config, &trainer, forecast);
}

/* Adds `what` to the text where it is away. */
static void add_away(bool is_away, const char *what, char *text, size_t size)
{
    if (is_away)
        tx_list_add(text, size, ", ", "%s", what);
}

static tx_status note_offload(tx_job *j)
{
    const tx_trainer_options *options = tx_trainer_options_of(j->trainer);
    const tx_offload_place states = options->optimizer.offload, weights = options->offload_params;
    const char *const base = j->inputs.config->lora ? "weights of the base" : "weights";
    char host[160] = "", file[80] = "", asked[120] = "";
    tx_memory planned;
    TX_TRY(tx_model_memory(j->model, &planned));
    add_away(states == TX_OFFLOAD_HOST, "optimizer states", host, sizeof host);
    add_away(weights == TX_OFFLOAD_HOST, base, host, sizeof host);
    add_away(!weights && tx_trainer_offloads_weights(options), "fp32 weights", host, sizeof host);
    add_away(options->offload_activations, "activations", host, sizeof host);
    add_away(states == TX_OFFLOAD_FILE, "optimizer states", file, sizeof file);
    add_away(weights == TX_OFFLOAD_FILE, base, file, sizeof file);
    if (*file)
        tx_job_note(j, "offload %.2f GiB of %s are kept in a file in %s", tx_gib(tx_model_file_bytes(j->model)), file,
                    j->set.nvme_path);
    add_away(*file && planned.bytes[TX_MEMORY_OFFLOADED], "what goes to the file and back", host, sizeof host);
    if (*host)
        tx_job_note(j, "offload %.2f GiB of %s are kept in the host's memory",
                    tx_gib(planned.bytes[TX_MEMORY_OFFLOADED]), host);
    add_away(j->set.offload_optimizer == (int32_t)TX_OFFLOAD_HOST, "--offload_optimizer cpu", asked, sizeof asked);
    add_away(j->set.offload_param == (int32_t)TX_OFFLOAD_HOST, "--offload_param cpu", asked, sizeof asked);
    add_away(j->set.activation_offloading, "--activation_offloading", asked, sizeof asked);
    if (tx_job_in_host(j) && *asked)
        tx_job_note(j, "offload the cpu's memory is the host's: %s changes nothing", asked);
    return TX_OK;
}

/* With a limit the plans without checkpointing are made first: they tell what the device's kernels need. */
tx_status tx_job_compile(tx_job *j)
{
    tx_trainer_options trainer;
    tx_trainer_forecast kept;
    tx_memory planned;
    int64_t limit;
    TX_TRY(tx_job_trainer_options(j, &trainer, &limit));
    TX_TRY(make_plans(j, &trainer));
    if (limit) {
        TX_TRY(tx_model_memory(j->model, &planned));
        TX_TRY(tx_trainer_foresee(j->engine, j->inputs.config, &trainer, &kept));
        TX_TRY(
            tx_job_choose_checkpointing(j, &trainer, limit, tx_memory_total(&planned) - tx_memory_total(&kept.memory)));
        TX_TRY(make_plans(j, &trainer));
    }
    tx_job_note_checkpointing(j);
    return note_offload(j);
}

/* A driver that has seen none of the kernels takes minutes. */
static void on_compiling(void *context, const char *what, int64_t done, int64_t total)
{
    tx_job *j = context;
    const int32_t quarter = 1 + (int32_t)(4 * done / total);
    tx_report_progress(&j->report, what, done, total);
    if (quarter != j->quarter)
        tx_job_note(j, "kernels %" PRId64 " of %" PRId64 " programs compiled, which later runs on this device find",
                    done, total);
    j->quarter = quarter;
}

tx_status tx_job_open_device(tx_job *j)
{
    const tx_job_settings *set = &j->set;
    const bool tf32 = set->tf32 && !set->no_tf32;
    tx_engine_options engine = {.size = sizeof engine,
                                .device = j->device,
                                .threads = getenv("OMP_NUM_THREADS") ? (int32_t)set->threads : tx_job_threads(j),
                                .profile = set->profile,
                                .tf32 = tf32,
                                .report = &j->compiling};
    if (j->engine)
        return TX_OK;
    j->compiling = (tx_reporter){j->report.warn, j, on_compiling};
    TX_TRY(tx_engine_create(&engine, &j->engine));
    const tx_device_info *device = tx_engine_device(j->engine);
    tx_job_note(j, "device  %s: %s, %s", device->id, device->name, device->platform);
    if (tf32)
        tx_job_note(j, "tf32    %s",
                    device->tf32 ? "fp32 matrix products may round their operands to tf32"
                                 : "this device has no units for it that TX uses: products are in fp32");
    const bool bf16 = set->bf16 || set->dtype;
    if (bf16 || set->fp16)
        tx_job_note(
            j, "%s    matrix products %s", bf16 ? "bf16" : "fp16",
            (bf16 ? device->bf16 : device->fp16)
                ? "read 16 bits and sum in fp32"
                : "have no instructions for it on this device that TX uses: operands are widened to fp32, which "
                  "saves memory, not time");
    choose_kernels(j);
    return tx_job_compare_devices(j);
}

/* ---- Files of the run ---------------------------------------------------------------------------------------------- */

static tx_status write_arguments(const tx_job *j, const char *folder)
{
    tx_json *json = tx_job_arguments(&j->set, 0, 0);
    const tx_status status = json ? tx_json_write(TX_PATH(folder, TX_JOB_ARGUMENTS), json, TX_JSON_PRETTY) : TX_MEMORY;
    tx_json_free(json);
    return status;
}

tx_status tx_job_write_model(const tx_job *j, const char *folder)
{
    const tx_config *config = j->inputs.config;
    const char *generation = j->inputs.generation;
    tx_status status = config->lora ? tx_lora_save(j->model, config, folder) : tx_arch_save(j->model, config, folder);
    if (!status && config->lora)
        status = tx_config_write(config, config->lora->stored, TX_PATH(folder, "config.json"));
    if (!status && j->inputs.tokenizer)
        status = tx_tokenizer_save(j->inputs.tokenizer, folder, j->inputs.config->positions);
    if (!status && j->inputs.task->save && j->inputs.train.count)
        status = j->inputs.task->save(&j->inputs.train, folder);
    if (!status && generation)
        status = tx_file_write(TX_PATH(folder, TX_JOB_GENERATION), generation, strlen(generation));
    return status ? status : write_arguments(j, folder);
}

static tx_status write_checkpoint(void *context, const char *folder)
{
    return tx_job_write_model(context, folder);
}

/* All ranks together. */
static tx_loader_options loader_options(const tx_job *j)
{
    const tx_job_settings *set = &j->set;
    return (tx_loader_options){.size = sizeof(tx_loader_options),
                               .step_rows = j->step_rows,
                               .batch = j->all_rows,
                               .drop_last = set->drop_last,
                               .in_order = set->sampling == TX_SAMPLING_SEQUENTIAL,
                               .by_length = tx_job_groups(j),
                               .seed = tx_job_data_seed(set),
                               .workers = (int32_t)set->workers,
                               .pin = set->pin,
                               .report = j->report};
}

tx_status tx_job_dump_order(const tx_job *j)
{
    const tx_loader_options loader = loader_options(j);
    return tx_loader_dump_order(&j->inputs.train, &loader, j->steps, j->set.dump_order);
}

tx_status tx_job_describe(const tx_job *j, tx_json **made)
{
    tx_json *json = tx_job_arguments(&j->set, TX_RECIPE, 0);
    tx_status status = tx_json_set_string(json, "data", j->inputs.train.digest);
    TX_THEN(status, tx_json_set_string(json, "tokenizer",
                                       j->inputs.tokenizer ? tx_tokenizer_digest(j->inputs.tokenizer) : "none"));
    TX_THEN(status, tx_json_set_string(json, TX_JOB_NAME(metric), j->inputs.metric->name));
    TX_THEN(status, tx_json_set_string(json, "base_model", j->inputs.base_digest));
    TX_THEN(status, tx_json_set_string(json, "teacher_model", j->inputs.teacher_digest));
    TX_THEN(status, tx_json_set_string(json, "device", tx_engine_device(j->engine)->name));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(block), j->inputs.block));
    TX_THEN(status, tx_json_set_int(json, "global_batch", j->step_rows));
    TX_THEN(status, tx_json_set_int(json, "world_size", j->data->size));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(zero_stage), j->zero_stage));
    TX_THEN(status, tx_json_set_string(json, TX_RUN_ROWS, j->rows_text));
    TX_THEN(status, tx_json_set_int(json, TX_JOB_NAME(data_seed), (int64_t)tx_job_data_seed(&j->set)));
    TX_THEN(status, tx_json_set_int(json, "steps", j->steps));
    if (status) {
        tx_json_free(json);
        return status;
    }
    *made = json;
    return TX_OK;
}

/* ---- Weights -------------------------------------------------------------------------------------------------------- */

tx_status tx_job_load(const tx_job *j, const char *folder)
{
    const tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    return j->inputs.config->lora ? tx_lora_load(j->model, j->inputs.config, folder, &options)
                                  : tx_job_load_model(j, folder);
}

tx_status tx_job_load_model(const tx_job *j, const char *folder)
{
    const tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    return tx_arch_load(j->model, j->inputs.config, folder, &options);
}

tx_status tx_job_load_frozen(const tx_job *j, const tx_config *config, const char *folder, char digest[TX_DIGEST_TEXT])
{
    tx_load_options options = {sizeof options, j->set.allow_nonfinite, &j->report, NULL};
    TX_TRY(tx_digest_create(&options.digest));
    const tx_status status = tx_arch_load(j->model, config, folder, &options);
    const tx_status finished = tx_digest_finish(options.digest, digest);
    return status ? status : finished;
}

/* ---- The run ------------------------------------------------------------------------------------------------------- */

/* Steps as given, or a share of the run. */
static int64_t resolve(const tx_job *j, double steps)
{
    return steps >= 1 || steps == 0 ? (int64_t)steps : (int64_t)ceil(steps * (double)j->steps);
}

static tx_status make_schedule(const tx_job *j, tx_schedule *schedule)
{
    const tx_job_settings *set = &j->set;
    int64_t warmup = resolve(j, set->warmup_steps);
    if (warmup == 0)
        warmup = (int64_t)ceil(set->warmup_ratio * (double)j->steps);
    const bool wsd = set->schedule == TX_SCHEDULE_COUNT; /* by its other name */
    const tx_schedule_kind kind = wsd ? TX_SCHEDULE_WSD : (tx_schedule_kind)set->schedule;
    *schedule = tx_schedule_default(kind, set->rate, warmup, j->steps);
    return tx_schedule_adjust(schedule, set->schedule_settings);
}

/* About what the files besides weights and optimizer states take: tokenizer, log and history, others. */
static int64_t small_bytes(const tx_job *j)
{
    const int64_t id = 64, step = 512, others = 64 << 10;
    const int64_t ids = j->inputs.tokenizer ? tx_tokenizer_size(j->inputs.tokenizer) : 0;
    return id * ids + step * j->steps + others;
}

static int64_t weight_bytes(const tx_job *j)
{
    const bool narrow = j->set.dtype && !j->inputs.config->lora;
    return tx_job_trained_count(j) * (int64_t)tx_dtype_size(half(narrow, false));
}

tx_status tx_job_check_room(const tx_job *j, const tx_run_options *run)
{
    return tx_run_check_room(run, j->inputs.state.step, j->epoch_steps, weight_bytes(j) + small_bytes(j));
}

tx_status tx_job_make_run(tx_job *j, tx_run_options *run)
{
    const tx_job_settings *set = &j->set;
    int64_t logging = resolve(j, set->logging_steps), eval = resolve(j, set->eval_steps);
    int64_t epochs = set->max_steps > 0 ? (j->steps + j->epoch_steps - 1) / j->epoch_steps : (int64_t)ceil(set->epochs);
    *run = (tx_run_options){
        .size = sizeof *run,
        .set = set,
        .facts = {j->steps, epochs, logging, eval ? eval : logging, resolve(j, set->save_steps), set->batch},
        .train = j->inputs.train,
        .validation = j->inputs.validation,
        .loader = loader_options(j),
        .balance = j->balance,
        .comm = j->comm,
        .watch = j->watch,
        .best_metric = j->inputs.metric->name,
        .flops_per_token = tx_arch_flops(j->inputs.config),
        .checkpoint_bytes = weight_bytes(j) + (set->only_model ? 0 : tx_model_state_bytes(j->model)) + small_bytes(j),
        .write = write_checkpoint,
        .write_context = j,
        .board = j->board,
        .report = j->report,
        .listener = j->listener,
    };
    return make_schedule(j, &run->schedule);
}
