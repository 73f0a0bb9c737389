/* SPDX-License-Identifier: Apache-2.0
 * A small trained GPT-2 against figures computed in double precision elsewhere: logits, gradients, eight AdamW
 * steps, a greedy continuation.
 *
 *     golden_tiny DEVICE */
#include "models/files/safetensors.h"
#include "models/generate/generate.h"
#include "models/task/causal_lm.h"
#include "models/train/trainer.h"
#include "tests/train/data.h"
#include "tx_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 128, BATCH = 2, STEP_BATCH = 4, STEPS = 8, PROMPT = 16, LENGTH = 80 };

typedef struct subject {
    const char *device;
    tx_engine *engine;
    tx_model *model;
    tx_config *config;
    char folder[1024];
    int failures;
    tx_job_settings set; /* of the trainer */
} subject;

static void must(tx_status status)
{
    if (status) {
        printf("FAIL: %s\n", tx_error());
        exit(1);
    }
}

static void *must_have(void *memory)
{
    if (!memory) {
        printf("FAIL: out of memory\n");
        exit(1);
    }
    return memory;
}

/* `good` false counts as a failure; conditions are written so that NaN makes them false. */
static void verdict(subject *s, bool good, const char *what, double value, double limit)
{
    if (!good)
        s->failures++;
    printf("%s %-52s %.3g (limit %.3g)\n", good ? "ok  " : "FAIL", what, value, limit);
}

static double relative_l2(const float *got, const float *want, int64_t count)
{
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(difference / norm);
}

static const char *path_of(const subject *s, const char *name)
{
    static char path[1280];
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    return path;
}

/* ---- model and data ----------------------------------------------------------------------------- */

static void new_model(subject *s)
{
    tx_model_free(s->model);
    s->model = NULL;
    must(tx_model_create(s->engine, &s->model));
}

/* A trainer whose model has the folder's weights. */
static tx_trainer *new_trainer(subject *s, int64_t batch, double clip, double decay)
{
    s->set = tx_job_defaults;
    s->set.max_grad_norm = clip;
    tx_trainer_options options = {
        .size = sizeof options,
        .set = &s->set,
        .task = &tx_causal_lm,
        .batch = batch,
        .block = BLOCK,
        .accumulation = 1,
        .optimizer = {sizeof options.optimizer, TX_ADAMW, 0.9f, 0.95f, 1e-8f, .weight_decay = (float)decay},
    };
    tx_trainer *trainer = NULL;
    new_model(s);
    must(tx_trainer_create(s->model, s->config, &options, &trainer));
    must(tx_arch_load(s->model, s->config, s->folder, NULL));
    return trainer;
}

/* All of a tensor as fp32; its number of elements in *count. */
static float *read_tensor(tx_st_file *file, const char *name, int64_t *count)
{
    int32_t index;
    must(tx_st_find(file, name, &index));
    *count = tx_st_elements(tx_st_tensor_at(file, index));
    float *data = must_have(malloc((size_t)*count * sizeof *data));
    must(tx_st_read_f32(file, index, 0, *count, data));
    return data;
}

static void read_golden_ids(const subject *s, int32_t ids[BATCH * BLOCK])
{
    int64_t wide[BATCH * BLOCK];
    int32_t index;
    tx_st_file *file = NULL;
    must(tx_st_open(path_of(s, "golden_logits.safetensors"), &file));
    must(tx_st_find(file, "input_ids", &index));
    must(tx_st_read(file, index, 0, BATCH * BLOCK, wide));
    for (int i = 0; i < BATCH * BLOCK; i++)
        ids[i] = (int32_t)wide[i];
    tx_st_close(file);
}

/* One step over `rows` rows of ids, its results taken at once. */
static void step(tx_trainer *trainer, int32_t *ids, int64_t rows, double rate, tx_results *results)
{
    int32_t labels[STEP_BATCH * BLOCK];
    for (int64_t i = 0; i < rows * BLOCK; i++)
        labels[i] = (i + 1) % BLOCK ? ids[i + 1] : TX_IGNORE_LABEL;
    must(tx_trainer_step(trainer, &(tx_batch){.rows = rows, .field = {ids, labels}}, rows * (BLOCK - 1), rate));
    must(tx_trainer_results(trainer, results));
}

/* ---- the four proofs ------------------------------------------------------------------------------ */

static void check_logits(subject *s)
{
    int32_t ids[BATCH * BLOCK];
    read_golden_ids(s, ids);
    int64_t count, row = BLOCK * s->config->vocab_size;
    tx_st_file *file = NULL;
    must(tx_st_open(path_of(s, "golden_logits.safetensors"), &file));
    float *want = read_tensor(file, "logits", &count);
    tx_st_close(file);
    float *got = must_have(malloc((size_t)count * sizeof *got));
    tx_forward *forward = NULL;
    new_model(s);
    must(tx_forward_create(s->model, s->config, BLOCK, &forward));
    must(tx_arch_load(s->model, s->config, s->folder, NULL));
    for (int b = 0; b < BATCH; b++)
        must(tx_forward_run(forward, ids + b * BLOCK, got + b * row));
    double error = relative_l2(got, want, count);
    verdict(s, count == BATCH * row && error <= 1e-5, "logits, relative L2", error, 1e-5);
    tx_forward_free(forward);
    free(want);
    free(got);
}

/* Gradients stay readable after a step; a rate of 0 does not change the weights. */
static void check_gradients(subject *s, const tx_json *golden)
{
    int32_t ids[BATCH * BLOCK];
    read_golden_ids(s, ids);
    tx_trainer *trainer = new_trainer(s, BATCH, 0.0, 0.0);
    tx_results results;
    step(trainer, ids, BATCH, 0.0, &results);
    double loss, norm;
    must(tx_json_get_number(golden, "loss_golden_batch", 0, 100, &loss));
    must(tx_json_get_number(golden, "grad_global_norm", 0, 1e9, &norm));
    double loss_error = fabs((double)results.value[TX_RESULT_LOSS] - loss);
    double norm_error = fabs((double)results.value[TX_RESULT_GRAD_NORM] / norm - 1.0);
    verdict(s, loss_error <= 1e-5, "loss of the golden batch", loss_error, 1e-5);
    verdict(s, norm_error <= 1e-4, "global gradient norm, relative", norm_error, 1e-4);
    tx_st_file *file = NULL;
    must(tx_st_open(path_of(s, "golden_grads.safetensors"), &file));
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        int64_t count;
        must(tx_model_param(s->model, i, &name, &spec));
        float *want = read_tensor(file, name, &count), *got = must_have(malloc((size_t)count * sizeof *got));
        must(tx_model_read(s->model, TX_PARAM_GRADIENT, i, got));
        double error = relative_l2(got, want, count);
        char what[160];
        snprintf(what, sizeof what, "gradient of %s", name);
        verdict(s, error <= 1e-4, what, error, 1e-4);
        free(want);
        free(got);
    }
    tx_st_close(file);
    tx_trainer_free(trainer);
}

/* Returns how many elements of a parameter differ by more than 1e-5 after the last step, and the largest difference.
 * The gradient of key biases is zero except for rounding, which Adam scales up to full steps: they are skipped. */
static int64_t compare_weights(const char *name, const float *got, const float *want, int64_t count, double *largest)
{
    int64_t over = 0;
    bool keys = strstr(name, "attn.c_attn.bias") != NULL;
    for (int64_t i = 0; i < count; i++) {
        if (keys && i >= count / 3 && i < count / 3 * 2)
            continue;
        double d = fabs((double)got[i] - (double)want[i]);
        over += !(d <= 1e-5);
        if (!(d <= *largest))
            *largest = d;
    }
    return over;
}

static void check_final_weights(subject *s)
{
    tx_st_file *file = NULL;
    must(tx_st_open(path_of(s, "golden_after_8_steps.safetensors"), &file));
    int64_t over = 0, total = 0;
    double largest = 0.0;
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        const char *name;
        const tx_param_spec *spec;
        int64_t count;
        must(tx_model_param(s->model, i, &name, &spec));
        float *want = read_tensor(file, name, &count), *got = must_have(malloc((size_t)count * sizeof *got));
        must(tx_model_read(s->model, TX_PARAM_WEIGHT, i, got));
        over += compare_weights(name, got, want, count, &largest);
        total += count;
        free(want);
        free(got);
    }
    tx_st_close(file);
    verdict(s, over * 1000 <= total, "weights after the steps, share over 1e-5", (double)over / (double)total, 1e-3);
    verdict(s, largest <= 1e-4, "weights after the steps, largest difference", largest, 1e-4);
}

static void check_steps(subject *s, const tx_json *golden)
{
    char path[1280];
    static uint8_t text[((STEPS * STEP_BATCH) - 1) * 1000 + BLOCK];
    FILE *file = fopen(tx_test_data("text/tinyshakespeare.txt", path, sizeof path), "rb");
    if (!must_have(file) || fread(text, 1, sizeof text, file) != sizeof text)
        must(tx_fail(TX_IO, "%s: cannot be read", path));
    fclose(file);
    tx_json *adamw, *series;
    must(tx_json_get(golden, "adamw", TX_JSON_OBJECT, &adamw));
    must(tx_json_get(adamw, "loss_and_grad_norm", TX_JSON_ARRAY, &series));
    tx_trainer *trainer = new_trainer(s, STEP_BATCH, 0.5, 0.1);
    double worst_loss = 0.0, worst_norm = 0.0;
    for (size_t n = 0; n < STEPS; n++) {
        int32_t ids[STEP_BATCH * BLOCK];
        for (size_t i = 0; i < STEP_BATCH * BLOCK; i++)
            ids[i] = text[(n * STEP_BATCH + i / BLOCK) * 1000 + i % BLOCK];
        tx_results results;
        double loss, norm;
        step(trainer, ids, STEP_BATCH, 1e-3, &results);
        const tx_json *pair = tx_json_at(series, n);
        must(tx_json_as_number(tx_json_at(pair, 0), "loss", 0, 100, &loss));
        must(tx_json_as_number(tx_json_at(pair, 1), "norm", 0, 1e9, &norm));
        double loss_error = fabs((double)results.value[TX_RESULT_LOSS] - loss);
        double norm_error = fabs((double)results.value[TX_RESULT_GRAD_NORM] / norm - 1.0);
        if (!(loss_error <= worst_loss))
            worst_loss = loss_error;
        if (!(norm_error <= worst_norm))
            worst_norm = norm_error;
    }
    verdict(s, worst_loss <= 1e-5, "losses of 8 AdamW steps", worst_loss, 1e-5);
    verdict(s, worst_norm <= 1e-4, "gradient norms of 8 AdamW steps, relative", worst_norm, 1e-4);
    check_final_weights(s);
    tx_trainer_free(trainer);
}

typedef struct text {
    int32_t ids[LENGTH];
    int count;
} text;

static bool append(void *context, int64_t row, int32_t id)
{
    text *t = context;
    (void)row;
    t->ids[t->count++] = id;
    return t->count < LENGTH;
}

static void check_greedy(subject *s, const tx_json *golden)
{
    tx_json *series;
    must(tx_json_get(golden, "greedy_prompt16_plus64", TX_JSON_ARRAY, &series));
    text t = {.count = PROMPT};
    int32_t want[LENGTH], same = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        int64_t id;
        must(tx_json_as_int(tx_json_at(series, i), "id", 0, 256, &id));
        want[i] = (int32_t)id;
    }
    memcpy(t.ids, want, PROMPT * sizeof *want);
    tx_generator *generator = NULL;
    tx_generation greedy = tx_generation_defaults(-1); /* the golden text does not end */
    greedy.max_new_tokens = LENGTH - PROMPT;
    const tx_generator_options options = {sizeof options, 1,     1,    PROMPT, LENGTH, false, 0,
                                          NULL,           false, NULL, TX_F32, NULL,   false};
    new_model(s);
    must(tx_generator_create(s->model, s->config, &options, &generator));
    must(tx_arch_load(s->model, s->config, s->folder, NULL));
    int32_t prompt[PROMPT];
    memcpy(prompt, want, sizeof prompt);
    const tx_prompt one = {prompt, PROMPT};
    const tx_sink sink = {.emit = append, .context = &t};
    must(tx_generator_run(generator, &one, 1, 0, &greedy, &sink));
    for (int i = 0; i < t.count; i++)
        same += t.ids[i] == want[i];
    verdict(s, same == LENGTH, "greedy continuation, ids that differ", LENGTH - same, 0);
    tx_generator_free(generator);
}

int main(int argc, char **argv)
{
    subject s = {.device = argc > 1 ? argv[1] : "cpu"};
    tx_test_device(s.device);
    tx_test_data("models/tiny_gpt2_bytes", s.folder, sizeof s.folder);
    tx_json *golden = NULL;
    must(tx_json_read(path_of(&s, "golden.json"), 1 << 20, &golden));
    must(tx_config_read(path_of(&s, "config.json"), &s.config));
    tx_engine_options options = {.size = sizeof options, .device = s.device, .threads = 0};
    must(tx_engine_create(&options, &s.engine));
    printf("device %s: %s\n", tx_engine_device(s.engine)->id, tx_engine_device(s.engine)->name);
    check_logits(&s);
    check_gradients(&s, golden);
    check_steps(&s, golden);
    check_greedy(&s, golden);
    tx_model_free(s.model);
    tx_engine_free(s.engine);
    tx_config_free(s.config);
    tx_json_free(golden);
    printf("%d failures\n", s.failures);
    return s.failures != 0;
}
