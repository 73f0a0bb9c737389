/* SPDX-License-Identifier: Apache-2.0
 * The files of a dataset's folder by their names. */
#include "models/files/hub.h"

#include "api/base/file.h"
#include "models/files/folder.h"

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

tx_status tx_hub_split(const char *folder, tx_split split, char **path)
{
    struct stat info;
    tx_names names;
    char at[TX_PATH_ROOM];
    const char *found = NULL;
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
        return tx_fail(TX_IO, "%s: not a folder", folder);
    TX_TRY(tx_folder_list(folder, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++) {
        const char *name = names.name[i];
        if (name[0] == '.' || !is_split(name, split) || stat(tx_path_in(at, folder, name), &info) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (found)
            status = tx_fail(TX_INVALID, "%s: both %s and %s could be the %s file; give one of them by its path",
                             folder, found, name, stems[split][0]);
        found = name;
    }
    if (!status && !found)
        status =
            tx_fail(TX_NOT_FOUND, "%s: no %s file (%s with the ending .txt, .raw, .tokens, .jsonl or .bin)", folder,
                    stems[split][0], split == TX_SPLIT_VALIDATION ? "validation, valid or val" : stems[split][0]);
    if (!status) {
        char *made = tx_path_join(folder, found);
        status = made ? TX_OK : TX_MEMORY;
        *path = made ? made : *path;
    }
    tx_names_free(&names);
    return status;
}
