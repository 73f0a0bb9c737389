/* SPDX-License-Identifier: Apache-2.0
 * The performance model of matrix products. */
#include "tools/research/predict.h"

#include <math.h>
#include <string.h>

#define ASSUMED 0.5 /* assumed share of the peak, if no loop is counted */

typedef struct loop {
    const char *provider, *target, *type, *transposes;
    double rows, columns, terms, warps, lanes, registers, local_bytes, done, issued, local, outside, gelu, slope, ahead;
} loop;

static const loop loops[] = {
#define TX_LOOP(...) {__VA_ARGS__},
#include "tools/research/loops.def"
#define TX_LOOP(...) {__VA_ARGS__, 0.0, 0.0, 1.0}, /* Intel's instructions of GELU are not counted */
#include "tools/research/loops_intel.def"
};
enum { LOOPS = sizeof loops / sizeof loops[0] };

const char *const tx_operand_names[] = {"fp32", "tf32", "bf16"};

/* True if work-groups are persistent: they compute several tiles one after the other (gemm_matrix.cl, GOES_ON). */
static bool goes_on(const loop *l)
{
    return strncmp(l->provider, "nvidia-wgmma", 12) == 0;
}

/* Returns the planes of bf16 into which fp32 operands are split before the product, or 0. */
static double planes_of(const loop *l)
{
    return !goes_on(l) || strcmp(l->type, "bf16") == 0 ? 0.0 : strcmp(l->type, "fp32") == 0 ? 3.0 : 2.0;
}

/* Returns the floating-point operations of a loop's kind per clock and unit: the peak, and in `share` the share of it
 * that libraries reach. */
static double rate_of(const tx_card *card, const loop *l, double *share)
{
    *share = goes_on(l) ? card->wgmma : card->share;
    if (strncmp(l->provider, "portable", 8) == 0) {
        *share = 1.0;
        return card->simt;
    }
    if (strcmp(l->type, "bf16") == 0 || goes_on(l))
        return card->half;
    return strcmp(l->type, "fp32") == 0 && card->fp32 > 0.0 ? card->fp32 : card->tf32;
}

const char *const tx_round_names[] = {
#define X(name, word) word,
    TX_ROUND_MAP(X)
#undef X
};

/* Sets the clocks of a round by each resource, if `held` work-groups share a unit. Returns the slowest resource. */
static int round_of(const tx_card *card, const loop *l, double operand_bytes, double held,
                    double clocks[TX_ROUND_TERMS])
{
    const double loaded = (l->rows + l->columns) * l->terms * operand_bytes;
    double share;
    const double alone = l->warps * l->done / rate_of(card, l, &share);
    int most = 0;
    clocks[TX_ROUND_UNITS] = alone / share;
    clocks[TX_ROUND_INSTRUCTIONS] = l->warps * l->issued / card->issue;
    clocks[TX_ROUND_LOCAL] = l->warps * l->local * 128.0 / card->local;
    clocks[TX_ROUND_CACHE] = loaded * card->units * card->ghz / card->cache;
    clocks[TX_ROUND_LATENCY] = (fmax(alone, card->latency / l->ahead) + TX_ROUND_CLOCKS) / held;
    for (int i = 1; i < TX_ROUND_TERMS; i++)
        most = clocks[i] > clocks[most] ? i : most;
    return most;
}

/* Returns an upper bound of the bytes that tiles read from memory in the order of gemm_place.cl. It assumes that
 * concurrent units read each row and column of a and b once, and that the cache keeps nothing of earlier tiles. */
static double read_bytes(const tx_card *card, const loop *l, double operand_bytes, double m, double n, double k)
{
    const double tiles_m = ceil(m / l->rows), tiles_n = ceil(n / l->columns), most = goes_on(l) ? 16.0 : 8.0;
    double lines = 0.0;
    for (double band = 0.0; band < tiles_m; band += most) {
        const double height = fmin(most, tiles_m - band), first = band * tiles_n, end = first + height * tiles_n;
        for (double from = first; from < end;) {
            const double to = fmin((floor(from / card->units) + 1.0) * card->units, end);
            const double columns = floor((to - 1.0 - first) / height) - floor((from - first) / height) + 1.0;
            lines += fmin(height, to - from) * l->rows + columns * l->columns;
            from = to;
        }
    }
    return fmax(lines, m + n) * k * operand_bytes;
}

/* Returns the instructions that the epilogue adds to a warp. */
static double more_of(const loop *l, tx_epilogue epilogue)
{
    return epilogue == TX_EPILOGUE_GELU ? l->gelu : epilogue == TX_EPILOGUE_GELU_GRAD ? l->slope : 0.0;
}

static tx_predicted predict_parts(const tx_card *card, const loop *l, tx_operands operands, double m, double n,
                                  double k, tx_epilogue epilogue, int64_t parts)
{
    const double stored = operands == TX_IN_BF16 ? 2.0 : 4.0, planes = planes_of(l), gigahertz = 1e9 * card->ghz;
    const double bytes = planes > 0.0 ? 2.0 * planes : stored;
    const double fit = tx_card_held(card, l->warps * l->lanes, l->registers, l->local_bytes);
    const double part = ceil(ceil(k / (double)parts) / l->terms), tiles = ceil(m / l->rows) * ceil(n / l->columns);
    const double waves = ceil(tiles * (double)parts / card->units);
    const double held = fmin(fit, waves);
    double clocks[TX_ROUND_TERMS];
    const int longest = round_of(card, l, bytes, held, clocks);
    const double inside = part * clocks[longest], wait = goes_on(l) ? 0.0 : TX_WAIT_CLOCKS;
    const double ends = l->outside + (parts == 1 ? more_of(l, epilogue) : 0.0);
    const double beside = l->warps * ends / card->issue + wait;
    const double compute = (waves * (inside + beside / held) + TX_WAIT_CLOCKS - wait) / gigahertz;
    const double results = m * n * stored * (epilogue == TX_EPILOGUE_NONE ? 1.0 : 2.0);
    const double moved = read_bytes(card, l, bytes, m, n, k) + results;
    const double through = moved / tx_card_bytes(card);
    const double join = parts > 1 ? 8.0 * (double)parts * m * n / tx_card_bytes(card) + TX_LAUNCH_GAP : 0.0;
    const double split =
        planes > 0.0 ? (m + n) * k * (stored + bytes) / tx_card_bytes(card) + 2.0 * TX_LAUNCH_GAP : 0.0;
    tx_predicted p = {.seconds = fmax(compute, through) + join + split,
                      .provider = l->provider,
                      .bound = tx_round_names[longest],
                      .parts = parts,
                      .cached = tiles * k * (l->rows + l->columns) * bytes,
                      .moved = moved};
    for (int i = 0; i < TX_ROUND_TERMS; i++)
        p.clocks[i] = clocks[i] * 64.0 / l->terms;
    const double used = tiles * (double)parts / (waves * card->units);
    if (through > compute)
        p.bound = "memory";
    else if (join > 0.3 * p.seconds)
        p.bound = "parts";
    else if (used < 0.75)
        p.bound = "waves";
    else if (beside / held > 0.3 * inside)
        p.bound = "beginnings";
    p.tflops = 2e-12 * m * n * k / p.seconds;
    return p;
}

/* Predicts the product by the fastest loop of a type and the best number of parts. `provider` restricts the loops, or
 * is NULL. Returns INFINITY seconds if the card has no such loop. */
static tx_predicted best_of_loops(const tx_card *card, const char *provider, tx_operands operands, tx_operands type,
                                  const char *transposes, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue)
{
    tx_predicted best = {.seconds = INFINITY};
    for (int i = 0; i < LOOPS; i++) {
        const loop *l = &loops[i];
        if (strcmp(l->target, card->target) != 0 || strcmp(l->type, tx_operand_names[type]) != 0 ||
            strcmp(l->transposes, transposes) != 0 || (provider && strcmp(l->provider, provider) != 0))
            continue;
        for (int64_t parts = 1; parts <= TX_MOST_PARTS && (parts == 1 || parts * TX_LEAST_PART <= k); parts++) {
            const tx_predicted p = predict_parts(card, l, operands, (double)m, (double)n, (double)k, epilogue, parts);
            best = p.seconds < best.seconds ? p : best;
        }
    }
    return best;
}

static const char *transposes_of(bool trans_a, bool trans_b)
{
    return trans_a ? "10" : trans_b ? "01" : "00"; /* if both are transposed, counts as trans_a */
}

tx_predicted tx_predict_provider(const tx_card *card, const char *provider, tx_operands operands, bool trans_a,
                                 bool trans_b, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue)
{
    return best_of_loops(card, provider, operands, operands, transposes_of(trans_a, trans_b), m, n, k, epilogue);
}

tx_predicted tx_predict_product(const tx_card *card, tx_operands operands, bool trans_a, bool trans_b, int64_t m,
                                int64_t n, int64_t k, tx_epilogue epilogue)
{
    const double flops = 2.0 * (double)m * (double)n * (double)k, simt = 1e9 * card->ghz * card->units * card->simt;
    const double assumed = flops / (ASSUMED * simt);
    tx_predicted p = tx_predict_provider(card, NULL, operands, trans_a, trans_b, m, n, k, epilogue);
    if (!(p.seconds < INFINITY)) /* by kernels for fp32, which convert their operands */
        p = best_of_loops(card, NULL, operands, TX_IN_FP32, transposes_of(trans_a, trans_b), m, n, k, epilogue);
    if (!(p.seconds < INFINITY))
        p = (tx_predicted){.seconds = assumed,
                           .tflops = 1e-12 * flops / assumed,
                           .provider = "not counted",
                           .bound = "assumed",
                           .parts = 1};
    return p;
}

bool tx_is_counted(const char *provider)
{
    for (int i = 0; i < LOOPS; i++)
        if (strcmp(provider, loops[i].provider) == 0)
            return true;
    return false;
}
