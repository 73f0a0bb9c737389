/* SPDX-License-Identifier: Apache-2.0
 * Checks of an output folder before a long run. */
#include "tools/output.h"

#include "api/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool tx_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static tx_status check_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return tx_fail(TX_IO, "%s: cannot look into it: %s", folder, strerror(errno));
    int entries = 0;
    while (readdir(dir))
        entries++;
    closedir(dir);
    if (entries > 2)
        return tx_fail(TX_INVALID, "%s: is not empty; give another output_dir, or --overwrite_output_dir", folder);
    return TX_OK;
}

tx_status tx_output_prepare(const char *folder, bool overwrite, int64_t bytes)
{
    tx_status status = tx_folder_create(folder);
    if (!status && !overwrite)
        status = check_empty(folder);
    if (status)
        return status;
    if (access(folder, W_OK))
        return tx_fail(TX_IO, "%s: cannot write there: %s", folder, strerror(errno));
    struct statvfs disk;
    if (statvfs(folder, &disk))
        return tx_fail(TX_IO, "%s: cannot tell the free space: %s", folder, strerror(errno));
    double room = (double)disk.f_bavail * (double)disk.f_frsize, need = 2.0 * (double)bytes;
    if (room < need)
        return tx_fail(TX_IO, "%s: %.0f MB are needed and %.0f MB are free; make room or give another output_dir",
                       folder, need / 1e6, room / 1e6);
    return TX_OK;
}
