/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct of a batch of requests, shared by batch.c and batch_step.c. */
#ifndef TX_GENERATE_BATCH_H
#define TX_GENERATE_BATCH_H

#include "models/generate/lm.h"
#include "models/generate/run.h"
#include "models/generate/sample.h"
#include "models/generate/slots.h"
#include "models/generate/speculate.h"
#include "models/tx_batch.h"

/* A slot's request. */
typedef struct tx_batch_sequence {
    bool used;
    tx_batch_request request;
    tx_generation how;
    uint64_t ticket;          /* order of arrival */
    int32_t *ids;             /* [context]: prompt and new tokens */
    int64_t prompt, computed; /* tokens of the prompt; those that are computed, */
    int64_t cached;           /* and those of them that were there before the request */
    int64_t generated, limit; /* new tokens; their largest number */
    tx_constraint *constraint;
} tx_batch_sequence;

/* The prompt that was computed last. Requests with the same one copy its caches from a slot that still has them. */
typedef struct tx_batch_prompt {
    int32_t *ids;    /* [context] */
    int64_t count;   /* 0 if there is none */
    int64_t adapter; /* with which it was computed */
    float *logits;   /* [vocab]: for the token after it */
} tx_batch_prompt;

struct tx_batch {
    tx_batch_owner owner; /* all NULL without */
    bool serves;      /* requests come one by one: caches are kept for later ones, and prompts take turns with tokens */
    bool keep, whole; /* keep the caches of the request before; compute the first prompts at once */
    bool copies;      /* requests with the same prompt, and of a server with the same beginning, copy its caches */
    int64_t draft_tokens; /* the most that a step computes */
    tx_speculator speculator;
    tx_slots *slots;
    tx_comm *comm;               /* see tx_generator_options */
    tx_batch_sequence *sequence; /* [count] */
    int64_t count, context, vocab;
    uint64_t tickets;
    tx_choice choice;
    int32_t *ids;           /* [count, context] */
    int32_t *slot, *tokens; /* [count]: inputs of a step */
    tx_prompt *prompts;     /* [count] */
    tx_batch_prompt last;
};

#endif
