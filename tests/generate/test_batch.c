/* SPDX-License-Identifier: Apache-2.0
 * Continuous batching by the public header, with a small random GPT-2. Requests in a full batch get the same tokens and
 * the same bits of log-probabilities as in an empty one. Tokens equal those of tx_lm_generate, and log-probabilities
 * those of tx_lm_logits. Requests with the same prompt get the same bits as alone, and the prompt is computed once; so
 * do those whose prompts begin as others. Also refusals and requests that are cancelled.
 *
 *     test_batch DEVICE */
#include "models/arch/gpt2.h"
#include "models/generate/generate.h"
#include "models/tx_batch.h"
#include "tests/random_model.h"
#include "tests/skip.h"

#include <math.h>

enum { VOCAB = 257, POSITIONS = 330, REQUESTS = 23, NEW = 12, LONGEST = 300 };

static const char *device = "cpu";

/* Saves a random model, and frees the configuration. */
static int save(tx_config *config, void **state)
{
    char *folder = make_scratch();
    save_random_model(config, folder);
    tx_config_free(config);
    *state = folder;
    return 0;
}

static int set_up(void **state)
{
    tx_config *config;
    assert_ok(tx_config_preset("gpt2", &config));
    assert_ok(tx_config_override(config, "vocab_size=257,n_positions=330,n_embd=24,n_layer=2,n_head=2,"
                                         "bos_token_id=256,eos_token_id=256,initializer_range=0.25"));
    return save(config, state);
}

static int set_up_text(const char *text, void **state)
{
    tx_config *config;
    tx_json *json;
    assert_ok(tx_json_parse_line(text, strlen(text), "hybrid", &json));
    assert_ok(tx_config_of_json(json, &config));
    return save(config, state);
}

/* No layer has attention. */
static int set_up_mamba(void **state)
{
    return set_up_text("{\"model_type\": \"mamba2\", \"vocab_size\": 257, \"hidden_size\": 12, "
                       "\"num_hidden_layers\": 2, \"max_position_embeddings\": 330, \"num_heads\": 4, "
                       "\"head_dim\": 6, \"n_groups\": 2, \"state_size\": 5, \"bos_token_id\": 256, "
                       "\"eos_token_id\": 256, \"initializer_range\": 0.3}",
                       state);
}

/* Each layer has attention and a recurrent mixer. */
static int set_up_hybrid(void **state)
{
    const char *text = "{\"model_type\": \"falcon_h1\", \"vocab_size\": 257, \"hidden_size\": 12, "
                       "\"intermediate_size\": 10, \"num_hidden_layers\": 2, \"num_attention_heads\": 3, "
                       "\"num_key_value_heads\": 1, \"max_position_embeddings\": 330, \"mamba_d_ssm\": 24, "
                       "\"mamba_n_heads\": 4, \"mamba_n_groups\": 2, \"mamba_d_state\": 5, "
                       "\"bos_token_id\": 256, \"eos_token_id\": 256, \"initializer_range\": 0.3}";
    return set_up_text(text, state);
}

static tx_lm *open_lm(void **state)
{
    const tx_lm_options options = {.size = sizeof options, .model = *state, .device = device};
    tx_lm *lm = NULL;
    assert_ok(tx_lm_open(&options, &lm));
    return lm;
}

/* The answer to a request: new tokens, and the log-probabilities of all reported tokens. */
typedef struct answer {
    int32_t ids[NEW];
    double logprob[LONGEST + NEW], best[LONGEST + NEW];
    int64_t count, reported, most; /* `most`: cancel after so many new tokens, or 0 */
    int64_t cached;                /* tokens of the prompt */
    bool ended, gone;
    tx_batch_end end;
} answer;

static bool token(void *context, const tx_batch_token *t)
{
    answer *a = context;
    assert_false(a->ended);
    assert_int_equal(t->top_count, isnan(t->logprob) ? 0 : 3);
    a->cached = t->cached;
    a->logprob[a->reported] = t->logprob;
    a->best[a->reported++] = t->top_count ? t->top[0].logprob : 0.0;
    for (int32_t i = 1; i < t->top_count; i++)
        assert_true(t->top[i].logprob <= t->top[i - 1].logprob);
    if (!t->prompt)
        a->ids[a->count++] = t->id;
    return !a->most || a->count < a->most;
}

static void end(void *context, tx_batch_end how)
{
    answer *a = context;
    assert_false(a->ended);
    a->ended = true;
    a->end = how;
}

static bool cancelled(void *context)
{
    return ((const answer *)context)->gone;
}

/* Prompt i of `prompts` has a length of its own; most differ in the first token. */
static int64_t fill(int64_t i, int32_t ids[LONGEST])
{
    const int64_t count = i == 5 ? LONGEST : 1 + i * 13 % 90;
    for (int64_t t = 0; t < count; t++)
        ids[t] = (int32_t)((i * 7 + t * t + 3 * t) % (VOCAB - 1));
    return count;
}

static void add(tx_batch *batch, int64_t i, const tx_generation *how, answer *to)
{
    int32_t ids[LONGEST];
    tx_batch_request r = {.size = sizeof r,
                          .ids = ids,
                          .count = fill(i, ids),
                          .how = how,
                          .sample = (uint64_t)i,
                          .logprobs = true,
                          .top = 3,
                          .echo = i % 3 == 0,
                          .context = to,
                          .token = token,
                          .cancelled = cancelled,
                          .end = end};
    assert_ok(tx_batch_add(batch, &r));
}

static tx_generation settings(const tx_lm *lm, int64_t i)
{
    tx_generation how = *tx_lm_generation(lm);
    how.max_new_tokens = i == 9 ? 0 : 1 + (i * 5) % NEW;
    how.do_sample = i % 4 == 1;
    how.temperature = 1.5;
    return how;
}

/* Answers all requests with `slots` slots, adding one whenever a slot is free. */
static void answer_all(void **state, int64_t slots, answer *answers)
{
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    bool running = true;
    assert_ok(tx_batch_create(lm, slots, 0, &batch));
    assert_int_equal(tx_batch_context(batch), POSITIONS);
    for (int64_t i = 0; running || i < REQUESTS;) {
        while (i < REQUESTS && tx_batch_free_slots(batch) > 0) {
            const tx_generation how = settings(lm, i);
            add(batch, i, &how, &answers[i]);
            i++;
        }
        assert_ok(tx_batch_step(batch, &running));
    }
    assert_int_equal(tx_batch_free_slots(batch), slots);
    tx_batch_free(batch);
    tx_lm_free(lm);
}

static bool same(const answer *a, const answer *b)
{
    return a->count == b->count && a->reported == b->reported && a->end == b->end &&
           memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) == 0 &&
           memcmp(a->logprob, b->logprob, (size_t)a->reported * sizeof *a->logprob) == 0 &&
           memcmp(a->best, b->best, (size_t)a->reported * sizeof *a->best) == 0;
}

static void test_crowd(void **state)
{
    static answer crowd[REQUESTS], alone[REQUESTS];
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    answer_all(state, 7, crowd);
    assert_ok(tx_batch_create(lm, 7, 0, &batch));
    for (int64_t i = 0; i < REQUESTS; i++) { /* the same batch, but nothing else in it */
        const tx_generation how = settings(lm, i);
        bool running = true;
        add(batch, i, &how, &alone[i]);
        while (running)
            assert_ok(tx_batch_step(batch, &running));
        assert_true(alone[i].ended && alone[i].count <= how.max_new_tokens);
        assert_true(same(&crowd[i], &alone[i]));
    }
    tx_batch_free(batch);
    tx_lm_free(lm);
}

static void one_token(void *context, int64_t index, int32_t id)
{
    answer *a = context;
    (void)index;
    a->ids[a->count++] = id;
}

/* The greedy texts are those of tx_lm_generate, and log-probabilities of prompts those of whole passes. */
static void test_against_lm(void **state)
{
    static answer crowd[REQUESTS];
    static float logits[LONGEST * VOCAB];
    tx_lm *lm = open_lm(state);
    answer_all(state, 4, crowd);
    for (int64_t i = 0; i < REQUESTS; i++) {
        const tx_generation how = settings(lm, i);
        int32_t ids[LONGEST];
        const int64_t count = fill(i, ids);
        answer want = {0};
        const tx_lm_prompt prompt = {.ids = ids, .count = count};
        const tx_lm_listener listener = {.size = sizeof listener, .context = &want, .token = one_token};
        if (how.do_sample)
            continue;
        assert_ok(tx_lm_generate(lm, &prompt, 1, &how, &listener));
        assert_int_equal(crowd[i].count, want.count);
        assert_memory_equal(crowd[i].ids, want.ids, (size_t)want.count * sizeof *want.ids);
        if (i % 3)
            continue;
        assert_true(isnan(crowd[i].logprob[0]));
        assert_ok(tx_lm_logits(lm, ids, count, logits));
        for (int64_t t = 1; t < count; t++) {
            const float *row = logits + (t - 1) * VOCAB;
            double sum = 0.0;
            for (int64_t v = 0; v < VOCAB; v++)
                sum += exp((double)row[v]);
            assert_true(fabs(crowd[i].logprob[t] - ((double)row[ids[t]] - log(sum))) <= 1e-4);
        }
    }
    tx_lm_free(lm);
}

static void test_ends(void **state)
{
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    bool running = true;
    static answer a[3];
    tx_generation how = settings(lm, 11);
    assert_ok(tx_batch_create(lm, 3, 40, &batch));
    int32_t ids[LONGEST];
    tx_batch_request r = {
        .size = sizeof r, .ids = ids, .count = fill(5, ids), .how = &how, .context = a, .token = token, .end = end};
    assert_refused(tx_batch_add(batch, &r), TX_INVALID, "300 tokens");
    r.count = 39;
    how.max_new_tokens = 2;
    assert_refused(tx_batch_add(batch, &r), TX_INVALID, "39 tokens and 2 new ones");
    r.count = 3;
    ids[1] = VOCAB;
    assert_refused(tx_batch_add(batch, &r), TX_INVALID, "vocabulary");
    how.num_beams = 2;
    assert_refused(tx_batch_add(batch, &r), TX_UNSUPPORTED, "beams");
    how = settings(lm, 11); /* 8 tokens */
    add(batch, 0, &how, &a[0]);
    a[1].most = 3;
    add(batch, 1, &how, &a[1]);
    add(batch, 2, &how, &a[2]);
    ids[1] = 1;
    assert_refused(tx_batch_add(batch, &r), TX_INVALID, "all 3 slots");
    for (int step = 0; running; step++) {
        assert_ok(tx_batch_step(batch, &running));
        a[2].gone = step == 1;
    }
    assert_true(a[0].ended && a[1].ended && a[2].ended);
    assert_true(a[0].end == TX_BATCH_LIMIT && a[0].count == 8);
    assert_true(a[1].end == TX_BATCH_CANCELLED && a[1].count == 3);
    assert_true(a[2].end == TX_BATCH_CANCELLED && a[2].count < 8);
    assert_int_equal(tx_batch_free_slots(batch), 3);
    tx_batch_free(batch);
    tx_lm_free(lm);
}

/* Adds request i of groups of five with a prompt of their own: of LONGEST tokens, or of two. */
static void add_of_group(tx_batch *batch, const tx_lm *lm, int64_t i, answer *to)
{
    int32_t ids[LONGEST];
    tx_generation how = *tx_lm_generation(lm);
    how.max_new_tokens = 1 + i * 5 % NEW;
    how.do_sample = true;
    const tx_batch_request r = {.size = sizeof r,
                                .ids = ids,
                                .count = fill(i / 5 % 2 ? 7 : 5, ids),
                                .how = &how,
                                .sample = (uint64_t)i,
                                .logprobs = true,
                                .top = 3,
                                .context = to,
                                .token = token,
                                .end = end};
    assert_ok(tx_batch_add(batch, &r));
}

/* Groups of five in three slots, so that requests of a group come while others of it run, or after them. */
static void test_groups(void **state)
{
    static answer crowd[20], alone;
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    bool running = true;
    memset(crowd, 0, sizeof crowd); /* two tests */
    assert_ok(tx_batch_create(lm, 3, 0, &batch));
    for (int64_t i = 0; running || i < 20;) {
        while (i < 20 && tx_batch_free_slots(batch) > 0) {
            add_of_group(batch, lm, i, &crowd[i]);
            i++;
        }
        assert_ok(tx_batch_step(batch, &running));
    }
    for (int64_t i = 0; i < 20; i++) { /* the prompt before is another */
        alone = (answer){.count = 0};
        add(batch, 1, tx_lm_generation(lm), &(answer){.most = 1});
        for (running = true; running;)
            assert_ok(tx_batch_step(batch, &running));
        add_of_group(batch, lm, i, &alone);
        for (running = true; running;)
            assert_ok(tx_batch_step(batch, &running));
        assert_true(same(&crowd[i], &alone));
    }
    tx_batch_free(batch);
    tx_lm_free(lm);
}

/* A step computes at most a piece of a prompt, so that four long prompts would take eight steps. */
static void test_once(void **state)
{
    static answer a[4];
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    bool running;
    assert_ok(tx_batch_create(lm, 4, 0, &batch));
    for (int64_t i = 0; i < 4; i++)
        add_of_group(batch, lm, i, &a[i]);
    assert_ok(tx_batch_step(batch, &running));
    assert_int_equal(a[0].count, 0);
    assert_ok(tx_batch_step(batch, &running));
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(a[i].count, 1);
    tx_batch_free(batch);
    tx_lm_free(lm);
}

/* Prompts, of which the first `shared` tokens are those of an earlier one and of its answer. Two slots have caches for
 * the first `cached` of them: pieces of 256, 64 and 16 tokens that are whole and equal. Of recurrent layers they have
 * states for `kept`.
 */
static const struct turn {
    int64_t of, shared, count, cached, kept;
    bool goes_on; /* while the next one is added */
} turns[] = {
    {0, 0, 270, 0, 0, false},       {0, 264, 300, 256, 256, true}, /* continues the first slot */
    {1, 260, 290, 256, 256, false},                                /* copies from it to the second one */
    {3, 0, 140, 0, 0, false},                                      /* the first one, which has been free for longer */
    {3, 70, 100, 64, 0, false},  /* the second one, as the first one has more than the beginning */
    {3, 140, 200, 128, 0, true}, /* continues the first one, whose last piece had padding */
    {5, 70, 100, 64, 0, false},     {5, 200, 300, 0, 0, false},   /* a longer prompt begins with a longer piece */
    {8, 0, 140, 0, 0, false},       {8, 146, 152, 128, 0, false}, /* its answer took the place of the padding */
};
enum { TURNS = sizeof turns / sizeof turns[0] };
static answer together[TURNS];

static void ask_turn(tx_batch *batch, const tx_lm *lm, int64_t turn, answer *to)
{
    static int32_t ids[sizeof turns / sizeof turns[0]][LONGEST];
    tx_generation how = *tx_lm_generation(lm);
    how.max_new_tokens = how.min_new_tokens = NEW;
    for (int64_t t = 0; t < turns[turn].count; t++) {
        const int64_t of = turns[turn].of, answered = t - turns[of].count;
        ids[turn][t] = t >= turns[turn].shared ? (int32_t)((turn * 31 + t * t + t) % (VOCAB - 1))
                       : answered < 0          ? ids[of][t]
                                               : together[of].ids[answered];
    }
    const tx_batch_request r = {.size = sizeof r,
                                .ids = ids[turn],
                                .count = turns[turn].count,
                                .how = &how,
                                .logprobs = true,
                                .top = 3,
                                .context = to,
                                .token = token,
                                .end = end};
    *to = (answer){.count = 0};
    assert_ok(tx_batch_add(batch, &r));
}

/* Computes steps until the request has a token, or with `all` until the batch is empty. */
static void compute(tx_batch *batch, const answer *a, bool all)
{
    for (bool running = true; running && (all || a->count == 0);)
        assert_ok(tx_batch_step(batch, &running));
}

static void ask_turns(void **state, bool recurs)
{
    static answer alone[TURNS];
    tx_lm *lm = open_lm(state);
    tx_batch *batch;
    assert_ok(tx_batch_create(lm, 2, 0, &batch));
    for (int64_t i = 0; i < TURNS; i++) {
        ask_turn(batch, lm, i, &together[i]);
        compute(batch, &together[i], !turns[i].goes_on);
        assert_int_equal(together[i].cached, recurs ? turns[i].kept : turns[i].cached);
    }
    tx_batch_free(batch);
    assert_ok(tx_batch_create(lm, 1, 0, &batch));
    for (int64_t i = 0; i < TURNS; i++) {
        answer other = {.most = 1}; /* begins otherwise */
        add(batch, 1, tx_lm_generation(lm), &other);
        compute(batch, &other, true);
        ask_turn(batch, lm, i, &alone[i]);
        compute(batch, &alone[i], true);
        assert_int_equal(alone[i].cached, 0);
        assert_true(same(&together[i], &alone[i]));
    }
    tx_batch_free(batch);
    tx_lm_free(lm);
}

static void test_turns(void **state)
{
    ask_turns(state, false);
}

static void test_recurrent_turns(void **state)
{
    ask_turns(state, true);
}

int main(int argc, char **argv)
{
    device = tx_test_device(argc > 1 ? argv[1] : device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_against_lm),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_ends),
        cmocka_unit_test_setup_teardown(test_groups, set_up_hybrid, close_scratch),
        cmocka_unit_test_setup_teardown(test_groups, set_up_mamba, close_scratch),
        cmocka_unit_test_setup_teardown(test_recurrent_turns, set_up_hybrid, close_scratch),
        cmocka_unit_test_setup_teardown(test_recurrent_turns, set_up_mamba, close_scratch)};
    return cmocka_run_group_tests(tests, set_up, close_scratch);
}
