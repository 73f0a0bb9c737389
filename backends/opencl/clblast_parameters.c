/* SPDX-License-Identifier: Apache-2.0
 * CLBlast's parameters, "NAME=VALUE NAME=VALUE ..", of kernel Xgemm and of the routine that chooses a kernel: those
 * that an engine wants, and CLBlast's own tuner. */
#include "backends/opencl/gemm.h"

#include "backends/opencl/clblast_tune.h"

#include <clblast_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS 32
#define PARAMETER_TEXT 1024
/* A product below this size cubed goes by CLBlast's other kernel, which needs no padding and is slower. */
#define ROUTINE_PARAMETER "XGEMM_MIN_INDIRECT_SIZE"
/* The share of a tuning run's seconds that the tuner gets. */
#define TUNER_SHARE 0.2
/* What the tuner is first run over: a fraction of its variants, and the size cubed of the product that it times. */
#define FIRST_LOOK 1.2e-4
#define TUNED_SIZE 512

typedef struct parameters {
    const char *name[PARAMETERS];
    size_t value[PARAMETERS], count;
} parameters;

/* CLBlast has one set of parameters a device for the whole process, while every engine has its own and a thread of its
 * own. So what is set is known to the whole process too, and whoever calls CLBlast holds the lock meanwhile. */
typedef struct setting {
    struct setting *next;
    cl_device_id device;
    char own[PARAMETER_TEXT]; /* CLBlast's own parameters */
    char *now;                /* what has taken their place; "": nothing; NULL: not known */
} setting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static setting *settings; /* one a device, for as long as the process lives */

/* The caller holds the lock, here and below. */
static tx_status setting_of(cl_device_id device, setting **out)
{
    setting *s = settings;
    while (s && s->device != device)
        s = s->next;
    if (s) {
        *out = s;
        return TX_OK;
    }
    s = calloc(1, sizeof *s);
    if (!s || !(s->now = strdup(""))) {
        free(s);
        return tx_fail(TX_MEMORY, "out of host memory");
    }
    const int code = tx_clblast_present(device, s->own, sizeof s->own);
    if (code != 0) {
        free(s->now);
        free(s);
        return tx_fail(TX_DEVICE, "CLBlast does not tell its own parameters (%d)", code);
    }
    s->device = device;
    s->next = settings;
    *out = settings = s;
    return TX_OK;
}

static size_t *find_value(parameters *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->name[i], name) == 0)
            return &p->value[i];
    return NULL;
}

static size_t value_of(parameters *p, const char *name)
{
    const size_t *value = find_value(p, name);
    return value ? *value : 0;
}

/* Adds what `text` says, which is cut into the names; the last value of a name counts. */
static tx_status add_parameters(char *text, parameters *p)
{
    char *rest;
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '='), *end = NULL;
        const unsigned long value = equals ? strtoul(equals + 1, &end, 10) : 0;
        if (!equals || *end || p->count == PARAMETERS)
            return tx_fail(TX_FORMAT, "parameters of CLBlast should be NAME=NUMBER, not \"%s\"", word);
        *equals = '\0';
        size_t *known = find_value(p, word);
        if (!known) {
            p->name[p->count] = word;
            known = &p->value[p->count++];
        }
        *known = value;
    }
    return TX_OK;
}

static tx_status override(cl_device_id device, parameters *p)
{
    const char *names[PARAMETERS], *routine = ROUTINE_PARAMETER;
    size_t values[PARAMETERS], count = 0;
    const size_t *least = find_value(p, routine);
    for (size_t i = 0; i < p->count; i++) {
        if (&p->value[i] == least)
            continue;
        names[count] = p->name[i];
        values[count++] = p->value[i];
    }
    CLBlastStatusCode code = CLBlastOverrideParameters(device, "Xgemm", CLBlastPrecisionSingle, count, names, values);
    if (code == CLBlastSuccess && least && *least > 0)
        code = CLBlastOverrideParameters(device, "GemmRoutine", CLBlastPrecisionSingle, 1, &routine, least);
    return code == CLBlastSuccess ? TX_OK : tx_fail(TX_DEVICE, "CLBlastOverrideParameters: %d", (int)code);
}

/* Puts `text` in place of CLBlast's own parameters, which makes it compile anew; nothing where it is there already. */
static tx_status set(cl_device_id device, const char *text)
{
    setting *s;
    tx_status status = setting_of(device, &s);
    if (status || (s->now && strcmp(s->now, text) == 0))
        return status;
    parameters p = {.count = 0};
    char *own = strdup(s->own), *copy = strdup(text), *now = strdup(text);
    status = own && copy && now ? TX_OK : tx_fail(TX_MEMORY, "out of host memory");
    if (!status)
        status = add_parameters(own, &p);
    if (!status)
        status = add_parameters(copy, &p);
    /* CLBlast before 1.6.3 writes outside its result there. */
    if (!status && *text && value_of(&p, "GEMMK") == 1 && value_of(&p, "MWG") != value_of(&p, "NWG"))
        status = tx_fail(TX_UNSUPPORTED, "CLBlast with GEMMK=1 needs MWG and NWG alike");
    if (!status)
        status = override(device, &p);
    free(own);
    free(copy);
    free(s->now);
    s->now = status ? NULL : now;
    if (status)
        free(now);
    return status;
}

tx_status tx_cl_clblast_hold(const tx_context *context)
{
    pthread_mutex_lock(&lock);
    return set(context->device, context->clblast ? context->clblast : "");
}

void tx_cl_clblast_let_go(void)
{
    pthread_mutex_unlock(&lock);
}

void tx_cl_clblast_close(tx_context *context)
{
    if (!context->clblast) /* never called */
        return;
    pthread_mutex_lock(&lock);
    CLBlastClearCache();
    pthread_mutex_unlock(&lock);
    free(context->clblast);
}

tx_status tx_cl_clblast_use(tx_context *context, const char *text)
{
    char *kept = strdup(text);
    if (!kept)
        return tx_fail(TX_MEMORY, "out of host memory");
    pthread_mutex_lock(&lock);
    tx_status status = set(context->device, text);
    tx_cl_clblast_let_go();
    if (status) {
        free(kept);
        return status;
    }
    free(context->clblast);
    context->clblast = kept;
    return TX_OK;
}

/* The faster of two sets of parameters by a product of size cubed; `best` is of the first and becomes that of the
 * winner. */
static bool faster(tx_context *context, const char *now, const char *then, int64_t size, double *best)
{
    const tx_cl_trial trial = {.batch = 1, .m = size, .n = size, .k = size, .from = TX_F32, .to = TX_F32};
    double seconds;
    if (tx_cl_clblast_use(context, then) == TX_OK &&
        tx_cl_gemm_trial(context, TX_CL_CLBLAST, &trial, &seconds) == TX_OK && seconds < *best) {
        *best = seconds;
        return true;
    }
    tx_cl_clblast_use(context, now);
    return false;
}

/* CLBlast's tuner over a fraction of its variants; *winner becomes what it found where that is faster than *winner, of
 * which `best` are the seconds. */
static int tune_fraction(tx_context *context, double fraction, char found[PARAMETER_TEXT], const char **winner,
                         double *best)
{
    setting *s;
    int code = -1;
    tx_status status = tx_cl_clblast_hold(context);
    if (!status)
        status = setting_of(context->device, &s);
    if (!status) {
        free(s->now); /* the tuner may leave any there */
        s->now = NULL;
        CLBlastClearCache(); /* else the tuner stumbles over a kernel that is there already */
        code = tx_clblast_tune(context->device, context->compute, TUNED_SIZE, fraction, found, PARAMETER_TEXT);
    }
    tx_cl_clblast_let_go();
    if (code == 0 && faster(context, *winner, found, TUNED_SIZE, best))
        *winner = found;
    return code;
}

/* The tuner cannot be told a time: a first look over a small fraction says how many variants there is time for. */
static tx_status tune(tx_context *context, double seconds)
{
    const int64_t small = 256;
    char present[PARAMETER_TEXT], found[2][PARAMETER_TEXT], indirect[TX_CL_CLBLAST_TEXT];
    const char *winner = present;
    double best = 1e30;
    const tx_status status = tx_cl_clblast_hold(context);
    int code = status ? -1 : tx_clblast_present(context->device, present, sizeof present);
    tx_cl_clblast_let_go();
    if (code == 0) {
        faster(context, present, present, TUNED_SIZE, &best);
        const double start = tx_cl_now();
        code = tune_fraction(context, FIRST_LOOK, found[0], &winner, &best);
        const double looked = tx_cl_now() - start, fraction = FIRST_LOOK * (seconds - looked) / looked;
        if (fraction > FIRST_LOOK) /* a small fraction may have none that the device takes, which is a failure */
            code = tune_fraction(context, fraction < 1.0 ? fraction : 1.0, found[1], &winner, &best);
    }
    if (code != 0)
        return tx_fail(TX_DEVICE, "CLBlast's tuner gives up (%d)", code);
    best = 1e30;
    faster(context, winner, winner, small, &best);
    snprintf(indirect, sizeof indirect, "%s " ROUTINE_PARAMETER "=1", winner);
    if (faster(context, winner, indirect, small, &best))
        winner = indirect;
    tx_cl_table_put(context, TX_CL_CLBLAST, winner);
    return TX_OK;
}

/* That the tuner gives up is no reason to go without the rest. */
void tx_cl_clblast_tune(tx_context *context)
{
    static const char key[] = "tuner of " TX_CL_CLBLAST;
    char before[8];
    if (context->info.type == TX_DEVICE_CPU || tx_cl_line_get(context->proofs, key, before, sizeof before) ||
        tx_cl_line_set(&context->proofs, key, "") != TX_OK)
        return;
    const double start = tx_cl_now() - context->tune_spent; /* its compiling cannot be told apart */
    tx_cl_tell(context, "CLBlast's own parameters");
    const tx_status status = tune(context, TUNER_SHARE * context->tune->seconds);
    context->tune_spent = tx_cl_now() - start;
    tx_cl_tell(context, status ? tx_error() : "CLBlast's own parameters are found");
}
