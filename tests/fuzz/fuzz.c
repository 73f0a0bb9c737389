/* SPDX-License-Identifier: Apache-2.0
 * Helpers of fuzz targets: promises, and files in memory. */
#include "tests/fuzz/fuzz.h"

#include "api/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES = 16 };

static char folder[64];
static const char *names[NAMES];
static char *paths[NAMES];

void tx_fuzz_broken(const char *file, int line, const char *promise)
{
    fprintf(stderr, "%s:%d: does not hold: %s; the last message: %s\n", file, line, promise, tx_error());
    abort();
}

bool tx_fuzz_refused(tx_status status, const char *name)
{
    if (status == TX_OK)
        return false;
    FUZZ_CHECK(status == TX_FORMAT || status == TX_UNSUPPORTED || status == TX_NOT_FOUND || status == TX_INVALID);
    FUZZ_CHECK(strstr(tx_error(), name));
    FUZZ_CHECK(!strchr(tx_error(), '\n'));
    return true;
}

static void remove_folder(void)
{
    DIR *list = opendir(folder);
    for (struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
        char path[sizeof folder + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (list)
        closedir(list);
    rmdir(folder);
    for (int i = 0; i < NAMES; i++)
        free(paths[i]);
}

const char *tx_fuzz_folder(void)
{
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%s/tx-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        FUZZ_CHECK(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

const char *tx_fuzz_path(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        if (!paths[i]) {
            names[i] = name;
            paths[i] = tx_path_join(tx_fuzz_folder(), name);
            FUZZ_CHECK(paths[i]);
        }
        if (strcmp(names[i], name) == 0)
            return paths[i];
    }
    tx_fuzz_broken(__FILE__, __LINE__, "at most 16 names");
}

void tx_fuzz_put(const char *name, const void *data, size_t size)
{
    int descriptor = open(tx_fuzz_path(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(descriptor >= 0);
    FUZZ_CHECK(write(descriptor, data, size) == (ssize_t)size);
    FUZZ_CHECK(close(descriptor) == 0);
}

void tx_fuzz_remove(const char *name)
{
    unlink(tx_fuzz_path(name));
}
