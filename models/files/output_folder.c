/* SPDX-License-Identifier: Apache-2.0
 * Whether a run may write to a folder. */
#include "models/files/checkpoint.h"

#include "api/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

tx_status tx_output_check(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return TX_OK;
    if (!dir)
        return tx_fail(TX_IO, "%s: cannot look into it: %s", folder, strerror(errno));
    bool empty = true, resumable = false;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        bool ours = strcmp(entry->d_name, ".lock") == 0 || strcmp(entry->d_name, "cache") == 0;
        empty = empty && (ours || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
        resumable = resumable || strncmp(entry->d_name, TX_CHECKPOINT_PREFIX, strlen(TX_CHECKPOINT_PREFIX)) == 0;
    }
    closedir(dir);
    if (empty)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: is not empty; give another output_dir, or --overwrite_output_dir%s", folder,
                   resumable ? ", or go on with --resume_from_checkpoint" : "");
}

tx_status tx_output_prepare(const char *folder)
{
    TX_TRY(tx_folder_create(folder));
    if (access(folder, W_OK))
        return tx_fail(TX_IO, "%s: cannot write there: %s", folder, strerror(errno));
    return TX_OK;
}
