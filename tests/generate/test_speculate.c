/* SPDX-License-Identifier: Apache-2.0
 * Guessed tokens: a pass over several tokens gives the bits of single steps, and texts do not change, with guesses from
 * the text, by the model itself, or by another one; also if states of recurrent layers go back.
 *
 *     test_speculate DEVICE */
#include "models/arch/gpt2.h"
#include "models/generate/generate.h"
#include "tests/scratch.h"
#include "tests/skip.h"

enum { POSITIONS = 300, VOCAB = 131, STEPS = 15, MOST = TX_GENERATION_DRAFT_TOKENS };

static const char *device = "cpu";

/* Models with recurrent layers of each kind, with attention in others and without. */
#define SIZES                                                                                                  \
    "\"vocab_size\": 131, \"max_position_embeddings\": 300, \"hidden_size\": 96, \"num_attention_heads\": 3, " \
    "\"num_key_value_heads\": 3, \"num_hidden_layers\": 2, \"intermediate_size\": 64, \"initializer_range\": 0.25, "
static const char *const hybrids[] = {
    "{" SIZES "\"model_type\": \"qwen3_5_text\", \"head_dim\": 32, \"layer_types\": [\"linear_attention\", "
    "\"full_attention\"], \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 16, "
    "\"linear_value_head_dim\": 12}",
    "{" SIZES "\"model_type\": \"mamba2\", \"num_heads\": 12, \"head_dim\": 16, \"n_groups\": 2, \"state_size\": 16}",
    "{" SIZES "\"model_type\": \"lfm2\", \"block_multiple_of\": 8, \"layer_types\": [\"conv\", \"full_attention\"]}"};

static const char *kind; /* of subjects; NULL for a GPT-2 */

/* A small random model. */
typedef struct subject {
    tx_config *config;
    tx_engine *engine;
    tx_model *model;
} subject;

static subject open_subject(tx_dtype dtype)
{
    subject s = {0};
    const tx_engine_options options = {.size = sizeof options, .device = device};
    if (kind) {
        tx_json *json;
        assert_ok(tx_json_parse_line(kind, strlen(kind), "kind", &json));
        assert_ok(tx_config_of_json(json, &s.config));
    } else {
        assert_ok(tx_config_preset("gpt2", &s.config));
        assert_ok(tx_config_override(s.config, "vocab_size=131,n_positions=300,n_embd=96,n_layer=2,n_head=3"));
        ((tx_gpt2_config *)s.config)->initializer_range = 0.25; /* lively texts */
    }
    assert_ok(tx_engine_create(&options, &s.engine));
    assert_ok(tx_model_create(s.engine, &s.model));
    assert_ok(tx_model_store(s.model, dtype));
    return s;
}

static void close_subject(const subject *s)
{
    tx_model_free(s->model);
    tx_engine_free(s->engine);
    tx_config_free(s->config);
}

static void fill(int32_t ids[POSITIONS])
{
    uint64_t random = 5;
    for (int i = 0; i < POSITIONS; i++)
        ids[i] = (int32_t)(next_random(&random) % VOCAB);
}

/* ---- Bits ------------------------------------------------------------------------------------------------ */

static void passes_have_the_bits_of_steps(void **state)
{
    static const tx_dtype types[] = {TX_F32, TX_BF16, TX_F16, TX_F32, TX_BF16}; /* the last two with caches in blocks */
    static float want[MOST + 1][VOCAB];
    int32_t ids[POSITIONS];
    (void)state;
    fill(ids);
    for (size_t d = 0; d < sizeof types / sizeof types[0]; d++) {
        const subject s = open_subject(types[d]);
        tx_slots *slots = NULL;
        const float *all = NULL;
        int64_t stride = 0;
        assert_ok(tx_slots_create(
            s.model, s.config, &(tx_slots_options){1, POSITIONS, POSITIONS, 1, MOST, d > 2, TX_F32, NULL, false, false},
            &slots));
        assert_ok(tx_model_init(s.model, 4));
        for (int64_t prompt = 5; prompt < POSITIONS - MOST; prompt += 57) {
            for (int64_t done = 0; done < prompt;)
                assert_ok(tx_slots_prefill(slots, 0, ids, prompt, &done, NULL, NULL));
            for (int64_t i = 0; i <= MOST; i++) {
                assert_ok(tx_slots_step(slots, &(int32_t){0}, &ids[prompt + i], 1, NULL));
                memcpy(want[i], tx_slots_logits(slots, 0), sizeof want[i]);
            }
            tx_slots_keep(slots, 0, prompt);
            int64_t first = prompt;
            assert_ok(tx_slots_prefill(slots, 0, ids, prompt + MOST + 1, &first, &all, &stride));
            assert_int_equal(first, prompt + MOST + 1);
            for (int64_t i = 0; i <= MOST; i++)
                if (memcmp(want[i], all + i * stride, sizeof want[i]) != 0)
                    fail_msg("%s, %d tokens, guess %d: other bits, such as %.9g instead of %.9g",
                             tx_dtype_name(types[d]), (int)prompt, (int)i, (double)all[i * stride], (double)want[i][0]);
        }
        tx_slots_free(slots);
        close_subject(&s);
    }
}

/* Caches in blocks of 8 bits: the memory that is planned is used, and is that of the blocks; logits are near those of
 * full caches, and differ. */
static void blocks_are_near(void **state)
{
    int32_t ids[POSITIONS];
    float logits[2][VOCAB];
    (void)state;
    fill(ids);
    for (int q8_0 = 0; q8_0 < 2; q8_0++) {
        const subject s = open_subject(TX_F32);
        tx_slots *slots = NULL;
        tx_memory planned, counted;
        assert_ok(tx_slots_create(s.model, s.config,
                                  &(tx_slots_options){1, POSITIONS, POSITIONS, 1, 0, q8_0, TX_F32, NULL, false, false},
                                  &slots));
        assert_ok(tx_model_init(s.model, 4));
        for (int64_t done = 0; done < POSITIONS - 1;)
            assert_ok(tx_slots_prefill(slots, 0, ids, POSITIONS - 1, &done, NULL, NULL));
        assert_ok(tx_slots_step(slots, &(int32_t){0}, &ids[POSITIONS - 1], 1, NULL));
        memcpy(logits[q8_0], tx_slots_logits(slots, 0), sizeof logits[0]);
        assert_ok(tx_model_memory(s.model, &planned));
        assert_ok(tx_engine_memory(s.engine, &counted));
        assert_int_equal(tx_memory_total(&planned), tx_memory_total(&counted));
        assert_int_equal(planned.bytes[TX_MEMORY_CACHE], counted.bytes[TX_MEMORY_CACHE]);
        const int64_t caches = 4 * POSITIONS * (q8_0 ? 96 / 32 * 34 : 96 * 4); /* keys and values of two blocks */
        assert_in_range(planned.bytes[TX_MEMORY_CACHE], caches, caches + 4 * TX_ALIGNMENT + TX_PARAM_BLOCK);
        tx_slots_free(slots);
        close_subject(&s);
    }
    double error = 0.0, size = 0.0;
    for (int v = 0; v < VOCAB; v++) {
        error += pow((double)logits[1][v] - (double)logits[0][v], 2.0);
        size += pow((double)logits[0][v], 2.0);
    }
    printf("error of logits with caches in blocks: %.5f of their size\n", sqrt(error / size));
    assert_true(error > 0.0 && error < 1e-3 * size);
}

/* ---- Texts ----------------------------------------------------------------------------------------------- */

typedef struct texts {
    int32_t ids[2][STEPS];
    int64_t count[2];
    int32_t stop; /* this token ends a text */
    int64_t most; /* length of text 0, or 0 */
} texts;

static bool emit(void *context, int64_t row, int32_t id)
{
    texts *t = context;
    t->ids[row][t->count[row]++] = id;
    return row || t->count[0] != t->most;
}

static bool ends(void *context, const int32_t *ids, int64_t count)
{
    return ids[count - 1] == ((const texts *)context)->stop;
}

static void generate(tx_generator *g, const tx_prompt *prompts, int64_t count, const tx_generation *how, texts *out)
{
    const tx_sink sink = {emit, ends, NULL, out};
    memset(out->ids, 0, sizeof out->ids);
    memset(out->count, 0, sizeof out->count);
    assert_ok(tx_generator_run(g, prompts, count, 0, how, &sink));
}

/* Greedy or sampled texts, whole or ended early, up to the last position, also after others. Without `draft`, tokens
 * are looked up in the text. Returns the share of accepted guesses. */
static double check_texts(tx_slots *draft, int32_t *ids)
{
    texts plain = {.stop = -1}, fast = {.stop = -1};
    const subject a = open_subject(TX_F32), b = open_subject(TX_F32);
    tx_generator *one = NULL, *two = NULL;
    const tx_generator_options options = {sizeof options, 2,     1,    75,     90,   false, 0,
                                          NULL,           false, NULL, TX_F32, NULL, false};
    const tx_generator_options draft_tokens = {sizeof options, 2,     1,    75,     90,   false, MOST,
                                               draft,          false, NULL, TX_F32, NULL, false};
    assert_ok(tx_generator_create(a.model, a.config, &options, &one));
    assert_ok(tx_generator_create(b.model, b.config, &draft_tokens, &two));
    assert_ok(tx_model_init(a.model, 4));
    assert_ok(tx_model_init(b.model, 4));
    tx_generation how = tx_generation_defaults(-1);
    how.max_new_tokens = STEPS;
    const tx_prompt prompts[] = {{ids, 9}, {ids + 2, 90 - STEPS}};
    for (int way = 0; way < 24; way++) {
        how.do_sample = way % 2;
        how.temperature = way % 4 == 3 ? 0.1 : 1.0;
        how.seed = (uint64_t)way;
        const int64_t from = way % 3 == 2, count = way % 3 == 0 ? 2 : 1;
        how.prompt_lookup_num_tokens = 0;
        fast.stop = plain.stop = way % 5 == 4 ? 3 : -1;
        fast.most = plain.most = way % 7 == 6 ? 5 : 0;
        generate(one, prompts + from, count, &how, &plain);
        how.num_assistant_tokens = how.prompt_lookup_num_tokens = 1 + way % MOST;
        generate(two, prompts + from, count, &how, &fast);
        assert_memory_equal(fast.count, plain.count, sizeof plain.count);
        assert_memory_equal(fast.ids, plain.ids, sizeof plain.ids);
    }
    int64_t drafted, accepted;
    tx_generator_draft_tokens(two, &drafted, &accepted);
    assert_true(drafted > 0 && accepted <= drafted);
    tx_generator_free(two);
    tx_generator_free(one);
    close_subject(&b);
    close_subject(&a);
    return (double)accepted / (double)drafted;
}

static void copied_guesses_change_nothing(void **state)
{
    int32_t ids[POSITIONS];
    (void)state;
    for (int i = 0; i < POSITIONS; i++)
        ids[i] = i % 7; /* so that tokens occur before */
    check_texts(NULL, ids);
}

/* The model itself guesses right, another one hardly ever, and one with few positions now and then. */
static void guesses_of_a_model_change_nothing(void **state)
{
    int32_t ids[POSITIONS];
    (void)state;
    fill(ids);
    for (int seed = 4; seed < 7; seed++) {
        const subject s = open_subject(TX_F32);
        const int64_t context = seed == 6 ? 12 : 90;
        tx_slots *draft = NULL;
        assert_ok(tx_slots_create(s.model, s.config,
                                  &(tx_slots_options){1, context, context / 2, 1, 0, false, TX_F32, NULL, false, false},
                                  &draft));
        assert_ok(tx_model_init(s.model, seed == 6 ? 4 : (uint64_t)seed));
        const double accepted = check_texts(draft, ids);
        assert_true(seed == 5 ? accepted < 0.5 : accepted > 0.6);
        tx_slots_free(draft);
        close_subject(&s);
    }
}

/* ---- Recurrent layers ------------------------------------------------------------------------------------ */

/* Appends three tokens to a slot, from ids on, and writes the logits. */
static void append(tx_slots *slots, int32_t slot, const int32_t *ids, float logits[3][VOCAB])
{
    for (int i = 0; i < 3; i++) {
        assert_ok(tx_slots_step(slots, &slot, ids + i, 1, NULL));
        memcpy(logits[i], tx_slots_logits(slots, slot), sizeof logits[i]);
    }
}

/* A slot that goes back to its mark, and another one, give the same logits as if nothing had happened. */
static void states_are_put_back(void **state)
{
    static float want[2][3][VOCAB], got[3][VOCAB];
    const int64_t prompt[] = {70, 9};
    int32_t ids[POSITIONS];
    (void)state;
    fill(ids);
    for (size_t i = 0; i < sizeof hybrids / sizeof hybrids[0]; i++) {
        kind = hybrids[i];
        const subject s = open_subject(TX_F32);
        tx_slots *slots = NULL;
        assert_ok(tx_slots_create(s.model, s.config,
                                  &(tx_slots_options){2, 90, 45, 1, MOST, false, TX_F32, NULL, false, false}, &slots));
        assert_ok(tx_model_init(s.model, 4));
        for (int way = 0; way < 2; way++) {
            int64_t count = prompt[0] + 1;
            for (int32_t slot = 0; slot < 2; slot++) {
                tx_slots_keep(slots, slot, 0);
                for (int64_t done = 0; done < prompt[slot];)
                    assert_ok(tx_slots_prefill(slots, slot, ids, prompt[slot], &done, NULL, NULL));
            }
            if (way) {
                assert_ok(tx_slots_mark(slots, 0));
                append(slots, 0, ids + 100, got);
                assert_ok(tx_slots_go_back(slots, 0, &count));
                assert_int_equal(count, prompt[0]);
            }
            for (int32_t slot = 0; slot < 2; slot++) {
                append(slots, slot, ids + prompt[slot], way ? got : want[slot]);
                if (way)
                    assert_memory_equal(got, want[slot], sizeof got);
            }
            count = prompt[0] - 1; /* before the mark */
            assert_ok(tx_slots_go_back(slots, 0, &count));
            assert_int_equal(count, 0);
        }
        tx_slots_free(slots);
        close_subject(&s);
        kind = NULL;
    }
}

/* Guesses from the text, of the model itself and of other weights. */
static void guesses_of_hybrids_change_nothing(void **state)
{
    int32_t ids[POSITIONS];
    (void)state;
    for (int i = 0; i < POSITIONS; i++)
        ids[i] = i % 7;
    for (size_t i = 0; i < sizeof hybrids / sizeof hybrids[0]; i++) {
        double accepted[3] = {0};
        kind = hybrids[i];
        accepted[0] = check_texts(NULL, ids);
        for (int seed = 4; seed < 6; seed++) {
            const subject s = open_subject(TX_F32);
            tx_slots *draft = NULL;
            assert_ok(tx_slots_create(s.model, s.config,
                                      &(tx_slots_options){1, 90, 45, 1, 1, false, TX_F32, NULL, false, false}, &draft));
            assert_ok(tx_model_init(s.model, (uint64_t)seed));
            accepted[seed - 3] = check_texts(draft, ids);
            tx_slots_free(draft);
            close_subject(&s);
        }
        kind = NULL;
        printf("hybrid %zu: %.2f, %.2f and %.2f of guesses accepted\n", i, accepted[0], accepted[1], accepted[2]);
        assert_true(accepted[0] < 1.0 && accepted[1] > 0.6 && accepted[2] < 0.5);
    }
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_have_the_bits_of_steps), cmocka_unit_test(blocks_are_near),
        cmocka_unit_test(copied_guesses_change_nothing), cmocka_unit_test(guesses_of_a_model_change_nothing),
        cmocka_unit_test(states_are_put_back),           cmocka_unit_test(guesses_of_hybrids_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
