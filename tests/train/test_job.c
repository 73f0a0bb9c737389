/* SPDX-License-Identifier: Apache-2.0
 * Whole runs through the library: the listener's calls, a stop on request, resumption, and refusals. */
#include "models/job/inputs.h"
#include "tests/scratch.h"

enum { STEPS = 4, STOP_AFTER = 2, WHY = 7 };

typedef struct heard {
    int begins, steps, logs, evaluations, saves, results, notes;
    int stop_after; /* number of steps, or 0 for never */
    double eval_loss, perplexity;
} heard;

static void on_begin(void *context)
{
    heard *h = context;
    h->begins++;
}

static void on_step(void *context, const tx_run_step *step)
{
    heard *h = context;
    assert_int_equal(step->steps, STEPS);
    assert_true(isfinite(step->loss));
    h->steps++;
}

static void on_log(void *context, const tx_run_step *step, double loss)
{
    heard *h = context;
    assert_true(step->step > 0 && isfinite(loss));
    h->logs++;
}

static void on_evaluation(void *context, int64_t step, const tx_figure *metrics, int32_t count)
{
    heard *h = context;
    assert_true(step > 0);
    for (int32_t i = 0; i < count; i++) {
        h->eval_loss = strcmp(metrics[i].name, "eval_loss") == 0 ? metrics[i].value : h->eval_loss;
        h->perplexity = strcmp(metrics[i].name, "perplexity") == 0 ? metrics[i].value : h->perplexity;
    }
    h->evaluations++;
}

static void on_saved(void *context, const char *folder)
{
    heard *h = context;
    assert_true(tx_is_folder(folder));
    h->saves++;
}

static void on_results(void *context, const char *split, const tx_figure *metrics, int32_t count)
{
    heard *h = context;
    assert_true(strcmp(split, "train") == 0 || strcmp(split, "eval") == 0);
    assert_true(metrics && count > 0);
    h->results++;
}

static void on_note(void *context, const char *line)
{
    heard *h = context;
    assert_true(line[0]);
    h->notes++;
}

static int on_stop(void *context)
{
    const heard *h = context;
    return h->stop_after && h->steps >= h->stop_after ? WHY : 0;
}

static void set(tx_job *job, const char *folder, const char *name, const char *file)
{
    assert_ok(tx_job_set(job, name, TX_PATH(folder, file)));
}

/* A run of STEPS steps of a small model on a text in the folder. */
static tx_job *make_job(const char *folder, const char *output, heard *h)
{
    static const char *const options[][2] = {
        {"config_overrides", "n_layer=1,n_embd=16,n_head=2,n_positions=32"},
        {"max_steps", "4"},
        {"per_device_train_batch_size", "2"},
        {"validation_split_percentage", "20"},
        {"do_train", "true"},
        {"do_eval", "true"},
        {"eval_strategy", "steps"},
        {"eval_steps", "2"},
        {"logging_steps", "1"},
        {"save_steps", "2"},
        {"threads", "1"},
    };
    char text[4096] = "";
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "line %d of a text about the number %d\n", i, i * i);
    assert_ok(tx_file_write(TX_PATH(folder, "text.txt"), text, strlen(text)));
    tx_job *job = NULL;
    assert_ok(tx_job_create(&job));
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        assert_ok(tx_job_set(job, options[i][0], options[i][1]));
    set(job, folder, "train_file", "text.txt");
    set(job, folder, "output_dir", output);
    const tx_job_listener listener = {.size = sizeof listener,
                                      .context = h,
                                      .begin = on_begin,
                                      .step = on_step,
                                      .log = on_log,
                                      .evaluation = on_evaluation,
                                      .saved = on_saved,
                                      .results = on_results,
                                      .note = on_note,
                                      .stop = on_stop};
    assert_ok(tx_job_listen(job, &listener));
    return job;
}

static void assert_same_file(const char *folder, const char *a, const char *b)
{
    char *data[2] = {NULL, NULL};
    size_t size[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        assert_ok(tx_file_read(TX_PATH(folder, i ? b : a), 1 << 24, &data[i], &size[i]));
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    free(data[0]);
    free(data[1]);
}

static void whole_run(const char *folder)
{
    heard h = {0};
    double value = 0.0;
    int64_t steps = 0;
    int32_t ranks = 0;
    tx_job *job = make_job(folder, "whole", &h);
    assert_ok(tx_job_run(job));
    assert_int_equal(h.begins, 1);
    assert_int_equal(h.steps, STEPS);
    assert_int_equal(h.logs, STEPS);
    assert_int_equal(h.evaluations, 2);
    assert_int_equal(h.saves, 2);
    assert_int_equal(h.results, 2);
    assert_true(h.notes > 3);
    assert_int_equal(tx_job_stopped(job), 0);
    assert_int_equal(tx_job_step(job, &steps), STEPS);
    assert_int_equal(steps, STEPS);
    assert_int_equal(tx_job_rank(job, &ranks), 0);
    assert_int_equal(ranks, 1);
    assert_ok(tx_job_result(job, "eval_loss", &value));
    assert_true(fabs(value - h.eval_loss) < 1e-12 && fabs(exp(value) - h.perplexity) < 1e-9 * h.perplexity);
    assert_ok(tx_job_result(job, "train_loss", &value));
    assert_refused(tx_job_result(job, "accuracy", &value), TX_NOT_FOUND, "accuracy");
    assert_refused(tx_job_run(job), TX_INVALID, "runs once");
    tx_job_free(job);
}

/* Resumes with the options of the checkpoint's run, in its folder. */
static void go_on_bare(const char *folder)
{
    heard h = {.stop_after = STOP_AFTER};
    tx_job *job = make_job(folder, "bare", &h);
    assert_ok(tx_job_run(job));
    tx_job_free(job);
    assert_ok(tx_job_create(&job));
    set(job, folder, "resume_from_checkpoint", "bare/checkpoint-2");
    assert_ok(tx_job_set(job, "max_steps", "4"));
    assert_ok(tx_job_run(job));
    tx_job_free(job);
    assert_same_file(folder, "whole/model.safetensors", "bare/model.safetensors");
    assert_ok(tx_job_create(&job)); /* a given option overrides the restored one */
    set(job, folder, "output_dir", "bare");
    assert_ok(tx_job_set(job, "resume_from_checkpoint", ""));
    assert_ok(tx_job_set(job, "num_train_epochs", "2"));
    int64_t steps = 0;
    assert_ok(tx_job_run(job));
    tx_job_step(job, &steps);
    assert_true(steps > STEPS);
    tx_job_free(job);
}

static void stop_and_go_on(void **state)
{
    char *folder = make_scratch();
    whole_run(folder);
    heard h = {.stop_after = STOP_AFTER};
    tx_job *job = make_job(folder, "parted", &h);
    int64_t steps = 0;
    assert_ok(tx_job_run(job));
    assert_int_equal(tx_job_stopped(job), WHY);
    assert_in_range(tx_job_step(job, &steps), STOP_AFTER, STEPS - 1);
    assert_int_equal(h.results, 0);
    tx_job_free(job);
    h = (heard){0};
    job = make_job(folder, "parted", &h);
    assert_ok(tx_job_set(job, "resume_from_checkpoint", ""));
    assert_ok(tx_job_run(job));
    assert_int_equal(tx_job_stopped(job), 0);
    assert_in_range(h.steps, 1, STEPS - STOP_AFTER);
    tx_job_free(job);
    assert_same_file(folder, "whole/model.safetensors", "parted/model.safetensors");
    go_on_bare(folder);
    remove_scratch(folder);
}

static void refusals(void **state)
{
    tx_job *job = NULL;
    double value;
    assert_ok(tx_job_create(&job));
    assert_refused(tx_job_set(job, "learning_rat", "1"), TX_INVALID, "learning_rate");
    assert_refused(tx_job_set(job, "learning_rate", "fast"), TX_INVALID, "not a number");
    assert_refused(tx_job_set(job, "optim", "adamo"), TX_INVALID, "adamw");
    assert_refused(tx_job_set(job, "optim", "paged_adamw_8bit"), TX_INVALID, "adamw_8bit with --offload_optimizer cpu");
    assert_refused(tx_job_set(job, "push_to_hub", "true"), TX_UNSUPPORTED, "never uploads");
    assert_refused(tx_job_read(job, "/nowhere/args.json"), TX_NOT_FOUND, "/nowhere/args.json");
    assert_refused(tx_job_listen(job, &(tx_job_listener){.size = 1}), TX_INVALID, "size");
    assert_refused(tx_job_result(job, "eval_loss", &value), TX_NOT_FOUND, "eval_loss");
    assert_refused(tx_job_run(job), TX_INVALID, "train_file");
    tx_job_free(job);
    tx_job_free(NULL);
    assert_ok(tx_job_create(&job));
    assert_ok(tx_job_set(job, "list_devices", "true"));
    assert_refused(tx_job_run(job), TX_INVALID, "list_devices");
    tx_job_free(job);
}

/* Invalid values of --optim_args. Each run would also be refused for missing data. */
static void optimizer_refusals(void **state)
{
    static const struct {
        const char *optim, *arguments, *says;
    } cases[] = {
        {"sgd", "momentum=0.9, nestero=True", "\"nestero=True\": not a setting of this optimizer"},
        {"sgd", "momentum", "NAME=VALUE"},
        {"sgd", "momentum=fast", "must be in [0, 1)"},
        {"sgd", "momentum=1", "must be in [0, 1)"},
        {"sgd", "momentum=nan", "must be in [0, 1)"},
        {"sgd", "nesterov=True", "needs a momentum above 0"},
        {"adamw_torch", "momentum=0.9", "it has beta1, beta2, eps, weight_decay"},
        {"adafactor", "warmup_init=True", "needs relative_step=True"},
        {"adafactor", "scale_parameter=perhaps", "must be true or false"},
        {"adamw_anyprecision", "momentum_dtype=int8", "must be float32 or bfloat16"},
        {"muon", "adjust_lr_fn=none", "must be original or match_rms_adamw"},
        {"apollo_adamw", "rank=0", "rank=0: must be a whole number in [1, 1e+06)"},
        {"apollo_adamw", "rank=1.5", "must be a whole number"},
        {"apollo_adamw", "scale=0", "scale=0: must be above 0"},
        {"apollo_adamw", "proj=svd", "proj=svd: must be random"},
        {"apollo_adamw", "scale_type=row", "must be channel or tensor"},
        {"muon", "rank=8", "not a setting of this optimizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tx_job *job = NULL;
        assert_ok(tx_job_create(&job));
        assert_ok(tx_job_set(job, "optim", cases[i].optim));
        assert_ok(tx_job_set(job, "optim_args", cases[i].arguments));
        assert_refused(tx_job_run(job), TX_INVALID, cases[i].says);
        tx_job_free(job);
    }
}

/* ---- training_args.json ---------------------------------------------------------------------------------- */

/* A run of each task, "NAME VALUE" by "|"; @ is the scratch folder. */
static const char *const runs[] = {
    "train_file @/text.txt|config_overrides n_layer=1,n_embd=16,n_head=2,n_positions=32|block_size 16",
    "train_file @/talk.jsonl|config_overrides n_layer=1,n_embd=16,n_head=2,n_positions=32|chat_template @/form.jinja",
    "train_file @/talk.jsonl|config_overrides n_layer=1,n_embd=16,n_head=2,n_positions=32|chat_template "
    "@/form.jinja|packing true",
    "train_file @/text.txt|config_name @/bert",
    "train_file @/rows.csv|config_name @/bert|task_name sst2",
    "train_file @/rows.csv|config_name @/bert|task_name stsb|pad_to_max_length "
    "false",
};

static void write_inputs(const char *folder)
{
    static const char *const files[][2] = {
        {"text.txt", "a line of a text\nand another a text, a text that is longer than the first a text text\nand a "
                     "third text\na text\na text\n"},
        {"rows.csv", "sentence,label\na text,1\nanother text,0\na third,1\na fourth one,0\n"},
        {"form.jinja", "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}{% else %}A{{ m.content }}{{ "
                       "eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}"},
        {"talk.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"one\"}], \"completion\": [{\"role\": "
                       "\"assistant\", \"content\": \"a b c\"}]}\n"},
        {"bert/tokenizer.json",
         "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
         "\"BertPreTokenizer\"}, \"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", "
         "\"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
         "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": 0, "
         "\"[MASK]\": 1, \"a\": 2, \"text\": 3}}}"},
        {"bert/config.json",
         "{\"model_type\": \"bert\", \"vocab_size\": 4, \"num_hidden_layers\": 1, \"hidden_size\": 16, "
         "\"intermediate_size\": 16, \"num_attention_heads\": 2, \"max_position_embeddings\": 24}"},
    };
    assert_ok(tx_folder_create(TX_PATH(folder, "bert")));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        assert_ok(tx_file_write(TX_PATH(folder, files[i][0]), files[i][1], strlen(files[i][1])));
}

static tx_job *begin_run(const char *folder, const char *options)
{
    char text[1024] = "", *rest = text;
    for (const char *at = options; *at; at++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%.*s", *at == '@' ? 999 : 1, *at == '@' ? folder : at);
    }
    tx_job *job = NULL;
    assert_ok(tx_job_create(&job));
    for (char *one; (one = strtok_r(rest, "|", &rest));) {
        char *value = strchr(one, ' ');
        *value++ = '\0';
        assert_ok(tx_job_set(job, one, value));
    }
    set(job, folder, "output_dir", "out");
    return job;
}

/* Another value than the job has. */
static void other_value(const tx_job *job, const tx_option *o, char value[64])
{
    const void *at = (const char *)&job->set + o->offset;
    const char *choice = o->choices;
    const double most = o->most < o->least + 1 ? o->most : o->least + 1;
    int64_t whole = 0;
    double real = 0.0;
    int32_t next = 0;
    if (o->kind == TX_OPTION_INTEGER)
        whole = *(const int64_t *)at;
    else if (o->kind == TX_OPTION_REAL)
        real = *(const double *)at;
    else if (o->kind == TX_OPTION_CHOICE)
        next = *(const int32_t *)at + 1;
    switch (o->kind) {
    case TX_OPTION_FLAG:
        snprintf(value, 64, "%s", *(const bool *)at ? "false" : "true");
        break;
    case TX_OPTION_INTEGER:
        snprintf(value, 64, "%.0f", (double)(whole + 1) <= o->most ? (double)(whole + 1) : o->least);
        break;
    case TX_OPTION_REAL:
        snprintf(value, 64, "%.17g", o->least + (most - o->least) * (fabs(real - 0.5) < 1e-9 ? 0.25 : 0.5));
        break;
    case TX_OPTION_CHOICE:
    case TX_OPTION_LIST:
        for (; next > 0 && o->kind == TX_OPTION_CHOICE; next--)
            choice = choice[tx_choice_length(choice)] ? choice + tx_choice_length(choice) + 1 : o->choices;
        snprintf(value, 64, "%.*s", (int)tx_choice_length(choice), choice);
        break;
    default:
        snprintf(value, 64, "%s", o->kind == TX_OPTION_OPTIONAL ? "" : strstr(o->choices, "JSON") ? "{}" : "other");
    }
}

/* Resolves the options and opens the inputs; the message is empty if that succeeds. Returns the options, which the
 * caller frees. */
static char *open_run(tx_job *job, char message[2048])
{
    tx_status status = tx_job_resolve(job);
    TX_THEN(status, tx_job_open(job));
    snprintf(message, 2048, "%s", status ? tx_error() : "");
    tx_json *json = tx_job_arguments(&job->set, 0, 0);
    char *text = tx_json_text(json, TX_JSON_PRETTY);
    assert_non_null(text);
    tx_json_free(json);
    return text;
}

/* The options that a run writes make the same run, which writes the same. A run that is refused writes none. */
static void comes_back(const char *folder, tx_job *job, const char *name, const char *value)
{
    char said[2][2048], *text[2] = {open_run(job, said[0]), NULL};
    tx_job *again = NULL;
    if (*said[0] && *name) {
        free(text[0]);
        tx_job_free(job);
        return;
    }
    FILE *file = fopen(TX_PATH(folder, "args.json"), "w"); /* a thousand times: it need not reach the disk */
    assert_true(file && fputs(text[0], file) >= 0 && fclose(file) == 0);
    assert_ok(tx_job_create(&again));
    if (tx_job_read(again, TX_PATH(folder, "args.json")))
        fail_msg("%s %s: %s", name, value, tx_error());
    text[1] = open_run(again, said[1]);
    if (*said[0] || *said[1] || strcmp(text[0], text[1]) != 0)
        fail_msg("%s %s: \"%s\", then \"%s\"", name, value, said[0], said[1]);
    free(text[0]);
    free(text[1]);
    tx_job_free(again);
    tx_job_free(job);
}

static void options_come_back(void **state)
{
    char *folder = make_scratch(), value[64];
    write_inputs(folder);
    assert_int_equal(chdir(folder), 0); /* in which relative names of folders are made */
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        comes_back(folder, begin_run(folder, runs[r]), "", "");
        for (int32_t i = 0; i < tx_job_table.count; i++) {
            const tx_option *o = &tx_job_table.option[i];
            if (!tx_option_has_value(o))
                continue;
            tx_job *job = begin_run(folder, runs[r]);
            other_value(job, o, value);
            assert_ok(tx_job_set(job, o->name, value));
            comes_back(folder, job, o->name, value);
        }
    }
    assert_int_equal(chdir("/"), 0);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stop_and_go_on), cmocka_unit_test(refusals),
                                       cmocka_unit_test(optimizer_refusals), cmocka_unit_test(options_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
