/* SPDX-License-Identifier: Apache-2.0
 * Compares a model on many ranks with the same model on each rank, for the tests of divided models. */
#include "tests/parallel/beside.h"

#include "models/task/causal_lm.h"
#include "models/task/task.h"
#include "tests/skip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank that has failed leaves at once: others may be waiting for it, and are ended by the launcher. */
static _Noreturn void leave(tx_comm *comm)
{
    fflush(NULL);
    if (comm && comm->table->leave)
        comm->table->leave();
    _exit(1);
}

/* Runs the test on one case, whose numbers and words are separated by colons. */
static tx_status run_case(const char *device, tx_comm *comm, const char *text, beside_test *test)
{
    enum { MOST = 8 };
    char *word[MOST], *copy = strdup(text), *rest = NULL;
    int words = 0;
    if (!copy)
        return tx_fail(TX_MEMORY, "out of memory");
    if (comm->rank == 0)
        printf("case %s\n", text);
    for (char *w = strtok_r(copy, ":", &rest); w && words < MOST; w = strtok_r(NULL, ":", &rest))
        word[words++] = w;
    const tx_status status = words == 0 ? tx_fail(TX_INVALID, "a case has at least one number")
                                        : test(device, comm, (int32_t)strtol(word[0], NULL, 10), words - 1, word + 1);
    free(copy);
    return tx_fail_in(status, "case %s", text);
}

int beside_main(int argc, char **argv, beside_test *test)
{
    const char *device = argc > 1 ? argv[1] : "cpu";
    tx_comm *comm = NULL;
    tx_test_device(strcmp(device, "mixed") == 0 ? "opencl" : device);
    tx_status status = argc > 2 ? TX_OK : tx_fail(TX_INVALID, "name a device and at least one case");
    TX_THEN(status, tx_comm_open(&argc, &argv, &comm));
    for (int i = 2; i < argc && !status; i++)
        status = run_case(device, comm, argv[i], test);
    if (status) {
        fprintf(stderr, "%s: %s\n", argv[0], tx_error());
        leave(comm);
    }
    tx_comm_close(comm);
    return 0;
}

tx_status beside_config(const char *text, tx_config **config)
{
    tx_json *json = NULL;
    TX_TRY(tx_json_parse(text, strlen(text), "config", &json));
    return tx_config_of_json(json, config);
}

tx_status beside_train(side *s, const tx_config *config, int64_t block, bool routers, float smoothing)
{
    tx_tensor *own = NULL;
    tx_arch_options options = {.size = sizeof options, .train = true};
    if (routers) {
        options.capacity = 1.25f;
        options.z_loss = 0.01f;
        options.own_loss = &own;
    }
    s->tokens = tx_input(s->graph, "input_ids", TX_I32, TX_SHAPE(s->rows, block));
    s->labels = tx_input(s->graph, "labels", TX_I32, TX_SHAPE(s->rows, block));
    if (s->packed) {
        s->starts = tx_input(s->graph, "attention_starts", TX_I32, TX_SHAPE(s->rows, block));
        s->places = tx_input(s->graph, "position_ids", TX_I32, TX_SHAPE(s->rows, block));
    }
    if (s->padded)
        s->lengths = tx_input(s->graph, "attention_lengths", TX_I32, TX_SHAPE(s->rows));
    tx_tensor *loss = tx_label_loss(s->graph, config, tx_arch_logits(s->graph, config, &options), smoothing);
    TX_TRY(tx_backward(s->graph, own ? tx_add(loss, own) : loss));
    return tx_plan_create(s->graph, "train", &s->plan);
}

tx_status beside_begin(side *s)
{
    const tx_optimizer_options adamw = {
        .size = sizeof adamw, .kind = TX_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.1f};
    TX_TRY(tx_optimizer_create(s->model, &adamw, &s->update));
    TX_TRY(tx_model_init(s->model, 5));
    TX_TRY(tx_model_set_seed(s->model, 9));
    TX_TRY(tx_model_set(s->model, TX_CONTROL_MAX_GRAD_NORM, 1.0));
    return tx_model_set(s->model, TX_CONTROL_LEARNING_RATE, 1e-3);
}

void beside_free(side *s)
{
    tx_plan_free(s->plan);
    tx_plan_free(s->update);
    tx_graph_free(s->graph);
    tx_model_free(s->model);
    tx_engine_free(s->engine);
}

tx_status beside_update(side *s)
{
    TX_TRY(tx_plan_run(s->update));
    TX_TRY(tx_model_fetch(s->model));
    return tx_model_results(s->model, &s->results);
}

/* ---- Comparing ---------------------------------------------------------------------------------------------- */

/* Computes the relative distance of a parameter on the ranks from the same on one rank. The gradient is scaled by
 * `factor`, to plant an error. */
static tx_status distance(const side *together, const side *alone, tx_param_role part, int32_t index, double factor,
                          double *off)
{
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(tx_model_param(alone->model, index, &name, &spec));
    const size_t count = (size_t)tx_shape_count(&spec->logical);
    float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
    tx_status status = x && y ? tx_model_read(together->model, part, index, x) : TX_MEMORY;
    TX_THEN(status, tx_model_read(alone->model, part, index, y));
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < count && !status; i++) {
        const double d = factor * (double)x[i] - (double)y[i];
        difference += d * d;
        norm += (double)y[i] * (double)y[i];
    }
    free(x);
    free(y);
    *off = difference == 0.0 ? 0.0 : sqrt(difference / norm);
    return status;
}

tx_status beside_furthest(const side *together, const side *alone, tx_param_role part, int32_t wrong, double factor,
                          double *most)
{
    *most = 0.0;
    for (int32_t i = 0; i < tx_model_param_count(alone->model); i++) {
        double off = (double)NAN;
        const char *name;
        const tx_param_spec *spec;
        TX_TRY(distance(together, alone, part, i, i == wrong ? factor : 1.0, &off));
        TX_TRY(tx_model_param(alone->model, i, &name, &spec));
        if (!(off <= 1e-5) && i != wrong)
            printf("%s: %s is %.2e off\n", part == TX_PARAM_WEIGHT ? "weights" : "gradients", name, off);
        *most = off > *most || isnan(off) ? off : *most;
    }
    return TX_OK;
}

/* INTERNAL unless all gradients are those of one rank, and wrong ones are found. */
static tx_status compare_gradients(const side *together, const side *alone)
{
    double most, halved, unsummed;
    int32_t norm = -1;
    const char *name;
    const tx_param_spec *spec;
    TX_TRY(beside_furthest(together, alone, TX_PARAM_GRADIENT, -1, 1.0, &most));
    for (int32_t i = 0; i < tx_model_param_count(alone->model) && norm < 0; i++)
        if (!tx_model_param(alone->model, i, &name, &spec) && spec->init == TX_INIT_ONE)
            norm = i;
    TX_TRY(beside_furthest(together, alone, TX_PARAM_GRADIENT, 0, 0.5, &halved));
    TX_TRY(beside_furthest(together, alone, TX_PARAM_GRADIENT, norm, 1.003, &unsummed));
    printf("gradients: %.2e off at most; an embedding's halved %.2e, a norm's with 3e-3 more %.2e\n", most, halved,
           unsummed);
    if (!(most <= 1e-5))
        return tx_fail(TX_INTERNAL, "other gradients than one rank's");
    return halved > 1e-5 && unsummed > 1e-5 ? TX_OK : tx_fail(TX_INTERNAL, "wrong gradients were not found");
}

static bool near(float x, float y, double limit)
{
    return fabs((double)x - (double)y) <= limit * fabs((double)y);
}

tx_status beside_results(const side *together, const side *alone, int32_t number)
{
    const float *x = together->results.value, *y = alone->results.value;
    if (!(x[TX_RESULT_DROPPED] == y[TX_RESULT_DROPPED]))
        return tx_fail(TX_INTERNAL, "step %d: %g choices dropped, not %g", (int)number, (double)x[TX_RESULT_DROPPED],
                       (double)y[TX_RESULT_DROPPED]);
    if (near(x[TX_RESULT_LOSS], y[TX_RESULT_LOSS], 2e-6) && near(x[TX_RESULT_GRAD_NORM], y[TX_RESULT_GRAD_NORM], 1e-5))
        return TX_OK;
    return tx_fail(TX_INTERNAL, "step %d: loss %.9g, wanted %.9g; norm %.9g, wanted %.9g", (int)number,
                   (double)x[TX_RESULT_LOSS], (double)y[TX_RESULT_LOSS], (double)x[TX_RESULT_GRAD_NORM],
                   (double)y[TX_RESULT_GRAD_NORM]);
}

/* ---- Files --------------------------------------------------------------------------------------------------- */

/* Writes a parameter of one model to another, whose values then have the same bits. */
static tx_status carry(const side *from, const side *to, tx_param_role part, int32_t index, float *x, float *y,
                       size_t count)
{
    TX_TRY(tx_model_read(from->model, part, index, x));
    for (size_t i = 0; i < count; i++) /* another one at each place */
        x[i] += (float)i;
    TX_TRY(tx_model_write(to->model, part, index, x));
    TX_TRY(tx_model_read(to->model, part, index, y));
    return memcmp(x, y, count * sizeof *x) == 0 ? TX_OK : tx_fail(TX_INTERNAL, "other numbers than were written");
}

tx_status beside_carry(const side *together, const side *alone)
{
    tx_status status = TX_OK;
    for (int32_t i = 0; i < tx_model_param_count(alone->model) && !status; i++)
        for (int part = TX_PARAM_WEIGHT; part <= TX_PARAM_STATE + 1 && !status; part++) {
            const char *name;
            const tx_param_spec *spec;
            if (part == TX_PARAM_GRADIENT)
                continue;
            TX_TRY(tx_model_param(together->model, i, &name, &spec));
            const size_t count = (size_t)tx_shape_count(&spec->logical);
            float *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
            status = x && y ? carry(together, alone, (tx_param_role)part, i, x, y, count) : TX_MEMORY;
            TX_THEN(status, carry(alone, together, (tx_param_role)part, i, x, y, count));
            status = tx_fail_in(status, "%s, part %d", name, part);
            free(x);
            free(y);
        }
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------------------- */

tx_status beside_steps(side *together, int32_t together_way, side *alone, int32_t alone_way, beside_backward *backward,
                       bool gradients)
{
    for (int32_t number = 0; number < BESIDE_STEPS; number++) {
        TX_TRY(backward(together, number, together_way));
        TX_TRY(backward(alone, number, alone_way));
        if (number == 0 && gradients) {
            TX_TRY(tx_model_wait(together->model)); /* what other ranks sum */
            TX_TRY(compare_gradients(together, alone));
        }
        TX_TRY(beside_update(together));
        TX_TRY(beside_update(alone));
        TX_TRY(beside_results(together, alone, number));
    }
    printf("%d steps: loss %.6f\n", BESIDE_STEPS, (double)alone->results.value[TX_RESULT_LOSS]);
    return TX_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------------------- */

tx_status beside_memory(const side *s, beside_share *share, int32_t part, int32_t parts, bool spread)
{
    tx_memory planned, counted;
    int64_t weights = 0;
    const char *name;
    const tx_param_spec *spec;
    for (int32_t i = 0; i < tx_model_param_count(s->model); i++) {
        TX_TRY(tx_model_param(s->model, i, &name, &spec));
        weights +=
            (share(spec, part, parts) + TX_PARAM_BLOCK - 1) / TX_PARAM_BLOCK * TX_PARAM_BLOCK * (int64_t)sizeof(float);
    }
    TX_TRY(tx_model_memory(s->model, &planned));
    TX_TRY(tx_engine_memory(s->engine, &counted));
    for (int k = 0; k < TX_MEMORY_COUNT; k++)
        if (k != TX_MEMORY_ACTIVATIONS && k != TX_MEMORY_TEMPORARY && planned.bytes[k] != counted.bytes[k])
            return tx_fail(TX_INTERNAL, "%s: %lld bytes, planned %lld", tx_memory_name((tx_memory_kind)k),
                           (long long)counted.bytes[k], (long long)planned.bytes[k]);
    const int64_t found = counted.bytes[TX_MEMORY_WEIGHTS];
    return (spread ? found < weights : found == weights)
               ? TX_OK
               : tx_fail(TX_INTERNAL, "%lld bytes of weights, wanted %s%lld", (long long)found,
                         spread ? "fewer than " : "", (long long)weights);
}
