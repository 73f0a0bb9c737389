/* SPDX-License-Identifier: Apache-2.0
 * Loaders: the same batches by any number of threads and from any step, against rows read one by one. */

#include "models/task/loader.h"
#include "tests/data/texts.h"

#include <sys/resource.h>
#include <time.h>

#define BLOCK 5
#define SEED 99

static char *folder;

/* A dataset of `blocks` blocks, block b being b, b + 1, ... */
static tx_dataset *make_dataset(int64_t blocks)
{
    uint16_t ids[BLOCK * 64];
    for (int64_t i = 0; i < blocks * BLOCK; i++)
        ids[i] = (uint16_t)(i / BLOCK + i % BLOCK);
    char *path = put(folder, "a.bin", ids, (size_t)blocks * BLOCK * sizeof ids[0]);
    tx_dataset_options options = plain_options(NULL, BLOCK, NULL);
    tx_dataset *dataset = NULL;
    assert_ok(tx_dataset_open(path, &options, &dataset));
    free(path);
    return dataset;
}

static int begin(void **state)
{
    folder = make_scratch();
    return 0;
}

static int end(void **state)
{
    remove_scratch(folder);
    return 0;
}

static tx_job_settings set;

static tx_loader_options options_of(int64_t batch, int64_t accumulation, int32_t workers, reported *r)
{
    set = (tx_job_settings){.data_seed = SEED, .workers = workers};
    return (tx_loader_options){
        .size = sizeof(tx_loader_options),
        .set = &set,
        .step_rows = batch * accumulation,
        .batch = batch,
        .report = {.warn = r ? report_line : NULL, .context = r},
    };
}

/* Holds a batch against the plain loop over epochs, micro-batches and rows. */
static void expect_batch(const tx_step_batch *b, int64_t step, int64_t blocks, int64_t batch, int64_t accumulation)
{
    int64_t of_epoch = (blocks + batch - 1) / batch, steps = (of_epoch + accumulation - 1) / accumulation;
    int64_t epoch = step / steps, micro = step % steps * accumulation, micros = 0, rows = 0;
    tx_sample_order order = {.shuffle = true, .seed = SEED, .epoch = (uint64_t)epoch};
    for (; micros < accumulation && micro + micros < of_epoch; micros++)
        for (int64_t row = 0; row < batch; row++) {
            int64_t place = (micro + micros) * batch + row;
            const int32_t *tokens = (const int32_t *)b->batch.field[0] + (micros * batch + row) * BLOCK;
            const int32_t *labels = (const int32_t *)b->batch.field[1] + (micros * batch + row) * BLOCK;
            int64_t block = place < blocks ? tx_sample_order_at(&order, blocks, place) : -1;
            rows += block >= 0;
            for (int64_t t = 0; t < BLOCK; t++) {
                assert_int_equal(tokens[t], block < 0 ? TX_NO_TOKEN : block + t);
                assert_int_equal(labels[t], block < 0 || t + 1 == BLOCK ? TX_IGNORE_LABEL : block + t + 1);
            }
        }
    assert_int_equal(b->step, step);
    assert_int_equal(b->epoch, epoch);
    assert_int_equal(b->first, micro * batch);
    assert_int_equal(b->micro_batches, micros);
    assert_int_equal(b->batch.rows, micros * batch);
    assert_int_equal(b->rows, rows);
    assert_int_equal(b->tokens, rows * BLOCK);
    assert_int_equal(b->labels, rows * (BLOCK - 1));
    assert_true(fabs(b->passed - ((double)epoch + (double)(micro + micros) / (double)of_epoch)) < 1e-12);
    assert_true(b->waited >= 0.0 && b->waited < 60.0);
}

static void any_threads_any_step(void **state)
{
    static const int64_t shapes[][3] = {{13, 2, 2}, {13, 1, 1}, {13, 13, 1}, {13, 20, 3},
                                        {12, 3, 4}, {1, 1, 1},  {7, 3, 100}};
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        int64_t blocks = shapes[k][0], batch = shapes[k][1], accumulation = shapes[k][2];
        tx_dataset *dataset = make_dataset(blocks);
        const tx_samples samples = tx_causal_lm_samples(dataset);
        for (int32_t workers = 0; workers <= 6; workers += 1 + workers)
            for (int64_t first = 0; first < 9; first += 4) {
                tx_loader_options options = options_of(batch, accumulation, workers, NULL);
                tx_loader *loader = NULL;
                assert_ok(tx_loader_create(&samples, &options, first, &loader));
                for (int64_t step = first; step < first + 20; step++) {
                    const tx_step_batch *b = NULL;
                    assert_ok(tx_loader_next(loader, &b));
                    expect_batch(b, step, blocks, batch, accumulation);
                }
                tx_loader_free(loader);
            }
        tx_dataset_free(dataset);
    }
}

static void last_one_stays(void **state)
{
    tx_dataset *dataset = make_dataset(40);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    for (int32_t workers = 0; workers < 4; workers++) {
        tx_loader_options options = options_of(2, 1, workers, NULL);
        tx_loader *loader = NULL;
        assert_ok(tx_loader_create(&samples, &options, 0, &loader));
        const tx_step_batch *before = NULL, *now = NULL;
        for (int64_t step = 0; step < 60; step++) {
            assert_ok(tx_loader_next(loader, &now));
            if (step % 16 == 0) /* time for workers to write into a buffer in use */
                nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
            if (before)
                expect_batch(before, step - 1, 40, 2, 1);
            before = now;
        }
        tx_loader_free(loader);
    }
    tx_dataset_free(dataset);
}

/* The rows of all ranks together are those of a single rank, for any shares and micro-batch sizes. A step has the same
 * rows in every case. */
static void shares_of_ranks(void **state)
{
    enum { BLOCKS = 29, STEP = 12, STEPS = 9 };
    static const int64_t shares[][4] = {{12}, {6, 6}, {3, 1}, {4, 4, 1}, {3, 3, 3, 3}, {5, 2}};
    tx_dataset *dataset = make_dataset(BLOCKS);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    for (size_t k = 0; k < sizeof shares / sizeof shares[0]; k++) {
        int64_t micro = shares[k][0] + shares[k][1] + shares[k][2] + shares[k][3], first = 0;
        for (int rank = 0; rank < 4 && shares[k][rank]; first += shares[k][rank++]) {
            tx_loader_options options = options_of(micro, 1, rank % 3, NULL);
            tx_loader *loader = NULL;
            options.step_rows = STEP;
            options.first = first;
            options.rows = shares[k][rank];
            assert_ok(tx_loader_create(&samples, &options, 2, &loader));
            for (int64_t step = 2; step < STEPS; step++) {
                const tx_step_batch *b = NULL;
                assert_ok(tx_loader_next(loader, &b));
                tx_sample_order order = {.shuffle = true, .seed = SEED, .epoch = (uint64_t)step / 3};
                int64_t left = BLOCKS - step % 3 * STEP, rows = left < STEP ? left : STEP;
                assert_int_equal(b->rows, rows);
                assert_int_equal(b->tokens, rows * BLOCK);
                assert_int_equal(b->labels, rows * (BLOCK - 1));
                assert_int_equal(b->micro_batches, (rows + micro - 1) / micro);
                const int32_t *tokens = b->batch.field[0], *labels = b->batch.field[1];
                for (int64_t i = 0; i < b->batch.rows; i++) {
                    int64_t row = i / options.rows * micro + first + i % options.rows;
                    int64_t block = row < rows ? tx_sample_order_at(&order, BLOCKS, step % 3 * STEP + row) : -1;
                    assert_int_equal(tokens[i * BLOCK + 1], block < 0 ? TX_NO_TOKEN : block + 1);
                    assert_int_equal(labels[i * BLOCK], block < 0 ? TX_IGNORE_LABEL : block + 1);
                }
            }
            tx_loader_free(loader);
        }
    }
    tx_dataset_free(dataset);
}

static void free_without_use(void **state)
{
    tx_dataset *dataset = make_dataset(13);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    for (int i = 0; i < 50; i++) {
        tx_loader_options options = options_of(2, 2, i % 5, NULL);
        tx_loader *loader = NULL;
        const tx_step_batch *b = NULL;
        assert_ok(tx_loader_create(&samples, &options, i, &loader));
        for (int k = 0; k < i % 4; k++)
            assert_ok(tx_loader_next(loader, &b));
        tx_loader_free(loader);
    }
    tx_loader_free(NULL);
    tx_dataset_free(dataset);
}

static void steps_of_an_epoch(void **state)
{
    assert_int_equal(tx_loader_epoch_steps(13, 4), 4);
    assert_int_equal(tx_loader_epoch_steps(12, 6), 2);
    assert_int_equal(tx_loader_epoch_steps(1, 10000), 1);
    assert_int_equal(tx_loader_epoch_steps(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(tx_loader_epoch_steps(5, INT64_MAX), 1);
}

/* Samples in their order, without an incomplete last micro-batch: 13 blocks by 2 are 6 micro-batches. */
static void in_order_without_the_rest(void **state)
{
    tx_dataset *dataset = make_dataset(13);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_loader_options options = options_of(2, 4, 0, NULL);
    tx_loader *loader = NULL;
    assert_int_equal(tx_loader_used(13, 2, true), 12);
    assert_int_equal(tx_loader_used(13, 2, false), 13);
    set.drop_last = true;
    set.sampling = TX_SAMPLING_SEQUENTIAL;
    assert_ok(tx_loader_create(&samples, &options, 0, &loader));
    for (int64_t step = 0; step < 6; step++) { /* of an epoch: 8 rows, then 4 */
        const tx_step_batch *b = NULL;
        assert_ok(tx_loader_next(loader, &b));
        assert_int_equal(b->rows, step % 2 ? 4 : 8);
        assert_int_equal(b->batch.rows, b->rows);
        assert_true(fabs(b->passed - ((double)(step / 2) + (step % 2 ? 1.0 : 4.0 / 6.0))) < 1e-12);
        for (int64_t row = 0; row < b->rows; row++)
            assert_int_equal(((const int32_t *)b->batch.field[0])[row * BLOCK], step % 2 * 8 + row);
    }
    tx_loader_free(loader);
    options.batch = 14;
    assert_refused(tx_loader_create(&samples, &options, 0, &loader), TX_INVALID, "too few to fill");
    tx_dataset_free(dataset);
}

static int64_t some_length(const tx_samples *samples, int64_t number)
{
    (void)samples;
    return number * 7 % 11;
}

/* The samples of two epochs as transformers 5.24's get_length_grouped_indices gives them for these lengths and steps of
 * two rows, with TX's shuffle instead of torch.randperm. */
static void rows_of_like_length(void **state)
{
    enum { BLOCKS = 23, STEPS = 12 };
    static const int64_t wanted[2][BLOCKS] = {
        {3, 15, 5, 0, 20, 9, 16, 8, 17, 12, 7, 2, 6, 1, 10, 19, 4, 18, 13, 22, 14, 21, 11},
        {14, 12, 18, 10, 20, 9, 21, 11, 17, 6, 2, 0, 3, 1, 15, 8, 4, 7, 16, 22, 13, 5, 19}};
    tx_dataset *dataset = make_dataset(BLOCKS);
    tx_samples samples = tx_causal_lm_samples(dataset);
    tx_task task = *samples.task;
    tx_loader *loader = NULL;
    tx_loader_options options = options_of(1, 2, 0, NULL);
    set.sampling = TX_SAMPLING_BY_LENGTH;
    assert_false(tx_loader_groups(&set, samples.task)); /* all rows have one length */
    task.length = some_length;
    samples.task = &task;
    for (set.workers = 0; set.workers < 5; set.workers += 2) {
        assert_ok(tx_loader_create(&samples, &options, set.workers, &loader));
        for (int64_t step = set.workers; step < 2 * STEPS; step++) {
            const tx_step_batch *b = NULL;
            assert_ok(tx_loader_next(loader, &b));
            for (int64_t row = 0; row < b->rows; row++)
                assert_int_equal(((const int32_t *)b->batch.field[0])[row * BLOCK],
                                 wanted[step / STEPS][step % STEPS * 2 + row]);
        }
        tx_loader_free(loader);
    }
    tx_dataset_free(dataset);
}

static void options_refused(void **state)
{
    tx_dataset *dataset = make_dataset(13);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_loader *loader = NULL;
    tx_loader_options o = options_of(2, 2, 0, NULL);
    o.size++;
    assert_refused(tx_loader_create(&samples, &o, 0, &loader), TX_INVALID, "size field");
    const struct {
        int64_t batch, accumulation, first;
        int32_t workers;
    } bad[] = {{0, 1, 0, 0}, {1, 0, 0, 0}, {1, 1, -1, 0}, {1, 1, 0, -1}, {1, 1, 0, 100000}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o = options_of(bad[i].batch, bad[i].accumulation, bad[i].workers, NULL);
        assert_refused(tx_loader_create(&samples, &o, bad[i].first, &loader), TX_INVALID, "loader: ");
    }
    o = options_of(4, 1, 0, NULL);
    o.first = 3;
    o.rows = 2;
    assert_refused(tx_loader_create(&samples, &o, 0, &loader), TX_INVALID, "rows 3 to 5");
    o = options_of(4, 1, 0, NULL);
    const tx_samples none = tx_causal_lm_samples(NULL);
    assert_refused(tx_loader_create(&none, &o, 0, &loader), TX_INVALID, "no samples");
    o = options_of(INT64_MAX / 4, 1, 0, NULL);
    assert_refused(tx_loader_create(&samples, &o, 0, &loader), TX_MEMORY, "too large");
    assert_null(loader);
    tx_dataset_free(dataset);
}

/* Memory is pinned, or the failure is reported once and the run continues. */
static void pinned(void **state)
{
    tx_dataset *dataset = make_dataset(13);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    for (int allowed = 1; allowed >= 0; allowed--) {
        struct rlimit limit = {allowed ? before.rlim_cur : 0, before.rlim_max};
        reported r = {0};
        tx_loader_options options = options_of(2, 2, 1, &r);
        tx_loader *loader = NULL;
        set.pin = true;
        assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
        assert_ok(tx_loader_create(&samples, &options, 0, &loader));
        for (int64_t step = 0; step < 9; step++) {
            const tx_step_batch *b = NULL;
            assert_ok(tx_loader_next(loader, &b));
            expect_batch(b, step, 13, 2, 2);
        }
        tx_loader_free(loader);
        assert_in_range(r.count, 0, 1);
        if (!allowed && geteuid() != 0) /* root may lock whatever the limit */
            assert_int_equal(r.count, 1);
        if (r.count)
            assert_non_null(strstr(r.last, "cannot lock the"));
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    tx_dataset_free(dataset);
}

static void order_as_text(void **state)
{
    tx_dataset *dataset = make_dataset(13);
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_loader_options options = options_of(2, 3, 0, NULL);
    char *path = TX_PATH(folder, "order"), *text = NULL;
    size_t size;
    assert_ok(tx_loader_dump_order(&samples, &options, 500, path));
    assert_ok(tx_file_read(path, INT64_MAX, &text, &size));
    char *at = text;
    for (int64_t step = 0; step < 500; step++) {
        int64_t epoch = step / 3, first = step % 3 * 6;
        tx_sample_order order = {.shuffle = true, .seed = SEED, .epoch = (uint64_t)epoch};
        for (int64_t place = first; place < first + 6 && place < 13; place++) {
            assert_int_equal(strtoll(at, &at, 10), epoch);
            assert_int_equal(*at, ' ');
            assert_int_equal(strtoll(at, &at, 10), tx_sample_order_at(&order, 13, place));
            assert_int_equal(*at++, '\n');
        }
    }
    assert_ptr_equal(at, text + size);
    free(text);
    assert_refused(tx_loader_dump_order(&samples, &options, 1, "/dev/null/order"), TX_NOT_FOUND, "/dev/null/order");
    tx_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_threads_any_step),
        cmocka_unit_test(last_one_stays),
        cmocka_unit_test(shares_of_ranks),
        cmocka_unit_test(free_without_use),
        cmocka_unit_test(steps_of_an_epoch),
        cmocka_unit_test(options_refused),
        cmocka_unit_test(in_order_without_the_rest),
        cmocka_unit_test(rows_of_like_length),
        cmocka_unit_test(pinned),
        cmocka_unit_test(order_as_text),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
