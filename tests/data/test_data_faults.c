/* SPDX-License-Identifier: Apache-2.0
 * Memory, threads and locks that the system refuses: clean errors, or the same data made otherwise. The linker sends
 * TX's calls to the functions below (--wrap). */

#include "models/files/hub.h"
#include "models/task/loader.h"
#include "tests/data/texts.h"
#include "tests/wrap.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_long calls, fails_at;                  /* calls of the allocator, and the one that fails, or 0 */
static atomic_long threads_started, threads_allowed; /* threads_allowed is -1 for all */
static atomic_bool lock_fails;

static char *folder, *text_path, *json_path;
static tx_tokenizer *bytes;

/* Whether this call of the allocator is the one that fails. */
static bool refused(void)
{
    return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fails_at);
}

/* Whether another thread may be started. */
static bool is_allowed(void)
{
    const long allowed = atomic_load(&threads_allowed);
    if (allowed >= 0 && atomic_load(&threads_started) >= allowed)
        return false;
    atomic_fetch_add(&threads_started, 1);
    return true;
}

static bool refuses_lock(void)
{
    errno = EPERM;
    return atomic_load(&lock_fails);
}

WRAP_MALLOC(if (refused()) return NULL)
WRAP_CALLOC(if (refused()) return NULL)
WRAP_REALLOC(if (refused()) return NULL)
WRAP_POSIX_MEMALIGN(if (refused()) return ENOMEM)
WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
     (thread, attributes, run, argument), if (!is_allowed()) return EAGAIN)
WRAP(int, mlock, (const void *memory, size_t size), (memory, size), if (refuses_lock()) return -1)

/* A file of 250,000 bytes: enough for four threads. */
static char *make_file(const char *name, bool json)
{
    size_t size = 250000, used = 0;
    char *text = malloc(size + 100);
    for (int line = 0; used < size; line++)
        used += (size_t)sprintf(text + used, json ? "{\"text\": \"line %d of it\"}\n" : "line %d of it\n", line);
    char *path = put(folder, name, text, used);
    free(text);
    return path;
}

static int begin(void **state)
{
    atomic_store(&threads_allowed, -1);
    folder = make_scratch();
    text_path = make_file("a.txt", false);
    json_path = make_file("a.jsonl", true);
    return tx_tokenizer_bytes(&bytes);
}

static int end(void **state)
{
    remove_scratch(folder);
    free(text_path);
    free(json_path);
    tx_tokenizer_free(bytes);
    return 0;
}

/* Opens a file with four threads. Sets the digest if that succeeds. */
static tx_status open_file(const char *path, const char *cache, reported *r, tx_dataset **dataset,
                           char digest[TX_DIGEST_TEXT])
{
    tx_dataset_options options = plain_options(bytes, 16, r);
    options.threads = 4;
    options.group = 100;
    options.cache = cache;
    tx_status status = tx_dataset_open(path, &options, dataset);
    if (!status)
        strcpy(digest, tx_dataset_digest(*dataset));
    return status;
}

/* Five steps by two threads: the sum of all tokens keeps a wrong batch from passing. */
static tx_status load(const tx_dataset *dataset, reported *r, int64_t *sum)
{
    const tx_job_settings set = {.data_seed = 1, .workers = 2, .pin = true};
    tx_loader_options options = {sizeof options, &set, .step_rows = 6, .batch = 3,
                                 .report = {.warn = report_line, .context = r}};
    const tx_samples samples = tx_causal_lm_samples(dataset);
    tx_loader *loader = NULL;
    tx_status status = tx_loader_create(&samples, &options, 0, &loader);
    *sum = 0;
    for (int step = 0; step < 5 && !status; step++) {
        const tx_step_batch *b = NULL;
        status = tx_loader_next(loader, &b);
        const int32_t *tokens = status ? NULL : b->batch.field[0], *labels = status ? NULL : b->batch.field[1];
        for (int64_t i = 0; !status && i < b->micro_batches * 3 * 16; i++)
            *sum += tokens[i] * (1 + i % 7) + labels[i];
    }
    tx_loader_free(loader);
    return status;
}

static void remove_cache(const char *cache)
{
    if (tx_file_exists(cache))
        remove_scratch(strdup(cache));
}

/* The i-th call of the allocator fails, for every i: TX_MEMORY with a message, or the same data. */
static void memory_refused(const char *path, bool cached)
{
    char digest[TX_DIGEST_TEXT] = "", found[TX_DIGEST_TEXT];
    char *cache = TX_PATH(folder, "cache");
    int64_t sum = 0, found_sum;
    long refusals = 0, survived = 0, of_a_run = 0;
    for (long i = 0; of_a_run >= i; i++) {
        reported r = {0};
        tx_dataset *dataset = NULL;
        remove_cache(cache);
        atomic_store(&calls, 0);
        atomic_store(&fails_at, i);
        tx_status status = open_file(path, cached ? cache : NULL, &r, &dataset, i ? found : digest);
        if (!status)
            status = load(dataset, &r, i ? &found_sum : &sum);
        of_a_run = atomic_load(&calls) + 1; /* past the last: no call has failed */
        atomic_store(&fails_at, 0);
        if (status) {
            assert_int_equal(status, TX_MEMORY);
            assert_non_null(strstr(tx_error(), "memory"));
            refusals++;
        } else if (i) {
            assert_string_equal(found, digest);
            assert_int_equal(found_sum, sum);
            survived++;
        }
        tx_dataset_free(dataset);
    }
    print_message("%ld calls fail, %ld are done without\n", refusals, survived);
    assert_true(refusals > 20);
    remove_cache(cache);
}

static void memory_for_texts(void **state)
{
    memory_refused(text_path, false);
}

static void memory_for_the_cache(void **state)
{
    memory_refused(text_path, true);
}

static void memory_for_json(void **state)
{
    memory_refused(json_path, false);
}

static void memory_for_names(void **state)
{
    long of_a_run = 1;
    for (long i = 1; of_a_run >= i; i++) {
        char *path = NULL;
        atomic_store(&calls, 0);
        atomic_store(&fails_at, i);
        tx_status status = tx_hub_dataset(folder, NULL, &path);
        of_a_run = atomic_load(&calls) + 1;
        atomic_store(&fails_at, 0);
        assert_int_equal(status, of_a_run > i ? TX_MEMORY : TX_NOT_FOUND);
        assert_null(path);
    }
    assert_true(of_a_run > 3);
}

/* With this many threads allowed the data are the same; each use of threads reports the limit once. */
static void threads_refused(void **state)
{
    char digest[TX_DIGEST_TEXT] = "", found[TX_DIGEST_TEXT];
    int64_t sum = 0, found_sum;
    for (long allowed = 5; allowed >= 0; allowed--) {
        reported r = {0};
        tx_dataset *dataset = NULL;
        atomic_store(&threads_started, 0);
        atomic_store(&threads_allowed, allowed);
        assert_ok(open_file(text_path, NULL, &r, &dataset, allowed == 5 ? digest : found));
        assert_int_equal(r.count, allowed < 3);
        if (allowed < 3)
            assert_non_null(strstr(r.last, "refuses some of the 4 threads for tokenising"));
        assert_ok(load(dataset, &r, allowed == 5 ? &sum : &found_sum));
        assert_int_equal(r.count, (allowed < 3) + (allowed < 5));
        if (allowed < 5) {
            assert_string_equal(found, digest);
            assert_int_equal(found_sum, sum);
            assert_non_null(strstr(r.last, allowed == 4 ? "continuing with 1" : "when its step begins"));
        }
        tx_dataset_free(dataset);
    }
    atomic_store(&threads_allowed, -1);
}

static void lock_refused(void **state)
{
    char digest[TX_DIGEST_TEXT];
    int64_t sum, found_sum;
    reported none = {0}, r = {0};
    tx_dataset *dataset = NULL;
    assert_ok(open_file(text_path, NULL, &none, &dataset, digest));
    assert_ok(load(dataset, &none, &sum));
    atomic_store(&lock_fails, true);
    assert_ok(load(dataset, &r, &found_sum));
    atomic_store(&lock_fails, false);
    assert_int_equal(found_sum, sum);
    assert_int_equal(r.count, 1);
    assert_non_null(strstr(r.last, "cannot lock the"));
    tx_dataset_free(dataset);
}

/* From the second step on nothing is allocated. */
static void steps_allocate_nothing(void **state)
{
    char digest[TX_DIGEST_TEXT];
    reported r = {0};
    tx_dataset *dataset = NULL;
    assert_ok(open_file(text_path, NULL, &r, &dataset, digest));
    const tx_samples samples = tx_causal_lm_samples(dataset);
    for (int32_t workers = 0; workers < 3; workers++) {
        const tx_job_settings set = {.data_seed = 1, .workers = workers};
        tx_loader_options options = {sizeof options, &set, .step_rows = 6, .batch = 3,
                                     .report = {.warn = report_line, .context = &r}};
        tx_loader *loader = NULL;
        assert_ok(tx_loader_create(&samples, &options, 0, &loader));
        long before = atomic_load(&calls);
        for (int step = 0; step < 2000; step++) {
            const tx_step_batch *b = NULL;
            assert_ok(tx_loader_next(loader, &b));
        }
        assert_int_equal(atomic_load(&calls), before);
        tx_loader_free(loader);
    }
    tx_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_for_texts),       cmocka_unit_test(memory_for_the_cache),
        cmocka_unit_test(memory_for_json),        cmocka_unit_test(memory_for_names),
        cmocka_unit_test(threads_refused),        cmocka_unit_test(lock_refused),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
