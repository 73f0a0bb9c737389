/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of a run: one member for each option (options.def). All code that needs a setting reads it from here. */
#ifndef TX_OPTIONS_SETTINGS_H
#define TX_OPTIONS_SETTINGS_H

#include "tx_base.h"

#include <stdbool.h>
#include <stdint.h>

/* When the run logs, evaluates or saves: never, every N steps and at the end, or at the end of each epoch and of the
 * run. X(NAME, "name") */
#define TX_STRATEGY_MAP(X) \
    X(NO, "no")            \
    X(STEPS, "steps")      \
    X(EPOCH, "epoch")      \
    X(BEST, "best") /* only for saving: after an evaluation that is the best so far */

typedef enum tx_strategy {
#define X(name, text) TX_STRATEGY_##name,
    TX_STRATEGY_MAP(X)
#undef X
} tx_strategy;

/* Whether a greater value of a metric is better. AUTO uses the direction of the task's metric. X(NAME, "name") */
#define TX_GREATER_MAP(X) X(AUTO, "auto") X(TRUE, "true") X(FALSE, "false")

typedef enum tx_greater {
#define X(name, text) TX_GREATER_##name,
    TX_GREATER_MAP(X)
#undef X
} tx_greater;

/* The words of options with fixed choices. X(NAME, "word") */
#define TX_REPORT_MAP(X) \
    X(TENSORBOARD, "tensorboard") X(WANDB, "wandb") X(TRACKIO, "trackio") X(ALL, "all") X(NONE, "none")
#define TX_SAVE_ERROR_MAP(X) X(CONTINUE, "continue") X(STOP, "stop")
#define TX_DDP_COMM_MAP(X) X(FP32, "fp32") X(BF16, "bf16") X(INT8, "int8")
#define TX_SAMPLING_MAP(X) X(RANDOM, "random") X(SEQUENTIAL, "sequential") X(BY_LENGTH, "group_by_length")

#define TX_DIVERGENCE_MAP(X)          \
    X(REVERSE_KL, "reverse_kl")       \
    X(FORWARD_KL, "forward_kl")       \
    X(JS_DIVERGENCE, "js_divergence") \
    X(ALPHA_DIVERGENCE, "alpha_divergence")

#define TX_SCALE_REWARDS_MAP(X) X(GROUP, "group") X(BATCH, "batch") X(NONE, "none")

#define X(name, word) TX_SCALE_REWARDS_##name,
enum { TX_SCALE_REWARDS_MAP(X) };
#undef X
enum { TX_IMPORTANCE_TOKEN, TX_IMPORTANCE_SEQUENCE };

#define X(name, word) TX_DIVERGENCE_##name,
enum { TX_DIVERGENCE_MAP(X) };
#undef X

/* The losses of embeddings, by the names of sentence-transformers. */
#define TX_EMBEDDING_LOSS_MAP(X)             \
    X(RANKING, MultipleNegativesRankingLoss) \
    X(COSINE, CosineSimilarityLoss)          \
    X(TRIPLET, TripletLoss)

#define X(name, word) TX_EMBEDDING_LOSS_##name,
enum { TX_EMBEDDING_LOSS_AUTO, TX_EMBEDDING_LOSS_MAP(X) };
#undef X

#define X(name, word) TX_REPORT_##name,
enum { TX_REPORT_MAP(X) };
#undef X
#define X(name, word) TX_SAVE_ERROR_##name,
enum { TX_SAVE_ERROR_MAP(X) };
#undef X
#define X(name, word) TX_DDP_COMM_##name,
enum { TX_DDP_COMM_MAP(X) };
#undef X
#define X(name, word) TX_SAMPLING_##name,
enum { TX_SAMPLING_MAP(X) };
#undef X

#define TX_JOB_CHUNKS 2 /* default number of stages of a rank with the interleaved schedule */

enum { TX_JOB_PARALLEL_GIVEN, TX_JOB_PARALLEL_AUTO };
enum { TX_JOB_DTYPE_F32, TX_JOB_DTYPE_BF16, TX_JOB_DTYPE_AUTO };
enum { TX_JOB_LORA_TRUE, TX_JOB_LORA_PISSA, TX_JOB_LORA_OLORA, TX_JOB_LORA_LOFTQ };
enum { TX_JOB_ADAPTER_NONE, TX_JOB_ADAPTER_LORA, TX_JOB_ADAPTER_QLORA };
enum { TX_JOB_MIXED_NO, TX_JOB_MIXED_BF16, TX_JOB_MIXED_FP16 };
enum { TX_JOB_DISTRIBUTED_FSDP = 5, TX_JOB_DISTRIBUTED_DEEPSPEED }; /* the words before mean the same: no sharding */

typedef struct tx_job_settings {
#define OPTION(kind, type, name, member, ...) type member;
#include "models/options/options.def"
} tx_job_settings;

extern const tx_job_settings tx_job_defaults; /* the defaults */

/* Whether the run trains, and whether it evaluates when training is over. These follow from other settings if do_train
 * and do_eval are not given, as with transformers. */
bool tx_job_trains(const tx_job_settings *set);
bool tx_job_evaluates(const tx_job_settings *set);
/* The number of pipeline stages of a rank. */
int32_t tx_job_chunks(const tx_job_settings *set);
/* The type in which gradients are sent between hosts (tx_transfer.wire). */
tx_dtype tx_job_wire(const tx_job_settings *set);
/* The seed of the order of samples. */
uint64_t tx_job_data_seed(const tx_job_settings *set);

#endif
