/* SPDX-License-Identifier: Apache-2.0
 * Finds the files of a dataset's split. */
#include "models/files/splits.h"

#include "api/base/file.h"
#include "models/files/packed.h"
#include "models/names.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXTENSION(name) "." #name,
static const char *const extensions[] = {TX_DATA_ENDINGS(EXTENSION, EXTENSION)};

/* Names of the splits; the first one is used in messages. */
#define STEMS 5
static const char *const stems[][STEMS] = {
    [TX_SPLIT_TRAIN] = {"train"},
    [TX_SPLIT_VALIDATION] = {"validation", "valid", "val", "dev", "validation_matched"},
    [TX_SPLIT_TEST] = {"test", "test_matched"},
};

/* The parts of a file's name. */
typedef struct parts {
    size_t stem;           /* bytes before the shard's number and the ending */
    long shard, of;        /* -00000-of-00002; of is 0 if there is no number */
    const char *extension; /* NULL if TX does not read the file */
} parts;

/* ---- Names of files ----------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* Reads "-00000-of-00002" and an optional "-0123456789abcdef" that end at the name's ending. */
static void read_shard(const char *name, size_t end, parts *p)
{
    for (size_t at = end; at-- > 0;) {
        const size_t number = name[at] == '-' ? digits(name + at + 1) : 0;
        const char *of = name + at + 1 + number;
        if (number == 0 || strncmp(of, "-of-", 4) != 0)
            continue;
        const size_t total = digits(of + 4), after = (size_t)(of + 4 - name) + total;
        const bool hash =
            after < end && name[after] == '-' && strspn(name + after + 1, "0123456789abcdef") == end - after - 1;
        if (total == 0 || number > 9 || total > 9 || (after != end && !hash))
            return;
        p->stem = at;
        p->shard = strtol(name + at + 1, NULL, 10);
        p->of = strtol(of + 4, NULL, 10);
        return;
    }
}

static parts read_name(const char *name)
{
    const size_t stem = tx_packed_stem(name);
    parts p = {.stem = stem ? stem : strlen(name)};
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
        const size_t size = strlen(extensions[i]);
        if (p.stem >= size && strncmp(name + p.stem - size, extensions[i], size) == 0)
            p.extension = extensions[i];
    }
    if (p.extension) {
        p.stem -= strlen(p.extension);
        read_shard(name, p.stem, &p);
    }
    return p;
}

static bool is_data(const char *folder, const char *name)
{
    /* Descriptions that datasets writes next to the data. */
    static const char *const described[] = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                            "state.json"};
    struct stat info;
    for (size_t i = 0; i < sizeof described / sizeof described[0]; i++)
        if (strcmp(name, described[i]) == 0)
            return false;
    return name[0] != '.' && read_name(name).extension && stat(TX_PATH(folder, name), &info) == 0 &&
           S_ISREG(info.st_mode);
}

/* Whether the stem of a file is a name of the split, possibly after a prefix that ends in one of "._-". Shards may have
 * more after it, as in train_sft-00000-of-00003.parquet. */
static bool is_of_split(const char *name, tx_split split)
{
    const parts p = read_name(name);
    for (size_t i = 0; i < STEMS && stems[split][i]; i++) {
        const size_t size = strlen(stems[split][i]);
        if (p.of && p.stem > size && strncmp(name, stems[split][i], size) == 0 && name[size] == '_')
            return true;
        if (p.stem >= size && strncmp(name + p.stem - size, stems[split][i], size) == 0 &&
            (p.stem == size || strchr("._-", name[p.stem - size - 1])))
            return true;
    }
    return false;
}

/* ---- Lists of files ----------------------------------------------------------------------------------------- */

static tx_status add_path(tx_names *files, const char *path)
{
    char **name = realloc(files->name, (files->count + 1) * sizeof *name);
    if (name)
        files->name = name;
    if (!name || !(name[files->count] = strdup(path)))
        return tx_fail(TX_MEMORY, "no memory for the names of data files");
    files->count++;
    return TX_OK;
}

/* Adds the files of a folder that belong to a split. `all`: the folder is of the split, so every data file does. */
static tx_status add_files(const char *folder, tx_split split, bool all, tx_names *files)
{
    tx_names names = {0};
    if (!tx_is_folder(folder))
        return TX_OK;
    TX_TRY(tx_folder_list(folder, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++)
        if (is_data(folder, names.name[i]) && (all || is_of_split(names.name[i], split)))
            status = add_path(files, TX_PATH(folder, names.name[i]));
    tx_names_free(&names);
    return status;
}

/* A folder with one table, or one file of JSON lines, or the shards of one, whose name says no split. */
static tx_status add_only_file(const char *folder, tx_names *files)
{
    static const char *const tables[] = {".jsonl", ".csv", ".tsv", ".parquet", ".arrow"};
    tx_names all = {0};
    bool table = false;
    tx_status status = add_files(folder, TX_SPLIT_TRAIN, true, &all);
    const bool one = !status && all.count && (all.count == 1 || read_name(base_name(all.name[0])).of);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && one; i++)
        table |= tx_ends_with(all.name[0], tables[i]);
    for (size_t i = 0; i < all.count && table && !status; i++)
        status = add_path(files, all.name[i]);
    tx_names_free(&all);
    return status;
}

/* Several files of a split are one dataset only as all shards of one name, or as the files of the split's folder. */
static tx_status check_files(const char *folder, tx_split split, bool all, const tx_names *files)
{
    const char *first = base_name(files->name[0]);
    const parts p = read_name(first);
    for (size_t i = 1; i < files->count; i++) {
        const char *name = base_name(files->name[i]);
        const parts q = read_name(name);
        const bool shards = p.of && p.of == q.of && p.stem == q.stem && strncmp(first, name, p.stem) == 0;
        if (strcmp(p.extension, q.extension) != 0 || (!all && !shards))
            return tx_fail(TX_INVALID, "%s: both %s and %s could be the %s file; give one of them by its path", folder,
                           first, name, stems[split][0]);
    }
    for (size_t i = 0; i < files->count && p.of; i++)
        if (read_name(base_name(files->name[i])).shard != (long)i)
            return tx_fail(TX_FORMAT, "%s: shard %zu of %ld of %.*s is missing: download the dataset again", folder, i,
                           p.of, (int)p.stem, first);
    if (p.of && p.of != (long)files->count)
        return tx_fail(TX_FORMAT, "%s: only %zu of the %ld shards of %.*s are here: download the dataset again", folder,
                       files->count, p.of, (int)p.stem, first);
    return TX_OK;
}

tx_status tx_hub_split(const char *folder, tx_split split, tx_names *files)
{
    struct stat info;
    char path[TX_PATH_ROOM];
    tx_names found = {0};
    bool all = false;
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
        return tx_fail(TX_IO, "%s: not a folder", folder);
    if (stat(folder, &info) != 0)
        return tx_file_fail(folder, "list");
    tx_status status = add_files(folder, split, false, &found);
    if (!status && !found.count)
        status = add_files(tx_path_in(path, folder, "data"), split, false, &found);
    for (size_t i = 0; i < STEMS && stems[split][i] && !status && !found.count; i++) {
        status = add_files(tx_path_in(path, folder, stems[split][i]), split, true, &found);
        all = found.count > 0;
    }
    if (!status && !found.count && split == TX_SPLIT_TRAIN)
        status = add_only_file(folder, &found);
    if (!status && !found.count)
        status =
            tx_fail(TX_NOT_FOUND, "%s: no %s file (%s with the ending " TX_DATA_EXTENSION_LIST ")", folder,
                    stems[split][0], split == TX_SPLIT_VALIDATION ? "validation, valid, val or dev" : stems[split][0]);
    TX_THEN(status, check_files(folder, split, all, &found));
    if (status)
        tx_names_free(&found);
    else
        *files = found;
    return status;
}

tx_status tx_hub_configurations(const char *folder, tx_names *names)
{
    tx_names all = {0}, found = {0};
    TX_TRY(tx_folder_list(folder, &all));
    tx_status status = TX_OK;
    for (size_t i = 0; i < all.count && !status; i++) {
        tx_names files = {0};
        const char *path = TX_PATH(folder, all.name[i]);
        if (all.name[i][0] == '.' || !tx_is_folder(path))
            continue;
        const tx_status has = tx_hub_split(path, TX_SPLIT_TRAIN, &files);
        if (!has || has == TX_INVALID || has == TX_FORMAT)
            status = add_path(&found, all.name[i]);
        else if (has == TX_MEMORY)
            status = has;
        tx_names_free(&files);
    }
    tx_names_free(&all);
    if (status)
        tx_names_free(&found);
    else
        *names = found;
    return status;
}

/* ---- Values of options --------------------------------------------------------------------------------------- */

#define DEPTH 16 /* of folders in a folder of texts */

/* Whether a file of a folder of texts is one: notes in Markdown are, files of tokens are not. */
static bool is_text(const char *folder, const char *name)
{
    return tx_ends_with(name, ".md") ? name[0] != '.' : is_data(folder, name) && !tx_ends_with(name, ".bin");
}

/* Adds all texts of a folder and of the folders in it, in the order of their paths. */
static tx_status add_texts(const char *folder, int32_t depth, tx_names *files)
{
    tx_names names = {0};
    TX_TRY(tx_folder_list(folder, &names));
    tx_status status = depth < DEPTH ? TX_OK : tx_fail(TX_INVALID, "%s: more than %d folders deep", folder, DEPTH);
    for (size_t i = 0; i < names.count && !status; i++) {
        char path[TX_PATH_ROOM];
        tx_path_in(path, folder, names.name[i]);
        if (names.name[i][0] != '.' && tx_is_folder(path))
            status = add_texts(path, depth + 1, files);
        else if (is_text(folder, names.name[i]))
            status = add_path(files, path);
    }
    tx_names_free(&names);
    return status;
}

static tx_status add_named(const char *path, tx_names *files)
{
    const size_t before = files->count;
    if (!tx_is_folder(path))
        return add_path(files, path);
    TX_TRY(add_texts(path, 0, files));
    return files->count > before
               ? TX_OK
               : tx_fail(TX_NOT_FOUND, "%s: the folder has no file that TX can read (" TX_DATA_EXTENSION_LIST ", .md)",
                         path);
}

static tx_status add_pattern(const char *pattern, tx_names *files)
{
    glob_t found;
    if (tx_file_exists(pattern) || !strpbrk(pattern, "*?["))
        return add_named(pattern, files);
    const int result = glob(pattern, 0, NULL, &found);
    tx_status status = result == GLOB_NOSPACE ? tx_fail(TX_MEMORY, "%s: no memory to list files", pattern)
                       : result               ? tx_fail(TX_NOT_FOUND, "%s: no such file", pattern)
                                              : TX_OK;
    for (size_t i = 0; !result && i < found.gl_pathc && !status; i++)
        status = add_named(found.gl_pathv[i], files);
    if (!result)
        globfree(&found);
    return status;
}

static tx_status add_list(const char *list, tx_names *files)
{
    tx_status status = TX_OK;
    char *names = strdup(list), *rest = NULL;
    if (!names)
        return tx_fail(TX_MEMORY, "no memory for the names of data files");
    for (char *name = strtok_r(names, ",", &rest); name && !status; name = strtok_r(NULL, ",", &rest))
        status = add_pattern(name, files);
    free(names);
    return status;
}

tx_status tx_data_files(const char *value, tx_names *files)
{
    tx_names found = {0};
    /* The name of a file may have a comma. */
    tx_status status = tx_file_exists(value) ? add_named(value, &found) : add_list(value, &found);
    if (!status && !found.count)
        status = tx_fail(TX_INVALID, "\"%s\" names no file", value);
    if (status)
        tx_names_free(&found);
    else
        *files = found;
    return status;
}
