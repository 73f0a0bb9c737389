/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the pack, see pack.h. A process opens it once and keeps it.
 */
#define _GNU_SOURCE /* dladdr */
#include "backends/opencl/shipped/pack.h"

#include "api/base/file.h"
#include "backends/opencl/runtime/internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#define MAX_BYTES (1 << 28) /* of the file, and of a frame's text */

static struct {
    char path[2200];
    char *data, *sources; /* the file, and the text of its first frame; NULL if there is no pack */
    size_t size;
    uint64_t digest;
    const char *problem; /* or NULL */
} pack;

static const char damaged[] = "is damaged";

/* Finds the file: next to the library, or from the folder of the program that contains it. */
static void find_path(void)
{
    static const char *const below[] = {"tx", TX_LIBRARIES "/tx"};
    const char *named = getenv("TX_PTX");
    char self[2000] = "";
    Dl_info info;
    if (named) {
        snprintf(pack.path, sizeof pack.path, "%s", named);
        return;
    }
    if (!dladdr(&pack, &info) || !strstr(info.dli_fname, ".so"))
        (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    else
        snprintf(self, sizeof self, "%s", info.dli_fname);
    self[strrchr(self, '/') ? strrchr(self, '/') - self : 0] = '\0';
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        snprintf(pack.path, sizeof pack.path, "%s/%s/nvidia.pack", self, below[i]);
        if (access(pack.path, R_OK) == 0)
            return;
    }
    pack.path[0] = '\0';
}

/* Returns the text of frame `number`, with a NUL, which the caller frees; NULL if it is damaged. */
static char *unpack(int number)
{
    const char *at = pack.data, *end = at + pack.size;
    size_t packed = ZSTD_findFrameCompressedSize(at, pack.size);
    for (int i = 0; i < number && !ZSTD_isError(packed); i++) {
        at += packed;
        packed = ZSTD_findFrameCompressedSize(at, (size_t)(end - at));
    }
    const unsigned long long size = ZSTD_isError(packed) ? MAX_BYTES : ZSTD_getFrameContentSize(at, packed);
    char *text = size < MAX_BYTES ? malloc((size_t)size + 1) : NULL;
    if (text && ZSTD_decompress(text, (size_t)size, at, packed) == size) {
        text[size] = '\0';
        return text;
    }
    free(text);
    return NULL;
}

static void open_pack(void)
{
    find_path();
    if (!pack.path[0])
        return;
    if (tx_file_read(pack.path, MAX_BYTES, &pack.data, &pack.size)) {
        pack.problem = "cannot be read";
        return;
    }
    pack.digest = tx_hash(TX_HASH_START, pack.data, pack.size);
    pack.sources = unpack(0);
    pack.problem = pack.sources ? NULL : damaged;
}

/* Warns once a process. */
static void warn(const tx_context *context, const char *problem)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    char text[2400];
    if (!context->report || !context->report->warn || atomic_flag_test_and_set(&warned))
        return;
    snprintf(text, sizeof text, "%s %s: kernels are compiled from source; install TX again", pack.path, problem);
    context->report->warn(context->report->context, text);
}

/* Opens the pack if it is for the device, and returns true if there is one. */
static bool has_pack(const tx_context *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (context->can.vendor != TX_CL_NVIDIA || context->limits.cpu)
        return false;
    pthread_once(&once, open_pack);
    if (pack.problem)
        warn(context, pack.problem);
    return pack.sources != NULL;
}

static uint64_t digest(const tx_context *context)
{
    return has_pack(context) ? pack.digest : 0;
}

/* Returns the frame of a source, or 0 if there is none. */
static int frame_of(const char *source)
{
    const char *line = pack.sources;
    for (int number = 1; *line; number++) {
        const size_t length = strcspn(line, "\n");
        if (length == strlen(source) && strncmp(line, source, length) == 0)
            return number;
        line += length + (line[length] == '\n');
    }
    return 0;
}

/* PTX runs on its target's architecture and on later ones. That for sm_90 becomes PTX for sm_90a, which runs only
 * there (matrix/retarget.h), and TX looks for it only there. */
static bool runs(int target, const char *architecture)
{
    return strncmp(architecture, "sm_", 3) == 0 && strtol(architecture + 3, NULL, 10) >= target;
}

/* Returns a copy of the program with this key in the text of a frame, or NULL if there is none for the device. */
static char *copy_of(const tx_context *context, const char *all, const char *wanted)
{
    char key[TX_PACK_KEY];
    int target, begin;
    size_t bytes, left = strlen(all);
    while (left > 0 && sscanf(all, "%32s sm_%d %zu\n%n", key, &target, &bytes, &begin) == 3 &&
           (size_t)begin + bytes <= left) {
        if (strcmp(key, wanted) == 0)
            return runs(target, context->can.architecture) ? strndup(all + begin, bytes) : NULL;
        all += (size_t)begin + bytes;
        left -= (size_t)begin + bytes;
    }
    return NULL;
}

static char *find(const tx_context *context, const char *source, const char *recipe)
{
    char key[TX_PACK_KEY];
    const int frame = has_pack(context) ? frame_of(source) : 0;
    char *all = frame ? unpack(frame) : NULL;
    if (frame && !all)
        warn(context, damaged);
    tx_pack_key(recipe, key);
    char *text = all ? copy_of(context, all, key) : NULL;
    free(all);
    return text;
}

const tx_cl_shipped tx_cl_pack = {.digest = digest, .find = find};
