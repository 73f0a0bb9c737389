/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults of real drivers (stand_in.h), in processes of their own.
 *
 *     test_failures fill       memory is filled though the driver's fill is wrong, a buffer of 6 GiB too
 *     test_failures types      each card reports the operand types for which it has providers
 *     test_failures local      attention has forms within 48 KiB of local memory on each of NVIDIA's cards
 *     test_failures wait       a wait for a kernel that hangs ends, and sleeps
 *     test_failures FAILURE    a row of `failures` or `interrupted`: the run continues or ends with a message, and
 *                              the next start leaves out what failed
 *
 * Exit status 77: there is no OpenCL device. */
#include "api/graph/op.h"
#include "backends/opencl/attention/attention.h"
#include "backends/opencl/gemm/gemm_tile.h"
#include "backends/opencl/runtime/internal.h"
#include "tests/opencl/stand_in.h"
#include "tests/opencl/tiny_training.h"

#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- Fills ------------------------------------------------------------------------------------------------------- */

enum { SMALL = 256 };

/* Every first and last byte of a small buffer. */
static tx_status fill_small(tx_context *context, const char **wrong)
{
    tx_buffer *buffer = NULL;
    unsigned char got[SMALL];
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, SMALL, &buffer);
    for (int first = 0; first < 40 && !status; first++)
        for (int last = first + 1; last < 90 && !status; last++) {
            status = tx_cl_fill_bytes(context, buffer, 0, 0xA5, SMALL);
            TX_THEN(status, tx_cl_fill_bytes(context, buffer, first, 0x3C, last - first));
            TX_THEN(status, tx_cl_read(context, buffer, 0, got, SMALL));
            for (int i = 0; i < SMALL && !status; i++)
                if (got[i] != (i >= first && i < last ? 0x3C : 0xA5))
                    *wrong = "a small fill is wrong";
        }
    tx_cl_release(context, buffer);
    return status;
}

/* Both moments of a model of 805 million parameters. */
static tx_status fill_large(tx_context *context, const char **wrong)
{
    const int64_t bytes = ((int64_t)6 << 30) - 48;
    tx_buffer *buffer = NULL;
    tx_status status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, bytes, &buffer);
    TX_THEN(status, tx_cl_fill_bytes(context, buffer, 0, 0x5A, bytes));
    TX_THEN(status, tx_cl_finish(context));
    for (int64_t i = 0; i < bytes && !status; i += 4093)
        if (stand_in.memory[i] != 0x5A)
            *wrong = "6 GiB are not filled";
    tx_cl_release(context, buffer);
    return status;
}

static int test_fill(void)
{
    tx_context *context = NULL;
    const char *wrong = NULL;
    stand_in.card = "mi300x";
    tx_status status = tx_cl_open(0, NULL, &context); /* large buffers of the failing card fail the start-up test */
    if (!status)
        tx_cl_close(context);
    stand_in.failure = STAND_IN_FILL;
    TX_THEN(status, tx_cl_open(0, NULL, &context));
    if (status)
        return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    status = fill_small(context, &wrong);
    TX_THEN(status, fill_large(context, &wrong));
    tx_cl_close(context);
    printf("%s  %s\n", status || wrong ? "FAIL" : "ok", status ? tx_error() : wrong ? wrong : "fills are right");
    return status || wrong;
}

/* ---- Types of operands ------------------------------------------------------------------------------------------- */

/* Returns true if matrix units compute the product of such operands on this device. */
static bool has_provider(tx_context *context, tx_dtype from, bool tf32)
{
    const tx_operand none = {.dtype = TX_DTYPE_COUNT}, square = {.dtype = from, .shape = TX_SHAPE(2048, 2048)},
                     y = {.dtype = TX_F32, .shape = TX_SHAPE(2048, 2048)};
    const tx_attrs attrs = {.flat = true};
    const tx_cl_product p = {.g = tx_gemm_of(&attrs, &square.shape, &square.shape),
                             .from = from,
                             .a = &square,
                             .b = &square,
                             .y = &y,
                             .bias = &none,
                             .z = &none,
                             .kept = &none};
    const tx_cl_builder asks = tx_cl_asker(context);
    const tx_cl_provider *one;
    char why[TX_CL_WHY] = "";
    bool found = false;
    context->tf32 = tf32;
    for (int i = 0; (one = tx_cl_gemm_provider(i)) != NULL; i++)
        found = found || (one->tile && !one->full && strcmp(one->tile->kernel, "gemm_matrix") == 0 &&
                          one->suits(&asks, one, &p, why) > 0.0);
    return found;
}

static int test_types(void)
{
    int bad = 0;
    for (int i = 0; (stand_in.card = stand_in_card(i)) != NULL; i++) {
        tx_context *context = NULL;
        tx_device_info info;
        tx_status status = tx_cl_device_info(0, &info);
        TX_THEN(status, tx_cl_open(0, NULL, &context));
        if (status)
            return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
        const bool fp16 = has_provider(context, TX_F16, false), bf16 = has_provider(context, TX_BF16, false),
                   tf32 = has_provider(context, TX_F32, true),
                   good = info.fp16 == fp16 && info.bf16 == bf16 && info.tf32 == tf32;
        printf("%s  %s: reports fp16 %d, bf16 %d, tf32 %d; has %d, %d, %d\n", good ? "ok" : "FAIL", stand_in.card,
               info.fp16, info.bf16, info.tf32, fp16, bf16, tf32);
        bad += !good;
        tx_cl_close(context);
    }
    return bad > 0;
}

/* ---- Local memory ------------------------------------------------------------------------------------------------ */

/* Returns true if one of the forms for matrix units needs at most 48 KiB, which all drivers allow. */
static bool has_small_form(const tx_context *context, tx_cl_attention_kernel kernel, int32_t d, float p)
{
    const int lengths = kernel == TX_CL_FORWARD ? 1 : 4;
    tx_command command = {.op = kernel == TX_CL_FORWARD ? TX_OP_ATTENTION : TX_OP_ATTENTION_GRAD,
                          .attrs = {.attention = {.heads = 1, .kv_heads = 1, .causal = true}, .draw.p = p, .scale = 1}};
    const tx_cl_attention_job job = {.command = &command,
                                     .B = 1,
                                     .T = 1024,
                                     .S = 1024,
                                     .last = 3 * d,
                                     .heads = 1,
                                     .kv_heads = 1,
                                     .d = d,
                                     .type = TX_BF16,
                                     .limits = &context->limits};
    tx_cl_attention_forms forms;
    bool found = false;
    command.in[lengths].dtype = command.in[lengths + 1].dtype = TX_DTYPE_COUNT;
    tx_status status = tx_cl_attention_list(context, &job, kernel, &forms);
    for (int i = 0; i < forms.count && status == TX_OK; i++)
        found = found || (forms.form[i].kind->typed && forms.form[i].local_bytes <= 48 << 10);
    return found;
}

static int test_local(void)
{
    int bad = 0;
    for (int i = 0; (stand_in.card = stand_in_card(i)) != NULL; i++) {
        tx_context *context = NULL;
        tx_status status = tx_cl_open(0, NULL, &context);
        if (status)
            return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
        const bool units = context->can.vendor == TX_CL_NVIDIA && context->can.bf16;
        for (int k = 0; k <= TX_CL_GRAD_KV && units; k++)
            for (int32_t d = 16; d <= 128; d += 16)
                for (int dropout = 0; dropout < 2; dropout++)
                    if (!has_small_form(context, (tx_cl_attention_kernel)k, d, 0.1f * (float)dropout))
                        bad +=
                            printf("FAIL %s: kernel %d, heads of %d: no form within 48 KiB\n", stand_in.card, k, d) > 0;
        tx_cl_close(context);
    }
    printf("%d faults\n", bad);
    return bad > 0;
}

/* ---- Waits ------------------------------------------------------------------------------------------------------- */

/* A wait for a kernel that hangs ends, and needs hardly any processor time. */
static int test_wait(void)
{
    tx_context *context = NULL;
    tx_buffer *buffer = NULL;
    setenv("TX_OCL_VARIANT", "gpu", 1);
    setenv("TX_OCL_TIMEOUT", "3", 1);
    tx_status status = tx_cl_open(0, NULL, &context);
    if (status)
        return printf("%s\n", tx_error()), status == TX_NOT_FOUND ? 77 : 1;
    status = tx_cl_allocate(context, TX_MEMORY_FUNCTIONALITY, TX_SPACE_DEVICE, SMALL, &buffer);
    stand_in.failure = STAND_IN_HANG;
    stand_in.what = "fill";
    TX_THEN(status, tx_cl_fill_bytes(context, buffer, 0, 0, SMALL));
    const double begin = tx_cl_now(), used = (double)clock() / CLOCKS_PER_SEC;
    const tx_status waited = status ? status : tx_cl_explain(context, tx_cl_finish(context));
    const double seconds = tx_cl_now() - begin, busy = (double)clock() / CLOCKS_PER_SEC - used;
    const bool good = status == TX_OK && waited == TX_DEVICE && strstr(tx_error(), "did not end within 3 seconds") &&
                      seconds >= 3.0 && busy < 0.1 * seconds;
    printf("%s  a wait of %.2f s used %.3f s of processor time: %s\n", good ? "ok" : "FAIL", seconds, busy, tx_error());
    tx_cl_release(context, buffer);
    tx_cl_close(context);
    return !good;
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

/* A run of a tiny model in a process of its own. `text` receives its losses, or the warnings and the message of its
 * failure. Returns the exit status, or minus the signal that ended it. */
static void warn(void *context, const char *message)
{
    fprintf(context, "warning: %s\n", message);
    fflush(context);
}

static int train(FILE *out)
{
    const tx_reporter report = {.context = out, .warn = warn};
    const tx_engine_options open = {.size = sizeof open, .device = "opencl", .report = &report};
    tiny_training t = {.config = "n_layer=1,n_embd=64,n_head=2,vocab_size=64,n_positions=20,"
                                 "attn_pdrop=0,embd_pdrop=0,resid_pdrop=0",
                       .rows = 2,
                       .block = 20,
                       .vocab = 64,
                       .steps = 3,
                       .rate = 1e-2};
    tx_engine *engine = NULL;
    tx_status status = tx_engine_create(&open, &engine);
    TX_THEN(status, tiny_train(engine, &t));
    if (status)
        fprintf(out, "message: %s\n", tx_error());
    for (int i = 0; i < t.steps && !status; i++)
        fprintf(out, "loss %.4f\n", t.loss[i]);
    tiny_free(&t);
    tx_engine_free(engine);
    return status == TX_NOT_FOUND ? 77 : status != TX_OK;
}

/* Waits until a locked file of the journal in TX_CACHE_DIR names the launch, then for the driver, and sends the signal.
 */
static void interrupt(pid_t child, int number, const char *what)
{
    char pattern[64], kernel[64], text[1024];
    bool found = false;
    siginfo_t end = {0};
    snprintf(pattern, sizeof pattern, "%s/cl-trying-*", getenv("TX_CACHE_DIR"));
    snprintf(kernel, sizeof kernel, "kernel %s ", what);
    while (!found && waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == 0 &&
           usleep(100000) == 0) {
        glob_t files = {0};
        (void)glob(pattern, 0, NULL, &files);
        for (size_t i = 0; i < files.gl_pathc; i++) {
            FILE *one = fopen(files.gl_pathv[i], "r");
            const size_t got = one ? fread(text, 1, sizeof text, one) : 0;
            found = found ||
                    (one && flock(fileno(one), LOCK_SH | LOCK_NB) != 0 && memmem(text, got, kernel, strlen(kernel)));
            if (one)
                fclose(one);
        }
        globfree(&files);
    }
    sleep(1);
    kill(child, number);
}

static int start(stand_in_failure failure, const char *what, int number, char *text, size_t size)
{
    char path[] = "/tmp/tx_failures_XXXXXX";
    const int file = mkstemp(path);
    int state = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        FILE *out = fdopen(file, "w");
        dup2(file, STDERR_FILENO);
        if (failure == STAND_IN_WORKER_CRASH) {
            setenv("TX_TEST_CRASH", what, 1);
        } else {
            stand_in.failure = failure;
            stand_in.what = what;
        }
        const int code = train(out);
        fclose(out);
        _exit(code);
    }
    if (number)
        interrupt(child, number, what);
    waitpid(child, &state, 0);
    const ssize_t got = pread(file, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    close(file);
    unlink(path);
    return WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state);
}

/* The expected end of a start: the usual losses, a message, or a crash. */
typedef enum outcome { GOES_ON, FAILS, CRASHES } outcome;

enum { STARTS = 4, PARTS = 3, TEXT = 8192 };
typedef struct failure {
    const char *name;
    stand_in_failure failure;
    const char *what;
    struct {
        outcome outcome;
        const char *says[PARTS]; /* parts of the text; "!" before a part that must be absent */
    } start[STARTS];
} failure;

static const failure failures[] = {
    /* The form of attention is another on the second start, which does not try it. */
    {"death_in_trial", STAND_IN_DEATH, "gemm_tile", {{GOES_ON, {""}}, {GOES_ON, {"gemm_tile", "delete "}}}},
    {"crash_in_trial",
     STAND_IN_LAUNCH_CRASH,
     "gemm_tile",
     {{CRASHES, {"driver ", "the process crashed here: product portable-tile", "kernel gemm_tile"}},
      {GOES_ON, {"warning: opencl:0", "kernel gemm_tile", "delete "}}}},
    /* Forms of other sizes of work-groups are not tried one after the other. */
    {"crash_in_self_test",
     STAND_IN_LAUNCH_CRASH,
     "softmax",
     {{CRASHES, {"driver ", "the process crashed here: kernel softmax"}},
      {FAILS, {"warning: opencl:0", "kernel softmax", "delete "}}}},
    {"hang_in_trial",
     STAND_IN_HANG,
     "gemm_tile",
     {{FAILS, {"kernel gemm_tile", "did not end within 10 seconds", "driver "}}, {GOES_ON, {"gemm_tile", "delete "}}}},
    {"hang",
     STAND_IN_HANG,
     "adamw",
     {{FAILS, {"kernel adamw", "did not end within 10 seconds", "driver "}}, {FAILS, {"kernel adamw", "delete "}}}},
    {"no_builtins",
     STAND_IN_BUILTIN,
     " -Dnative_exp2=missing_exp2 -Dsincos=missing_sincos -Dfma=missing_fma",
     {{GOES_ON, {""}}, {GOES_ON, {""}}}},
    {"crash_in_build",
     STAND_IN_BUILD_CRASH,
     "attention(ATTENTION_ARGUMENTS, __local float4 *pool)",
     {{CRASHES, {"driver ", "the process crashed here: building attention_gpu.cl"}},
      {FAILS, {"building attention_gpu.cl", "delete ", "!; building"}}}},
    /* The process that needs the program lives, and uses another candidate. */
    {"crash_in_worker",
     STAND_IN_WORKER_CRASH,
     "\ngemm_tile(GEMM_ARGUMENTS",
     {{GOES_ON, {"!warning"}}, {GOES_ON, {"warning: opencl:0", "building gemm_tile.cl", "delete "}}}},
};

/* A process gets a signal while a trial hangs. The user's signals leave nothing; two that were killed count as a hang.
 */
static const struct interrupted {
    int signal;
    failure failure;
} interrupted[] = {
    {SIGINT,
     {"interrupt",
      STAND_IN_HANG,
      "gemm_tile",
      {{CRASHES, {"!warning"}}, {CRASHES, {"!warning"}}, {CRASHES, {"!warning"}}}}},
    {SIGTERM, {"time_limit", STAND_IN_HANG, "gemm_tile", {{CRASHES, {"!warning"}}, {CRASHES, {"!warning"}}}}},
    {SIGKILL,
     {"kill",
      STAND_IN_HANG,
      "gemm_tile",
      {{CRASHES, {"!warning"}}, {CRASHES, {"!warning"}}, {GOES_ON, {"gemm_tile", "delete "}}}}},
};

static bool as_expected(const failure *f, int i, int code, const char *text, const char *usual)
{
    const outcome expected = f->start[i].outcome;
    const char *message = strstr(text, "message: ");
    bool good = expected == CRASHES ? code < 0
                : expected == FAILS ? code == 1 && message && strstr(message, ", driver ")
                                    : code == 0 && strstr(text, usual);
    for (int k = 0; k < PARTS && f->start[i].says[k]; k++) {
        const char *part = f->start[i].says[k];
        good = good && (part[0] == '!' ? !strstr(text, part + 1) : strstr(text, part) != NULL);
    }
    printf("%s  %s, start %d: status %d\n%s", good ? "ok" : "FAIL", f->name, i + 1, code, text);
    return good;
}

static int test_starts(const failure *f, int number)
{
    char usual[TEXT], text[TEXT], folder[] = "/tmp/tx_failures_XXXXXX", command[64];
    bool good = true;
    setenv("TX_OCL_VARIANT", "gpu", 1);
    setenv("TX_GEMM_TUNE", "0", 1);
    const int code = start(STAND_IN_NO_FAILURE, NULL, 0, usual, sizeof usual);
    if (code != 0)
        return printf("%s", usual), code == 77 ? 77 : 1;
    if (!mkdtemp(folder))
        return 1;
    setenv("TX_CACHE_DIR", folder, 1);
    if (f->failure == STAND_IN_HANG)
        setenv("TX_OCL_TIMEOUT", "10", 1);
    for (int i = 0; i < STARTS && (i == 0 || f->start[i].says[0]); i++) {
        const int now = start(f->failure, f->what, number, text, sizeof text);
        good = as_expected(f, i, now, text, usual) && good;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || !good;
}

int main(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[0], "tx-kernels") == 0 || strcmp(argv[1], "crash_in_worker") == 0))
        tx_engine_workers(argc, argv);
    if (argc == 2 && strcmp(argv[1], "fill") == 0)
        return test_fill();
    if (argc == 2 && strcmp(argv[1], "types") == 0)
        return test_types();
    if (argc == 2 && strcmp(argv[1], "local") == 0)
        return test_local();
    if (argc == 2 && strcmp(argv[1], "wait") == 0)
        return test_wait();
    for (size_t i = 0; argc == 2 && i < sizeof failures / sizeof failures[0]; i++)
        if (strcmp(argv[1], failures[i].name) == 0)
            return test_starts(&failures[i], 0);
    for (size_t i = 0; argc == 2 && i < sizeof interrupted / sizeof interrupted[0]; i++)
        if (strcmp(argv[1], interrupted[i].failure.name) == 0)
            return test_starts(&interrupted[i].failure, interrupted[i].signal);
    return fprintf(stderr, "usage: test_failures fill|types|local|wait|FAILURE\n"), 2;
}
