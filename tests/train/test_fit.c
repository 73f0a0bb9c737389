/* SPDX-License-Identifier: Apache-2.0
 * The check whether a run fits: ranks that share a host or a device, and the message of a refusal. */
#include "models/job/fit.h"
#include "models/job/job.h"
#include "tests/scratch.h"

#define GIB ((int64_t)1 << 30)

static tx_fit_rank on_host(int32_t host, int64_t lasting, int64_t activations, int64_t left)
{
    tx_fit_rank r = {.host = host, .on_host = true, .device = "cpu", .left = left, .owner = "the host"};
    r.planned.bytes[TX_MEMORY_OPTIMIZER] = lasting;
    r.planned.bytes[TX_MEMORY_ACTIVATIONS] = activations;
    return r;
}

static tx_fit_rank on_card(int32_t host, const char *device, int64_t planned, int64_t memory)
{
    tx_fit_rank r = on_host(host, 0, planned, 0);
    r.on_host = false;
    r.device_memory = memory;
    snprintf(r.device, sizeof r.device, "%s", device);
    return r;
}

static void expect(const tx_fit_rank *ranks, int32_t count, bool fits, const char *text)
{
    char got[256];
    const tx_fit fit = tx_fit_narrowest(ranks, count);
    tx_fit_text(&fit, got, sizeof got);
    assert_true((fit.planned <= fit.limit) == fits);
    if (!strstr(got, text))
        fail_msg("%s", got);
}

static void one_rank(void **state)
{
    const tx_fit_rank fits = on_host(0, 2 * GIB, GIB, 3 * GIB), over = on_host(0, 2 * GIB, GIB, 3 * GIB - 1),
                      unknown = on_host(0, GIB, 0, INT64_MAX);
    expect(&fits, 1, true, "3.00 GiB are planned, the host has 3.00 GiB");
    expect(&unknown, 1, true, "is unknown");
    expect(&over, 1, false, "3.00 GiB are planned, the host has 3.00 GiB");
    assert_true(tx_fit_narrowest(&over, 1).lasting == 2 * GIB);
}

static void many_ranks(void **state)
{
    const tx_fit_rank one_host[] = {on_host(0, 0, 2 * GIB, 5 * GIB), on_host(0, 0, 2 * GIB, 3 * GIB)};
    const tx_fit_rank two_hosts[] = {on_host(0, 0, 2 * GIB, 3 * GIB), on_host(1, 0, 2 * GIB, 3 * GIB)};
    const tx_fit_rank cards[] = {on_card(0, "opencl:0", 6 * GIB, 8 * GIB), on_card(0, "opencl:1", 6 * GIB, 8 * GIB),
                                 on_host(0, 0, GIB, 2 * GIB)};
    const tx_fit_rank one_card[] = {on_card(0, "opencl:0", 6 * GIB, 8 * GIB), on_card(0, "opencl:0", 6 * GIB, 8 * GIB)};
    tx_fit_rank limited = on_host(0, 0, 2 * GIB, 3 * GIB); /* a device of the host that gives less than the host has */
    limited.device_memory = GIB;
    tx_fit_rank away[] = {on_card(0, "opencl:0", 6 * GIB, 8 * GIB), on_card(0, "opencl:1", 6 * GIB, 8 * GIB)};
    for (int r = 0; r < 2; r++) {
        away[r].planned.bytes[TX_MEMORY_OFFLOADED] = 2 * GIB;
        away[r].left = 5 * GIB;
        snprintf(away[r].owner, sizeof away[r].owner, "the host");
    }
    expect(away, 2, true, "4.00 GiB are planned by 2 ranks, the host has 5.00 GiB");
    away[0].left = 3 * GIB;
    expect(away, 2, false, "4.00 GiB are planned by 2 ranks, the host has 3.00 GiB");
    expect(&limited, 1, false, "2.00 GiB are planned, cpu has 1.00 GiB");
    expect(one_host, 2, false, "4.00 GiB are planned by 2 ranks, the host has 3.00 GiB");
    expect(two_hosts, 2, true, "2.00 GiB are planned");
    expect(cards, 3, true, "1.00 GiB are planned, the host has 2.00 GiB");
    expect(one_card, 2, false, "12.00 GiB are planned by 2 ranks, opencl:0 has 8.00 GiB");
}

/* No machine has enough memory for this: nothing is allocated. */
static void whole_run(void **state)
{
    char *folder = make_scratch(), *text = TX_PATH(folder, "text"), *output = TX_PATH(folder, "out");
    tx_job *job = NULL;
    assert_ok(tx_file_write(text, "some words that fill a block of sixteen tokens, or two of them", 62));
    assert_ok(tx_job_create(&job));
    assert_ok(tx_job_set(job, "config_overrides", "n_layer=100,n_embd=8192,n_head=64,n_positions=16"));
    assert_ok(tx_job_set(job, "train_file", text));
    assert_ok(tx_job_set(job, "output_dir", output));
    assert_refused(tx_job_run(job), TX_MEMORY, "the run does not fit");
    tx_job_free(job);
    remove_scratch(folder);
}

/* A dry run of a byte GPT-2 with six blocks, with this option; frees with tx_job_free. */
static tx_status dry_run(const char *text, const char *checkpointing, tx_job **job, tx_memory *planned)
{
    tx_status status = tx_job_create(job);
    const char *const set[][2] = {{"config_overrides", "n_layer=6,n_embd=64,n_head=4,n_positions=64"},
                                  {"train_file", text},
                                  {"threads", "1"},
                                  {"dry_run", "true"},
                                  {"gradient_checkpointing", checkpointing}};
    for (size_t i = 0; i < sizeof set / sizeof set[0] && !status; i++)
        status = tx_job_set(*job, set[i][0], set[i][1]);
    TX_THEN(status, tx_job_run(*job));
    return status ? status : tx_model_memory((*job)->model, planned);
}

static int64_t planned_with(const char *text, const char *checkpointing)
{
    tx_job *job = NULL;
    tx_memory planned = {0};
    assert_ok(dry_run(text, checkpointing, &job, &planned));
    tx_job_free(job);
    return tx_memory_total(&planned);
}

/* Recomputes only as many activations as the limit requires. The backend then holds the planned memory, to the byte. */
static void limit(void **state)
{
    char *folder = make_scratch(), *text = tx_path_join(folder, "text"), line[4096], option[64];
    memset(line, 'x', sizeof line);
    assert_ok(tx_file_write(text, line, sizeof line));
    const int64_t most = planned_with(text, "false"), least = planned_with(text, "true");
    assert_true(least < most);
    int32_t before = INT32_MAX;
    for (int k = 0; k <= 4; k++) {
        const int64_t bytes = least + (most - least) * k / 4;
        tx_job *job = NULL;
        tx_memory planned, counted;
        snprintf(option, sizeof option, "auto:%lld", (long long)bytes);
        assert_ok(dry_run(text, option, &job, &planned));
        assert_true(tx_memory_total(&planned) <= bytes);
        const tx_checkpointing *how = &tx_trainer_options_of(job->trainer)->checkpointing;
        assert_true(how->whole + how->cheap <= before && (how->whole + how->cheap > 0) == (bytes < most));
        before = how->whole + how->cheap;
        assert_ok(tx_model_allocate(job->model));
        assert_ok(tx_engine_memory(job->engine, &counted));
        assert_true(tx_memory_total(&counted) == tx_memory_total(&planned));
        tx_job_free(job);
    }
    tx_job *job = NULL;
    tx_memory planned;
    char both[64];
    snprintf(option, sizeof option, "auto:%lld", (long long)least - 1);
    snprintf(both, sizeof both, "%lld (", (long long)least);
    assert_refused(dry_run(text, option, &job, &planned), TX_MEMORY, both);
    assert_non_null(strstr(tx_error(), option + 5));
    tx_job_free(job);
    /* Options that would fit must meet the limit, too. */
    assert_refused(dry_run(text, "auto:1KiB", &job, &planned), TX_MEMORY, "together are not enough");
    tx_job_free(job);
    remove_scratch(folder);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_rank), cmocka_unit_test(many_ranks),
                                       cmocka_unit_test(whole_run), cmocka_unit_test(limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
