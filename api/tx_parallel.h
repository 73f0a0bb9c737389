/* SPDX-License-Identifier: Apache-2.0
 * Models that many ranks train together. */
#ifndef TX_PARALLEL_H
#define TX_PARALLEL_H

#include "tx_model.h"

TX_API_BEGIN

/* The ranks that train together: processes started by a launcher (mpiexec), or this process by itself. */
typedef struct tx_comm tx_comm;

/* Opens the communicator of all ranks. Fails if the launcher started more ranks than this build can see, and names the
 * launcher to use. Each process opens one; free the models that use it before it is closed. */
tx_status tx_comm_open(int *argc, char ***argv, tx_comm **comm);
void tx_comm_close(tx_comm *comm);
/* Splits `parent` into groups. All its ranks call this while no transfer is in progress. `*sub` has the ranks that pass
 * the same colour (0 or more), ordered by key and then by rank. It has its own transfers and memory. tx_comm_close of
 * the communicator that was opened also closes it; do not close it yourself. */
tx_status tx_comm_sub(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub);
int32_t tx_comm_rank_of(const tx_comm *comm);
int32_t tx_comm_size_of(const tx_comm *comm);
/* Returns the number of ranks that a launcher started, or 0 without one. It may be called before tx_comm_open.
 * `variable`, unless NULL, receives the name of the environment variable with this number. */
int32_t tx_launcher_ranks(const char **variable);
/* Returns the rank of this process, or -1 without a launcher. */
int32_t tx_launcher_rank(void);

/* X(NAME, "name"): the order of the forward and backward passes of a step's micro-batches in a pipeline. All schedules
 * give the same gradients, bit for bit.
 * - 1F1B: one forward, one backward, each as soon as its input has arrived. A stage keeps the activations of at most as
 *   many micro-batches as there are stages from it to the last (Narayanan et al., PipeDream, 2019).
 * - GPIPE: all forward passes come first. A stage keeps the activations of all micro-batches (Huang et al., GPipe,
 * 2019).
 * - INTERLEAVED: 1F1B with `chunks` stages a rank. The pipeline bubble is 1 / chunks as long and there are chunks times
 *   as many messages (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
 * Megatron-LM, 2021). */
#define TX_PIPELINE_MAP(X) \
    X(1F1B, "1f1b")        \
    X(GPIPE, "gpipe")      \
    X(INTERLEAVED, "interleaved")

typedef enum tx_pipeline_schedule {
#define X(name, text) TX_PIPELINE_##name,
    TX_PIPELINE_MAP(X)
#undef X
} tx_pipeline_schedule;

#define TX_BUCKET_BYTES (INT64_C(25) << 20) /* of a gradient bucket by default, as in PyTorch */

typedef struct tx_parallel_options {
    size_t size; /* sizeof(tx_parallel_options) */
    /* Bytes of a gradient bucket, approximately. Default: 0 (TX_BUCKET_BYTES, and 1 MiB for the first bucket). */
    int64_t bucket_bytes;
    /* Type in which gradients are sent between hosts: BF16 or U8 (tx_transfer). Default: F32, for their own type. */
    tx_dtype wire;
    /* With 1 the ranks divide optimizer states, with 2 also gradients, with 3 also weights. Plans gather divided
     * weights before use (Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
     * 2020). Frozen weights are not divided. Default: 0 (every rank has everything). */
    int32_t zero_stage;
    /* With zero_stage: assigns whole buckets to ranks instead of dividing each into shards. Optimizers on whole
     * parameters (tx_optimizer_is_whole) need this. The sums of gradients then take twice as many messages. */
    bool whole;
    /* Hybrid sharding with zero_stage, or NULL: `shards` has the ranks of `comm` that divide, usually those of a host;
     * `replicate` the ranks of `comm` with the same shards. Gradients are reduced in `shards` first, then in
     * `replicate`, there once a step. Weights are gathered in `shards` only (Zhang et al., MiCS: Near-Linear Scaling
     * for Training Gigantic Model on Public Cloud, 2022). The ranks of `replicate` need devices that round alike. Not
     * with `expert`. */
    tx_comm *shards, *replicate;
    /* The tensor-parallel group, or NULL. Its ranks read the same rows and compute a part of each product (Shoeybi et
     * al., Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019). They divide
     * parameters by tx_param_spec.split, tables by their vocabulary. `comm` then has the data-parallel ranks with the
     * same shards. It needs an optimizer whose states belong to single weights. */
    tx_comm *tensor;
    /* Sequence parallelism in the tensor group. Each rank computes the sums, norms and dropout between products for its
     * chunk of the positions, and gathers the chunks before a product (Korthikanti et al., Reducing Activation
     * Recomputation in Large Transformer Models, 2022). The length of rows must be a multiple of the group's size.
     */
    bool sequence;
    /* The expert-parallel group, or NULL. It has ranks of `comm` that divide the experts of each layer
     * (tx_param_spec.experts), with equally many experts on each. `replicas` has the ranks of `comm` with the same
     * experts. All-to-alls move tokens to the ranks of their experts and back (Lepikhin et al., GShard, 2020). The
     * ranks of a group run the same plans at the same time with equally many rows. With `tensor`, each rank has its
     * shard of every expert (Megatron-LM's division). It cannot be combined with `whole`. */
    tx_comm *expert, *replicas;
    /* The pipeline group, or NULL. It has one rank for each stage, in order. The graphs must have blocks
     * (tx_graph_block). All ranks read the same rows. Each stage has the parameters of its blocks; the first also has
     * those before the blocks, the last those after them and the tied ones (tx_param_spec). A training plan runs a
     * whole step of `micro_batches` (tx_plan_input, tx_model_keep_controls); an evaluation plan runs one batch. `comm`
     * has the data-parallel ranks of the same stage. It needs zero_stage 0 or 1. */
    tx_comm *pipeline;
    tx_comm *ends; /* first and last rank of `pipeline`; unused on the other ranks */
    int32_t blocks, micro_batches;
    /* Blocks of each stage in the order of the model, at least 1 each. tx_model_parallel reads it and keeps no
     * reference. */
    const int32_t *stage_blocks;
    /* Model chunks (stages) of a rank: stages rank, rank + ranks and so on. With INTERLEAVED it is 2 or more and
     * micro_batches is a multiple of the ranks; otherwise it is 0 or 1. */
    int32_t chunks;
    /* The context-parallel group of N ranks, or NULL. Each rank has a part of the positions of the same rows. Rows are
     * cut into 2 N chunks and rank r has chunks r and 2 N - 1 - r, so that causal attention takes equally long on all
     * ranks. Inputs hold only the rank's local chunks, in order of position, and positions keep their numbers in the
     * whole row. Ranks send keys and values to the ranks that need them (Liu et al., Ring Attention with Blockwise
     * Transformers, 2023). Attention with windows, lengths or starts, or without `causal`, divides the heads instead
     * (Jacobs et al., DeepSpeed Ulysses, 2023), whose numbers are multiples of N. Chunks have equal lengths, multiples
     * of 4. `comm` includes these ranks: gradients and losses are summed over them as over rows. It cannot be combined
     * with `sequence`. */
    tx_comm *context;
    /* The data-parallel ranks whose rows tx_dp_all_gather joins, or NULL. It is not `comm` but a tx_comm_sub of it,
     * because sums of gradients may be in progress. The ranks' graphs have equally many rows. */
    tx_comm *peers;
    tx_pipeline_schedule schedule;
} tx_parallel_options;

/* Makes `model` this rank's copy of a model that all ranks train. Gradients and result LOSS are then summed over the
 * ranks, and every rank makes the same updates. Every rank calls this before it declares the first parameter, and
 * builds the same graphs except for batch sizes. Each rank's loss must be its part of the sum: control INVERSE_LABELS
 * counts the labels of all ranks. With zero_stage 1 or more, reads of optimizer states are collective calls; with 3, so
 * are reads of weights and runs of plans. */
tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options);
/* Sets whether runs of a training plan sum the gradients over the ranks. It is initially on; turn it off except for the
 * last micro-batch of a step. With zero_stage 2 and 3 every run sums them anyway. */
tx_status tx_model_synchronize(tx_model *model, bool on);
/* Waits for transfers between the ranks: gradients, or the weights of the last update. All ranks call this before one
 * of them reads these values or frees the model. */
tx_status tx_model_wait(tx_model *model);
/* Whether ranks have only shards of the weights: zero_stage 3, `tensor`, `expert` or `pipeline`. */
bool tx_model_gathers(const tx_model *model);
/* tx_model_read_alone(model, true) lets rank 0 read weights and states from all ranks until tx_model_read_alone(model,
 * false). Meanwhile the other ranks are in tx_model_serve_reads, which returns at that end. If tx_model_serve_reads
 * fails on a rank, the values that rank 0 read are invalid. Both do nothing if every rank has all values. */
tx_status tx_model_read_alone(tx_model *model, bool on);
tx_status tx_model_serve_reads(tx_model *model);
/* From now on values are read only within `comm`, which has the ranks of this rank's group of shards: the others are
 * lost. The model cannot be trained or written any more. Fails if the loss left this rank's
 * weights incomplete. */
tx_status tx_model_read_within(tx_model *model, tx_comm *comm);
/* Returns a hash of all weights written on this rank if it keeps only shards of them, otherwise 0. */
uint64_t tx_model_written(const tx_model *model);
/* A number that the ranks sum with each update, so that all take the same decision. tx_model_vote sets this rank's
 * number for the next update; tx_model_votes returns the sum of the last one. */
void tx_model_vote(tx_model *model, float mine);
float tx_model_votes(const tx_model *model);
/* Return the number of gradient buckets and the elements of each, in the order in which the backward pass fills them.
 * Known after tx_plan_create; 0 without tx_model_parallel. */
int32_t tx_model_bucket_count(const tx_model *model);
int64_t tx_model_bucket_elements(const tx_model *model, int32_t index);

TX_API_END
#endif
