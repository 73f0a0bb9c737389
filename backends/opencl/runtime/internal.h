/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of this folder share this; ops need only cl.h. A file calls those below it:
 *
 *     backend                               the table
 *     device                                opens and closes
 *     run                                   runs programs
 *     refusal                               prepares them, in forms that the driver takes
 *     plan                                  executables
 *     ../ops/, ../attention/, ../gemm/      launches of each op
 *     select                                one of a few candidates
 *     builder
 *     compile                               builds programs side by side
 *     program, memory
 *     cache, limits, capabilities, errors
 */
#ifndef TX_OPENCL_INTERNAL_H
#define TX_OPENCL_INTERNAL_H

#include "backends/opencl/runtime/cl.h"

struct tx_buffer {
    cl_mem memory;
    void *mapped; /* the host's address: for as long as the buffer lives; NULL in TX_SPACE_DEVICE */
    tx_memory_kind kind;
    int64_t bytes;
};

/* errors.c: after a failure of the device or for want of memory, says which device it is and what to do. */
tx_status tx_cl_explain(const tx_context *context, tx_status status);

/* device.c */
tx_status tx_cl_device_count(int32_t *count);
tx_status tx_cl_device_info(int32_t index, tx_device_info *info);
tx_status tx_cl_open(int32_t index, const tx_open_options *options, tx_context **context);
void tx_cl_close(tx_context *context);

/* capabilities.c */
/* A number that OpenCL or an extension of a vendor's knows of a device, at most INT64_MAX; `missing` if the driver does
 * not know the question. */
int64_t tx_cl_number(cl_device_id device, cl_device_info what, int64_t missing);
/* `info` is complete except for the types of matrix units. */
void tx_cl_read_capabilities(cl_device_id device, const tx_device_info *info, tx_cl_capabilities *can);

/* limits.c: the limits of a device that is described so far, TX_OCL_VARIANT and TX_OCL_LIMITS obeyed. What is simulated
 * shows in info's name and largest allocation. Both variables are refused with a message where they make no sense. */
tx_status tx_cl_read_limits(cl_device_id device, const tx_cl_capabilities *can, tx_device_info *info,
                            tx_cl_limits *limits);

/* Makes work-groups of more than `group` items too large. */
void tx_cl_narrow(tx_cl_limits *limits, size_t group);

/* program.c */
struct tx_cl_program {
    tx_cl_program *next;
    cl_program program; /* NULL: it is not built */
    bool tried;         /* it was to be built ahead of its command */
    const char *options;
    char source[]; /* the options follow */
};
/* Adds a program to the context's list, for tx_cl_compile_ahead. */
tx_status tx_cl_want_program(tx_context *context, const char *source, const char *options);
/* Builds it. Several threads may do so at a time, each another program. */
tx_status tx_cl_build_program(const tx_context *context, tx_cl_program *program);
void tx_cl_release_programs(tx_context *context);

/* An extension that changes the compiler's binary of programs with an option, and has the driver load the result. */
typedef struct tx_cl_reviser {
    const char *option;  /* "-DATOM=WGMMA" */
    const char *version; /* part of the key of cached programs: changes with `revise` */
    tx_status (*revise)(const char *binary, size_t size, char **text); /* the caller frees *text */
} tx_cl_reviser;
#define TX_REVISER(name) extern const tx_cl_reviser tx_cl_##name;
#include "backends/opencl/extensions.def"
#undef TX_REVISER

/* compile.c */
/* Begins a survey: while context->survey is set, commands are emitted to learn which programs they and the trials
 * before them ask for; nothing is built, launched, proven, measured or kept. False while another one is under way. */
bool tx_cl_survey_begin(tx_context *context);
/* Ends it and builds the programs that were asked for by a few threads. Failures are not reported: the command that
 * needs the program builds it again. */
void tx_cl_compile_ahead(tx_context *context);

/* cache.c: the folder of cached files, made if need be; the caller frees it. NULL: no caching. */
char *tx_cl_cache_folder(void);

/* memory.c: slots of the table. */
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

/* One launch or, where `fn` is set, one call on the host. */
typedef struct tx_cl_step {
    cl_kernel kernel;
    cl_uint dims;
    bool has_local, doubted; /* doubted: in larger work-groups than the driver says that the kernel runs in */
    size_t global[3], local[3];
    tx_cl_call_fn fn;
    void *data;
    void (*destroy)(void *data);
} tx_cl_step;

/* An argument that names memory: set when the arenas are bound. */
typedef struct tx_cl_patch {
    int32_t step;
    cl_uint argument;
    tx_arena_id arena;
    int32_t chunk;
} tx_cl_patch;

typedef struct tx_cl_command {
    int32_t first, count; /* steps */
    int32_t launches;
    size_t widest; /* work-items in its largest work-group */
    int32_t runs;  /* so far; 2: or more */
    double work;   /* operations that it shares out among launches; 0: it is not cut */
    char *variant; /* NULL: "opencl" */
    tx_command asked;
    tx_executable *instead; /* another form of it alone, since the driver refuses this one's launches, or they take too
                             * long; NULL: none */
} tx_cl_command;

struct tx_executable {
    tx_context *context;
    const struct tx_cl_forced *forced; /* the candidate under trial (select.h), or NULL */
    int32_t length, step_count, step_room, patch_count, patch_room;
    tx_cl_command *commands;
    tx_cl_step *steps;
    tx_cl_patch *patches;
    cl_uint argument; /* index of the next argument of the last step */
    bool bound;
    cl_mem *memory[TX_ARENA_COUNT];
    int64_t scratch;  /* bytes of the bound arena SCRATCH */
    cl_event *events; /* one a step, when the context profiles */
};

/* plan.c */
/* An executable without commands, with room for `length`. */
tx_status tx_cl_make(tx_context *context, int32_t length, tx_executable **executable);
/* Emits the command that comes next, with a new builder. */
tx_status tx_cl_emit(tx_executable *executable, const tx_command *command, tx_cl_builder *builder);
/* Takes back the steps from `first` on. */
void tx_cl_drop_steps(tx_executable *executable, int32_t first);
tx_status tx_cl_bind(tx_executable *executable, const tx_bindings *bindings);
/* Binds another one, which has at most one chunk of scratch, to the same memory. */
tx_status tx_cl_bind_alike(const tx_executable *executable, tx_executable *other);
tx_command_info tx_cl_command_info(const tx_executable *executable, int32_t index);
void tx_cl_destroy(tx_executable *executable);

/* refusal.c: the program's `trial` is a tx_cl_forced (select.h). */
tx_status tx_cl_prepare(tx_context *context, const tx_program *program, tx_executable **executable,
                        int64_t *scratch_bytes);
/* Whether an error is about one launch: the driver has no room for it, or finds it too large. */
bool tx_cl_is_refusal(cl_int code);
/* After a launch of the command was refused with `status`: ->instead becomes a form with smaller work-groups. `began`:
 * launches of it were taken before. Returns `status`, with its message, if there is no such form. */
tx_status tx_cl_replace_refused(tx_executable *executable, tx_cl_command *command, bool began, tx_status status);
/* Whether the next run of the command is to be timed: its second, as compilers may work in the first, if launches must
 * not take long. After one of so many seconds ->instead becomes a form of more launches, with the same bits, if they
 * take too long. */
bool tx_cl_is_watched(const tx_executable *executable, const tx_cl_command *command);
void tx_cl_replace_slow(tx_executable *executable, tx_cl_command *command, double seconds);

/* run.c */
tx_status tx_cl_run_program(tx_executable *executable, int32_t first, int32_t count, const tx_controls *controls,
                            double *seconds);

#endif
