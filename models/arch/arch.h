/* SPDX-License-Identifier: Apache-2.0
 *
 * Architectures: what a model of some type is made of. Each is a row, tx_architecture, and a file that fills it
 * (gpt2.c); config.json says which one a folder has. Everything else (training, generation, files, programs) knows a
 * configuration by what all have in common, and asks the row for the rest. */
#ifndef TX_MODELS_ARCH_H
#define TX_MODELS_ARCH_H

#include "models/files/weights.h"
#include "tx.h"
#include "tx_json.h"

typedef struct tx_architecture tx_architecture;
typedef struct tx_lora tx_lora; /* lora.h */

/* What a model's output is. */
typedef enum tx_head {
    TX_HEAD_CAUSAL_LM,              /* scores of the token after each */
    TX_HEAD_MASKED_LM,              /* scores of each token */
    TX_HEAD_SEQUENCE_CLASSIFICATION /* scores of the labels of a text, or one number */
} tx_head;

/* What every configuration begins with; that of an architecture goes on with its own. The names of keys are its
 * architecture's: `width` is n_embd in a GPT-2's file. */
typedef struct tx_config {
    const tx_architecture *architecture;
    int64_t vocab_size, positions, width, layers, heads;
    int64_t labels;                     /* of a classifier; 1: a number is to be guessed */
    bool named_labels;                  /* training data have them by their names: a number is none */
    int64_t bos_token_id, eos_token_id; /* -1: none */
    bool new_head;                      /* the weights are of another head: what this one has besides is new */
    bool other_head_shape;              /* and what a new head has in another shape than theirs is new, too */
    tx_json *source;                    /* the file it was read from, whose other keys are kept; or NULL */
    /* NF4 or NF4_DOUBLE: stores frozen matrices of blocks so, without an adapter all; F32: none. */
    tx_dtype packed;
    tx_lora *lora;          /* an adapter, with which parameters are frozen (lora.h), its own; or NULL */
    bool teacher;           /* beside a model that is trained: frozen, named by TX_WEIGHTS_TEACHER */
    tx_dtype teacher_dtype; /* what its matrices are stored in */
} tx_config;

/* ---- Configuration (config.c) ------------------------------------------------------------------------ */

/* A published model by its name: "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl". The caller frees it. */
tx_status tx_config_preset(const char *name, tx_config **config);
/* Reads config.json, whose model_type and architectures choose the architecture. Absent keys take transformers'
 * defaults; wrong types and values, and keys that change the mathematics in a way that is not implemented, are refused
 * by name. The caller frees it. */
tx_status tx_config_read(const char *path, tx_config **config);
/* The same from JSON, which the configuration takes over, also on failure. */
tx_status tx_config_of_json(tx_json *json, tx_config **config);
/* Gives the configuration another head of its type; TX_UNSUPPORTED where TX has none. */
tx_status tx_config_set_head(tx_config *config, tx_head head);
/* A copy without the file that it was read from, and without adapter. */
tx_status tx_config_copy(const tx_config *config, tx_config **copy);
/* Checks ranges and divisibility; the message names the key. */
tx_status tx_config_check(const tx_config *config);
/* Changes keys as "n_layer=4,n_embd=64,activation_function=gelu". An unknown key, a wrong value or sizes that do not
 * fit are refused by name, and nothing is changed. */
tx_status tx_config_override(tx_config *config, const char *text);
/* Writes config.json, with the other keys of the file it came from. */
tx_status tx_config_write(const tx_config *config, tx_dtype dtype, const char *path);
/* The same as JSON; the caller frees. */
tx_status tx_config_json(const tx_config *config, tx_json **json);
void tx_config_free(tx_config *config); /* NULL is fine */

/* ---- Parameters and graph (arch.c) ------------------------------------------------------------------- */

#define TX_ARCH_NAME 80
/* The vocabulary is padded to a multiple of this in memory: 50257 -> 50304. */
#define TX_VOCAB_MULTIPLE 128
int64_t tx_arch_padded_vocab(const tx_config *config);

/* Number of parameters (named arrays), and name and spec of each, in layer order. */
int32_t tx_arch_params(const tx_config *config);
tx_status tx_arch_param(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
/* The pieces of all parameters, which have the parameters' numbers. The caller frees `*pieces`. */
tx_status tx_arch_pieces(const tx_config *config, tx_weights_piece **pieces, int32_t *count);
/* Number of numbers in them, tied ones counted once, padding left out: 124,439,808 for gpt2. */
int64_t tx_arch_param_count(const tx_config *config);
/* Columns of the logits that mean something: the vocabulary, or a classifier's labels. */
int64_t tx_arch_columns(const tx_config *config);
/* Operations of a token's training step as transformers counts them (total_flos): 6 for each number outside the
 * embeddings; but of experts those alone that a token comes to. */
double tx_arch_flops(const tx_config *config);

typedef struct tx_arch_options {
    size_t size;   /* sizeof(tx_arch_options) */
    bool train;    /* dropout as the configuration says */
    float noise;   /* of training: see tx_arch_noise; 0: none */
    int64_t cache; /* 0: none; else positions in the key-value caches, states "cache.h.<layer>.key" and ".value" */
    /* Of models with experts. An expert takes at most ceil(capacity times what it would get if all got alike) of a
     * graph's tokens; 0: all that choose it. */
    float capacity;
    float z_loss; /* weight of the routers' z-loss (Zoph et al., ST-MoE, 2022) */
    /* Receives what the model adds to a task's loss, one number that has its share of the global batch (tx_share_loss):
     * the z-loss, and where the configuration says output_router_logits the loss that balances the experts. NULL:
     * nothing, and nobody asks. */
    tx_tensor **own_loss;
} tx_arch_options;

/* The logits of a graph's inputs, which the architecture looks for by their names. A language model takes
 *
 *     input_ids          I32 [B, T]: tokens; one below 0 is padding, whose embedding is 0
 *     attention_lengths  I32 [B]: keys from lengths[b] on are masked. Without it none are
 *     attention_starts   I32 [B, T], without caches: the first position that each sees. Without it 0. For samples side
 * by side in a row: where the sample begins that the position belongs to position_ids       I32 [B, T], without caches:
 * where each token stands. Without it 0, 1, .. positions          with caches, I32 [B]: where the first token of each
 * row stands sources            with caches, I32 [B]: the row whose cache each row goes on with (beams). Without it its
 * own rows               I32 [R], indices into the B * T positions: logits of these alone, [R, V']. Without it of all
 *
 * and gives [B, T, V'], V' the padded vocabulary: columns from vocab_size on mean nothing; where ranks divide the
 * vocabulary, this rank's columns, which tx_cross_entropy knows what to do with. Other heads know no caches;
 * a classifier gives [B, labels]. What else an architecture knows its header tells. Declares the parameters
 * where they are not yet. Layers are the graph's blocks (tx_graph_block). `options` NULL: evaluation, no cache. NULL on
 * error. */
tx_tensor *tx_arch_logits(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
/* For an architecture: adds to embeddings x [B, T, C] what a row's own numbers, drawn evenly from +-noise / sqrt(T C),
 * give (Jain et al., NEFTune, 2023); x itself where there is none. */
tx_tensor *tx_arch_noise(tx_graph *graph, tx_tensor *x, const tx_arch_options *options);

/* ---- Files (files.c) --------------------------------------------------------------------------------- */

/* Reads the weights (tx_weights_open, or a GGUF file's) into a model whose graph has been built; `options` may be NULL.
 * Accepts published files as the architecture says. With a new head, what the file lacks of it stays as it is
 * (tx_model_init). */
tx_status tx_arch_load(tx_model *model, const tx_config *config, const char *folder, const tx_load_options *options);
/* Opens the files that tx_arch_load reads. */
tx_status tx_arch_open_weights(const char *folder, tx_weights **weights);
/* Whether tx_arch_load would take the weights, all values included, without a model. */
tx_status tx_arch_check(const tx_config *config, const char *folder);
/* Writes config.json and model.safetensors (or shards, where it is over TX_WEIGHTS_SHARD bytes), as transformers'
 * AutoModel classes load them. */
tx_status tx_arch_save(tx_model *model, const tx_config *config, const char *folder);

/* From names in files to those of parameters, as the configuration has them. */
tx_weights_names tx_arch_names(const tx_config *config);

/* For rows whose output head is the token embedding: a head that the file holds as well must be the embedding, to the
 * bit of its fp32 values. */
tx_status tx_arch_check_tied(const tx_weights *weights, const char *head, const char *embedding);

/* ---- The row of an architecture ------------------------------------------------------------------------- */

/* X(NAME): kinds of keys in config.json. A CHOICE is an int32_t in memory and one of `words` in the file. */
typedef enum tx_key_kind { TX_KEY_INT, TX_KEY_INT_OR_NULL, TX_KEY_NUMBER, TX_KEY_BOOL, TX_KEY_CHOICE } tx_key_kind;

typedef struct tx_config_key {
    const char *name;
    size_t offset; /* in the configuration: int64_t, double, bool or int32_t */
    tx_key_kind kind;
    double min, max;
    int64_t null;             /* what null stands for in memory */
    const char *second;       /* another name that transformers takes; NULL: none */
    const char *const *words; /* of a choice, `max` the last one's number */
} tx_config_key;

/* A key's value in a configuration: one of these, by its kind. */
typedef union tx_config_value {
    const void *at;
    const int64_t *whole;
    const double *number;
    const bool *flag;
    const int32_t *choice;
} tx_config_value;

static inline tx_config_value tx_config_value_of(const tx_config *config, const tx_config_key *key)
{
    return (tx_config_value){.at = (const char *)config + key->offset};
}

/* A key that changes the mathematics, with the one value that is implemented. */
typedef struct tx_fixed_key {
    const char *name;
    bool value;
    const char *why;
} tx_fixed_key;

typedef struct tx_preset {
    const char *name, *overrides; /* as tx_config_override takes them, over the defaults */
} tx_preset;

struct tx_architecture {
    const char *type;       /* model_type in config.json */
    const char *class_name; /* in "architectures" */
    tx_head head;           /* rows of one type have a head each, and all else in common; the first is usual */
    size_t config_bytes;
    const tx_config *defaults; /* transformers' */
    const tx_config_key *keys; /* NULL in the name behind the last; as the next two */
    const tx_fixed_key *fixed;
    const tx_preset *presets;
    /* What `keys` cannot say, from and to config.json; NULL: nothing. */
    tx_status (*read)(const tx_json *json, tx_config *config);
    tx_status (*write)(const tx_config *config, tx_json *json);
    tx_status (*check)(const tx_config *config); /* what single keys do not say */
    int32_t (*params)(const tx_config *config);
    tx_status (*param)(const tx_config *config, int32_t index, char name[TX_ARCH_NAME], tx_param_spec *spec);
    int64_t (*embeddings)(const tx_config *config); /* numbers in them, tied ones included; NULL: none */
    int64_t (*idle)(const tx_config *config);       /* numbers that a token does not come to, of experts; NULL: none */
    tx_tensor *(*logits)(tx_graph *graph, const tx_config *config, const tx_arch_options *options);
    bool inputs_first; /* the weights of linear layers are [in, out], else [out, in] */
    /* Modules that peft adapts where none are named, and that it trains whole besides; NULL: none. */
    const char *lora_targets, *lora_saved;
    /* From names in files to those of parameters (tx_weights_rename). */
    void (*rename)(const tx_config *config, const char *tensor, char param[TX_WEIGHTS_NAME]);
    /* Whether a parameter belongs to the head; NULL: there is but one head. */
    bool (*is_of_head)(const char *param);
    /* What names and shapes do not say; NULL: nothing. */
    tx_status (*check_weights)(const tx_config *config, const tx_weights *weights);
};

/* All architectures, NULL behind the last (table.c). */
extern const tx_architecture *const tx_architectures[];
/* The first one of this type; UNSUPPORTED names those there are. */
tx_status tx_architecture_find(const char *type, const tx_architecture **architecture);

#endif
