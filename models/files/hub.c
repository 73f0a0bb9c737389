/* SPDX-License-Identifier: Apache-2.0
 * Names to folders: paths, $TX_HOME, Hugging Face's cache; and the files of a dataset's folder by their names. */
#include "models/files/hub.h"

#include "api/base/file.h"
#include "models/files/folder.h"
#include "models/files/gguf.h"
#include "models/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file refs/main holds a commit's name, 40 digits. */
#define REVISION_BYTES 256
/* A repository's name on the hub is no longer. */
#define NAME_BYTES 96
/* What it is made of. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* What TX reads of datasets. X(ending) for each, as a list's first one and as the others */
#define ENDINGS(FIRST, X) FIRST(txt) X(raw) X(tokens) X(jsonl) X(json) X(csv) X(tsv) X(bin)
#define ENDING(name) "." #name,
#define SAID_FIRST(name) "." #name
#define SAID(name) ", ." #name
#define SAID_ENDINGS ENDINGS(SAID_FIRST, SAID)
static const char *const endings[] = {ENDINGS(ENDING, ENDING)};

/* What is looked for, and what came of it. */
typedef struct search {
    bool dataset;
    const char *name, *config;
    char below[TX_PATH_ROOM]; /* "/CONFIG", or "" */
    char home[TX_PATH_ROOM];  /* $TX_HOME */
    char hub[TX_PATH_ROOM];   /* the cache; "": there is none */
    char looked[512];         /* places, for the message */
    char note[320];           /* what is there and cannot be used; "" */
} search;

/* printf to a path; what is too long is cut to what no call of the system takes. */
static void put(char path[TX_PATH_ROOM], const char *format, ...) TX_PRINTF(2, 3);
static void put(char path[TX_PATH_ROOM], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(path, TX_PATH_ROOM, format, args);
    va_end(args);
}

/* ---- Names ----------------------------------------------------------------------------------------- */

/* Names that once had no owner. */
static const struct {
    bool dataset;
    const char *name;
} legacy[] = {
    {false, "openai-community/gpt2"},       {false, "openai-community/gpt2-medium"},
    {false, "openai-community/gpt2-large"}, {false, "openai-community/gpt2-xl"},
    {false, "distilbert/distilgpt2"},       {true, "Salesforce/wikitext"},
    {true, "Skylion007/openwebtext"},       {true, "karpathy/tiny_shakespeare"},
};

/* The other name of the same thing, or NULL. */
static const char *other_name(const search *s)
{
    for (size_t i = 0; i < sizeof legacy / sizeof legacy[0]; i++) {
        const char *full = legacy[i].name, *bare = strchr(full, '/') + 1;
        if (legacy[i].dataset == s->dataset && strcmp(s->name, bare) == 0)
            return full;
        if (legacy[i].dataset == s->dataset && strcmp(s->name, full) == 0)
            return bare;
    }
    return NULL;
}

/* Whether the `size` bytes can be an owner or a name on the hub. */
static bool is_part(const char *part, size_t size)
{
    return size > 0 && !strchr(".-", part[0]) && !strchr(".-", part[size - 1]);
}

/* Whether it can be the name of something on the hub: NAME or OWNER/NAME of letters, digits and "._-", neither part
 * beginning or ending with one of ".-", "--" and ".." nowhere. */
static bool is_hub_name(const char *name)
{
    const size_t length = strlen(name);
    const char *slash = strchr(name, '/'), *last = slash ? slash + 1 : name;
    return length <= NAME_BYTES && strspn(last, PLAIN) == strlen(last) && is_part(last, strlen(last)) &&
           !strstr(name, "--") && !strstr(name, "..") &&
           (!slash || (strspn(name, PLAIN) == (size_t)(slash - name) && is_part(name, (size_t)(slash - name))));
}

/* Whether it names a folder within another. */
static bool is_component(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

/* `text` as one word of a shell's command. */
static void quote(const char *text, char quoted[4 * TX_PATH_ROOM])
{
    const bool safe = text[0] && strspn(text, PLAIN "/+:") == strlen(text);
    char *to = quoted;
    if (!safe)
        *to++ = '\'';
    for (size_t i = 0; text[i] && i < TX_PATH_ROOM - 1; i++)
        to += sprintf(to, text[i] == '\'' ? "'\\''" : "%c", text[i]);
    strcpy(to, safe ? "" : "'");
}

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Value of an environment variable that is set and not empty, or NULL. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* $TX_HOME, $XDG_DATA_HOME/tx or ~/.local/share/tx. */
static tx_status find_home(char path[TX_PATH_ROOM])
{
    const char *set = environment("TX_HOME"), *data = environment("XDG_DATA_HOME"), *home = environment("HOME");
    if (!set && !data && !home)
        return tx_fail(TX_NOT_FOUND, "neither TX_HOME nor HOME is set: give a path, or set TX_HOME");
    put(path, "%s%s", set ? set : data ? data : home, set ? "" : data ? "/tx" : "/.local/share/tx");
    return TX_OK;
}

/* Where the hub's own programs keep what they fetch: the first that is set decides. */
static void find_hub(char path[TX_PATH_ROOM])
{
    static const char *const places[][2] = {{"HF_HUB_CACHE", ""},
                                            {"HF_HOME", "/hub"},
                                            {"XDG_CACHE_HOME", "/huggingface/hub"},
                                            {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !path[0]; i++)
        if (environment(places[i][0]))
            put(path, "%s%s", environment(places[i][0]), places[i][1]);
}

static tx_status copy(const char *path, char **made)
{
    char *text = strdup(path);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory for the name of a file");
    *made = text;
    return TX_OK;
}

/* ---- Looking --------------------------------------------------------------------------------------- */

/* Takes the folder if it holds what is looked for, a copy of its path: TX_OK or TX_NOT_FOUND; what is there all the
 * same is noted. */
static tx_status consider(search *s, const char *candidate, char **folder)
{
    tx_status status = TX_NOT_FOUND;
    char *file = NULL, path[TX_PATH_ROOM];
    if (!tx_file_exists(candidate))
        return TX_NOT_FOUND;
    for (int split = TX_SPLIT_TRAIN; s->dataset && split <= TX_SPLIT_TEST && status == TX_NOT_FOUND; split++)
        status = tx_hub_split(candidate, (tx_split)split, &file);
    free(file);
    if (status == TX_INVALID) /* several: told when one is asked for */
        status = TX_OK;
    if (!s->dataset && tx_file_exists(tx_path_in(path, candidate, "config.json")))
        status = TX_OK;
    if (status == TX_NOT_FOUND)
        snprintf(s->note, sizeof s->note, "; %.200s has no %s", candidate,
                 s->dataset ? "train, validation or test file that TX reads (it reads no parquet)" : "config.json");
    TX_TRY(status);
    return copy(candidate, folder);
}

static void looked_in(search *s, const char *place)
{
    tx_list_add(s->looked, sizeof s->looked, ", ", "%s", place);
}

static tx_status look_at_home(search *s, const char *name, char **folder)
{
    char place[TX_PATH_ROOM];
    put(place, "%s/%s/%s%s", s->home, s->dataset ? "datasets" : "models", name, s->below);
    looked_in(s, place);
    return consider(s, place, folder);
}

/* The only entry of a folder that is not hidden, in `name`; TX_NOT_FOUND where there is none or are several. */
static tx_status only_entry(const char *folder, char name[REVISION_BYTES])
{
    int entries = 0;
    tx_names names;
    tx_status status = tx_folder_list(folder, &names);
    if (status)
        return status == TX_MEMORY ? TX_MEMORY : TX_NOT_FOUND;
    for (size_t i = 0; i < names.count; i++)
        if (names.name[i][0] != '.' && strlen(names.name[i]) < REVISION_BYTES && ++entries == 1)
            strcpy(name, names.name[i]);
    tx_names_free(&names);
    return entries == 1 ? TX_OK : TX_NOT_FOUND;
}

/* The snapshot of a repository in the cache: what refs/main names, or the only one. */
static tx_status find_revision(search *s, const char *repository, char revision[REVISION_BYTES])
{
    char path[TX_PATH_ROOM], *text = NULL;
    size_t size = 0;
    tx_status status = tx_file_read(tx_path_in(path, repository, "refs/main"), REVISION_BYTES - 1, &text, &size);
    if (status == TX_OK) {
        text[strcspn(text, " \r\n")] = '\0';
        strcpy(revision, text);
        free(text);
        status = is_component(revision) ? TX_OK : TX_NOT_FOUND;
        if (status)
            snprintf(s->note, sizeof s->note, "; %.200s does not name a snapshot", path);
    } else if (status != TX_MEMORY) {
        status = only_entry(tx_path_in(path, repository, "snapshots"), revision);
        if (status == TX_NOT_FOUND)
            snprintf(s->note, sizeof s->note, "; %.200s has no refs/main and not just one snapshot", repository);
    }
    return status;
}

static tx_status look_in_cache(search *s, const char *name, char **folder)
{
    const char *slash = strchr(name, '/');
    char revision[REVISION_BYTES], repository[TX_PATH_ROOM], place[TX_PATH_ROOM];
    put(repository, "%s/%s--%.*s%s%s", s->hub, s->dataset ? "datasets" : "models", slash ? (int)(slash - name) : 0,
        name, slash ? "--" : "", slash ? slash + 1 : name);
    looked_in(s, repository);
    TX_TRY(tx_file_exists(repository) ? find_revision(s, repository, revision) : TX_NOT_FOUND);
    put(place, "%s/snapshots/%s%s", repository, revision, s->below);
    return consider(s, place, folder);
}

/* Goes through the places that a name may stand for. */
static tx_status look(search *s, char **folder)
{
    const char *names[2] = {s->name, other_name(s)};
    tx_status status = TX_NOT_FOUND;
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i])
            status = look_at_home(s, names[i], folder);
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i] && s->hub[0])
            status = look_in_cache(s, names[i], folder);
    return status;
}

/* ---- What to do where it is not there ------------------------------------------------------------------ */

/* The command comes before the places, so that no length of these cuts it off. */
static tx_status fail_model(const search *s)
{
    return tx_fail(TX_NOT_FOUND, "%s: no such model here; to fetch it: hf download %s (looked in %s%s)", s->name,
                   s->name, s->looked, s->note);
}

static tx_status fail_dataset(const search *s)
{
    char folder[TX_PATH_ROOM], place[4 * TX_PATH_ROOM], config[4 * TX_PATH_ROOM] = "";
    put(folder, "%s/datasets/%s%s", s->home, s->name, s->below);
    quote(folder, place);
    if (s->config)
        quote(s->config, config);
    return tx_fail(TX_NOT_FOUND,
                   "%s%s: no such dataset here; to fetch it (Python with the library datasets): "
                   "python3 -c 'import os,sys,datasets; p=sys.argv[1]; os.makedirs(p,exist_ok=True); "
                   "[d.to_json(f\"{p}/{s}.jsonl\") for s,d in datasets.load_dataset(*sys.argv[2:]).items()]' "
                   "%s %s%s%s (looked in %s%s)",
                   s->name, s->below, place, s->name, s->config ? " " : "", config, s->looked, s->note);
}

static tx_status find(search *s, char **folder)
{
    if (!is_hub_name(s->name))
        return tx_fail(TX_NOT_FOUND, "%s: no such %s, and no name of a %s on the hub (NAME or OWNER/NAME)", s->name,
                       s->dataset ? "folder" : "file or folder", s->dataset ? "dataset" : "model");
    TX_TRY(find_home(s->home));
    find_hub(s->hub);
    tx_status status = look(s, folder);
    if (status == TX_NOT_FOUND)
        status = s->dataset ? fail_dataset(s) : fail_model(s);
    return status;
}

tx_status tx_hub_model(const char *name, char **folder)
{
    search s = {.name = name};
    return tx_file_exists(name) || tx_gguf_is_name(name) ? copy(name, folder) : find(&s, folder);
}

tx_status tx_hub_dataset(const char *name, const char *config, char **folder)
{
    search s = {.dataset = true, .name = name, .config = config};
    struct stat info;
    char path[TX_PATH_ROOM];
    if (config && !is_component(config))
        return tx_fail(TX_INVALID, "%s: \"%s\" is not the name of a configuration", name, config);
    put(s.below, "%s%s", config ? "/" : "", config ? config : "");
    if (stat(name, &info) != 0)
        return find(&s, folder);
    if (!S_ISDIR(info.st_mode))
        return tx_fail(TX_INVALID, "%s: not a folder; a single file is given as the file to train on", name);
    put(path, "%s%s", name, s.below);
    tx_status status = consider(&s, path, folder);
    if (status == TX_NOT_FOUND)
        return tx_fail(TX_NOT_FOUND,
                       "%s: no folder with a file train, validation or test that TX reads (" SAID_ENDINGS ")", path);
    return status;
}

/* ---- Splits ---------------------------------------------------------------------------------------------- */

/* What the splits are called; the first is the name in messages. */
#define STEMS 5
static const char *const stems[][STEMS] = {
    [TX_SPLIT_TRAIN] = {"train"},
    [TX_SPLIT_VALIDATION] = {"validation", "valid", "val", "dev", "validation_matched"},
    [TX_SPLIT_TEST] = {"test", "test_matched"},
};

/* Whether `name` is a stem of the split with an ending, alone or behind a prefix. */
static bool is_split(const char *name, tx_split split)
{
    size_t length = strlen(name), ending = 0;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (tx_ends_with(name, endings[i]))
            ending = strlen(endings[i]);
    if (!ending)
        return false;
    length -= ending;
    for (size_t i = 0; i < STEMS && stems[split][i]; i++) {
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
    const char *found = NULL;
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
        return tx_fail(TX_IO, "%s: not a folder", folder);
    TX_TRY(tx_folder_list(folder, &names));
    tx_status status = TX_OK;
    for (size_t i = 0; i < names.count && !status; i++) {
        const char *name = names.name[i];
        if (name[0] == '.' || !is_split(name, split) || stat(TX_PATH(folder, name), &info) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (found)
            status = tx_fail(TX_INVALID, "%s: both %s and %s could be the %s file; give one of them by its path",
                             folder, found, name, stems[split][0]);
        found = name;
    }
    if (!status && !found)
        status = tx_fail(TX_NOT_FOUND, "%s: no %s file (%s with the ending " SAID_ENDINGS ")", folder, stems[split][0],
                         split == TX_SPLIT_VALIDATION ? "validation, valid, val or dev" : stems[split][0]);
    TX_THEN(status, copy(TX_PATH(folder, found), path));
    tx_names_free(&names);
    return status;
}
