/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that came with TX, compiled, on a simulated card of NVIDIA (stand_in.h): its driver takes PTX, which is the
 * source after a comment. A first run writes its programs down as a pack. Each case is a process of its own with an
 * empty cache, which trains a tiny GPT-2 with that pack; `cases` says how it ends.
 *
 *     test_shipped CASE
 *     test_shipped lookup       needs no device: keys, targets and architectures
 *     test_shipped whole PACK   needs no device: each frame is read
 *
 * Exit status 77: there is no OpenCL device. */
#include "api/base/file.h"
#include "api/model/engine.h"
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/shipped/pack.h"
#include "tests/opencl/stand_in.h"
#include "tests/opencl/tiny_training.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

enum { STEPS = 2, ALL = 1, SOME, NONE };

static const struct ending {
    const char *name, *card;
    int of_ptx;          /* how many of the programs are made of PTX */
    const char *warning; /* or NULL */
} cases[] = {
    {"all", "h200", ALL, NULL},
    {"refused", "h200", SOME, "the driver refuses"},
    {"damaged", "h200", SOME, "is damaged"},
    {"broken", "h200", NONE, "is damaged"},
    {"short", "h200", SOME, "is damaged"},
    {"missing", "h200", NONE, "cannot be read"},
    {"crash", "h200", NONE, "earlier starts crashed or hung here"},
    {"off", "h200", NONE, NULL},
    {"older", "v100", NONE, NULL},
    {"other", "a770", NONE, NULL},
};

/* What a run leaves, in memory that it shares with its parent. */
static struct outcome {
    double loss[STEPS];
    long sources, ptx;
    int warnings;
    char warning[1000];
} * seen;

static char folder[] = "/tmp/tx_test_shipped_XXXXXX", file[64];

static void warn(void *context, const char *message)
{
    (void)context;
    seen->warnings++;
    snprintf(seen->warning, sizeof seen->warning, "%s", message);
}

static const tx_reporter report = {.warn = warn};

/* ---- The pack ----------------------------------------------------------------------------------------------------- */

/* Appends a frame with a checksum. */
static void add_frame(FILE *to, char *text)
{
    const size_t bound = ZSTD_compressBound(strlen(text));
    char *packed = malloc(bound);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    fwrite(packed, 1, ZSTD_compress2(c, packed, bound, text, strlen(text)), to);
    ZSTD_freeCCtx(c);
    free(packed);
    free(text);
}

/* Returns the text of a frame: the programs of a source, for cards from sm_80 on. */
static char *frame_of(const tx_context *context, const char *source)
{
    static const char lines[] = "/*\n.version 7.0\n.target sm_80, texmode_independent\n*/\n";
    char *text, key[TX_PACK_KEY];
    size_t size;
    FILE *to = open_memstream(&text, &size);
    for (const tx_cl_program *p = context->programs; p; p = p->next) {
        tx_cl_recipe recipe = {0};
        if (strcmp(p->source, source) != 0 || tx_cl_write_recipe(context, p, &recipe))
            continue;
        tx_pack_key(recipe.key, key);
        fprintf(to, "%s sm_80 %zu\n%s%s", key, strlen(lines) + strlen(recipe.text), lines, recipe.text);
        tx_cl_free_recipe(&recipe);
    }
    fclose(to);
    return text;
}

/* Writes the programs of a context to the pack. */
static tx_status write_pack(const tx_context *context)
{
    char *names;
    size_t size;
    FILE *file_of = fopen(file, "w"), *to = open_memstream(&names, &size);
    for (const tx_cl_program *p = context->programs; p; p = p->next) {
        fflush(to);
        char line[80];
        snprintf(line, sizeof line, "%s\n", p->source);
        if (!strstr(names, line))
            fputs(line, to);
    }
    fclose(to);
    char *rest = strdup(names), *left = NULL;
    add_frame(file_of, names);
    for (char *name = strtok_r(rest, "\n", &left); name; name = strtok_r(NULL, "\n", &left))
        add_frame(file_of, frame_of(context, name));
    free(rest);
    return fclose(file_of) ? tx_fail(TX_IO, "no pack") : TX_OK;
}

/* Changes the pack: inverts the byte `at`, counted from the end if that is true, or cuts it there. */
static tx_status damage(size_t at, bool from_end, bool cut)
{
    char *data = NULL;
    size_t size;
    TX_TRY(tx_file_read(file, 1 << 26, &data, &size));
    at = from_end ? size - at : at;
    data[at] = (char)~data[at];
    const tx_status status = tx_file_write(file, data, cut ? at : size);
    free(data);
    return status;
}

/* ---- Runs --------------------------------------------------------------------------------------------------------- */

static tx_status train(bool packs)
{
    const tx_engine_options open = {.size = sizeof open, .device = "opencl", .report = &report};
    tiny_training t = tiny_without_dropout(STEPS);
    tx_engine *engine = NULL;
    tx_status status = tx_engine_create(&open, &engine);
    TX_THEN(status, tiny_train(engine, &t));
    if (!status && packs)
        status = write_pack(engine->context);
    memcpy(seen->loss, t.loss, sizeof seen->loss);
    seen->sources = stand_in.sources;
    seen->ptx = stand_in.ptx;
    tiny_free(&t);
    tx_engine_free(engine);
    return status;
}

/* Trains in a child. Returns its exit status. */
static int run(const char *card, const char *pack, bool packs)
{
    int status = 1;
    *seen = (struct outcome){.sources = 0};
    const pid_t child = fork();
    if (child == 0) {
        setenv("TX_PTX", pack, 1);
        stand_in.card = card;
        const tx_status failed = train(packs);
        if (failed)
            printf("%s\n", tx_error());
        fflush(stdout);
        _exit(failed == TX_NOT_FOUND ? 77 : failed != TX_OK);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Prepares the case: the pack, its name and the driver. */
static tx_status prepare(const char *name, const char **pack)
{
    *pack = strcmp(name, "off") == 0 ? "" : strcmp(name, "missing") == 0 ? "/no/pack" : file;
    if (strcmp(name, "refused") == 0) {
        stand_in.fails = STAND_IN_BUILD;
        stand_in.at = stand_in.times = 1;
    }
    if (strcmp(name, "crash") == 0) { /* this start leaves a name in the journal */
        stand_in.failure = STAND_IN_BUILD_CRASH;
        stand_in.what = "texmode_independent";
        setenv("TX_CACHE_DIR", folder, 1);
        return run("h200", file, false) == 1 ? TX_OK : tx_fail(TX_INTERNAL, "the driver does not crash");
    }
    if (strcmp(name, "damaged") == 0)
        return damage(2, true, false);
    if (strcmp(name, "broken") == 0)
        return damage(9, false, false);
    return strcmp(name, "short") == 0 ? damage(100, true, true) : TX_OK;
}

static const char *check(const struct ending *end, const double *loss)
{
    if (memcmp(loss, seen->loss, sizeof seen->loss) != 0 && strcmp(end->card, "h200") == 0)
        return "the losses differ";
    if ((end->of_ptx == NONE) != (seen->ptx == 0) || (end->of_ptx == ALL) != (seen->sources == 0))
        return "another number of programs is made of PTX";
    if (end->warning && (seen->warnings != 1 || !strstr(seen->warning, end->warning)))
        return "the warning is another one";
    return !end->warning && seen->warnings > 0 ? "there is a warning" : NULL;
}

static int test_case(const struct ending *end)
{
    const char *pack;
    double loss[STEPS];
    int code = run("h200", "", true);
    if (code)
        return code;
    memcpy(loss, seen->loss, sizeof loss);
    const long built = seen->sources;
    if (prepare(end->name, &pack))
        return printf("%s\n", tx_error()), 1;
    if ((code = run(end->card, pack, false)) != 0)
        return code;
    const char *wrong = check(end, loss);
    printf("%s: %ld programs of source without the pack; with it %ld of source and %ld of PTX%s%s\n", end->name, built,
           seen->sources, seen->ptx, seen->warnings ? "; " : "", seen->warning);
    return wrong ? printf("%s\n", wrong), 1 : 0;
}

/* ---- Look-ups ----------------------------------------------------------------------------------------------------- */

static bool finds(const char *source, const char *key, const char *architecture, tx_cl_vendor vendor)
{
    tx_context context = {.can.vendor = vendor, .report = &report};
    snprintf(context.can.architecture, sizeof context.can.architecture, "%s", architecture);
    char *text = tx_cl_pack.find(&context, source, key);
    const bool found = text != NULL;
    if (found && strcmp(text, key) != 0)
        printf("%s is found for %s\n", text, key);
    free(text);
    return found;
}

/* Programs are found by source and key, on the architecture of their target and on later ones. */
static int test_lookup(void)
{
    static const struct {
        const char *source, *key, *architecture;
        tx_cl_vendor vendor;
        bool found;
    } rows[] = {
        {"a", "first", "sm_70", TX_CL_NVIDIA, true},   {"a", "first", "sm_120", TX_CL_NVIDIA, true},
        {"a", "first", "sm_60", TX_CL_NVIDIA, false},  {"a", "second", "sm_90", TX_CL_NVIDIA, true},
        {"a", "second", "sm_80", TX_CL_NVIDIA, false}, {"a", "second", "", TX_CL_NVIDIA, false},
        {"ab", "third", "sm_80", TX_CL_NVIDIA, true},  {"ab", "first", "sm_90", TX_CL_NVIDIA, false},
        {"b", "third", "sm_80", TX_CL_NVIDIA, false},  {"a", "third", "sm_80", TX_CL_NVIDIA, false},
        {"a", "first", "gfx942", TX_CL_AMD, false},    {"a", "first", "sm_90", TX_CL_INTEL, false},
    };
    char key[3][TX_PACK_KEY], text[2][200];
    int wrong = 0;
    FILE *to = fopen(file, "w");
    tx_pack_key("first", key[0]);
    tx_pack_key("second", key[1]);
    tx_pack_key("third", key[2]);
    snprintf(text[0], sizeof text[0], "%s sm_70 5\nfirst%s sm_90 6\nsecond", key[0], key[1]);
    snprintf(text[1], sizeof text[1], "%s sm_80 5\nthird", key[2]);
    add_frame(to, strdup("a\nab\n"));
    add_frame(to, strdup(text[0]));
    add_frame(to, strdup(text[1]));
    fclose(to);
    setenv("TX_PTX", file, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (finds(rows[i].source, rows[i].key, rows[i].architecture, rows[i].vendor) != rows[i].found) {
            printf("row %zu\n", i);
            wrong++;
        }
    return wrong > 0 || seen->warnings > 0;
}

static int test_whole(const char *pack)
{
    const tx_context context = {.can = {.vendor = TX_CL_NVIDIA, .architecture = "sm_90"}, .report = &report};
    setenv("TX_PTX", pack, 1);
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        if (tx_cl_pack.find(&context, tx_cl_sources[i].name, "absent"))
            return 1;
    return tx_cl_pack.digest(&context) == 0 || seen->warnings > 0;
}

/* Removes the pack, and the files of the cache. */
static void empty(void)
{
    DIR *list = opendir(folder);
    for (struct dirent *one; list && (one = readdir(list)) != NULL;)
        if (one->d_name[0] != '.')
            unlinkat(dirfd(list), one->d_name, 0);
    if (list)
        closedir(list);
}

int main(int argc, char **argv)
{
    int result = 2;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || seen == MAP_FAILED || !mkdtemp(folder))
        return result;
    snprintf(file, sizeof file, "%s/pack", folder);
    setenv("TX_CACHE_DIR", "", 1); /* so that each run builds all programs */
    if (strcmp(argv[1], "lookup") == 0)
        result = test_lookup();
    if (argc == 3 && strcmp(argv[1], "whole") == 0)
        result = test_whole(argv[2]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].name, argv[1]) == 0)
            result = test_case(&cases[i]);
    empty();
    rmdir(folder);
    return result;
}
