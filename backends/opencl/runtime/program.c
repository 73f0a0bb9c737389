/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: whole texts from the embedded sources, builds from the disk cache or from source, and kernels.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The enumerators of api/tx.h and backend.h, defined for kernels under the same names. */
static const char numbers[] = "enum {\n"
#define X(name, ...) "    TX_CONTROL_" #name ",\n"
    TX_CONTROL_MAP(X)
#undef X
        "    TX_CONTROL_COUNT\n};\nenum {\n"
#define X(name) "    TX_RESULT_" #name ",\n"
    TX_RESULT_MAP(X)
#undef X
        "    TX_RESULT_COUNT\n};\nenum {\n"
#define X(name) "    TX_EPILOGUE_" #name ",\n"
    TX_EPILOGUE_MAP(X)
#undef X
        "};\n";

static const tx_cl_source *find_source(const char *name)
{
    for (int32_t i = 0; i < tx_cl_source_count; i++)
        if (strcmp(tx_cl_sources[i].name, name) == 0)
            return &tx_cl_sources[i];
    return NULL;
}

typedef struct whole_text {
    char *bytes; /* NULL in the pass that only counts */
    size_t size;
} whole_text;

static void append(whole_text *text, const void *bytes, size_t size)
{
    if (text->bytes)
        memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

/* A line `#include "FOLDER/NAME.cl"`, or of a header, is replaced by source NAME. */
static tx_status append_source(whole_text *text, const char *name)
{
    const tx_cl_source *source = find_source(name);
    if (!source)
        return tx_fail(TX_INTERNAL, "no OpenCL source is named %s", name);
    const char *line = (const char *)source->text, *end = line + source->size;
    for (const char *next; line < end; line = next) {
        char included[96];
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline ? newline + 1 : end;
        if (sscanf(line, "#include \"%95[a-z0-9_./]\"", included) != 1) {
            append(text, line, (size_t)(next - line));
            continue;
        }
        char *slash = strrchr(included, '/'), *file = slash ? slash + 1 : included;
        file[strcspn(file, ".")] = '\0';
        TX_TRY(append_source(text, file));
    }
    return TX_OK;
}

static tx_status append_all(whole_text *text, const char *source)
{
    const char *const part[] = {"rng", "common", source};
    append(text, numbers, sizeof numbers - 1);
    for (int i = 0; i < 3; i++)
        TX_TRY(append_source(text, part[i]));
    append(text, "", 1);
    return TX_OK;
}

tx_status tx_cl_program_text(const char *source, char **text)
{
    whole_text whole = {0};
    TX_TRY(append_all(&whole, source));
    whole = (whole_text){.bytes = malloc(whole.size)};
    if (!whole.bytes)
        return tx_fail(TX_MEMORY, "out of host memory");
    *text = whole.bytes;
    return append_all(&whole, source);
}

/* Reports the failure of a build with the first lines of its log. */
static tx_status build_failure(const tx_context *context, cl_program program, const char *source, cl_int code)
{
    char log[600] = "";
    size_t size = 0;
    clGetProgramBuildInfo(program, context->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *whole = size > 0 ? calloc(1, size + 1) : NULL;
    if (whole && clGetProgramBuildInfo(program, context->device, CL_PROGRAM_BUILD_LOG, size, whole, NULL) == CL_SUCCESS)
        snprintf(log, sizeof log, "%.*s", (int)sizeof log - 1, whole);
    free(whole);
    return tx_fail(TX_DEVICE, "building %s.cl: %s (%d): %s", source, tx_cl_error_name(code), code, log);
}

/* Builds a program unless `code` is an error. Releases it on failure. */
static tx_status build(const tx_context *context, cl_program program, const char *source, const char *options,
                       cl_int code, cl_program *out)
{
    code = code == CL_SUCCESS ? clBuildProgram(program, 1, &context->device, options, NULL, NULL) : code;
    if (code == CL_SUCCESS) {
        *out = program;
        return TX_OK;
    }
    tx_status status = build_failure(context, program, source, code);
    clReleaseProgram(program);
    return status;
}

static tx_status build_binary(const tx_context *context, const char *source, const char *options, const void *binary,
                              size_t size, cl_program *out)
{
    const unsigned char *bytes = binary;
    cl_int code, verdict = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(context->context, 1, &context->device, &size, &bytes, &verdict, &code);
    TX_TRY(tx_cl_check(code, "clCreateProgramWithBinary"));
    return build(context, program, source, options, verdict, out);
}

/* Returns the program's binary, which the caller frees, or NULL if there is none. */
static unsigned char *binary_of(cl_program program, size_t *size)
{
    *size = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL) != CL_SUCCESS || *size == 0)
        return NULL;
    unsigned char *binary = malloc(*size);
    if (binary && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        return binary;
    free(binary);
    return NULL;
}

static cl_program load_program(const tx_context *context, const char *key, const char *source, const char *options)
{
    void *binary;
    size_t size;
    cl_program program = NULL;
    if (!tx_cl_cache_load(context, key, &binary, &size))
        return NULL;
    (void)build_binary(context, source, options, binary, size, &program);
    free(binary);
    return program;
}

static void store_program(const tx_context *context, const char *key, cl_program program)
{
    size_t size;
    unsigned char *binary = context->cache ? binary_of(program, &size) : NULL;
    if (binary)
        tx_cl_cache_store(context, key, binary, size);
    free(binary);
}

/* Returns the reviser for programs with these options, or NULL if they are loaded unchanged. */
static const tx_cl_reviser *reviser_of(const char *options)
{
    static const tx_cl_reviser *const revisers[] = {
#define TX_REVISER(name) &tx_cl_##name,
#include "backends/opencl/extensions.def"
        NULL};
    int i = 0;
    while (revisers[i] && !strstr(options, revisers[i]->option))
        i++;
    return revisers[i];
}

/* Replaces *program, which is released even on failure. */
static tx_status revise(const tx_context *context, const tx_cl_reviser *reviser, const char *source,
                        const char *options, cl_program *program)
{
    size_t size;
    char *text = NULL;
    unsigned char *binary = binary_of(*program, &size);
    clReleaseProgram(*program);
    *program = NULL;
    tx_status status = binary ? reviser->revise((const char *)binary, size, &text)
                              : tx_fail(TX_DEVICE, "the driver returns no binary");
    free(binary);
    TX_THEN(status, build_binary(context, source, options, text, strlen(text), program));
    free(text);
    return status ? tx_fail_in(status, "%s.cl for %s", source, reviser->version) : TX_OK;
}

static tx_status build_source(const tx_context *context, const tx_cl_reviser *reviser, const char *source,
                              const char *options, const char *text, cl_program *out)
{
    cl_int code;
    cl_program program = clCreateProgramWithSource(context->context, 1, &text, NULL, &code);
    TX_TRY(tx_cl_check(code, "clCreateProgramWithSource"));
    TX_TRY(build(context, program, source, options, CL_SUCCESS, out));
    return reviser ? revise(context, reviser, source, options, out) : TX_OK;
}

/* Builds a program unless the driver crashed or hung in its build before. */
static tx_status build_program(const tx_context *context, const tx_cl_reviser *reviser, tx_cl_program *entry,
                               const char *options, const char *text)
{
    char name[TX_CL_JOURNAL_NAME];
    snprintf(name, sizeof name, "building %s.cl (%016" PRIx64 ")", entry->source,
             tx_hash(tx_hash(TX_HASH_START, options, strlen(options)), text, strlen(text)));
    TX_TRY(tx_cl_journal_check(context, name, entry->optional ? strcspn(name, "(") : strlen(name)));
    const int trying = tx_cl_journal_begin(context, name);
    tx_status status = build_source(context, reviser, entry->source, options, text, &entry->program);
    tx_cl_journal_end(context, trying, false);
    return status;
}

#define BASE_OPTIONS 128 /* bytes for the options of all programs */

/* Warnings are off because users cannot act on those of a driver. */
static void write_options(const tx_context *context, const char *options, char *text, size_t size)
{
    static const char *const absent[] = {
#define X(name, function) " -DTX_NO_" #name,
        TX_CL_BUILTIN_MAP(X)
#undef X
    };
    int used = snprintf(text, size, "-cl-std=CL1.2 -w");
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        if (context->driver.missing[i])
            used += snprintf(text + used, size - (size_t)used, "%s", absent[i]);
    snprintf(text + used, size - (size_t)used, " %s", options);
}

/* Builds a program from source and stores it, unless another process does: then waits and loads it. */
static tx_status build_once(const tx_context *context, const tx_cl_reviser *reviser, tx_cl_program *entry,
                            const char *key, const char *options, const char *text)
{
    const int lock = tx_cl_cache_lock(context, key);
    tx_status status = TX_OK;
    entry->program = lock < 0 ? NULL : load_program(context, key, entry->source, options);
    if (!entry->program) {
        status = build_program(context, reviser, entry, options, text);
        if (status == TX_OK)
            store_program(context, key, entry->program);
    }
    tx_cl_cache_unlock(lock);
    return status;
}

/* Loads a program from the disk cache, keyed by the whole text and the options, or builds it. */
tx_status tx_cl_build_program(const tx_context *context, tx_cl_program *entry)
{
    const char *options = entry->options;
    const tx_cl_reviser *reviser = reviser_of(options);
    const char *version = reviser ? reviser->version : "";
    char *text = NULL;
    TX_TRY(tx_cl_program_text(entry->source, &text));
    tx_status status = TX_OK;
    size_t size = strlen(text) + strlen(options) + strlen(version) + BASE_OPTIONS + 16;
    char *key = malloc(size), *all = malloc(strlen(options) + BASE_OPTIONS);
    if (!key || !all) {
        status = tx_fail(TX_MEMORY, "out of host memory");
    } else {
        write_options(context, options, all, strlen(options) + BASE_OPTIONS);
        snprintf(key, size, "program%s%s\n%s\n%s", reviser ? " " : "", version, all, text);
        entry->program = load_program(context, key, entry->source, all);
        if (!entry->program)
            status = build_once(context, reviser, entry, key, all, text);
    }
    free(key);
    free(all);
    free(text);
    return status;
}

tx_status tx_cl_want_program(tx_context *context, const char *source, const char *options, bool trial,
                             tx_cl_program **found)
{
    tx_cl_program *entry = context->programs;
    options = options ? options : "";
    while (entry && (strcmp(entry->source, source) != 0 || strcmp(entry->options, options) != 0))
        entry = entry->next;
    if (!entry) {
        const size_t length = strlen(source) + 1, size = length + strlen(options) + 1;
        entry = calloc(1, sizeof *entry + size);
        if (!entry)
            return tx_fail(TX_MEMORY, "out of host memory");
        entry->options = strcpy(entry->source + length, options);
        strcpy(entry->source, source);
        entry->next = context->programs;
        context->programs = entry;
    }
    entry->optional = entry->optional || trial;
    *found = entry;
    return TX_OK;
}

tx_status tx_cl_make_kernel(tx_context *context, tx_cl_program *program, const char *name, cl_kernel *kernel)
{
    if (!program->program)
        TX_TRY(tx_cl_build_program(context, program));
    cl_int code;
    cl_kernel made = clCreateKernel(program->program, name, &code);
    if (code != CL_SUCCESS)
        return tx_fail_in(tx_cl_check(code, "clCreateKernel"), "kernel %s of %s.cl", name, program->source);
    *kernel = made;
    return TX_OK;
}

tx_status tx_cl_kernel(tx_context *context, const char *source, const char *options, const char *name,
                       cl_kernel *kernel)
{
    tx_cl_program *program;
    TX_TRY(tx_cl_want_program(context, source, options, false, &program));
    return tx_cl_make_kernel(context, program, name, kernel);
}

void tx_cl_release_programs(tx_context *context)
{
    for (tx_cl_program *entry = context->programs, *next; entry; entry = next) {
        next = entry->next;
        if (entry->program && !context->hung)
            clReleaseProgram(entry->program);
        free(entry);
    }
    context->programs = NULL;
}
