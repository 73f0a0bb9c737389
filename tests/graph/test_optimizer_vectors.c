/* SPDX-License-Identifier: Apache-2.0
 * The optimizers in double precision (optimizer_reference.c) and the results of PyTorch, transformers, bitsandbytes and
 * other packages for four numbers. */
#include "tests/graph/optimizer_reference.h"
#include "tests/unit.h"

#include <math.h>

/* ---- Four numbers -------------------------------------------------------------------------------------- */

/* Learning rate 0.01; p after three updates of 1, -0.5, 0.25, 2 by torch 2.15, transformers 5.23, bitsandbytes 0.50,
 * and after 20 by torch-optimi 0.3.3, bitsandbytes 0.50, apollo_torch 1.0.3 and schedulefree 1.4.1. */
static const struct {
    tx_optimizer_options options;
    int64_t rows, columns;
    double p[4], tolerance;
    int64_t updates;
} vectors[] = {
    {{OPTIONS(ADAMW), ADAM, .weight_decay = 0.1f}, 4, 0, {.976253331, -.490853339, .235041901, 2.01082826}, 5e-7, 3},
    {{OPTIONS(SGD), .momentum = 0.9f, .weight_decay = 0.1f},
     4,
     0,
     {.988491654, -.498684019, .243278086, 1.99666512},
     5e-7,
     3},
    {{OPTIONS(SGD), .momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true},
     4,
     0,
     {.985167027, -.501331389, .241217881, 1.99249148},
     5e-7,
     3},
    {{OPTIONS(ADAFACTOR), .weight_decay = 0.1f}, 4, 0, {.984487712, -.509488344, .242431164, 1.99388552}, 5e-7, 3},
    {{OPTIONS(ADAFACTOR), .weight_decay = 0.1f}, 2, 2, {.984743059, -.507602513, .241020411, 1.9938153}, 5e-7, 3},
    {{OPTIONS(ADAFACTOR), .relative_step = true, .scale_parameter = true},
     2,
     2,
     {.985798419, -.510438621, .240519866, 1.99981761},
     5e-7,
     3},
    {{OPTIONS(LION), .beta1 = 0.9f, .beta2 = 0.999f, .weight_decay = 0.1f},
     4,
     0,
     {.987033069, -.508511484, .239260748, 1.98399627},
     5e-7,
     3},
    {{OPTIONS(ADAMW_8BIT), ADAM, .weight_decay = 0.1f},
     4,
     0,
     {.976287663, -.490849853, .235025272, 2.01077914},
     5e-7,
     3},
    {{OPTIONS(MUON), ADAM, .momentum = 0.95f, .nesterov = true, .weight_decay = 0.1f}, /* torch's is in bf16 */
     2,
     2,
     {.997749031, -.49610728, .23183082, 2.0053575},
     3e-4,
     3},
    {{OPTIONS(STABLE_ADAMW), ADAM, .weight_decay = 0.1f},
     4,
     0,
     {.918324232, -.544163525, .179132864, 2.01718712},
     2e-6,
     20},
    {{OPTIONS(ADEMAMIX), ADAM, SLOW, .weight_decay = 0.1f},
     4,
     0,
     {.916336477, -.546839058, .176527292, 2.0174582},
     2e-6,
     20},
    {{OPTIONS(ADEMAMIX), ADAM, SLOW, .weight_decay = 0.1f, .slow_weight_steps = 30, .beta3_steps = 25},
     4,
     0,
     {.915642023, -.546829283, .175555527, 2.01855803},
     2e-6,
     20},
    {{OPTIONS(LION_8BIT), .beta1 = 0.9f, .beta2 = 0.999f, .weight_decay = 0.1f},
     4,
     0,
     {.900944293, -.549597204, .185683429, 1.90087593},
     2e-6,
     20},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 2, .update_proj_gap = 3, .scale = 1},
     2,
     2,
     {.948555614, -.48706042, .244619999, 1.96666016},
     2e-6,
     20},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 3, .update_proj_gap = 200, .scale = 4, .scale_front = true},
     1,
     4,
     {.829982896, -.570644002, .125624348, 1.96168115},
     2e-6,
     20},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 1, .update_proj_gap = 200, .scale = 128,
      .scale_by_tensor = true},
     4,
     1,
     {.574996949, -.74519462, .0992904926, 2.24744878},
     2e-6,
     20},
    {{OPTIONS(APOLLO), ADAM, .weight_decay = 0.1f, .rank = 1, .update_proj_gap = 1, .scale = 2, .disable_nl = true},
     2,
     2,
     {.880921467, -.429891843, -.789162347, 3.08212555},
     2e-6,
     20},
    {{OPTIONS(SCHEDULE_FREE_ADAMW), ADAM, .weight_decay = 0.1f},
     4,
     0,
     {.950755966, -.533762812, .213124503, 1.99823902},
     1e-6,
     20},
    {{OPTIONS(SCHEDULE_FREE_ADAMW), ADAM, .weight_decay = 0.1f, .warmup_steps = 7},
     4,
     0,
     {.963965746, -.536904474, .217277683, 1.99626462},
     1e-6,
     20},
    {{OPTIONS(SCHEDULE_FREE_SGD), .momentum = 0.9f, .weight_decay = 0.1f},
     4,
     0,
     {.981506591, -.506957276, .238960998, 1.98501278},
     1e-6,
     20},
    {{OPTIONS(SCHEDULE_FREE_SGD), .momentum = 0.8f, .weight_decay = 0.1f, .warmup_steps = 30},
     4,
     0,
     {.992204358, -.503810884, .245616517, 1.99272727},
     1e-6,
     20},
};

/* The averages of the last four rows by schedulefree. */
enum { AVERAGES = 4, FIRST_AVERAGE = sizeof vectors / sizeof vectors[0] - AVERAGES };
static const double averages[AVERAGES][4] = {{.954555183, -.530601823, .215732379, 1.99839949},
                                             {.967119326, -.534531185, .219255226, 1.99630869},
                                             {.98309719, -.50629098, .239721194, 1.98638897},
                                             {.993195078, -.503541969, .245946022, 1.99344047}};

static void reference_is_theirs(void **state)
{
    static const double start[4] = {1.0, -0.5, 0.25, 2.0};
    static const double g[3][4] = {{0.1, -0.2, 0.3, -0.4}, {0.3, 0.1, -0.2, 0.05}, {-0.25, 0.5, 0.1, 0.2}};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        tx_reference r;
        assert_true(tx_reference_create(&r, vectors[i].rows, vectors[i].columns, start));
        r.decays = true;
        r.site = 1; /* as in apollo_golden.py */
        for (int64_t t = 1; t <= vectors[i].updates; t++)
            tx_reference_update(&r, &vectors[i].options, 0.01, t, g[(t - 1) % 3], 0);
        for (int k = 0; k < 4; k++)
            if (!(fabs(r.p[k] - vectors[i].p[k]) <= vectors[i].tolerance))
                fail_msg("row %zu: number %d is %.9g, not %.9g", i, k, r.p[k], vectors[i].p[k]);
        for (int k = 0; k < 4 && i >= FIRST_AVERAGE; k++)
            if (!(fabs(r.c[k] - averages[i - FIRST_AVERAGE][k]) <= vectors[i].tolerance))
                fail_msg("row %zu: average %d is %.9g, not %.9g", i, k, r.c[k], averages[i - FIRST_AVERAGE][k]);
        tx_reference_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference_is_theirs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
