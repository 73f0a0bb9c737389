/* SPDX-License-Identifier: Apache-2.0
 * Values of an option: texts, quantiles and grids. */
#include "tools/search/study.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *tx_dimension_text(const tx_dimension *d, double value, char room[TX_VALUE_TEXT])
{
    if (d->spread == TX_SPREAD_CHOICE)
        return d->choice[(int32_t)value];
    const bool whole = d->spread == TX_SPREAD_INT || d->spread == TX_SPREAD_LOGINT;
    for (int digits = whole ? 16 : 1; digits <= 17; digits++) { /* the fewest digits that give the same number */
        snprintf(room, TX_VALUE_TEXT, "%.*g", digits, value);
        const double back = strtod(room, NULL);
        if (back >= value && back <= value)
            break;
    }
    return room;
}

bool tx_dimension_is_log(const tx_dimension *d)
{
    return d->spread == TX_SPREAD_LOGUNIFORM || d->spread == TX_SPREAD_LOGINT;
}

double tx_dimension_warp(const tx_dimension *d, double value)
{
    return tx_dimension_is_log(d) ? log(value) : value;
}

void tx_dimension_line(const tx_dimension *d, double *low, double *high)
{
    *low = tx_dimension_warp(d, d->low - d->step / 2);
    *high = tx_dimension_warp(d, d->high + d->step / 2);
}

double tx_dimension_unwarp(const tx_dimension *d, double worker)
{
    double value = tx_dimension_is_log(d) ? exp(worker) : worker;
    char decimal[TX_VALUE_TEXT];
    if (d->step > 0.0) { /* rounds to decimal digits: 0.3, not 0.30000000000000004 */
        snprintf(decimal, sizeof decimal, "%.14g", d->low + d->step * round((value - d->low) / d->step));
        value = strtod(decimal, NULL);
    }
    /* The last step may be below the end of the range. */
    const double last = d->step > 0.0 ? d->low + d->step * floor((d->high - d->low) / d->step + 1e-9) : d->high;
    return fmin(fmax(value, d->low), last);
}

double tx_dimension_at(const tx_dimension *d, double u)
{
    double low, high;
    tx_dimension_line(d, &low, &high);
    return tx_dimension_unwarp(d, low + u * (high - low));
}

int32_t tx_dimension_points(const tx_dimension *d, int32_t points)
{
    const double all = d->step > 0.0 ? floor((d->high - d->low) / d->step + 1e-9) + 1.0 : (double)INT32_MAX;
    return d->spread == TX_SPREAD_CHOICE || all < points ? (int32_t)all : points;
}

double tx_dimension_point(const tx_dimension *d, int32_t points, int32_t index)
{
    const int32_t last = tx_dimension_points(d, points) - 1;
    const double low = tx_dimension_warp(d, d->low), high = tx_dimension_warp(d, d->high);
    char decimal[TX_VALUE_TEXT];
    if (index == 0)
        return d->low;
    const double value = tx_dimension_unwarp(d, low + (high - low) * index / last);
    if (d->step > 0.0)
        return value;
    snprintf(decimal, sizeof decimal, "%.6g", value); /* enough digits for a grid */
    return index == last ? d->high : strtod(decimal, NULL);
}
