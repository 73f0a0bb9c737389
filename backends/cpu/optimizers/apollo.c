/* SPDX-License-Identifier: Apache-2.0
 *
 * APOLLO (Zhu et al., 2024): the projection, the scale of the gradient, and the update (api/optimizers/apollo.c).
 */
#include "backends/cpu/update.h"
#include "backends/rng.h"

#define TINY 1e-8       /* added to norms that divide */
#define MAX_GROWTH 1.01 /* of the norm of a step, in one update */

/* ---- Projection ------------------------------------------------------------------------------------------ */

/* Four normal numbers of variance scale^2, from the words of a draw. */
static void normal_four(tx_random draw, float scale, float out[4])
{
    for (int i = 0; i < 4; i += 2) {
        const float u = ((float)(draw.word[i] >> 9) + 0.5f) * 0x1p-23f;
        const float angle = 6.28318530717958648f * (((float)(draw.word[i + 1] >> 9) + 0.5f) * 0x1p-23f);
        const float radius = scale * sqrtf(-2.0f * logf(u));
        out[i] = radius * cosf(angle);
        out[i + 1] = radius * sinf(angle);
    }
}

static void projection_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_attrs *attrs = &call->command->attrs;
    const tx_word *word = call->controls->word;
    const int64_t columns = call->command->out[0].shape.dim[1];
    const float scale = (float)(1.0 / sqrt((double)columns));
    const uint32_t number =
        tx_projection_number(call->results[TX_RESULT_UPDATES], (uint32_t)attrs->update.projection_steps);
    for (int64_t row = first; row < last; row++)
        for (int64_t i = 0; i < columns; i += 4) {
            float four[4];
            normal_four(tx_draw(word[TX_CONTROL_SEED_LO].u32, word[TX_CONTROL_SEED_HI].u32, number,
                                (uint32_t)attrs->draw.site, TX_PROJECTION_SITE, 0, (uint32_t)row, (uint32_t)(i / 4)),
                        scale, four);
            memcpy((float *)call->out[0] + row * columns + i, four, (size_t)tx_min(4, columns - i) * sizeof *four);
        }
}

void TX_CPU_NAME(projection)(const tx_cpu_call *call)
{
    const tx_shape *y = &call->command->out[0].shape;
    tx_cpu_slices(call, y->dim[0], tx_cpu_rows_grain(16 * y->dim[1]), projection_rows);
}

/* ---- Scale of the gradient ------------------------------------------------------------------------------- */

static float scale_of(float step, float gradient)
{
    return sqrtf(step) / (sqrtf(gradient) + (float)TINY);
}

/* Updates the moments of rows, and sums the squares of the step and of the gradient for each. */
static void moments_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_step s = tx_step_of(call);
    const int64_t n = call->command->in[0].shape.dim[1];
    const float eps = s.attrs->eps;
    for (int64_t row = first; row < last; row++) {
        const float *restrict x = (const float *)call->in[0] + row * n;
        float *restrict m = (float *)call->out[0] + row * n, *restrict v = (float *)call->out[1] + row * n;
        float *sums = (float *)call->out[3] + 2 * row;
        TX_SIMD for (int64_t i = 0; i < n; i++)
        {
            const float d = x[i] * s.factor;
            m[i] += s.weight1 * (d - m[i]);
            v[i] = v[i] * s.beta2 + s.weight2 * (d * d);
        }
        TX_SUM(sums[0], i, n, (m[i] / (sqrtf(v[i]) + eps)) * (m[i] / (sqrtf(v[i]) + eps)));
        TX_SUM(sums[1], i, n, (x[i] * s.factor) * (x[i] * s.factor));
        if (!s.attrs->update.by_tensor)
            ((float *)call->out[2])[row] = scale_of(sums[0], sums[1]);
    }
}

void TX_CPU_NAME(apollo_scale)(const tx_cpu_call *call)
{
    const tx_shape *x = &call->command->in[0].shape;
    const float *sums = call->out[3];
    float step, gradient;
    if (call->results[TX_RESULT_FINITE] == 0.0f)
        return;
    tx_cpu_slices(call, x->dim[0], tx_cpu_rows_grain(x->dim[1]), moments_rows);
    if (!call->command->attrs.update.by_tensor)
        return;
    TX_SUM(step, i, x->dim[0], sums[2 * i]);
    TX_SUM(gradient, i, x->dim[0], sums[2 * i + 1]);
    *(float *)call->out[2] = scale_of(step, gradient);
}

/* ---- Update ------------------------------------------------------------------------------------------------ */

/* Scales of a row: one, or one for each column, in which case *each is not NULL. */
static float scales_of(const tx_cpu_call *call, int64_t row, const float **each)
{
    const tx_shape *p = &call->command->in[0].shape;
    const float *s = call->in[3];
    const bool by_tensor = call->command->attrs.update.by_tensor;
    *each = !by_tensor && p->dim[0] < p->dim[1] ? s : NULL;
    return by_tensor ? s[0] : s[row];
}

static void measure_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const int64_t n = call->command->in[0].shape.dim[1];
    const float factor = call->results[TX_RESULT_GRAD_FACTOR];
    float *sums = call->out[2];
    for (int64_t row = first; row < last; row++) {
        const float *g = (const float *)call->in[1] + row * n, *each;
        const float one = scales_of(call, row, &each);
        if (each)
            TX_SUM(sums[row], i, n, (g[i] * factor * each[i]) * (g[i] * factor * each[i]));
        else
            TX_SUM(sums[row], i, n, (g[i] * factor * one) * (g[i] * factor * one));
    }
}

/* Computes the factor of u in the step after the sums of all rows, and the norm of u. */
static void limit_growth(const tx_cpu_call *call, int64_t rows)
{
    const tx_step s = tx_step_of(call);
    float *sums = call->out[2], *norm = call->out[1], all;
    TX_SUM(all, i, rows, sums[i]);
    const double scale = (double)s.attrs->scale, now = sqrt((double)all) * (s.attrs->update.scale_front ? scale : 1.0);
    const double growth = now / (MAX_GROWTH * ((double)*norm + TINY));
    const bool limits = call->results[TX_RESULT_UPDATES] > 1.0f && !s.attrs->update.unlimited && growth > 1.0;
    sums[rows] = (float)((double)s.step * (double)s.root * scale / (limits ? growth : 1.0));
    *norm = (float)(limits ? now / growth : now);
}

static void update_rows(const tx_cpu_call *call, int64_t first, int64_t last)
{
    const tx_step s = tx_step_of(call);
    const tx_shape *shape = &call->command->in[0].shape;
    const uint8_t *groups = call->in[2];
    const float keep = groups[0] & TX_DECAY ? s.keep : 1.0f, step = ((float *)call->out[2])[shape->dim[0]] * s.factor;
    const bool zeros_stay = groups[0] & TX_KEEPS_ZEROS;
    for (int64_t row = first; row < last; row++) {
        const float *restrict g = (const float *)call->in[1] + row * shape->dim[1], *each;
        const float one = scales_of(call, row, &each);
        float *restrict p = (float *)call->out[0] + row * shape->dim[1];
        TX_SIMD for (int64_t i = 0; i < shape->dim[1]; i++)
        {
            const float now = (p[i] - step * (g[i] * (each ? each[i] : one))) * keep;
            p[i] = zeros_stay && p[i] == 0.0f ? p[i] : now;
        }
    }
}

void TX_CPU_NAME(apollo)(const tx_cpu_call *call)
{
    const tx_shape *p = &call->command->in[0].shape;
    if (call->results[TX_RESULT_FINITE] == 0.0f)
        return;
    tx_cpu_slices(call, p->dim[0], tx_cpu_rows_grain(p->dim[1]), measure_rows);
    limit_growth(call, p->dim[0]);
    tx_cpu_slices(call, p->dim[0], tx_cpu_rows_grain(p->dim[1]), update_rows);
}
