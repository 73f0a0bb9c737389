/* SPDX-License-Identifier: Apache-2.0
 *
 * Persistent launches (generation/persistent.c): 50 tokens of small models by one launch each have the bits of single
 * launches. If the device does not run all work-groups at a time, the token and all later ones are computed by single
 * launches, with one warning, and the next start does not try again. No token waits for a compiler.
 *
 * PoCL computes work-groups on as many threads as there are cores, one after the other. So the test has one work-group,
 * or 64 to make a wait fail.
 *
 *     test_persistent MODEL TYPE     gpt2 or llama; float32, bfloat16 or float16
 *
 * TX_OCL_VARIANT selects the kernels. Exit status 77: there is no OpenCL device. */
#include "api/model/engine.h"
#include "backends/opencl/runtime/internal.h"
#include "models/generate/slots.h"
#include "tests/opencl/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 160, PROMPT = 5, TOKENS = 50, CONTEXT = 64, WARM = 3 };
enum { CROWDED = 30 }; /* the token whose wait fails */

static const struct {
    const char *name, *config;
} models[] = {
    {"gpt2", "vocab_size=160,n_positions=64,n_embd=96,n_layer=2,n_head=3"},
    {"tinyllama-1.1b",
     "vocab_size=160,max_position_embeddings=64,hidden_size=96,intermediate_size=144,num_hidden_layers=2,"
     "num_attention_heads=6,num_key_value_heads=2"},
};

/* The logits, launches and builds of a run, and its warnings. */
typedef struct result {
    float logits[TOKENS][VOCAB];
    long launches[TOKENS], builds;
    int warnings;
    char warning[400];
} result;
static result single, persistent, crowded, later;
static bool crowd;

/* More work-groups than threads, if `crowd`. */
cl_int __real_tx_cl_enqueue(tx_context *context, cl_kernel kernel, cl_uint dims, const size_t *global,
                            const size_t *local, cl_event *event);
cl_int __wrap_tx_cl_enqueue(tx_context *context, cl_kernel kernel, cl_uint dims, const size_t *global,
                            const size_t *local, cl_event *event);
cl_int __wrap_tx_cl_enqueue(tx_context *context, cl_kernel kernel, cl_uint dims, const size_t *global,
                            const size_t *local, cl_event *event)
{
    char name[64] = "";
    size_t more = 64 * (local ? *local : 1);
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    return __real_tx_cl_enqueue(context, kernel, dims, crowd && strcmp(name, "persistent") == 0 ? &more : global, local,
                                event);
}

static void warn(void *context, const char *text)
{
    result *r = context;
    if (!strstr(text, "single launches"))
        return;
    r->warnings++;
    snprintf(r->warning, sizeof r->warning, "%s", text);
}

static tx_status step_tokens(tx_slots *slots, result *r)
{
    int32_t ids[PROMPT] = {3, 1, 4, 1, 5}, id = 9;
    const long built = stand_in.calls[STAND_IN_BUILD];
    for (int64_t done = 0; done < PROMPT;)
        TX_TRY(tx_slots_prefill(slots, 0, ids, PROMPT, &done, NULL, NULL));
    for (int i = 0; i < TOKENS; i++) {
        const long before = stand_in.calls[STAND_IN_ENQUEUE];
        crowd = crowd || (r == &crowded && i == CROWDED);
        TX_TRY(tx_slots_step(slots, &(int32_t){0}, &id, 1, NULL));
        memcpy(r->logits[i], tx_slots_logits(slots, 0), sizeof r->logits[i]);
        r->launches[i] = stand_in.calls[STAND_IN_ENQUEUE] - before;
        for (int k = id = 0; k < VOCAB; k++)
            id = r->logits[i][k] > r->logits[i][id] ? k : id;
    }
    r->builds = stand_in.calls[STAND_IN_BUILD] - built;
    return TX_OK;
}

static tx_status generate(const char *name, const char *text, tx_dtype type, const char *setting, result *r)
{
    const tx_reporter report = {.context = r, .warn = warn};
    const tx_engine_options options = {.size = sizeof options, .device = "opencl", .report = &report};
    tx_config *config = NULL;
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_slots *slots = NULL;
    setenv("TX_OCL_PERSISTENT", setting, 1);
    tx_status status = tx_config_preset(name, &config);
    TX_THEN(status, tx_config_override(config, text));
    TX_THEN(status, tx_engine_create(&options, &engine));
    if (status == TX_OK)
        engine->context->limits.compute_units = 1;
    TX_THEN(status, tx_model_create(engine, &model));
    TX_THEN(status, tx_model_store(model, type));
    TX_THEN(status, tx_slots_create(model, config,
                                    &(tx_slots_options){.count = 1,
                                                        .context = CONTEXT,
                                                        .prompt = CONTEXT,
                                                        .beams = 1,
                                                        .autocast = type == TX_F32 ? TX_F32 : type},
                                    &slots));
    TX_THEN(status, tx_model_init(model, 4));
    TX_THEN(status, step_tokens(slots, r));
    if (status != TX_OK)
        printf("FAIL  %s\n", tx_error());
    tx_slots_free(slots);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_config_free(config);
    return status;
}

/* Returns the number of tokens from `first` on that were computed by one launch. */
static int alone(const result *r, int first, int end)
{
    int count = 0;
    for (int i = first; i < end; i++)
        count += r->launches[i] == 1;
    return count;
}

static bool check(bool good, const char *what, const result *r)
{
    printf("%s  %s: %ld launches, then %ld; %ld builds; %d warnings%s%s\n", good ? "ok" : "FAIL", what, r->launches[0],
           r->launches[TOKENS - 1], r->builds, r->warnings, r->warnings ? ": " : "", r->warning);
    return good;
}

static bool same(const result *r)
{
    return memcmp(r->logits, single.logits, sizeof single.logits) == 0;
}

int main(int argc, char **argv)
{
    int32_t devices = 0, m = argc == 3 && strcmp(argv[1], "llama") == 0;
    const tx_dtype type = argc < 3                           ? TX_F32
                          : strcmp(argv[2], "bfloat16") == 0 ? TX_BF16
                          : strcmp(argv[2], "float16") == 0  ? TX_F16
                                                             : TX_F32;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (tx_device_find("opencl", &devices) != TX_OK) {
        printf("skipped: %s\n", tx_error());
        return 77;
    }
    const char *name = models[m].name, *config = models[m].config;
    if (generate(name, config, type, "0", &single) || generate(name, config, type, "1", &persistent) ||
        generate(name, config, type, "1", &crowded))
        return 1;
    crowd = false;
    if (generate(name, config, type, "1", &later))
        return 1;
    bool good = check(single.launches[TOKENS - 1] > 8 && !single.warnings, "single launches", &single);
    good &= check(same(&persistent) && alone(&persistent, WARM, TOKENS) == TOKENS - WARM && !persistent.builds &&
                      !persistent.warnings,
                  "persistent launches", &persistent);
    good &= check(same(&crowded) && alone(&crowded, WARM, CROWDED) == CROWDED - WARM &&
                      alone(&crowded, CROWDED, TOKENS) == 0 && crowded.warnings == 1,
                  "a wait that fails", &crowded);
    good &= check(same(&later) && alone(&later, 0, TOKENS) == 0, "the next start", &later);
    return good ? 0 : 1;
}
