/* SPDX-License-Identifier: Apache-2.0
 * Finds models and datasets by name: in paths, $TX_HOME and Hugging Face's cache. */
#include "models/files/hub.h"

#include "api/base/file.h"
#include "api/base/number.h"
#include "models/files/splits.h"
#include "models/gguf/gguf_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* refs/main contains the id of a commit, 40 digits. */
#define REVISION_BYTES 256
/* The hub's limit for the name of a repository. */
#define NAME_BYTES 96
/* Characters of names, which also need no quoting in a shell. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* The arguments and results of a search. */
typedef struct search {
    bool dataset;
    const char *name, *config;
    char below[TX_PATH_ROOM]; /* "/CONFIG", or "" */
    char home[TX_PATH_ROOM];  /* $TX_HOME */
    char hub[TX_PATH_ROOM];   /* Hugging Face's cache, or "" */
    char looked[512];         /* the places searched, for the message */
    char note[320];           /* a folder that was found but cannot be used, or "" */
} search;

/* Formats a path. A longer result is cut to a length that every system call refuses. */
static void format_path(char path[TX_PATH_ROOM], const char *format, ...) TX_PRINTF(2, 3);
static void format_path(char path[TX_PATH_ROOM], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tx_format_list(path, TX_PATH_ROOM, format, args);
    va_end(args);
}

/* ---- Names ----------------------------------------------------------------------------------------- */

/* Names that originally had no owner. */
static const struct {
    bool dataset;
    const char *name;
} legacy[] = {
    {false, "openai-community/gpt2"},       {false, "openai-community/gpt2-medium"},
    {false, "openai-community/gpt2-large"}, {false, "openai-community/gpt2-xl"},
    {false, "distilbert/distilgpt2"},       {true, "Salesforce/wikitext"},
    {true, "Skylion007/openwebtext"},       {true, "karpathy/tiny_shakespeare"},
};

/* The other name of the same repository, or NULL. */
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

/* Returns true if the bytes can be an owner or a name on the hub. */
static bool is_part(const char *part, size_t size)
{
    return size > 0 && !strchr(".-", part[0]) && !strchr(".-", part[size - 1]);
}

/* Returns true for a valid repository name: NAME or OWNER/NAME of letters, digits and "._-". Neither part may start
 * or end with "." or "-", and "--" and ".." may not occur. */
static bool is_hub_name(const char *name)
{
    const size_t length = strlen(name);
    const char *slash = strchr(name, '/'), *last = slash ? slash + 1 : name;
    return length <= NAME_BYTES && strspn(last, PLAIN) == strlen(last) && is_part(last, strlen(last)) &&
           !strstr(name, "--") && !strstr(name, "..") &&
           (!slash || (strspn(name, PLAIN) == (size_t)(slash - name) && is_part(name, (size_t)(slash - name))));
}

/* Returns true if the name is a single component of a path. */
static bool is_component(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

/* ---- Locations ------------------------------------------------------------------------------------- */

/* The value of an environment variable that is set and not empty, else NULL. */
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
    format_path(path, "%s%s", set ? set : data ? data : home, set ? "" : data ? "/tx" : "/.local/share/tx");
    return TX_OK;
}

tx_status tx_hub_cache(char path[TX_PATH_ROOM])
{
    char home[TX_PATH_ROOM];
    TX_TRY(find_home(home));
    tx_path_in(path, home, "cache");
    return TX_OK;
}

/* The cache of Hugging Face's libraries: the first variable that is set decides. */
static void find_hub(char path[TX_PATH_ROOM])
{
    static const char *const places[][2] = {{"HF_HUB_CACHE", ""},
                                            {"HF_HOME", "/hub"},
                                            {"XDG_CACHE_HOME", "/huggingface/hub"},
                                            {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !path[0]; i++)
        if (environment(places[i][0]))
            format_path(path, "%s%s", environment(places[i][0]), places[i][1]);
}

static tx_status copy(const char *path, char **created)
{
    char *text = strdup(path);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory for the name of a file");
    *created = text;
    return TX_OK;
}

/* ---- Searching ------------------------------------------------------------------------------------- */

/* TX_OK if a folder has files of a split. Damaged and ambiguous ones are reported when the split is requested. */
static tx_status find_split(const char *folder)
{
    tx_names files = {0};
    tx_status status = TX_NOT_FOUND;
    for (int split = TX_SPLIT_TRAIN; split <= TX_SPLIT_TEST && status == TX_NOT_FOUND; split++)
        status = tx_hub_split(folder, (tx_split)split, &files);
    tx_names_free(&files);
    return status == TX_INVALID || status == TX_FORMAT ? TX_OK : status;
}

/* Copies the path of `candidate` if it holds a dataset, or the path of its only configuration. Several configurations
 * are TX_INVALID. */
static tx_status try_dataset(search *s, const char *candidate, char **folder)
{
    tx_names names = {0};
    const tx_status found = find_split(candidate);
    if (!found)
        return copy(candidate, folder);
    if (found == TX_MEMORY || s->config || !tx_is_folder(candidate))
        return found == TX_MEMORY ? found : TX_NOT_FOUND;
    TX_TRY(tx_hub_configurations(candidate, &names));
    char list[512] = "";
    for (size_t i = 0; i < names.count; i++)
        tx_list_add(list, sizeof list, ", ", "%s", names.name[i]);
    tx_status status = names.count == 1 ? copy(TX_PATH(candidate, names.name[0]), folder)
                       : names.count    ? tx_fail(TX_INVALID,
                                                  "%s has several configurations: choose one of %s by "
                                                     "--dataset_config_name",
                                                  candidate, list)
                                        : TX_NOT_FOUND;
    tx_names_free(&names);
    return status;
}

/* Copies the path of `candidate` if it holds a model or a dataset. If it exists but does not, notes that and
 * returns TX_NOT_FOUND. */
static tx_status try_folder(search *s, const char *candidate, char **folder)
{
    if (!tx_file_exists(candidate))
        return TX_NOT_FOUND;
    const tx_status status = s->dataset                                          ? try_dataset(s, candidate, folder)
                             : tx_file_exists(TX_PATH(candidate, "config.json")) ? copy(candidate, folder)
                                                                                 : TX_NOT_FOUND;
    if (status == TX_NOT_FOUND)
        snprintf(s->note, sizeof s->note, "; %.200s has no %s", candidate,
                 s->dataset ? "train, validation or test file that TX can read" : "config.json");
    return status;
}

static void add_searched(search *s, const char *place)
{
    tx_list_add(s->looked, sizeof s->looked, ", ", "%s", place);
}

static tx_status search_home(search *s, const char *name, char **folder)
{
    char place[TX_PATH_ROOM];
    format_path(place, "%s/%s/%s%s", s->home, s->dataset ? "datasets" : "models", name, s->below);
    add_searched(s, place);
    return try_folder(s, place, folder);
}

/* Finds the only visible entry of a folder. TX_NOT_FOUND if there are none or several. */
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

/* Finds the snapshot of a repository in the cache: the one that refs/main names, or the only one. */
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
            snprintf(s->note, sizeof s->note, "; %.200s has no refs/main and no single snapshot", repository);
    }
    return status;
}

static tx_status search_cache(search *s, const char *name, char **folder)
{
    const char *slash = strchr(name, '/');
    char revision[REVISION_BYTES], repository[TX_PATH_ROOM], place[TX_PATH_ROOM];
    format_path(repository, "%s/%s--%.*s%s%s", s->hub, s->dataset ? "datasets" : "models",
                slash ? (int)(slash - name) : 0, name, slash ? "--" : "", slash ? slash + 1 : name);
    add_searched(s, repository);
    TX_TRY(tx_file_exists(repository) ? find_revision(s, repository, revision) : TX_NOT_FOUND);
    format_path(place, "%s/snapshots/%s%s", repository, revision, s->below);
    return try_folder(s, place, folder);
}

/* Searches all locations for the name and its other name. */
static tx_status search_all(search *s, char **folder)
{
    const char *names[2] = {s->name, other_name(s)};
    tx_status status = TX_NOT_FOUND;
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i])
            status = search_home(s, names[i], folder);
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i] && s->hub[0])
            status = search_cache(s, names[i], folder);
    return status;
}

/* ---- Messages -------------------------------------------------------------------------------------------- */

/* The command comes before the locations, so that long locations cannot cut it off. */
static tx_status fail_model(const search *s)
{
    return tx_fail(TX_NOT_FOUND, "%s: no such model here; to fetch it: hf download %s (looked in %s%s)", s->name,
                   s->name, s->looked, s->note);
}

static tx_status fail_dataset(const search *s)
{
    return tx_fail(TX_NOT_FOUND,
                   "%s%s: no such dataset here; to fetch it: hf download --repo-type dataset %s (looked in %s%s)",
                   s->name, s->below, s->name, s->looked, s->note);
}

static tx_status find(search *s, char **folder)
{
    if (!is_hub_name(s->name))
        return tx_fail(TX_NOT_FOUND, "%s: no such %s, and not a valid name of a %s on the hub (NAME or OWNER/NAME)",
                       s->name, s->dataset ? "folder" : "file or folder", s->dataset ? "dataset" : "model");
    TX_TRY(find_home(s->home));
    find_hub(s->hub);
    tx_status status = search_all(s, folder);
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
    format_path(s.below, "%s%s", config ? "/" : "", config ? config : "");
    if (stat(name, &info) != 0)
        return find(&s, folder);
    if (!S_ISDIR(info.st_mode))
        return tx_fail(TX_INVALID, "%s: not a folder; give a single file as the file to train on", name);
    format_path(path, "%s%s", name, s.below);
    tx_status status = try_folder(&s, path, folder);
    if (status == TX_NOT_FOUND)
        return tx_fail(
            TX_NOT_FOUND,
            "%s: not a folder with a train, validation or test file that TX can read (" TX_DATA_EXTENSION_LIST ")",
            path);
    return status;
}
