/* SPDX-License-Identifier: Apache-2.0
 * The launcher's command line, its hosts, and its search of the output folder. */
#include "tools/launch/txlaunch.h"

#include "tests/scratch.h"

static const char *const words[] = {"txtrain", "--output_dir", "out dir"};
static const tx_launch_settings settings = {
    .launcher = "mpiexec", .launcher_args = "-a 'b c'", .command = {.word = words, .count = 3}};

/* Returns the words with | between them; the word "agent" is the program that starts the command. */
static const char *joined(const tx_launch_argv *argv)
{
    static char text[2000];
    text[0] = 0;
    for (size_t i = 0; i < argv->count; i++) {
        const bool agent = argv->word[i] == argv->self;
        assert_true(strlen(text) + strlen(argv->word[i]) + 3 < sizeof text);
        strcat(strcat(text, i ? "|" : ""), agent ? "agent" : argv->word[i]);
        if (agent)
            assert_string_equal(argv->word[++i], TX_LAUNCH_AGENT);
    }
    assert_null(argv->word[argv->count]);
    return text;
}

static void expect_command(tx_launch_family family, const tx_launch_hosts *hosts, tx_launch_how how,
                           const char *checkpoint, bool overwrites, const char *expected)
{
    tx_launch_argv argv = {0};
    const tx_launch_output output = {.overwrites = overwrites};
    tx_launch_start start = {.how = how};
    snprintf(start.checkpoint, sizeof start.checkpoint, "%s", checkpoint);
    assert_int_equal(tx_launch_command(&settings, family, hosts, 4, &output, &start, &argv), TX_OK);
    assert_string_equal(joined(&argv), expected);
    tx_launch_argv_free(&argv);
}

static void command_lines(void **state)
{
    const tx_launch_hosts none = {0};
    tx_launch_host two[] = {
        {.name = "h1", .slots = 2}, {.name = "h2", .slots = 1, .excluded = true}, {.name = "h3", .slots = 2}};
    const tx_launch_hosts hosts = {.host = two, .count = 3};
    expect_command(TX_LAUNCH_HYDRA, &none, TX_LAUNCH_AS_IS, "", false,
                   "mpiexec|-n|4|-a|b c|agent|txtrain|--output_dir|out dir");
    expect_command(TX_LAUNCH_HYDRA, &hosts, TX_LAUNCH_RESUME, "", false,
                   "mpiexec|-hosts|h1:2,h3:2|-n|4|-a|b c|agent|txtrain|--output_dir|out dir|--resume_from_checkpoint");
    expect_command(TX_LAUNCH_OPENMPI, &hosts, TX_LAUNCH_RESUME, "", true,
                   "mpiexec|-host|h1:2,h3:2|-n|4|-a|b c|agent|txtrain|--output_dir|out dir|"
                   "--overwrite_output_dir=false|--resume_from_checkpoint");
    expect_command(TX_LAUNCH_OTHER, &none, TX_LAUNCH_ANEW, "", false,
                   "mpiexec|-n|4|-a|b c|agent|txtrain|--output_dir|out dir|--overwrite_output_dir");
    expect_command(TX_LAUNCH_HYDRA, &none, TX_LAUNCH_RESUME, "out dir/checkpoint-7", true,
                   "mpiexec|-n|4|-a|b c|agent|txtrain|--output_dir|out dir|--overwrite_output_dir=false|"
                   "--resume_from_checkpoint=out dir/checkpoint-7");
    tx_launch_argv argv = {0};
    const tx_launch_output output = {0};
    const tx_launch_start as_is = {.how = TX_LAUNCH_AS_IS};
    assert_int_equal(tx_launch_command(&settings, TX_LAUNCH_OTHER, &hosts, 4, &output, &as_is, &argv), TX_UNSUPPORTED);
    assert_null(argv.word);
    assert_int_equal(tx_launch_probe(&settings, TX_LAUNCH_HYDRA, "h2", &argv), TX_OK);
    assert_string_equal(joined(&argv), "mpiexec|-hosts|h2|-n|1|-a|b c|true");
    tx_launch_argv_free(&argv);
    static const char *const bad[] = {"'a", "$(reboot)", "a | b", "`x`"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tx_launch_settings wrong = settings;
        wrong.launcher_args = bad[i];
        assert_int_equal(tx_launch_command(&wrong, TX_LAUNCH_HYDRA, &none, 1, &output, &as_is, &argv), TX_INVALID);
    }
}

static void families(void **state)
{
    assert_int_equal(tx_launch_family_of("HYDRA build details:\n Version: 4.0.2"), TX_LAUNCH_HYDRA);
    assert_int_equal(tx_launch_family_of("mpiexec.openmpi (OpenRTE) 4.1.4"), TX_LAUNCH_OPENMPI);
    assert_int_equal(tx_launch_family_of("mpirun (Open MPI) 5.0.3"), TX_LAUNCH_OPENMPI);
    assert_int_equal(tx_launch_family_of("slurm 22.05"), TX_LAUNCH_OTHER);
    assert_int_equal(tx_launch_family_of(""), TX_LAUNCH_OTHER);
}

/* Returns "NAME:SLOTS ..." of the hosts, or "refused" if the list is refused. */
static const char *hosts_for(const char *list, const char *file, int32_t ranks, int32_t per_host)
{
    static char text[1000];
    tx_launch_hosts hosts = {0};
    text[0] = 0;
    if (tx_launch_hosts_read(list, file, ranks, per_host, &hosts)) {
        assert_int_equal(hosts.count, 0);
        return "refused";
    }
    for (int32_t i = 0; i < hosts.count; i++)
        sprintf(text + strlen(text), "%s%s:%d", i ? " " : "", hosts.host[i].name, (int)hosts.host[i].slots);
    tx_launch_hosts_free(&hosts);
    return text;
}

static const char *hosts_of(const char *list, const char *file, int32_t ranks)
{
    return hosts_for(list, file, ranks, 0);
}

static void hosts_from_a_list(void **state)
{
    assert_string_equal(hosts_of(NULL, NULL, 4), "");
    assert_string_equal(hosts_of("a,b", NULL, 4), "a:2 b:2");
    assert_string_equal(hosts_of("a,b,c", NULL, 5), "a:2 b:2 c:1");
    assert_string_equal(hosts_of("a:3,b", NULL, 5), "a:3 b:2");
    assert_string_equal(hosts_of("a:3,b:3", NULL, 5), "a:3 b:3");
    assert_string_equal(hosts_of("a,b", NULL, 1), "a:1 b:0");
    assert_string_equal(hosts_for("a,b:3", NULL, 0, 2), "a:2 b:3");
    assert_string_equal(hosts_of("fe80::1,b:1", NULL, 2), "fe80::1:1 b:1");
    static const char *const bad[] = {"",        ",",    "a,", "a:", "a:0", "a:x", "a:-1", "a:99999999999",
                                      "a:1,b:1", "-n,b", ":1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (strcmp(hosts_of(bad[i], NULL, 4), "refused") != 0)
            fail_msg("\"%s\" is taken", bad[i]);
}

/* Writes a file of that name and returns its path. */
static const char *scratch_file(const char *folder, const char *name, const char *text)
{
    static char paths[5][1000];
    static int next;
    char *path = paths[next++ % 5];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    assert_ok(tx_file_write(path, text, strlen(text)));
    return path;
}

static void hosts_from_a_file(void **state)
{
    const char *path = scratch_file(*state, "hosts", "# both\n a slots=2 # one\r\n\n\tb:2\nc\n");
    assert_string_equal(hosts_of(NULL, path, 5), "a:2 b:2 c:1");
    static const char *const bad[] = {"", "# none\n", "a cpus=2\n", "a slots=\n", "a slots=0\n", "a:2 slots=x\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_string_equal(hosts_of(NULL, scratch_file(*state, "hosts", bad[i]), 1), "refused");
    assert_string_equal(hosts_of(NULL, "/nowhere/hosts", 1), "refused");
}

static void ranks_of_hosts(void **state)
{
    tx_launch_host three[] = {{.name = "a", .slots = 2}, {.name = "b", .slots = 2}, {.name = "c", .slots = 1}};
    tx_launch_hosts hosts = {.host = three, .count = 3};
    assert_int_equal(tx_launch_hosts_room(&hosts, 4), 4);
    assert_ptr_equal(tx_launch_host_of(&hosts, 1), &three[0]);
    assert_ptr_equal(tx_launch_host_of(&hosts, 4), &three[2]);
    assert_null(tx_launch_host_of(&hosts, 5));
    three[0].excluded = true;
    assert_int_equal(tx_launch_hosts_room(&hosts, 4), 3);
    assert_ptr_equal(tx_launch_host_of(&hosts, 1), &three[1]);
    assert_int_equal(tx_launch_hosts_room(&(tx_launch_hosts){0}, 4), 4);
}

static void expect_output(const char *const *word, int32_t count, const char *folder, bool overwrites,
                          tx_launch_resumption resumes)
{
    tx_launch_output output;
    const tx_words command = {.word = word, .count = count};
    assert_int_equal(tx_launch_output_find(&command, &output), TX_OK);
    if (folder)
        assert_string_equal(output.folder, folder);
    else
        assert_null(output.folder);
    assert_int_equal(output.overwrites, overwrites);
    assert_int_equal(output.resumes, resumes);
    tx_launch_output_free(&output);
}

static void the_output_folder_is_found(void **state)
{
    const char *json =
        scratch_file(*state, "train.json", "{\"output_dir\": \"from json\", \"overwrite_output_dir\": true}");
    const char *plain = scratch_file(*state, "plain.json", "{\"resume_from_checkpoint\": true}");
    const char *named = scratch_file(*state, "named.json", "{\"resume_from_checkpoint\": \"x\"}");
    const char *fresh =
        scratch_file(*state, "fresh.json", "{\"resume_from_checkpoint\": false, \"overwrite_output_dir\": null}");
    const char *broken = scratch_file(*state, "broken.json", "{\"output_dir\": ");
    expect_output((const char *[]){"t", "--output_dir", "a"}, 3, "a", false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "--output-dir=a b"}, 2, "a b", false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "--output_dir=a", "--output-dir", "b"}, 4, "b", false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "--output_dir"}, 2, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "--output_directory", "x"}, 3, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"--output_dir", "x"}, 2, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "--overwrite-output-dir", "--resume_from_checkpoint=x"}, 3, NULL, true,
                  TX_LAUNCH_NAMED);
    expect_output((const char *[]){"t", "--resume_from_checkpoint", "x"}, 3, NULL, false, TX_LAUNCH_NAMED);
    expect_output((const char *[]){"t", "--resume_from_checkpoint", "--seed"}, 3, NULL, false, TX_LAUNCH_NEWEST);
    expect_output((const char *[]){"t", "--resume-from-checkpoint=True"}, 2, NULL, false, TX_LAUNCH_NEWEST);
    expect_output((const char *[]){"t", plain, "--resume_from_checkpoint=false"}, 3, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", named}, 2, NULL, false, TX_LAUNCH_NAMED);
    expect_output((const char *[]){"t", json}, 2, "from json", true, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"numactl", "-N0", "t", json, "--output_dir", "b"}, 6, "b", true, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", plain}, 2, NULL, false, TX_LAUNCH_NEWEST);
    expect_output((const char *[]){"t", fresh}, 2, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", broken}, 2, NULL, false, TX_LAUNCH_FRESH);
    expect_output((const char *[]){"t", "/nowhere/a.json"}, 2, NULL, false, TX_LAUNCH_FRESH);
}

static void earlier_runs_are_found(void **state)
{
    char *folder = tx_path_join(*state, "out"), *empty = tx_path_join(folder, "checkpoint-x");
    char *checkpoint = tx_path_join(folder, "checkpoint-9"), *file = tx_path_join(folder, "log.jsonl");
    const char *word[] = {"t", "--output_dir", folder};
    const tx_words command = {.word = word, .count = 3};
    for (int i = 0; i < 4; i++) {
        tx_launch_output output;
        if (i > 0)
            assert_ok(i == 1   ? tx_folder_create(empty)
                      : i == 2 ? tx_file_write(file, "", 0)
                               : tx_folder_create(checkpoint));
        assert_ok(tx_launch_output_find(&command, &output));
        assert_int_equal(output.vacant, i == 0);
        assert_int_equal(output.others, i == 3);
        tx_launch_output_free(&output);
    }
    free(folder);
    free(empty);
    free(checkpoint);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines),          cmocka_unit_test(families),
        cmocka_unit_test(hosts_from_a_list),      cmocka_unit_test(hosts_from_a_file),
        cmocka_unit_test(ranks_of_hosts),         cmocka_unit_test(the_output_folder_is_found),
        cmocka_unit_test(earlier_runs_are_found),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
