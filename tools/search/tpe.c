/* SPDX-License-Identifier: Apache-2.0
 *
 * Suggests the point of the next trial by each method.
 *
 * TPE is the tree-structured Parzen estimator (Bergstra, Bardenet, Bengio, Kegl, "Algorithms for Hyper-Parameter
 * Optimization", NIPS 2011, section 4). It is multivariate, as in Falkner, Klein, Hutter, "BOHB: Robust and Efficient
 * Hyperparameter Optimization at Scale", ICML 2018, section 3.
 *
 * The best min(ceil(n / 10), 25) of n finished trials are good, the others bad. A density l(x) is fitted to the good
 * points, and g(x) to the bad ones and those of running trials. Candidates are drawn from l. The candidate with the
 * largest l(x) / g(x) has the largest expected improvement (Bergstra et al., equation 6) and is suggested.
 *
 * A density of m points is a mixture of m + 1 kernels, each a product over the options d = 1..D. The kernel of a point
 * is a normal distribution around its value, truncated to the range of width r. Its standard deviation is 0.2 r
 * m^(-1/(D + 4)) (Scott's rule), but at least r / min(100, m + 2). With steps, a value has the mass of its step. For a
 * choice of C values, each value has the weight 1 / (m + 1), and the point's own value 1 more; the weights are
 * normalized. The last kernel is a prior that keeps every point possible: normal around the middle of the range with
 * standard deviation r, and uniform over choices. All points have the same weight, except that beyond 25 points the
 * oldest ones have less, down to 1 / m. */
#include "tools/search/study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOOD_SHARE 0.1
#define GOOD_MOST 25
#define RECENT 25 /* points of full weight */
#define BANDWIDTH 0.2
#define NARROWEST 100.0
#define KERNELS TX_SPACE_MOST /* pseudo-index of an option, for the random number that selects a kernel */

typedef struct density {
    const tx_study *study;
    const int32_t *trial; /* the points, oldest first */
    double *weight;       /* weights of the points and, last, of the prior; their sum is 1 */
    double *logs;         /* scratch memory of the same size */
    int32_t points;
} density;

static void fit(density *f, const int32_t *trial, int32_t points)
{
    const int32_t ramp = points - RECENT; /* number of the oldest points; their weights rise from 1 / points to 1 */
    const double least = 1.0 / points;
    double sum = 1.0;
    f->trial = trial;
    f->points = points;
    for (int32_t i = 0; i < points; i++) {
        f->weight[i] = i >= ramp ? 1.0 : ramp > 1 ? least + (1.0 - least) * i / (ramp - 1) : least;
        sum += f->weight[i];
    }
    f->weight[points] = 1.0;
    for (int32_t i = 0; i <= points; i++)
        f->weight[i] /= sum;
}

/* ---- One kernel and option --------------------------------------------------------------------------------- */

/* The normal distribution of a kernel in the option's coordinate (tx_dimension_warp). */
typedef struct normal {
    double low, high, centre, width;
    double below, kept; /* probability below the range and within it */
} normal;

static double share_below(const normal *n, double x)
{
    return 0.5 * erfc((n->centre - x) / (n->width * sqrt(2.0)));
}

static normal normal_of(const density *f, int32_t kernel, int32_t option)
{
    const tx_dimension *d = &f->study->space.dimension[option];
    normal n;
    tx_dimension_line(d, &n.low, &n.high);
    const double range = n.high - n.low, scott = pow(f->points, -1.0 / (f->study->space.count + 4));
    if (kernel == f->points) {
        n.centre = (n.low + n.high) / 2;
        n.width = range;
    } else {
        n.centre = tx_dimension_warp(d, f->study->trial[f->trial[kernel]].point[option]);
        n.width = range * fmax(BANDWIDTH * scott, 1.0 / fmin(NARROWEST, f->points + 2.0));
    }
    n.below = share_below(&n, n.low);
    n.kept = share_below(&n, n.high) - n.below;
    return n;
}

static double choice_mass(const density *f, int32_t kernel, int32_t option, double value)
{
    const double values = f->study->space.dimension[option].count, each = 1.0 / (f->points + 1);
    if (kernel == f->points)
        return 1.0 / values;
    const double own = f->study->trial[f->trial[kernel]].point[option];
    return (each + (own >= value && own <= value ? 1.0 : 0.0)) / (1.0 + values * each);
}

static double kernel_log(const density *f, int32_t kernel, int32_t option, double value)
{
    const tx_dimension *d = &f->study->space.dimension[option];
    if (d->spread == TX_SPREAD_CHOICE)
        return log(choice_mass(f, kernel, option, value));
    const normal n = normal_of(f, kernel, option);
    const double z = (tx_dimension_warp(d, value) - n.centre) / n.width;
    const double own = d->step > 0.0 ? share_below(&n, tx_dimension_warp(d, value + d->step / 2)) -
                                           share_below(&n, tx_dimension_warp(d, value - d->step / 2))
                                     : exp(-0.5 * z * z) / n.width;
    return log(fmax(own / n.kept, 1e-300));
}

/* Returns the quantile `u` of the kernel, by bisection. */
static double draw_value(const density *f, int32_t kernel, int32_t option, double u)
{
    const tx_dimension *d = &f->study->space.dimension[option];
    if (d->spread == TX_SPREAD_CHOICE) {
        int32_t value = 0;
        for (double mass; value + 1 < d->count && u >= (mass = choice_mass(f, kernel, option, value)); value++)
            u -= mass;
        return value;
    }
    const normal n = normal_of(f, kernel, option);
    double low = n.low, high = n.high;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (share_below(&n, middle) - n.below < u * n.kept)
            low = middle;
        else
            high = middle;
    }
    return tx_dimension_unwarp(d, (low + high) / 2);
}

/* ---- Points ------------------------------------------------------------------------------------------------ */

/* Returns the logarithm of the density, without a factor that is common to all densities. */
static double log_density(const density *f, const double *point)
{
    double most = -INFINITY, sum = 0.0;
    for (int32_t k = 0; k <= f->points; k++) {
        f->logs[k] = log(f->weight[k]);
        for (int32_t i = 0; i < f->study->space.count; i++)
            f->logs[k] += kernel_log(f, k, i, point[i]);
        most = fmax(most, f->logs[k]);
    }
    for (int32_t k = 0; k <= f->points; k++)
        sum += exp(f->logs[k] - most);
    return most + log(sum);
}

static void draw_point(const density *f, int32_t number, int32_t candidate, double *point)
{
    double which = tx_study_draw(f->study, number, KERNELS, candidate);
    int32_t kernel = 0;
    for (; kernel < f->points && which >= f->weight[kernel]; kernel++)
        which -= f->weight[kernel];
    for (int32_t i = 0; i < f->study->space.count; i++)
        point[i] = draw_value(f, kernel, i, tx_study_draw(f->study, number, i, 1 + candidate));
}

static int by_number(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

/* Orders the good trials before the bad ones, each oldest first. Returns the number of good ones and sets `*count` to
 * the number of all. */
static int32_t split(const tx_study *study, int32_t *trials, int32_t *count)
{
    const int32_t ended = tx_study_order(study, trials);
    int32_t valued = 0, good = (int32_t)ceil(GOOD_SHARE * ended);
    for (int32_t i = 0; i < ended; i++)
        valued += study->trial[trials[i]].state != TX_TRIAL_FAILED;
    good = good < GOOD_MOST ? good : GOOD_MOST;
    good = good < valued ? good : valued;
    *count = ended;
    for (int32_t i = 0; i < study->count; i++)
        if (study->trial[i].state == TX_TRIAL_RUNNING)
            trials[(*count)++] = i;
    qsort(trials, (size_t)good, sizeof *trials, by_number);
    qsort(trials + good, (size_t)(*count - good), sizeof *trials, by_number);
    return good;
}

static tx_status suggest_by_density(const tx_study *study, int32_t number, double point[TX_SPACE_MOST])
{
    const size_t room = (size_t)study->count + 1;
    int32_t *trials = malloc(room * sizeof *trials), count;
    double *numbers = malloc(3 * room * sizeof *numbers), best = -INFINITY, candidate[TX_SPACE_MOST];
    if (!trials || !numbers) {
        free(trials);
        free(numbers);
        return tx_fail(TX_MEMORY, "no memory for the densities of %d trials", study->count);
    }
    density l = {.study = study, .weight = numbers, .logs = numbers + 2 * room};
    density g = {.study = study, .weight = numbers + room, .logs = numbers + 2 * room};
    const int32_t good = split(study, trials, &count);
    fit(&l, trials, good);
    fit(&g, trials + good, count - good);
    for (int32_t c = 0; c < study->candidates; c++) {
        draw_point(&l, number, c, candidate);
        const double gain = log_density(&l, candidate) - log_density(&g, candidate);
        if (c == 0 || gain > best) {
            best = gain;
            memcpy(point, candidate, (size_t)study->space.count * sizeof *point);
        }
    }
    free(trials);
    free(numbers);
    return TX_OK;
}

/* ---- All methods ------------------------------------------------------------------------------------------- */

/* The last option varies fastest. */
static void suggest_grid(const tx_study *study, int32_t number, double *point)
{
    int64_t rest = number;
    for (int32_t i = study->space.count - 1; i >= 0; i--) {
        const tx_dimension *d = &study->space.dimension[i];
        const int32_t count = tx_dimension_points(d, study->grid_points);
        point[i] = tx_dimension_point(d, study->grid_points, (int32_t)(rest % count));
        rest /= count;
    }
}

tx_status tx_study_suggest(const tx_study *study, int32_t number, double point[TX_SPACE_MOST])
{
    int32_t ended = 0;
    for (int32_t i = 0; i < study->count; i++)
        ended += tx_trial_has_value(&study->trial[i]);
    if (study->method == TX_METHOD_GRID) {
        suggest_grid(study, number, point);
        return TX_OK;
    }
    if (study->method == TX_METHOD_TPE && ended >= study->start_trials)
        return suggest_by_density(study, number, point);
    for (int32_t i = 0; i < study->space.count; i++)
        point[i] = tx_dimension_at(&study->space.dimension[i], tx_study_draw(study, number, i, 0));
    return TX_OK;
}
