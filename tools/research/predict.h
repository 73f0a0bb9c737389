/* SPDX-License-Identifier: Apache-2.0
 *
 * A performance model of matrix products, attention and training steps on other cards. Nothing is measured: it combines
 * instruction counts of machine code (loops.def) with published figures of cards (cards.def).
 *
 * A round of the inner loop of a work-group takes the time of its slowest resource. The resources are the matrix units,
 * at the rate that the best known library reaches, the issue of instructions, local memory, and the unit's share of the
 * cache bandwidth. Several groups are resident on a unit and alternate.
 *
 * The last resource is latency. A single group waits in each round for a barrier and its first reads of local memory,
 * and its copies take at least the latency of memory. Other resident groups use the unit meanwhile. Prologues and
 * epilogues (the code outside of the loop and a wait for memory) are hidden in the same way. Persistent groups wait
 * only once.
 *
 * Tiles run in waves over the units. The inner dimension is split into parts if that is faster; the partial sums are
 * then written and read once more. An epilogue with GELU or its gradient adds instructions outside of the loop, and its
 * extra operand is read or written once. With split parts, the summation hides these instructions. Operands that are
 * split into planes are read and written once more by kernels of their own. Each wave of tiles
 * reads its rows and columns from memory once, and results are written once.
 *
 * Attention by matrix units has the same model, with a step of a work-group (attention_loops.def) as the round. Powers
 * of two are another resource. A single group runs the products of a step and its other instructions one after the
 * other. The work of its passes is counted as 2, 3 and 4 products of queries by keys.
 *
 * Kernels of a step depend on each other and do not overlap. Between two kernels is a gap. Kernels without products
 * begin and end with a wait for memory. The host enqueues kernels meanwhile, and a step takes at least its time.
 *
 * The model gives lower bounds of times: it shows causes of slowness, and no kernel should be faster. Programs that
 * print its figures say TX_AT_MOST. For a card on which a step was measured there is a second prediction, from the
 * speeds of its kernels (measured.def). */
#ifndef TX_TOOLS_RESEARCH_PREDICT_H
#define TX_TOOLS_RESEARCH_PREDICT_H

#include "api/plan/plan.h"

typedef struct tx_card {
    const char *id, *target;
    double units, ghz, simt, half, tf32, fp32, share, wgmma, local, issue, local_kib, registers, memory, cache, latency,
        aim, others;
} tx_card;

/* Returns card number i, or NULL after the last. */
const tx_card *tx_card_at(int i);

#define TX_MOST_PARTS 16   /* of the inner dimension, as in backends/opencl/gemm/gemm_tile.c */
#define TX_LEAST_PART 512  /* terms of one */
#define TX_LAUNCH_GAP 2e-6 /* estimated seconds between the end of one kernel and the start of the next */

/* Returns the bytes per second that copies reach. */
double tx_card_bytes(const tx_card *card);

/* Returns the number of work-groups that are resident on a unit, at least 1. */
double tx_card_held(const tx_card *card, double lanes, double registers, double local_bytes);

typedef enum tx_operands { TX_IN_FP32, TX_IN_TF32, TX_IN_BF16, TX_OPERAND_KINDS } tx_operands;

/* The resources of a round of the inner loop. X(NAME, word) */
#define TX_ROUND_MAP(X)             \
    X(UNITS, "units")               \
    X(INSTRUCTIONS, "instructions") \
    X(LOCAL, "local_memory")        \
    X(CACHE, "cache")               \
    X(LATENCY, "latency")

enum {
#define X(name, word) TX_ROUND_##name,
    TX_ROUND_MAP(X)
#undef X
        TX_ROUND_TERMS
};

extern const char *const tx_operand_names[], *const tx_round_names[];

typedef struct tx_predicted {
    double seconds, tflops;
    double clocks[TX_ROUND_TERMS]; /* clocks for 64 terms of a tile by resource, or 0 if not counted */
    const char *provider, *bound;  /* the provider of the kernel; the slowest resource */
    int64_t parts;                 /* number of parts of the inner dimension */
    double cached, moved; /* bytes that tiles read from the cache; bytes read from memory, at most, and written */
} tx_predicted;

/* Predicts a product with its epilogue by the card's fastest provider. Uses fp32 if the card has no loop for
 * `operands`. Without counted loops it assumes half of the peak of the SIMT units, and the provider is "not counted".
 */
tx_predicted tx_predict_product(const tx_card *card, tx_operands operands, bool trans_a, bool trans_b, int64_t m,
                                int64_t n, int64_t k, tx_epilogue epilogue);
/* The same by one provider, or by the fastest if `provider` is NULL. Returns INFINITY seconds if no loop of it is
 * counted for the card. */
tx_predicted tx_predict_provider(const tx_card *card, const char *provider, tx_operands operands, bool trans_a,
                                 bool trans_b, int64_t m, int64_t n, int64_t k, tx_epilogue epilogue);

/* Returns true if loops of this provider are counted. */
bool tx_is_counted(const char *provider);

/* Estimated clocks of loading the first blocks and of storing the last results of a work-group. */
#define TX_WAIT_CLOCKS 1500.0
/* Estimated clocks of a barrier and of the first reads of local memory in a round. */
#define TX_ROUND_CLOCKS 150.0

typedef enum tx_attention_pass { TX_ATTENTION_FORWARD, TX_ATTENTION_GRAD_Q, TX_ATTENTION_GRAD_KV } tx_attention_pass;

typedef struct tx_attention_shape {
    int64_t batch, tokens, heads, size; /* `size` is the head size */
    bool causal;
} tx_attention_shape;

/* The resources of a step. X(word) */
#define TX_ATTENTION_MAP(X) X("units") X("instructions") X("local_memory") X("exponentials") X("cache") X("latency")
#define TX_ATTENTION_TERMS 6

typedef struct tx_predicted_attention {
    double seconds, tflops,
        clocks[TX_ATTENTION_TERMS]; /* clocks of a step by resource, for a work-group with a unit of its own */
    const char *form, *bound;       /* the kernel; the slowest resource */
} tx_predicted_attention;

/* Predicts one pass of attention in bf16 by matrix units. Returns false if no loop is counted for the card and head
 * size. */
bool tx_predict_attention(const tx_card *card, tx_attention_pass pass, const tx_attention_shape *shape,
                          tx_predicted_attention *p);

/* Predicts a command from speeds measured on the card (measured.def, also for `state`). Returns false if its op was not
 * measured there; `seconds` is then unchanged. */
bool tx_measured_seconds(const tx_card *card, const char *state, const tx_command *c, double *seconds);

#endif
