/* SPDX-License-Identifier: Apache-2.0
 * From the second step of a run on, TX calls neither the C library's allocator (the linker replaces its functions in
 * TX's code by those below, --wrap) nor the backend's.
 *
 *     test_malloc DEVICE */
#include "tests/train/data.h"
#include "tests/train/small_gpt2.h"
#include "tests/wrap.h"

#include <stdatomic.h>
#include <string.h>

enum { STEPS = 7 };

static atomic_bool counting;
static atomic_long calls;

static void count(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&calls, 1);
}

WRAP_MALLOC(count())
WRAP_CALLOC(count())
WRAP_REALLOC(count())
WRAP_POSIX_MEMALIGN(count())
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), count())

/* Called after every step has been given: begins to count after the first, ends after the last. */
static int after_step(void *context)
{
    int *steps = context;
    (*steps)++;
    atomic_store(&counting, *steps < STEPS);
    return 0;
}

static void warn(void *context, const char *message)
{
    (void)context;
    printf("warning: %s\n", message);
}

/* No checkpoint is due in so short a run. */
static tx_status write_nothing(void *context, const char *folder)
{
    (void)context;
    return tx_fail(TX_INTERNAL, "%s: nothing was to be written", folder);
}

static int fail(const char *what)
{
    printf("FAIL: %s: %s\n", what, tx_error());
    return 1;
}

static tx_status train(tx_engine *engine, tx_model *model, const tx_dataset *data, tx_run_summary *summary)
{
    tx_config *config = NULL;
    TX_TRY(small_config(&config));
    const tx_trainer_options options = small_options();
    int steps = 0;
    char folder[] = "/tmp/tx_malloc_XXXXXX", log[64];
    if (!mkdtemp(folder))
        return tx_fail(TX_IO, "%s: cannot be made", folder);
    snprintf(log, sizeof log, "%s/" TX_RUN_LOG, folder);
    const tx_job_settings set = {.max_bad_steps = 1, .output_dir = folder, .workers = 2};
    tx_run_options run = {
        .size = sizeof run,
        .set = &set,
        .train = tx_causal_lm_samples(data),
        .schedule = tx_schedule_default(TX_SCHEDULE_LINEAR, 1e-3, 2, STEPS),
        .write = write_nothing,
        .report = {.warn = warn},
        .listener = {.context = &steps, .stop = after_step},
    };
    tx_run_state state;
    TX_TRY(tx_run_state_create(&state));
    tx_trainer *trainer = NULL;
    tx_status status = tx_trainer_create(model, config, &options, &trainer);
    TX_THEN(status, tx_model_init(model, 1));
    TX_THEN(status, tx_run(engine, model, trainer, &run, &state, summary));
    atomic_store(&counting, false);
    tx_trainer_free(trainer);
    tx_config_free(config);
    tx_run_state_free(&state);
    unlink(log);
    rmdir(folder);
    return status;
}

int main(int argc, char **argv)
{
    tx_engine_options options = {.size = sizeof options, .device = argc > 1 ? argv[1] : "cpu", .threads = 0};
    tx_test_device(options.device);
    tx_engine *engine = NULL;
    tx_model *model = NULL;
    tx_dataset *data = NULL;
    tx_run_summary summary;
    /* 13 blocks: the last micro-batch of an epoch is padded, its last step has fewer micro-batches. */
    if (small_data(13, &data) || tx_engine_create(&options, &engine) || tx_model_create(engine, &model))
        return fail("preparation");
    atomic_store(&counting, true);
    void *volatile probe = malloc(1);
    free(probe);
    if (atomic_exchange(&calls, 0) != 1)
        return fail("the test does not see a call of malloc");
    atomic_store(&counting, false);
    if (train(engine, model, data, &summary))
        return fail("training");
    long counted = atomic_load(&calls);
    printf("%ld calls of the allocator, %ld of the backend's, from step 2 to step %d\n", counted,
           (long)summary.traffic.allocations, STEPS);
    tx_model_free(model);
    tx_engine_free(engine);
    tx_dataset_free(data);
    return counted != 0 || summary.traffic.allocations != 0 || summary.steps != STEPS;
}
