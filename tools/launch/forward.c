/* SPDX-License-Identifier: Apache-2.0
 * Forwards the ranks' output, removes the reports from it, and appends it to the ranks' log files. */
#define _GNU_SOURCE /* ppoll */
#include "comm/report.h"
#include "tools/launch/txlaunch.h"
#include "tx_file.h"
#include "tx_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Logs -------------------------------------------------------------------------------------------------- */

int32_t tx_launch_logs_rank(const char *line, const char **text)
{
    int job = 0, rank = -1, used = 0;
    char stream[8] = "";
    if ((sscanf(line, "[%d,%d]<%6[a-z]>:%n", &job, &rank, stream, &used) >= 3 && used > 0) ||
        (sscanf(line, "[%d]%n", &rank, &used) == 1 && used > 0 && line[used] == ' ' && used++ > 0)) {
        *text = line + used;
        return rank;
    }
    *text = line;
    return -1;
}

/* Opens the log of a rank for appending. Links, pipes and devices are an error. */
static tx_status open_log(const char *folder, int32_t rank, int *file)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%" PRId32 ".log", rank);
    return tx_file_open(TX_PATH(folder, name), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, file, NULL);
}

tx_status tx_launch_logs_open(const char *folder, int32_t ranks, tx_launch_logs *logs)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tx_file_fail(folder, "create it");
    int *file = calloc((size_t)ranks, sizeof *file);
    if (!file)
        return tx_fail(TX_MEMORY, "no memory for the ranks' logs");
    *logs = (tx_launch_logs){.folder = folder, .file = file};
    tx_status status = TX_OK;
    while (logs->count < ranks && !(status = open_log(folder, logs->count, &file[logs->count])))
        logs->count++;
    if (status)
        tx_launch_logs_close(logs);
    return status;
}

void tx_launch_logs_close(tx_launch_logs *logs)
{
    for (int32_t i = 0; i < logs->count; i++)
        close(logs->file[i]);
    free(logs->file);
    *logs = (tx_launch_logs){0};
}

/* ---- Writing ------------------------------------------------------------------------------------------------ */

/* Waits until `to` is writable. Returns false if a second signal comes first. */
static bool wait_writable(int to, const tx_launch_attempt *a)
{
    struct pollfd wanted = {.fd = to, .events = POLLOUT};
    while (*a->signals < 2)
        if (ppoll(&wanted, 1, NULL, &a->open) > 0)
            return true;
    return false;
}

/* Writes the text. Returns false if the reader is gone; the rest is then dropped. */
static bool write_all(int to, const char *text, size_t size, const tx_launch_attempt *a)
{
    for (size_t at = 0; at < size;) {
        const size_t part = size - at < PIPE_BUF ? size - at : PIPE_BUF; /* a writable pipe accepts it at once */
        const ssize_t done = wait_writable(to, a) ? write(to, text + at, part) : -1;
        if (done < 0)
            return false;
        at += (size_t)done;
    }
    return true;
}

/* Forwards a line of rank s->rank, or a part of it. */
static void print(tx_launch_stream *s, tx_launch_logs *logs, const char *text, size_t size, const tx_launch_attempt *a)
{
    if (s->rank >= 0 && s->rank < logs->count) {
        char mark[16];
        snprintf(mark, sizeof mark, "[%" PRId32 "] ", s->rank);
        if (!s->middle)
            write_all(s->to, mark, strlen(mark), a);
        if (!write_all(logs->file[s->rank], text, size, a) && !logs->failed) {
            tx_print_line(stderr, "txlaunch: %s/rank-%" PRId32 ".log: cannot write it: %s", logs->folder, s->rank,
                          strerror(errno));
            logs->failed = true;
        }
    }
    write_all(s->to, text, size, a);
    s->middle = text[size - 1] != '\n';
}

/* ---- Lines that are left out ---------------------------------------------------------------------------------- */

enum { RULE = 83 };

/* MPICH's launcher prints eleven lines if a rank fails: an empty one, 83 times "=", and so on. txlaunch has one line
 * for them. Empty lines are counted until the next line tells whether they are among these. */
static bool is_banner(tx_launch_stream *s, const char *line, size_t size)
{
    static const char first[] = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES";
    static const char *const rest[] = {"=", "YOUR APPLICATION TERMINATED WITH THE EXIT",
                                       "This typically refers to a problem", "Please see the FAQ page for debugging"};
    if (strncmp(line, first, sizeof first - 1) == 0)
        s->banner = true;
    for (size_t i = 0; s->banner && i < sizeof rest / sizeof rest[0]; i++)
        if (strncmp(line, rest[i], strlen(rest[i])) == 0)
            return true;
    s->banner = false;
    const bool rule = size == RULE + 1 && strspn(line, "=") == RULE, empty = size == 1;
    s->empty = rule ? 0 : s->empty + empty;
    return rule || empty;
}

/* Whether the beginning of a line may be one of the banner: the launcher writes its lines in pieces. */
static bool may_be_banner(const tx_launch_stream *s, const tx_launch_attempt *a, const char *line)
{
    return a->family == TX_LAUNCH_HYDRA && !s->middle &&
           (s->banner || (*line == '=' && (line[1] == ' ' || line[strspn(line, "=")] == '\0')));
}

static void print_empty(tx_launch_stream *s, const tx_launch_attempt *a)
{
    for (; s->empty > 0; s->empty--)
        write_all(s->to, "\n", 1, a);
}

/* Whether another rank has printed the line on standard error before the first step (FNV-1a). */
static bool is_repeated(tx_launch_logs *logs, const tx_launch_stream *s, const tx_launch_job *job, const char *line,
                        size_t size)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    if (s->to != STDERR_FILENO || job->step >= 0)
        return false;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)line[i]) * UINT64_C(1099511628211);
    for (int32_t i = 0; i < logs->lines; i++)
        if (logs->line[i] == hash)
            return true;
    if (logs->lines < TX_LAUNCH_LINES)
        logs->line[logs->lines++] = hash;
    return false;
}

/* Whether a whole line is not shown. */
static bool is_left_out(tx_launch_stream *s, tx_launch_logs *logs, const tx_launch_job *job, const tx_launch_attempt *a,
                        const char *line, size_t size)
{
    return !logs->folder && !s->middle && size > 0 && line[size - 1] == '\n' &&
           ((a->family == TX_LAUNCH_HYDRA && is_banner(s, line, size)) || is_repeated(logs, s, job, line, size));
}

/* ---- Lines --------------------------------------------------------------------------------------------------- */

/* Processes a line, or its known part, up to `end`. A report may follow the text of an unfinished line. */
static void process_line(tx_launch_stream *s, tx_launch_logs *logs, tx_launch_job *job, const char *line, char *end,
                         const tx_launch_attempt *a)
{
    const char *report = memchr(line, TX_REPORT_MARK, (size_t)(end - line)), *stop = report ? report : end;
    const char *text = line;
    if (!s->middle)
        s->rank = tx_launch_logs_rank(line, &text);
    if (logs->folder)
        line = text;
    if (text < stop && !is_left_out(s, logs, job, a, line, (size_t)(stop - line))) {
        print_empty(s, a);
        print(s, logs, line, (size_t)(stop - line), a);
    }
    if (report) {
        end[-1] = '\0';
        tx_launch_job_hear(job, report + 1, tx_now());
    }
}

bool tx_launch_forward(tx_launch_stream *s, tx_launch_logs *logs, tx_launch_job *job, const tx_launch_attempt *a)
{
    const size_t room = sizeof s->text - 1;
    const ssize_t got = read(s->from, s->text + s->used, room - s->used);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    s->used += got > 0 ? (size_t)got : 0;
    s->text[s->used] = '\0';
    char *line = s->text, *const end = s->text + s->used;
    for (char *next; (next = memchr(line, '\n', (size_t)(end - line))); line = next + 1)
        process_line(s, logs, job, line, next + 1, a);
    const bool waits =
        got > 0 && s->used < room &&
        (logs->folder || memchr(line, TX_REPORT_MARK, (size_t)(end - line)) || may_be_banner(s, a, line));
    if (line < end && !waits) {
        process_line(s, logs, job, line, end, a);
        line = end;
    }
    if (got <= 0)
        print_empty(s, a);
    s->used = (size_t)(end - line);
    memmove(s->text, line, s->used);
    return got > 0;
}
