/* SPDX-License-Identifier: Apache-2.0
 * Opens language models: configuration, tokenizer and weights; computes logits and perplexity. */
#include "models/generate/lm.h"

#include "api/base/arithmetic.h"
#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/folder.h"
#include "models/files/safetensors.h"
#include "models/generate/slots.h"
#include "models/generate/speculate.h"
#include "models/lora/bank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Default number of prompts at once, and default stride of windows. */
#define DEFAULT_BATCH 8
#define DEFAULT_STRIDE 512
/* Assumed length of prompts that are not yet known. */
#define USUAL_PROMPT 64
#define GENERATION_LIMIT (1 << 24)

/* Finds the type that a word names. NULL and "auto" mean that of config.json. */
static tx_status choose_dtype(const tx_lm *lm, const char *word, tx_dtype *dtype)
{
    static const struct {
        const char *word;
        tx_dtype dtype;
    } types[] = {{"float32", TX_F32}, {"bfloat16", TX_BF16}, {"float16", TX_F16}};
    const char *name = word ? word : "auto";
    if (strcmp(name, "auto") == 0)
        TX_TRY(tx_config_dtype(lm->config, &name));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].word) == 0) {
            *dtype = types[i].dtype;
            return TX_OK;
        }
    return tx_fail(TX_INVALID, "%s: unknown dtype %.40s: use float32, bfloat16, float16 or auto", lm->folder, name);
}

static tx_status open_folder(tx_lm *lm, const tx_lm_options *o)
{
    const tx_reporter reporter = {.warn = o->warn, .context = o->context};
    lm->progress = (tx_reporter){.warn = o->warn, .context = o->context, .progress = o->progress};
    const tx_engine_options engine = {
        .size = sizeof engine, .device = o->device, .threads = (int32_t)o->threads, .report = &lm->progress};
    TX_TRY(tx_lm_find(lm, o));
    TX_TRY(choose_dtype(lm, o->dtype, &lm->dtype));
    TX_TRY(
        tx_generation_read(lm->config, tx_lm_generation_folder(lm), &reporter, &lm->generation, &lm->has_generation));
    if (o->device_map && tx_lm_has_source(lm))
        return tx_fail(TX_UNSUPPORTED, "%s: a device_map cannot divide an encoder with a decoder", lm->folder);
    if (o->device_map)
        return tx_lm_open_devices(lm, o->device_map, (int32_t)o->threads);
    TX_TRY(tx_engine_create(&engine, &lm->engine[0]));
    lm->devices = 1;
    tx_lm_name_device(lm);
    lm->in_host = strcmp(tx_engine_device(lm->engine[0])->id, "cpu") == 0;
    lm->offload_params = o->offload_params == TX_OFFLOAD_HOST && lm->in_host ? TX_OFFLOAD_NONE : o->offload_params;
    lm->offload_folder = o->offload_folder ? strdup(o->offload_folder) : NULL;
    if (o->offload_folder && !lm->offload_folder)
        return tx_fail(TX_MEMORY, "%s: out of memory", lm->folder);
    if (o->offload_params && !lm->offload_params && o->warn)
        o->warn(o->context, "the cpu uses host memory: offloading weights has no effect");
    return TX_OK;
}

/* Opens the assistant, which must have the model's tokenizer or, if one of them has none, as many ids. */
static tx_status open_assistant(tx_lm *lm, const tx_lm_options *options)
{
    tx_lm_options o = *options;
    o.model = o.assistant_model;
    o.assistant_model = o.adapter = o.cache_type = NULL;
    o.batch_size = 1;
    o.offload_params = TX_OFFLOAD_NONE;
    TX_TRY(o.device_map ? tx_fail(TX_UNSUPPORTED, "it cannot be used with device_map") : TX_OK);
    TX_TRY(tx_lm_open(&o, &lm->assistant));
    tx_status status = tx_lm_open_tokenizer(lm);
    TX_THEN(status, tx_lm_open_tokenizer(lm->assistant));
    const int64_t own = lm->config->vocab_size, other = lm->assistant->config->vocab_size;
    if (status == TX_NOT_FOUND)
        status = own == other ? TX_OK : tx_fail(TX_INVALID, "it has %" PRId64 " ids, the model %" PRId64, other, own);
    else
        TX_THEN(status, tx_speculator_check(lm->assistant->tokenizer, lm->tokenizer));
    return status;
}

tx_status tx_lm_open(const tx_lm_options *options, tx_lm **lm)
{
    TX_NEEDS(options && lm, TX_INVALID);
    const tx_lm_options *o = options;
    if (o->size != sizeof *o)
        return tx_fail(TX_INVALID, "tx_lm_open: the options' size field is %zu, expected %zu", o->size, sizeof *o);
    const char *name = o->model ? o->model : o->adapter;
    if (o->device && o->device_map)
        return tx_fail(TX_INVALID, "tx_lm_open: device and device_map exclude each other");
    if (o->offload_params && o->device_map)
        return tx_fail(TX_INVALID, "tx_lm_open: offload_params and device_map exclude each other");
    const bool q8_0 = o->cache_type && strcmp(o->cache_type, "q8_0") == 0;
    if (o->cache_type && !q8_0 && strcmp(o->cache_type, "auto") != 0)
        return tx_fail(TX_INVALID, "tx_lm_open: cache_type %.40s: use q8_0 or auto", o->cache_type);
    if (!name || o->batch_size < 0 || o->threads < 0 || o->threads > INT32_MAX)
        return tx_fail(TX_INVALID, "tx_lm_open: %s",
                       !name               ? "model is missing"
                       : o->batch_size < 0 ? "batch_size is below 0"
                                           : "threads is not a number of threads");
    tx_lm *created = calloc(1, sizeof *created);
    char device[TX_LM_DEVICE];
    tx_lm_options own = *options;
    if (!created)
        return tx_fail(TX_MEMORY, "%s: out of memory", name);
    o = &own;
    created->batch = o->batch_size > 0 ? o->batch_size : DEFAULT_BATCH;
    created->keep = o->keep_cache;
    created->q8_0 = q8_0;
    tx_status status = o->ranks ? tx_lm_join(created, &own, device) : TX_OK;
    TX_THEN(status, open_folder(created, o));
    if (q8_0 && !status && tx_lm_has_source(created))
        status = tx_fail(TX_UNSUPPORTED, "cache_type q8_0: an encoder with a decoder is not supported");
    if (o->assistant_model)
        TX_THEN(status, tx_fail_in(open_assistant(created, o), "assistant_model %s", o->assistant_model));
    return TX_RETURN(status, created, lm, tx_lm_free);
}

void tx_lm_drop(tx_lm *lm)
{
    tx_generator_free(lm->generator);
    tx_slots_free(lm->slots);
    tx_model_free(lm->model);
    if (lm->assistant)
        tx_lm_drop(lm->assistant);
    lm->generator = NULL;
    lm->slots = NULL;
    lm->model = NULL;
    lm->loaded = false;
}

void tx_lm_free(tx_lm *lm)
{
    if (!lm)
        return;
    tx_lm_drop(lm);
    tx_lm_part(lm);
    tx_lm_free(lm->assistant);
    for (int32_t d = 0; d < lm->devices; d++)
        tx_engine_free(lm->engine[d]);
    tx_encoder_free(lm->encoder);
    tx_breakers_free(lm->breakers);
    tx_tokenizer_free(lm->tokenizer);
    tx_config_free(lm->config);
    tx_lora_free(lm->lora);
    free(lm->adapter);
    free(lm->offload_folder);
    free(lm->folder);
    free(lm);
}

int64_t tx_lm_vocab_size(const tx_lm *lm)
{
    TX_NEEDS(lm, 0);
    return lm->config->vocab_size;
}

int64_t tx_lm_positions(const tx_lm *lm)
{
    TX_NEEDS(lm, 0);
    return lm->config->positions;
}

bool tx_lm_has_source(const tx_lm *lm)
{
    TX_NEEDS(lm, false);
    return lm->config->architecture->head == TX_HEAD_SEQ2SEQ;
}

const tx_generation *tx_lm_generation(const tx_lm *lm)
{
    TX_NEEDS(lm, NULL);
    return &lm->generation;
}

/* ---- Tokenizer ------------------------------------------------------------------------------------------ */

tx_status tx_lm_open_tokenizer(tx_lm *lm)
{
    if (lm->encoder)
        return TX_OK;
    tx_tokenizer *created = NULL;
    const char *folder = lm->adapter ? lm->adapter : lm->folder;
    tx_status status = tx_tokenizer_open(folder, &created);
    if (status == TX_NOT_FOUND && lm->adapter)
        status = tx_tokenizer_open(folder = lm->folder, &created);
    if (!status && tx_tokenizer_size(created) > lm->config->vocab_size)
        status = tx_fail(TX_INVALID,
                         "%s: the tokenizer has %" PRId64 " ids, the model's vocab_size is %" PRId64
                         ": put the tokenizer of this model into the folder, or enlarge the model by transformers' "
                         "resize_token_embeddings",
                         folder, tx_tokenizer_size(created), lm->config->vocab_size);
    TX_THEN(status, tx_encoder_create(created, &lm->encoder));
    if (status)
        tx_tokenizer_free(created);
    else
        lm->tokenizer = created;
    return status;
}

tx_status tx_lm_tokenizer(tx_lm *lm, const tx_tokenizer **tokenizer)
{
    TX_NEEDS(lm && tokenizer, TX_INVALID);
    TX_TRY(tx_lm_open_tokenizer(lm));
    *tokenizer = lm->tokenizer;
    return TX_OK;
}

tx_status tx_lm_encode(tx_lm *lm, const char *text, size_t size, int32_t **ids, int64_t *count)
{
    TX_NEEDS(lm && ids && count && (text || !size), TX_INVALID);
    tx_ids result = {0};
    tx_status status = tx_lm_open_tokenizer(lm);
    TX_THEN(status, tx_encoder_text(lm->encoder, text, size, &result));
    if (status) {
        free(result.id);
        return status;
    }
    *ids = result.id;
    *count = (int64_t)result.count;
    return TX_OK;
}

/* ---- Compilation ---------------------------------------------------------------------------------------- */

tx_status tx_lm_create_model(tx_lm *lm, const tx_lm_sizes *sizes)
{
    if (lm->model)
        return TX_OK;
    TX_TRY(tx_lm_choose_devices(lm, sizes));
    return tx_lm_divide(lm, lm->blocks, false, &lm->model);
}

/* While the model is loaded, its configuration has the adapter: the files may lack a head that the adapter saves. */
static tx_status load_adapted(tx_lm *lm, const tx_load_options *how)
{
    TX_TRY(tx_lora_check_files(lm->lora, lm->config, lm->adapter));
    lm->config->lora = lm->lora;
    const tx_status status = tx_arch_load(lm->model, lm->config, lm->folder, how);
    lm->config->lora = NULL;
    TX_TRY(status);
    return tx_lora_merge(lm->model, lm->config, lm->lora, lm->adapter, lm->folder);
}

tx_status tx_lm_load(tx_lm *lm)
{
    const tx_load_options how = {.size = sizeof how, .report = &lm->progress};
    const double begun = tx_now();
    tx_status status = lm->loaded ? TX_OK
                       : lm->lora ? load_adapted(lm, &how)
                                  : tx_arch_load(lm->model, lm->config, lm->folder, &how);
    if (lm->config->bank && !lm->loaded)
        TX_THEN(status, tx_lora_bank_fill(lm->config->bank, lm->config, lm->model));
    lm->load_seconds = lm->loaded ? lm->load_seconds : tx_now() - begun;
    lm->loaded = status == TX_OK;
    return status;
}

tx_status tx_lm_measure(const tx_lm *lm, tx_lm_usage *usage)
{
    TX_NEEDS(lm && usage, TX_INVALID);
    tx_memory own = {0}, assistant = {0};
    tx_lm_usage result = {.seconds = lm->load_seconds};
    if (lm->model)
        TX_TRY(tx_model_memory(lm->model, &own));
    if (lm->assistant && lm->assistant->model)
        TX_TRY(tx_model_memory(lm->assistant->model, &assistant));
    result.memory = tx_memory_total(&own);
    result.caches = own.bytes[TX_MEMORY_CACHE];
    result.weights = own.bytes[TX_MEMORY_WEIGHTS];
    result.assistant_memory = tx_memory_total(&assistant);
    if (lm->generator)
        tx_generator_draft_tokens(lm->generator, &result.drafted, &result.accepted);
    *usage = result;
    return TX_OK;
}

/* Compiles the smallest plan, if nothing is compiled, and reads the weights. */
static tx_status load_all(tx_lm *lm)
{
    tx_forward *pass = NULL;
    const tx_generator_options least = {sizeof least, .batch = 1, .beams = 1, .prompt = 1, .context = 2};
    if (tx_lm_has_source(lm))
        return tx_lm_compile(lm, &least);
    tx_status status = tx_lm_create_model(lm, &(tx_lm_sizes){.tokens = 1});
    if (!status && !lm->loaded)
        status = tx_forward_create(lm->model, lm->config, 1, &pass);
    TX_THEN(status, tx_lm_load(lm));
    tx_forward_free(pass);
    return status;
}

tx_status tx_lm_save(tx_lm *lm, const char *folder)
{
    TX_NEEDS(lm && folder, TX_INVALID);
    bool same = false;
    const tx_status opened = tx_lm_open_tokenizer(lm);
    TX_TRY(opened == TX_NOT_FOUND ? TX_OK : opened);
    TX_TRY(tx_is_folder(folder) ? tx_folder_same(lm->folder, folder, &same) : TX_OK);
    TX_TRY(same ? tx_fail(TX_INVALID, "%s: is the model itself; choose another folder", folder) : TX_OK);
    TX_TRY(load_all(lm));
    TX_TRY(tx_arch_save(lm->model, lm->config, folder));
    if (lm->tokenizer)
        TX_TRY(tx_tokenizer_save(lm->tokenizer, folder, lm->config->positions));
    return tx_folder_copy_file(tx_lm_generation_folder(lm), folder, TX_LM_GENERATION, GENERATION_LIMIT);
}

tx_status tx_lm_draft_tokens(const tx_lm *lm, const tx_generation *how, int64_t *draft_tokens)
{
    *draft_tokens = lm->assistant ? how->num_assistant_tokens : how->prompt_lookup_num_tokens;
    if (lm->assistant && how->prompt_lookup_num_tokens > 0)
        return tx_fail(TX_INVALID, "prompt_lookup_num_tokens with an assistant_model: use only one of them");
    if (lm->assistant && how->num_beams > 1)
        return tx_fail(TX_UNSUPPORTED, "assistant_model with num_beams: use only one of them");
    if (*draft_tokens > 0 && lm->devices > 1 && tx_arch_recurs(lm->config))
        return tx_fail(TX_UNSUPPORTED, "prompt_lookup_num_tokens: not for recurrent layers with device_map");
    return TX_OK;
}

/* Appends advice to the message if memory was not sufficient. */
static tx_status advise(tx_status status, const char *advice)
{
    char reason[1024];
    snprintf(reason, sizeof reason, "%s", tx_error());
    return status == TX_MEMORY ? tx_fail(status, "%s; %s", reason, advice) : status;
}

/* Compiles and loads the assistant for texts of these sizes, if it drafts tokens, and sets sizes->draft. */
static tx_status compile_assistant(tx_lm *lm, tx_generator_options *sizes)
{
    if (!lm->assistant || !sizes->draft_tokens)
        return TX_OK;
    tx_generator_options own = {.size = sizeof own, .batch = 1, .beams = 1};
    own.context = tx_min(sizes->context, lm->assistant->config->positions);
    own.prompt = tx_min(sizes->prompt, own.context);
    own.draft_tokens = tx_arch_recurs(lm->assistant->config); /* for tx_slots_mark */
    TX_TRY(tx_fail_in(tx_lm_compile_slots(lm->assistant, &own, &lm->assistant->slots), "assistant_model"));
    sizes->draft = lm->assistant->slots;
    return TX_OK;
}

tx_status tx_lm_compile(tx_lm *lm, const tx_generator_options *sizes)
{
    const tx_generator_options *has = &lm->compiled;
    tx_generator_options need = *sizes;
    need.q8_0 = lm->q8_0;
    need.ranks = lm->ranks;
    if (lm->generator && has->beams == need.beams) {
        if (has->batch >= need.batch && has->context >= need.context && has->draft_tokens >= need.draft_tokens)
            return TX_OK;
        need.draft_tokens = tx_max(need.draft_tokens, has->draft_tokens);
        need.batch = tx_max(need.batch, has->batch);
        need.context = tx_max(need.context, has->context);
        need.prompt = tx_max(need.prompt, has->prompt);
    }
    if (lm->generator) /* the caches are states of the model and cannot be resized */
        tx_lm_drop(lm);
    tx_status status = compile_assistant(lm, &need);
    TX_THEN(status, tx_lm_create_model(lm, &(tx_lm_sizes){.texts = &need}));
    TX_THEN(status, tx_generator_create(lm->model, lm->config, &need, &lm->generator));
    TX_THEN(status, tx_lm_load(lm));
    status = advise(
        status,
        "use a smaller batch_size, fewer num_beams, shorter prompts or fewer max_new_tokens; or divide the model among "
        "devices with device_map, or keep its weights in host memory or a file with offload_param");
    lm->compiled = need;
    if (status)
        tx_lm_drop(lm);
    return status;
}

tx_status tx_lm_reserve(tx_lm *lm, int64_t batch, const tx_generation *how)
{
    TX_NEEDS(lm, TX_INVALID);
    const int64_t positions = lm->config->positions;
    how = how ? how : &lm->generation;
    tx_generator_options sizes = {.size = sizeof sizes,
                                  .batch = batch < lm->batch ? batch : lm->batch,
                                  .beams = how->num_beams,
                                  .prompt = positions < USUAL_PROMPT ? positions : USUAL_PROMPT,
                                  .context = positions,
                                  .keep = lm->keep};
    TX_TRY(tx_generation_check(how));
    TX_TRY(tx_lm_draft_tokens(lm, how, &sizes.draft_tokens));
    return tx_lm_has_source(lm) ? TX_OK : tx_lm_compile(lm, &sizes); /* no number of positions limits sources */
}

tx_status tx_lm_compile_slots(tx_lm *lm, const tx_generator_options *sizes, tx_slots **slots)
{
    if (tx_lm_has_source(lm))
        return tx_fail(TX_UNSUPPORTED, "%s: an encoder with a decoder is not served; txgen runs it", lm->folder);
    tx_lm_drop(lm);
    tx_status status = tx_lm_create_model(lm, &(tx_lm_sizes){.texts = sizes});
    TX_THEN(status, tx_slots_create(lm->model, lm->config,
                                    &(tx_slots_options){sizes->batch, sizes->context, sizes->prompt, 1,
                                                        sizes->draft_tokens, lm->q8_0, sizes->autocast, lm->ranks,
                                                        sizes->copies, lm->in_host && !lm->ranks},
                                    slots));
    TX_THEN(status, tx_lm_load(lm));
    TX_THEN(status, tx_slots_prove(*slots));
    return advise(status, "use fewer slots or a shorter context");
}

/* ---- Measures ------------------------------------------------------------------------------------------- */

tx_status tx_lm_logits_shape(const tx_lm *lm, int64_t count, tx_shape *shape)
{
    TX_NEEDS(lm && shape, TX_INVALID);
    const int64_t columns = tx_arch_columns(lm->config);
    const tx_head head = lm->config->architecture->head;
    const bool of_text = head == TX_HEAD_SEQUENCE_CLASSIFICATION || head == TX_HEAD_MULTIPLE_CHOICE;
    *shape = of_text ? TX_SHAPE(1, columns) : TX_SHAPE(1, count, columns);
    return TX_OK;
}

tx_status tx_lm_logits(tx_lm *lm, const int32_t *ids, int64_t count, float *logits)
{
    TX_NEEDS(lm && ids && logits, TX_INVALID);
    tx_forward *pass = NULL;
    tx_status status = tx_lm_create_model(lm, &(tx_lm_sizes){.tokens = count});
    TX_THEN(status, tx_forward_create(lm->model, lm->config, count, &pass));
    TX_THEN(status, tx_lm_load(lm));
    TX_THEN(status, tx_forward_run(pass, ids, logits));
    tx_forward_free(pass);
    return advise(status, "use fewer ids");
}

static tx_status write_logits(const char *path, const float *logits, const tx_shape *shape)
{
    tx_st_tensor tensor = {.name = "logits", .dtype = TX_ST_F32, .rank = shape->rank};
    memcpy(tensor.dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    tx_st_writer *writer = NULL;
    char *target = tx_file_target(path);
    tx_status status = target ? tx_st_create(target, &tensor, 1, &writer) : TX_MEMORY;
    free(target);
    if (status)
        return status;
    status = tx_st_append(writer, logits, (size_t)tx_st_bytes(&tensor));
    if (status) {
        tx_st_discard(writer);
        return status;
    }
    return tx_st_commit(writer);
}

tx_status tx_lm_logits_save(tx_lm *lm, const int32_t *ids, int64_t count, const char *path)
{
    TX_NEEDS(path, TX_INVALID);
    tx_shape shape;
    TX_TRY(tx_lm_logits_shape(lm, count, &shape));
    float *logits = malloc((size_t)tx_shape_count(&shape) * sizeof *logits);
    tx_status status = logits ? TX_OK : tx_fail(TX_MEMORY, "no memory for logits");
    TX_THEN(status, tx_lm_logits(lm, ids, count, logits));
    TX_THEN(status, write_logits(path, logits, &shape));
    free(logits);
    return status;
}

/* Replaces zeros in the options by their defaults, for a text of `count` tokens. */
static tx_perplexity_options fill_in(const tx_lm *lm, const tx_perplexity_options *options, int64_t count)
{
    tx_perplexity_options o = *options;
    o.max_length = o.max_length ? o.max_length : lm->config->positions;
    if (o.stride == 0)
        o.stride = o.max_length < DEFAULT_STRIDE ? o.max_length : DEFAULT_STRIDE;
    o.batch = o.batch ? o.batch : 1;
    if (o.stride > 0 && o.max_length > 0) {
        const int64_t windows = count > o.max_length ? tx_ceil_div(count - o.max_length, o.stride) + 1 : 1;
        o.batch = windows < o.batch ? windows : o.batch;
    }
    return o;
}

tx_status tx_lm_perplexity(tx_lm *lm, const int32_t *ids, int64_t count, const tx_perplexity_options *options,
                           tx_perplexity_result *result)
{
    TX_NEEDS(lm && ids && result, TX_INVALID);
    static const tx_perplexity_options defaults = {.size = sizeof defaults};
    const tx_perplexity_options o = fill_in(lm, options ? options : &defaults, count);
    tx_perplexity *perplexity = NULL;
    tx_status status = tx_lm_create_model(lm, &(tx_lm_sizes){.windows = &o});
    TX_THEN(status, tx_perplexity_create(lm->model, lm->config, &o, &perplexity));
    TX_THEN(status, tx_lm_load(lm));
    TX_THEN(status, tx_perplexity_run(perplexity, ids, count, result));
    tx_perplexity_free(perplexity);
    if (status)
        return advise(status, "use a smaller batch_size or max_length");
    result->max_length = o.max_length;
    result->stride = o.stride;
    return TX_OK;
}
