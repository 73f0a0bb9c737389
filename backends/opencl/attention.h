/* SPDX-License-Identifier: Apache-2.0
 *
 * Forms of the kernels of attention that work on tiles, and how one is chosen: what a class of shapes has been given
 * before (table.c), what the device's table says (txtune fills it: attention_measure.c), else the first of the kind of
 * device that suits. */
#ifndef TX_OPENCL_ATTENTION_H
#define TX_OPENCL_ATTENTION_H

#include "backends/opencl/cl.h"

typedef enum tx_cl_attention_kernel { TX_CL_FORWARD, TX_CL_GRAD_Q, TX_CL_GRAD_KV } tx_cl_attention_kernel;

/* A command, worked out. */
typedef struct tx_cl_attention {
    const tx_command *command;
    int64_t B, T, S, last;
    int32_t heads, kv_heads, d;
    bool cpu, cached;
    char facts[96]; /* options that do not depend on tiles */
} tx_cl_attention_job;

/* How one kernel runs. */
typedef struct tx_cl_attention_form {
    int rows, cols, group, micro; /* ROWS, COLS, WG, MR */
    bool cpu;
    int out_rows;                /* AR */
    int64_t local_bytes, floats; /* floats: in the registers of an item */
    char name[TX_CL_CHOICE_NAME];
} tx_cl_attention_form;

#define TX_CL_ATTENTION_FORMS 16

/* The forms that can run, the one to be preferred first. */
typedef struct tx_cl_attention_forms {
    tx_cl_attention_form form[TX_CL_ATTENTION_FORMS];
    int count, best; /* best: the first that suits; else, of those that can run, the one with fewest registers */
    char aside[96];  /* why the first of the list stood aside; empty: it does not */
} tx_cl_attention_forms;

/* Fails where none can. */
tx_status tx_cl_attention_list(const tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                               tx_cl_attention_forms *forms);
const tx_cl_attention_form *tx_cl_attention_named(const tx_cl_attention_forms *forms, const char *name); /* or NULL */

/* The form for a command; `note` says which, and why the first stood aside. */
tx_status tx_cl_attention_choose(tx_context *context, const tx_cl_attention_job *a, tx_cl_attention_kernel kernel,
                                 tx_cl_attention_form *form, char note[160]);

#define TX_CL_ATTENTION "attention" /* how keys of attention begin, in the table and among the choices */
/* Whether a form of this name is for this device. */
bool tx_cl_attention_knows(const tx_context *context, const char *name);

/* While a form is tried: it is taken for this kernel, and defaults for the others. */
typedef struct tx_cl_attention_trial {
    tx_cl_attention_kernel kernel;
    const char *name;
} tx_cl_attention_trial;

/* attention_measure.c: the fastest form for a command like this one, put into the table by `key`; NULL where the time
 * of the tuning run is up or memory is short. A form whose results differ from those of the first is left out. */
const tx_cl_attention_form *tx_cl_attention_measure(tx_context *context, const tx_cl_attention_job *a,
                                                    tx_cl_attention_kernel kernel, const tx_cl_attention_forms *forms,
                                                    const char *key);

#endif
