/* SPDX-License-Identifier: Apache-2.0
 * Sums of a weight and a product of small matrices. */
#include "api/base/low_rank.h"

#include "api/base/arithmetic.h"

#define COLUMNS 256 /* whose sums stay in registers and the L1 cache */

static inline void add_products(float left, const float *right, int64_t step, int64_t count, float *sum)
{
    for (int64_t c = 0; c < count; c++)
        sum[c] += left * right[c * step];
}

void tx_low_rank_add(const tx_low_rank *p, int64_t row, int64_t first, int64_t count, float *weight)
{
    const float *left = p->left + row * p->row_step;
    for (int64_t at = 0, now; at < count; at += now) {
        const float *right = p->right + (first + at) * p->column_step;
        float sum[COLUMNS] = {0.0f};
        now = tx_min(count - at, COLUMNS);
        for (int64_t k = 0; k < p->rank; k++)
            if (p->column_step == 1)
                add_products(left[k * p->left_step], right + k * p->right_step, 1, now, sum);
            else
                add_products(left[k * p->left_step], right + k * p->right_step, p->column_step, now, sum);
        for (int64_t c = 0; c < now; c++)
            weight[at + c] += p->scale * sum[c];
    }
}
