/* SPDX-License-Identifier: Apache-2.0
 * The lock of an output folder, and the recovery of a folder after an interruption. */
#include "models/train/run.h"
#include "tests/checkpoint/saves.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

static bool is_in(const char *folder, const char *name)
{
    return exists(at(folder, name));
}

static void make(const char *folder, const char *name, bool is_folder)
{
    char *path = TX_PATH(folder, name);
    if (is_folder)
        assert_int_equal(mkdir(path, 0777), 0);
    else
        assert_ok(tx_file_write(path, "x", 1));
}

static void move(const char *folder, const char *from, const char *to)
{
    char *old = TX_PATH(folder, from), *new = TX_PATH(folder, to);
    assert_int_equal(rename(old, new), 0);
}

static void damage(const char *output, const char *checkpoint)
{
    char *folder = TX_PATH(output, checkpoint), *path = TX_PATH(folder, "log");
    assert_int_equal(truncate(path, 3), 0);
}

/* Suffixes of the paths of files that cannot be read now, or NULL. */
static const char *unread, *unread_too;

static bool ends_in(const char *path, const char *end)
{
    return end && strlen(path) > strlen(end) && strcmp(path + strlen(path) - strlen(end), end) == 0;
}

/* The linker sends the library's calls here. */
tx_status __real_tx_file_open(const char *path, int flags, int *descriptor, int64_t *size);
tx_status __wrap_tx_file_open(const char *path, int flags, int *descriptor, int64_t *size);

tx_status __wrap_tx_file_open(const char *path, int flags, int *descriptor, int64_t *size)
{
    if (!ends_in(path, unread) && !ends_in(path, unread_too))
        return __real_tx_file_open(path, flags, descriptor, size);
    errno = EIO;
    return tx_file_fail(path, "open");
}

/* Locks and recovers a folder as the start of a run does. */
static void start(const char *output)
{
    tx_output_lock *lock = NULL;
    assert_ok(tx_output_lock_take(output, &lock));
    tx_output_lock_release(lock);
}

/* ---- Two processes ------------------------------------------------------------------------------- */

/* A process that locks the folder, reports whether it could, and holds the lock until it is killed. */
static pid_t hold(const char *output, char *answer)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        tx_output_lock *lock = NULL;
        *answer = tx_output_lock_take(output, &lock) ? 'n' : 'y';
        if (write(ends[1], answer, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_true(child > 0);
    assert_int_equal(read(ends[0], answer, 1), 1);
    close(ends[0]);
    return child;
}

static void end(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* The folder itself, a name with special characters, and a path through a link all name one folder. */
static void second_process_is_refused(void **state)
{
    char *scratch = make_scratch(), *output = TX_PATH(scratch, "run 1 ü 漢 'q' \"d\" $x"),
         *link = TX_PATH(scratch, "link");
    char answer = 0, pid[32];
    assert_int_equal(symlink("run 1 ü 漢 'q' \"d\" $x", link), 0);
    const pid_t child = hold(output, &answer);
    assert_int_equal(answer, 'y');
    snprintf(pid, sizeof pid, "process %ld ", (long)child);
    tx_output_lock *lock = NULL;
    assert_refused(tx_output_lock_take(output, &lock), TX_IO, pid);
    assert_non_null(strstr(tx_error(), output));
    assert_refused(tx_output_lock_take(link, &lock), TX_IO, pid);
    assert_null(lock);
    make(output, ".checkpoint-3.tmp-77", true); /* not ours to remove now */
    assert_refused(tx_output_lock_take(output, &lock), TX_IO, pid);
    assert_true(is_in(output, ".checkpoint-3.tmp-77"));
    end(child);
    assert_true(is_in(output, ".lock")); /* of the dead: does not matter */
    assert_ok(tx_output_lock_take(link, &lock));
    assert_false(is_in(output, ".checkpoint-3.tmp-77"));
    tx_output_lock *second = NULL;
    assert_refused(tx_output_lock_take(output, &second), TX_IO, "trains into this folder"); /* nor twice by one */
    const pid_t other = hold(output, &answer);
    assert_int_equal(answer, 'n');
    end(other);
    tx_output_lock_release(lock);
    tx_output_lock_release(NULL);
    save(link, 5, 1);
    assert_int_equal(newest(output), 1);
    remove_scratch(scratch);
}

static void folder_must_be_writable(void **state)
{
    char *scratch = make_scratch(), *output = TX_PATH(scratch, "out"), *below = TX_PATH(scratch, "file/out");
    tx_output_lock *lock = NULL;
    make(scratch, "file", false);
    assert_refused(tx_output_lock_take(below, &lock), TX_IO, "file");
    assert_int_equal(mkdir(output, 0777), 0);
    make(output, ".lock", true);
    assert_refused(tx_output_lock_take(output, &lock), TX_FORMAT, ".lock: a folder, not a regular file");
    assert_int_equal(chmod(scratch, 0755), 0);
    assert_int_equal(chmod(output, 0555), 0);
    const pid_t child = fork();
    if (child == 0) { /* the superuser may write anywhere */
        const bool other = geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
        char *locked = TX_PATH(output, "new");
        const bool refused = tx_output_lock_take(locked, &lock) == TX_IO && strstr(tx_error(), locked);
        _exit(!other ? 77 : refused && !lock ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    assert_int_equal(chmod(output, 0777), 0);
    assert_null(lock);
    remove_scratch(scratch);
}

/* ---- Leavings -------------------------------------------------------------------------------------- */

static void temporary_names_go_and_others_stay(void **state)
{
    static const char *const going[] = {".checkpoint-5.tmp-123",      ".checkpoint-0.gone-1",
                                        "model.safetensors.12-0.tmp", "a b.1-999.tmp",
                                        ".checkpoint-7.tmp-4194304",  ".hidden.5-5.tmp"};
    static const char *const staying[] = {
        "checkpoint-5x",
        ".checkpoint-",
        ".checkpoint-5",
        ".checkpoint-5.tmp",
        ".checkpoint-5.tmp-",
        ".checkpoint-05.tmp-3",
        ".checkpoint-5.x-3",
        ".checkpoint-5.tmp-3x",
        "a.tmp",
        "a.12.tmp",
        "a.-1.tmp",
        "a.1-.tmp",
        "a1-2.tmp",
        ".1-2.tmp",
        "a.1-2.tmp2",
        "1-2.tmp",
        ".checkpoint-5.temp-3",
        "checkpoint-5.tmp-3",
        ".tmp",
        "a.1-2",
        "log.jsonl",
        ".checkpoint-5.tmp-03x",
    };
    char *output = make_scratch(), *other = make_scratch();
    make(other, "precious", false);
    for (size_t i = 0; i < sizeof going / sizeof going[0]; i++)
        make(output, going[i], going[i][1] == 'c');
    for (size_t i = 0; i < sizeof staying / sizeof staying[0]; i++)
        make(output, staying[i], i % 2);
    char *inside = TX_PATH(output, going[0]), *below = TX_PATH(inside, "sub"), *link = TX_PATH(below, "link");
    make(output, ".checkpoint-5.tmp-123/part", false);
    assert_int_equal(mkdir(below, 0777), 0);
    assert_int_equal(symlink(other, link), 0);
    char *linked = TX_PATH(output, ".checkpoint-9.tmp-9"); /* a link that has such a name itself */
    assert_int_equal(symlink(other, linked), 0);
    start(output);
    for (size_t i = 0; i < sizeof going / sizeof going[0]; i++)
        if (is_in(output, going[i]))
            fail_msg("%s stays", going[i]);
    for (size_t i = 0; i < sizeof staying / sizeof staying[0]; i++)
        if (!is_in(output, staying[i]))
            fail_msg("%s is gone", staying[i]);
    assert_false(is_in(output, ".checkpoint-9.tmp-9"));
    assert_true(is_in(other, "precious"));
    remove_scratch(other);
    remove_scratch(output);
}

/* The states between the two renames of a commit, and states that only a faulty disk leaves. */
static void replaced_checkpoint_comes_back(void **state)
{
    static const struct {
        bool has_new, new_damaged, old_damaged;
        int version; /* of the recovered checkpoint, or 0 if it is damaged */
    } cases[] = {
        {false, false, false, 1}, {true, false, false, 2}, {true, true, false, 1},
        {true, true, true, 0},    {true, false, true, 2},  {false, false, true, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = make_scratch();
        save(output, 10, 1);
        move(output, "checkpoint-10", ".checkpoint-10.old-99");
        if (cases[i].has_new)
            save(output, 10, 2);
        if (cases[i].new_damaged)
            damage(output, "checkpoint-10");
        if (cases[i].old_damaged)
            damage(output, ".checkpoint-10.old-99");
        start(output);
        assert_true(is_in(output, "checkpoint-10"));
        assert_int_equal(count_entries(output), 2);
        char *folder = NULL;
        if (cases[i].version)
            assert_int_equal(newest(output), cases[i].version);
        else
            assert_refused(tx_checkpoint_newest(output, NULL, &folder), TX_FORMAT, "none of 1");
        remove_scratch(output);
    }
}

/* A checkpoint that was renamed for its successor is kept while one of the two cannot be read, or only by another
 * version. */
static void replaced_checkpoint_waits_to_be_read(void **state)
{
    enum { NEW_UNREAD = 1, OLD_UNREAD = 2, NEW_DAMAGED = 4, NEW_OF_LATER = 8 };
    static const struct {
        int how;
        tx_status status;
    } cases[] = {
        {NEW_UNREAD, TX_IO},
        {NEW_UNREAD | OLD_UNREAD, TX_IO},
        {NEW_DAMAGED | OLD_UNREAD, TX_IO},
        {NEW_OF_LATER, TX_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const manifest[] = {"/checkpoint-10/manifest.json", "/.checkpoint-10.old-99/manifest.json"};
        char *output = make_scratch();
        tx_output_lock *lock = NULL;
        save(output, 10, 1);
        move(output, "checkpoint-10", ".checkpoint-10.old-99");
        save(output, 10, 2);
        if (cases[i].how & NEW_DAMAGED)
            damage(output, "checkpoint-10");
        if (cases[i].how & NEW_OF_LATER) {
            assert_ok(tx_file_write(TX_PATH(output, manifest[0]), "{\"format\": 9}", 13));
        }
        unread = cases[i].how & NEW_UNREAD ? manifest[0] : NULL;
        unread_too = cases[i].how & OLD_UNREAD ? manifest[1] : NULL;
        const tx_status status = tx_output_lock_take(output, &lock);
        unread = unread_too = NULL;
        if (status != cases[i].status || !strstr(tx_error(), "manifest.json"))
            fail_msg("case %zu: status %d, \"%s\"", i, (int)status, tx_error());
        assert_true(is_in(output, ".checkpoint-10.old-99") && is_in(output, "checkpoint-10"));
        if (!(cases[i].how & NEW_OF_LATER)) {
            start(output);
            assert_int_equal(newest(output), cases[i].how & NEW_DAMAGED ? 1 : 2);
        }
        remove_scratch(output);
    }
}

static void free_space_is_checked(void **state)
{
    char *output = make_scratch();
    assert_ok(tx_disk_check(output, 0));
    assert_ok(tx_disk_check(output, 1));
    assert_refused(tx_disk_check(output, INT64_MAX), TX_IO, "needs 9223372036854775807 bytes, the disk has ");
    assert_non_null(strstr(tx_error(), output));
    char *nowhere = TX_PATH(output, "nowhere");
    assert_refused(tx_disk_check(nowhere, 1), TX_NOT_FOUND, "nowhere");
    remove_scratch(output);
}

/* A run of 10 steps requires space for these numbers of checkpoints and models. No disk has enough for them. */
static void room_is_asked_for_the_worst_moment(void **state)
{
    enum { NO = TX_STRATEGY_NO, STEPS = TX_STRATEGY_STEPS, EPOCH = TX_STRATEGY_EPOCH, BEST = TX_STRATEGY_BEST };
    const int64_t unit = (int64_t)1 << 54;
    static const struct {
        int saving, evaluation;
        int64_t save_steps, limit, there, step, checkpoints, models;
    } cases[] = {
        {STEPS, NO, 2, 2, 0, 0, 3, 0},    /* the limit and the one in the making */
        {STEPS, NO, 2, 2, 1, 2, 2, 0},    /* one of them is there */
        {STEPS, NO, 2, 2, 2, 4, 1, 0},    /* both */
        {STEPS, NO, 2, 2, 5, 4, 1, 0},    /* more than the limit: they go when the next one is there */
        {STEPS, NO, 5, 2, 0, 0, 2, 1},    /* no more are written; the model comes when both are there */
        {STEPS, NO, 7, 3, 0, 0, 2, 1},    /* after step 7 and at the end */
        {STEPS, NO, 7, 3, 0, 8, 1, 1},    /* only the checkpoint at the end */
        {STEPS, NO, 2, 1, 0, 0, 2, 0},    /* one, and the one in progress */
        {STEPS, STEPS, 2, 1, 0, 0, 3, 0}, /* also the best one */
        {STEPS, NO, 2, 0, 0, 0, 2, 1},    /* no limit */
        {STEPS, NO, 2, 0, 7, 0, 2, 1},    /* existing checkpoints are not deleted */
        {STEPS, NO, 2, 2, 2, 10, 0, 1},   /* nothing is left to train */
        {STEPS, NO, 0, 2, 0, 0, 0, 1},    /* never */
        {NO, NO, 2, 2, 0, 0, 0, 1},       /* never */
        {EPOCH, NO, 2, 2, 0, 0, 2, 1},    /* after 6 steps, and at the end */
        {EPOCH, NO, 2, 1, 0, 6, 1, 1},    /* only the checkpoint at the end */
        {BEST, STEPS, 1, 2, 0, 0, 3, 0},  /* after each of 3 evaluations, if all improve */
        {BEST, EPOCH, 1, 2, 0, 0, 2, 1},  /* after each of 2 evaluations */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *output = make_scratch(), wanted[64];
        for (int64_t k = 0; k < cases[i].there; k++) {
            char name[32];
            snprintf(name, sizeof name, "checkpoint-%d", (int)k);
            assert_ok(tx_folder_create(TX_PATH(output, name)));
        }
        const tx_job_settings set = {.saving = cases[i].saving,
                                     .evaluation = cases[i].evaluation,
                                     .save_total_limit = cases[i].limit,
                                     .output_dir = output};
        const tx_run_options options = {
            .set = &set,
            .facts = {.eval_steps = 4, .save_steps = cases[i].save_steps},
            .validation = {.count = cases[i].evaluation != NO}, /* that there are samples matters */
            .checkpoint_bytes = 3 * unit,
            .schedule = {.total_steps = 10},
        };
        snprintf(wanted, sizeof wanted, "needs %" PRId64 " bytes", (3 * cases[i].checkpoints + cases[i].models) * unit);
        assert_refused(tx_run_check_room(&options, cases[i].step, 6, unit), TX_IO, wanted);
        remove_scratch(output);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_process_is_refused),
        cmocka_unit_test(folder_must_be_writable),
        cmocka_unit_test(temporary_names_go_and_others_stay),
        cmocka_unit_test(replaced_checkpoint_comes_back),
        cmocka_unit_test(replaced_checkpoint_waits_to_be_read),
        cmocka_unit_test(free_space_is_checked),
        cmocka_unit_test(room_is_asked_for_the_worst_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
