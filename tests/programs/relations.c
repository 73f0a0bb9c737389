/* SPDX-License-Identifier: Apache-2.0
 * Every relation between two options, from both sides: settings that break it are refused with both names, and a single
 * option is not refused. A run that breaks many rules reports all of them. Every option has a value other than its
 * default that the table can set. */
#include "models/job/settings.h"
#include "models/tx_train.h"

#include "tests/scratch.h"

/* A value other than the default. */
static void other_value(const tx_option *option, char text[64])
{
    const tx_job_settings usual = tx_job_defaults;
    const char *second = option->choices ? strchr(option->choices, '|') : NULL;
    switch (option->kind) {
    case TX_OPTION_FLAG:
        snprintf(text, 64, "%s", "true");
        return;
    case TX_OPTION_INTEGER:
        snprintf(text, 64, "%d", option->most >= 4 ? 4 : (int)option->most);
        return;
    case TX_OPTION_REAL:
        snprintf(text, 64, "%g", option->most < 1 ? option->most / 2 : 1.0);
        return;
    case TX_OPTION_CHOICE:
        if (*(const int32_t *)(const void *)((const char *)&usual + option->offset) != 0)
            second = option->choices - 1;
        snprintf(text, 64, "%.*s", (int)strcspn(second + 1, "|"), second + 1);
        return;
    default:
        snprintf(text, 64, "%s", option->offset == TX_JOB_AT(mask_structure) ? "2:4" : "x");
    }
}

static void use(tx_option_values *values, const tx_option *option)
{
    char text[64];
    other_value(option, text);
    assert_ok(tx_option_set_at(values, option->offset, text));
    assert_true(tx_job_in_use(values->values, option));
}

/* Whether the settings are refused for the relation between the two. */
static bool refused(const tx_option *first, const tx_option *second, const char *a, const char *b, const char *why)
{
    tx_job_settings set = tx_job_defaults;
    tx_option_values values = {.table = tx_job_table, .values = &set};
    char wanted[512];
    if (first)
        use(&values, first);
    if (second)
        use(&values, second);
    snprintf(wanted, sizeof wanted, "--%s %s --%s%s", a, why, b, *why == 'n' ? ": " : " exclude each other");
    const bool found = tx_job_check(&values, NULL) != TX_OK && strstr(tx_error(), wanted);
    tx_option_values_free(&values);
    return found;
}

static void test_relations(void **state)
{
    int32_t count;
    const tx_job_relation *r = tx_job_relations(&count);
    assert_true(count > 60);
    for (int32_t i = 0; i < count; i++) {
        const tx_option *a = tx_option_at(&tx_job_table, r[i].a), *b = tx_option_at(&tx_job_table, r[i].b);
        const char *word = r[i].kind == TX_JOB_NEEDS ? "needs" : "and";
        assert_true(r[i].kind == TX_JOB_RIVAL || strlen(r[i].why) > 10);
        if (r[i].kind == TX_JOB_RIVAL || r[i].kind == TX_JOB_ONLY)
            continue;
        assert_true(refused(a, b, a->name, b->name, word) == (r[i].kind == TX_JOB_EXCLUDES));
        assert_true(refused(b, a, a->name, b->name, word) == (r[i].kind == TX_JOB_EXCLUDES));
        assert_true(refused(a, NULL, a->name, b->name, word) == (r[i].kind == TX_JOB_NEEDS));
        assert_false(refused(b, NULL, a->name, b->name, word));
    }
    assert_false(refused(NULL, NULL, "", "", "and"));
}

/* Options whose values contradict each other, and the beginning of each refusal. No file of them exists. */
typedef struct contradiction {
    const char *options[12][2];
    const char *refusals[16];
} contradiction;

static const contradiction contradictions[] = {
    {{{"model_name_or_path", "nowhere"},
      {"train_file", "none.txt"},
      {"output_dir", "o"},
      {"bf16", "true"},
      {"fp16", "true"},
      {"use_dora", "true"},
      {"load_in_4bit", "true"},
      {"adapter", "qlora"},
      {"sparsity", "0.5"},
      {"lora_dropout", "0.1"},
      {"use_peft", "true"}},
     {"--bf16 and --fp16 exclude each other", "--use_dora needs --lora_r", "--load_in_4bit needs --lora_r",
      "--adapter needs --lora_r", "--lora_dropout needs --lora_r", "--use_peft needs --lora_r",
      "--load_in_4bit and --use_dora exclude each other"}},
    {{{"lora_r", "4"},
      {"sparsity", "0.5"},
      {"load_in_4bit", "true"},
      {"init_lora_weights", "loftq"},
      {"use_dora", "true"},
      {"group_by_length", "true"},
      {"train_sampling_strategy", "sequential"},
      {"logging_steps", "1.5"},
      {"gradient_checkpointing", "auto:many"},
      {"optim_args", "none=1"}},
     {"--output_dir is missing", "--train_file or --dataset_name is missing", "--lora_r needs --model_name_or_path",
      "--sparsity and --lora_r exclude each other", "--load_in_4bit: --init_lora_weights loftq",
      "--init_lora_weights loftq: not with DoRA", "--group_by_length and --train_sampling_strategy exclude",
      "--logging_steps 1.5: give a whole number", "--gradient_checkpointing auto:many", "--optim_args: \"none=1\""}},
    {{{"task_name", "seq2seq"},
      {"train_file", "none.jsonl"},
      {"output_dir", "o"},
      {"tensor_parallel", "2"},
      {"block_size", "64"},
      {"beta", "0.2"},
      {"packing", "true"},
      {"do_predict", "true"},
      {"doc_stride", "5"},
      {"similarity_scale", "3"},
      {"lr_scheduler_type", "cosine_with_min_lr"},
      {"loss_type", "ipo"}},
     {"--tensor_parallel is not supported with --task_name seq2seq: ranks cannot divide",
      "--block_size is not supported with --task_name seq2seq: the lengths are", "--beta is for preferences",
      "--packing is for instruction data", "--doc_stride is for question answering",
      "--similarity_scale is for embeddings", "add --predict_with_generate", "cosine_with_min_lr needs either",
      "--loss_type ipo is for preferences", "--test_file or --dataset_name is missing"}},
    {{{"task_name", "dpo"},
      {"train_file", "none.jsonl"},
      {"output_dir", "o"},
      {"pipeline_parallel", "2"},
      {"zero_stage", "2"},
      {"loss_type", "exo_pair"},
      {"block_size", "64"},
      {"mlm_probability", "0.3"},
      {"label_smoothing_factor", "0.1"},
      {"eval_strategy", "steps"},
      {"validation_split_percentage", "0"}},
     {"--task_name dpo needs --model_name_or_path", "--pipeline_parallel is not supported with --task_name dpo",
      "--pipeline_parallel needs --zero_stage 0 or 1", "--loss_type exo_pair needs --label_smoothing",
      "--block_size: the length of texts", "--mlm_probability is for masked language modelling",
      "--label_smoothing_factor is not supported with --task_name dpo", "no validation data for --eval_strategy"}},
    {{{"model_name_or_path", "nowhere"},
      {"config_name", "gpt2"},
      {"dataset_name", "none,nowhere"},
      {"interleave_probabilities", "0.5"},
      {"dataset_config_name", "a,b,c"},
      {"output_dir", "o"},
      {"lora_r", "2"},
      {"trainable_token_indices", "3,x"},
      {"adam_epsilon", "0"},
      {"mask_structure", "2:4"}},
     {"--model_name_or_path and --config_name exclude each other",
      "--dataset_config_name a,b,c: give one configuration for each of the 2 datasets", "--trainable_token_indices",
      "needs an epsilon above 0", "--mask_structure and --lora_r exclude each other"}},
};

static void test_all_refusals_come_at_once(void **state)
{
    for (size_t c = 0; c < sizeof contradictions / sizeof contradictions[0]; c++) {
        const contradiction *one = &contradictions[c];
        tx_job *job;
        assert_ok(tx_job_create(&job));
        for (int i = 0; i < 12 && one->options[i][0]; i++)
            assert_ok(tx_job_set(job, one->options[i][0], one->options[i][1]));
        assert_int_equal(tx_job_resolve(job), TX_INVALID);
        for (int i = 0; i < 16 && one->refusals[i]; i++)
            if (!strstr(tx_error(), one->refusals[i]))
                fail_msg("\"%s\" is missing in %s", one->refusals[i], tx_error());
        tx_job_free(job);
    }
}

static void test_every_option_can_change(void **state)
{
    for (int32_t i = 0; i < tx_job_table.count; i++) {
        const tx_option *option = &tx_job_table.option[i];
        tx_job_settings set = tx_job_defaults;
        tx_option_values values = {.table = tx_job_table, .values = &set};
        if (!tx_option_has_value(option))
            continue;
        assert_false(tx_job_in_use(&set, option));
        if (option->kind == TX_OPTION_FLAG && *(bool *)((char *)&set + option->offset))
            assert_ok(tx_option_set_at(&values, option->offset, "false"));
        else if (option->kind == TX_OPTION_LIST)
            assert_ok(tx_option_set_at(&values, option->offset, "all"));
        else if (option->kind == TX_OPTION_INTEGER || option->kind == TX_OPTION_REAL)
            continue; /* the default may be any number */
        else
            use(&values, option);
        assert_true(tx_job_in_use(&set, option));
        tx_option_values_free(&values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relations),
                                       cmocka_unit_test(test_all_refusals_come_at_once),
                                       cmocka_unit_test(test_every_option_can_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
