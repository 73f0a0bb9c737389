/* SPDX-License-Identifier: Apache-2.0
 * Every call of a save fails once (fault_shim.c), and the power fails after each call (disk.c). The disk then holds
 * either the last checkpoint that was reported as written or the one in progress, identical to the byte. Other files
 * have temporary names, and the next start removes them.
 *
 *     test_crash kill|eio|readonly|short|full|power      exit status 77: preloading does not work here */
#include "models/files/checkpoint.h"
#include "models/files/folder.h"
#include "tests/checkpoint/disk.h"
#include "tests/checkpoint/states.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* FULL_STEP: between two bytes at which the disk is full. ENOUGH: wrong states that show that the test can fail. */
enum { FULL_STEP = 97, COINS = 12, MAX_SEEN = 1 << 16, ENOUGH = 20 };

typedef struct bench {
    char root[512];   /* everything of this test */
    char parent[600]; /* the watched folder, on the imagined disk */
    char output[640]; /* of the saver, within it */
    char log[600];
    long runs, failures, states;
} bench;

/* The saver's reports so far: the last version that is certainly on the disk, and other possible versions. */
typedef struct reports {
    int committed, begun;
    bool maybe[64]; /* the save failed, and a disk that fails all later calls may have kept its checkpoint */
    bool gone;      /* a failed save removed the checkpoint before it */
} reports;

static void parse_report(reports *t, const char *line, bool lasting)
{
    int version = 0;
    char what[32];
    if (sscanf(line, "%31s %d", what, &version) != 2 || version < -1 || version >= 64)
        return;
    if (strcmp(what, "newest") == 0)
        t->gone = t->gone || (!lasting && version != (t->committed ? t->committed : -1));
    else if (strcmp(what, "begin") == 0)
        t->begun = version;
    else if (strcmp(what, "committed") == 0)
        t->committed = t->begun = version;
    else if (strcmp(what, "failed") == 0) {
        t->maybe[version] = lasting;
        t->begun = t->committed;
    }
}

static bool is_legal(const reports *t, int version)
{
    return version == t->committed || version == t->begun || (version >= 0 && version < 64 && t->maybe[version]);
}

/* ---- Check of the folder ----------------------------------------------------------------------------- */

static bool is_temporary(const char *name)
{
    const char *end = strrchr(name, '.');
    return strncmp(name, ".checkpoint-", 12) == 0 || (end && strcmp(end, ".tmp") == 0);
}

/* Names: checkpoints that verify and, `before` the next start, temporary ones. */
static bool check_names(const char *output, bool before, char *why, size_t size)
{
    tx_names names;
    bool good = true;
    if (tx_folder_list(output, &names)) {
        snprintf(why, size, "%s", tx_error());
        return before; /* the folder itself may be gone before the first checkpoint */
    }
    for (size_t i = 0; good && i < names.count; i++) {
        const char *name = names.name[i];
        char *path = TX_PATH(output, name);
        if (tx_checkpoint_step(name) >= 0)
            good = tx_checkpoint_verify(path, NULL) == TX_OK && state_read(path) >= 0;
        else
            good = strcmp(name, ".lock") == 0 || (before && is_temporary(name));
        if (!good)
            snprintf(why, size, "%s is left: %s", name, tx_error());
    }
    tx_names_free(&names);
    return good;
}

/* Returns the version of the newest checkpoint, 0 if there is none, or -1 if it is invalid. */
static int newest_version(const char *output, char *why, size_t size)
{
    char *folder = NULL;
    const tx_status status = tx_checkpoint_newest(output, NULL, &folder);
    int version = 0;
    if (status == TX_OK)
        version = state_read(folder);
    else if (status != TX_NOT_FOUND)
        version = -1;
    if (version < 0)
        snprintf(why, size, "%s", status ? tx_error() : "the newest checkpoint verifies but is none that was written");
    free(folder);
    return version;
}

/* The next start after any fault: it locks the folder, removes temporary files, and finds a checkpoint. */
static bool check_restart(const char *output, const reports *t, char *why, size_t size)
{
    tx_output_lock *lock = NULL;
    if (!check_names(output, true, why, size))
        return false;
    if (tx_output_lock_take(output, &lock)) {
        snprintf(why, size, "the next start: %s", tx_error());
        return false;
    }
    const int version = newest_version(output, why, size);
    bool good = version >= 0;
    if (good && !is_legal(t, version)) {
        snprintf(why, size, "version %d is found, %d was committed, %d begun", version, t->committed, t->begun);
        good = false;
    }
    good = good && check_names(output, false, why, size);
    tx_output_lock_release(lock);
    return good;
}

/* ---- Running the saver ------------------------------------------------------------------------------- */

static bool clear(const char *root, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return tx_folder_remove(root, name) == TX_OK && mkdir(path, 0777) == 0;
}

/* Runs it with one fault; -1: it could not be run. */
static int run_saver(const bench *b, const char *mode, long at)
{
    char number[32];
    snprintf(number, sizeof number, "%ld", at);
    const pid_t child = fork();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        setenv("LD_PRELOAD", TX_FAULT_SHIM, 1);
        setenv("TX_FAULT_FOLDER", b->parent, 1);
        setenv("TX_FAULT_MODE", mode, 1);
        setenv("TX_FAULT_AT", number, 1);
        setenv("TX_FAULT_LOG", b->log, 1);
        execl(TX_SAVER, TX_SAVER, b->output, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return status;
}

/* Whether a file that was written could not be closed: its save must not pass for good. */
static bool parse_reports(const disk_log *log, reports *t, bool lasting)
{
    bool lost = false;
    for (size_t i = 0; i < log->count; i++) {
        const disk_event *e = &log->event[i];
        if (e->what == 'X')
            parse_report(t, e->data, lasting);
        if (e->what == 'E' && e->b && !strstr(e->data, ".lock"))
            lost = true;
    }
    return lost;
}

/* Calls that the saver makes when nothing goes wrong, and bytes that it writes; 0 where preloading does not work. */
static long count_calls(bench *b, disk_log *log, long *bytes)
{
    if (!clear(b->root, "disk"))
        return 0;
    const int status = run_saver(b, "none", 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !disk_log_read(b->log, log) || log->count == 0)
        return 0;
    *bytes = 0;
    for (size_t i = 0; i < log->count; i++)
        *bytes += log->event[i].what == 'W' ? (long)log->event[i].size : 0;
    return log->event[log->count - 1].call;
}

/* Runs the saver with one fault and checks the folder afterwards. */
static bool try_fault(bench *b, const char *mode, long at)
{
    const bool kills = strcmp(mode, "kill") == 0, lasting = strcmp(mode, "readonly") == 0;
    char why[1300] = "";
    reports t = {0};
    disk_log log;
    if (!clear(b->root, "disk"))
        return false;
    const int status = run_saver(b, mode, at);
    bool good = disk_log_read(b->log, &log);
    const bool lost = parse_reports(&log, &t, lasting);
    disk_log_free(&log);
    if (kills && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
        snprintf(why, sizeof why, "the saver was not killed");
        good = false;
    } else if (!kills && !(WIFEXITED(status) && WEXITSTATUS(status) <= 4)) {
        snprintf(why, sizeof why, "the saver ended with status %x", (unsigned)status);
        good = false;
    } else if (lost && status == 0) {
        snprintf(why, sizeof why, "a file that could not be closed passes for good");
        good = false;
    } else if (t.gone) {
        snprintf(why, sizeof why, "after a save that failed the one before it was not there");
        good = false;
    }
    good = good && check_restart(b->output, &t, why, sizeof why);
    b->runs++;
    if (!good && b->failures++ < 10)
        printf("FAIL: %s at %ld: %s\n", mode, at, why);
    return good;
}

static bool test_faults(bench *b, const char *mode)
{
    disk_log log;
    long bytes;
    const bool full = strcmp(mode, "full") == 0;
    const long calls = count_calls(b, &log, &bytes);
    disk_log_free(&log);
    for (long at = full ? 0 : 1; at <= (full ? bytes : calls); at += full ? FULL_STEP : 1)
        (void)try_fault(b, mode, at);
    printf("%s: %ld runs of a saver that makes %ld calls and writes %ld bytes, %ld failures\n", mode, b->runs, calls,
           bytes, b->failures);
    return b->failures == 0 && b->runs > 60;
}

/* ---- Losing power ------------------------------------------------------------------------------------ */

/* States that were looked at already: a hash table of their numbers. */
static uint64_t seen[MAX_SEEN];

static bool is_new(uint64_t hash)
{
    hash += hash == 0;
    size_t at = (size_t)(hash % MAX_SEEN);
    for (size_t tries = 0; tries < MAX_SEEN; tries++, at = (at + 1) % MAX_SEEN) {
        if (seen[at] == hash)
            return false;
        if (!seen[at]) {
            seen[at] = hash;
            return true;
        }
    }
    return true;
}

static void check_crash(bench *b, const disk *d, const disk_crash *crash, const reports *t, size_t event, bool quiet)
{
    char path[700], output[720], why[1300] = "";
    const uint64_t promise = (uint64_t)t->committed * 64 + (uint64_t)t->begun;
    if (!is_new(disk_hash(d, crash) * 4096 + promise))
        return;
    snprintf(path, sizeof path, "%s/crashed", b->root);
    snprintf(output, sizeof output, "%s/out", path);
    b->states++;
    if (clear(b->root, "crashed") && disk_build(d, crash, path) && check_restart(output, t, why, sizeof why))
        return;
    if (b->failures++ < 10 && !quiet)
        printf("FAIL: power lost after event %zu (%zu of %zu names, coin %llu, data %d): %s\n", event, crash->kept,
               disk_pending(d), (unsigned long long)crash->seed, (int)crash->data, why);
}

/* All that may be left after event `i`. */
static void lose_power(bench *b, const disk *d, const reports *t, size_t i, bool quiet)
{
    for (int data = DISK_FLUSHED; data <= DISK_TORN; data++) {
        for (size_t kept = 0; kept <= disk_pending(d); kept++)
            check_crash(b, d, &(disk_crash){.kept = kept, .data = (disk_data)data}, t, i, quiet);
        for (uint64_t coin = 1; coin <= COINS; coin++)
            check_crash(b, d, &(disk_crash){.seed = coin * 1000 + i, .data = (disk_data)data}, t, i, quiet);
    }
}

/* Replays a run; `forget` leaves out flushes: 'f' of files, 'd' of folders. */
static bool replay(bench *b, const disk_log *log, char forget)
{
    disk *d = disk_create();
    reports t = {0};
    bool good = d != NULL;
    bool folder[65536] = {false};
    memset(seen, 0, sizeof seen);
    b->states = b->failures = 0;
    for (size_t i = 0; good && i < log->count && !(forget && b->failures > ENOUGH); i++) {
        const disk_event *e = &log->event[i];
        if (e->what == 'O')
            folder[e->a & 65535] = (e->b & 4) != 0;
        if (e->what == 'X')
            parse_report(&t, e->data, false);
        if (e->what == 'F' && ((forget == 'd' && folder[e->a & 65535]) || (forget == 'f' && !folder[e->a & 65535])))
            continue;
        good = disk_apply(d, e);
        if (!good)
            printf("FAIL: event %zu (%c %s) does not fit the disk\n", i, e->what, e->data);
        else if (strchr("WFRUMX", e->what))
            lose_power(b, d, &t, i, forget != 0);
    }
    disk_free(d);
    return good;
}

static bool test_power(bench *b)
{
    disk_log log;
    long bytes;
    const long calls = count_calls(b, &log, &bytes);
    bool good = replay(b, &log, 0);
    const long failures = b->failures;
    printf("power: %ld calls, %ld states of the disk, %ld failures\n", calls, b->states, failures);
    /* The test detects missing flushes: without them states are lost. */
    good = replay(b, &log, 'f') && good;
    printf("without flushes of files: %ld of %ld states are wrong\n", b->failures, b->states);
    good = good && b->failures > 0;
    good = replay(b, &log, 'd') && good;
    printf("without flushes of folders: %ld of %ld states are wrong\n", b->failures, b->states);
    good = good && b->failures > 0;
    disk_log_free(&log);
    return good && failures == 0;
}

/* ---- All --------------------------------------------------------------------------------------------- */

/* Uses a file system in memory if there is one: this test does not measure flushing. */
static bool make_bench(bench *b)
{
    const char *const places[] = {"/dev/shm", getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (!places[i] || snprintf(b->root, sizeof b->root, "%s/tx-crash-XXXXXX", places[i]) >= (int)sizeof b->root)
            continue;
        if (!mkdtemp(b->root))
            continue;
        snprintf(b->parent, sizeof b->parent, "%s/disk", b->root);
        snprintf(b->output, sizeof b->output, "%s/out", b->parent);
        snprintf(b->log, sizeof b->log, "%s/log", b->root);
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"kill", "eio", "readonly", "short", "full", "power"};
    bench b = {0};
    disk_log log;
    long bytes;
    bool known = false;
    for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof modes[0]; i++)
        known = known || strcmp(argv[1], modes[i]) == 0;
    if (!known || !make_bench(&b))
        return 2;
    const long calls = count_calls(&b, &log, &bytes);
    disk_log_free(&log);
    bool good = false;
    if (calls == 0)
        printf("skipped: %s does not see what %s does\n", TX_FAULT_SHIM, TX_SAVER);
    else
        good = strcmp(argv[1], "power") == 0 ? test_power(&b) : test_faults(&b, argv[1]);
    char *slash = strrchr(b.root, '/');
    *slash = '\0';
    (void)tx_folder_remove(b.root[0] ? b.root : "/", slash + 1);
    return calls == 0 ? 77 : good ? 0 : 1;
}
