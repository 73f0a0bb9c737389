/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion of model folders to GGUF files, which llama.cpp runs, and to distributed checkpoints, and back. */
#ifndef TX_CONVERT_H
#define TX_CONVERT_H

#include "tx.h"

TX_API_BEGIN

/* The type in which matrices are written. Those after BF16 are blocks of 2 to 6 bits, as llama.cpp's quantizer mixes
 * them. X(NAME, "word") */
#define TX_CONVERT_MAP(X) \
    X(F32, "f32")         \
    X(F16, "f16")         \
    X(Q8_0, "q8_0")       \
    X(BF16, "bf16")       \
    X(Q4_0, "q4_0")       \
    X(Q4_1, "q4_1")       \
    X(Q5_0, "q5_0")       \
    X(Q5_1, "q5_1")       \
    X(Q2_K, "q2_k")       \
    X(Q3_K_S, "q3_k_s")   \
    X(Q3_K_M, "q3_k_m")   \
    X(Q3_K_L, "q3_k_l")   \
    X(Q4_K_S, "q4_k_s")   \
    X(Q4_K_M, "q4_k_m")   \
    X(Q5_K_S, "q5_k_s")   \
    X(Q5_K_M, "q5_k_m")   \
    X(Q6_K, "q6_k")       \
    X(IQ4_NL, "iq4_nl")   \
    X(IQ4_XS, "iq4_xs")   \
    X(MXFP4_MOE, "mxfp4_moe")

typedef enum tx_convert_type {
#define X(name, word) TX_CONVERT_##name,
    TX_CONVERT_MAP(X)
#undef X
        TX_CONVERT_TYPES
} tx_convert_type;

/* The importance of the inputs of matrices, by which types of 2 to 6 bits round the weights of important inputs better.
 * Give a text, or a file, or both. */
typedef struct tx_calibration {
    size_t size;        /* sizeof(tx_calibration) */
    const char *text;   /* a file of text, which the model reads: the mean square of each input; or NULL */
    const char *file;   /* a file of llama-imatrix to read; with a text, the GGUF file to write it to; or NULL */
    const char *device; /* that reads the text; see tx_device_find */
    int64_t threads;    /* of the cpu backend; 0 means all that this process may use */
} tx_calibration;

/* Converts the model `from` to `to`. After a failure `to` does not exist. One of the two is a file whose name ends with
 * .gguf. The other is a model folder; `from` may also be any name that txtrain's --model_name_or_path accepts.
 * TX_UNSUPPORTED for adapters, and for models and tokenizers that llama.cpp would compute differently. The exact form
 * of GELU only gives a warning, since llama.cpp computes its tanh form, within 0.0005. TX_INVALID if the folder `to`
 * already holds a model, or if a folder is to be written in another type than F32, F16 or BF16. F32 keeps every value
 * exactly. A distributed checkpoint becomes a folder as by tx_convert_distributed. A text for calibration has at least
 * 512 tokens, or as many as the model has positions, and the model is a causal language model. `calibration` and
 * `report` may be NULL.
 */
tx_status tx_convert(const char *from, const char *to, tx_convert_type type, const tx_calibration *calibration,
                     const tx_reporter *report);

/* Converts the weights of the model `from`, any that tx_convert accepts except a GGUF file, to the folder `to`. Types
 * and values stay. With `ranks` the result is a distributed checkpoint of PyTorch (torch.distributed.checkpoint), as
 * that many ranks of FSDP save the dictionary {"model": state}. 0 means a model folder. `from` may itself be such a
 * checkpoint, whose pickles are read as data. The configuration and the tokenizer are copied if `from` has them.
 * TX_INVALID if `to` already holds weights. `report` may be NULL.
 *
 * The states of AdamW are converted too. A checkpoint of a run becomes a distributed checkpoint with
 * {"optimizer": states}. A distributed checkpoint with such states and a configuration becomes a checkpoint of a run,
 * from which txtrain resumes. For other optimizers only the weights are converted, and `report` says so. */
tx_status tx_convert_distributed(const char *from, const char *to, int64_t ranks, const tx_reporter *report);

/* The types of peft's add_weighted_adapter. X(NAME, "word") */
#define TX_COMBINATION_MAP(X) \
    X(LINEAR, "linear")       \
    X(CAT, "cat")             \
    X(SVD, "svd")             \
    X(TIES, "ties") X(DARE_LINEAR, "dare_linear") X(DARE_TIES, "dare_ties") X(MAGNITUDE_PRUNE, "magnitude_prune")

/* How adapters become one. */
typedef struct tx_combination {
    size_t size;                /* sizeof(tx_combination) */
    const char *const *adapter; /* peft folders of the same base model */
    int32_t count;
    const double *weight; /* one for each adapter; NULL means 1 */
    int32_t type;         /* a number of TX_COMBINATION_MAP */
    double density;       /* the fraction of values that ties, dare and magnitude_prune keep */
    bool frequency;       /* ties takes the sign that most adapters have; else that of the sum */
    int64_t rank;         /* of svd; 0 means the greatest rank of the adapters */
    uint64_t seed;        /* of dare's random values */
} tx_combination;

/* Combines LoRA adapters and writes the result as a peft folder with scale 1. TX_UNSUPPORTED for other tensors than A
 * and B of linear layers, and for DoRA, PiSSA and OLoRA. TX_INVALID if `folder` holds an adapter. */
tx_status tx_combine_adapters(const tx_combination *how, const char *folder);

TX_API_END

#endif
