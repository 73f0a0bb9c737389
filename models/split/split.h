/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of training that is divided in all ways at once: what a step takes, what a device has to hold, and which
 * split is the fastest that fits. What a layer and the rest of a model hold, compute and move the engine's planner
 * says, of plans of 2 and 4 layers; what follows from the split, the formulas below. Of the machine all is given, or
 * the ranks of a run measure it (machine.c).
 *
 * Ranks. data x tensor x pipeline x context devices, in this order from the innermost: tensor, context, data, pipeline
 * (Megatron-LM's): a group whose ranks lie so near each other is within a host. Experts are divided among `expert` of
 * the data and context ranks. A link takes a + V / B for V bytes (Hockney, 1994).
 *
 * Sum, over n ranks, g of them a host, H hosts: 2 log2(g) a + 2 (g-1)/g V/B within, then 2 log2(H) a' + 2 (H-1)/H
 * V/(g B') between hosts, each rank a part (Thakur, Rabenseifner and Gropp, IJHPCA 19, 2005, at both levels). Half of
 * it scatters the sum or gathers it.
 *
 * Tensor: two sums forward and two backward a layer of tokens x width numbers in fp32, as TX exchanges them, and one
 * each for embedding and classifier; nothing is computed meanwhile (Shoeybi et al., Megatron-LM, 2019).
 *
 * Pipeline: m micro-batches through p stages of v chunks each take (m + (p-1) / v) times one micro-batch of a stage, or
 * of unequal ones m times that of the slowest and 1 / v that of the others together (Narayanan et al., Efficient
 * large-scale language model training on GPU clusters, SC 2021: the bubble is (p-1) / (v m)); a rank's chunks that are
 * unequal among themselves cost up to a tenth more, so the search interleaves equal ones, but for the head. A stage
 * sends tokens x width numbers in 16 bits v times each way a micro-batch, and computes nothing meanwhile. It holds
 * activations of m micro-batches with GPipe (Huang et al., 2019); stage s, from 0 on, of p - s with 1F1B, of p + (p-1 -
 * 2 s) / v interleaved.
 *
 * Stages: the last one has the head, and as many blocks less as keep the slowest stage's work the least; among equals
 * the one whose largest memory is least (stages.c). Work is operations, and bytes at TX_SPLIT_BALANCE and
 * TX_SPLIT_SUMMING, so that it is a function of model and options alone, which all ranks and a run that goes on find
 * alike.
 *
 * Context: c-1 hops of a layer's keys and values forward, of them and their gradients backward, beside the attention of
 * a block of keys; what takes longer than that is waited for (Liu, Zaharia and Abbeel, Ring attention, 2023; ranks have
 * an early chunk of a row and a late one, so that all have as much to do. The rank that sends most sends both in each).
 *
 * Expert: two exchanges of all with all a layer forward and two backward: tokens x width x chosen experts in 16 bits,
 * (e-1)/e of it leaves a rank (Lepikhin et al., GShard, 2020); tokens go to all experts alike.
 *
 * Data: gradients in fp32, ZeRO (Rajbhandari et al., 2020): stages 0 and 1 sum once a step beside the last
 * micro-batch's backward pass, 2 scatters each micro-batch's sum beside its backward pass, 3 also gathers weights twice
 * a micro-batch beside all of it, their copies of 16 bits where products read these. Stages 1 and 2 gather weights at
 * the end of a step. The last layer's part has nothing beside it. Gradients of experts go to data x context / expert
 * ranks.
 *
 * Update: what the optimizer reads and writes at the memory's rate, of a rank's shard.
 *
 * Compute: products at the card's rate, what else is read and written at its memory's. */
#ifndef TX_MODELS_SPLIT_H
#define TX_MODELS_SPLIT_H

#include "models/train/trainer.h"

#define TX_SPLIT_GOODPUT 0.8    /* of line rates that data get, an estimate */
#define TX_SPLIT_MEMORY 0.95    /* of a device's memory that a plan may take */
#define TX_SPLIT_TENSOR_POWER 5 /* tensor is a power of two below two to the power of this */
#define TX_SPLIT_BALANCE 50.0   /* operations that a device does while it moves a byte: CPUs 20, GPUs to 200 */
#define TX_SPLIT_SUMMING 1000.0 /* the same while a tensor group sums a byte: cores 25, GPUs 300 to 1500 */
#define TX_SPLIT_STAGES 1024    /* of all ranks of a pipeline, at most */

typedef struct tx_split_link {
    double rate, latency; /* bytes a second each way, seconds a message */
} tx_split_link;

/* One device among many. */
typedef struct tx_split_machine {
    double peak, rate, moving; /* flop/s of its matrix units and of products; bytes/s of its memory */
    double memory;             /* bytes */
    double room;               /* bytes that the stages of a pipeline are divided to keep below; 0: not known */
    int64_t host;              /* devices a host */
    tx_split_link inside, outside;
} tx_split_machine;

typedef struct tx_split {
    int64_t data, tensor, pipeline, expert, context;
    int32_t zero;
    tx_pipeline_schedule schedule;
    int64_t chunks;       /* of a stage; 1 unless interleaved */
    int64_t batch, micro; /* rows of a micro-batch, micro-batches a step */
    bool again;           /* blocks are computed again in the backward pass */
} tx_split;

/* What a rank does of a micro-batch of one row, and what it holds. */
typedef struct tx_split_piece {
    double bytes[TX_MEMORY_COUNT];
    double flops, moved, update; /* of products; bytes of all else; bytes that the optimizer reads and writes */
} tx_split_piece;

typedef struct tx_split_model {
    int64_t layers, width, kv_width, heads, kv_heads, vocab, block, experts, chosen; /* experts 0: none */
    double expert_share;                                                             /* of a layer's weights */
    int64_t tensor; /* ranks of the largest group that the planner divides the model among */
    /* By the power of two of `tensor`, with blocks computed again or not: a layer, and what a model has besides. */
    tx_split_piece layer[TX_SPLIT_TENSOR_POWER][2], ends[TX_SPLIT_TENSOR_POWER][2];
    double buckets[2][2]; /* bytes on their way in stages 2 and 3 of ZeRO, by the same, of one tensor rank */
} tx_split_model;

/* Where the pieces of a tensor group of so many ranks stand. */
static inline int tx_split_power(int64_t tensor)
{
    int power = 0;
    while (power < TX_SPLIT_TENSOR_POWER - 1 && INT64_C(1) << power < tensor)
        power++;
    return power;
}

/* X(NAME, "word"): seconds of a step; `bubble` is what stages wait for each other */
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
    double bytes[TX_MEMORY_COUNT], memory; /* of the stage that holds most; all but OFFLOADED */
    double mfu;                            /* operations of the model, nothing twice, over the devices' peaks */
} tx_split_figures;

/* ---- plan.c: what the planner says ------------------------------------------------------------------------------ */

/* Asks the planner for a model's pieces, by tensor groups of as many ranks as it can be divided among. `base` has all
 * that a split does not decide: block, types, optimizer. */
tx_status tx_split_model_make(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                              tx_split_model *model);
/* The same for one split alone, without stages 2 and 3 of ZeRO; its tensor groups are of any size. */
tx_status tx_split_model_of(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                            const tx_split *split, tx_split_model *model);
/* Whether the engine does it as the formulas have it; of pipelines all but GPipe, which takes as long as 1F1B and more
 * memory. Experts, whose memory is for the worst case, are others than theirs; of context the planner is not asked. */
bool tx_split_is_built(const tx_split *split);
/* The planner's memory of such a split on rank 0. */
tx_status tx_split_plan(tx_engine *engine, const tx_config *config, const tx_trainer_options *base,
                        const tx_split_model *model, const tx_split_machine *machine, const tx_split *split,
                        tx_memory *memory);

/* ---- predict.c: what follows from the split ---------------------------------------------------------------------- */

/* Seconds in which `ranks`, each `stride` from the next, sum `bytes`; in which each sends all of them `bytes` together;
 * in which each sends its neighbour so many. */
double tx_split_sum(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
double tx_split_exchange(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
double tx_split_hop(const tx_split_machine *machine, int64_t stride, int64_t ranks, double bytes);
/* Seconds of m micro-batches on `stages` of v chunks, of which one takes the slowest stage `slowest` and the others
 * `each` in the mean. */
double tx_split_pipeline(int64_t stages, int64_t chunks, int64_t micro, double each, double slowest);
/* Micro-batches whose activations a rank of the pipeline holds, the first one being 0. */
double tx_split_held(const tx_split *split, int64_t rank);
/* How many blocks each stage has, pipeline x chunks of them in the model's order; there are as many blocks. */
void tx_split_stages(const tx_split_model *model, const tx_split *split, double room, int32_t *blocks);
/* Which share of the work of a pipeline the rank has that has most, by the blocks of each stage. */
double tx_split_slowest(const tx_split_model *model, const tx_split *split, const int32_t *blocks);
void tx_split_predict(const tx_split_model *model, const tx_split_machine *machine, const tx_split *split,
                      tx_split_figures *figures);

/* ---- stages.c: who has how many blocks ---------------------------------------------------------------------------- */

/* What a rank computes and holds whatever it has, and with each block. */
typedef struct tx_split_load {
    double work, each_work, bytes, each_bytes;
} tx_split_load;

/* Divides `all` blocks among ranks, `fewest` or more to each: the largest work is the least that there is with nobody
 * above `room` bytes (0: not known), and of such divisions the largest bytes are. Where somebody is above whatever is
 * done, the least of the largest bytes takes its place. */
void tx_split_share(const tx_split_load *load, int32_t ranks, int32_t fewest, int32_t all, double room,
                    int32_t *blocks);

/* ---- search.c: which is the fastest ----------------------------------------------------------------------------- */

/* Which splits are considered. 0 means any; for `zero` and `again` -1 does. */
typedef struct tx_split_limits {
    int64_t devices, tokens; /* all devices; tokens of a step */
    int64_t tensor, pipeline, expert, context, batch;
    int32_t zero, again;
    bool built; /* only splits that the engine can do (tx_split_is_built) */
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

/* Looks at all powers of two for each axis, micro-batches of 1 to 8 rows or those that are wanted, schedules with 1, 2
 * and 4 chunks a stage. Steps have as many rows as tokens / block. */
void tx_split_search_all(const tx_split_model *model, const tx_split_machine *machine, const tx_split_limits *limits,
                         tx_split_search *search);

/* ---- machine.c: what the ranks of a run measure ------------------------------------------------------------------ */

/* Rates of this device and of the links between all ranks of `comm`, the slowest of each: products that read
 * `products`, an array that is scaled, sums. All but `memory`. All ranks call it and get the same. Takes about a
 * second. */
tx_status tx_split_measure(tx_engine *engine, tx_comm *comm, tx_dtype products, tx_split_machine *machine);

#endif
