/* SPDX-License-Identifier: Apache-2.0
 *
 * Records the programs that the backend compiles for devices of other machines. It opens the local OpenCL device (PoCL)
 * with the variant and the limits of the other device, and prepares programs on it:
 *
 *     gpt2   training steps of GPT-2 124M (16 rows of 1024 tokens), generation (one row), and the products of the
 *            experts of Qwen2-MoE
 *     ops    every case of the conformance suite except the large ones
 *
 * Nothing is compiled: the functions below replace OpenCL's build functions and record their arguments.
 *
 *     kernel_texts nvidia|volta|gcn|cdna2|cdna3|rdna3|rdna4|arc|intel|cpu gpt2|ops FOLDER
 *     kernel_texts retarget FILE      PTX, changed as the backend changes it (retarget.h)
 *
 * The complete text of each program is written to SOURCE.cl in FOLDER. FOLDER/launches.tsv has a line for each kind
 * of launch. Its columns are source, kernel, work-group ("" if the driver chooses), bytes of local memory in its
 * arguments, and options.
 *
 * Exit status 77: there is no OpenCL device, or it is smaller than the other device. */
#include "api/base/file.h"
#include "api/model/engine.h"
#include "backends/opencl/generation/persistent.h"
#include "backends/opencl/matrix/retarget.h"
#include "backends/opencl/runtime/internal.h"
#include "backends/opencl/tune/trials.h"
#include "models/task/causal_lm.h"
#include "tests/ops/rig.h"
#include "tools/ptx/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The devices that are meant. */
static const struct meant {
    const char *name, *variant, *limits;
    tx_cl_capabilities can;
} devices[] = {
    {"nvidia", "gpu", "local=49152,group=1024", {TX_CL_NVIDIA, "sm_90", true, true, true, 32, 132}},
    {"volta", "gpu", "local=49152,group=1024", {TX_CL_NVIDIA, "sm_70", true, false, false, 32, 80}},
    {"gcn", "gpu", "local=65536,group=256", {TX_CL_AMD, "gfx906", false, false, false, 64, 60}},
    {"cdna2", "gpu", "local=65536,group=256", {TX_CL_AMD, "gfx90a", true, true, false, 64, 104}},
    {"cdna3", "gpu", "local=65536,group=256", {TX_CL_AMD, "gfx942", true, true, true, 64, 304}},
    {"rdna3", "gpu", "local=65536,group=256", {TX_CL_AMD, "gfx1100", true, true, false, 32, 48}},
    {"rdna4", "gpu", "local=65536,group=256", {TX_CL_AMD, "gfx1201", true, true, false, 32, 28}},
    {"arc", "gpu", "local=65536,group=1024", {TX_CL_INTEL, "xe-hpg", true, true, false, 8, 32}},
    {"intel", "gpu", "local=65536,group=512", {TX_CL_INTEL, "xe-hpc", true, true, true, 16, 128}},
    {"cpu", "cpu", "", {.units = 16}},
};

/* ---- Recorded programs ------------------------------------------------------------------------------------- */

typedef struct asked {
    char *source, *kernel, *options;
    char group[32];
    size_t local_bytes;
} asked;

static struct {
    bool on, failed;
    asked *list;
    size_t count;
    char *persistent;   /* the program of a token's persistent launch, or NULL */
    cl_program program; /* the object that the caller receives */
    cl_kernel kernel;
} record;

static void write_down(const char *source, const char *options, const char *kernel)
{
    asked *larger = realloc(record.list, (record.count + 1) * sizeof *larger);
    if (!larger) {
        record.failed = true;
        return;
    }
    record.list = larger;
    asked *a = &larger[record.count++];
    *a = (asked){strdup(source), strdup(kernel), strdup(options ? options : ""), "", 0};
    record.failed = record.failed || !a->source || !a->kernel || !a->options;
}

static bool same(const asked *a, const asked *b)
{
    return strcmp(a->source, b->source) == 0 && strcmp(a->kernel, b->kernel) == 0 &&
           strcmp(a->options, b->options) == 0 && strcmp(a->group, b->group) == 0 && a->local_bytes == b->local_bytes;
}

static void write_step(const tx_cl_command *c, int32_t step)
{
    const tx_cl_step *s = &c->steps[step];
    write_down(s->program->source, s->program->options, s->program->kernel);
    if (record.failed)
        return;
    asked *a = &record.list[record.count - 1];
    if (s->has_local)
        snprintf(a->group, sizeof a->group, "%zux%zux%zu", s->local[0], s->local[1], s->local[2]);
    for (int32_t i = 0; i < c->argument_count; i++)
        if (c->arguments[i].step == step && !c->arguments[i].memory && c->arguments[i].at < 0)
            a->local_bytes += c->arguments[i].size;
}

/* ---- Replacements: the linker redirects the backend's calls here --------------------------------------------- */

#define STAND_IN(type, name, ...)    \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)

STAND_IN(tx_status, tx_cl_kernel, tx_context *context, const char *source, const char *options, const char *name,
         cl_kernel *kernel)
{
    if (!record.on)
        return __real_tx_cl_kernel(context, source, options, name, kernel);
    write_down(source, options, name);
    *kernel = record.kernel;
    return tx_cl_check(clRetainKernel(record.kernel), "clRetainKernel");
}

STAND_IN(void, tx_cl_compile, tx_context *context)
{
    if (!record.on)
        __real_tx_cl_compile(context);
}

STAND_IN(tx_status, tx_cl_make_kernels, const tx_executable *executable, tx_cl_command *command)
{
    if (!record.on)
        return __real_tx_cl_make_kernels(executable, command);
    for (int32_t i = 0; i < command->step_count; i++)
        if (!command->steps[i].fn)
            write_step(command, i);
    return TX_OK;
}

/* There are no kernels, and the one that is handed out has no arguments. */
STAND_IN(cl_int, clSetKernelArg, cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    return record.on ? CL_SUCCESS : __real_clSetKernelArg(kernel, index, size, value);
}

/* Providers of matrix products and forms of attention are believed: on the device that is meant they would be right. */
STAND_IN(tx_status, tx_cl_gemm_verify, const tx_cl_builder *b, const char *provider, const tx_cl_gemm_case *trial,
         double *seconds)
{
    (void)b;
    (void)provider;
    (void)trial;
    if (seconds)
        *seconds = 1.0;
    return TX_OK;
}

STAND_IN(tx_status, tx_cl_attention_verify, const tx_cl_builder *b, const tx_cl_attention_job *a,
         tx_cl_attention_kernel kernel, const tx_cl_attention_form *form)
{
    (void)b;
    (void)a;
    (void)kernel;
    (void)form;
    return TX_OK;
}

/* Records the program of a persistent launch, if the executable of generation may be one. */
STAND_IN(void, tx_cl_destroy, tx_executable *executable)
{
    tx_cl_joint joint;
    if (record.on && executable && executable->whole && !record.persistent &&
        !tx_cl_persistent_list(executable, &joint) && joint.steps > joint.bodies) {
        record.failed = tx_cl_persistent_text(executable->context, &joint, &record.persistent) || record.failed;
        write_down("persistent", "-w", "persistent");
    }
    __real_tx_cl_destroy(executable);
}

/* From now on nothing is built, and no memory is taken for models: their arenas may be of any size. */
static tx_status begin(tx_engine *engine, const struct meant *device)
{
    tx_context *context = engine->context;
    const char *text = "__kernel void nothing(void) {}\n";
    cl_int code;
    record.program = clCreateProgramWithSource(context->context, 1, &text, NULL, &code);
    if (code == CL_SUCCESS)
        code = clBuildProgram(record.program, 1, &context->device, "", NULL, NULL);
    if (code == CL_SUCCESS)
        record.kernel = clCreateKernel(record.program, "nothing", &code);
    context->can = device->can;
    context->limits.compute_units = device->can.units;
    engine->device.max_allocation = 0;
    record.on = code == CL_SUCCESS;
    return tx_cl_check(code, "an empty kernel");
}

static void end(void)
{
    record.on = false;
    if (record.kernel)
        clReleaseKernel(record.kernel);
    if (record.program)
        clReleaseProgram(record.program);
}

/* ---- Programs to prepare -------------------------------------------------------------------------------------- */

static tx_status prepare_training(tx_engine *engine, const tx_config *config, tx_dtype autocast)
{
    const tx_trainer_options options = {
        .size = sizeof options,
        .task = &tx_causal_lm,
        .batch = 16,
        .block = 1024,
        .accumulation = 2,
        .eval_batch = 16,
        .autocast = autocast,
        .optimizer = {.size = sizeof options.optimizer, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f}};
    return tx_plan_training(engine, config, &options);
}

/* The rows of 8192 tokens, each with 4 of 60 experts, with their gradients. */
static tx_status prepare_experts(tx_context *context, tx_dtype type)
{
    const tx_operand absent = {.dtype = TX_DTYPE_COUNT}, offsets = {.dtype = TX_I32, .shape = TX_SHAPE(61)};
    const tx_operand x = {.dtype = type, .shape = TX_SHAPE(32768, 2048)},
                     w = {.dtype = type, .shape = TX_SHAPE(60, 1408, 2048)},
                     y = {.dtype = type, .shape = TX_SHAPE(32768, 1408)}, dw = {.dtype = TX_F32, .shape = w.shape};
    tx_command commands[3] = {
        {.op = TX_OP_GROUPED_MATMUL, .attrs = {.trans_b = true}, .in = {x, w, offsets}, .out = {y}},
        {.op = TX_OP_GROUPED_MATMUL, .in = {y, w, offsets}, .out = {x}},
        {.op = TX_OP_GROUPED_MATMUL_GRAD, .in = {y, x, offsets}, .out = {dw}}};
    const tx_program program = {.length = 3, .commands = commands};
    tx_executable *made = NULL;
    int64_t scratch;
    for (int c = 0; c < 3; c++) {
        for (int i = 3; i < TX_MAX_IN; i++)
            commands[c].in[i] = absent;
        for (int i = 1; i < TX_MAX_OUT; i++)
            commands[c].out[i] = absent;
    }
    tx_status status = tx_cl_prepare(context, &program, &made, &scratch);
    tx_cl_destroy(made);
    return status;
}

/* Dropout takes kernels of its own, and so do tf32 and types of 16 bits: with them and without. */
static tx_status prepare_gpt2(tx_engine *engine)
{
    const tx_cl_capabilities *can = &engine->context->can;
    tx_config *config = NULL;
    tx_status status = tx_config_preset("gpt2", &config);
    TX_THEN(status, prepare_training(engine, config, TX_F32));
    TX_THEN(status, tx_config_override(config, "attn_pdrop=0,embd_pdrop=0,resid_pdrop=0"));
    TX_THEN(status, prepare_training(engine, config, TX_F32));
    TX_THEN(status, tx_plan_generation(engine, config));
    engine->context->tf32 = can->tf32;
    if (!status && engine->context->tf32)
        status = prepare_training(engine, config, TX_F32);
    engine->context->tf32 = false;
    if (!status && can->bf16)
        status = prepare_training(engine, config, TX_BF16);
    if (!status && can->f16)
        status = prepare_training(engine, config, TX_F16);
    TX_THEN(status, prepare_experts(engine->context, TX_F32));
    if (!status && can->bf16)
        status = prepare_experts(engine->context, TX_BF16);
    tx_config_free(config);
    return status;
}

static tx_status prepare_case(const tx_target *target, tx_op op, const tx_case *c)
{
    tx_call call;
    tx_rig rig;
    tx_status status = tx_call_of_case(op, c, false, &call);
    if (status)
        return status;
    status = tx_rig_create(target, &call, c, false, &rig);
    if (!status)
        tx_rig_free(&rig);
    tx_call_free(&call);
    return status ? tx_fail_in(status, "%s", c->label) : TX_OK;
}

static tx_status prepare_ops(tx_engine *engine)
{
    const tx_target target = {engine->backend, engine->context, engine->device};
    tx_cases *list = malloc(sizeof *list);
    tx_status status = list ? TX_OK : tx_fail(TX_MEMORY, "no memory for a list of cases");
    for (int op = 0; op < TX_OP_KERNELS && !status; op++) {
        *list = (tx_cases){0};
        tx_descriptor_of((tx_op)op)->cases(list);
        for (int32_t i = 0; i < list->count && !status; i++)
            if (!(list->item[i].flags & TX_CASE_BENCH))
                status = prepare_case(&target, (tx_op)op, &list->item[i]);
    }
    free(list);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static FILE *create(const char *folder, const char *name, const char *suffix)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    FILE *file = fopen(path, "w");
    if (!file)
        fprintf(stderr, "kernel_texts: %s cannot be written\n", path);
    return file;
}

static bool write_text(const char *folder, const char *source)
{
    char *text;
    const bool made = record.persistent && strcmp(source, "persistent") == 0;
    if (made ? !(text = strdup(record.persistent)) : tx_cl_program_text(source, "", &text)) {
        fprintf(stderr, "kernel_texts: %s\n", tx_error());
        return false;
    }
    FILE *file = create(folder, source, ".cl");
    const bool good = file && fputs(text, file) >= 0;
    free(text);
    return file && fclose(file) == 0 && good;
}

static bool write_files(const char *folder)
{
    for (int32_t i = 0; i < tx_cl_source_count; i++) {
        const char *name = tx_cl_sources[i].name;
        if (strcmp(name, "rng") != 0 && strcmp(name, "common") != 0 && !write_text(folder, name))
            return false;
    }
    FILE *file = create(folder, "launches", ".tsv");
    if (!file)
        return false;
    size_t kinds = 0; /* the list's beginning becomes one of each */
    for (size_t i = 0; i < record.count; i++) {
        const asked now = record.list[i], *a = &now;
        size_t first = 0;
        while (first < kinds && !same(&record.list[first], a))
            first++;
        if (first < kinds)
            continue;
        record.list[i] = record.list[kinds];
        record.list[kinds++] = now;
        fprintf(file, "%s\t%s\t%s\t%zu\t%s\n", a->source, a->kernel, a->group, a->local_bytes, a->options);
    }
    return fclose(file) == 0 && !record.failed;
}

static int retarget_file(const char *path)
{
    char *ptx = NULL, *text = NULL;
    size_t size;
    tx_status status = tx_file_read(path, 1 << 26, &ptx, &size);
    TX_THEN(status, tx_cl_retarget_ptx(ptx, size, &text));
    FILE *file = status ? NULL : fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    good = file && fclose(file) == 0 && good;
    if (!good)
        printf("kernel_texts: %s: %s\n", path, status ? tx_error() : "cannot be written");
    free(ptx);
    free(text);
    return !good;
}

static tx_engine *open_device(const struct meant *device)
{
    const tx_engine_options options = {.size = sizeof options, .device = "opencl"};
    tx_engine *engine = NULL;
    setenv("TX_OCL_VARIANT", device->variant, 1);
    setenv("TX_OCL_LIMITS", device->limits, 1);
    setenv("TX_GEMM_TUNE", "0", 1);
    unsetenv("TX_GEMM");
    if (tx_engine_create(&options, &engine) == TX_OK)
        return engine;
    printf("skipped: %s\n", tx_error());
    return NULL;
}

int main(int argc, char **argv)
{
    const struct meant *device = NULL;
    if (argc == 3 && strcmp(argv[1], "retarget") == 0)
        return retarget_file(argv[2]);
    for (size_t i = 0; argc == 4 && i < sizeof devices / sizeof devices[0]; i++)
        if (strcmp(devices[i].name, argv[1]) == 0)
            device = &devices[i];
    const bool gpt2 = device && strcmp(argv[2], "gpt2") == 0;
    if (!device || (!gpt2 && strcmp(argv[2], "ops") != 0))
        return fprintf(stderr, "usage: kernel_texts DEVICE gpt2|ops FOLDER | retarget FILE\n"), 2;
    tx_engine *engine = open_device(device);
    if (!engine)
        return 77;
    tx_status status = begin(engine, device);
    if (!status)
        status = gpt2 ? prepare_gpt2(engine) : prepare_ops(engine);
    if (status)
        fprintf(stderr, "kernel_texts: %s\n", tx_error());
    const bool good = !status && write_files(argv[3]);
    end();
    tx_engine_free(engine);
    for (size_t i = 0; i < record.count; i++) {
        free(record.list[i].source);
        free(record.list[i].kernel);
        free(record.list[i].options);
    }
    free(record.list);
    free(record.persistent);
    return good ? 0 : 1;
}
