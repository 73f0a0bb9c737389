/* SPDX-License-Identifier: Apache-2.0
 * Small files on disk keyed by a text and the device's identity: TX_CACHE_DIR (empty: no caching), else
 * $XDG_CACHE_HOME/tx, else ~/.cache/tx. A file that is damaged or belongs to another key is as good as none. */
#include "backends/opencl/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Starts a file. The two hashes of the key guard against a name that two keys share. */
typedef struct cache_header {
    char magic[8];
    uint64_t key[2], size, checksum;
} cache_header;

static const char magic[8] = "TXCACHE";

/* FNV-1a (Fowler, Noll, Vo) from a given start, with a final mix so that the two hashes of a key differ. */
static uint64_t hash(uint64_t start, const void *data, size_t size)
{
    const unsigned char *byte = data;
    uint64_t h = 0xCBF29CE484222325u ^ start;
    for (size_t i = 0; i < size; i++)
        h = (h ^ byte[i]) * 0x100000001B3u;
    h ^= h >> 32;
    return h * 0x9E3779B97F4A7C15u;
}

static bool make_folders(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0777);
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode) && access(path, R_OK | W_OK | X_OK) == 0;
}

char *tx_cl_cache_folder(void)
{
    const char *folder = getenv("TX_CACHE_DIR"), *below = "";
    if (!folder) {
        folder = getenv("XDG_CACHE_HOME");
        below = "/tx";
        if (!folder || folder[0] != '/') {
            folder = getenv("HOME");
            below = "/.cache/tx";
        }
    }
    if (!folder || !folder[0])
        return NULL;
    char *path = malloc(strlen(folder) + strlen(below) + 1);
    if (!path)
        return NULL;
    strcpy(path, folder);
    strcat(path, below);
    if (make_folders(path))
        return path;
    free(path);
    return NULL;
}

static void fill_keys(const tx_context *context, const char *key, uint64_t out[2])
{
    for (uint64_t i = 0; i < 2; i++)
        out[i] = hash(hash(i, context->identity, strlen(context->identity)), key, strlen(key));
}

static char *file_path(const tx_context *context, const uint64_t key[2], const char *suffix)
{
    size_t size = strlen(context->cache) + strlen(suffix) + 48;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/cl-%016" PRIx64 "%016" PRIx64 "%s", context->cache, key[0], key[1], suffix);
    return path;
}

/* Reads the rest of an open file after its header was found to fit. */
static bool read_payload(FILE *file, const uint64_t key[2], void **data, size_t *size)
{
    cache_header header;
    if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, magic, sizeof magic) != 0 ||
        header.key[0] != key[0] || header.key[1] != key[1] || header.size == 0 || header.size > 1u << 30)
        return false;
    void *payload = malloc((size_t)header.size);
    if (!payload)
        return false;
    if (fread(payload, 1, (size_t)header.size, file) != header.size || fgetc(file) != EOF ||
        hash(0, payload, (size_t)header.size) != header.checksum) {
        free(payload);
        return false;
    }
    *data = payload;
    *size = (size_t)header.size;
    return true;
}

bool tx_cl_cache_load(const tx_context *context, const char *key, void **data, size_t *size)
{
    if (!context->cache)
        return false;
    uint64_t keys[2];
    fill_keys(context, key, keys);
    char *path = file_path(context, keys, "");
    FILE *file = path ? fopen(path, "rb") : NULL;
    free(path);
    if (!file)
        return false;
    bool found = read_payload(file, keys, data, size);
    fclose(file);
    return found;
}

void tx_cl_cache_store(const tx_context *context, const char *key, const void *data, size_t size)
{
    if (!context->cache || size == 0)
        return;
    cache_header header = {.size = size, .checksum = hash(0, data, size)};
    memcpy(header.magic, magic, sizeof magic);
    fill_keys(context, key, header.key);
    char *path = file_path(context, header.key, ""), *temporary = file_path(context, header.key, ".XXXXXX");
    int descriptor = path && temporary ? mkstemp(temporary) : -1;
    if (descriptor >= 0) {
        FILE *file = fdopen(descriptor, "wb");
        if (!file)
            close(descriptor);
        bool good = file && fwrite(&header, sizeof header, 1, file) == 1 && fwrite(data, 1, size, file) == size;
        if (file && fclose(file) != 0)
            good = false;
        if (!good || rename(temporary, path) != 0)
            unlink(temporary);
    }
    free(path);
    free(temporary);
}
