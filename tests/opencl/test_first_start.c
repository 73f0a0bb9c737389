/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the programs that the first start of a training builds on an NVIDIA card of generation sm_90, without a driver
 * (tools/ptx/record.h). Each costs a first start a second or more.
 *
 *     test_first_start                lines "model, type: count"; exit status 1 if one is above its limit
 *     test_first_start MODEL TYPE     also lists the programs of these
 */
#include "models/arch/arch.h"
#include "models/lora/lora.h"
#include "models/task/sequence.h"
#include "models/task/tasks.h"
#include "tools/ptx/plans.h"
#include "tools/ptx/record.h"
#include "tx_json.h"

#include <string.h>

#define CARD 2 /* sm_90 */

static const struct model {
    const char *name;
    const tx_task *task;
    bool lora;
    int64_t rows, block, eval_rows;
    int32_t lengths;
    int most;
    const char *config;
} models[] = {
#define GPT2 "\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2"
#define BERT "\"model_type\":\"bert\",\"num_hidden_layers\":2,\"vocab_size\":30522,\"architectures\":"
    {"GPT-2", &tx_causal_lm, false, 16, 1024, 0, 0, 45, GPT2},
    {"GPT-2 with evaluation", &tx_causal_lm, false, 16, 1024, 8, 0, 45, GPT2},
    {"Llama 1.1B with LoRA", &tx_causal_lm, true, 4, 1024, 0, 0, 45,
     "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":2048,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":5632,\"vocab_size\":32000,"
     "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false"},
    {"BERT, masked", &tx_masked_lm, false, 32, 128, 0, 0, 45, BERT "[\"BertForMaskedLM\"]"},
    {"BERT, labels", &tx_sequence_classification.task, false, 32, 128, 0, TX_LENGTHS_MAX, 56,
     BERT "[\"BertForSequenceClassification\"]"},
    {"BERT, labels, whole rows", &tx_sequence_classification.task, false, 32, 128, 0, 0, 51,
     BERT "[\"BertForSequenceClassification\"]"},
};

static tx_status config_of(const struct model *m, tx_config **config)
{
    char text[640];
    tx_json *json = NULL;
    const tx_lora lora = {.rank = 8, .alpha = 16, .targets = "q_proj,v_proj"};
    snprintf(text, sizeof text, "{%s}", m->config);
    TX_TRY(tx_json_parse(text, strlen(text), m->name, &json));
    TX_TRY(tx_config_of_json(json, config));
    return m->lora ? tx_lora_copy(&lora, &(*config)->lora) : TX_OK;
}

static tx_status plan(tx_engine *engine, const struct model *m, tx_dtype type)
{
    tx_config *config = NULL;
    TX_TRY(config_of(m, &config));
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = m->task,
        .batch = m->rows,
        .block = m->block,
        .accumulation = 1,
        .all_rows = m->rows,
        .parallel = {.size = sizeof options.parallel},
        .eval_batch = m->eval_rows,
        .lengths = m->lengths,
        .autocast = type,
        .eval_autocast = type,
        .optimizer = {
            .size = sizeof options.optimizer, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f}};
    if (config->lora)
        config->lora->stored = type;
    const tx_status status = tx_plan_training(engine, config, &options);
    tx_config_free(config);
    return status;
}

/* Returns false if the start builds more programs than the limit. */
static bool check(const struct model *m, tx_dtype type, bool print)
{
    tx_engine engine;
    tx_status status = tx_record_open(CARD, &engine);
    const int tests = status ? 0 : tx_record_count(&engine, NULL);
    TX_THEN(status, plan(&engine, m, type));
    const int all = tx_record_count(&engine, print ? stdout : NULL);
    printf("%s, %s: %d programs, %d of them of the start-up test%s%s\n", m->name, tx_dtype_name(type), all, tests,
           status ? ": " : "", status ? tx_error() : "");
    tx_record_close(&engine);
    return status == TX_OK && all > tests && all <= m->most;
}

int main(int argc, char **argv)
{
    static const tx_dtype types[] = {TX_BF16, TX_F16};
    bool good = true;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int t = 0; t < 2; t++)
            good = check(&models[i], types[t],
                         argc == 3 && !strcmp(argv[1], models[i].name) && !strcmp(argv[2], tx_dtype_name(types[t]))) &&
                   good;
    return good ? 0 : 1;
}
