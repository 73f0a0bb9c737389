/* SPDX-License-Identifier: Apache-2.0
 * Generation by the public header, with a small random GPT-2 over bytes. Compares one opened model, through calls that
 * need more and more memory, with models opened for one call each. Also the listeners' calls, and refusals.
 *
 *     test_lm DEVICE */
#include "models/arch/gpt2.h"
#include "models/generate/generate.h"
#include "models/tx_generate.h"
#include "models/tx_text.h"
#include "tests/random_model.h"
#include "tests/skip.h"

#include <sys/stat.h>

enum { POSITIONS = 60, NEW = 9 };

static const char *device = "cpu";

/* Weights and configuration; only "text" has a tokenizer. */
static int set_up(void **state)
{
    char *folder = make_scratch(), *text = TX_PATH(folder, "text"), *ids = TX_PATH(folder, "ids");
    tx_config *config;
    tx_tokenizer *tokenizer;
    assert_ok(tx_config_preset("gpt2", &config));
    assert_ok(tx_config_override(config, "vocab_size=257,n_positions=60,n_embd=24,n_layer=2,n_head=2,"
                                         "bos_token_id=256,eos_token_id=256,initializer_range=0.25"));
    assert_return_code(mkdir(text, 0777), 0);
    assert_return_code(mkdir(ids, 0777), 0);
    save_random_model(config, text);
    save_random_model(config, ids);
    assert_ok(tx_tokenizer_bytes(&tokenizer));
    assert_ok(tx_tokenizer_save(tokenizer, text, POSITIONS));
    tx_tokenizer_free(tokenizer);
    tx_config_free(config);
    *state = folder;
    return 0;
}

static tx_lm *open_lm(void **state, const char *name, int64_t batch_size)
{
    const tx_lm_options options = {
        .size = sizeof options, .model = TX_PATH(*state, name), .device = device, .batch_size = batch_size};
    tx_lm *lm = NULL;
    assert_ok(tx_lm_open(&options, &lm));
    return lm;
}

/* Texts that a listener received, as "0:bytes;" */
typedef struct heard {
    char text[4096];
    size_t size;
    int64_t next, tokens, told, done, most;
} heard;

static void begin(void *context, int64_t index)
{
    heard *h = context;
    assert_int_equal(index, h->next);
    h->size += (size_t)sprintf(h->text + h->size, "%d:", (int)index);
}

static void token(void *context, int64_t index, int32_t id)
{
    heard *h = context;
    assert_int_equal(index, h->next);
    assert_in_range(id, 0, 256);
    h->tokens++;
}

static void text(void *context, int64_t index, const char *bytes, size_t size)
{
    heard *h = context;
    assert_int_equal(index, h->next);
    memcpy(h->text + h->size, bytes, size);
    h->size += size;
}

static void end(void *context, int64_t index)
{
    heard *h = context;
    assert_int_equal(index, h->next++);
    h->text[h->size++] = ';';
}

static bool stop(void *context)
{
    heard *h = context;
    return ++h->told == h->most;
}

static void done(void *context, int64_t tokens, double seconds)
{
    heard *h = context;
    assert_true(seconds >= 0.0);
    h->done = tokens;
}

static tx_status listen(tx_lm *lm, const tx_lm_prompt *prompts, int64_t count, const tx_generation *how, heard *h)
{
    const tx_lm_listener listener = {sizeof listener, h, begin, token, text, end, stop, done};
    h->size = 0;
    h->next = h->tokens = h->told = h->done = 0;
    tx_status status = tx_lm_generate(lm, prompts, count, how, &listener);
    h->text[h->size] = '\0';
    return status;
}

static tx_generation drawn(const tx_lm *lm, int64_t tokens)
{
    tx_generation how = *tx_lm_generation(lm);
    how.do_sample = true;
    how.max_new_tokens = tokens;
    how.min_new_tokens = tokens;
    return how;
}

static const tx_lm_prompt prompts[] = {
    {.text = "the cat"}, {.text = ""}, {.text = "a\0b", .size = 3}, {.ids = (const int32_t[]){104, 105}, .count = 2}};

/* ---- Texts ------------------------------------------------------------------------------------------------ */

/* Compares each call with a model that was opened only for it. */
static void calls_in_a_row(void **state)
{
    static const struct {
        int64_t first, count, tokens, beams;
    } calls[] = {{0, 1, 3, 1}, {0, 4, NEW, 1}, {1, 1, NEW, 1}, {0, 2, NEW, 3}, {2, 1, 40, 1}, {0, 4, NEW, 1}};
    tx_lm *lm = open_lm(state, "text", 3);
    float logits[2 * 257];
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        static heard one, other;
        tx_lm *alone = open_lm(state, "text", i % 2 ? 2 : 8);
        tx_generation how = drawn(lm, calls[i].tokens);
        how.num_beams = calls[i].beams;
        how.do_sample = calls[i].beams == 1;
        assert_ok(listen(lm, prompts + calls[i].first, calls[i].count, &how, &one));
        assert_ok(listen(alone, prompts + calls[i].first, calls[i].count, &how, &other));
        assert_int_equal(one.size, other.size);
        assert_memory_equal(one.text, other.text, one.size);
        assert_int_equal(one.next, calls[i].count);
        assert_int_equal(one.tokens, calls[i].count * calls[i].tokens);
        assert_int_equal(one.done, one.tokens);
        if (i % 2) /* in between, with the compiled plans */
            assert_ok(tx_lm_logits(lm, prompts[3].ids, 2, logits));
        tx_lm_free(alone);
    }
    tx_lm_free(lm);
}

/* The model as its own assistant, once without a tokenizer. */
static void an_assistant_guesses(void **state)
{
    tx_lm *alone = open_lm(state, "text", 1);
    static heard one, other;
    tx_lm_usage before, usage;
    for (int i = 0; i < 2; i++) {
        tx_lm_options options = {.size = sizeof options, .model = TX_PATH(*state, "text"), .device = device};
        options.assistant_model = TX_PATH(*state, i ? "text" : "ids");
        tx_lm *lm = NULL;
        assert_ok(tx_lm_open(&options, &lm));
        tx_generation how = drawn(lm, NEW);
        assert_ok(tx_lm_measure(lm, &before));
        assert_true(before.memory == 0 && before.assistant_memory == 0 && before.drafted == 0);
        assert_ok(listen(alone, prompts, 1, &how, &one));
        assert_ok(listen(lm, prompts, 1, &how, &other));
        assert_string_equal(one.text, other.text);
        assert_ok(tx_lm_measure(lm, &usage));
        assert_true(usage.memory > usage.weights + usage.caches && usage.weights > 0 && usage.caches > 0);
        assert_true(usage.assistant_memory > usage.weights && usage.seconds >= 0.0);
        assert_true(usage.drafted > 0 && usage.accepted == usage.drafted);
        how.prompt_lookup_num_tokens = 1;
        assert_refused(listen(lm, prompts, 1, &how, &one), TX_INVALID, "use only one");
        how.prompt_lookup_num_tokens = how.num_assistant_tokens = 0;
        assert_ok(listen(lm, prompts, 1, &how, &other));
        how.num_assistant_tokens = TX_GENERATION_DRAFT_TOKENS + 1;
        assert_refused(listen(lm, prompts, 1, &how, &one), TX_INVALID, "num_assistant_tokens");
        tx_lm_free(lm);
    }
    tx_lm_free(alone);
}

/* The same text as ids, and reserved room: it has no tokenizer, and needs none. */
static void ids_need_no_tokenizer(void **state)
{
    static heard with;
    const int32_t ids[] = {'t', 'h', 'e', ' ', 'c', 'a', 't'};
    const tx_lm_prompt prompt = {.ids = ids, .count = 7};
    tx_lm *lm = open_lm(state, "text", 0), *bare = open_lm(state, "ids", 0);
    tx_generation how = drawn(lm, NEW);
    heard without = {.text = ""};
    const tx_lm_listener listener = {.size = sizeof listener, .context = &without, .token = token};
    assert_ok(listen(lm, prompts, 1, &how, &with));
    assert_ok(tx_lm_reserve(bare, 1, &how));
    assert_ok(tx_lm_generate(bare, &prompt, 1, &how, &listener));
    assert_int_equal(without.tokens, with.tokens);
    assert_refused(tx_lm_generate(bare, prompts, 1, &how, &listener), TX_NOT_FOUND, "tokenizer");
    assert_refused(listen(bare, &prompt, 1, &how, &with), TX_NOT_FOUND, "tokenizer");
    tx_lm_free(bare);
    tx_lm_free(lm);
}

static void a_listener_stops(void **state)
{
    static heard h, all;
    tx_lm *lm = open_lm(state, "text", 2);
    tx_generation how = drawn(lm, NEW);
    assert_ok(listen(lm, prompts, 1, &how, &all));
    h.most = 4;
    assert_ok(listen(lm, prompts, 1, &how, &h));
    assert_int_equal(h.tokens, 4);
    assert_memory_equal(h.text, all.text, h.size - 2);
    assert_ok(listen(lm, prompts, 4, &how, &h)); /* two of the first batch, and none of the second */
    assert_int_equal(h.next, 2);
    assert_int_equal(h.tokens, 4);
    how.stop_strings = (const char *const[]){"never there", (const char[]){all.text[6], '\0'}};
    how.stop_count = 2;
    h.most = 0;
    assert_ok(listen(lm, prompts, 1, &how, &h));
    assert_true(h.tokens < all.tokens && h.text[h.size - 2] == all.text[6]);
    tx_lm_free(lm);
}

/* ---- Limits and refusals ------------------------------------------------------------------------------------ */

static void limits(void **state)
{
    static heard h;
    tx_lm *lm = open_lm(state, "text", 0);
    tx_generation how = drawn(lm, -1);
    how.eos_count = 0;
    how.min_new_tokens = 0;
    assert_ok(listen(lm, prompts, 1, &how, &h));
    assert_int_equal(h.tokens, POSITIONS - 7);
    how.max_length = 20;
    assert_ok(listen(lm, prompts, 4, &how, &h)); /* of 7, 1, 3 and 2 tokens */
    assert_int_equal(h.tokens, 4 * 20 - 13);
    how.max_length = 1000;
    assert_ok(listen(lm, prompts + 1, 1, &how, &h));
    assert_int_equal(h.tokens, POSITIONS - 1);
    how.max_length = 7;
    assert_refused(listen(lm, prompts, 2, &how, &h), TX_INVALID, "a prompt has 7 tokens");
    how.max_new_tokens = POSITIONS;
    assert_refused(listen(lm, prompts, 1, &how, &h), TX_INVALID, "60 positions");
    how.max_new_tokens = INT64_MAX;
    assert_refused(listen(lm, prompts, 1, &how, &h), TX_INVALID, "max_new_tokens");
    how.max_new_tokens = 2;
    assert_ok(listen(lm, prompts, 1, &how, &h)); /* it works on */
    assert_int_equal(h.tokens, 2);
    tx_lm_free(lm);
}

static void refusals(void **state)
{
    static heard h;
    tx_lm *lm = open_lm(state, "text", 0), *none = NULL;
    tx_lm_options options = {.size = sizeof options};
    assert_refused(tx_lm_open(&options, &none), TX_INVALID, "model is missing");
    options.model = "/nowhere";
    assert_refused(tx_lm_open(&options, &none), TX_NOT_FOUND, "/nowhere");
    tx_lm_options blocks = {.size = sizeof blocks, .model = TX_PATH(*state, "text"), .cache_type = "q8_0"};
    blocks.device = device;
    assert_ok(tx_lm_open(&blocks, &none));
    assert_refused(listen(none, prompts, 1, NULL, &h), TX_INVALID, "heads of a multiple of 32 elements, not 12");
    tx_lm_free(none);
    none = NULL;
    options.size--;
    assert_refused(tx_lm_open(&options, &none), TX_INVALID, "size field");
    assert_null(none);
    assert_refused(tx_lm_generate(lm, prompts, 1, NULL, &(tx_lm_listener){0}), TX_INVALID, "size field");
    assert_refused(listen(lm, prompts, 0, NULL, &h), TX_INVALID, "0 prompts");
    assert_refused(listen(lm, &(tx_lm_prompt){0}, 1, NULL, &h), TX_INVALID, "neither text nor ids");
    const tx_lm_prompt outside = {.ids = (const int32_t[]){1, 257}, .count = 2}, empty = {.ids = outside.ids};
    assert_refused(listen(lm, &outside, 1, NULL, &h), TX_INVALID, "outside the vocabulary");
    assert_refused(listen(lm, &empty, 1, NULL, &h), TX_INVALID, "a prompt of 0");
    tx_generation how = drawn(lm, 2);
    how.stop_strings = (const char *const[]){""};
    how.stop_count = 1;
    assert_refused(listen(lm, prompts, 1, &how, &h), TX_INVALID, "stop_strings");
    how.size = 0;
    assert_refused(listen(lm, prompts, 1, &how, &h), TX_INVALID, "size field");
    how = drawn(lm, 2);
    how.eos_count = TX_GENERATION_EOS + 1;
    assert_refused(listen(lm, prompts, 1, &how, &h), TX_INVALID, "eos_count");
    float logits[1];
    assert_refused(tx_lm_logits(lm, outside.ids, POSITIONS + 1, logits), TX_INVALID, "the model supports 1 to 60");
    how.size = 0;
    assert_refused(tx_lm_reserve(lm, 1, &how), TX_INVALID, "size field");
    tx_lm_free(lm);
    tx_lm_free(NULL);
}

/* ---- Measures --------------------------------------------------------------------------------------------- */

/* Perplexity of a text that is one window: from its logits. */
static void perplexity_of_logits(void **state)
{
    static float logits[POSITIONS][257];
    static const char words[] = "the cat sat on the mat";
    tx_lm *lm = open_lm(state, "text", 0);
    tx_perplexity_result r;
    int32_t *ids;
    int64_t count;
    assert_ok(tx_lm_encode(lm, words, sizeof words - 1, &ids, &count));
    assert_int_equal(count, sizeof words - 1);
    assert_int_equal(tx_lm_vocab_size(lm), 257);
    assert_int_equal(tx_lm_positions(lm), POSITIONS);
    assert_ok(tx_lm_logits(lm, ids, count, logits[0]));
    double loss = 0.0;
    for (int64_t t = 0; t + 1 < count; t++) {
        double sum = 0.0;
        for (int v = 0; v < 257; v++)
            sum += exp((double)logits[t][v]);
        loss += (log(sum) - (double)logits[t][ids[t + 1]]) / (double)(count - 1);
    }
    assert_ok(tx_lm_perplexity(lm, ids, count, NULL, &r));
    assert_true(fabs(r.loss - loss) <= 1e-4 * loss);
    assert_true(r.windows == 1 && r.tokens == count - 1 && r.max_length == POSITIONS && r.stride == POSITIONS);
    const tx_perplexity_options windows = {.size = sizeof windows, .max_length = 8, .stride = 4, .batch = 3};
    assert_ok(tx_lm_perplexity(lm, ids, count, &windows, &r));
    assert_true(r.windows == 5 && r.max_length == 8 && r.stride == 4 && r.loss > 0.0);
    assert_refused(tx_lm_perplexity(lm, ids, 1, NULL, &r), TX_INVALID, "at least 2");
    const tx_perplexity_options wrong = {.size = sizeof wrong, .max_length = -INT64_MAX, .stride = 1};
    assert_refused(tx_lm_perplexity(lm, ids, count, &wrong, &r), TX_INVALID, "the model supports 2 to 60");
    free(ids);
    tx_lm_free(lm);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_in_a_row),
                                       cmocka_unit_test(ids_need_no_tokenizer),
                                       cmocka_unit_test(a_listener_stops),
                                       cmocka_unit_test(limits),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(perplexity_of_logits),
                                       cmocka_unit_test(an_assistant_guesses)};
    return cmocka_run_group_tests(tests, set_up, close_scratch);
}
