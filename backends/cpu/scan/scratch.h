/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a thread that computes LINEAR_SCAN or its gradient.
 */
#ifndef TX_CPU_SCAN_SCRATCH_H
#define TX_CPU_SCAN_SCRATCH_H

#include "backends/cpu/cpu.h"
#include "backends/scan.h"

/* X(name, elements): arrays of fp32. k and v are the sizes of heads, c the tokens of a chunk. The forward op has only
 * the first ones. */
#define TX_SCAN_SPACE(X)             \
    X(q, c *k)                       \
    X(k, c *k)                       \
    X(kt, c *k) /* k transposed */   \
    X(v, c *v)                       \
    X(n, c *v)                       \
    X(err, c *v)                     \
    X(part, c *v)                    \
    X(o, c *v) /* or its gradient */ \
    X(decay, c *c)                   \
    X(scores, c *c)                  \
    X(between, c *c)                 \
    X(state, k *v)
#define TX_SCAN_GRAD_SPACE(X)                \
    X(dstate, k *v)                          \
    X(turned, k *v) /* a state transposed */ \
    X(dn, c *v)                              \
    X(dv, c *v)                              \
    X(nt, c *v) /* n transposed */           \
    X(dscores, c *c)                         \
    X(dbetween, c *c)                        \
    X(dq, c *k)                              \
    X(dk, c *k)                              \
    X(keys, c *k)                            \
    X(slope, c)

typedef struct scan_space {
#define X(name, elements) float *name;
    TX_SCAN_SPACE(X) TX_SCAN_GRAD_SPACE(X)
#undef X
} scan_space;

/* Places the arrays in `memory`, or only counts them if it is NULL. Returns their bytes. */
static inline int64_t scan_space_of(const tx_scan *s, bool grad, float *memory, scan_space *w)
{
    const int64_t k = s->k_size, v = s->v_size, c = TX_SCAN_CHUNK;
    int64_t at = 0;
#define X(array, elements)                      \
    {                                           \
        w->array = memory ? memory + at : NULL; \
        at += tx_round_up(elements, 16);        \
    }
    TX_SCAN_SPACE(X)
    if (grad) {
        TX_SCAN_GRAD_SPACE(X)
    }
#undef X
    return at * (int64_t)sizeof(float);
}

#endif
