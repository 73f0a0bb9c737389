/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: builds from the disk cache or from source, and kernels.
 */
#include "backends/opencl/runtime/internal.h"

#include "api/base/hash.h"
#include "api/base/number.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program that is being built. */
typedef struct recipe {
    const tx_context *context;
    tx_cl_program *entry;
    tx_cl_worker *worker;         /* NULL if there is none */
    const tx_cl_reviser *reviser; /* NULL if the program is loaded unchanged */
    tx_cl_recipe of;
} recipe;

/* Reports the failure of a build with the first lines of its log. */
static tx_status build_failure(const recipe *r, cl_program program, cl_int code)
{
    cl_device_id device = r->context->device;
    size_t size = 0;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *log = size > 0 ? calloc(1, size + 1) : NULL;
    const bool told =
        log && clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL) == CL_SUCCESS;
    tx_status status = tx_fail(TX_DEVICE, "building %s.cl: %s (%d): %.599s", r->entry->source, tx_cl_error_name(code),
                               code, told ? log : "");
    free(log);
    return status;
}

/* Builds a program unless `code` is an error. Releases it on failure. */
static tx_status build(const recipe *r, cl_program program, cl_int code)
{
    code = code == CL_SUCCESS ? clBuildProgram(program, 1, &r->context->device, r->of.options, NULL, NULL) : code;
    if (code == CL_SUCCESS) {
        r->entry->program = program;
        return TX_OK;
    }
    tx_status status = build_failure(r, program, code);
    clReleaseProgram(program);
    return status;
}

static tx_status build_binary(const recipe *r, const void *binary, size_t size)
{
    const unsigned char *bytes = binary;
    cl_int code, verdict = CL_SUCCESS;
    cl_program program =
        clCreateProgramWithBinary(r->context->context, 1, &r->context->device, &size, &bytes, &verdict, &code);
    TX_TRY(tx_cl_check(code, "clCreateProgramWithBinary"));
    return build(r, program, verdict);
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

/* Returns false if the cache lacks the program. */
static bool load_program(const recipe *r)
{
    void *binary;
    size_t size;
    if (!tx_cl_cache_load(r->context, r->of.key, &binary, &size))
        return false;
    const bool loaded = build_binary(r, binary, size) == TX_OK;
    free(binary);
    return loaded;
}

static void store_program(const recipe *r)
{
    size_t size;
    unsigned char *binary = r->context->cache ? binary_of(r->entry->program, &size) : NULL;
    if (binary)
        tx_cl_cache_store(r->context, r->of.key, binary, size);
    free(binary);
}

/* Returns the reviser for programs with these options, or NULL if they are loaded unchanged. */
static const tx_cl_reviser *reviser_of(const char *options)
{
    static const tx_cl_reviser *const revisers[] = {
#define TX_REVISER(name) &tx_cl_##name,
#include "backends/opencl/extensions.def"
#undef TX_REVISER
        NULL};
    int i = 0;
    while (revisers[i] && !strstr(options, revisers[i]->option))
        i++;
    return revisers[i];
}

static tx_status build_revised(const recipe *r, const char *binary, size_t size)
{
    char *text = NULL;
    tx_status status = r->reviser->revise(binary, size, &text);
    TX_THEN(status, build_binary(r, text, strlen(text)));
    free(text);
    return status ? tx_fail_in(status, "%s.cl for %s", r->entry->source, r->reviser->version) : TX_OK;
}

/* Replaces the program, which is released even on failure. */
static tx_status revise(const recipe *r)
{
    size_t size;
    unsigned char *binary = binary_of(r->entry->program, &size);
    clReleaseProgram(r->entry->program);
    r->entry->program = NULL;
    const tx_status status = binary ? build_revised(r, (const char *)binary, size)
                                    : tx_fail(TX_DEVICE, "%s.cl: the driver returns no binary", r->entry->source);
    free(binary);
    return status;
}

static tx_status build_source(const recipe *r)
{
    cl_int code;
    const char *text = r->of.text;
    cl_program program = clCreateProgramWithSource(r->context->context, 1, &text, NULL, &code);
    TX_TRY(tx_cl_check(code, "clCreateProgramWithSource"));
    TX_TRY(build(r, program, CL_SUCCESS));
    return r->reviser ? revise(r) : TX_OK;
}

/* Writes the journal's name for the build of a program. */
static void name_build(const recipe *r, const char *how, char name[TX_CL_JOURNAL_NAME])
{
    const char *options = r->of.options, *text = r->of.text;
    snprintf(name, TX_CL_JOURNAL_NAME, "%s %s.cl (%016" PRIx64 ")", how, r->entry->source,
             tx_hash(tx_hash(TX_HASH_START, options, strlen(options)), text, strlen(text)));
}

/* Adds a line to the file TX_OCL_LOG: seconds, how the program was built, its source, kernel and options. */
static void log_build(const recipe *r, bool shipped, tx_cl_built built, double began)
{
    static const char *const how[] = {"built", "built by a worker", "crashed a worker"};
    const char *path = getenv("TX_OCL_LOG");
    char figure[32];
    FILE *to = path && *path ? fopen(path, "ae") : NULL;
    if (!to)
        return;
    tx_format(figure, sizeof figure, "%.3f", tx_cl_now() - began);
    fprintf(to, "%s\t%s%s\t%s\t%s\t%s\n", figure, how[built], shipped ? ", came with TX" : "", r->entry->source,
            *r->entry->kernel ? r->entry->kernel : "all", r->entry->options);
    fclose(to);
}

static const tx_cl_shipped *const packs[] = {
#define TX_SHIPPED(name) &tx_cl_##name,
#include "backends/opencl/extensions.def"
#undef TX_SHIPPED
    NULL};

uint64_t tx_cl_shipped_digest(const tx_context *context)
{
    return packs[0] ? packs[0]->digest(context) : 0;
}

/* Warns once a process. The reason is tx_error(). */
static void warn_refused(const recipe *r)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const tx_reporter *report = r->context->report;
    char text[900];
    if (!report || !report->warn || atomic_flag_test_and_set(&warned))
        return;
    snprintf(text, sizeof text, "the driver refuses kernels that came with TX, which compiles them: %.700s",
             tx_error());
    report->warn(report->context, text);
}

static tx_status build_shipped(const recipe *r, const char *text)
{
    const size_t size = strlen(text);
    return r->reviser ? build_revised(r, text, size) : build_binary(r, text, size);
}

/* Loads the program that came with TX, or lets the worker do so first. Returns false if there is none, if the driver
 * refuses it, or if it crashed or hung at any of them before. */
static bool load_shipped(const recipe *r)
{
    char name[TX_CL_JOURNAL_NAME];
    char *text = packs[0] ? packs[0]->find(r->context, r->entry->source, r->of.key) : NULL;
    name_build(r, "loading", name);
    if (!text || tx_cl_journal_check(r->context, name, strcspn(name, " ")) != TX_OK) {
        free(text);
        return false;
    }
    const int trying = tx_cl_journal_begin(r->context, name);
    const double began = tx_cl_now();
    const tx_cl_built built = tx_cl_worker_build(r->context, r->worker, r->entry, true);
    tx_status status = TX_OK;
    if (built == TX_CL_CRASHED)
        status = tx_fail(TX_DEVICE, "loading %s.cl crashed or hung", r->entry->source);
    else if (built != TX_CL_BUILT || !load_program(r)) {
        status = build_shipped(r, text);
        if (status == TX_OK)
            store_program(r);
    }
    tx_cl_journal_end(r->context, trying, built == TX_CL_CRASHED);
    log_build(r, true, built, began);
    free(text);
    if (status)
        warn_refused(r);
    return status == TX_OK;
}

/* Builds a program from source and stores it, or lets the worker do so. */
static tx_status build_new(const recipe *r, tx_cl_built *built)
{
    *built = tx_cl_worker_build(r->context, r->worker, r->entry, false);
    if (*built == TX_CL_CRASHED)
        return tx_fail(TX_DEVICE, "building %s.cl crashed or hung", r->entry->source);
    if (*built == TX_CL_BUILT && load_program(r))
        return TX_OK;
    TX_TRY(build_source(r));
    store_program(r);
    return TX_OK;
}

/* Builds a program unless the driver crashed or hung in its build before. */
static tx_status build_program(const recipe *r)
{
    char name[TX_CL_JOURNAL_NAME];
    name_build(r, "building", name);
    TX_TRY(tx_cl_journal_check(r->context, name, r->entry->optional ? strcspn(name, "(") : strlen(name)));
    const int trying = tx_cl_journal_begin(r->context, name);
    const double began = tx_cl_now();
    tx_cl_built built;
    const tx_status status = build_new(r, &built);
    tx_cl_journal_end(r->context, trying, built == TX_CL_CRASHED);
    log_build(r, false, built, began);
    return status;
}

/* Warnings are off because users cannot act on those of a driver. */
tx_status tx_cl_write_recipe(const tx_context *context, const tx_cl_program *program, tx_cl_recipe *r)
{
    static const char *const absent[] = {
#define X(name, function) " -DTX_NO_" #name,
        TX_CL_BUILTIN_MAP(X)
#undef X
    };
    const tx_cl_reviser *reviser = reviser_of(program->options);
    size_t size;
    FILE *to = open_memstream(&r->options, &size);
    if (!to)
        return tx_fail(TX_MEMORY, "out of host memory");
    fputs("-cl-std=CL1.2 -w", to);
    for (int i = 0; i < TX_CL_BUILTINS; i++)
        fputs(context->driver.missing[i] ? absent[i] : "", to);
    fprintf(to, " %s", program->options);
    if (fclose(to))
        return tx_fail(TX_MEMORY, "out of host memory");
    if (!program->text)
        TX_TRY(tx_cl_program_text(program->source, program->kernel, &r->text));
    else if (!(r->text = strdup(program->text)))
        return tx_fail(TX_MEMORY, "out of host memory");
    if (!(to = open_memstream(&r->key, &size)))
        return tx_fail(TX_MEMORY, "out of host memory");
    fprintf(to, "program%s%s\n%s\n%s", reviser ? " " : "", reviser ? reviser->version : "", r->options, r->text);
    return fclose(to) ? tx_fail(TX_MEMORY, "out of host memory") : TX_OK;
}

void tx_cl_free_recipe(tx_cl_recipe *r)
{
    free(r->options);
    free(r->text);
    free(r->key);
}

/* Loads a program from the disk cache, keyed by the whole text and the options. Otherwise loads it from those that came
 * with TX, or builds it from source, and stores it, unless another process does: then waits and loads it. */
tx_status tx_cl_build_program(const tx_context *context, tx_cl_program *entry, tx_cl_worker *worker)
{
    recipe r = {.context = context, .entry = entry, .worker = worker, .reviser = reviser_of(entry->options)};
    tx_status status = tx_cl_write_recipe(context, entry, &r.of);
    if (status == TX_OK && !load_program(&r)) {
        const int lock = tx_cl_cache_lock(context, r.of.key);
        if ((lock < 0 || !load_program(&r)) && !load_shipped(&r))
            status = build_program(&r);
        tx_cl_cache_unlock(lock);
    }
    tx_cl_free_recipe(&r.of);
    return status;
}

tx_status tx_cl_store_built(const tx_context *context, tx_cl_program *entry, bool shipped)
{
    recipe r = {.context = context, .entry = entry, .reviser = reviser_of(entry->options)};
    tx_status status = tx_cl_write_recipe(context, entry, &r.of);
    char *text = shipped && !status ? packs[0]->find(context, entry->source, r.of.key) : NULL;
    if (status == TX_OK)
        status = text ? build_shipped(&r, text) : shipped ? TX_NOT_FOUND : build_source(&r);
    if (status == TX_OK) {
        store_program(&r);
        clReleaseProgram(entry->program);
        entry->program = NULL;
        status = load_program(&r) ? TX_OK : TX_IO;
    }
    free(text);
    tx_cl_free_recipe(&r.of);
    return status;
}

tx_status tx_cl_want_program(tx_context *context, const char *source, const char *options, const char *kernel,
                             bool trial, tx_cl_program **found)
{
    tx_cl_program *entry = context->programs;
    options = options ? options : "";
    while (entry && (strcmp(entry->source, source) != 0 || strcmp(entry->options, options) != 0 ||
                     (*entry->kernel && !tx_cl_in_program(source, entry->kernel, kernel))))
        entry = entry->next;
    if (!entry) {
        kernel = tx_cl_one_program(source) ? "" : kernel;
        const size_t length = strlen(source) + 1, named = length + strlen(kernel) + 1;
        entry = calloc(1, sizeof *entry + named + strlen(options) + 1);
        if (!entry)
            return tx_fail(TX_MEMORY, "out of host memory");
        entry->options = strcpy(entry->source + named, options);
        entry->kernel = strcpy(entry->source + length, kernel);
        strcpy(entry->source, source);
        entry->next = context->programs;
        context->programs = entry;
    }
    entry->optional = entry->optional || trial;
    *found = entry;
    return TX_OK;
}

tx_status tx_cl_want_text(tx_context *context, const char *name, char *text, const char *kernel, tx_cl_program **found)
{
    char options[40];
    snprintf(options, sizeof options, "-DTEXT=0x%016" PRIx64, tx_hash(TX_HASH_START, text, strlen(text)));
    const tx_status status = tx_cl_want_program(context, name, options, kernel, false, found);
    if (status != TX_OK || (*found)->text)
        free(text);
    else
        (*found)->text = text;
    return status;
}

tx_status tx_cl_make_kernel(tx_context *context, tx_cl_program *program, const char *name, cl_kernel *kernel)
{
    if (!program->program)
        TX_TRY(tx_cl_build_program(context, program, NULL));
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
    TX_TRY(tx_cl_want_program(context, source, options, name, false, &program));
    return tx_cl_make_kernel(context, program, name, kernel);
}

void tx_cl_release_programs(tx_context *context)
{
    for (tx_cl_program *entry = context->programs, *next; entry; entry = next) {
        next = entry->next;
        if (entry->program && !context->hung)
            clReleaseProgram(entry->program);
        free(entry->text);
        free(entry);
    }
    context->programs = NULL;
}
