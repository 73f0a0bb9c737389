/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of this folder share; ops need only cl.h. A file calls those below it:
 *
 *   backend                           the table of functions
 *
 *   device, context                   open and close devices and their OpenCL contexts
 *
 *   run                               runs programs
 *
 *   refusal                           prepares programs in forms that the driver accepts
 *
 *   plan                              executables: commands, their kernels and memory
 *
 *   compile                           builds programs in parallel
 *
 *   ../ops/, ../attention/, ../gemm/  launches of each op
 *
 *   select                            selects one of a few candidates
 *
 *   builder                           records the launches of a command
 *
 *   worker                            builds programs for other processes
 *
 *   program, memory                   programs and buffers
 *
 *   text, workers                     texts of programs; processes that build them
 *
 *   wait                              launches, and waits for queues
 *
 *   cache, journal, limits, capabilities, errors
 */
#ifndef TX_OPENCL_INTERNAL_H
#define TX_OPENCL_INTERNAL_H

#include "backends/opencl/runtime/cl.h"

#include <sys/types.h>

struct tx_buffer {
    cl_mem memory;
    void *mapped; /* host address for the lifetime of the buffer; NULL in TX_SPACE_DEVICE */
    tx_memory_kind kind;
    int64_t bytes;
};

/* errors.c: adds the device and a hint to the message of a device or memory failure. */
tx_status tx_cl_explain(const tx_context *context, tx_status status);

/* device.c */
tx_status tx_cl_device_count(int32_t *count);
tx_status tx_cl_device_info(int32_t index, tx_device_info *info);
tx_status tx_cl_open(int32_t index, const tx_open_options *options, tx_context **context);
void tx_cl_close(tx_context *context);
/* Opens a device in a worker: without tests, journal and extensions. */
tx_status tx_cl_open_plain(int32_t index, tx_context **context);

/* context.c */
tx_status tx_cl_make_context(tx_context *context);
/* Releases the OpenCL context and its objects. */
void tx_cl_drop_context(tx_context *context);
/* Replaces the OpenCL context after a trial destroyed it. Executables are emitted again when they are bound. This fails
 * if there is memory in the old context, or if the device hangs. */
tx_status tx_cl_renew(tx_context *context);

/* capabilities.c */
/* Returns a number that OpenCL or a vendor extension reports for a device, at most INT64_MAX. Returns `missing` if
 * the driver does not support the query. */
int64_t tx_cl_number(cl_device_id device, cl_device_info what, int64_t missing);
/* `info` must be complete except for the types of matrix units. */
void tx_cl_read_capabilities(cl_device_id device, const tx_device_info *info, tx_cl_capabilities *can);

/* limits.c: reads the limits of a device whose `info` is filled in so far, and applies TX_OCL_VARIANT and
 * TX_OCL_LIMITS. Simulated limits appear in info's name and maximum allocation. Invalid values of these variables
 * are errors. */
tx_status tx_cl_read_limits(cl_device_id device, const tx_cl_capabilities *can, tx_device_info *info,
                            tx_cl_limits *limits);

/* Reduces the maximum work-group size to `group`. */
void tx_cl_narrow(tx_cl_limits *limits, size_t group);

/* program.c */
struct tx_cl_program {
    tx_cl_program *next;
    cl_program program; /* NULL if it is not built */
    bool tried;         /* it was scheduled to be built ahead of its command */
    bool optional;      /* a trial builds it, so there may be other candidates */
    const char *kernel; /* "" if the program has all kernels of the source */
    const char *options;
    char *text;    /* the whole text if it is no source of TX; otherwise NULL */
    char source[]; /* the kernel's name and the options follow */
};
/* Finds a program in the context's list, or adds it, for tx_cl_compile. */
tx_status tx_cl_want_program(tx_context *context, const char *source, const char *options, const char *kernel,
                             bool trial, tx_cl_program **program);
/* The same for a program of another text, which it takes over even if it fails. `name` is shown in messages. */
tx_status tx_cl_want_text(tx_context *context, const char *name, char *text, const char *kernel,
                          tx_cl_program **program);
/* Creates a kernel of a program. Builds the program if necessary. */
tx_status tx_cl_make_kernel(tx_context *context, tx_cl_program *program, const char *name, cl_kernel *kernel);
/* Builds a program. Several threads may build different programs at a time. `worker` builds it if the cache lacks it,
 * unless NULL. */
typedef struct tx_cl_worker tx_cl_worker;
tx_status tx_cl_build_program(const tx_context *context, tx_cl_program *program, tx_cl_worker *worker);
/* In a worker: builds a program from source, or as it came with TX, stores it, and loads it as the other process will
 * do, so that the driver's own cache has it, too. */
tx_status tx_cl_store_built(const tx_context *context, tx_cl_program *program, bool shipped);
void tx_cl_release_programs(tx_context *context);

/* All that determines a program. It begins as {0}. */
typedef struct tx_cl_recipe {
    char *options, *text; /* all of both */
    char *key;            /* of the cached binary */
} tx_cl_recipe;
/* The caller frees the recipe, also after errors. */
tx_status tx_cl_write_recipe(const tx_context *context, const tx_cl_program *program, tx_cl_recipe *recipe);
void tx_cl_free_recipe(tx_cl_recipe *recipe);

/* An extension with programs that were compiled when TX was built. */
typedef struct tx_cl_shipped {
    /* Returns a number that changes with the programs, or 0 if there are none for this device. */
    uint64_t (*digest)(const tx_context *context);
    /* Finds the program of `source` whose recipe has this key. Returns its binary as the driver's compiler makes it, a
     * text that the caller frees. Returns NULL if there is none for this device. */
    char *(*find)(const tx_context *context, const char *source, const char *key);
} tx_cl_shipped;
#define TX_SHIPPED(name) extern const tx_cl_shipped tx_cl_##name;
#include "backends/opencl/extensions.def"
#undef TX_SHIPPED
uint64_t tx_cl_shipped_digest(const tx_context *context);

/* An extension that changes the binary of programs with an option. The driver then loads the result. */
typedef struct tx_cl_reviser {
    const char *option;  /* "-DATOM=WGMMA" */
    const char *version; /* part of the key of cached programs: changes with `revise` */
    tx_status (*revise)(const char *binary, size_t size, char **text); /* the caller frees *text */
} tx_cl_reviser;
#define TX_REVISER(name) extern const tx_cl_reviser tx_cl_##name;
#include "backends/opencl/extensions.def"
#undef TX_REVISER

/* workers.c */
/* A process that builds programs for a thread. It starts with the first request; initialize with 0. */
struct tx_cl_worker {
    pid_t process; /* 0 before it starts; -1 if it cannot be used */
    int socket;
};
/* CRASHED: the driver crashed, ended the process or hung. DECLINED: this process has to build the program. */
typedef enum tx_cl_built { TX_CL_DECLINED, TX_CL_BUILT, TX_CL_CRASHED } tx_cl_built;
/* Builds and stores a program, from source or as it came with TX. */
tx_cl_built tx_cl_worker_build(const tx_context *context, tx_cl_worker *worker, const tx_cl_program *program,
                               bool shipped);
void tx_cl_worker_end(tx_cl_worker *worker);
/* Returns how many workers may build at a time, at most `most`; 0 if this process must not have workers. */
int64_t tx_cl_workers_most(const tx_context *context, int64_t most);
void tx_cl_allow_workers(void);
/* worker.c: the function of the backend's table. */
void tx_cl_workers(int argc, char *const *argv);

/* compile.c: builds the programs of the context's list that were not tried before, on a few threads, or in as many
 * workers. Failures are not reported here: the command that needs the program builds it again. */
void tx_cl_compile(tx_context *context);

/* cache.c: finds the folder of cached files and creates it if necessary. Warns if it cannot be read or written. */
void tx_cl_cache_open(tx_context *context);

/* journal.c */
#define TX_CL_JOURNAL_NAME 256
/* Reads the entries that earlier processes left, and warns of those at which the driver failed. */
void tx_cl_journal_open(tx_context *context);
void tx_cl_journal_close(tx_context *context);
/* Records that a build, trial or launch begins. Returns its entry for tx_cl_journal_end, or -1 if there is no journal.
 * With `failed` the entry remains for later starts. The first call installs handlers for signals that end the process.
 * Several threads may call these functions at a time. */
int tx_cl_journal_begin(const tx_context *context, const char *name);
void tx_cl_journal_end(const tx_context *context, int entry, bool failed);
/* Returns TX_DEVICE with a message if work whose name begins with `name` failed before. The first `kind` characters
 * name its kind: the same if work of this kind ended a start or failed twice. */
tx_status tx_cl_journal_check(const tx_context *context, const char *name, size_t kind);

/* wait.c: wait for a queue or an event without occupying a processor, and return an OpenCL code. If there is no
 * progress for context->limits.patience seconds, they fail, and context->lost has the reason. `what` names the kernels
 * that the queue runs; it may be NULL. */
cl_int tx_cl_wait_queue(tx_context *context, cl_command_queue queue, const char *what);
cl_int tx_cl_wait_event(tx_context *context, cl_event event);
/* Enqueues a marker after the ops named `first` to `last`. If the device hangs, the message names them. */
tx_status tx_cl_beat(tx_context *context, const char *first, const char *last);
void tx_cl_drop_beats(tx_context *context);
/* Returns true if an error concerns one launch: the driver has too few resources for it or finds it too large. */
bool tx_cl_is_refusal(cl_int code);
/* Launches a kernel. A refused launch is retried once after all earlier work is done. `local` and `event` may be NULL.
 */
cl_int tx_cl_enqueue(tx_context *context, cl_kernel kernel, cl_uint dims, const size_t *global, const size_t *local,
                     cl_event *event);
/* Returns true if the OpenCL context still works. */
bool tx_cl_is_alive(tx_context *context);

/* memory.c: the functions for memory, copies and events in the table. */
tx_status tx_cl_allocate(tx_context *context, tx_memory_kind kind, tx_memory_space space, int64_t bytes,
                         tx_buffer **buffer);
tx_status tx_cl_adopt(tx_context *context, tx_memory_kind kind, void *memory, int64_t bytes, tx_buffer **buffer);
void tx_cl_release(tx_context *context, tx_buffer *buffer);
void *tx_cl_map(tx_buffer *buffer);
void tx_cl_account(const tx_context *context, tx_memory *held, tx_traffic *traffic);
tx_status tx_cl_write(tx_context *context, tx_queue_id queue, tx_buffer *to, int64_t offset, const void *data,
                      int64_t bytes);
tx_status tx_cl_read_begin(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t offset, void *data,
                           int64_t bytes, tx_event **event);
tx_status tx_cl_read(tx_context *context, tx_buffer *from, int64_t offset, void *data, int64_t bytes);
tx_status tx_cl_fill_bytes(tx_context *context, tx_buffer *to, int64_t offset, uint8_t value, int64_t bytes);
tx_status tx_cl_copy_bytes(tx_context *context, tx_queue_id queue, tx_buffer *from, int64_t from_offset, tx_buffer *to,
                           int64_t to_offset, int64_t bytes);
tx_status tx_cl_mark(tx_context *context, tx_queue_id queue, tx_event **event);
tx_status tx_cl_await(tx_context *context, tx_queue_id queue, tx_event *event);
tx_status tx_cl_wait(tx_context *context, tx_event *event);
void tx_cl_forget(tx_context *context, tx_event *event);
tx_status tx_cl_finish(tx_context *context);

/* ---- Programs (builder.c, plan.c, refusal.c, run.c) ------------------------------------------------------------ */

/* One launch, or one host call if `fn` is set. */
typedef struct tx_cl_step {
    tx_cl_program *program;
    const char *name; /* of the kernel, a constant */
    cl_kernel kernel; /* NULL until tx_cl_make_kernels */
    cl_uint dims;
    bool has_local, doubted; /* doubted: the work-group is larger than the driver's limit for the kernel */
    size_t global[3], local[3];
    cl_event event; /* of a timed run; NULL otherwise */
    tx_cl_call_fn fn;
    void *data;
    void (*destroy)(void *data);
} tx_cl_step;

/* An argument of a launch: memory, set when the arenas are bound, or a value, set when kernels are made. */
typedef struct tx_cl_argument {
    int32_t step;
    cl_uint index;
    bool memory;
    tx_arena_id arena; /* of memory */
    int32_t chunk;
    const char *type; /* of a value, in OpenCL C; NULL for memory and for NULL in its place */
    size_t size;      /* of a value */
    int32_t at;       /* its first word; -1 for local memory */
} tx_cl_argument;

/* A command and the launches that it recorded. */
typedef struct tx_cl_command {
    tx_command asked;
    const tx_command *before, *after; /* as in tx_cl_builder (join.c) */
    bool joined;                      /* another command executes it */
    int32_t step_count, argument_count, word_count;
    tx_cl_step *steps;
    tx_cl_argument *arguments;
    uint64_t *words; /* values of arguments */
    int32_t launches;
    int64_t scratch; /* bytes */
    double work;     /* operations that it divides among launches; 0 if it cannot be divided */
    char *variant;   /* NULL means "opencl" */
    bool open;       /* it must be emitted again (tx_cl_builder) */
    int32_t runs;    /* runs so far, at most 2 */
} tx_cl_command;

/* An extension that runs a program whose commands all run at once in another way than launch by launch. */
typedef struct tx_cl_whole {
    /* Asks for its programs (tx_cl_want_text) after all commands have recorded their launches. May be
     * called several times. */
    tx_status (*want)(tx_executable *executable);
    /* Runs the program and sets *done, or leaves it to tx_cl_run_launches. */
    tx_status (*run)(tx_executable *executable, const tx_controls *controls, bool *done);
    /* Forgets all that depends on the memory and kernels of an executable, which change. */
    void (*forget)(tx_executable *executable);
} tx_cl_whole;
#define TX_WHOLE(name) extern const tx_cl_whole tx_cl_##name;
#include "backends/opencl/extensions.def"
#undef TX_WHOLE

struct tx_executable {
    bool whole;                          /* a forward pass whose commands all run at once */
    struct tx_cl_persistent *persistent; /* state of an extension (tx_cl_whole), or NULL */
    tx_context *context;
    const struct tx_cl_forced *forced; /* the candidate that is being measured (select.h), or NULL */
    int32_t generation;                /* of the context in which its kernels were made */
    int32_t length;
    tx_cl_command *commands;
    bool bound;
    cl_mem *memory[TX_ARENA_COUNT];
    int32_t chunks[TX_ARENA_COUNT];
    int64_t scratch; /* bytes of the bound arena SCRATCH */
};

/* join.c. Lets one command of a program execute several if a launch can compute them all. */
void tx_cl_join(const tx_context *context, const tx_program *program, tx_cl_command *commands);

/* plan.c */
tx_status tx_cl_make(tx_context *context, const tx_program *program, tx_executable **executable);
/* Emits a command with a builder whose context, limits, candidate and `ahead` are set. */
tx_status tx_cl_emit(tx_cl_builder *builder, tx_cl_command *command);
/* Removes the launches that a command recorded. */
void tx_cl_clear(const tx_context *context, tx_cl_command *command);
/* Makes the kernels of a command and sets their values. */
tx_status tx_cl_make_kernels(const tx_executable *executable, tx_cl_command *command);
/* Returns the extension that may run the program in another way, or NULL. */
const tx_cl_whole *tx_cl_whole_of(const tx_executable *executable);
/* Sets the arguments of a command that name memory. */
tx_status tx_cl_bind_command(const tx_executable *executable, const tx_cl_command *command);
tx_status tx_cl_bind(tx_executable *executable, const tx_bindings *bindings);
tx_command_info tx_cl_command_info(const tx_executable *executable, int32_t index);
void tx_cl_destroy(tx_executable *executable);
/* Writes the journal's name for the launch of a step. */
void tx_cl_step_entry(const tx_cl_step *step, char *name, size_t size);

/* refusal.c: the program's `trial` is a tx_cl_forced (select.h). */
tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                        int64_t *scratch_bytes);
/* Binds an executable (tx_cl_bind). If the context was replaced since, emits its commands again first, with no more
 * scratch memory. */
tx_status tx_cl_bind_current(tx_executable *executable, const tx_bindings *bindings);
/* Handles a refused launch of a command: replaces it by a form with smaller work-groups. `began` is true if earlier
 * launches of the command were accepted. Returns `status`, with its message, if there is no such form. */
tx_status tx_cl_replace_refused(tx_executable *executable, tx_cl_command *command, bool began, tx_status status);
/* tx_cl_is_watched returns true if the next run of the command is to be timed. This is its second run, because
 * compilers may work in the first, and only if launches have a time limit. If the launches take too long,
 * tx_cl_replace_slow replaces it by a form of more launches with the same bits. */
bool tx_cl_is_watched(const tx_executable *executable, const tx_cl_command *command);
void tx_cl_replace_slow(tx_executable *executable, tx_cl_command *command, double seconds);

/* run.c */
tx_status tx_cl_run_program(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                            double *seconds);
/* Runs commands launch by launch. The executable is bound, and the commands are in it. */
tx_status tx_cl_run_launches(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                             double *seconds);

#endif
