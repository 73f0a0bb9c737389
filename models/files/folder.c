/* SPDX-License-Identifier: Apache-2.0
 * Lists, compares and removes folders, and copies files. */
#include "models/files/folder.h"

#include "api/base/file.h"
#include "api/base/needs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Nesting limit for removal: bounds the number of descriptors and the stack. */
#define MAX_DEPTH 32

char *tx_path_in(char path[TX_PATH_ROOM], const char *folder, const char *name)
{
    TX_NEEDS(path && folder && name, path);
    const size_t length = strlen(folder);
    snprintf(path, TX_PATH_ROOM, "%s%s%s", folder, length > 0 && folder[length - 1] == '/' ? "" : "/", name);
    return path;
}

tx_status tx_folder_copy_file(const char *from, const char *to, const char *name, int64_t limit)
{
    const char *source = TX_PATH(from, name);
    char *data;
    size_t size;
    if (!tx_file_exists(source))
        return TX_OK;
    TX_TRY(tx_file_read(source, limit, &data, &size));
    tx_status status = tx_file_write(TX_PATH(to, name), data, size);
    free(data);
    return status;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* ---- Listing ------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tx_status add_name(tx_names *names, size_t *room, const char *name)
{
    TX_TRY(tx_array_reserve(&names->name, room, names->count + 1, sizeof *names->name, "names in a folder"));
    names->name[names->count] = strdup(name);
    return names->name[names->count++] ? TX_OK : tx_fail(TX_MEMORY, "no memory for the names in a folder");
}

/* readdir reports both the end and a failure as NULL; only errno distinguishes them. */
static struct dirent *next_entry(DIR *list)
{
    errno = 0;
    return readdir(list);
}

static tx_status read_names(DIR *list, const char *folder, tx_names *names)
{
    tx_status status = TX_OK;
    size_t room = 0;
    for (struct dirent *e = next_entry(list); !status; e = next_entry(list)) {
        if (!e)
            return errno ? tx_file_fail(folder, "list") : TX_OK;
        if (!is_dots(e->d_name))
            status = add_name(names, &room, e->d_name);
    }
    return tx_fail_in(status, "%s", folder);
}

tx_status tx_folder_list(const char *folder, tx_names *names)
{
    TX_NEEDS(folder && names, TX_INVALID);
    tx_names result = {0};
    DIR *list = opendir(folder);
    if (!list)
        return tx_file_fail(folder, "list");
    tx_status status = read_names(list, folder, &result);
    closedir(list);
    if (status) {
        tx_names_free(&result);
        return status;
    }
    if (result.count > 1)
        qsort(result.name, result.count, sizeof *result.name, by_bytes);
    *names = result;
    return TX_OK;
}

void tx_names_free(tx_names *names)
{
    if (!names)
        return;
    for (size_t i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (tx_names){0};
}

/* Adds "name", or "name/.." for all that the folder `name` contains. */
static tx_status add_files(const char *folder, const char *name, tx_names *names, size_t *room)
{
    struct stat info;
    const char *path = TX_PATH(folder, name);
    char inner[2 * NAME_MAX + 2];
    tx_names within;
    if (lstat(path, &info) != 0)
        return tx_file_fail(path, "get its status");
    if (!S_ISDIR(info.st_mode))
        return add_name(names, room, name);
    TX_TRY(tx_folder_list(path, &within));
    tx_status status = TX_OK;
    for (size_t i = 0; i < within.count && !status; i++) {
        snprintf(inner, sizeof inner, "%s/%s", name, within.name[i]);
        status = add_name(names, room, inner);
    }
    tx_names_free(&within);
    return status;
}

tx_status tx_folder_files(const char *folder, tx_names *names)
{
    tx_names all, files = {0};
    size_t room = 0;
    TX_TRY(tx_folder_list(folder, &all));
    tx_status status = TX_OK;
    for (size_t i = 0; i < all.count && !status; i++)
        status = add_files(folder, all.name[i], &files, &room);
    tx_names_free(&all);
    if (status)
        tx_names_free(&files);
    else
        *names = files;
    return status;
}

static tx_status stat_path(const char *path, struct stat *info, bool *exists)
{
    *exists = stat(path, info) == 0;
    tx_status status = *exists ? TX_OK : tx_file_fail(path, "get its status");
    return status == TX_NOT_FOUND ? TX_OK : status;
}

tx_status tx_folder_same(const char *a, const char *b, bool *same)
{
    struct stat first, second;
    bool has_first, has_second;
    TX_TRY(stat_path(a, &first, &has_first));
    TX_TRY(stat_path(b, &second, &has_second));
    *same = has_first && has_second && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
    return TX_OK;
}

/* ---- Removing ------------------------------------------------------------------------------------ */

/* The state of a removal: `path` is only for messages, descriptors identify the folders. */
typedef struct removal {
    const char *path;
    int depth;
} removal;

static tx_status remove_at(removal *r, int parent, const char *name);

/* Removes the contents of the folder that `list` reads. */
static tx_status empty(removal *r, DIR *list)
{
    for (struct dirent *e = next_entry(list);; e = next_entry(list)) {
        if (!e)
            return errno ? tx_file_fail(r->path, "list it to remove it") : TX_OK;
        if (!is_dots(e->d_name))
            TX_TRY(remove_at(r, dirfd(list), e->d_name));
    }
}

static tx_status remove_folder_at(removal *r, int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return tx_file_fail(r->path, "open a folder to remove it");
    if (r->depth == MAX_DEPTH) {
        close(folder);
        return tx_fail(TX_IO, "%s: cannot be removed: more than %d nested folders", r->path, MAX_DEPTH);
    }
    DIR *list = fdopendir(folder);
    if (!list) {
        tx_status status = tx_file_fail(r->path, "list it to remove it");
        close(folder);
        return status;
    }
    r->depth++;
    tx_status status = empty(r, list);
    r->depth--;
    closedir(list);
    if (!status && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        status = tx_file_fail(r->path, "remove");
    return status;
}

static tx_status remove_at(removal *r, int parent, const char *name)
{
    struct stat info;
    if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode))
        return remove_folder_at(r, parent, name);
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return TX_OK;
    return tx_file_fail(r->path, "remove its contents");
}

tx_status tx_folder_remove(const char *parent, const char *name)
{
    TX_NEEDS(parent && name, TX_INVALID);
    int descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return tx_file_fail(parent, "open");
    removal r = {.path = name};
    tx_status status = remove_at(&r, descriptor, name);
    close(descriptor);
    return tx_fail_in(status, "%s", parent);
}
