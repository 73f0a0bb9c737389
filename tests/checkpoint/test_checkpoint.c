/* SPDX-License-Identifier: Apache-2.0
 * The interface of checkpoints: which folders count as checkpoints, and which one is used. */
#include "tests/checkpoint/saves.h"

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
    put(at(folder, "more/config.json"), "{}");
}

static void add_in_folder(const char *folder)
{
    put(at(folder, "module/config.json"), "{}");
}

static void nest_folders(const char *folder)
{
    assert_int_equal(mkdir(at(folder, "module/more"), 0777), 0);
}

static void fill_in_folder(const char *folder)
{
    put(at(folder, "module/empty"), "{}");
}

static void link_folder(const char *folder)
{
    assert_int_equal(rename(at(folder, "module"), at(folder, "../module")), 0);
    assert_int_equal(symlink("../module", at(folder, "module")), 0);
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
    "\"model.safetensors\": " entry ", \"log\": " entry ", \"state.json\": " entry ", \"module/empty\": " entry
#define ANY "{\"size\": 0, \"sha256\": \"" NO_DIGEST "\"}"
MANIFEST(other_format, "{\"format\": 2, \"step\": 20, \"files\": {}}")
MANIFEST(no_format, "{\"step\": 20, \"files\": {}}")
MANIFEST(other_step, "{\"format\": 1, \"step\": 21, \"files\": {\"log\": " ANY "}}")
MANIFEST(no_files, FILES(""))
MANIFEST(list_of_files, "{\"format\": 1, \"step\": 20, \"files\": []}")
MANIFEST(no_object, "[1, 2]")
MANIFEST(path_above, FILES("\"../log\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(path_back, FILES("\"module/..\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(path_absolute, FILES("\"/etc/hostname\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(path_below, FILES("\"a/b/c\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(itself, FILES("\"manifest.json\": " ANY ", " ALL_OTHERS(ANY)))
MANIFEST(negative_size, FILES(ALL_OTHERS("{\"size\": -1, \"sha256\": \"" NO_DIGEST "\"}")))
MANIFEST(short_digest, FILES(ALL_OTHERS("{\"size\": 0, \"sha256\": \"00\"}")))
MANIFEST(no_digest, FILES(ALL_OTHERS("{\"size\": 0}")))
MANIFEST(no_entry, FILES(ALL_OTHERS("7")))

static const struct {
    void (*damage)(const char *folder);
    const char *says; /* part of the reason */
} damages[] = {
    {flip, "model.safetensors: its contents differ from those that were saved"},
    {cut, "model.safetensors: has 700 bytes"},
    {remove_file, "log: missing"},
    {empty_file, "state.json: has 0 bytes"},
    {empty_manifest, "manifest.json: not valid JSON"},
    {remove_manifest, "it has no manifest.json"},
    {add_file, "model.safetensors.index.json: was not saved with this checkpoint"},
    {add_folder, "more/config.json: was not saved with this checkpoint"},
    {add_in_folder, "module/config.json: was not saved with this checkpoint"},
    {nest_folders, "module/more: was not saved with this checkpoint"},
    {fill_in_folder, "module/empty: has 2 bytes, had 0"},
    {link_folder, "module: was not saved with this checkpoint"},
    {link_file, "log: a link"},
    {pipe_file, "log: a pipe, not a regular file"},
    {link_manifest, "manifest.json: a link"},
    {other_format, "format 2"},
    {no_format, "format is missing"},
    {other_step, "belongs to step 21"},
    {no_files, "names no files"},
    {list_of_files, "files"},
    {no_object, "manifest.json"},
    {path_above, "\"../log\""},
    {path_back, "\"module/..\""},
    {path_absolute, "\"/etc/hostname\""},
    {path_below, "\"a/b/c\""},
    {itself, "\"manifest.json\""},
    {negative_size, "size"},
    {short_digest, "sha256"},
    {no_digest, "sha256 is missing"},
    {no_entry, "size is missing"},
};

static void damaged_newest_falls_back(void **state)
{
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
    char *output = make_scratch(), *folder = (char *)"untouched";
    assert_refused(tx_checkpoint_newest(output, &report, &folder), TX_NOT_FOUND, "no checkpoint");
    assert_refused(tx_checkpoint_newest(at(output, "nowhere"), &report, &folder), TX_NOT_FOUND, "nowhere");
    save(output, 10, 1);
    save(output, 20, 2);
    flip(at(output, "checkpoint-10"));
    cut(at(output, "checkpoint-20"));
    told[0] = '\0';
    assert_refused(tx_checkpoint_newest(output, &report, &folder), TX_FORMAT, "none of 2 checkpoints is intact");
    assert_non_null(strstr(told, "checkpoint-10/model.safetensors: its contents"));
    assert_non_null(strstr(told, "checkpoint-20/model.safetensors: has 700 bytes"));
    assert_string_equal(folder, "untouched");
    assert_refused(tx_checkpoint_newest(output, NULL, &folder), TX_FORMAT, "none of 2");
    remove_scratch(output);
}

/* A checkpoint that cannot be read at the moment may be valid: it is not skipped, and others are not removed for it. */
static void unreadable_is_not_damaged(void **state)
{
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
    assert_non_null(strstr(told, "checkpoint-10/manifest.json: cannot get its status: "));
    assert_true(exists(at(output, "checkpoint-10")) && !exists(at(output, "checkpoint-20")));
    assert_int_equal(newest(output), 3);
    remove_scratch(output);
}

static void moved_checkpoints_verify(void **state)
{
    char *output = make_scratch();
    save(output, 10, 1);
    assert_ok(tx_checkpoint_verify(at(output, "checkpoint-10/"), NULL));
    assert_int_equal(rename(at(output, "checkpoint-10"), at(output, "best")), 0);
    assert_ok(tx_checkpoint_verify(at(output, "best"), NULL));
    assert_int_equal(symlink("best", at(output, "checkpoint-10")), 0); /* to another disk, say */
    assert_int_equal(newest(output), 1);
    assert_int_equal(rename(at(output, "best"), at(output, "checkpoint-11")), 0);
    assert_refused(tx_checkpoint_verify(at(output, "checkpoint-11"), NULL), TX_FORMAT, "belongs to step 10");
    assert_refused(tx_checkpoint_verify(at(output, "gone"), NULL), TX_NOT_FOUND, "gone");
    put(at(output, "plain"), "x");
    assert_refused(tx_checkpoint_verify(at(output, "plain"), NULL), TX_FORMAT, "not a folder");
    remove_scratch(output);
}

static void steps_are_read_from_names(void **state)
{
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_newest_falls_back), cmocka_unit_test(all_damaged_is_no_fresh_start),
        cmocka_unit_test(unreadable_is_not_damaged), cmocka_unit_test(moved_checkpoints_verify),
        cmocka_unit_test(steps_are_read_from_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
