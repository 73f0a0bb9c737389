/* SPDX-License-Identifier: Apache-2.0
 * Names to folders: paths, $TX_HOME, Hugging Face's cache. */
#include "models/files/hub.h"

#include "api/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file refs/main holds a commit's name, 40 digits. */
#define REVISION_BYTES 256
/* A repository's name on the hub is no longer. */
#define NAME_BYTES 96

/* What is looked for, and what came of it. */
typedef struct search {
    bool dataset;
    const char *name, *config;
    const char *home; /* $TX_HOME */
    char *hub;        /* the cache */
    char looked[512]; /* places, for the message */
    char note[256];   /* what is there and cannot be used; "" */
} search;

/* printf into memory that the caller frees; NULL when there is none (the message is set). */
static char *text_of(const char *format, ...) TX_PRINTF(1, 2);
static char *text_of(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (!text) {
        tx_fail(TX_MEMORY, "no memory for the name of a file");
        return NULL;
    }
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

/* ---- Names ----------------------------------------------------------------------------------------- */

/* Names that once had no owner. */
static const struct {
    bool dataset;
    const char *owner, *name;
} legacy[] = {
    {false, "openai-community", "gpt2"},       {false, "openai-community", "gpt2-medium"},
    {false, "openai-community", "gpt2-large"}, {false, "openai-community", "gpt2-xl"},
    {false, "distilbert", "distilgpt2"},       {true, "Salesforce", "wikitext"},
    {true, "Skylion007", "openwebtext"},       {true, "karpathy", "tiny_shakespeare"},
};

/* The other name of the same thing in `other`, which has room for NAME_BYTES + 1; false where there is none. */
static bool other_name(const search *s, char *other)
{
    for (size_t i = 0; i < sizeof legacy / sizeof legacy[0]; i++) {
        if (legacy[i].dataset != s->dataset)
            continue;
        char full[NAME_BYTES + 1];
        snprintf(full, sizeof full, "%s/%s", legacy[i].owner, legacy[i].name);
        if (strcmp(s->name, legacy[i].name) == 0) {
            snprintf(other, NAME_BYTES + 1, "%s", full);
            return true;
        }
        if (strcmp(s->name, full) == 0) {
            snprintf(other, NAME_BYTES + 1, "%s", legacy[i].name);
            return true;
        }
    }
    return false;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

/* Whether it can be the name of something on the hub: NAME or OWNER/NAME of letters, digits and "._-", neither part
 * beginning or ending with one of ".-", "--" and ".." nowhere. */
static bool is_hub_name(const char *name)
{
    size_t length = strlen(name);
    int slashes = 0;
    if (length == 0 || length > NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        char before = i ? name[i - 1] : '/', after = i + 1 < length ? name[i + 1] : '/';
        if (name[i] == '/') {
            if (++slashes > 1 || i == 0 || i + 1 == length)
                return false;
        } else if (!is_plain(name[i])) {
            return false;
        } else if ((name[i] == '.' || name[i] == '-') && (before == '/' || after == '/' || before == name[i])) {
            return false;
        }
    }
    return true;
}

/* Whether it names a folder within another. */
static bool is_component(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

/* `text` as one word of a shell's command. */
static char *quote(const char *text)
{
    bool safe = text[0] != '\0';
    size_t quotes = 0;
    for (const char *c = text; *c; c++) {
        safe = safe && (is_plain(*c) || *c == '/' || *c == '+' || *c == ':');
        quotes += *c == '\'';
    }
    if (safe)
        return text_of("%s", text);
    char *quoted = malloc(strlen(text) + 3 * quotes + 3), *to = quoted;
    if (!quoted) {
        tx_fail(TX_MEMORY, "no memory for the name of a file");
        return NULL;
    }
    *to++ = '\'';
    for (const char *c = text; *c; c++) {
        if (*c == '\'') {
            memcpy(to, "'\\''", 4);
            to += 4;
        } else {
            *to++ = *c;
        }
    }
    memcpy(to, "'", 2);
    return quoted;
}

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Value of an environment variable that is set and not empty, or NULL. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* $TX_HOME, $XDG_DATA_HOME/tx or ~/.local/share/tx. */
static tx_status find_home(char **path)
{
    const char *set = environment("TX_HOME"), *data = environment("XDG_DATA_HOME"), *home = environment("HOME");
    if (!set && !data && !home)
        return tx_fail(TX_NOT_FOUND, "neither TX_HOME nor HOME is set: give a path, or set TX_HOME");
    *path = set ? text_of("%s", set) : data ? text_of("%s/tx", data) : text_of("%s/.local/share/tx", home);
    return *path ? TX_OK : TX_MEMORY;
}

/* Where the hub's own programs keep what they fetch: the first that is set decides. */
static tx_status find_hub(char **path)
{
    const char *hub = environment("HF_HUB_CACHE"), *hf = environment("HF_HOME"), *home = environment("HOME");
    const char *cache = environment("XDG_CACHE_HOME");
    if (!hub && !hf && !cache && !home) {
        *path = NULL;
        return TX_OK;
    }
    *path = hub     ? text_of("%s", hub)
            : hf    ? text_of("%s/hub", hf)
            : cache ? text_of("%s/huggingface/hub", cache)
                    : text_of("%s/.cache/huggingface/hub", home);
    return *path ? TX_OK : TX_MEMORY;
}

/* ---- Looking --------------------------------------------------------------------------------------- */

/* Whether the folder holds what is looked for: TX_OK or TX_NOT_FOUND; what is there all the same is noted. */
static tx_status judge(search *s, const char *folder)
{
    tx_status status = TX_NOT_FOUND;
    char *path = NULL;
    if (!tx_file_exists(folder))
        return TX_NOT_FOUND;
    if (s->dataset) {
        for (int split = TX_SPLIT_TRAIN; split <= TX_SPLIT_TEST && status == TX_NOT_FOUND; split++)
            status = tx_hub_split(folder, (tx_split)split, &path);
        if (status == TX_INVALID) /* several: told when one is asked for */
            status = TX_OK;
    } else {
        path = tx_path_join(folder, "config.json");
        status = !path ? TX_MEMORY : tx_file_exists(path) ? TX_OK : TX_NOT_FOUND;
    }
    free(path);
    if (status == TX_NOT_FOUND)
        snprintf(s->note, sizeof s->note, "; %s has no %s", folder,
                 s->dataset ? "train, validation or test file that TX reads (it reads no parquet)" : "config.json");
    return status;
}

/* Takes `candidate` (or NULL: no memory) over: gives it to the caller or frees it. */
static tx_status consider(search *s, char *candidate, char **folder)
{
    if (!candidate)
        return TX_MEMORY;
    tx_status status = judge(s, candidate);
    if (status)
        free(candidate);
    else
        *folder = candidate;
    return status;
}

static void looked_in(search *s, const char *place)
{
    size_t used = strlen(s->looked);
    snprintf(s->looked + used, sizeof s->looked - used, "%s%s", used ? ", " : "", place);
}

static tx_status look_at_home(search *s, const char *name, char **folder)
{
    char *place = text_of("%s/%s/%s%s%s", s->home, s->dataset ? "datasets" : "models", name, s->config ? "/" : "",
                          s->config ? s->config : "");
    if (place)
        looked_in(s, place);
    return consider(s, place, folder);
}

/* The only entry of a folder that is not hidden, in `name`; false where there is none or are several. */
static bool only_entry(const char *folder, char name[REVISION_BYTES])
{
    int entries = 0;
    DIR *list = opendir(folder);
    for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list))
        if (e->d_name[0] != '.' && strlen(e->d_name) < REVISION_BYTES && ++entries == 1)
            strcpy(name, e->d_name);
    if (list)
        closedir(list);
    return entries == 1;
}

/* The snapshot of a repository in the cache: what refs/main names, or the only one. */
static tx_status find_revision(search *s, const char *repository, char revision[REVISION_BYTES])
{
    char *reference = tx_path_join(repository, "refs/main"), *snapshots = tx_path_join(repository, "snapshots");
    char *text = NULL;
    size_t size = 0;
    tx_status status = reference && snapshots ? tx_file_read(reference, REVISION_BYTES - 1, &text, &size) : TX_MEMORY;
    if (status == TX_OK) {
        text[strcspn(text, " \r\n")] = '\0';
        strcpy(revision, text);
        if (!is_component(revision)) {
            snprintf(s->note, sizeof s->note, "; %s does not name a snapshot", reference);
            status = TX_NOT_FOUND;
        }
    } else if (status != TX_MEMORY) {
        status = only_entry(snapshots, revision) ? TX_OK : TX_NOT_FOUND;
        if (status)
            snprintf(s->note, sizeof s->note, "; %s has no refs/main and not just one snapshot", repository);
    }
    free(text);
    free(reference);
    free(snapshots);
    return status;
}

static tx_status look_in_cache(search *s, const char *name, char **folder)
{
    const char *slash = strchr(name, '/');
    int owner = slash ? (int)(slash - name) : 0;
    char revision[REVISION_BYTES];
    char *repository = text_of("%s/%s--%.*s%s%s", s->hub, s->dataset ? "datasets" : "models", owner, name,
                               slash ? "--" : "", slash ? slash + 1 : name);
    if (!repository)
        return TX_MEMORY;
    looked_in(s, repository);
    tx_status status = tx_file_exists(repository) ? find_revision(s, repository, revision) : TX_NOT_FOUND;
    if (!status)
        status = consider(
            s, text_of("%s/snapshots/%s%s%s", repository, revision, s->config ? "/" : "", s->config ? s->config : ""),
            folder);
    free(repository);
    return status;
}

/* Goes through the places that a name may stand for. */
static tx_status look(search *s, char **folder)
{
    char other[NAME_BYTES + 1];
    const char *names[2] = {s->name, other_name(s, other) ? other : NULL};
    tx_status status = TX_NOT_FOUND;
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i])
            status = look_at_home(s, names[i], folder);
    for (int i = 0; i < 2 && status == TX_NOT_FOUND; i++)
        if (names[i] && s->hub)
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
    char *folder = text_of("%s/datasets/%s%s%s", s->home, s->name, s->config ? "/" : "", s->config ? s->config : "");
    char *place = folder ? quote(folder) : NULL, *config = s->config ? quote(s->config) : NULL;
    tx_status status = TX_MEMORY;
    if (place && (config || !s->config))
        status = tx_fail(TX_NOT_FOUND,
                         "%s%s%s: no such dataset here; to fetch it (Python with the library datasets): "
                         "python3 -c 'import os,sys,datasets; p=sys.argv[1]; os.makedirs(p,exist_ok=True); "
                         "[d.to_json(f\"{p}/{s}.jsonl\") for s,d in datasets.load_dataset(*sys.argv[2:]).items()]' "
                         "%s %s%s%s (looked in %s%s)",
                         s->name, s->config ? "/" : "", s->config ? s->config : "", place, s->name, config ? " " : "",
                         config ? config : "", s->looked, s->note);
    free(folder);
    free(place);
    free(config);
    return status;
}

static tx_status find(search *s, char **folder)
{
    if (!is_hub_name(s->name))
        return tx_fail(TX_NOT_FOUND, "%s: no such %s, and no name of a %s on the hub (NAME or OWNER/NAME)", s->name,
                       s->dataset ? "folder" : "file or folder", s->dataset ? "dataset" : "model");
    char *home = NULL;
    tx_status status = find_home(&home);
    s->home = home;
    if (!status)
        status = find_hub(&s->hub);
    if (!status)
        status = look(s, folder);
    if (status == TX_NOT_FOUND && home)
        status = s->dataset ? fail_dataset(s) : fail_model(s);
    free(home);
    free(s->hub);
    return status;
}

tx_status tx_hub_model(const char *name, char **folder)
{
    search s = {.name = name};
    char *path;
    if (!tx_file_exists(name))
        return find(&s, folder);
    path = text_of("%s", name);
    if (!path)
        return TX_MEMORY;
    *folder = path;
    return TX_OK;
}

tx_status tx_hub_dataset(const char *name, const char *config, char **folder)
{
    search s = {.dataset = true, .name = name, .config = config};
    struct stat info;
    if (config && !is_component(config))
        return tx_fail(TX_INVALID, "%s: \"%s\" is not the name of a configuration", name, config);
    if (stat(name, &info) != 0)
        return find(&s, folder);
    if (!S_ISDIR(info.st_mode))
        return tx_fail(TX_INVALID, "%s: not a folder; a single file is given as the file to train on", name);
    char *path = config ? tx_path_join(name, config) : text_of("%s", name);
    if (!path)
        return TX_MEMORY;
    tx_status status = consider(&s, path, folder);
    if (status == TX_NOT_FOUND)
        return tx_fail(TX_NOT_FOUND,
                       "%s%s%s: no folder with a file train, validation or test that TX reads (.txt, .raw, "
                       ".tokens, .jsonl, .bin)",
                       name, config ? "/" : "", config ? config : "");
    return status;
}
