/* SPDX-License-Identifier: Apache-2.0
 *
 * The autotuner selects one of the candidates of a selection (select.h) for a class of commands. It takes the first
 * of these that exists:
 *
 *   1. The earlier choice for the class, made in this context or set by tx_engine_choose (the state of a run). It is
 *   an error if that candidate is no longer usable, because equal bits require equal choices.
 *
 *   2. The candidate in the device's table. A tuning run measures again while it has time.
 *
 *   3. The fastest candidate in a measurement. A tuning run measures all candidates until its time is up. Other runs
 *   measure only the preferred ones, for a few seconds in each context.
 *
 *   4. The candidate with the highest expected share.
 *
 * If the driver has refused a kernel of the command (its limits are `narrowed`), 4. applies and nothing is stored. A
 * candidate is used only after it passed a known-answer test. If it fails, it stays disabled while the device is
 * open. If names differ only in numbers, candidates that do not spill registers come first.
 *
 * A test prepares a command through the backend's functions, and so calls the selection again. There the program's
 * `trial` (tx_cl_forced) determines the candidate.
 */
#ifndef TX_OPENCL_TUNER_H
#define TX_OPENCL_TUNER_H

#include "backends/opencl/runtime/select.h"
#include "backends/tune/verify.h"

#define TX_CL_CHOICE_KEY 128
#define TX_CL_FORM 32

/* The autotuner of a context. */
typedef struct tx_cl_tuner {
    char *choices, *proofs, *table; /* lines (tuner_table.c) */
    bool table_read;
    const tx_tune_options *options;  /* set in a tuning run, which measures more; NULL otherwise */
    bool unmeasured;                 /* true for TX_GEMM_TUNE=0 */
    double spent;                    /* seconds that the device spent on measurements (trial.c) */
    int64_t spilled;                 /* bytes spilled for each work-item by the worst kernel of a test (trial.c) */
    bool asked_spills, tells_spills; /* whether the driver reports spills, and whether that is known */
    tx_context *reference;           /* context of the cpu backend, opened for the first test; NULL before */
} tx_cl_tuner;

/* The class of a selection, and the test and measurement of its candidates. */
typedef struct tx_cl_class tx_cl_class;
struct tx_cl_class {
    tx_cl_builder *b; /* of the command that needs the selection */
    tx_cl_selection *q;
    char key[TX_CL_CHOICE_KEY]; /* kind of command, types, sizes; if empty, nothing is stored or measured */
    int omitted;                /* characters at the start of the key that the state of a run omits */
    int proven;                 /* characters at the start of the key for which a test is valid */
    /* Adds to the key of a candidate's test, unless NULL. */
    void (*form)(const tx_cl_class *c, int id, char text[TX_CL_FORM]);
    bool fixed; /* uses neither the table nor measurements */
    /* Outside tuning runs, this many of the candidates whose names differ only in numbers are measured. With 0 none
     * is measured. */
    int usual;
    bool comparable; /* the estimates of all candidates come from one model */
    char sample[96]; /* describes the measured command: "at 64 x 64 x 64" */
    double work;     /* its operations; with 0 the table has the time instead of the rate */
    /* A known-answer test. NULL means that the device's own test is sufficient. */
    tx_status (*prove)(const tx_cl_class *c, int id);
    /* Measures the sample. It may stop early once the candidate exceeds `give_up_after` seconds. If b->ahead is set,
     * both functions only collect programs. */
    tx_status (*seconds)(const tx_cl_class *c, int id, double give_up_after, double *seconds);
};

/* Selects c->q->candidate[0]. */
tx_status tx_cl_tune(tx_cl_class *c);

/* Tests a candidate, once in each context for the first c->proven characters of the key and the form. If it is
 * incorrect, c->q->rejected has the reason. If memory is short, the result is not stored and the function returns
 * the status. */
tx_status tx_cl_verify(const tx_cl_class *c, const tx_cl_candidate *candidate, bool *right);

/* Fill the class of a matrix product (gemm_class.c) and of an attention kernel (attention_class.c). */
void tx_cl_gemm_class(tx_cl_class *c);
void tx_cl_attention_class(tx_cl_class *c);
/* Call it after the selection of a provider. It sets q->unfused if the provider computes the epilogue incorrectly. */
tx_status tx_cl_gemm_fuse(tx_cl_class *c);

/* check.c: runs the known-answer test of the device unless this device and driver passed before. */
tx_status tx_cl_self_test(tx_context *context);
/* Collects its programs, and those that its trials and fills of memory need. */
tx_status tx_cl_want_self_test(tx_context *context);

tx_status tx_cl_tuner_select(tx_cl_builder *b, tx_cl_selection *q);
tx_status tx_cl_tuner_open(tx_context *context, const tx_open_options *options);
void tx_cl_tuner_close(tx_context *context);

/* ---- Lines KEY<TAB>VALUE (tuner_table.c) -------------------------------------------------------------------- */

/* The choices of a context, the test results of candidates ("", or the reason of a failure), and the device's
 * table. NULL is the same as no lines. */
bool tx_cl_line_get(const char *lines, const char *key, char *value, size_t size);
/* Returns a copy, which the caller frees. */
tx_status tx_cl_lines_copy(const char *lines, char **copy);
/* Replaces the line of the key, or appends one. */
tx_status tx_cl_line_set(char **lines, const char *key, const char *value);

/* The table of measurements on this device, stored in the cache folder. Failures to store a value are ignored. */
bool tx_cl_table_get(tx_context *context, const char *key, char *value, size_t size);
void tx_cl_table_put(tx_context *context, const char *key, const char *value);

/* Functions of the backend's table: the device's table, and the choices of a run's state (choice.c). */
tx_status tx_cl_tuned(tx_context *context, char **text);
tx_status tx_cl_choices(const tx_context *context, char **text);
tx_status tx_cl_choose(tx_context *context, const char *text);

/* Returns the exponent of the smallest power of two that is at least `dimension`. */
static inline int tx_cl_class_of(int64_t dimension)
{
    int bits = 0;
    for (dimension--; dimension > 0; dimension >>= 1)
        bits++;
    return bits;
}

#endif
