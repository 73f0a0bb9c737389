/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache of kernels that processes and users share: locks, folders that cannot be written, files that are not the
 * backend's. No driver is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "api/base/hash.h"
#include "backends/opencl/runtime/internal.h"
#include "tests/scratch.h"

enum { NOBODY = 65534 };

static char identity[] = "a device";
static int warnings;
static char last[2000];

static void warn(void *context, const char *message)
{
    warnings++;
    snprintf(last, sizeof last, "%s", message);
}

static const tx_reporter report = {.warn = warn};

/* A context with the cache in TX_CACHE_DIR. */
static tx_context make(const char *folder)
{
    tx_context context = {.identity = identity, .report = &report};
    setenv("TX_CACHE_DIR", folder, 1);
    tx_cl_cache_open(&context);
    return context;
}

static bool has(const tx_context *context, const char *key)
{
    void *data = NULL;
    size_t size = 0;
    const bool found = tx_cl_cache_load(context, key, &data, &size);
    free(data);
    return found;
}

/* A process locks a key and lives for so many seconds. */
static pid_t start_builder(const tx_context *context, double seconds)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        const int lock = tx_cl_cache_lock(context, "kernel");
        (void)!write(ready[1], "", 1);
        usleep((useconds_t)(1e6 * seconds));
        tx_cl_cache_store(context, "kernel", "binary", 7);
        tx_cl_cache_unlock(lock);
        _exit(lock < 0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

/* A process waits for another one, or for its end, and not for work on another key. */
static void waits(void **state)
{
    char *folder = make_scratch();
    tx_context context = make(folder);
    int end = 0;
    for (int killed = 0; killed < 2; killed++) {
        const pid_t builder = start_builder(&context, killed ? 100 : 0.5);
        const double began = tx_cl_now();
        const int other = tx_cl_cache_lock(&context, "another kernel");
        assert_true(other >= 0 && tx_cl_now() - began < 0.4);
        tx_cl_cache_unlock(other);
        if (killed) {
            kill(builder, SIGKILL);
        }
        const int lock = tx_cl_cache_lock(&context, "kernel");
        assert_true(lock >= 0 && tx_cl_now() - began < 60);
        assert_true(has(&context, "kernel"));
        tx_cl_cache_unlock(lock);
        assert_int_equal(waitpid(builder, &end, 0), builder);
        assert_true(killed ? WIFSIGNALED(end) : WIFEXITED(end) && WEXITSTATUS(end) == 0);
    }
    free(context.cache);
    remove_scratch(folder);
}

static char *path_of(const char *folder, const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Pipes and links in the place of the backend's files are replaced. */
static void replaces(void **state)
{
    char *folder = make_scratch(), name[64], entry[300] = "";
    tx_context context = make(folder);
    tx_cl_cache_store(&context, "kernel", "binary", 7);
    DIR *list = opendir(folder);
    for (struct dirent *one; (one = readdir(list)) != NULL;)
        if (strncmp(one->d_name, "cl-", 3) == 0)
            snprintf(entry, sizeof entry, "%s", one->d_name);
    closedir(list);
    unlink(path_of(folder, entry));
    assert_int_equal(mkfifo(path_of(folder, entry), 0666), 0);
    assert_int_equal(mkfifo(path_of(folder, "cl-lock"), 0666), 0);
    snprintf(name, sizeof name, "cl-trying-%016llx-pipe",
             (unsigned long long)tx_hash(TX_HASH_START, identity, strlen(identity)));
    assert_int_equal(mkfifo(path_of(folder, name), 0666), 0);
    assert_false(has(&context, "kernel"));
    const int lock = tx_cl_cache_lock(&context, "kernel");
    assert_true(lock >= 0);
    tx_cl_cache_store(&context, "kernel", "binary", 7);
    tx_cl_cache_unlock(lock);
    assert_true(has(&context, "kernel"));
    tx_cl_journal_open(&context);
    assert_int_not_equal(access(path_of(folder, name), F_OK), 0);
    tx_cl_journal_close(&context);
    assert_int_equal(warnings, 0);
    free(context.cache);
    remove_scratch(folder);
}

/* A journal of another user does not keep this one from a kernel, since only its owner could delete it. */
static void other_journals(void **state)
{
    static const char work[] = "kernel add (1)";
    char *folder = make_scratch(), begins[64];
    char slot[TX_CL_JOURNAL_NAME] = "E";
    if (geteuid() != 0)
        skip();
    snprintf(begins, sizeof begins, "cl-trying-%016llx-theirs",
             (unsigned long long)tx_hash(TX_HASH_START, identity, strlen(identity)));
    memcpy(slot + 1, work, sizeof work);
    assert_ok(tx_file_write(path_of(folder, begins), slot, sizeof slot));
    for (int theirs = 0; theirs < 2; theirs++) {
        tx_context context = make(folder);
        assert_int_equal(chown(path_of(folder, begins), theirs ? NOBODY : 0, 0), 0);
        tx_cl_journal_open(&context);
        assert_int_equal(tx_cl_journal_check(&context, work, 6), theirs ? TX_OK : TX_DEVICE);
        tx_cl_journal_close(&context);
        free(context.cache);
    }
    remove_scratch(folder);
}

/* In a process of another user: the folder of root is read, nothing is written, and the user is told once. */
static int read_as_nobody(const char *folder)
{
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 1;
    warnings = 0;
    tx_context context = make(folder);
    if (!context.cache || warnings != 1 || !strstr(last, "is read and not written"))
        return 2;
    if (!has(&context, "kernel"))
        return 3;
    tx_cl_cache_store(&context, "other", "binary", 7);
    if (has(&context, "other") || tx_cl_cache_lock(&context, "other") >= 0)
        return 4;
    tx_cl_journal_open(&context);
    const int entry = tx_cl_journal_begin(&context, "kernel add (1)");
    tx_cl_journal_close(&context);
    return entry >= 0 || warnings != 1 ? 5 : 0;
}

static void read_only(void **state)
{
    char *folder = make_scratch();
    int end = 0;
    if (geteuid() != 0)
        skip();
    tx_context context = make(folder);
    tx_cl_cache_store(&context, "kernel", "binary", 7);
    assert_int_equal(chmod(folder, 0755), 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(read_as_nobody(folder));
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 0);
    /* A folder for all users, in which root built first. */
    assert_int_equal(chmod(folder, 01777), 0);
    const int lock = tx_cl_cache_lock(&context, "kernel");
    tx_cl_cache_unlock(lock);
    const pid_t second = fork();
    if (second == 0)
        _exit(setuid(NOBODY) != 0 || tx_cl_cache_lock(&context, "kernel") < 0);
    assert_int_equal(waitpid(second, &end, 0), second);
    assert_true(lock >= 0 && WIFEXITED(end) && WEXITSTATUS(end) == 0);
    free(context.cache);
    remove_scratch(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits),
        cmocka_unit_test(replaces),
        cmocka_unit_test(other_journals),
        cmocka_unit_test(read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
