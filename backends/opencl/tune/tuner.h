/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner selects one of a few candidates for a class of commands. Matrix products (gemm_choose.c) have providers as
 * candidates, attention's kernels (attention_choose.c) have forms; both fill in a tx_cl_selection. The result is, in
 * this order,
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
 * Calls go one way: choice.c -> attention_choose.c, gemm_choose.c -> tuner.c -> tuner_table.c -> cache.c, and
 * attention_choose.c, gemm_choose.c -> attention_trial.c, gemm_trial.c -> trial.c -> backends/proof.c. A trial prepares
 * a command by the table that the context holds (context->plain) and so comes to the selection again; `forced`, the
 * program's `trial`, names the candidate there. */
#ifndef TX_OPENCL_TUNER_H
#define TX_OPENCL_TUNER_H

#include "backends/opencl/runtime/cl.h"
#include "backends/proof.h"

#define TX_CL_CHOICE_KEY 128
#define TX_CL_CHOICE_NAME 48
#define TX_CL_CANDIDATES 24             /* at most */
#define TX_CL_WHY 128                   /* bytes of a reason */
#define TX_CL_REJECTED (TX_CL_WHY + 96) /* bytes of the text that names a rejected candidate and the reason */

typedef struct tx_cl_candidate {
    int id; /* a number of the caller's */
    const char *name;
    double share, seconds; /* the expected share of the best rate; the measured time */
    int64_t spills;        /* bytes of registers that its kernels spill in a work-item, as the driver reports */
} tx_cl_candidate;

/* In a trial the candidate of this name is selected for keys that begin so, and the best suited one for others. Nothing
 * is proven, measured or kept. */
typedef struct tx_cl_forced {
    const char *begins, *name;
} tx_cl_forced;

typedef struct tx_cl_selection tx_cl_selection;
struct tx_cl_selection {
    const char *what;           /* "provider of matrix products" */
    char key[TX_CL_CHOICE_KEY]; /* the class: kind of command, types, sizes. Empty: nothing is kept or measured */
    int omitted;                /* characters at the key's beginning that a run's state omits */
    int proven;                 /* characters at the key's beginning that a proof is valid for */
    const char *form;           /* added to the key of a proof, or NULL */
    bool fixed;                 /* uses neither the table nor measurements */
    /* Outside tuning runs, so many candidates are measured of those whose names differ only in numbers. With 0 none is
     * measured. */
    int usual;
    char sample[96];            /* describes the measured command: "at 64 x 64 x 64" */
    double work;                /* its operations; with 0 the table has the time instead of the rate */
    const void *user;           /* the caller's */
    const tx_cl_forced *forced; /* in a trial, else NULL */
    /* A known-answer test. With NULL the device's own is enough. */
    tx_status (*prove)(tx_context *context, const tx_cl_selection *q, int id);
    /* Measures the sample. It may stop early once the candidate exceeds `give_up_after` seconds. */
    tx_status (*seconds)(tx_context *context, const tx_cl_selection *q, int id, double give_up_after, double *seconds);

    tx_cl_candidate candidate[TX_CL_CANDIDATES]; /* the best suited first; after tx_cl_select the selected one */
    int count;
    char rejected[TX_CL_REJECTED]; /* a candidate that is switched off or exceeds the device's limits, or "" */
};

/* Adds a candidate. `share` is the expected share of the best possible rate, or 0 if the candidate declines. `why` says
 * what the candidate lacks, or is "". */
#define TX_CL_SURE 16.0 /* added to a share: the candidate is selected without a measurement */
void tx_cl_add_candidate(tx_cl_selection *q, int id, const char *name, double share, const char *why);

/* Selects q->candidate[0]. */
tx_status tx_cl_select(tx_context *context, tx_cl_selection *q);

/* Proves a candidate, once a context for the first q->proven characters of the key and the form. If it is wrong,
 * q->rejected says why. A lack of memory proves nothing and is the status. */
tx_status tx_cl_prove(tx_context *context, tx_cl_selection *q, const tx_cl_candidate *candidate, bool *right);

/* ---- Trials of candidates (trial.c) -------------------------------------------------------------------------- */

/* Runs the probe once, prepared with `forced` or, if that is NULL, as plans prepare it, and compares it with the cpu
 * backend (tx_prove). A command that the candidate declines is TX_UNSUPPORTED. */
tx_status tx_cl_trial_prove(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe);

/* The least seconds of at most five runs, which end after a quarter of a second. They count as the tuner's. */
tx_status tx_cl_trial_measure(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe, double *seconds);

/* Tells a tuning run what has been done. */
void tx_cl_tell(const tx_context *context, const char *what);

void tx_cl_tuner_close(tx_context *context);

/* ---- Lines KEY<TAB>VALUE (tuner_table.c) -------------------------------------------------------------------- */

/* The knowledge of a context: its choices, the proofs of candidates ("", or the reason why one is wrong), and the
 * device's table. NULL contains no lines. */
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
