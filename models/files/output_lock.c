/* SPDX-License-Identifier: Apache-2.0
 * Output folders: checks and locks them for one process, cleans up after interrupted saves, and checks disk space. */
#include "api/base/file.h"
#include "api/base/needs.h"
#include "models/files/checkpoint.h"
#include "models/files/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK ".lock"
/* Maximum characters of the host name in the file. */
#define HOST 64
/* Maximum bytes after the path of the folder: "/.checkpoint-STEP.tmp-PID/NAME.PID-NUMBER.tmp", or names of trackers. */
#define LONGEST 256

struct tx_output_lock {
    int descriptor;
};

/* ---- The lock ------------------------------------------------------------------------------------ */

/* Fails with the name of the process that holds the lock. The contents of the file only serve this message. */
static tx_status refuse(const char *output_dir, int descriptor)
{
    char text[HOST + 32] = "", host[HOST + 1] = "";
    long pid = 0;
    ssize_t got = pread(descriptor, text, sizeof text - 1, 0);
    if (got < 0 || sscanf(text, "%ld %64s", &pid, host) != 2)
        return tx_fail(TX_IO, "%s: another process trains into this folder; choose another one", output_dir);
    return tx_fail(TX_IO, "%s: process %ld on %s trains into this folder; wait for its end or choose another folder",
                   output_dir, pid, host);
}

static tx_status sign(const char *path, int descriptor)
{
    char text[HOST + 32], host[HOST + 1] = "";
    if (gethostname(host, HOST) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    int length = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, text, (size_t)length, 0) != length)
        return tx_file_fail(path, "write");
    return TX_OK;
}

/* flock() belongs to the open file, so a second lock in this process is refused, too. The system releases it when the
 * process ends in any way. The file is never removed: otherwise two processes could lock two files of the same name. On
 * NFS, Linux implements flock() by a lock on the server. File systems without locks return an error. */
static tx_status lock_file(const char *output_dir, const char *path, int *descriptor)
{
    int opened = -1, locked;
    TX_TRY(tx_file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, &opened, NULL));
    tx_status status = TX_OK;
    do
        locked = flock(opened, LOCK_EX | LOCK_NB);
    while (locked != 0 && errno == EINTR);
    if (locked != 0 && errno == EWOULDBLOCK)
        status = refuse(output_dir, opened);
    else if (locked != 0)
        status = tx_fail(TX_UNSUPPORTED, "%s: this file system cannot lock files (%s); choose a folder on another",
                         output_dir, strerror(errno));
    else
        status = sign(path, opened);
    return TX_RETURN(status, opened, descriptor, close);
}

/* ---- Cleaning up ------------------------------------------------------------------------------------ */

static tx_status clean(const char *output_dir)
{
    tx_names names;
    TX_TRY(tx_folder_list(output_dir, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++) {
        tx_checkpoint_kind kind;
        int64_t step;
        if (tx_checkpoint_is_temporary(names.name[i], &step, &kind))
            status = kind == TX_CHECKPOINT_ASIDE ? tx_checkpoint_recover(output_dir, names.name[i], step)
                                                 : tx_folder_remove(output_dir, names.name[i]);
        else if (tx_file_is_temporary(names.name[i], NULL))
            status = tx_folder_remove(output_dir, names.name[i]);
    }
    tx_names_free(&names);
    return tx_fail_in(status, "after an interrupted save");
}

/* ---- Acquiring and releasing ------------------------------------------------------------------------ */

tx_status tx_output_lock_take(const char *output_dir, tx_output_lock **lock)
{
    TX_NEEDS(output_dir && lock, TX_INVALID);
    TX_TRY(tx_folder_create(output_dir));
    tx_output_lock *created = malloc(sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "%s: no memory for its lock", output_dir);
    tx_status status = lock_file(output_dir, TX_PATH(output_dir, LOCK), &created->descriptor);
    if (!status) {
        status = clean(output_dir);
        if (status)
            close(created->descriptor);
    }
    return TX_RETURN(status, created, lock, free);
}

void tx_output_lock_release(tx_output_lock *lock)
{
    if (lock)
        close(lock->descriptor);
    free(lock);
}

/* ---- Room ---------------------------------------------------------------------------------------- */

tx_status tx_disk_check(const char *folder, int64_t bytes)
{
    struct statvfs info;
    if (statvfs(folder, &info) != 0)
        return tx_file_fail(folder, "query the free space of its disk");
    const uint64_t unit = info.f_frsize ? info.f_frsize : info.f_bsize;
    const uint64_t most = unit ? (uint64_t)INT64_MAX / unit : 0;
    const uint64_t blocks = info.f_bavail < most ? info.f_bavail : most;
    const int64_t available = (int64_t)(blocks * unit);
    if (available < bytes)
        return tx_fail(TX_IO, "%s: needs %" PRId64 " bytes, the disk has %" PRId64 " free: " TX_DISK_FULL, folder,
                       bytes, available);
    return TX_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------------------- */

tx_status tx_output_check(const char *folder)
{
    TX_NEEDS(folder, TX_INVALID);
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return TX_OK;
    if (!dir)
        return tx_fail(TX_IO, "%s: cannot read the folder: %s", folder, strerror(errno));
    bool empty = true, resumable = false;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        tx_checkpoint_kind kind;
        int64_t step;
        bool ours = strcmp(entry->d_name, ".lock") == 0 || strcmp(entry->d_name, "cache") == 0 ||
                    tx_file_is_temporary(entry->d_name, NULL) ||
                    (tx_checkpoint_is_temporary(entry->d_name, &step, &kind) && kind != TX_CHECKPOINT_ASIDE);
        empty = empty && (ours || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
        resumable = resumable || strncmp(entry->d_name, TX_CHECKPOINT_PREFIX, strlen(TX_CHECKPOINT_PREFIX)) == 0;
    }
    closedir(dir);
    if (empty)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: is not empty; give another output_dir, or --overwrite_output_dir%s", folder,
                   resumable ? ", or resume with --resume_from_checkpoint" : "");
}

tx_status tx_output_prepare(const char *folder)
{
    if (strlen(folder) + LONGEST > PATH_MAX)
        return tx_fail(TX_INVALID,
                       "the path of the output folder has %zu bytes, at most %d leave room for the names of its files: "
                       "use a relative or shorter path",
                       strlen(folder), PATH_MAX - LONGEST);
    TX_TRY(tx_folder_create(folder));
    if (access(folder, W_OK))
        return tx_fail(TX_IO, "%s: cannot write into the folder: %s", folder, strerror(errno));
    return TX_OK;
}
