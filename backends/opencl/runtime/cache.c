/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files on disk, keyed by a text and the device's identity. The folder is TX_CACHE_DIR (empty disables
 * caching), else $XDG_CACHE_HOME/tx, else ~/.cache/tx. Damaged files and files of another key are ignored.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/file.h"
#include "api/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (1 << 30)

/* The start of a file. The two hashes of the key detect two keys with the same file name. */
typedef struct cache_header {
    char magic[8];
    uint64_t key[2], size, checksum;
} cache_header;

static const char magic[8] = "TXCACHE";

/* Hashes from a given start. A final mix makes the two hashes of a key different. */
static uint64_t hash(uint64_t start, const void *data, size_t size)
{
    uint64_t h = tx_hash(TX_HASH_START ^ start, data, size);
    h ^= h >> 32;
    return h * 0x9E3779B97F4A7C15u;
}

char *tx_cl_cache_folder(void)
{
    const char *folder = getenv("TX_CACHE_DIR"), *below = "";
    if (!folder) {
        folder = getenv("XDG_CACHE_HOME");
        below = "tx";
        if (!folder || folder[0] != '/') {
            folder = getenv("HOME");
            below = ".cache/tx";
        }
    }
    if (!folder || !folder[0])
        return NULL;
    char *path = *below ? tx_path_join(folder, below) : strdup(folder);
    if (path && tx_folder_create(path) == TX_OK && access(path, R_OK | W_OK | X_OK) == 0)
        return path;
    free(path);
    return NULL;
}

/* Computes the two hashes of a key and returns the path of its file, which contains them. Returns NULL if caching
 * is disabled or memory is short. */
static char *file_of(const tx_context *context, const char *key, uint64_t hashes[2])
{
    char name[48];
    if (!context->cache)
        return NULL;
    for (uint64_t i = 0; i < 2; i++)
        hashes[i] = hash(hash(i, context->identity, strlen(context->identity)), key, strlen(key));
    snprintf(name, sizeof name, "cl-%016" PRIx64 "%016" PRIx64, hashes[0], hashes[1]);
    return tx_path_join(context->cache, name);
}

bool tx_cl_cache_load(const tx_context *context, const char *key, void **data, size_t *size)
{
    uint64_t hashes[2];
    cache_header header;
    char *path = file_of(context, key, hashes), *file = NULL;
    size_t bytes = 0;
    bool found = path && tx_file_read(path, MAX_BYTES, &file, &bytes) == TX_OK && bytes > sizeof header;
    if (found) {
        memcpy(&header, file, sizeof header);
        bytes -= sizeof header;
        memmove(file, file + sizeof header, bytes + 1); /* with the terminating NUL */
        found = memcmp(header.magic, magic, sizeof magic) == 0 && memcmp(header.key, hashes, sizeof hashes) == 0 &&
                header.size == bytes && header.checksum == hash(0, file, bytes);
    }
    free(path);
    if (!found) {
        free(file);
        return false;
    }
    *data = file;
    *size = bytes;
    return true;
}

void tx_cl_cache_store(const tx_context *context, const char *key, const void *data, size_t size)
{
    cache_header header = {.size = size, .checksum = hash(0, data, size)};
    tx_file *file = NULL;
    char *path = file_of(context, key, header.key);
    if (path && size > 0 && tx_file_create(path, &file) == TX_OK) {
        memcpy(header.magic, magic, sizeof magic);
        if (tx_file_append(file, &header, sizeof header) == TX_OK && tx_file_append(file, data, size) == TX_OK)
            tx_file_commit(file);
        else
            tx_file_discard(file);
    }
    free(path);
}
