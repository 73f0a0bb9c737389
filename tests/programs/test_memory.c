/* SPDX-License-Identifier: Apache-2.0
 * txmem's table compared with arithmetic by hand, its limits, and its running time.
 *   test_memory TXMEM */
#include "tests/scratch.h"
#include "tx_json.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const char *txmem;

/* GPT-2 124M: sizes, one row of 1,024 tokens. */
enum { WIDTH = 768, LAYERS = 12, HEADS = 12, VOCAB = 50304, TOKENS = 1024 };
static const int64_t layer =
    4 * WIDTH + WIDTH * 3 * WIDTH + 3 * WIDTH + WIDTH * WIDTH + WIDTH + 2 * 4 * WIDTH * WIDTH + 4 * WIDTH + WIDTH;

/* Runs txmem and parses its output; checks its exit status. The caller frees the result. */
static tx_json *run_txmem(const char *arguments, int wanted)
{
    char command[1024], *text = calloc(1, 1 << 22);
    tx_json *json = NULL;
    snprintf(command, sizeof command, "%s %s 2>/dev/null", txmem, arguments);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    assert_non_null(text);
    const size_t size = fread(text, 1, (1 << 22) - 1, from);
    const int status = pclose(from);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
    if (wanted == 0)
        assert_ok(tx_json_parse(text, size, "txmem", &json));
    free(text);
    return json;
}

/* The plan of a batch. */
static const tx_json *plan_of(const tx_json *all, const char *precision, const char *checkpointing, const char *optim,
                              int64_t batch)
{
    tx_json *plans = NULL;
    assert_ok(tx_json_get(all, "plans", TX_JSON_ARRAY, &plans));
    for (size_t i = 0; i < tx_json_size(plans); i++) {
        const tx_json *p = tx_json_at(plans, i);
        const char *word[3] = {0};
        int64_t rows = 0;
        assert_ok(tx_json_get_string(p, "precision", &word[0]));
        assert_ok(tx_json_get_string(p, "gradient_checkpointing", &word[1]));
        assert_ok(tx_json_get_string(p, "optim", &word[2]));
        assert_ok(tx_json_get_int(p, "batch", 1, 1 << 20, &rows));
        if (rows == batch && !strcmp(word[0], precision) && !strcmp(word[1], checkpointing) && !strcmp(word[2], optim))
            return p;
    }
    fail_msg("no plan %s %s %s %lld", precision, checkpointing, optim, (long long)batch);
    return NULL;
}

static int64_t bytes_of(const tx_json *plan, const char *kind)
{
    int64_t bytes = -1;
    assert_ok(tx_json_get_int(plan, kind, 0, INT64_MAX, &bytes));
    return bytes;
}

static bool fits(const tx_json *plan)
{
    bool answer = false;
    assert_ok(tx_json_get_bool(plan, "fits", &answer));
    return answer;
}

static void expect(const tx_json *plan, const char *kind, int64_t wanted)
{
    const int64_t got = bytes_of(plan, kind);
    if (got != wanted)
        fail_msg("%s: %lld bytes, by hand %lld", kind, (long long)got, (long long)wanted);
}

/* ---- By hand ---------------------------------------------------------------------------------------------- */

/* Every parameter is a whole number of blocks of 256, so nothing is rounded. */
static void weights_and_states(void **state)
{
    tx_json *all = run_txmem("--model gpt2 --memory 8GiB --json", 0);
    const int64_t n = (int64_t)VOCAB * WIDTH + 1024 * WIDTH + LAYERS * layer + 2 * WIDTH;
    const struct {
        const char *optim;
        int64_t states; /* numbers of fp32 for each weight */
    } optimizers[] = {{"adamw_torch_fused", 2}, {"sgd", 0}, {"lion_32bit", 1}};
    const char *const precisions[] = {"fp32", "bf16", "fp16"};
    for (int half = 0; half < 3; half++)
        for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++) {
            const tx_json *p = plan_of(all, precisions[half], "none", optimizers[o].optim, 1);
            expect(p, "weights", 4 * n);
            expect(p, "gradients", 4 * n);
            expect(p, "16-bit copies", half ? 2 * n : 0);
            expect(p, "optimizer states", 4 * optimizers[o].states * n);
            expect(p, "caches", (n / 256 + 511) / 512 * 512); /* a byte for 256 weights */
            expect(p, "exchange", 0);
        }
    const tx_json *pure = plan_of(all, "pure bf16", "none", "adamw_torch_fused", 1);
    expect(pure, "weights", 2 * n);
    expect(pure, "gradients", 2 * n);
    expect(pure, "16-bit copies", 0);
    expect(pure, "optimizer states", 2 * 2 * n);
    const int64_t total = bytes_of(plan_of(all, "bf16", "none", "adamw_torch_fused", 1), "total");
    tx_json_free(all);
    all = run_txmem("--model gpt2 --memory 8GiB --optim adamw_torch_fused --offload_optimizer cpu --json", 0);
    const tx_json *away = plan_of(all, "bf16", "none", "adamw_torch_fused", 1);
    expect(away, "optimizer states", 0);
    expect(away, "offloaded", (2 + 1) * 4 * n);
    /* Tables and vectors are read in fp32; two pieces of 4 Mi weights are on their way to their copies. */
    const int64_t kept = 4 * ((VOCAB + 1024 + LAYERS * 13 + 2) * (int64_t)WIDTH + (INT64_C(8) << 20));
    expect(away, "weights", kept);
    expect(away, "total", total - (2 + 1) * 4 * n + kept);
    tx_json_free(all);
}

/* A decoder of Llama's shape with 7 billion weights, of which 24 GiB hold no way to train, and gpt2-xl's 1.56 billion,
 * for which they hold those of at most 16 bytes a weight. */
static void in_24_gib(void **state)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"vocab_size\": 32000, \"max_position_embeddings\": 2048, "
        "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}";
    const int64_t seven = 2 * INT64_C(32000) * 4096 +
                          32 * (4 * INT64_C(4096) * 4096 + 3 * INT64_C(4096) * 11008 + 2 * INT64_C(4096)) + 4096;
    /* Each vector begins a block of 256: one of 1,600 takes 1,792, that of 4,800 takes 4,864. */
    const int64_t xl =
        INT64_C(50304) * 1600 + 1024 * 1600 + 48 * (12 * INT64_C(1600) * 1600 + 6 * 1792 + 4864 + 6400) + 2 * 1792;
    const int64_t memory = INT64_C(24) << 30;
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), arguments[512];
    assert_ok(tx_file_write(path, text, strlen(text)));
    const struct {
        const char *precision, *optim;
        int64_t bytes; /* of weights, gradients, copies and states for a weight */
    } rows[] = {{"fp32", "adamw_torch_fused", 16}, {"fp32", "sgd", 8},        {"fp32", "lion_32bit", 12},
                {"bf16", "adamw_torch_fused", 18}, {"fp16", "sgd", 10},       {"pure bf16", "adamw_torch_fused", 8},
                {"bf16", "lion_32bit", 14},        {"fp16", "lion_32bit", 14}};
    for (int m = 0; m < 2; m++) {
        const int64_t n = m ? xl : seven;
        snprintf(arguments, sizeof arguments, "--model %s --memory 24GiB --json", m ? "gpt2-xl" : path);
        tx_json *all = run_txmem(arguments, 0);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            const tx_json *p = plan_of(all, rows[r].precision, "blocks", rows[r].optim, 1);
            const int64_t all_bytes = bytes_of(p, "weights") + bytes_of(p, "gradients") + bytes_of(p, "16-bit copies") +
                                      bytes_of(p, "optimizer states");
            if (all_bytes != rows[r].bytes * n)
                fail_msg("%s %s: %lld bytes, by hand %lld", rows[r].precision, rows[r].optim, (long long)all_bytes,
                         (long long)(rows[r].bytes * n));
            assert_true(fits(p) == (bytes_of(p, "total") <= memory));
            assert_true(fits(p) == (m && rows[r].bytes <= 16));
        }
        tx_json_free(all);
    }
    remove_scratch(folder);
    free(path);
}

/* Saved activations of a token, in fp32. A block saves the norms' results, q k v, attention's output, the stream twice,
 * the inner layer before and after its activation, and the statistics of heads and norms. The rest saves the embedding
 * and the last norm; logits become their gradient at once. Dropouts save nothing. */
static void activations(void **state)
{
    tx_json *all = run_txmem("--model gpt2 --memory 8GiB --optim sgd --json", 0);
    const int64_t rest = 2 * WIDTH + 2, block = (1 + 3 + 1 + 1 + 1 + 4 + 4 + 1) * WIDTH + HEADS + 2 * 2;
    const int64_t cheap = (1 + 1 + 4) * WIDTH + 2 * 2;
    expect(plan_of(all, "fp32", "none", "sgd", 1), "activations", 4 * TOKENS * (LAYERS * block + rest));
    expect(plan_of(all, "fp32", "auto", "sgd", 1), "activations", 4 * TOKENS * (LAYERS * (block - cheap) + rest));
    expect(plan_of(all, "fp32", "blocks", "sgd", 1), "activations", 4 * TOKENS * (LAYERS * WIDTH + rest));
    tx_json_free(all);
}

/* The part of each of four ranks in stage 3, whole blocks of each bucket; for frozen bases too. */
static void of_ranks(void **state)
{
    const char *const adapters[] = {"", "--lora_r 8", "--lora_r 8 --load_in_4bit",
                                    "--lora_r 8 --load_in_4bit --bnb_4bit_use_double_quant"};
    const char *const divided[] = {"weights", "gradients", "16-bit copies", "optimizer states"};
    char arguments[512];
    for (size_t a = 0; a < sizeof adapters / sizeof adapters[0]; a++) {
        tx_json *all[2];
        const tx_json *plan[2];
        for (int many = 0; many < 2; many++) {
            snprintf(arguments, sizeof arguments, "--model gpt2 --memory 8GiB --optim adamw_torch_fused %s %s --json",
                     adapters[a], many ? "--ranks 4 --zero_stage 3" : "");
            all[many] = run_txmem(arguments, 0);
            plan[many] = plan_of(all[many], "bf16", "blocks", "adamw_torch_fused", 1);
        }
        for (size_t d = 0; d < sizeof divided / sizeof divided[0]; d++) {
            const double whole = (double)bytes_of(plan[0], divided[d]), own = (double)bytes_of(plan[1], divided[d]);
            if (!(fabs(4.0 * own / whole - 1.0) < 0.01))
                fail_msg("gpt2 %s: %s: %.0f bytes of %.0f", adapters[a], divided[d], own, whole);
        }
        tx_json_free(all[0]);
        tx_json_free(all[1]);
    }
}

/* ---- Questions ------------------------------------------------------------------------------------------------ */

#define LLAMA                                                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, " \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256, "                            \
    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "                      \
    "\"tie_word_embeddings\": false}"
#define QWEN(width, inner, layers, heads, tied)                                               \
    "{\"model_type\": \"qwen3\", \"hidden_size\": " #width ", \"intermediate_size\": " #inner \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads                  \
    ", \"num_key_value_heads\": 8, \"head_dim\": 128, \"vocab_size\": 151936, "               \
    "\"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000, "   \
    "\"tie_word_embeddings\": " #tied "}"

/* What fits on a card, in the words of txtrain, from a config.json alone. Whatever the activations take, weights,
 * gradients, copies and states take these bytes, which are counted by hand. `weights` are those of the published
 * models. */
static void questions(void **state)
{
    static const struct {
        const char *config, *words;
        int64_t weights;
        double bytes; /* a weight, without activations; 0 for adapters of 4-bit weights */
        bool fits;
    } rows[] = {
        {LLAMA, "--card 3090 --bf16", 8030261248, 18, false},
        {LLAMA, "--card 4090 --bf16 --dtype bfloat16 --gradient_checkpointing", 8030261248, 8, false},
        {LLAMA, "--card A100-80GB --bf16 --dtype bfloat16 --gradient_checkpointing", 8030261248, 8, true},
        {LLAMA,
         "--card \"NVIDIA GeForce RTX 3090\" --bf16 --lora_r 16 --load_in_4bit --gradient_checkpointing "
         "--max_seq_length 2048",
         8030261248, 0, true},
        {LLAMA, "--memory 4 --bf16 --lora_r 16 --load_in_4bit --gradient_checkpointing", 8030261248, 0, false},
        {QWEN(1024, 3072, 28, 16, true), "--memory 12 --bf16 --gradient_checkpointing", 596049920, 18, true},
        {QWEN(2560, 9728, 36, 32, true), "--card 4090 --bf16 --gradient_checkpointing", 4022468096, 18, false},
        {QWEN(4096, 12288, 36, 32, false),
         "--card H100 --bf16 --dtype bfloat16 --gradient_checkpointing "
         "--per_device_train_batch_size 4",
         8190735360, 8, true},
    };
    const char *const kinds[] = {"weights", "gradients", "16-bit copies", "optimizer states"};
    char *folder = make_scratch(), *path = tx_path_join(folder, "config.json"), arguments[512];
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        assert_ok(tx_file_write(path, rows[r].config, strlen(rows[r].config)));
        snprintf(arguments, sizeof arguments,
                 "--model_name_or_path %s %s --learning_rate 1e-4 --optim adamw_torch --json", folder, rows[r].words);
        tx_json *all = run_txmem(arguments, 0), *plans = NULL;
        int64_t params = 0, bytes = 0;
        const char *advice = NULL;
        assert_ok(tx_json_get_int(all, "parameters", 0, INT64_MAX, &params));
        assert_ok(tx_json_get(all, "plans", TX_JSON_ARRAY, &plans));
        const tx_json *plan = tx_json_at(plans, 0);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            bytes += bytes_of(plan, kinds[k]);
        if (rows[r].bytes > 0) {
            assert_int_equal(params, rows[r].weights);
            if (!(fabs((double)bytes / (double)rows[r].weights - rows[r].bytes) < 0.01))
                fail_msg("question %zu: %lld bytes", r, (long long)bytes);
        }
        assert_true(tx_json_has(all, "advice") == rows[r].fits);
        if (rows[r].fits) {
            assert_ok(tx_json_get_string(all, "advice", &advice));
            assert_non_null(strstr(advice, "--bf16"));
        }
        tx_json_free(all);
    }
    remove_scratch(folder);
    free(path);
}

/* Files of txtrain's options choose rows, and options that txmem does not count are named. */
static void files_of_txtrain(void **state)
{
    static const char text[] = "base_model: gpt2\nadapter: lora\nlora_r: 8\nsequence_len: 256\nbf16: true\n"
                               "micro_batch_size: 16\ngradient_checkpointing: true\ntensor_parallel: 2\n";
    char *folder = make_scratch(), *path = tx_path_join(folder, "run.yaml"), command[512], line[4096];
    bool uncounted = false;
    int rows = 0;
    assert_ok(tx_file_write(path, text, strlen(text)));
    snprintf(command, sizeof command, "%s %s --memory 8 2>&1", txmem, path);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    while (fgets(line, sizeof line, from)) {
        rows += strncmp(line, "bf16 ", 5) == 0 || strncmp(line, "fp", 2) == 0;
        uncounted = uncounted || strstr(line, "not counted: --tensor_parallel");
        if (strncmp(line, "fits with:", 10) == 0)
            assert_string_equal(line, "fits with: --bf16 --gradient_checkpointing --per_device_train_batch_size 16 "
                                      "--block_size 256 --lora_r 8\n");
    }
    assert_int_equal(pclose(from), 0);
    assert_int_equal(rows, 1);
    assert_true(uncounted);
    remove_scratch(folder);
    free(path);
}

/* ---- Limits ------------------------------------------------------------------------------------------------- */

/* To the byte. */
static void what_fits(void **state)
{
    char arguments[256];
    tx_json *all = run_txmem("--model gpt2 --memory 1TiB --optim sgd --json", 0);
    const int64_t total = bytes_of(plan_of(all, "fp32", "none", "sgd", 4), "total");
    assert_true(fits(plan_of(all, "fp32", "none", "sgd", 128)));
    tx_json_free(all);
    for (int64_t less = 0; less < 2; less++) {
        snprintf(arguments, sizeof arguments, "--model gpt2 --memory %" PRId64 " --optim sgd --json", total - less);
        all = run_txmem(arguments, 0);
        assert_true(fits(plan_of(all, "fp32", "none", "sgd", 2)));
        assert_true(fits(plan_of(all, "fp32", "none", "sgd", 4)) == (less == 0));
        tx_json_free(all);
    }
}

static void refused(void **state)
{
    run_txmem("", 2);
    run_txmem("--model no-such-model", 1);
    run_txmem("--model gpt2 --memory lots", 1);
    run_txmem("--model gpt2 --memory 8GiB --zero_stage 3", 2);
    run_txmem("--model gpt2 --memory 0", 1);
    run_txmem("--model gpt2 --card 9999", 1);
    run_txmem("--model gpt2 --card 3090 --memory 8", 2);
    run_txmem("--model meta-llama/Llama-3.1-8B --card 3090", 1);
    run_txmem("--model gpt2 --memory 8GiB --block_size 2000", 1);
}

/* The whole table of the largest model takes half a second of processor time on an idle machine, and several times that
 * on a busy one. */
static void in_a_second(void **state)
{
    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    tx_json_free(run_txmem("--model gpt2-xl --memory 80GiB --json", 0));
    getrusage(RUSAGE_CHILDREN, &after);
    const double seconds = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                           1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    print_message("gpt2-xl: %.2f s of processor time\n", seconds);
    assert_true(seconds < 5.0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_and_states), cmocka_unit_test(in_24_gib), cmocka_unit_test(of_ranks),
        cmocka_unit_test(activations),        cmocka_unit_test(questions), cmocka_unit_test(files_of_txtrain),
        cmocka_unit_test(what_fits),          cmocka_unit_test(refused),   cmocka_unit_test(in_a_second)};
    txmem = argc > 1 ? argv[1] : "txmem";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
