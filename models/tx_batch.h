/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching: requests share one batch, start as soon as a slot is free, and free it when they end. txserve
 * uses these calls.
 *
 *     tx_batch_create(lm, 8, 0, &batch);
 *     tx_batch_add(batch, &request);
 *     for (bool running = true; running && !status;)
 *         status = tx_batch_step(batch, &running);
 *
 * Prompts are computed in pieces between the steps of the other requests. Requests with the same prompt that follow
 * each other compute it once. If a prompt begins as an earlier one did, such as the next turn of a conversation, it
 * takes over the caches of equal pieces from a slot that still has them. Pieces have 256, 64 or 16 tokens. A request
 * gets the same tokens and log-probabilities whatever else is, or was, in the batch.
 *
 * Requests may use different adapters (LoRA) of the model:
 *
 *     tx_adapter_read(lm, "my-adapter", &adapter);
 *     tx_adapters_options options = {.size = sizeof options, .adapters = &adapter, .count = 1};
 *     tx_lm_reserve_adapters(lm, &options);
 *     tx_batch_create(lm, 8, 0, &batch);
 *     tx_batch_load(batch, adapter, &request.adapter); */
#ifndef TX_BATCH_H
#define TX_BATCH_H

#include "tx_generate.h"

TX_API_BEGIN

/* The batch of a language model. Only one thread at a time may use it. */
typedef struct tx_batch tx_batch;

/* Compiles a batch of `slots` requests and reads the weights. A slot holds `context` tokens of prompt and text; 0 means
 * the model's positions. Until the batch is freed, use only its calls and those for text and settings of `lm`, which
 * must outlive it. The caller frees. */
tx_status tx_batch_create(tx_lm *lm, int64_t slots, int64_t context, tx_batch **batch);
/* Frees a batch without ending its requests; NULL is fine. */
void tx_batch_free(tx_batch *batch);

/* Tokens of a slot, and the number of slots without a request. */
int64_t tx_batch_context(const tx_batch *batch);
int64_t tx_batch_free_slots(const tx_batch *batch);

/* A token and the logarithm of its probability, before temperature, penalties and other settings. */
typedef struct tx_batch_likely {
    int32_t id;
    double logprob;
} tx_batch_likely;

/* The largest number of alternatives of a token. */
#define TX_BATCH_TOP 20

typedef struct tx_batch_token {
    int32_t id;
    bool prompt;                /* it is a token of the prompt */
    int64_t cached;             /* first tokens of the prompt that had been computed before the request */
    double logprob;             /* NaN if the request has no `logprobs`, and for the first token of a prompt */
    const tx_batch_likely *top; /* the most likely tokens, best first, during the call; equal ones by id */
    int32_t top_count;
} tx_batch_token;

typedef enum tx_batch_end {
    TX_BATCH_STOPPED,   /* by an end-of-text id or a stop string */
    TX_BATCH_LIMIT,     /* by the limit of `how` */
    TX_BATCH_CANCELLED, /* by a callback */
    TX_BATCH_FAILED     /* tx_error() has the reason during the call */
} tx_batch_end;

typedef struct tx_batch_request {
    size_t size; /* sizeof(tx_batch_request) */
    const int32_t *ids;
    int64_t count; /* of ids, at least 1; copied */
    /* Without beams; copied, but its stop strings must live until the end. Without a limit, the text may fill the slot.
     * At most the slot's tokens, prompt included. */
    const tx_generation *how;
    uint64_t sample; /* number of the text: random numbers depend only on it, the seed and the number of the token */
    bool logprobs;   /* compute log-probabilities, */
    int32_t top;     /* and those of so many alternatives, at most TX_BATCH_TOP */
    bool echo;       /* also report the tokens of the prompt, first */
    int64_t adapter; /* the number of an adapter (tx_batch_load); 0 for the model itself */
    void *context;
    /* Receives each token; the last may be an end-of-text id. Return false to cancel the request. */
    bool (*token)(void *context, const tx_batch_token *token);
    /* Called before each step. Return true to cancel the request. It may be NULL. */
    bool (*cancelled)(void *context);
    /* Called once, when the slot is free again. */
    void (*end)(void *context, tx_batch_end end);
} tx_batch_request;

/* Puts a request into a free slot. TX_INVALID if it does not fit or contradicts itself, TX_NOT_FOUND if its adapter is
 * not loaded; then no callback is called. */
tx_status tx_batch_add(tx_batch *batch, const tx_batch_request *request);
/* Computes a token of each request, or pieces of prompts. *running is false if no request is left. If it fails, all
 * requests have ended with TX_BATCH_FAILED. */
tx_status tx_batch_step(tx_batch *batch, bool *running);

/* ---- Ranks ---------------------------------------------------------------------------------------------- */

/* If ranks divide the model (tx_lm_options.ranks), all of them create the same batch. Rank 0 adds requests and computes
 * steps, and the others follow: this call computes their parts of all steps, until rank 0 calls tx_batch_dismiss.
 * TX_INVALID on rank 0 and without ranks. Adapters: all ranks call tx_lm_reserve_adapters, rank 0 loads them. */
tx_status tx_batch_follow(tx_batch *batch);
/* Rank 0 ends the calls of the others, after its last step. Without ranks it does nothing. While there are no
 * requests, call tx_batch_step at least once in five minutes, so that the others know that rank 0 still serves. */
tx_status tx_batch_dismiss(tx_batch *batch);

/* ---- Adapters ------------------------------------------------------------------------------------------- */

/* A LoRA adapter in host memory. */
typedef struct tx_adapter tx_adapter;

/* Reads an adapter of the model from a folder of peft or txtrain. TX_NOT_FOUND if the folder has none; TX_INVALID or
 * TX_FORMAT if it belongs to another model. TX_UNSUPPORTED if it changes more than outputs of linear layers in blocks
 * by B A: such an adapter can only be merged (tx_lm_options.adapter). Any thread may call it, also while another one
 * uses a batch of `lm`. The caller frees. */
tx_status tx_adapter_read(const tx_lm *lm, const char *folder, tx_adapter **adapter);
void tx_adapter_free(tx_adapter *adapter); /* NULL is fine */

typedef struct tx_adapters_options {
    size_t size;                 /* sizeof(tx_adapters_options) */
    tx_adapter *const *adapters; /* the modules that adapters may have are those of these */
    int32_t count;               /* of them; may be 0 */
    int64_t places;              /* adapters that can be loaded at a time; 0 means `count` */
    int64_t rank;                /* the largest rank of a module; 0 means that of `adapters`, or 16 without any */
    const char *modules;         /* more modules, as peft's target_modules: "q_proj,v_proj" or "all-linear". NULL
                                  * means none, or without `adapters` all-linear */
} tx_adapters_options;

/* Makes room for adapters in batches of `lm`: call it before tx_batch_create. Each place costs the memory of an adapter
 * of `rank` with all modules, and time in each pass. Not with a merged adapter. */
tx_status tx_lm_reserve_adapters(tx_lm *lm, const tx_adapters_options *options);
/* Writes an adapter to a free place, between steps, and sets `*number` for requests. Numbers are above 0 and never used
 * again. TX_INVALID if there is no free place, or no room for its rank or a module. `adapter` may then be freed. */
tx_status tx_batch_load(tx_batch *batch, const tx_adapter *adapter, int64_t *number);
/* Frees the place of an adapter. TX_NOT_FOUND if there is no such adapter, TX_INVALID while a request uses it. */
tx_status tx_batch_unload(tx_batch *batch, int64_t number);

TX_API_END

#endif
