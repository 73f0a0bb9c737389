/* SPDX-License-Identifier: Apache-2.0
 * A model that many ranks train. */
#ifndef TX_PARALLEL_H
#define TX_PARALLEL_H

#include "tx_model.h"

TX_API_BEGIN

/* The ranks that train together: processes that a launcher started (mpiexec), or this one alone. */
typedef struct tx_comm tx_comm;

/* Joins them. Fails when the launcher started more ranks than this build can see, naming the launcher to use. One a
 * process; models that use it go first. */
tx_status tx_comm_open(int *argc, char ***argv, tx_comm **comm);
void tx_comm_close(tx_comm *comm);
/* Groups of them; all ranks of `parent` call it, when nothing is on its way. `*sub` is of those that give this colour,
 * 0 or more, in the order of their keys and, where these are equal, of their ranks. It has transfers and memory of its
 * own, and goes when the one that was opened is closed; nobody else closes it. */
tx_status tx_comm_sub(tx_comm *parent, int32_t colour, int32_t key, tx_comm **sub);
int32_t tx_comm_rank_of(const tx_comm *comm);
int32_t tx_comm_size_of(const tx_comm *comm);
/* The number of ranks that a launcher started, 0 without one, before they join. `variable`, unless NULL, gets the name
 * of the environment variable that says so. */
int32_t tx_launcher_ranks(const char **variable);
/* The rank of this process among them; -1 without a launcher. */
int32_t tx_launcher_rank(void);

/* X(NAME, "name"): in which order a pipeline's stages do forward and backward parts of a step's micro-batches. The same
 * gradients, to the bit. */
#define TX_PIPELINE_MAP(X)                                                                                            \
    X(1F1B, "1f1b")   /* in turns, as soon as one can: a stage keeps activations of at most as many micro-batches as  \
                         there are stages from it on (Narayanan et al., PipeDream, 2019) */                           \
    X(GPIPE, "gpipe") /* first all forward parts: it keeps those of all (Huang et al., GPipe, 2019) */                \
    X(INTERLEAVED, "interleaved") /* as 1f1b, by `chunks` stages a rank: ranks wait 1 / chunks as long at the ends of \
                         a step, for chunks times the messages (Narayanan et al., Efficient Large-Scale Language      \
                         Model Training on GPU Clusters Using Megatron-LM, 2021) */

typedef enum tx_pipeline_schedule {
#define X(name, text) TX_PIPELINE_##name,
    TX_PIPELINE_MAP(X)
#undef X
} tx_pipeline_schedule;

typedef struct tx_parallel_options {
    size_t size;          /* sizeof(tx_parallel_options) */
    int64_t bucket_bytes; /* gradients are summed in buckets of about so many bytes; 0: 25 MiB, the first 1 MiB */
    bool half;            /* gradients leave a host in bf16 */
    int32_t zero_stage; /* 0: every rank keeps all; 1: optimizer states are spread over the ranks; 2: gradients too; 3:
                           weights too, which plans gather before they read them (Rajbhandari et al., ZeRO: Memory
                           Optimizations Toward Training Trillion Parameter Models, 2020); frozen ones stay whole */
    bool whole;         /* with zero_stage: buckets go to ranks whole, in place of a shard each; what optimizers need
                           that work on whole parameters (tx_optimizer_is_whole). The sums of gradients then take
                           twice the messages */
    tx_comm *tensor;    /* the ranks that compute each product of a row together, a part each (Shoeybi et al.,
                           Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019):
                           they read the same rows and divide parameters by tx_param_spec.split, tables by their
                           vocabulary; `comm` has those of other rows that have the same parts. With optimizers whose
                           states are numbers of one weight each. NULL: none */
    bool sequence;      /* of a tensor group: what lies between its products, sums, norms and dropout, each rank has for
                           its chunk of the positions, and gathers before it multiplies (Korthikanti et al., Reducing
                           Activation Recomputation in Large Transformer Models, 2022). Rows are multiples of its size */
    /* The ranks of `comm` among which the experts of each layer are divided (tx_param_spec.experts), as many whole ones
     * to each, and those of `comm` that have the same: tokens go to the ranks of their experts and back by all-to-alls
     * (Lepikhin et al., GShard, 2020). The ranks of a group run the same plans at the same time, of as many rows each.
     * With `tensor` each has its part of every one of them (Megatron-LM's division). Not with `sequence` and `whole`.
     * NULL: none */
    tx_comm *expert, *replicas;
    /* The ranks that have a stage each of a model whose graphs have blocks (tx_graph_block), in their order: they read
     * the same rows, and each has the parameters of its blocks, the first those in front, the last those behind and
     * what is tied (tx_param_spec). A training plan does a whole step, `micro_batches` of them (tx_plan_input,
     * tx_model_keep_controls), a plan for evaluation one batch. `comm` has those of other rows that have the same
     * stage. With zero_stage 0 or 1. NULL: none */
    tx_comm *pipeline;
    tx_comm *ends; /* of these the first and the last; others are in groups that nobody uses */
    int32_t blocks, micro_batches;
    const int32_t *stage_blocks; /* how many of them each stage has, in the model's order, 1 or more. Read while the
                                    model is made parallel */
    /* Stages of a rank, which has the stages rank, rank + ranks and so on: with INTERLEAVED 2 or more, and
     * micro_batches is a multiple of the ranks; else 0 or 1. */
    int32_t chunks;
    /* The N ranks that have a part each of the positions of the same rows: of 2 N chunks rank r has r and 2 N - 1 - r,
     * so that causal attention is as much for all. Inputs are those of its chunks alone, the later one behind the
     * earlier; positions count from the chunks' places on, and ranks send keys and values to those that need them (Liu
     * et al., Ring Attention with Blockwise Transformers, 2023). Chunks are alike, multiples of 4 positions. `comm` has
     * all ranks, these too: gradients and losses are sums over them as over rows. Without `sequence`.
     * NULL: none */
    tx_comm *context;
    tx_pipeline_schedule schedule;
} tx_parallel_options;

/* Makes `model` one of many copies, each rank's: from now on gradients and result LOSS are summed over the ranks, and
 * every rank makes the same updates. Every rank calls it, before the first parameter is declared, and builds the same
 * graphs, save for batch sizes. Each rank's loss is to be its part of the sum (control INVERSE_LABELS: of the labels of
 * all ranks). With zero_stage 1 and more all ranks make the calls that read optimizer states, with 3
 * those that read weights, and as many runs of plans. */
tx_status tx_model_parallel(tx_model *model, tx_comm *comm, const tx_parallel_options *options);
/* Whether runs of a training plan sum the gradients over the ranks: off for all but the last micro-batch of a step. On
 * at first. (With zero_stage 2 and 3 every run does.) */
tx_status tx_model_synchronize(tx_model *model, bool on);
/* Waits for what still moves between the ranks: gradients, or weights of the last update. All of them call it before
 * some read those or go. */
tx_status tx_model_wait(tx_model *model);
/* Whether ranks have parts of the weights alone: zero_stage 3, `tensor`, `expert` or `pipeline`. */
bool tx_model_gathers(const tx_model *model);
/* Between `on` and its end rank 0 alone reads weights and states, whichever ranks they are spread over, while the
 * others are in tx_model_serve_reads, which ends when it does. A rank whose answer fails says so, and the values that
 * rank 0 read are of no use then. Nothing to do if every rank has what is read. */
tx_status tx_model_read_alone(tx_model *model, bool on);
tx_status tx_model_serve_reads(tx_model *model);
/* A hash of all weights that were written on this rank where it keeps shards of them alone; else 0. */
uint64_t tx_model_written(const tx_model *model);
/* A number that the ranks sum with every update, so that they decide alike: this rank's for the next one, and the sum
 * of the last. */
void tx_model_vote(tx_model *model, float mine);
float tx_model_votes(const tx_model *model);
/* The buckets in the order in which the backward pass fills them: number, and elements of each. Known after
 * tx_plan_create; none without tx_model_parallel. */
int32_t tx_model_bucket_count(const tx_model *model);
int64_t tx_model_bucket_elements(const tx_model *model, int32_t index);

TX_API_END
#endif
