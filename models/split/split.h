/* SPDX-License-Identifier: Apache-2.0
 *
 * A performance model of divided training: the time of a step, the memory of a device, and a search for the fastest
 * split that fits. The engine's planner gives memory, operations and traffic of a layer and of the rest of a model,
 * from plans of 2 and 4 layers. The formulas below give the effects of the split. The rates of the machine are given,
 * or the ranks of a run measure them (machine.c). --parallel auto, --pipeline_partition and txbench call it.
 *
 * Ranks. There are data x tensor x pipeline x context devices. From the innermost, the order is tensor, context, data,
 * pipeline (Megatron-LM's). A group is within a host if its ranks are. A message of V bytes takes a + V / B on a link
 * (Hockney, 1994).
 *
 * All-reduce. For n ranks on H hosts with g ranks each: 2 log2(g) a + 2 (g-1)/g V/B within hosts, then 2 log2(H) a' +
 * 2 (H-1)/H V/(g B') between hosts (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005, at both levels). Reduce-scatter
 * and all-gather take half of it each.
 *
 * Tensor parallelism. A layer has two all-reduces of tokens x width fp32 numbers in the forward and two in the backward
 * pass. Embedding and classifier have one each. Nothing overlaps with them (Shoeybi et al., Megatron-LM, 2019).
 *
 * Pipeline. With p stages of v chunks, m micro-batches take (m + (p-1) / v) times one micro-batch of a stage. Unequal
 * stages take m times the slowest and 1 / v times the sum of the others. The bubble is (p-1) / (v m) (Narayanan et al.,
 * Efficient large-scale language model training on GPU clusters, SC 2021). Unequal chunks of a rank cost up to 10 %
 * more, so the search interleaves only equal chunks, apart from the head. In each micro-batch a stage sends
 * tokens x width 16-bit numbers v times in each direction, without overlap. A GPipe stage holds activations of m
 * micro-batches (Huang et al., 2019). With 1F1B stage s, counted from 0, holds p - s; interleaved,
 * p + (p-1 - 2 s) / v.
 *
 * Stages. The last stage has the head, and fewer blocks so that the work of the slowest stage is minimal. Among equal
 * divisions, the one with the smallest maximum of memory is used (stages.c). Work is operations plus bytes times
 * TX_SPLIT_BALANCE or TX_SPLIT_SUMMING. It depends only on model and options, so all ranks and resumed runs get the
 * same result.
 *
 * Context parallelism. A layer has c-1 hops of keys and values in the forward pass, and of these and their gradients in
 * the backward pass. They overlap with the attention of a block of keys, and only the excess is waited for (Liu,
 * Zaharia and Abbeel, Ring attention, 2023). Each rank has an early and a late chunk of a row, so that all ranks have
 * equal work. The model counts both chunks in each hop, as for the rank that sends most.
 *
 * Expert parallelism. A layer has two all-to-alls in the forward and two in the backward pass. Each moves
 * tokens x width x chosen experts 16-bit numbers, and (e-1)/e of them leave a rank (Lepikhin et al., GShard, 2020).
 * Tokens are assumed to be spread evenly over the experts.
 *
 * Data parallelism. Gradients are fp32, with ZeRO (Rajbhandari et al., 2020). Stages 0 and 1 reduce once a step,
 * overlapped with the last micro-batch's backward pass. Stage 2 reduce-scatters in the backward pass of each
 * micro-batch. Stage 3 also gathers weights twice a micro-batch, in 16 bits if products read these, and overlaps with
 * the whole micro-batch. A bucket is still there when the next pass begins with it, except after an update. Stages 1
 * and 2 gather weights at the end of a step. The share of the last bucket, or layer, does not overlap. Gradients of
 * experts are reduced over data x context / expert ranks.
 *
 * Hybrid sharding. Ranks of a host shard and hosts replicate. Only the all-reduce of a rank's gradients crosses hosts,
 * once a step: in stage 1 after the backward pass, in 2 and 3 during the last micro-batch. All else stays in a host.
 *
 * Update. The bytes that the optimizer reads and writes for a rank's shard, at the memory's rate.
 *
 * Compute. Products run at the device's product rate; all other reads and writes run at the memory's rate. */
#ifndef TX_MODELS_SPLIT_H
#define TX_MODELS_SPLIT_H

#include "models/train/trainer.h"

#define TX_SPLIT_MEMORY 0.95    /* fraction of a device's memory that a plan may use */
#define TX_SPLIT_TENSOR_POWER 5 /* the tensor-parallel size is a power of two below 2^TX_SPLIT_TENSOR_POWER */
#define TX_SPLIT_BALANCE 50.0   /* operations in the time of moving a byte in memory: CPUs 20, GPUs up to 200 */
#define TX_SPLIT_SUMMING 1000.0 /* operations in the time of all-reducing a byte: CPU cores 25, GPUs 300 to 1500 */
#define TX_SPLIT_STAGES 1024    /* maximum number of stages of a pipeline, all ranks together */

typedef struct tx_split_link {
    double rate, latency; /* bytes a second each way, seconds a message */
} tx_split_link;

/* A machine of equal devices. */
typedef struct tx_split_machine {
    double peak;                   /* flop/s of a device's matrix units */
    double rate;                   /* flop/s of its matrix products */
    double moving;                 /* bytes/s of its memory */
    double memory;                 /* bytes of its memory */
    double room;                   /* memory limit for dividing pipeline stages, in bytes; 0 if unknown */
    int64_t host;                  /* devices of a host */
    tx_split_link inside, outside; /* links within a host, and between hosts */
} tx_split_machine;

typedef struct tx_split {
    int64_t data, tensor, pipeline, expert, context;
    int32_t zero;
    tx_pipeline_schedule schedule;
    int64_t chunks;       /* of a rank; 1 unless interleaved */
    int64_t batch, micro; /* rows of a micro-batch, micro-batches of a step */
    bool again;           /* blocks are recomputed in the backward pass */
    bool hybrid;          /* ZeRO within hosts */
} tx_split;

/* Work and memory of a rank for a micro-batch of one row. */
typedef struct tx_split_piece {
    double bytes[TX_MEMORY_COUNT];
    double flops;  /* of products */
    double moved;  /* bytes that other operations read and write */
    double update; /* bytes that the optimizer reads and writes */
} tx_split_piece;

typedef struct tx_split_model {
    int64_t layers, width, kv_width, heads, kv_heads, vocab, block;
    int64_t experts, chosen; /* experts of a layer, 0 without any; experts of a token */
    double expert_share;     /* fraction of a layer's weights that belongs to experts */
    int64_t tensor;          /* largest tensor-parallel size that the planner supports for the model */
    /* A layer, and the rest of the model (the ends). The indices are tx_split_power of the tensor-parallel size, and
     * whether blocks are recomputed. */
    tx_split_piece layer[TX_SPLIT_TENSOR_POWER][2], ends[TX_SPLIT_TENSOR_POWER][2];
    double sent;          /* bytes of a gradient that is sent between hosts; 0 for those of its type */
    double bucket;        /* bytes of gradients that are summed together, or 0 if a layer's are */
    double buckets[2][2]; /* bytes of buckets in ZeRO stages 2 and 3, by recomputation, for tensor-parallel size 1 */
} tx_split_model;

/* The index of a tensor-parallel size in tx_split_model. */
static inline int tx_split_power(int64_t tensor)
{
    int power = 0;
    while (power < TX_SPLIT_TENSOR_POWER - 1 && INT64_C(1) << power < tensor)
        power++;
    return power;
}

/* X(NAME, "word"): terms of the time of a step. `bubble` is the time that stages wait for each other. */
#define TX_SPLIT_TERM_MAP(X) \
    X(COMPUTE, "compute")    \
    X(BUBBLE, "bubble")      \
    X(TENSOR, "tensor")      \
    X(PIPELINE, "pipeline") X(CONTEXT, "context") X(EXPERT, "expert") X(DATA, "data") X(UPDATE, "update")
enum {
#define X(name, word) TX_SPLIT_T_##name,
    TX_SPLIT_TERM_MAP(X)
#undef X
        TX_SPLIT_TERMS
};

typedef struct tx_split_figures {
    double term[TX_SPLIT_TERMS], seconds;
    double bytes[TX_MEMORY_COUNT], memory; /* of the rank with the most memory; `memory` is the sum without OFFLOADED */
    double mfu;                            /* model FLOP utilisation: operations without recomputation over the peak */
} tx_split_figures;

/* ---- plan.c: figures of the planner ------------------------------------------------------------------------------ */

/* Fills in a model's pieces from plans, for all tensor-parallel sizes that the planner supports. `base` has the options
 * that a split does not decide: block, types, optimizer. */
tx_status tx_split_model_make(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                              tx_split_model *model);
/* The same for only one split, without ZeRO stages 2 and 3, and for any tensor-parallel size. */
tx_status tx_split_model_of(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                            const tx_split *split, tx_split_model *model);
/* Whether the formulas describe the engine's implementation. False for GPipe, which takes as long as 1F1B and more
 * memory; for expert parallelism, whose memory the engine plans for the worst case; and for context parallelism, whose
 * plans are not made. */
bool tx_split_is_built(const tx_split *split);
/* The memory that the planner gives for such a split on rank 0. */
tx_status tx_split_plan(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                        const tx_split_model *model, const tx_split_machine *machine, const tx_split *split,
                        tx_memory *memory);

/* ---- predict.c: time and memory of a split ----------------------------------------------------------------------- */

/* Seconds of an all-reduce of `bytes` over `ranks`, which are `stride` apart; of an all-to-all in which each rank sends
 * `bytes` in total; and of one hop of `bytes` to the next rank. */
double tx_split_sum(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
double tx_split_exchange(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
double tx_split_hop(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
/* The number of ranks that shard, which is 1 without data parallelism. */
int64_t tx_split_shards(const tx_split_machine *machine, const tx_split *split);
/* Seconds of `micro` micro-batches on a pipeline. A micro-batch takes `slowest` on the slowest stage, and `each` on
 * average on the others. */
double tx_split_pipeline(int64_t stages, int64_t chunks, int64_t micro, double each, double slowest);
/* The number of micro-batches whose activations a pipeline rank holds. Ranks are counted from 0. */
double tx_split_held(const tx_split *split, int64_t rank);
/* The number of blocks of each of the pipeline x chunks stages, in the model's order. The model has at least as many
 * blocks as stages. */
void tx_split_stages(const tx_split_model *model, const tx_split *split, double room, int32_t *blocks);
/* The largest share of the work of a pipeline that a rank has, given the blocks of each stage. */
double tx_split_slowest(const tx_split_model *model, const tx_split *split, const int32_t *blocks);
/* Predicts time and memory of a split. */
void tx_split_predict(const tx_split_model *model, const tx_split_machine *machine, const tx_split *split,
                      tx_split_figures *figures);

/* ---- stages.c: division of blocks among ranks ---------------------------------------------------------------- */

/* Work and memory of a rank without blocks, and for each block. */
typedef struct tx_split_load {
    double work, each_work, bytes, each_bytes;
} tx_split_load;

/* Divides `all` blocks among ranks, at least `fewest` to each. Minimizes the maximum of work among divisions in which
 * no rank exceeds `room` bytes (0 if unknown), and then the maximum of bytes. If no division stays within `room`, the
 * smallest possible maximum of bytes replaces it. */
void tx_split_share(const tx_split_load *load, int32_t ranks, int32_t fewest, int32_t all, double room,
                    int32_t *blocks);

/* ---- search.c: search for the fastest split --------------------------------------------------------------------- */

/* Limits of the search. */
typedef struct tx_split_limits {
    int64_t devices, tokens;                          /* number of devices; tokens of a step */
    int64_t tensor, pipeline, expert, context, batch; /* 0 for any */
    int32_t zero, again, hybrid;                      /* -1 for any */
    bool built;                                       /* only splits with tx_split_is_built */
} tx_split_limits;

#define TX_SPLIT_MOST 32

typedef struct tx_split_found {
    tx_split split;
    tx_split_figures figures;
} tx_split_found;

/* The fastest splits that fit, the best first. */
typedef struct tx_split_search {
    tx_split_found found[TX_SPLIT_MOST];
    int32_t count;
    double least; /* bytes of the smallest split, whether it fits or not; infinite if none was considered */
} tx_split_search;

/* Searches all powers of two for each axis, micro-batches of the given size or 1 to 8 rows, and schedules with 1, 2 and
 * 4 chunks on a rank. A step has tokens / block rows. */
void tx_split_search_all(const tx_split_model *model, const tx_split_machine *machine, const tx_split_limits *limits,
                         tx_split_search *search);

/* ---- machine.c: measurements by the ranks of a run --------------------------------------------------------------- */

/* Measures the machine: products whose operands have the type `products`, the scaling of an array, and all-reduces
 * within and between hosts. The slowest rank counts. `memory` and `room` are not set. All ranks call it and get the
 * same result. It takes about a second. */
tx_status tx_split_measure(tx_engine *engine, tx_comm *comm, tx_dtype products, tx_split_machine *machine);

#endif
