/* SPDX-License-Identifier: Apache-2.0
 *
 * Forms of the tiled attention kernels. One form is selected for each command and kernel (select.h).
 */
#ifndef TX_OPENCL_ATTENTION_H
#define TX_OPENCL_ATTENTION_H

#include "backends/opencl/runtime/select.h"

typedef enum tx_cl_attention_kernel { TX_CL_FORWARD, TX_CL_GRAD_Q, TX_CL_GRAD_KV } tx_cl_attention_kernel;

/* An attention command and its sizes. */
typedef struct tx_cl_attention {
    const tx_command *command;
    int64_t B, T, S, last;
    int32_t heads, kv_heads, d;
    int32_t window;           /* at most S; 0 = no window */
    const tx_operand *starts; /* starts, or with caches their slots; or NULL */
    const tx_operand *sinks;  /* NULL without sinks */
    tx_dtype type;            /* storage type of inputs and outputs */
    bool cached;
    const tx_cl_limits *limits; /* of its kernels */
    char facts[160];            /* build options that do not depend on tiles */
    /* Absent operands of the gradients of queries, and of keys and values. A form that can sum the columns of its
     * result over tiles of rows reserves and fills its operand, fp32 [tiles, columns]. NULL if nothing needs the sums.
     */
    tx_operand *column_sums;
} tx_cl_attention_job;

/* A form: the tile and work-group sizes of one kernel. */
typedef struct tx_cl_attention_form {
    const struct tx_cl_attention_kind *kind;
    int rows, cols, group, micro; /* ROWS, COLS, WG, MR */
    int lines;                    /* rows, or columns, whose results a work-group computes */
    int out_rows;                 /* AR */
    int64_t local_bytes, floats;  /* floats: in the registers of a work-item */
    double share;                 /* expected share of the best rate of ordinary (not matrix) units */
    bool sums;                    /* can sum columns: the kernel has an operand for the sums */
    const void *own;              /* data of the kind */
    char name[TX_CL_CHOICE_NAME];
} tx_cl_attention_form;

#define TX_CL_ATTENTION_FORMS TX_CL_CANDIDATES

/* The forms that can run, in order of preference. */
typedef struct tx_cl_attention_forms {
    tx_cl_attention_form form[TX_CL_ATTENTION_FORMS];
    int count;
    char rejected[TX_CL_WHY]; /* why the first of all forms is unsuitable; "" if it suits */
} tx_cl_attention_forms;

/* Forms of one kind: for CPU cores, for GPUs, or from an extension. The table is in attention_form.c. */
typedef struct tx_cl_attention_kind {
    const char *source[3]; /* the source of each kernel */
    bool typed;            /* computes in the command's 16-bit type; otherwise tiles in local memory are fp32 */
    bool local_argument;   /* kernels take local memory as their last argument */
    bool appends;          /* the forward kernel can store new rows in caches that it reads */
    /* Adds the forms that can run. */
    void (*list)(const struct tx_cl_attention_kind *kind, const tx_context *context, const tx_cl_attention_job *a,
                 tx_cl_attention_kernel kernel, tx_cl_attention_forms *forms);
    /* Returns true if this device supports a form of this name. */
    bool (*knows)(const struct tx_cl_attention_kind *kind, const tx_context *context, const char *name);
    /* Writes the build options of the form. */
    void (*options)(const tx_context *context, const tx_cl_attention_form *form, char *text, size_t size);
} tx_cl_attention_kind;
extern const tx_cl_attention_kind tx_cl_attention_cpu, tx_cl_attention_gpu;
#define TX_ATTENTION_KIND(name) extern const tx_cl_attention_kind tx_cl_attention_##name;
#include "backends/opencl/extensions.def"
#undef TX_ATTENTION_KIND

/* `user` of the selection of a form. */
typedef struct tx_cl_attention_subject {
    const tx_cl_attention_job *a;
    tx_cl_attention_kernel kernel;
    tx_cl_attention_forms forms;
} tx_cl_attention_subject;

/* Lists the forms that can run. Fails if there is none. */
tx_status tx_cl_attention_list(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                               tx_cl_attention_forms *forms);

/* Selects the form for a command. `note` names it, and a rejected form with the reason. */
tx_status tx_cl_attention_choose(tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160]);

#define TX_CL_ATTENTION_CACHED TX_CL_ATTENTION " cached"
extern const char
    *const tx_cl_attention_keys[]; /* selection kinds of the kernels: "attention forward", " dq", " dkv" */
/* Returns true if this device supports a form of this name. */
bool tx_cl_attention_has_form(const tx_context *context, const char *name);

/* Returns true if a command launches this kernel. While a form of an attention kernel is being measured, only that
 * kernel runs. */
bool tx_cl_attention_runs(const tx_cl_builder *b, tx_cl_attention_kernel kernel);

/* Launches forward attention. With caches `lengths` is NULL, and `starts` are their slots. Optional operands may be
 * absent. */
tx_status tx_cl_attention_over(tx_cl_builder *b, const tx_command *c, const tx_operand *lengths,
                               const tx_operand *starts, const tx_operand *sinks);

#endif
