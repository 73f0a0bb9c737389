/* SPDX-License-Identifier: Apache-2.0
 * The files of a dataset's folder by their names. */
#include "models/files/hub.h"

#include "api/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const endings[] = {".txt", ".raw", ".tokens", ".jsonl", ".bin"};

/* What the splits are called; the first is the name in messages. */
static const char *const stems[][3] = {
    [TX_SPLIT_TRAIN] = {"train"},
    [TX_SPLIT_VALIDATION] = {"validation", "valid", "val"},
    [TX_SPLIT_TEST] = {"test"},
};

/* Whether `name` is a stem of the split with an ending, alone or behind a prefix. */
static bool is_split(const char *name, tx_split split)
{
    size_t length = strlen(name), ending = 0;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t size = strlen(endings[i]);
        if (length > size && strcmp(name + length - size, endings[i]) == 0)
            ending = size;
    }
    if (!ending)
        return false;
    length -= ending;
    for (size_t i = 0; i < 3 && stems[split][i]; i++) {
        size_t size = strlen(stems[split][i]);
        if (length >= size && strncmp(name + length - size, stems[split][i], size) == 0 &&
            (length == size || strchr("._-", name[length - size - 1])))
            return true;
    }
    return false;
}

/* Takes `path` over: the first is kept, and the message of a second one names both. */
static tx_status take(const char *folder, tx_split split, char *path, char **found)
{
    struct stat info;
    tx_status status = TX_OK;
    if (!path)
        return TX_MEMORY;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        free(path);
    } else if (!*found) {
        *found = path;
    } else {
        const char *a = strrchr(path, '/') + 1, *b = strrchr(*found, '/') + 1;
        bool first = strcmp(a, b) < 0;
        status = tx_fail(TX_INVALID, "%s: both %s and %s could be the %s file; give one of them by its path", folder,
                         first ? a : b, first ? b : a, stems[split][0]);
        free(path);
    }
    return status;
}

tx_status tx_hub_split(const char *folder, tx_split split, char **path)
{
    DIR *list = opendir(folder);
    char *found = NULL;
    tx_status status = TX_OK;
    if (!list)
        return tx_fail(errno == ENOENT ? TX_NOT_FOUND : TX_IO, "%s: cannot open the folder: %s", folder,
                       strerror(errno));
    for (struct dirent *e = readdir(list); e && !status; e = readdir(list))
        if (e->d_name[0] != '.' && is_split(e->d_name, split))
            status = take(folder, split, tx_path_join(folder, e->d_name), &found);
    closedir(list);
    if (!status && !found)
        status =
            tx_fail(TX_NOT_FOUND, "%s: no %s file (%s with the ending .txt, .raw, .tokens, .jsonl or .bin)", folder,
                    stems[split][0], split == TX_SPLIT_VALIDATION ? "validation, valid or val" : stems[split][0]);
    if (status)
        free(found);
    else
        *path = found;
    return status;
}
