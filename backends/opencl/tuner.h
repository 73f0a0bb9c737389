/* SPDX-License-Identifier: Apache-2.0
 *
 * The tuner: which of a few ways computes a class of commands. Whoever has the ways (gemm_choose.c: providers of matrix
 * products; attention_choose.c: forms of its kernels) fills a question and asks. The answer is, in this order,
 *   1. what the class was given before, in this context or by tx_engine_choose (a run's state); it fails where that no
 *      longer can be: the same choices are part of the same bits;
 *   2. what the device's table says (a tuning run measures anew while it has time);
 *   3. the fastest by measuring: in a tuning run of all ways, until its time is up; else of the few that suit best, for
 *      a few seconds a context;
 *   4. the way that suits best.
 * Where the driver has refused a kernel of the command (context->narrowed), 4. alone, and nothing is kept.
 * A way is taken only if it proves right; one that fails stays switched off as long as the device is open. Of those
 * whose names differ in numbers alone the ones that do not spill come first.
 *
 * Calls go one way: choice.c -> attention_choose.c, gemm_choose.c -> tuner.c -> tuner_table.c -> cache.c, and
 * gemm_choose.c -> gemm_trial.c -> trial.c. A trial prepares a command as plans
 * do, so it comes to the asker again; `forced` says there what is being tried. */
#ifndef TX_OPENCL_TUNER_H
#define TX_OPENCL_TUNER_H

#include "backends/opencl/cl.h"
#include "backends/proof.h"

#define TX_CL_CHOICE_KEY 128
#define TX_CL_CHOICE_NAME 48
#define TX_CL_WAYS 24                /* at most */
#define TX_CL_WHY 128                /* bytes of a reason */
#define TX_CL_ASIDE (TX_CL_WHY + 96) /* bytes of what says who stood aside and why */

typedef struct tx_cl_way {
    int id; /* of the asker */
    const char *name;
    double share, seconds; /* seconds: where it was measured */
    int64_t spills; /* bytes an item that its kernels keep outside of registers, as the driver says; of a proven one */
} tx_cl_way;

typedef struct tx_cl_question tx_cl_question;
struct tx_cl_question {
    const char *what;           /* "provider of matrix products" */
    char key[TX_CL_CHOICE_KEY]; /* the class: kind of command, types, sizes. Empty: nothing is kept or measured */
    int unsaid;                 /* letters at the key's beginning that a run's state leaves out */
    int proven;                 /* letters at the key's beginning that say for what a proof holds */
    const char *form;           /* what else a proof holds for; NULL: nothing */
    bool fixed;                 /* neither the table nor measuring is asked */
    int usual; /* outside of tuning runs, so many ways are measured of those whose names differ in numbers alone; 0:
                  nothing is */
    char sample[96];  /* what is measured, for people: "at 64 x 64 x 64" */
    double work;      /* its operations; 0: people read the time */
    const void *user; /* of the asker */
    /* A test with a known answer; NULL: the test of the device says enough. */
    tx_status (*prove)(tx_context *context, const tx_cl_question *q, int id);
    /* The best time of a few runs of the sample. A way that is found to take more than `hopeless` before may say so. */
    tx_status (*seconds)(tx_context *context, const tx_cl_question *q, int id, double hopeless, double *seconds);

    tx_cl_way way[TX_CL_WAYS]; /* the best suited first; tx_cl_ask puts its answer there */
    int count;
    char aside[TX_CL_ASIDE]; /* one that is switched off or asks for more than the device has; "": none */
};

/* Adds a way. `share`: of the best possible rate, as can be expected; 0: it declines. `why`: what it lacks, "" where
 * there is nothing to tell. */
#define TX_CL_SURE 16.0 /* added to a share: to be taken unmeasured */
void tx_cl_suggest(tx_cl_question *q, int id, const char *name, double share, const char *why);

/* Answers with q->way[0]. */
tx_status tx_cl_ask(tx_context *context, tx_cl_question *q);

/* Whether a way is right, found out once a context for the first q->proven letters of the key and the form; where not,
 * q->aside says why. Want of memory says nothing about a way and is the status. */
tx_status tx_cl_prove(tx_context *context, tx_cl_question *q, const tx_cl_way *way, bool *right);

/* While context->forced is set, the way of this name is the answer to keys that begin so, the best suited to others,
 * and nothing is proven, measured or kept. */
typedef struct tx_cl_forced {
    const char *begins, *name;
} tx_cl_forced;

/* ---- Trials of candidates (trial.c) -------------------------------------------------------------------------- */

/* Opens a probe whose command is prepared with `forced`, or with NULL as plans do. Close it by tx_probe_close in any
 * case. */
tx_status tx_cl_trial_open(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe, tx_probe_run *run);

/* Runs the probe once and compares it with the cpu backend (tx_prove). A command that the candidate declines is
 * TX_UNSUPPORTED. */
tx_status tx_cl_trial_prove(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe);

/* The least seconds of at most five runs, which end after a quarter of a second. They count as the tuner's. */
tx_status tx_cl_trial_measure(tx_context *context, const tx_cl_forced *forced, const tx_probe *probe, double *seconds);

/* Tells a tuning run what has been done. */
void tx_cl_tell(const tx_context *context, const char *what);

void tx_cl_tuner_close(tx_context *context);

/* ---- Lines KEY<TAB>VALUE (tuner_table.c) -------------------------------------------------------------------- */

/* What is known to a context: its choices, the proofs of ways ("": right, else why not), and the device's table. NULL
 * holds no lines. */
bool tx_cl_line_get(const char *lines, const char *key, char *value, size_t size);
tx_status tx_cl_line_set(char **lines, const char *key, const char *value); /* in its place, or at the end */

/* The table of what was measured on this device, kept in the cache folder; setting a value is best effort. */
bool tx_cl_table_get(tx_context *context, const char *key, char *value, size_t size);
void tx_cl_table_put(tx_context *context, const char *key, const char *value);

/* The upper power of two that a dimension is classed by, as its exponent. */
static inline int tx_cl_class_of(int64_t dimension)
{
    int bits = 0;
    for (dimension--; dimension > 0; dimension >>= 1)
        bits++;
    return bits;
}

#endif
