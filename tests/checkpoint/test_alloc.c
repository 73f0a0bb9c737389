/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of a save and of a resume fails once. The call then reports one message or succeeds without the
 * memory. It leaves no partial files and no leaks, the earlier checkpoint stays valid, and a valid checkpoint is never
 * reported as damaged.
 *
 * Without sanitizers this file's malloc serves the whole process, libraries included. With sanitizers the linker sends
 * only TX's own calls here (--wrap), and the sanitizers detect leaks. */
#include "models/files/checkpoint.h"
#include "tests/checkpoint/states.h"
#include "tests/checkpoint/tiny.h"
#include "tests/scratch.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>

/* ---- The allocator ------------------------------------------------------------------------------- */

/* Atomic because several threads read a model. */
static atomic_bool armed;
static atomic_long countdown, blocks; /* blocks: taken while armed, and not given back */

static bool fails(void)
{
    if (!armed || countdown-- != 1)
        return false;
    errno = ENOMEM;
    return true;
}

/* Libraries see these as well. */
#define EXPORT __attribute__((visibility("default")))

#ifdef TX_WRAP_MALLOC
#define NAMED(name) __wrap_##name
#define SYSTEM(name) __real_##name
#define COUNTED false /* libraries give blocks to TX to free */
#define ALIGNED __real_aligned_alloc
char *__wrap_strdup(const char *text);
#else
#define NAMED(name) name
#define SYSTEM(name) __libc_##name
#define COUNTED true
#define ALIGNED __libc_memalign
#endif

void *SYSTEM(malloc)(size_t size);
void *SYSTEM(calloc)(size_t number, size_t size);
void *SYSTEM(realloc)(void *memory, size_t size);
void *ALIGNED(size_t alignment, size_t size);
void SYSTEM(free)(void *memory);
EXPORT void *NAMED(malloc)(size_t size);
EXPORT void *NAMED(calloc)(size_t number, size_t size);
EXPORT void *NAMED(realloc)(void *memory, size_t size);
EXPORT void *NAMED(aligned_alloc)(size_t alignment, size_t size);
EXPORT void NAMED(free)(void *memory);

void *NAMED(malloc)(size_t size)
{
    void *memory = fails() ? NULL : SYSTEM(malloc)(size);
    blocks += armed && memory;
    return memory;
}

void *NAMED(calloc)(size_t number, size_t size)
{
    void *memory = fails() ? NULL : SYSTEM(calloc)(number, size);
    blocks += armed && memory;
    return memory;
}

void *NAMED(realloc)(void *memory, size_t size)
{
    void *moved = fails() ? NULL : SYSTEM(realloc)(memory, size);
    blocks += armed && !memory && moved;
    return moved;
}

void *NAMED(aligned_alloc)(size_t alignment, size_t size)
{
    void *memory = fails() ? NULL : ALIGNED(alignment, size);
    blocks += armed && memory;
    return memory;
}

void NAMED(free)(void *memory)
{
    blocks -= armed && memory;
    SYSTEM(free)(memory);
}

#ifdef TX_WRAP_MALLOC
char *__wrap_strdup(const char *text) /* the sanitizer's own does not come by here */
{
    char *copy = __wrap_malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}
#endif

/* ---- Scenes ---------------------------------------------------------------------------------------- */

typedef struct scene {
    const char *output;
    tiny *t;
    bool reads; /* jansson may return a truncated name if an allocation fails; then the tensor is not found */
    int warnings;
    char told[1200]; /* a warning that has another subject than memory */
} scene;

static void count_warning(void *context, const char *message)
{
    scene *s = context;
    s->warnings++;
    if (!strstr(message, "memory"))
        snprintf(s->told, sizeof s->told, "%s", message);
}

static tx_status save_state(scene *s)
{
    tx_output_lock *lock = NULL;
    TX_TRY(tx_output_lock_take(s->output, &lock));
    tx_stage *stage = NULL;
    tx_status status = tx_stage_create(&stage);
    TX_THEN(status, state_save(s->output, 20, 2, stage));
    tx_stage_free(stage);
    const tx_reporter report = {.warn = count_warning, .context = s};
    TX_THEN(status, tx_checkpoint_prune(s->output, 1, 20, NULL, &report));
    tx_output_lock_release(lock);
    return status;
}

static tx_status find_state(scene *s)
{
    const tx_reporter report = {.warn = count_warning, .context = s};
    char *folder = NULL;
    tx_status status = tx_checkpoint_newest(s->output, &report, &folder);
    free(folder);
    return status;
}

static tx_status save_model(scene *s)
{
    return tiny_save(s->t, s->output);
}

static tx_status load_model(scene *s)
{
    return tiny_load(s->t, s->output);
}

/* Runs `attempt` with its i-th allocation failing, for every i; `before` and `after` each of them. */
static void fail_each(scene *s, tx_status (*attempt)(scene *), void (*before)(scene *),
                      void (*after)(scene *, tx_status))
{
    long failures = 0;
    bool reached = true;
    before(s);
    assert_ok(attempt(s)); /* what libraries keep for ever, they have now */
    after(s, TX_OK);
    for (long i = 1; reached; i++) {
        before(s);
        s->told[0] = '\0';
        s->warnings = 0;
        blocks = 0;
        countdown = i;
        tx_fail(TX_OK, "nothing was said");
        armed = true;
        const tx_status status = attempt(s);
        armed = false;
        reached = countdown <= 0;
        if (status != TX_OK && status != TX_MEMORY && !(s->reads && status == TX_FORMAT))
            fail_msg("allocation %ld: status %d, message: %s", i, (int)status, tx_error());
        if (status == TX_MEMORY && (strcmp(tx_error(), "nothing was said") == 0 || !strstr(tx_error(), "memory")))
            fail_msg("allocation %ld: message: %s", i, tx_error());
        if (blocks != 0 && COUNTED)
            fail_msg("allocation %ld: %ld blocks are not given back (%s)", i, blocks, tx_error());
        if (s->told[0])
            fail_msg("allocation %ld: told: %s", i, s->told);
        failures += status != TX_OK;
        after(s, status);
    }
    assert_true(failures > 10);
    print_message("%ld allocations failed, and the calls with them\n", failures);
}

/* ---- Checkpoints ----------------------------------------------------------------------------------- */

static void clear(const char *output)
{
    char *copy = strdup(output);
    assert_non_null(copy);
    remove_scratch(copy);
    assert_int_equal(mkdir(output, 0777), 0);
}

static void one_checkpoint(scene *s)
{
    clear(s->output);
    assert_ok(state_save(s->output, 10, 1, NULL));
}

/* After a failure the old one is the newest, unless the failure was in removing it. */
static void check_newest(scene *s, tx_status status)
{
    char *folder = NULL;
    tx_output_lock *lock = NULL;
    assert_ok(tx_output_lock_take(s->output, &lock)); /* what could not be removed for want of memory */
    assert_ok(tx_checkpoint_newest(s->output, NULL, &folder));
    const int version = state_read(folder);
    if (status == TX_OK)
        assert_int_equal(version, 2);
    else
        assert_true(version == 1 || version == 2);
    /* The lock, the newest, and an old one if it was said that it stays. */
    const int entries = count_entries(s->output);
    assert_true(entries == 2 || (entries == 3 && version == 2 && (status || s->warnings)));
    tx_output_lock_release(lock);
    free(folder);
}

static void saving_without_memory(void **state)
{
    char *output = make_scratch();
    scene s = {.output = output};
    fail_each(&s, save_state, one_checkpoint, check_newest);
    remove_scratch(output);
}

static void nothing_before(scene *s)
{
}

static void nothing_after(scene *s, tx_status status)
{
}

static void finding_without_memory(void **state)
{
    char *output = make_scratch();
    scene s = {.output = output};
    one_checkpoint(&s);
    fail_each(&s, find_state, nothing_before, nothing_after);
    remove_scratch(output);
}

/* ---- Models ---------------------------------------------------------------------------------------- */

static void no_files(scene *s)
{
    clear(s->output);
}

/* A file with a final name is complete. */
static void check_files(scene *s, tx_status status)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    int whole = 0;
    for (int i = 0; i < 2; i++) {
        char *path = TX_PATH(s->output, names[i]);
        tx_st_file *file = NULL;
        if (tx_file_exists(path)) {
            assert_ok(tx_st_open(path, &file));
            tx_st_close(file);
            whole++;
        }
    }
    assert_true(status || whole == 2);
    assert_true(count_entries(s->output) <= 3);
}

static void moving_a_model_without_memory(void **state)
{
    const tx_optimizer_options adam = {
        .size = sizeof adam, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
    char *output = make_scratch();
    tiny t;
    scene s = {.output = output, .t = &t};
    assert_ok(tiny_create("cpu", &adam, NULL, &t));
    assert_ok(tiny_train(&t, 0, 2, NULL));
    fail_each(&s, save_model, no_files, check_files);
    assert_ok(tiny_save(&t, output));
    s.reads = true;
    fail_each(&s, load_model, nothing_before, nothing_after);
    tiny_free(&t);
    remove_scratch(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_without_memory),
        cmocka_unit_test(finding_without_memory),
        cmocka_unit_test(moving_a_model_without_memory),
    };
    struct stat info;
    if (stat("/dev/shm", &info) == 0) /* in memory: it is not the disk that is tested */
        setenv("TMPDIR", "/dev/shm", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
