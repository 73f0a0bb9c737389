/* SPDX-License-Identifier: Apache-2.0
 * Runs a fuzz target over every file of a folder, without a fuzzer. The tests replay the seeds with it.
 *
 *     replay_NAME FOLDER */
#include "api/base/file.h"
#include "models/files/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/wrap.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT ((int64_t)16 << 20)
/* An allocation may exceed the input's size by this many bytes. */
#define ALLOWANCE ((size_t)64 << 20)

static size_t most; /* bytes that one allocation may have */

static void bound(size_t size)
{
    if (most && size > most) {
        fprintf(stderr, "an allocation of %zu bytes, over the bound of %zu\n", size, most);
        abort();
    }
}

/* The linker sends TX's calls of the allocator here (--wrap), but not under the sanitizers, which have a bound of their
 * own. */
#ifdef TX_FUZZ_BOUND
WRAP_MALLOC(bound(size))
WRAP_CALLOC(bound(size &&number > SIZE_MAX / size ? SIZE_MAX : number * size))
WRAP_REALLOC(bound(size))
#endif

static int replay(const char *path)
{
    char *data;
    size_t size;
    if (tx_file_read(path, LIMIT, &data, &size)) {
        fprintf(stderr, "%s\n", tx_error());
        return 1;
    }
    /* An exact copy: reading one byte beyond it is seen by the sanitizers. */
    uint8_t *exact = malloc(size ? size : 1);
    FUZZ_CHECK(exact);
    for (size_t i = 0; i < size; i++)
        exact[i] = (uint8_t)data[i];
    free(data);
    printf("%s\n", path);
    fflush(stdout); /* so that the last line names the input that ended the process */
    most = size + ALLOWANCE;
    LLVMFuzzerTestOneInput(exact, size);
    most = 0;
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *list = argc == 2 ? opendir(argv[1]) : NULL;
    if (!list)
        return fprintf(stderr, "usage: replay FOLDER\n"), 2;
    int failures = 0, files = 0;
    bound(0);
    for (struct dirent *e = readdir(list); e; e = readdir(list)) {
        if (e->d_name[0] == '.')
            continue;
        char *path = TX_PATH(argv[1], e->d_name);
        FUZZ_CHECK(path);
        failures += replay(path);
        files++;
    }
    closedir(list);
    printf("%d inputs\n", files);
    return failures || files == 0;
}
