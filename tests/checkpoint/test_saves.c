/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints by their interface: how they are written, and which go. */
#define _GNU_SOURCE /* O_DIRECT */
#include "models/files/data_file.h"
#include "tests/checkpoint/saves.h"

#include <errno.h>
#include <sys/resource.h>

/* ---- Writing ------------------------------------------------------------------------------------- */

typedef enum spoiler { NO_FILES, A_MANIFEST, FOLDERS, A_LINK, A_PIPE, BAD_NAME, SPOILERS } spoiler;

static void spoil(const char *folder, spoiler how)
{
    if (how != NO_FILES)
        put(at(folder, "file"), "x");
    if (how == A_MANIFEST)
        put(at(folder, TX_CHECKPOINT_MANIFEST), "{}");
    if (how == FOLDERS) { /* in each other */
        assert_int_equal(mkdir(at(folder, "sub"), 0777), 0);
        assert_int_equal(mkdir(at(folder, "sub/more"), 0777), 0);
    }
    if (how == A_LINK)
        assert_int_equal(symlink("file", at(folder, "link")), 0);
    if (how == A_PIPE)
        assert_int_equal(mkfifo(at(folder, "pipe"), 0666), 0);
    if (how == BAD_NAME)
        put(at(folder, "\xff\xfe"), "x");
}

/* A save that fails leaves the one before it, whether of the same step or of another, and nothing else. */
static void failed_save_leaves_what_was(void **state)
{
    for (int how = 0; how < SPOILERS; how++) {
        for (int64_t step = 10; step <= 20; step += 10) {
            char *output = make_scratch();
            tx_checkpoint *checkpoint = NULL;
            save(output, 10, 1);
            assert_ok(tx_checkpoint_begin(output, step, &checkpoint));
            spoil(tx_checkpoint_folder(checkpoint), (spoiler)how);
            const tx_status status = tx_checkpoint_commit(checkpoint);
            if (status == TX_OK || !strstr(tx_error(), output))
                fail_msg("spoiler %d: status %d, message: %s", how, (int)status, tx_error());
            assert_int_equal(count_entries(output), 1);
            assert_int_equal(newest(output), 1);
            remove_scratch(output);
        }
    }
}

static void save_can_be_given_up(void **state)
{
    char *output = make_scratch();
    tx_checkpoint *checkpoint = NULL;
    tx_checkpoint_discard(NULL);
    assert_refused(tx_checkpoint_begin(output, -1, &checkpoint), TX_INVALID, "-1");
    assert_null(checkpoint);
    assert_ok(tx_checkpoint_begin(output, 5, &checkpoint));
    put(at(tx_checkpoint_folder(checkpoint), "half"), "x");
    tx_fail(TX_IO, "the reason");
    tx_checkpoint_discard(checkpoint);
    assert_string_equal(tx_error(), "the reason");
    assert_int_equal(count_entries(output), 0);
    put(at(output, "plain"), "x");
    assert_refused(tx_checkpoint_begin(at(output, "plain"), 5, &checkpoint), TX_IO, "plain");
    remove_scratch(output);
}

/* The linker sends the library's calls here. The reading number `faulty` returns other data. With `cached` the file
 * system reads only through the cache. */
static int readings, faulty = -1;
static bool cached;
tx_status __real_tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes);
tx_status __wrap_tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes);
ssize_t __real_pread(int file, void *data, size_t size, off_t at);
ssize_t __wrap_pread(int file, void *data, size_t size, off_t at);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    errno = EINVAL;
    return cached && (flags & O_DIRECT) ? -1 : __real_open(path, flags, mode);
}

tx_status __wrap_tx_data_file_read(const tx_data_file *file, int64_t at, void *data, size_t bytes)
{
    const tx_status status = __real_tx_data_file_read(file, at, data, bytes);
    if (readings++ == faulty)
        *(char *)data ^= 1;
    return status;
}

/* A reading past the cache. */
ssize_t __wrap_pread(int file, void *data, size_t size, off_t at)
{
    const ssize_t got = __real_pread(file, data, size, at);
    if (got > 0 && (fcntl(file, F_GETFL) & O_DIRECT) && readings++ == faulty)
        *(char *)data ^= 1;
    return got;
}

tx_status __real_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter);
tx_status __wrap_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter);

tx_status __wrap_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter)
{
    if (readings++ == faulty)
        assert_ok(tx_digest_add(digest, "other", 5));
    return __real_tx_data_file_digest(file, at, end, digest, reporter);
}

/* The disk returns other data than were written: once for each reading of each file, and at last for none. */
static void tell_faulty_disk(int all, tx_stage *stage)
{
    char *output = make_scratch();
    for (faulty = 0; count_entries(output) == 0; faulty++) {
        readings = 0;
        const tx_status status = state_save(output, 10, 1, stage);
        assert_int_equal(status == TX_OK, readings <= faulty);
        assert_true(status == TX_OK || strstr(tx_error(), "differs from the data written"));
    }
    assert_int_equal(faulty, all + 1);
    faulty = -1;
    remove_scratch(output);
}

static void faulty_disk_is_told(void **state)
{
    tx_stage *stage = NULL;
    assert_ok(tx_stage_create(&stage));
    tell_faulty_disk(6, NULL);  /* two readings of each file but the empty one: of the cache, and past it */
    tell_faulty_disk(5, stage); /* one file is compared with the stage */
    cached = true;
    tell_faulty_disk(8, NULL); /* each of four files before and after its flush */
    tell_faulty_disk(8, stage);
    cached = false;
    tx_stage_free(stage);
}

/* Staged tensors are not in the folder until the commit. The checkpoint then has the bytes of one without a stage. */
static void staged_saves_have_the_same_bytes(void **state)
{
    char *output = make_scratch();
    tx_stage *stage = NULL;
    assert_ok(tx_stage_create(&stage));
    for (int version = 1; version <= 4; version++) {
        char *plain = NULL, *staged = NULL;
        size_t size[2];
        tx_checkpoint *checkpoint = NULL;
        cached = version > 2; /* a file system that writes only through the cache */
        save(output, 10, version);
        assert_ok(tx_file_read(at(output, "checkpoint-10/manifest.json"), 1 << 20, &plain, &size[0]));
        tx_stage_used = stage;
        assert_ok(tx_checkpoint_begin(output, 10, &checkpoint));
        assert_ok(state_write(tx_checkpoint_folder(checkpoint), version));
        tx_stage_used = NULL;
        assert_false(exists(at(tx_checkpoint_folder(checkpoint), "model.safetensors")));
        assert_ok(tx_checkpoint_commit(checkpoint));
        assert_int_equal(newest(output), version);
        assert_ok(tx_file_read(at(output, "checkpoint-10/manifest.json"), 1 << 20, &staged, &size[1]));
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(plain, staged, size[0]);
        free(plain);
        free(staged);
    }
    cached = false;
    assert_null(tx_stage_place(stage, "file", INT64_MAX / 4)); /* more than there is */
    tx_stage_free(stage);
    remove_scratch(output);
}

static void same_step_is_replaced(void **state)
{
    char *output = make_scratch();
    for (int version = 1; version <= 3; version++) {
        save(output, 10, version);
        assert_int_equal(newest(output), version);
        assert_int_equal(count_entries(output), 1);
    }
    cut(at(output, "checkpoint-10")); /* a damaged one as well */
    save(output, 10, 4);
    assert_int_equal(newest(output), 4);
    assert_int_equal(count_entries(output), 1);
    remove_scratch(output);
}

/* ---- Removing the oldest --------------------------------------------------------------------------- */

static void prune(const char *output, int64_t keep, int64_t whole, const char *best)
{
    told[0] = '\0';
    assert_ok(tx_checkpoint_prune(output, keep, whole, best, &report));
}

static void oldest_go(void **state)
{
    char *output = make_scratch();
    for (int i = 1; i <= 6; i++)
        save(output, i * 5, i); /* 5, 10, ... : not in the order of their texts */
    prune(output, 0, 30, NULL);
    assert_int_equal(count_entries(output), 6);
    prune(output, 6, 30, NULL);
    assert_int_equal(count_entries(output), 6);
    prune(output, 4, 30, at(output, "checkpoint-5")); /* the best is one of the four */
    assert_int_equal(count_entries(output), 4);
    assert_true(exists(at(output, "checkpoint-5")));
    assert_false(exists(at(output, "checkpoint-15")));
    prune(output, 1, 30, at(output, "./checkpoint-5/"));
    assert_int_equal(count_entries(output), 2);
    assert_string_equal(told, "");
    prune(output, 1, 30, at(output, "checkpoint-77"));
    assert_int_equal(count_entries(output), 1);
    assert_int_equal(newest(output), 6);
    assert_refused(tx_checkpoint_prune(output, -1, 30, NULL, &report), TX_INVALID, "-1");
    remove_scratch(output);
}

/* The checkpoint that was just written stays, even if others are newer. Files of others stay and are reported. */
static void pruning_spares_what_is_needed(void **state)
{
    char *output = make_scratch();
    for (int i = 1; i <= 4; i++)
        save(output, i * 10, i);
    cut(at(output, "checkpoint-40"));
    flip(at(output, "checkpoint-30"));
    prune(output, 1, 20, NULL);
    assert_string_equal(told, "");
    assert_false(exists(at(output, "checkpoint-10")));
    assert_true(exists(at(output, "checkpoint-20")));
    assert_int_equal(newest(output), 2);
    assert_int_equal(mkdir(at(output, "checkpoint-1"), 0777), 0);
    put(at(output, "checkpoint-1/pytorch_model.bin"), "of another program");
    assert_int_equal(mkdir(at(output, "elsewhere"), 0777), 0);
    assert_int_equal(symlink("elsewhere", at(output, "checkpoint-2")), 0);
    put(at(output, "elsewhere/manifest.json"), "{}");
    prune(output, 1, 20, NULL);
    assert_non_null(strstr(told, "checkpoint-1: not a folder with a manifest.json"));
    assert_non_null(strstr(told, "checkpoint-2: not a folder"));
    assert_true(exists(at(output, "checkpoint-1/pytorch_model.bin")));
    assert_true(exists(at(output, "elsewhere/manifest.json")));
    remove_scratch(output);
}

/* A link in a checkpoint is removed, but not its target. */
static void removal_does_not_follow_links(void **state)
{
    char *output = make_scratch(), *other = make_scratch();
    put(at(other, "precious"), "x");
    save(output, 10, 1);
    save(output, 20, 2);
    assert_int_equal(symlink(other, at(output, "checkpoint-10/folder")), 0);
    assert_int_equal(symlink(at(other, "precious"), at(output, "checkpoint-10/file")), 0);
    prune(output, 1, 20, NULL);
    assert_false(exists(at(output, "checkpoint-10")));
    assert_true(exists(at(other, "precious")));
    remove_scratch(other);
    remove_scratch(output);
}

/* The files of a save are not read again to remove an older checkpoint. */
static void a_save_reads_twice(void **state)
{
    char *output = make_scratch();
    cached = true;
    save(output, 10, 1);
    readings = 0;
    save(output, 20, 2);
    prune(output, 1, 20, NULL);
    cached = false;
    assert_int_equal(readings, 8);
    assert_int_equal(count_entries(output), 1);
    remove_scratch(output);
}

/* ---- Descriptors ----------------------------------------------------------------------------------- */

/* With any number of file descriptors a save works or fails, and the newest checkpoint is found or not, but it is never
 * reported as damaged. */
static void descriptors_run_out(void **state)
{
    char *output = make_scratch();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    save(output, 10, 1);
    int worked = 0, failed = 0, version = 1;
    const int lowest = dup(0); /* the first that is free */
    close(lowest);
    for (int left = 0; left < 8; left++) {
        const struct rlimit limit = {(rlim_t)(lowest + left), before.rlim_max};
        tx_checkpoint *checkpoint = NULL;
        char *folder = NULL;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        told[0] = '\0';
        const tx_status found = tx_checkpoint_newest(output, &report, &folder);
        tx_status status = tx_checkpoint_begin(output, 20, &checkpoint);
        if (!status) {
            status = state_write(tx_checkpoint_folder(checkpoint), version + 1);
            if (status)
                tx_checkpoint_discard(checkpoint);
            else
                status = tx_checkpoint_commit(checkpoint);
        }
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (status) {
            failed++;
            assert_int_equal(status, TX_MEMORY);
            assert_non_null(strstr(tx_error(), "Too many open files"));
        } else {
            worked++;
            version++;
        }
        assert_true(found == TX_OK || found == TX_MEMORY);
        assert_string_equal(told, "");
        assert_int_equal(newest(output), version);
        free(folder);
    }
    assert_true(failed >= 1 && worked >= 4);
    tx_output_lock *lock = NULL;
    assert_ok(tx_output_lock_take(output, &lock)); /* what could not be removed for want of descriptors */
    tx_output_lock_release(lock);
    assert_int_equal(count_entries(output), 3);
    remove_scratch(output);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faulty_disk_is_told),           cmocka_unit_test(a_save_reads_twice),
        cmocka_unit_test(failed_save_leaves_what_was),   cmocka_unit_test(save_can_be_given_up),
        cmocka_unit_test(same_step_is_replaced),         cmocka_unit_test(oldest_go),
        cmocka_unit_test(pruning_spares_what_is_needed), cmocka_unit_test(removal_does_not_follow_links),
        cmocka_unit_test(descriptors_run_out),           cmocka_unit_test(staged_saves_have_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
