/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints by their interface: what counts as one, which is taken, which go, and who may write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "models/files/checkpoint.h"
#include "models/files/data_file.h"
#include "tests/checkpoint/states.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- Helpers ------------------------------------------------------------------------------------- */

/* What was told, one line after the other. */
static char told[4096];

static void listen(void *context, const char *message)
{
    (void)context;
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s\n", message);
}

static const tx_reporter report = {.warn = listen};

static void save(const char *output, int64_t step, int version)
{
    tx_checkpoint *checkpoint = NULL;
    assert_ok(tx_checkpoint_begin(output, step, &checkpoint));
    assert_ok(state_write(tx_checkpoint_folder(checkpoint), version));
    assert_ok(tx_checkpoint_commit(checkpoint));
}

/* "folder/name" in one of a few buffers; `folder` may be one of the others. */
static const char *at(const char *folder, const char *name)
{
    static char text[6][1200];
    static int next;
    char path[sizeof text[0]], *out = text[next++ % 6];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_true(length > 0 && length < (int)sizeof path);
    return memcpy(out, path, (size_t)length + 1);
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* The version that the newest checkpoint holds. */
static int newest(const char *output)
{
    char *folder = NULL;
    told[0] = '\0';
    assert_ok(tx_checkpoint_newest(output, &report, &folder));
    const int version = state_read(folder);
    free(folder);
    return version;
}

/* ---- Damage -------------------------------------------------------------------------------------- */

static void flip(const char *folder)
{
    const char *path = at(folder, "model.safetensors");
    int file = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(file, &byte, 1, 500), 1);
    byte ^= 4;
    assert_int_equal(pwrite(file, &byte, 1, 500), 1);
    assert_int_equal(close(file), 0);
}

static void cut(const char *folder)
{
    assert_int_equal(truncate(at(folder, "model.safetensors"), 700), 0);
}

static void remove_file(const char *folder)
{
    assert_int_equal(unlink(at(folder, "log")), 0);
}

static void empty_file(const char *folder)
{
    put(at(folder, "state.json"), "");
}

static void empty_manifest(const char *folder)
{
    put(at(folder, TX_CHECKPOINT_MANIFEST), "");
}

static void remove_manifest(const char *folder)
{
    assert_int_equal(unlink(at(folder, TX_CHECKPOINT_MANIFEST)), 0);
}

static void add_file(const char *folder)
{
    put(at(folder, "model.safetensors.index.json"), "{}");
}

static void add_folder(const char *folder)
{
    assert_int_equal(mkdir(at(folder, "more"), 0777), 0);
}

static void link_file(const char *folder)
{
    assert_int_equal(rename(at(folder, "log"), at(folder, "../log")), 0);
    assert_int_equal(symlink("../log", at(folder, "log")), 0);
}

static void pipe_file(const char *folder)
{
    assert_int_equal(unlink(at(folder, "log")), 0);
    assert_int_equal(mkfifo(at(folder, "log"), 0666), 0);
}

static void link_manifest(const char *folder)
{
    assert_int_equal(rename(at(folder, TX_CHECKPOINT_MANIFEST), at(folder, "../manifest")), 0);
    assert_int_equal(symlink("../manifest", at(folder, TX_CHECKPOINT_MANIFEST)), 0);
}

#define MANIFEST(name, text)                           \
    static void name(const char *folder)               \
    {                                                  \
        put(at(folder, TX_CHECKPOINT_MANIFEST), text); \
    }
#define FILES(names) "{\"format\": 1, \"step\": 20, \"files\": {" names "}}"
#define NO_DIGEST "0000000000000000000000000000000000000000000000000000000000000000"
#define ALL_OTHERS(entry) \
    "\"model.safetensors\": " entry ", \"log\": " entry ", \"state.json\": " entry ", \"empty\": " entry
#define ANY "{\"size\": 0, \"sha256\": \"" NO_DIGEST "\"}"
MANIFEST(other_format, "{\"format\": 2, \"step\": 20, \"files\": {}}")
MANIFEST(no_format, "{\"step\": 20, \"files\": {}}")
MANIFEST(other_step, "{\"format\": 1, \"step\": 21, \"files\": {\"log\": " ANY "}}")
MANIFEST(no_files, FILES(""))
MANIFEST(list_of_files, "{\"format\": 1, \"step\": 20, \"files\": []}")
MANIFEST(no_object, "[1, 2]")
MANIFEST(path_above, FILES("\"../log\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(path_absolute, FILES("\"/etc/hostname\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(path_below, FILES("\"a/b\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(itself, FILES("\"manifest.json\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(negative_size, FILES(ALL_OTHERS("{\"size\": -1, \"sha256\": \"" NO_DIGEST "\"}")))
MANIFEST(short_digest, FILES(ALL_OTHERS("{\"size\": 0, \"sha256\": \"00\"}")))
MANIFEST(no_digest, FILES(ALL_OTHERS("{\"size\": 0}")))
MANIFEST(no_entry, FILES(ALL_OTHERS("7")))

static const struct {
    void (*damage)(const char *folder);
    const char *says; /* part of the reason */
} damages[] = {
    {flip, "model.safetensors: its contents are not what was saved"},
    {cut, "model.safetensors: has 700 bytes"},
    {remove_file, "log: missing"},
    {empty_file, "state.json: has 0 bytes"},
    {empty_manifest, "manifest.json: not valid JSON"},
    {remove_manifest, "it has no manifest.json"},
    {add_file, "model.safetensors.index.json: was not saved with this checkpoint"},
    {add_folder, "more: was not saved with this checkpoint"},
    {link_file, "log: a link"},
    {pipe_file, "log: a pipe, where a regular file should be"},
    {link_manifest, "manifest.json: a link"},
    {other_format, "format 2"},
    {no_format, "format is missing"},
    {other_step, "is of step 21"},
    {no_files, "names no files"},
    {list_of_files, "files"},
    {no_object, "manifest.json"},
    {path_above, "\"../log\""},
    {path_absolute, "\"/etc/hostname\""},
    {path_below, "\"a/b\""},
    {itself, "\"manifest.json\""},
    {negative_size, "size"},
    {short_digest, "sha256"},
    {no_digest, "sha256 is missing"},
    {no_entry, "size is missing"},
};

static void damaged_newest_falls_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char *output = make_scratch();
        save(output, 10, 1);
        save(output, 20, 2);
        assert_int_equal(newest(output), 2);
        assert_string_equal(told, "");
        const char *damaged = at(output, "checkpoint-20");
        damages[i].damage(damaged);
        const tx_status status = tx_checkpoint_verify(at(output, "checkpoint-20"), NULL);
        if (status == TX_OK || !strstr(tx_error(), damages[i].says))
            fail_msg("damage %zu: status %d, \"%s\" does not say \"%s\"", i, (int)status, tx_error(), damages[i].says);
        assert_int_equal(newest(output), 1);
        if (!strstr(told, "checkpoint-20") || !strstr(told, damages[i].says))
            fail_msg("damage %zu: told \"%s\"", i, told);
        remove_scratch(output);
    }
}

static void all_damaged_is_no_fresh_start(void **state)
{
    (void)state;
    char *output = make_scratch(), *folder = (char *)"untouched";
    assert_refused(tx_checkpoint_newest(output, &report, &folder), TX_NOT_FOUND, "no checkpoint");
    assert_refused(tx_checkpoint_newest(at(output, "nowhere"), &report, &folder), TX_NOT_FOUND, "nowhere");
    save(output, 10, 1);
    save(output, 20, 2);
    flip(at(output, "checkpoint-10"));
    cut(at(output, "checkpoint-20"));
    told[0] = '\0';
    assert_refused(tx_checkpoint_newest(output, &report, &folder), TX_FORMAT, "none of 2 checkpoints is whole");
    assert_non_null(strstr(told, "checkpoint-10/model.safetensors: its contents"));
    assert_non_null(strstr(told, "checkpoint-20/model.safetensors: has 700 bytes"));
    assert_string_equal(folder, "untouched");
    assert_refused(tx_checkpoint_newest(output, NULL, &folder), TX_FORMAT, "none of 2");
    remove_scratch(output);
}

/* What cannot be read just now may be whole: it is neither passed over nor a reason to remove another. */
static void unreadable_is_not_damaged(void **state)
{
    (void)state;
    char *output = make_scratch(), *folder = NULL;
    for (int i = 1; i <= 3; i++)
        save(output, i * 10, i);
    assert_int_equal(rename(at(output, "checkpoint-30"), at(output, "whole")), 0);
    assert_int_equal(symlink("checkpoint-30", at(output, "checkpoint-30")), 0); /* a link to itself: ELOOP */
    told[0] = '\0';
    assert_refused(tx_checkpoint_newest(output, &report, &folder), TX_IO, "checkpoint-30");
    assert_int_equal(unlink(at(output, "checkpoint-30")), 0);
    assert_int_equal(rename(at(output, "whole"), at(output, "checkpoint-30")), 0);
    assert_int_equal(symlink("best", at(output, "best")), 0); /* which of them is the best cannot be told */
    assert_refused(tx_checkpoint_prune(output, 1, 30, at(output, "best"), &report), TX_IO, "best");
    assert_string_equal(told, "");
    assert_int_equal(unlink(at(output, "best")), 0);
    assert_int_equal(unlink(at(output, "checkpoint-10/manifest.json")), 0);
    assert_int_equal(symlink("manifest.json", at(output, "checkpoint-10/manifest.json")), 0);
    assert_ok(tx_checkpoint_prune(output, 1, 30, NULL, &report));
    assert_non_null(strstr(told, "checkpoint-10/manifest.json: cannot look at it: "));
    assert_true(exists(at(output, "checkpoint-10")) && !exists(at(output, "checkpoint-20")));
    assert_int_equal(newest(output), 3);
    remove_scratch(output);
}

static void moved_checkpoints_verify(void **state)
{
    (void)state;
    char *output = make_scratch();
    save(output, 10, 1);
    assert_ok(tx_checkpoint_verify(at(output, "checkpoint-10/"), NULL));
    assert_int_equal(rename(at(output, "checkpoint-10"), at(output, "best")), 0);
    assert_ok(tx_checkpoint_verify(at(output, "best"), NULL));
    assert_int_equal(symlink("best", at(output, "checkpoint-10")), 0); /* to another disk, say */
    assert_int_equal(newest(output), 1);
    assert_int_equal(rename(at(output, "best"), at(output, "checkpoint-11")), 0);
    assert_refused(tx_checkpoint_verify(at(output, "checkpoint-11"), NULL), TX_FORMAT, "is of step 10");
    assert_refused(tx_checkpoint_verify(at(output, "gone"), NULL), TX_NOT_FOUND, "gone");
    put(at(output, "plain"), "x");
    assert_refused(tx_checkpoint_verify(at(output, "plain"), NULL), TX_FORMAT, "not a folder");
    remove_scratch(output);
}

static void steps_are_read_from_names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int64_t step;
    } names[] = {
        {"checkpoint-0", 0},
        {"out/checkpoint-12", 12},
        {"/a b/checkpoint-3//", 3},
        {"checkpoint-", -1},
        {"checkpoint-07", -1},
        {"checkpoint-7x", -1},
        {"checkpoint--7", -1},
        {"Checkpoint-7", -1},
        {"checkpoint-7/more", -1},
        {"", -1},
        {"/", -1},
        {"checkpoint-+7", -1},
        {".checkpoint-7", -1},
        {"checkpoint- 7", -1},
        {"checkpoint-9223372036854775799", 9223372036854775799},
        {"checkpoint-99999999999999999999", -1},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (tx_checkpoint_step(names[i].path) != names[i].step)
            fail_msg("%s: %lld", names[i].path, (long long)tx_checkpoint_step(names[i].path));
}

/* ---- Writing ------------------------------------------------------------------------------------- */

typedef enum spoiler { NO_FILES, A_MANIFEST, A_FOLDER, A_LINK, A_PIPE, BAD_NAME, SPOILERS } spoiler;

static void spoil(const char *folder, spoiler how)
{
    if (how != NO_FILES)
        put(at(folder, "file"), "x");
    if (how == A_MANIFEST)
        put(at(folder, TX_CHECKPOINT_MANIFEST), "{}");
    if (how == A_FOLDER)
        assert_int_equal(mkdir(at(folder, "sub"), 0777), 0);
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
    (void)state;
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
    (void)state;
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

/* What reading gives is not what was written. */
static void faulty_disk_is_told(void **state)
{
    (void)state;
    char *output = make_scratch(), digest[TX_DIGEST_TEXT];
    for (int i = 0; i < 2; i++) {
        tx_checkpoint *checkpoint = NULL;
        assert_ok(tx_checkpoint_begin(output, 10, &checkpoint));
        assert_ok(state_write(tx_checkpoint_folder(checkpoint), 1));
        assert_ok(tx_digest_data("abc", i ? 3 : 2, digest));
        put(at(tx_checkpoint_folder(checkpoint), "states"), "abc");
        assert_ok(tx_checkpoint_expect(checkpoint, "states", digest));
        if (i)
            assert_ok(tx_checkpoint_commit(checkpoint));
        else
            assert_refused(tx_checkpoint_commit(checkpoint), TX_IO, "states: is not what was written");
        assert_int_equal(count_entries(output), i);
    }
    remove_scratch(output);
}

/* The linker sends the library's calls here. */
static int readings;
tx_status __real_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter);
tx_status __wrap_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter);

tx_status __wrap_tx_data_file_digest(const tx_data_file *file, int64_t at, int64_t end, tx_digest *digest,
                                     const tx_reporter *reporter)
{
    readings++;
    return __real_tx_data_file_digest(file, at, end, digest, reporter);
}

static void same_step_is_replaced(void **state)
{
    (void)state;
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
    (void)state;
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

/* The one that was just written stays, whatever is newer; what others wrote stays and is told. */
static void pruning_spares_what_is_needed(void **state)
{
    (void)state;
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
    assert_non_null(strstr(told, "checkpoint-1: no folder with a manifest.json"));
    assert_non_null(strstr(told, "checkpoint-2: no folder"));
    assert_true(exists(at(output, "checkpoint-1/pytorch_model.bin")));
    assert_true(exists(at(output, "elsewhere/manifest.json")));
    remove_scratch(output);
}

/* A link in a checkpoint is removed; what it leads to is not. */
static void removal_does_not_follow_links(void **state)
{
    (void)state;
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

/* All ranks wait for a save: each of its four files is read once, also where an older checkpoint makes way for it. */
static void a_save_reads_once(void **state)
{
    (void)state;
    char *output = make_scratch();
    save(output, 10, 1);
    readings = 0;
    save(output, 20, 2);
    prune(output, 1, 20, NULL);
    assert_int_equal(readings, 4);
    assert_int_equal(count_entries(output), 1);
    remove_scratch(output);
}

/* ---- Descriptors ----------------------------------------------------------------------------------- */

/* Whatever the number of descriptors, a save works or fails, and the newest checkpoint is found or not, but it is never
 * taken for damaged. */
static void descriptors_run_out(void **state)
{
    (void)state;
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
        cmocka_unit_test(damaged_newest_falls_back),
        cmocka_unit_test(all_damaged_is_no_fresh_start),
        cmocka_unit_test(unreadable_is_not_damaged),
        cmocka_unit_test(faulty_disk_is_told),
        cmocka_unit_test(a_save_reads_once),
        cmocka_unit_test(moved_checkpoints_verify),
        cmocka_unit_test(steps_are_read_from_names),
        cmocka_unit_test(failed_save_leaves_what_was),
        cmocka_unit_test(save_can_be_given_up),
        cmocka_unit_test(same_step_is_replaced),
        cmocka_unit_test(oldest_go),
        cmocka_unit_test(pruning_spares_what_is_needed),
        cmocka_unit_test(removal_does_not_follow_links),
        cmocka_unit_test(descriptors_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
