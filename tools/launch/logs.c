/* SPDX-License-Identifier: Apache-2.0
 * A log file a rank: the launcher marks each line with the rank that printed it, a thread sorts them into files and
 * hands them on to standard output. Restarts append. */
#define _GNU_SOURCE /* pipe2 */
#include "api/base/file.h"
#include "api/base/thread.h"
#include "tools/launch/txlaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tx_launch_logs {
    pthread_t thread;
    FILE *in;
    FILE **files; /* of each rank; NULL until it prints */
    int32_t ranks;
    const char *folder;
    bool failed; /* a log could not be written, which was said */
};

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

/* Opens the log of a rank to append to it. A link, a pipe and a device are refused. */
static tx_status open_log(const char *folder, int32_t rank, FILE **file)
{
    char name[32];
    snprintf(name, sizeof name, "rank-%" PRId32 ".log", rank);
    char *path = tx_path_join(folder, name);
    if (!path)
        return TX_MEMORY;
    int descriptor = -1;
    tx_status status = tx_file_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, &descriptor, NULL);
    if (!status && !(*file = fdopen(descriptor, "a"))) {
        status = tx_file_fail(path, "write it");
        close(descriptor);
    }
    free(path);
    return status;
}

/* That of a rank that prints; NULL where it cannot be opened any more. */
static FILE *file_of(tx_launch_logs *logs, int32_t rank)
{
    if (!logs->files[rank] && open_log(logs->folder, rank, &logs->files[rank]) && !logs->failed) {
        tx_print_line(stderr, "txlaunch: %s", tx_error());
        logs->failed = true;
    }
    return logs->files[rank];
}

static void *sort_lines(void *argument)
{
    tx_launch_logs *logs = argument;
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; (length = getline(&line, &room, logs->in)) > 0;) {
        const char *text = line, *end = line[length - 1] == '\n' ? "" : "\n";
        const int32_t rank = tx_launch_logs_rank(line, &text);
        FILE *file = rank >= 0 && rank < logs->ranks ? file_of(logs, rank) : NULL;
        if (file) {
            fprintf(file, "%s%s", text, end);
            fflush(file);
        }
        if (rank >= 0)
            printf("[%" PRId32 "] %s%s", rank, text, end);
        else
            fprintf(stderr, "%s%s", text, end);
        fflush(stdout);
    }
    free(line);
    return NULL;
}

tx_status tx_launch_logs_begin(const char *folder, int32_t ranks, tx_launch_logs **logs, int *output)
{
    int ends[2];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tx_file_fail(folder, "make it");
    for (int32_t i = 0; i < ranks; i++) { /* so that each rank has one, and what cannot be written is said now */
        FILE *file = NULL;
        TX_TRY(open_log(folder, i, &file));
        fclose(file);
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tx_fail(TX_MEMORY, "no pipe for the ranks' output: %s", strerror(errno));
    tx_launch_logs *made = calloc(1, sizeof *made);
    FILE **files = calloc((size_t)ranks, sizeof(FILE *)), *in = fdopen(ends[0], "r");
    if (made)
        *made = (tx_launch_logs){.in = in, .files = files, .ranks = ranks, .folder = folder};
    if (made && files && in && tx_thread_start(&made->thread, sort_lines, made)) {
        *logs = made;
        *output = ends[1];
        return TX_OK;
    }
    close(ends[1]);
    if (in)
        fclose(in);
    else
        close(ends[0]);
    free(files);
    free(made);
    return tx_fail(TX_MEMORY, "no memory for the ranks' logs");
}

void tx_launch_logs_end(tx_launch_logs *logs)
{
    if (!logs)
        return;
    pthread_join(logs->thread, NULL);
    fclose(logs->in);
    for (int32_t i = 0; i < logs->ranks; i++)
        if (logs->files[i])
            fclose(logs->files[i]);
    free(logs->files);
    free(logs);
}
