/* SPDX-License-Identifier: Apache-2.0
 * The performance model of attention by matrix units on other cards. */
#include "tools/research/predict.h"

#include <math.h>
#include <string.h>

#define EXPONENTIALS 16.0 /* a power of two takes as long as so many operations of the SIMT units */

typedef struct loop {
    tx_attention_pass pass;
    const char *form, *target;
    double size, own, others, warps, lanes, registers, local_bytes, done, issued, local, powers, outside;
} loop;

static const loop loops[] = {
#define TX_STEP_LOOP(pass, ...) {TX_ATTENTION_##pass, __VA_ARGS__},
#include "tools/research/attention_loops.def"
#define TX_STEP_LOOP(pass, ...) {TX_ATTENTION_##pass, __VA_ARGS__},
#include "tools/research/attention_loops_intel.def"
};
enum { LOOPS = sizeof loops / sizeof loops[0] };

/* True if the loop is for the card. All cards of NVIDIA have the same instructions. */
static bool is_for(const loop *l, const tx_card *card)
{
    return strcmp(l->target, card->target) == 0 ||
           (strncmp(l->target, "sm_", 3) == 0 && strncmp(card->target, "sm_", 3) == 0);
}

static bool is_wgmma(const loop *l)
{
    return strncmp(l->form, "nvidia-wgmma", 12) == 0;
}

/* Returns the loop for the card, by wgmma if there is one and the card has it. */
static const loop *find(const tx_card *card, tx_attention_pass pass, int64_t size)
{
    const loop *found = NULL;
    for (int i = 0; i < LOOPS; i++)
        if (loops[i].pass == pass && (int64_t)loops[i].size == size && is_for(&loops[i], card) &&
            (!found || is_wgmma(&loops[i])) && (!is_wgmma(&loops[i]) || card->wgmma > 0.0))
            found = &loops[i];
    return found;
}

/* Returns the steps of all work-groups of a head with `tokens` tokens, and in `most` those of the largest work-group.
 */
static double steps_of(const loop *l, double tokens, bool causal, double *most)
{
    double steps = 0.0;
    *most = 0.0;
    for (double first = 0.0; first < tokens; first += l->own) {
        const double past = floor(first / l->others), end = ceil(fmin(first + l->own, tokens) / l->others);
        const double all = ceil(tokens / l->others);
        const double own = !causal ? all : l->pass == TX_ATTENTION_GRAD_KV ? all - past : end;
        steps += own;
        *most = fmax(*most, own);
    }
    return steps;
}

bool tx_predict_attention(const tx_card *card, tx_attention_pass pass, const tx_attention_shape *shape,
                          tx_predicted_attention *p)
{
#define X(word) word,
    static const char *const names[TX_ATTENTION_TERMS] = {TX_ATTENTION_MAP(X)};
#undef X
    const loop *l = find(card, pass, shape->size);
    if (!l)
        return false;
    const double tokens = (double)shape->tokens, heads = (double)(shape->batch * shape->heads), products = l->pass + 2;
    const double groups = heads * ceil(tokens / l->own), gigahertz = 1e9 * card->ghz;
    const double held = tx_card_held(card, l->warps * l->lanes, l->registers, l->local_bytes);
    double most;
    const double steps = heads * steps_of(l, tokens, shape->causal, &most);
    const double loaded = 2.0 * 2.0 * l->others * l->size; /* two operands of 16 bits */
    *p = (tx_predicted_attention){
        .form = l->form,
        .clocks = {l->warps * l->done / (card->half * (is_wgmma(l) ? card->wgmma : card->share)),
                   l->warps * l->issued / card->issue, l->warps * l->local * 128.0 / card->local,
                   l->warps * l->lanes * l->powers * EXPONENTIALS / card->simt,
                   loaded * card->units * card->ghz / card->cache},
    };
    const double products_alone = l->warps * l->done / card->half; /* at the peak */
    /* Forward, wgmma runs during other instructions, except the scores of the first of two warpgroups: a quarter. In
     * the gradients the instructions of a warpgroup wait for its products. */
    const double alone = is_wgmma(l) && pass == TX_ATTENTION_FORWARD
                             ? fmax(products_alone, p->clocks[1]) + 0.25 * products_alone
                             : products_alone + p->clocks[1];
    p->clocks[TX_ATTENTION_TERMS - 1] =
        (fmax(alone, card->latency) + TX_ROUND_CLOCKS) / fmin(held, fmax(groups / card->units, 1.0));
    int worst = 0;
    for (int i = 1; i < TX_ATTENTION_TERMS; i++)
        worst = p->clocks[i] > p->clocks[worst] ? i : worst;
    p->bound = names[worst];
    const double one = p->clocks[worst], beside = l->warps * l->outside / card->issue + TX_WAIT_CLOCKS;
    const double waves = groups / card->units;
    const double clocks = steps / card->units * one + waves * beside / fmin(held, fmax(waves, 1.0));
    p->seconds = fmax(clocks, most * one + beside) / gigahertz;
    if (p->seconds * gigahertz > clocks)
        p->bound = "waves";
    const double pairs = heads * tokens * (shape->causal ? 0.5 * (tokens + 1.0) : tokens);
    p->tflops = 2e-12 * products * pairs * l->size / p->seconds;
    return true;
}
