/* SPDX-License-Identifier: Apache-2.0
 *
 * Models that ranks divide in one way or several, and checks of each way. */
#ifndef TX_TESTS_PARALLEL_GROUPS_H
#define TX_TESTS_PARALLEL_GROUPS_H

#include "api/graph/graph.h"
#include "api/model/model.h"
#include "comm/comm.h"
#include "tests/parallel/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, MANY = 12, BLOCK = 32, VOCAB = 97, WIDTH = 32, MOST_LAYERS = 8, MOST_RANKS = 8, MOST_TIMES = 4 };

/* The cases that train a model: all, those of a tensor group only, of a context group, or of one without a tensor
 * group. */
typedef enum users { ALL_WAYS, TENSOR_ALONE, CONTEXT_ONLY, CONTEXT_WITHOUT_TENSOR } users;

typedef struct tested {
    const char *name, *config;
    users users;
    bool experts, routers; /* has experts; their routers have losses, and a capacity, which go by whole rows */
    bool packed, padded;   /* rows have several samples, padding */
    int32_t rows;          /* of a micro-batch; 0: ROWS. MANY have the classifier by chunks */
    float smoothing;
    /* Tensor parallelism: the number of all-reduces in a layer, or 0 not to count them. They are those after attention
     * and MLP, those of the gradients before them, of Qwen3's norms of heads, of the weights of experts, and after and
     * before a shared expert. */
    int32_t sums;
    /* If ranks have chunks of the positions: the number of all-reduces of parameters before and after the layers, one
     * for each parameter that is read outside products. It is 0 if ranks have all positions. */
    int32_t outer;
    int32_t segments; /* activations of so many are computed again */
    int64_t keys;     /* columns of keys and values together, if messages are counted */
} tested;

/* How the ranks of a case are divided, and this one's groups. */
extern struct ways {
    int32_t tensor, context, expert, stages, zero, chunks; /* chunks: stages of a rank */
    int32_t layers, times;                                 /* of the models; micro-batches of a step */
    int32_t of_stage[MOST_LAYERS];                         /* layers of each stage */
    tx_pipeline_schedule schedule;
} ways;
extern struct groups {
    tx_comm *tensor, *pipeline, *ends, *sums, *context, *data, *expert, *replicas;
} groups;

/* Whether ranks form groups of no other kind. */
bool only_tensor(void);
bool only_context(void);
bool only_expert(void);

/* Computes the gradients of a step from this rank's rows, or, on one rank, from the rows of all groups in turn. */
tx_status groups_backward(side *s, int32_t number, int32_t together);

/* Tensor parallelism: the sums of the plan and of parameters that several ranks have; these are the same on all of
 * them, to the bit; another moment on one rank is found. */
tx_status check_sums(const tested *t, const side *together, const side *alone);
tx_status check_replicas(const side *together);
/* Context parallelism: messages are as many bytes as the keys, values and gradients that others need; attention is as
 * much work for each rank; activations are divided. */
tx_status check_context(const tested *t, const side *together, const side *alone);
/* Expert parallelism: if all tokens choose the same experts, the bytes that all-to-alls send, to the byte. */
tx_status check_bytes(side *together);

#endif
