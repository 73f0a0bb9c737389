/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner selects one of the candidates of a selection (select.h) for a class of commands. The result is, in this
 * order,
 *   1. the class's candidate from before, selected in this context or given by tx_engine_choose (a run's state). It
 *      fails if that candidate cannot be used any more: the same choices are part of the same bits;
 *   2. the candidate in the device's table (a tuning run measures anew while it has time);
 *   3. the fastest in a measurement: a tuning run measures all candidates until its time is up, another run only the
 *      best suited ones, for a few seconds a context;
 *   4. the best suited candidate.
 * If the driver has refused a kernel of the command (context->limits.narrowed), 4. applies and nothing is kept.
 * A candidate is used only after its proof; one that fails stays switched off as long as the device is open. If names
 * differ only in numbers, the candidates that do not spill come first.
 *
 * A trial prepares a command by the backend's functions and so comes to the selection again, which the program's
 * `trial` decides (tx_cl_forced). */
#ifndef TX_OPENCL_TUNER_H
#define TX_OPENCL_TUNER_H

#include "backends/opencl/runtime/select.h"
#include "backends/tune/verify.h"

#define TX_CL_CHOICE_KEY 128

/* The tuner of a context. */
typedef struct tx_cl_tuner {
    char *choices, *proofs, *table,
        *surveyed; /* lines (tuner_table.c); surveyed: the trials whose programs are known */
    bool table_read;
    const tx_tune_options *options;  /* measure more than usual, or NULL */
    bool unmeasured;                 /* TX_GEMM_TUNE=0 */
    double spent;                    /* seconds that the device ran measurements (trial.c) */
    int64_t spilled;                 /* bytes an item of the worst kernel of a proof (trial.c) */
    bool asked_spills, tells_spills; /* whether the driver tells what kernels spill, once it was asked */
    tx_context *reference;           /* of the cpu backend, opened for the first proof; NULL before */
} tx_cl_tuner;

/* The class of a selection, and how its candidates are proven and measured. */
typedef struct tx_cl_class tx_cl_class;
struct tx_cl_class {
    tx_cl_selection *q;
    char key[TX_CL_CHOICE_KEY]; /* kind of command, types, sizes. Empty: nothing is kept or measured */
    int omitted;                /* characters at the key's beginning that a run's state omits */
    int proven;                 /* characters at the key's beginning that a proof is valid for */
    const char *form;           /* added to the key of a proof, or NULL */
    bool fixed;                 /* uses neither the table nor measurements */
    /* Outside tuning runs, so many candidates are measured of those whose names differ only in numbers. With 0 none is
     * measured. */
    int usual;
    char sample[96]; /* describes the measured command: "at 64 x 64 x 64" */
    double work;     /* its operations; with 0 the table has the time instead of the rate */
    /* A known-answer test. With NULL the device's own is enough. */
    tx_status (*prove)(tx_context *context, const tx_cl_class *c, int id);
    /* Measures the sample. It may stop early once the candidate exceeds `give_up_after` seconds. */
    tx_status (*seconds)(tx_context *context, const tx_cl_class *c, int id, double give_up_after, double *seconds);
};

/* Selects c->q->candidate[0]. */
tx_status tx_cl_tune(tx_context *context, tx_cl_class *c);

/* Proves a candidate, once a context for the first c->proven characters of the key and the form. If it is wrong,
 * c->q->rejected says why. A lack of memory proves nothing and is the status. */
tx_status tx_cl_verify(tx_context *context, const tx_cl_class *c, const tx_cl_candidate *candidate, bool *right);

/* Fill the class of a product (gemm_class.c) and of a kernel of attention (attention_class.c). */
void tx_cl_gemm_class(const tx_context *context, tx_cl_class *c);
void tx_cl_attention_class(tx_cl_class *c);
/* After the selection of a provider: sets q->unfused if it computes the epilogue wrongly. */
tx_status tx_cl_gemm_fuse(tx_context *context, tx_cl_class *c);

/* check.c: runs a few kernels with known answers, unless this device and driver passed before. */
tx_status tx_cl_self_test(tx_context *context);

tx_status tx_cl_tuner_select(tx_context *context, tx_cl_selection *q);
tx_status tx_cl_tuner_open(tx_context *context, const tx_open_options *options);
void tx_cl_tuner_close(tx_context *context);

/* ---- Lines KEY<TAB>VALUE (tuner_table.c) -------------------------------------------------------------------- */

/* The choices of a context, the proofs of candidates ("", or the reason why one is wrong), and the device's table. NULL
 * contains no lines. */
bool tx_cl_line_get(const char *lines, const char *key, char *value, size_t size);
/* A copy, which the caller frees. */
tx_status tx_cl_lines_copy(const char *lines, char **copy);
tx_status tx_cl_line_set(char **lines, const char *key, const char *value); /* in its place, or at the end */

/* The table of what was measured on this device, kept in the cache folder; setting a value is best effort. */
bool tx_cl_table_get(tx_context *context, const char *key, char *value, size_t size);
void tx_cl_table_put(tx_context *context, const char *key, const char *value);

/* Slots of the backend's table: the table above, and the choices of a run's state (choice.c). */
tx_status tx_cl_tuned(tx_context *context, char **text);
tx_status tx_cl_choices(const tx_context *context, char **text);
tx_status tx_cl_choose(tx_context *context, const char *text);

/* The upper power of two that a dimension is classed by, as its exponent. */
static inline int tx_cl_class_of(int64_t dimension)
{
    int bits = 0;
    for (dimension--; dimension > 0; dimension >>= 1)
        bits++;
    return bits;
}

#endif
