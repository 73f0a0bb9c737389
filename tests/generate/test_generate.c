/* SPDX-License-Identifier: Apache-2.0
 * Generation with a small random GPT-2: caches against whole sequences, batches against single texts, beams against an
 * exhaustive search, perplexity against its definition.
 *
 *     test_generate DEVICE */
#include "models/arch/gpt2.h"
#include "models/generate/generate.h"
#include "models/generate/slots_plans.h"
#include "tests/scratch.h"
#include "tests/skip.h"

enum { ROWS = 5, POSITIONS = 90, LONGEST = 75, VOCAB = 131, STEPS = 15 };

static const char *device = "cpu";

typedef struct fixture {
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
    int32_t ids[ROWS][POSITIONS];
    tx_prompt prompts[ROWS];
} fixture;

static int set_up(void **state)
{
    static const int64_t lengths[ROWS] = {7, 1, LONGEST, 33, 40};
    fixture *f = calloc(1, sizeof *f);
    uint64_t random = 9;
    assert_non_null(f);
    assert_ok(tx_config_preset("gpt2", &f->config));
    f->config->vocab_size = VOCAB;
    f->config->positions = POSITIONS;
    f->config->width = 36;
    f->config->layers = 2;
    f->config->heads = 3;
    ((tx_gpt2_config *)f->config)->initializer_range = 0.25; /* lively texts */
    tx_engine_options options = {.size = sizeof options, .device = device, .threads = 0};
    assert_ok(tx_engine_create(&options, &f->engine));
    assert_ok(tx_model_create(f->engine, &f->model));
    for (int r = 0; r < ROWS; r++) {
        for (int t = 0; t < POSITIONS; t++)
            f->ids[r][t] = (int32_t)(next_random(&random) % VOCAB);
        f->prompts[r] = (tx_prompt){f->ids[r], lengths[r]};
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    tx_model_free(f->model);
    tx_engine_free(f->engine);
    tx_config_free(f->config);
    free(f);
    return 0;
}

/* ---- Caches ---------------------------------------------------------------------------------------------- */

static tx_slots *make_slots(const fixture *f, int64_t count, int64_t prompt, bool beams)
{
    tx_slots *made = NULL;
    assert_ok(tx_slots_create(
        f->model, f->config,
        &(tx_slots_options){count, POSITIONS, prompt, beams ? 2 : 1, 0, false, TX_F32, NULL, false, false}, &made));
    return made;
}

/* Appends tokens[r] to slot r, unless it is -1. */
static tx_status step_rows(tx_slots *slots, const int32_t tokens[ROWS], const int32_t *sources)
{
    int32_t slot[ROWS], token[ROWS];
    int64_t count = 0;
    for (int32_t r = 0; r < ROWS; r++)
        if (tokens[r] >= 0) {
            slot[count] = r;
            token[count++] = tokens[r];
        }
    return tx_slots_step(slots, slot, token, count, sources);
}

/* Computes a prompt, except a prefix that the cache has if `keep`. */
static void prefill(tx_slots *slots, int64_t slot, const int32_t *ids, int64_t count, bool keep)
{
    for (int64_t done = keep ? tx_slots_shared(slots, slot, 0, ids, count) : 0; done < count;)
        assert_ok(tx_slots_prefill(slots, slot, ids, count, &done, NULL, NULL));
}

static void check_logits(const tx_slots *slots, int row, const float *want)
{
    const float *got = tx_slots_logits(slots, row);
    for (int v = 0; v < VOCAB; v++)
        if (!(fabsf(got[v] - want[v]) <= 1e-5f * (1.0f + fabsf(want[v]))))
            fail_msg("row %d, token %d: %g instead of %g", row, v, (double)got[v], (double)want[v]);
}

/* Prompts of unequal length in several chunks, then token by token, one row resting now and then: logits as the whole
 * sequence gives them. */
static void cached_equals_whole(void **state)
{
    fixture *f = *state;
    static float whole[ROWS][POSITIONS][VOCAB];
    tx_forward *forward;
    tx_slots *slots;
    assert_ok(tx_forward_create(f->model, f->config, POSITIONS, &forward));
    slots = make_slots(f, ROWS, 20, false);
    assert_ok(tx_model_init(f->model, 4));
    for (int r = 0; r < ROWS; r++)
        assert_ok(tx_forward_run(forward, f->ids[r], whole[r][0]));
    for (int round = 0; round < 2; round++) { /* the caches begin anew */
        int64_t at[ROWS];
        assert_ok(tx_slots_start(slots, f->prompts, ROWS));
        for (int r = 0; r < ROWS; r++) {
            at[r] = f->prompts[r].count;
            check_logits(slots, r, whole[r][at[r] - 1]);
        }
        for (int step = 0; step < STEPS; step++) {
            int32_t tokens[ROWS];
            for (int r = 0; r < ROWS; r++)
                tokens[r] = r != 2 && (step + r) % 4 == 0 ? -1 : f->ids[r][at[r]];
            assert_ok(step_rows(slots, tokens, NULL));
            for (int r = 0; r < ROWS; r++)
                if (tokens[r] >= 0)
                    check_logits(slots, r, whole[r][at[r]++]);
        }
        assert_int_equal(at[2], POSITIONS); /* that row is full: it rests, or is refused */
        int32_t tokens[ROWS] = {1, -1, -1, -1, 1};
        assert_ok(step_rows(slots, tokens, NULL));
        tokens[2] = 1;
        assert_refused(step_rows(slots, tokens, NULL), TX_INVALID, "slot 2 is full");
    }
    tx_slots_free(slots);
    tx_forward_free(forward);
}

/* A conversation: each prompt begins with the one before and its text. The kept part is not recomputed, so that a
 * change of the first position's embedding has no effect. After the first difference of prompts everything is
 * recomputed. */
static void kept_caches(void **state)
{
    fixture *f = *state;
    static float whole[POSITIONS][VOCAB], parted[POSITIONS][VOCAB], noise[36];
    int32_t other[POSITIONS], index;
    tx_forward *forward;
    tx_slots *slots;
    assert_ok(tx_forward_create(f->model, f->config, POSITIONS, &forward));
    slots = make_slots(f, 1, 20, false);
    assert_ok(tx_model_init(f->model, 4));
    assert_ok(tx_model_find(f->model, "transformer.wpe.weight", &index));
    memcpy(other, f->ids[0], sizeof other);
    for (int t = 30; t < POSITIONS; t++)
        other[t] = (other[t] + 1) % VOCAB;
    assert_ok(tx_forward_run(forward, f->ids[0], whole[0]));
    assert_ok(tx_forward_run(forward, other, parted[0]));
    prefill(slots, 0, f->ids[0], 21, true);
    check_logits(slots, 0, whole[20]);
    for (int t = 21; t < 25; t++)
        assert_ok(tx_slots_step(slots, &(int32_t){0}, &f->ids[0][t], 1, NULL));
    check_logits(slots, 0, whole[24]);

    for (int i = 0; i < 36; i++)
        noise[i] = (float)i - 18.0f;
    assert_ok(tx_model_write_range(f->model, TX_PARAM_WEIGHT, index, 0, 36, noise));
    static const int64_t counts[] = {40, 40, 88, POSITIONS};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        prefill(slots, 0, f->ids[0], counts[i], true);
        check_logits(slots, 0, whole[counts[i] - 1]);
    }
    prefill(slots, 0, other, 60, true);
    check_logits(slots, 0, parted[59]);
    prefill(slots, 0, other, 7, true);
    check_logits(slots, 0, parted[6]);
    prefill(slots, 0, f->ids[0], 40, false);
    if (fabsf(tx_slots_logits(slots, 0)[3] - whole[39][3]) < 1e-3f)
        fail_msg("a start that keeps nothing has kept something");
    tx_slots_free(slots);
    tx_forward_free(forward);
}

/* Rows that go on with the cache of another. */
static void sources_move_caches(void **state)
{
    fixture *f = *state;
    static float whole[ROWS][POSITIONS][VOCAB];
    static const int32_t sources[ROWS] = {3, 1, 0, 0, 4};
    int32_t tokens[ROWS], text[ROWS][POSITIONS];
    tx_forward *forward;
    tx_slots *slots;
    enum { LENGTH = 40 };
    assert_ok(tx_forward_create(f->model, f->config, POSITIONS, &forward));
    slots = make_slots(f, ROWS, LENGTH, true);
    assert_ok(tx_model_init(f->model, 4));
    for (int r = 0; r < ROWS; r++)
        prefill(slots, r, f->ids[r], LENGTH, false);
    for (int r = 0; r < ROWS; r++) {
        memcpy(text[r], f->ids[sources[r]], sizeof text[r]);
        text[r][LENGTH] = tokens[r] = 10 + r;
        text[r][LENGTH + 1] = 20 + r;
        assert_ok(tx_forward_run(forward, text[r], whole[r][0]));
    }
    assert_ok(step_rows(slots, tokens, sources));
    for (int r = 0; r < ROWS; r++) {
        check_logits(slots, r, whole[r][LENGTH]);
        tokens[r] = 20 + r;
    }
    assert_ok(step_rows(slots, tokens, NULL));
    for (int r = 0; r < ROWS; r++)
        check_logits(slots, r, whole[r][LENGTH + 1]);
    tx_slots_free(slots);
    tx_forward_free(forward);
}

/* ---- Texts ------------------------------------------------------------------------------------------------ */

typedef struct texts {
    int32_t ids[ROWS][POSITIONS];
    int64_t count[ROWS];
    int64_t most[ROWS]; /* length at which emit ends the text, or 0 for never */
    int32_t stop;       /* ends() holds for texts with this id at the end */
} texts;

static bool emit(void *context, int64_t row, int32_t id)
{
    texts *t = context;
    t->ids[row][t->count[row]++] = id;
    return t->count[row] != t->most[row];
}

static bool ends(void *context, const int32_t *ids, int64_t count)
{
    const texts *t = context;
    return ids[count - 1] == t->stop;
}

static tx_generator *make_generator(fixture *f, int64_t batch, int64_t beams, int64_t prompt, int64_t context)
{
    const tx_generator_options options = {sizeof options, batch, beams, prompt, context, false, 0,
                                          NULL,           false, NULL,  TX_F32, NULL,    false};
    tx_generator *made = NULL;
    assert_ok(tx_generator_create(f->model, f->config, &options, &made));
    return made;
}

static void generate(tx_generator *g, const tx_prompt *prompts, int64_t count, uint64_t first, const tx_generation *how,
                     texts *out)
{
    const tx_sink sink = {emit, ends, NULL, out};
    memset(out->count, 0, sizeof out->count);
    assert_ok(tx_generator_run(g, prompts, count, first, how, &sink));
}

static void batch_equals_one_by_one(void **state)
{
    fixture *f = *state;
    texts all = {.stop = -1}, one = {.stop = -1};
    fixture other = *f; /* caches of another batch need another model */
    assert_ok(tx_model_create(f->engine, &other.model));
    tx_generator *batch = make_generator(f, ROWS, 1, LONGEST, POSITIONS);
    tx_generator *single = make_generator(&other, 1, 1, 8, POSITIONS);
    assert_ok(tx_model_init(f->model, 4));
    assert_ok(tx_model_init(other.model, 4));
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = STEPS;
    for (int draw = 0; draw < 2; draw++) {
        how.do_sample = draw != 0;
        generate(batch, f->prompts, ROWS, 0, &how, &all);
        for (int r = 0; r < ROWS; r++) {
            generate(single, &f->prompts[r], 1, (uint64_t)r, &how, &one);
            assert_int_equal(all.count[r], STEPS);
            assert_int_equal(one.count[0], STEPS);
            assert_memory_equal(all.ids[r], one.ids[0], STEPS * sizeof one.ids[0][0]);
        }
        generate(single, f->prompts, ROWS, 0, &how, &one); /* one after the other */
        assert_memory_equal(all.ids, one.ids, sizeof all.ids);
        generate(batch, f->prompts + 1, 2, 1, &how, &one); /* a batch that is not full */
        assert_memory_equal(all.ids[1], one.ids[0], STEPS * sizeof one.ids[0][0]);
        assert_memory_equal(all.ids[2], one.ids[1], STEPS * sizeof one.ids[0][0]);
    }
    tx_generator_free(single);
    tx_model_free(other.model);
    tx_generator_free(batch);
}

/* With many slots a single text computes one row, also if products of many rows have other bits. */
static void few_texts_compute_few_rows(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 2 && strcmp(device, "cpu") == 0; i++) {
        const tx_slots_options options = {
            .count = 40, .context = POSITIONS, .beams = 1, .autocast = i ? TX_BF16 : TX_F32, .dense = true};
        tx_slots *slots;
        assert_ok(tx_slots_create(f->model, f->config, &options, &slots));
        assert_ok(tx_model_init(f->model, 4));
        assert_ok(tx_slots_prove(slots));
        assert_int_equal(slots->decode.pass[0].rows, 1);
        assert_true(slots->decode.pass[slots->decode.count - 1].rows >= 8);
        tx_slots_free(slots);
    }
}

/* Texts end at an id of eos_token_id or by the sink, and not before min_new_tokens. The others continue unchanged. */
static void texts_end(void **state)
{
    fixture *f = *state;
    texts all = {.stop = -1}, cut = {.stop = -1};
    tx_generator *g = make_generator(f, ROWS, 1, LONGEST, POSITIONS);
    assert_ok(tx_model_init(f->model, 4));
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = STEPS;
    how.do_sample = true;
    generate(g, f->prompts, ROWS, 0, &how, &all);
    for (int way = 0; way < 3; way++) {
        const int32_t end = all.ids[3][5];
        cut.stop = way == 0 ? end : -1;
        cut.most[3] = way == 1 ? 6 : 0;
        how.eos_count = way == 2;
        how.eos_token_id[0] = end;
        generate(g, f->prompts, ROWS, 0, &how, &cut);
        for (int r = 0; r < ROWS; r++) {
            int64_t want = STEPS;
            for (int64_t i = STEPS - 1; i >= 0; i--)
                if (way == 1 ? r == 3 && i == 5 : all.ids[r][i] == end)
                    want = i + 1;
            assert_int_equal(cut.count[r], want);
            assert_memory_equal(cut.ids[r], all.ids[r], (size_t)want * sizeof end);
        }
    }
    how.min_new_tokens = 10;
    generate(g, f->prompts, ROWS, 0, &how, &cut);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 10; i++)
            assert_int_not_equal(cut.ids[r][i], how.eos_token_id[0]);
    how.max_new_tokens = 0;
    generate(g, f->prompts, ROWS, 0, &how, &cut);
    assert_int_equal(cut.count[0], 0);
    tx_generator_free(g);
}

static void misuse_is_refused(void **state)
{
    fixture *f = *state;
    texts out = {.stop = -1};
    const tx_sink sink = {emit, NULL, NULL, &out};
    tx_generator *g = make_generator(f, 2, 1, 40, 50), *none = NULL;
    assert_ok(tx_model_init(f->model, 4));
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = 10;
    assert_refused(tx_generator_run(g, f->prompts, 0, 0, &how, &sink), TX_INVALID, "0 prompts");
    assert_refused(tx_generator_run(g, f->prompts + 2, 1, 0, &how, &sink), TX_INVALID, "a prompt of 75");
    how.num_beams = 2;
    assert_refused(tx_generator_run(g, f->prompts, 1, 0, &how, &sink), TX_INVALID, "2 beams");
    how.num_beams = 1;
    const int32_t bad[] = {1, VOCAB};
    const tx_prompt outside = {bad, 2};
    assert_refused(tx_generator_run(g, &outside, 1, 0, &how, &sink), TX_INVALID, "outside the vocabulary");
    assert_int_equal(out.count[0], 0);
    const tx_generator_options longer = {sizeof longer, 1,     1,    40,     POSITIONS + 1, false, 0,
                                         NULL,          false, NULL, TX_F32, NULL,          false};
    assert_refused(tx_generator_create(f->model, f->config, &longer, &none), TX_INVALID, "90 positions");
    tx_generator_free(g);
}

/* ---- Beams ------------------------------------------------------------------------------------------------ */

/* Log-probability of ids[at] after those before it. */
static double log_probability(tx_forward *forward, const int32_t *ids, int64_t at, int64_t vocab, int64_t length)
{
    float *logits = malloc((size_t)(length * vocab) * sizeof *logits);
    double sum = 0.0;
    assert_non_null(logits);
    assert_ok(tx_forward_run(forward, ids, logits));
    const float *row = logits + (at - 1) * vocab;
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((double)row[v]);
    double result = (double)row[ids[at]] - log(sum);
    free(logits);
    return result;
}

/* With as many beams as there are texts of two tokens, the search of three is exhaustive. */
static void beams_find_the_likeliest_text(void **state)
{
    fixture *f = *state;
    enum { SMALL = 6, BEAMS = SMALL * SMALL, PROMPT = 3, NEW = 3 };
    int32_t ids[PROMPT + NEW] = {1, 4, 2}, best[NEW] = {0};
    double most = -INFINITY;
    texts found = {.stop = -1};
    f->config->vocab_size = SMALL;
    tx_generator *g = make_generator(f, 1, BEAMS, PROMPT, PROMPT + NEW);
    tx_forward *forward;
    assert_ok(tx_forward_create(f->model, f->config, PROMPT + NEW, &forward));
    assert_ok(tx_model_init(f->model, 6));
    for (int a = 0; a < SMALL * SMALL * SMALL; a++) {
        double sum = 0.0;
        ids[PROMPT] = a % SMALL;
        ids[PROMPT + 1] = a / SMALL % SMALL;
        ids[PROMPT + 2] = a / SMALL / SMALL;
        for (int64_t t = PROMPT; t < PROMPT + NEW; t++)
            sum += log_probability(forward, ids, t, SMALL, PROMPT + NEW);
        if (sum > most) {
            most = sum;
            memcpy(best, ids + PROMPT, sizeof best);
        }
    }
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = NEW;
    how.num_beams = BEAMS;
    const tx_prompt prompt = {ids, PROMPT};
    generate(g, &prompt, 1, 0, &how, &found);
    assert_int_equal(found.count[0], NEW);
    assert_memory_equal(found.ids[0], best, sizeof best);
    tx_forward_free(forward);
    tx_generator_free(g);
}

/* ---- Perplexity --------------------------------------------------------------------------------------------- */

static void perplexity_follows_its_definition(void **state)
{
    fixture *f = *state;
    enum { COUNT = 83, WINDOW = 24, STRIDE = 10 };
    tx_forward *forward;
    assert_ok(tx_forward_create(f->model, f->config, WINDOW, &forward));
    tx_perplexity *one[2];
    for (int i = 0; i < 2; i++) {
        const tx_perplexity_options options = {sizeof options, WINDOW, STRIDE, i ? 4 : 1};
        assert_ok(tx_perplexity_create(f->model, f->config, &options, &one[i]));
    }
    assert_ok(tx_model_init(f->model, 6));
    double sum = 0.0;
    int64_t tokens = 0, windows = 0, before = 0;
    for (int64_t begin = 0; before < COUNT; begin += STRIDE, windows++) {
        const int64_t end = begin + WINDOW < COUNT ? begin + WINDOW : COUNT,
                      first = before > begin ? before : begin + 1;
        int32_t ids[WINDOW] = {0};
        memcpy(ids, f->ids[0] + begin, (size_t)(end - begin) * sizeof ids[0]);
        for (int64_t t = first; t < end; t++, tokens++)
            sum -= log_probability(forward, ids, t - begin, VOCAB, WINDOW);
        before = end;
    }
    for (int i = 0; i < 2; i++) {
        tx_perplexity_result result;
        assert_ok(tx_perplexity_run(one[i], f->ids[0], COUNT, &result));
        assert_true(fabs(result.loss - sum / (double)tokens) <= 1e-5 * sum / (double)tokens);
        assert_true(fabs(result.perplexity - exp(result.loss)) <= 1e-12 * result.perplexity);
        assert_int_equal(result.tokens, tokens);
        assert_int_equal(result.tokens, COUNT - 1); /* each token after the first once */
        assert_int_equal(result.windows, windows);
        assert_refused(tx_perplexity_run(one[i], f->ids[0], 1, &result), TX_INVALID, "at least 2");
        tx_perplexity_free(one[i]);
    }
    const tx_perplexity_options wide = {sizeof wide, WINDOW, WINDOW + 1, 1};
    assert_refused(tx_perplexity_create(f->model, f->config, &wide, &one[0]), TX_INVALID, "a stride of 25");
    tx_forward_free(forward);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cached_equals_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_caches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sources_move_caches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(batch_equals_one_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(few_texts_compute_few_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(misuse_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beams_find_the_likeliest_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(perplexity_follows_its_definition, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
