/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal: a file in the cache folder with the names of the builds, trials and first launches in progress. Later
 * starts skip a name at which the driver failed: it crashed, TX saw it fail or hang, or two starts were killed there.
 *
 * Each context writes a file of its own, cl-trying-IDENTITY-NUMBER, and locks it. So a file without a lock belongs to
 * a process that ended. At a crash a handler marks the names and prints them. It removes them if the user ends the
 * program early. If the same work succeeds later, the process was only interrupted, and the name is removed. A file
 * without names is removed; other files remain until the user deletes them.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/file.h"
#include "api/base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 32         /* more than threads that build */
#define JOURNALS 64      /* more than devices that a process opens */
#define NEW_SECONDS 60   /* a process locks its file in this time */
#define HANG_SECONDS 120 /* if work takes longer, a signal by the user may end a hang */

/* An entry of a file: a state and a name. The driver failed, and TX used another candidate, or the driver ended the
 * start by a crash or a hang. */
enum { EMPTY = 0, TRYING = 'T', FAILED = 'F', ENDED = 'E' };
typedef struct slot {
    char state, name[TX_CL_JOURNAL_NAME - 1];
} slot;

typedef struct earlier {
    struct earlier *next;
    slot entry;
    int number; /* of the slot in its file */
    char path[];
} earlier;

struct tx_cl_journal {
    char *begins; /* start of the paths of this device's files */
    char *path;   /* of the own file */
    int file;
    char device[320]; /* its name and driver for messages */
    earlier *found;   /* entries of processes that ended */
    pthread_mutex_t mutex;
    slot slots[SLOTS];
    pthread_t thread[SLOTS]; /* that does the work */
    time_t began[SLOTS];     /* 0 if no work is in progress */
};

/* The signal handler's data: handlers have no arguments. */
static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGBUS, SIGILL, SIGABRT};
enum { INTERRUPTS = 3, SIGNALS = sizeof signals / sizeof signals[0] };
static struct sigaction earlier_action[SIGNALS];
static _Atomic(tx_cl_journal *) journals[JOURNALS]; /* those with a file */

static void write_slot(int file, const slot *entry, int number)
{
    /* On a full disk this start only leaves no trace. */
    (void)!pwrite(file, entry, sizeof *entry, number * (off_t)sizeof *entry);
}

/* Prints the name of the entry at which the process crashes. */
static void print_crash(const tx_cl_journal *j, const char *name)
{
    char text[1024], *end = stpcpy(stpcpy(text, j->device), ": the process crashed here: ");
    end = stpcpy(stpcpy(end, name), "; the next start avoids it if there is an alternative; also try another driver\n");
    (void)!write(STDERR_FILENO, text, (size_t)(end - text));
}

/* Marks the entries in progress, of the calling thread or of all threads, and returns true if there were any. Drivers
 * may run kernels in threads of their own. */
static bool mark(bool interrupted, bool all)
{
    bool marked = false;
    for (int i = 0; i < JOURNALS * SLOTS; i++) {
        tx_cl_journal *j = journals[i / SLOTS];
        const int k = i % SLOTS;
        if (!j || !j->began[k] || (!all && !pthread_equal(j->thread[k], pthread_self())))
            continue;
        marked = true;
        if (interrupted && time(NULL) - j->began[k] >= HANG_SECONDS)
            continue;
        j->slots[k].state = interrupted ? EMPTY : ENDED;
        write_slot(j->file, &j->slots[k], k);
        if (!interrupted)
            print_crash(j, j->slots[k].name);
    }
    return marked;
}

/* Calls async-signal-safe functions only. Ends with the action that the signal had before. */
static void on_signal(int number)
{
    int i = 0;
    while (signals[i] != number)
        i++;
    if (i < INTERRUPTS)
        mark(true, true);
    else if (!mark(false, false))
        mark(false, true);
    sigaction(number, &earlier_action[i], NULL);
    raise(number);
}

/* LLVM in a driver replaces handlers when it compiles for the first time. Its handler restores those before it and
 * returns, which suffices for the other signals, but then abort() ends the process without them. */
static void catch_abort(void)
{
    struct sigaction action;
    if (sigaction(SIGABRT, NULL, &action) || action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGABRT, &action, NULL);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++)
        if (sigaction(signals[i], NULL, &earlier_action[i]) == 0 && earlier_action[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

/* Replaces `from` by `to` in the list of the signal handler. */
static void enlist(tx_cl_journal *from, tx_cl_journal *to)
{
    tx_cl_journal *expected = from;
    for (int i = 0; i < JOURNALS && !atomic_compare_exchange_strong(&journals[i], &expected, to); i++)
        expected = from;
}

static void remember(tx_cl_journal *j, const slot *entry, int number, const char *path)
{
    earlier *made = malloc(sizeof *made + strlen(path) + 1);
    if (!made)
        return; /* it is only tried again */
    made->entry = *entry;
    made->number = number;
    strcpy(made->path, path);
    made->next = j->found;
    j->found = made;
}

/* Keeps the entries of the file at `path`, whose process ended. Removes a file without entries, but not a new one that
 * its process has not locked yet. */
static void read_ended(tx_cl_journal *j, const char *path, int file)
{
    struct stat info;
    bool empty = true;
    slot one;
    for (int i = 0; i < SLOTS && pread(file, &one, sizeof one, i * (off_t)sizeof one) == sizeof one; i++) {
        if (one.state == EMPTY)
            continue;
        empty = false;
        one.name[sizeof one.name - 1] = '\0';
        remember(j, &one, i, path);
    }
    if (empty && fstat(file, &info) == 0 && time(NULL) - info.st_mtime > NEW_SECONDS)
        unlink(path);
}

/* Removes the entries of earlier processes for work that has now succeeded. */
static void forget(tx_cl_journal *j, const char *name)
{
    static const slot none = {.state = EMPTY};
    for (earlier **at = &j->found, *one; (one = *at) != NULL;) {
        if (strcmp(one->entry.name, name) != 0) {
            at = &one->next;
            continue;
        }
        int file;
        if (tx_file_open(one->path, O_WRONLY | O_NOFOLLOW, &file, NULL) == TX_OK) {
            write_slot(file, &none, one->number);
            close(file);
        }
        *at = one->next;
        free(one);
    }
}

/* Reads the journals of the user's processes. Only their user can delete those of others. */
static void read_folder(tx_cl_journal *j, const char *folder)
{
    const char *name = strrchr(j->begins, '/') + 1;
    DIR *list = opendir(folder);
    for (struct dirent *one; list && (one = readdir(list)) != NULL;) {
        char *path = strncmp(one->d_name, name, strlen(name)) == 0 ? tx_path_join(folder, one->d_name) : NULL;
        int file = -1;
        struct stat info;
        if (path && tx_file_open(path, O_RDONLY | O_NOFOLLOW, &file, NULL) == TX_FORMAT)
            unlink(path); /* a pipe, for example */
        if (file >= 0 && fstat(file, &info) == 0 && info.st_uid == geteuid() && flock(file, LOCK_SH | LOCK_NB) == 0)
            read_ended(j, path, file);
        if (file >= 0)
            close(file);
        free(path);
    }
    if (list)
        closedir(list);
}

static bool create_own(tx_cl_journal *j)
{
    const size_t size = strlen(j->begins) + 8;
    if (!j->path && !(j->path = malloc(size)))
        return false;
    snprintf(j->path, size, "%sXXXXXX", j->begins);
    j->file = mkstemp(j->path);
    if (j->file < 0)
        return false;
    fcntl(j->file, F_SETFD, FD_CLOEXEC);
    flock(j->file, LOCK_EX);
    return true;
}

/* Warns once of each candidate that failed. */
static void warn(const tx_context *context)
{
    const tx_cl_journal *j = context->journal;
    char names[512] = "", candidate[TX_CL_JOURNAL_NAME], text[1200];
    for (const earlier *one = j->found; one; one = one->next) {
        snprintf(candidate, sizeof candidate, "%.*s", (int)strcspn(one->entry.name, ",") + 1, one->entry.name);
        if (one->entry.state != TRYING && !strstr(names, candidate))
            tx_list_add(names, sizeof names, "; ", "%s", one->entry.name);
    }
    if (!names[0] || !context->report || !context->report->warn)
        return;
    snprintf(text, sizeof text,
             "%s: earlier starts crashed or hung here, which is avoided if possible: %s; delete %s* to try again",
             j->device, names, j->begins);
    context->report->warn(context->report->context, text);
}

void tx_cl_journal_open(tx_context *context)
{
    char name[48];
    tx_cl_journal *j = context->cache ? calloc(1, sizeof *j) : NULL;
    if (!j)
        return;
    j->file = -1;
    pthread_mutex_init(&j->mutex, NULL);
    snprintf(name, sizeof name, "cl-trying-%016" PRIx64 "-",
             tx_hash(TX_HASH_START, context->identity, strlen(context->identity)));
    j->begins = tx_path_join(context->cache, name);
    context->journal = j;
    snprintf(j->device, sizeof j->device, "%s (%s, driver %s)", context->info.id, context->info.name,
             context->info.driver);
    if (!j->begins)
        return;
    read_folder(j, context->cache);
    warn(context);
}

void tx_cl_journal_close(tx_context *context)
{
    tx_cl_journal *j = context->journal;
    bool kept = false;
    if (!j)
        return;
    enlist(j, NULL);
    for (int i = 0; i < SLOTS; i++)
        kept = kept || j->slots[i].state != EMPTY;
    if (j->file >= 0 && !kept)
        unlink(j->path);
    if (j->file >= 0)
        close(j->file);
    for (earlier *one = j->found, *next; one; one = next) {
        next = one->next;
        free(one);
    }
    pthread_mutex_destroy(&j->mutex);
    free(j->begins);
    free(j->path);
    free(j);
    context->journal = NULL;
}

int tx_cl_journal_begin(const tx_context *context, const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tx_cl_journal *j = context->journal;
    int i = 0;
    if (!j || !j->begins)
        return -1;
    pthread_mutex_lock(&j->mutex);
    if (j->file < 0 && !context->cache_is_fixed && create_own(j)) {
        pthread_once(&once, catch_signals);
        enlist(NULL, j);
    }
    catch_abort();
    while (i < SLOTS && j->slots[i].state != EMPTY)
        i++;
    if (i == SLOTS || j->file < 0) {
        i = -1;
    } else {
        const earlier *again = j->found;
        while (again && strcmp(again->entry.name, name) != 0)
            again = again->next;
        snprintf(j->slots[i].name, sizeof j->slots[i].name, "%s", name);
        j->thread[i] = pthread_self();
        j->began[i] = time(NULL);
        j->slots[i].state = again ? ENDED : TRYING;
        write_slot(j->file, &j->slots[i], i);
    }
    pthread_mutex_unlock(&j->mutex);
    return i;
}

void tx_cl_journal_end(const tx_context *context, int entry, bool failed)
{
    tx_cl_journal *j = context->journal;
    if (!j || entry < 0)
        return;
    pthread_mutex_lock(&j->mutex);
    j->began[entry] = 0;
    j->slots[entry].state = !failed ? EMPTY : context->hung ? ENDED : FAILED;
    write_slot(j->file, &j->slots[entry], entry);
    if (failed)
        remember(j, &j->slots[entry], entry, j->path);
    else
        forget(j, j->slots[entry].name);
    pthread_mutex_unlock(&j->mutex);
}

tx_status tx_cl_journal_check(const tx_context *context, const char *name, size_t kind)
{
    tx_cl_journal *j = context->journal;
    int failures = 0;
    if (!j)
        return TX_OK;
    pthread_mutex_lock(&j->mutex);
    const earlier *one = j->found;
    for (; one; one = one->next) {
        const bool same = strncmp(one->entry.name, name, strlen(name)) == 0;
        if (one->entry.state != TRYING && strncmp(one->entry.name, name, kind) == 0)
            failures += same || one->entry.state == ENDED ? 2 : 1;
        if (failures >= 2)
            break;
    }
    pthread_mutex_unlock(&j->mutex);
    return one ? tx_fail(TX_DEVICE, "crashed or hung before: %s; to retry delete cl-trying-* in the cache",
                         one->entry.name)
               : TX_OK;
}
