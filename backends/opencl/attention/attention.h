/* SPDX-License-Identifier: Apache-2.0
 *
 * Forms of the kernels of attention that work on tiles. One is selected for each command (select.h). */
#ifndef TX_OPENCL_ATTENTION_H
#define TX_OPENCL_ATTENTION_H

#include "backends/opencl/runtime/select.h"

typedef enum tx_cl_attention_kernel { TX_CL_FORWARD, TX_CL_GRAD_Q, TX_CL_GRAD_KV } tx_cl_attention_kernel;

/* A command, worked out. */
typedef struct tx_cl_attention {
    const tx_command *command;
    int64_t B, T, S, last;
    int32_t heads, kv_heads, d;
    int32_t window;           /* at most S; 0: none */
    const tx_operand *starts; /* NULL: none */
    tx_dtype type;            /* of what it reads and stores */
    bool cpu, cached;
    char facts[128]; /* options that do not depend on tiles */
} tx_cl_attention_job;

/* How one kernel runs. */
typedef struct tx_cl_attention_form {
    const struct tx_cl_attention_kind *kind;
    int rows, cols, group, micro; /* ROWS, COLS, WG, MR */
    int lines;                    /* rows, or columns, of which each work-group computes the results */
    int out_rows;                 /* AR */
    int64_t local_bytes, floats;  /* floats: in the registers of an item */
    double share;                 /* of the best rate of units that are no matrix units, as can be expected */
    const void *own;              /* the kind's */
    char name[TX_CL_CHOICE_NAME];
} tx_cl_attention_form;

#define TX_CL_ATTENTION_FORMS TX_CL_CANDIDATES

/* The forms that can run. Of those that suit alike the one that is listed first is to be preferred. */
typedef struct tx_cl_attention_forms {
    tx_cl_attention_form form[TX_CL_ATTENTION_FORMS];
    int count;
    char rejected[TX_CL_WHY]; /* why the first of all does not suit; empty: it does */
} tx_cl_attention_forms;

/* Forms of one kind: for cores, for the units of GPUs, or an extension's. The table is in attention_form.c. */
typedef struct tx_cl_attention_kind {
    const char *source[3]; /* the text of each kernel */
    bool typed;            /* computes in the command's type of 16 bits; else tiles in local memory are fp32 */
    bool local_argument;   /* kernels take local memory as their last argument */
    /* Adds the forms that can run. */
    void (*list)(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                 tx_cl_attention_forms *forms);
    /* Whether a form of this name is for this device. */
    bool (*knows)(const tx_context *context, const char *name);
    /* Writes the options that belong to the form. */
    void (*options)(const tx_context *context, const tx_cl_attention_form *form, char *text, size_t size);
} tx_cl_attention_kind;
extern const tx_cl_attention_kind tx_cl_attention_cpu, tx_cl_attention_gpu;
#define TX_ATTENTION_KIND(name) extern const tx_cl_attention_kind tx_cl_attention_##name;
#include "backends/opencl/extensions.def"
#undef TX_ATTENTION_KIND

/* `user` of a selection of a form. */
typedef struct tx_cl_attention_subject {
    const tx_cl_attention_job *a;
    tx_cl_attention_kernel kernel;
    tx_cl_attention_forms forms;
} tx_cl_attention_subject;

/* Fails if none can run. */
tx_status tx_cl_attention_list(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                               tx_cl_attention_forms *forms);

/* The form for a command; `note` names it, and a rejected one with the reason. */
tx_status tx_cl_attention_choose(const tx_cl_builder *b, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160]);

#define TX_CL_ATTENTION_CACHED TX_CL_ATTENTION " cached"
extern const char *const tx_cl_attention_keys[]; /* those of each kernel: "attention forward", " dq", " dkv" */
/* Whether a form of this name is for this device. */
bool tx_cl_attention_has_form(const tx_context *context, const char *name);

/* Whether a command launches this kernel: while one of attention's is tried, it runs alone. */
bool tx_cl_attention_runs(const tx_cl_builder *b, tx_cl_attention_kernel kernel);

#endif
