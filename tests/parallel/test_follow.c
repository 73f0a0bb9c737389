/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide a model compute the batch of rank 0: more requests than slots, long and short prompts, equal ones,
 * echoes, samples and cancelled requests. Rank 0 gets the ids of one rank, and log-probabilities within 1e-4. Each rank
 * counts the memory that it planned, and has about half of the weights. Then wrong calls.
 *   test_follow DEVICE */
#include "comm/comm.h"
#include "models/generate/lm.h"
#include "models/tx_batch.h"
#include "tests/random_model.h"
#include "tests/skip.h"

#include <math.h>
#include <stdio.h>

enum { VOCAB = 259, POSITIONS = 330, SLOTS = 4, REQUESTS = 14, NEW = 10, LONGEST = 300 };

static const char *device = "cpu";
static tx_comm *comm;

/* A request's answer. */
typedef struct answer {
    int32_t ids[NEW];
    double logprob[LONGEST + NEW];
    int64_t count, reported, most; /* `most`: cancel after so many new tokens, or 0 */
    bool ended;
} answer;

static bool token(void *context, const tx_batch_token *t)
{
    answer *a = context;
    a->logprob[a->reported++] = t->logprob;
    if (!t->prompt)
        a->ids[a->count++] = t->id;
    return !a->most || a->count < a->most;
}

static void end(void *context, tx_batch_end how)
{
    ((answer *)context)->ended = how != TX_BATCH_FAILED;
}

/* Requests 3 to 6 have the same prompt. */
static int64_t fill(int64_t i, int32_t ids[LONGEST])
{
    i = i > 3 && i < 7 ? 3 : i;
    const int64_t count = i == 2 ? LONGEST : 1 + i * 23 % 90;
    for (int64_t t = 0; t < count; t++)
        ids[t] = (int32_t)((i * 7 + t * t + 3 * t) % VOCAB);
    return count;
}

static void add(tx_batch *batch, const tx_lm *lm, int64_t i, answer *to)
{
    int32_t ids[LONGEST];
    tx_generation how = *tx_lm_generation(lm);
    how.max_new_tokens = 1 + i * 5 % NEW;
    how.do_sample = i % 4 == 1;
    to->most = i == 8 ? 2 : 0;
    const tx_batch_request r = {.size = sizeof r,
                                .ids = ids,
                                .count = fill(i, ids),
                                .how = &how,
                                .sample = (uint64_t)i,
                                .logprobs = true,
                                .echo = i % 5 == 2,
                                .context = to,
                                .token = token,
                                .end = end};
    assert_ok(tx_batch_add(batch, &r));
}

static void answer_all(tx_batch *batch, const tx_lm *lm, answer *answers)
{
    bool running = false;
    assert_ok(tx_batch_step(batch, &running)); /* nothing to do */
    for (int64_t i = 0; running || i < REQUESTS;) {
        while (i < REQUESTS && tx_batch_free_slots(batch) > 0) {
            add(batch, lm, i, &answers[i]);
            i++;
        }
        assert_ok(tx_batch_step(batch, &running));
    }
}

/* Answers all requests, or follows rank 0. Returns the bytes of the weights. */
static int64_t serve(const char *folder, tx_comm *ranks, answer *answers)
{
    const tx_lm_options options = {
        .size = sizeof options, .model = folder, .device = device, .threads = 1, .ranks = ranks};
    tx_lm *lm = NULL;
    tx_batch *batch = NULL;
    tx_memory planned, counted;
    assert_ok(tx_lm_open(&options, &lm));
    assert_ok(tx_batch_create(lm, SLOTS, 0, &batch));
    if (!ranks || ranks->rank == 0) {
        assert_refused(tx_batch_follow(batch), TX_INVALID, "only ranks above 0");
        answer_all(batch, lm, answers);
        assert_ok(tx_batch_dismiss(batch));
    } else {
        assert_refused(tx_batch_dismiss(batch), TX_INVALID, "only rank 0");
        assert_refused(tx_batch_step(batch, &(bool){false}), TX_INVALID, "only rank 0 computes steps");
        assert_ok(tx_batch_follow(batch));
    }
    assert_ok(tx_model_memory(lm->model, &planned));
    assert_ok(tx_engine_memory(lm->engine[0], &counted));
    assert_int_equal(tx_memory_total(&planned), tx_memory_total(&counted));
    assert_int_equal(planned.bytes[TX_MEMORY_WEIGHTS], counted.bytes[TX_MEMORY_WEIGHTS]);
    assert_int_equal(planned.bytes[TX_MEMORY_CACHE], counted.bytes[TX_MEMORY_CACHE]);
    tx_batch_free(batch);
    tx_lm_free(lm);
    return counted.bytes[TX_MEMORY_WEIGHTS];
}

/* Saves a random model. */
static char *save(const char *text)
{
    char *folder = make_scratch();
    tx_config *config;
    tx_json *json;
    assert_ok(tx_json_parse_line(text, strlen(text), "model", &json));
    assert_ok(tx_config_of_json(json, &config));
    save_random_model(config, folder);
    tx_config_free(config);
    return folder;
}

static void compare(const char *text)
{
    static answer whole[REQUESTS], divided[REQUESTS];
    char *folder = save(text);
    double most = 0.0;
    memset(whole, 0, sizeof whole);
    memset(divided, 0, sizeof divided);
    const int64_t all = serve(folder, NULL, whole), part = serve(folder, comm, divided);
    print_message("rank %d: %lld of %lld bytes of weights\n", (int)comm->rank, (long long)part, (long long)all);
    assert_true((double)part < 0.62 * (double)all);
    for (int64_t i = 0; i < REQUESTS && comm->rank == 0; i++) {
        assert_true(divided[i].ended && divided[i].count == whole[i].count);
        assert_int_equal(divided[i].reported, whole[i].reported);
        assert_memory_equal(divided[i].ids, whole[i].ids, sizeof whole[i].ids);
        for (int64_t t = 0; t < whole[i].reported; t++)
            most = isnan(whole[i].logprob[t]) ? most : fmax(most, fabs(divided[i].logprob[t] - whole[i].logprob[t]));
    }
    print_message("log-probabilities differ by at most %.1e\n", most);
    assert_true(most <= 1e-4);
    remove_scratch(folder);
}

static void test_gpt2(void **state)
{
    (void)state;
    compare("{\"model_type\": \"gpt2\", \"vocab_size\": 259, \"n_positions\": 330, \"n_embd\": 64, \"n_layer\": 2, "
            "\"n_head\": 4, \"initializer_range\": 0.25}");
}

/* Frequencies depend on the length of a text, and are part of a pass. */
static void test_rates(void **state)
{
    (void)state;
    compare("{\"model_type\": \"llama\", \"vocab_size\": 259, \"max_position_embeddings\": 330, \"hidden_size\": 64, "
            "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
            "\"intermediate_size\": 96, \"initializer_range\": 0.25, \"rope_scaling\": {\"rope_type\": \"longrope\", "
            "\"factor\": 4.0, \"original_max_position_embeddings\": 64, \"short_factor\": [1, 1, 1.5, 2, 2, 2, 3, 3], "
            "\"long_factor\": [1, 2, 2, 3, 4, 5, 6, 7]}}");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_rates)};
    device = tx_test_device(argc > 1 ? argv[1] : device);
    if (tx_comm_open(&argc, &argv, &comm)) {
        fprintf(stderr, "%s\n", tx_error());
        return 1;
    }
    const int failed = comm->size == 2 ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
    tx_comm_close(comm);
    return failed;
}
